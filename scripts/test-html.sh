#!/usr/bin/env bash
# Opens report.html in a headless Chromium: that it is drawn, how soon, and that pointing, filtering and sorting work.
# Chromium is the system's, or else installed from Debian where that is allowed; without one nothing is tested.
# KEEP=DIR keeps the pages and screenshots there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bmoe=${BMOE:-$PWD/target/debug/bmoe}
if [ ! -x "$bmoe" ]; then
  echo "test-html: $bmoe is missing; cargo build -p bmoe makes it" >&2
  exit 1
fi
find_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome || true; }
chromium=${CHROMIUM:-$(find_chromium)}
if [ -z "$chromium" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "test-html: installing chromium from Debian ..."
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 || true
  chromium=$(find_chromium)
fi
if [ -z "$chromium" ]; then
  echo "SKIPPED: chromium is not here and could not be installed; report.html was not opened"
  exit 0
fi
exec python3 scripts/test_html.py "$bmoe" "$chromium"
