#!/usr/bin/env bash
# Every test. Needs no more than `cargo test`, once scripts/setup.sh has found the tools.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh
if ! command -v cargo >/dev/null 2>&1; then PATH="$HOME/.cargo/bin:$PATH"; fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
cargo test --workspace --no-fail-fast "$@" 2>&1 | tee "$log" || status=$?
# These need the binary that the tests have just built; a selection of tests is only that.
if [ $# = 0 ]; then
  scripts/test-duckdb.sh || status=1
  scripts/test-html.sh || status=1
  scripts/test-view.sh || status=1
fi
# Added up from cargo's own lines: test result: ok. 3 passed; 0 failed; 1 ignored; ...
awk '/^test result:/ { suites++; passed += $4; failed += $6; ignored += $8 }
     END { printf "\ntests: %d passed, %d failed, %d ignored, in %d suites\n", passed, failed, ignored, suites }' "$log"
if [ ! -d ../shared/data ]; then
  # They say so themselves, but cargo shows the output of failed tests only.
  echo "note: the published data (../shared/data) are not here; the tests that compare with them looked at nothing"
fi
exit "$status"
