#!/bin/sh
# Make the JavaScript peers ready to run: Node.js (the machine's own if it is new enough, else the one that comes
# as a Python wheel, in .node) and the packages of the folders here, each with versions of its own.
# Usage: node-setup.sh PYTHON
set -eu
python=$1
oldest=20
root=$(cd "$(dirname "$0")/.." && pwd)

say() { echo "interop: $*" >&2; }

new_enough() {
  command -v "$1" >/dev/null 2>&1 &&
    "$1" -e "process.exit(parseInt(process.versions.node) >= $oldest ? 0 : 1)" 2>/dev/null
}

if ! { new_enough node && command -v npm >/dev/null 2>&1; }; then
  if ! new_enough "$root/.node/bin/node"; then
    say "no Node.js $oldest or newer with npm on this machine: installing one into .node (once)"
    rm -rf "$root/.node"
    "$python" -m venv "$root/.node" || {
      say "'$python' cannot make a virtual environment (Debian: apt install python3-venv)"; exit 1; }
    "$root/.node/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
      -r "$root/requirements/node.txt" || {
      say "Node.js could not be installed from PyPI: is there a network, and a wheel for this machine?"; exit 1; }
  fi
  PATH=$root/.node/bin:$PATH
  export PATH
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for package in "$root"/interop/*/package.json; do
  folder=$(basename "$(dirname "$package")")
  cd "$root/interop/$folder"
  npm ci --no-fund --no-audit --loglevel=error >"$log" 2>&1 || {
    cat "$log" >&2
    say "the JavaScript packages of interop/$folder could not be installed from npm: is there a network?"
    exit 1
  }
done
