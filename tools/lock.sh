#!/bin/sh
# Pin everything the make targets install, with hashes; for every platform, without naming a registry.
set -eu
python=$1
env=$(mktemp -d)
trap 'rm -rf "$env"' EXIT
"$python" -m venv "$env"
"$env/bin/pip" install --quiet uv
lock() {
  "$env/bin/uv" pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-annotate --no-header "$@"
}
lock --extra postgres --extra journal pyproject.toml requirements/dev.in -o requirements/dev.txt
lock requirements/proto.in -o requirements/proto.txt
lock requirements/node.in -o requirements/node.txt
lock --no-deps requirements/postgres.in -o requirements/postgres.txt
