#!/usr/bin/env bash
# What watching costs: the same cells with the viewer on their result folder and without it, turn about, each with one
# core left free and with all of them computing. `bmoe compare` says the difference with its interval. On a machine
# that does nothing else: scripts/view-cost.sh [ROUNDS] [FPS]. Needs tmux and target/debug/{bmoe,bmoe-engine}.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rounds=${1:-6}
fps=${2:-10}
bmoe=${BMOE:-$PWD/target/debug/bmoe}
models=${MODELS:-models}
cores=$(nproc)
if ! command -v tmux >/dev/null 2>&1; then
  echo "view-cost: tmux is missing; it plays the viewer's terminal" >&2
  exit 1
fi
work=$(mktemp -d)
tmux=(tmux -L "bmoe-cost-$$" -f /dev/null)
trap '"${tmux[@]}" kill-server 2>/dev/null || true; rm -rf "$work"' EXIT
export LANG=C.UTF-8 LC_ALL=C.UTF-8

threads="$cores"
if [ "$cores" -gt 1 ]; then threads="$((cores - 1)), $cores"; fi
cat >"$work/cost.toml" <<TOML
name = "cost"
repetitions = 1
timeout_s = 600

[[model]]
name = "quickstart"
synth = { shape = "${SHAPE:-quickstart}" }

[base]
prompt = "The old lighthouse keeper climbed the stairs"
n_predict = ${TOKENS:-512}
ctx_tokens = 1024
cache_mib = 115
io_threads = 2

[axes]
threads = [$threads]

[gate]
max_wait_s = 20
TOML

# One more repetition in a folder: its own matrix asks for one more, and `--resume` runs what is missing.
repetition() { # repetition FOLDER NUMBER
  if [ "$2" = 1 ]; then
    "$bmoe" run "$work/cost.toml" --out "$1" --models "$models" >/dev/null 2>>"$work/log"
  else
    sed -i "s/^repetitions = .*/repetitions = $2/" "$1/matrix.toml"
    "$bmoe" run --resume "$1" >/dev/null 2>>"$work/log"
  fi
}

watched() { # watched FOLDER NUMBER
  repetition "$1" "$2" &
  local run=$!
  until [ -f "$1/matrix.toml" ]; do sleep 0.05; done
  "${tmux[@]}" new-session -d -x 120 -y 40 "'$bmoe' view '$1' --fps $fps"
  wait "$run"
  "${tmux[@]}" kill-server 2>/dev/null || true
}

# The model is made before anything is measured.
"$bmoe" run "$work/cost.toml" --out "$work/warm" --models "$models" >/dev/null 2>>"$work/log" || {
  cat "$work/log" >&2
  exit 1
}
for round in $(seq "$rounds"); do
  echo "round $round of $rounds"
  if [ $((round % 2)) = 1 ]; then
    repetition "$work/alone" "$round"
    watched "$work/watched" "$round"
  else
    watched "$work/watched" "$round"
    repetition "$work/alone" "$round"
  fi
done
echo "A without the viewer, B with it at $fps frames a second, $cores cores:"
"$bmoe" compare "$work/alone" "$work/watched"
