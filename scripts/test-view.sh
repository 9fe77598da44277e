#!/usr/bin/env bash
# The viewer and the chat in a real terminal, which tmux plays. Needs target/debug/{bmoe,bmoe-engine} and tmux, which
# is installed when it can be; otherwise that is said and nothing is tested.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bmoe=${BMOE:-$PWD/target/debug/bmoe}
for binary in "$bmoe" "$(dirname "$bmoe")/bmoe-engine"; do
  if [ ! -x "$binary" ]; then
    echo "test-view: $binary is missing; cargo build --workspace makes it" >&2
    exit 1
  fi
done
if ! command -v tmux >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  echo "test-view: installing tmux with apt-get ..."
  { apt-get update -qq && apt-get install -y -qq tmux; } >/dev/null 2>&1 || true
fi
if ! command -v tmux >/dev/null 2>&1; then
  echo "SKIPPED: tmux is missing and could not be installed; the viewer was not tried in a terminal"
  exit 0
fi
work=$(mktemp -d)
# A server of its own: whoever uses tmux here is not disturbed.
tmux=(tmux -L "bmoe-test-$$" -f /dev/null)
trap '"${tmux[@]}" kill-server 2>/dev/null || true; rm -rf "$work"' EXIT
export LANG=C.UTF-8 LC_ALL=C.UTF-8
unset NO_COLOR COLORFGBG TMUX
for part in scripts/view/*.sh; do
  # shellcheck source=/dev/null
  . "$part"
done
tests=${*:-$(declare -F | awk '$3 ~ /^(watch|replay|talk)_/ { print $3 }')}
for test in $tests; do
  echo "test-view: $test"
  "$test"
done
echo "test-view: passed"
