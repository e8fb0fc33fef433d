#!/bin/sh
# Generate the protobuf modules from their .proto files, or with --check tell whether they differ.
set -eu
python=$1
shift
check=no
if [ "$1" = --check ]; then check=yes; shift; fi
folder=$1
env=.venv/proto
if [ ! -x "$env/bin/python" ]; then
  "$python" -m venv "$env"
  "$env/bin/pip" install --quiet --require-hashes -r requirements/proto.txt
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$env/bin/python" -m grpc_tools.protoc --proto_path=src --python_out="$out" --pyi_out="$out" "$folder"/*.proto
for made in "$out/${folder#src/}"/*; do
  if [ $check = yes ]; then
    cmp -s "$made" "$folder/$(basename "$made")" || {
      echo "$folder/$(basename "$made") is not what its .proto file says: run 'make proto'"; exit 1; }
  else
    cp "$made" "$folder/"
  fi
done
