#!/usr/bin/env bash
# From a clone to measured results: tools, build, a model, a small matrix, a report.
# Arguments go to `bmoe run`, for example: scripts/quickstart.sh --filter 'mmap|cache off'
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
cd "$here/.."
say() { printf '\n== %s\n' "$*"; }

say "1/3 tools"
scripts/setup.sh
if ! command -v cargo >/dev/null 2>&1; then PATH="$HOME/.cargo/bin:$PATH"; fi

say "2/3 build (the first time compiles llama.cpp and takes a while)"
# The same selection as the tests', so that nothing is compiled twice.
cargo build --workspace --bins
target=$(cargo metadata --format-version 1 --no-deps \
  | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')

say "3/3 the matrix matrices/quickstart.toml"
exec "$target/debug/bmoe" run matrices/quickstart.toml "$@"
