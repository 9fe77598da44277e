#!/usr/bin/env bash
# Replays the published routes of Qwen3-30B-A3B on a synthetic model of its shape and compares what was measured with
# the simulation of the routes. The model (18.5 GB) is made when it isn't there; needs root and a version 1 memory
# controller.
#
#   scripts/replay-full.sh [--small] [--out DIR] [--trace FILE] [BMOE RUN OPTIONS...]
#
# --small proves the way of it: the same layers, experts and routes with small experts (about 0.4 GB), no limit, no root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

published=../shared/data/published/2026-07-15-route/qwen.route.csv
small='' out='' trace=$published options=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --small) small=1 ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    --trace) trace=${2:?--trace needs a file}; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) options+=("$1") ;;
  esac
  shift
done
[[ -r $trace ]] || { echo "replay-full: cannot read the trace $trace; give one with --trace" >&2; exit 1; }
target=$(cargo metadata --format-version 1 --no-deps \
  | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
bmoe=$target/debug/bmoe
[[ -x $bmoe ]] || { echo "replay-full: $bmoe is missing; run cargo build --workspace --bins" >&2; exit 1; }

work=$(mktemp -d "$target/replay.XXXXXX")
trap 'rm -rf "$work"' EXIT
matrix=matrices/qwen3-30b-a3b-replay.toml
if [[ -n $small || ! $trace -ef $published ]]; then
  sed "s|^replay_routes = .*|replay_routes = \"$(realpath "$trace")\"|" "$matrix" > "$work/matrix.toml"
  matrix=$work/matrix.toml
fi
limit=(scripts/with-memory-limit.sh 11264 --readahead 128)
if [[ -n $small ]]; then
  limit=() out=${out:-runs/qwen3-30b-a3b-replay-small}
  # Budgets are about the same shares of all experts.
  sed -e 's/^name = .*/name = "qwen3-30b-a3b-small"/' -e 's/^hidden = .*/hidden = 256/' -e 's/^heads = .*/heads = 4/' \
    -e 's/^kv_heads = .*/kv_heads = 1/' -e 's/^head_dim = .*/head_dim = 64/' -e 's/^expert_ffn = .*/expert_ffn = 128/' \
    -e 's/^vocab = .*/vocab = 1024/' -e '/^expert_/s/"Q4_K"/"Q4_0"/g' -e '/^expert_/s/"Q6_K"/"Q5_0"/g' \
    matrices/shapes/qwen3-30b-a3b.toml > "$work/small.toml"
  sed -i -e 's/^name = "qwen3-30b-a3b"/name = "qwen3-30b-a3b-small"/' \
    -e 's|^synth = .*|synth = { shape = "small.toml" }|' -e 's/^repetitions = .*/repetitions = 1/' \
    -e 's/^name = "qwen3-30b-a3b-replay"/name = "qwen3-30b-a3b-replay-small"/' \
    -e 's/^cache_mib = .*/cache_mib = [0, 20, 40, 80, 160]/' "$matrix"
  options+=(--models "$work")
else
  out=${out:-runs/qwen3-30b-a3b-replay}
  # Beyond the limit: the pages that are written count against whoever writes them.
  "$bmoe" synth --shape qwen3-30b-a3b
  options+=(--models models)
fi
"${limit[@]}" "$bmoe" run "$matrix" --out "$out" "${options[@]}"
# Small experts have other sizes than those of the trace.
if [[ -n $small ]]; then trace=; fi
python3 scripts/replay_check.py "$bmoe" "$out" ${trace:+"$trace"}
