#!/usr/bin/env bash
# Reads what `bmoe import` writes with DuckDB, and runs the queries of docs/formats.md on it as they stand there.
# DuckDB comes from PyPI, into .tools; where it can't be installed, that is said and nothing is tested.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bmoe=${BMOE:-$PWD/target/debug/bmoe}
if [ ! -x "$bmoe" ]; then
  echo "test-duckdb: $bmoe is missing; cargo build -p bmoe makes it" >&2
  exit 1
fi
venv=$PWD/.tools/duckdb
python=$venv/bin/python
has_duckdb() { [ -x "$python" ] && "$python" -c 'import duckdb' 2>/dev/null; }
if ! has_duckdb; then
  echo "test-duckdb: installing duckdb from PyPI into .tools/duckdb ..."
  mkdir -p .tools
  rm -rf "$venv"
  { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check duckdb; } || true
  if ! has_duckdb; then
    echo "SKIPPED: duckdb could not be installed (pip's message is above); the Parquet files were not read with it"
    exit 0
  fi
fi
exec "$python" scripts/test_duckdb.py "$bmoe"
