#!/usr/bin/env bash
# What watching costs: the same run with the viewer on its result folder and without it, turn about; once with one core
# left free by the engine and once with all of them computing. `bmoe compare` says the difference with its interval. On
# a machine that does nothing else: scripts/view-cost.sh [ROUNDS] [FPS]. Needs tmux and target/debug/{bmoe,bmoe-engine}.
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

matrix() { # matrix THREADS
  cat <<TOML
name = "cost"
repetitions = 1
timeout_s = 600

[[model]]
name = "${SHAPE:-quickstart}"
synth = { shape = "${SHAPE:-quickstart}" }

[base]
prompt = "The old lighthouse keeper climbed the stairs"
n_predict = ${TOKENS:-512}
ctx_tokens = 2048
threads = $1

[axes]
mode = ["stream"]
cache_mib = [${CACHE_MIB:-115}]
io_threads = [2]

[gate]
max_wait_s = 20
TOML
}

# One more repetition in a folder: its own matrix asks for one more, and `--resume` runs what is missing.
repetition() { # repetition MATRIX FOLDER NUMBER
  local words=("$1" --out "$2" --models "$models")
  if [ "$3" != 1 ]; then
    sed -i "s/^repetitions = .*/repetitions = $3/" "$2/matrix.toml"
    words=(--resume "$2")
  fi
  "$bmoe" run "${words[@]}" >/dev/null 2>"$work/log" || {
    cat "$work/log" >&2
    exit 1
  }
}

watched() { # watched MATRIX FOLDER NUMBER
  repetition "$@" &
  local run=$!
  until [ -f "$2/matrix.toml" ]; do sleep 0.05; done
  "${tmux[@]}" new-session -d -x 120 -y 40 "'$bmoe' view '$2' --fps $fps"
  wait "$run"
  "${tmux[@]}" kill-server 2>/dev/null || true
}

measure() { # measure THREADS WORDS
  local matrix=$work/$1.toml alone=$work/$1/alone watched=$work/$1/watched round
  matrix "$1" >"$matrix"
  mkdir -p "$work/$1"
  # The model is made, and everything warm, before anything counts.
  repetition "$matrix" "$work/$1/warm" 1
  for round in $(seq "$rounds"); do
    echo "round $round of $rounds, $2" >&2
    if [ $((round % 2)) = 1 ]; then
      repetition "$matrix" "$alone" "$round"
      watched "$matrix" "$watched" "$round"
    else
      watched "$matrix" "$watched" "$round"
      repetition "$matrix" "$alone" "$round"
    fi
  done
  echo
  echo "$2 (A without the viewer, B with it at $fps frames a second):"
  "$bmoe" compare "$alone" "$watched"
}

if [ "$cores" -gt 1 ]; then
  measure $((cores - 1)) "$((cores - 1)) of $cores cores compute"
fi
measure "$cores" "all $cores cores compute"
