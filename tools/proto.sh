#!/bin/sh
# Generate the protobuf modules from their .proto files, or with --check tell whether they differ.
set -eu
python=$1
shift
check=no
if [ "$1" = --check ]; then check=yes; shift; fi
folder=$1
env=.venv/proto
if ! cmp -s requirements/proto.txt "$env/installed.txt"; then
  rm -rf "$env"
  "$python" -m venv "$env"
  "$env/bin/pip" install --quiet --require-hashes -r requirements/proto.txt
  cp requirements/proto.txt "$env/installed.txt"
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$env/bin/python" -m grpc_tools.protoc --proto_path=src --python_out="$out" --pyi_out="$out" "$folder"/*.proto
for made in "$out/${folder#src/}"/*_pb2.py; do
  # The compiler makes its modules refuse every runtime older than itself and warn about newer ones. What it
  # generated here holds a descriptor and nothing else, and runs on all versions that pyproject.toml allows.
  sed -i.orig -e '/^_runtime_version\.Validate/,/^)/d' -e '/runtime_version as _runtime_version/d' "$made"
  rm "$made.orig"
done
if [ $check = yes ]; then
  for there in "$folder"/*_pb2.py "$folder"/*_pb2.pyi; do
    if [ ! -e "$out/${folder#src/}/$(basename "$there")" ]; then
      echo "$there has no .proto file"; exit 1
    fi
  done
fi
for made in "$out/${folder#src/}"/*; do
  if [ $check = yes ]; then
    cmp -s "$made" "$folder/$(basename "$made")" || {
      echo "$folder/$(basename "$made") is not what its .proto file says: run 'make proto'"; exit 1; }
  else
    cp "$made" "$folder/"
  fi
done
