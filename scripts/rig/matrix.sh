#!/usr/bin/env bash
# A matrix on the rig's phone, undisturbed and disturbed: with-device.sh runs this for test-adb.sh. $BMOE and $ENGINE are
# the programs, $MODELS is where synthetic models are kept.
set -euo pipefail
cd "$WORK"
fail() { echo "matrix: $*" >&2; exit 1; }
say() { printf '   %s\n' "$*"; }
target=adb:$ADBD_ADDR
export BMOE_HOME=$WORK/state

cat > small.toml <<'T'
name = "rig"
repetitions = 2
timeout_s = 120
patience_s = 60
baseline = { mode = "mmap" }

[[model]]
name = "quickstart"
synth = { shape = "quickstart" }

[base]
prompt = "The old lighthouse keeper climbed the stairs"
n_predict = 64
ctx_tokens = 512
threads = 1

[axes]
mode = ["mmap", "stream"]
cache_mib = [345]
io_threads = [4]
T
sed 's/n_predict = 64/n_predict = 400/; s/repetitions = 2/repetitions = 1/' small.toml > long.toml

# start OUT MATRIX: a matrix in the background; returns when an engine runs.
start() {
  "$BMOE" run "$2" --target "$target" --engine "$ENGINE" --models "$MODELS" --out "$1" >"$1.log" 2>&1 &
  runner=$!
  until adb shell pgrep -f "'[b]moe-engine generate'" >/dev/null 2>&1; do
    kill -0 $runner 2>/dev/null || fail "$1: no engine was seen: $(cat "$1.log")"
    sleep 0.2
  done
}
# ended OUT STATUS: the matrix in the background ends with this exit code.
ended() {
  local code=0
  wait $runner || code=$?
  [ "$code" = "$2" ] || fail "$1: exit code $code, expected $2: $(cat "$1.log")"
}
# verdicts OUT: of all attempts, sorted and counted.
verdicts() {
  python3 -c '
import collections, json, sys
records = [json.loads(line) for line in open(sys.argv[1] + "/cells.jsonl")]
print(" ".join(f"{n} {v}" for v, n in sorted(collections.Counter(r["verdict"] for r in records).items())))' "$1"
}
expect_verdicts() { [ "$(verdicts "$1")" = "$2" ] || fail "$1: $(verdicts "$1"), expected $2: $(cat "$1.log" "$1/cells.jsonl")"; }
# first_attempts OUT: nothing was run a second time.
first_attempts() { ! grep -q '"attempt":[2-9]' "$1/cells.jsonl" || fail "$1: a second attempt: $(cat "$1/cells.jsonl")"; }
no_orphan() { ! adb shell pgrep -f "'[b]moe-engine generate'" >/dev/null 2>&1 || fail "$1: an engine still runs"; }

undisturbed() {
  "$BMOE" run small.toml --target "$target" --engine "$ENGINE" --models "$MODELS" --out plain >plain.log 2>&1 \
    || fail "plain: $(cat plain.log)"
  expect_verdicts plain "4 valid"
  [ -s plain/report.md ] && [ -s plain/data/tokens.parquet ] || fail "plain: no report"
  grep -q AdbRig plain/environment.json || fail "plain: the environment is not the phone's: $(cat plain/environment.json)"
  "$BMOE" report plain >/dev/null || fail "plain: no second report"
  say "a matrix: $(verdicts plain)"
}
split_model() {
  "$BMOE" synth --shape quickstart --split 3 --out parts.gguf >/dev/null 2>&1
  sed 's/synth = .*/path = "parts-00001-of-00003.gguf"/; s/repetitions = 2/repetitions = 1/' small.toml > split.toml
  "$BMOE" run split.toml --target "$target" --engine "$ENGINE" --models . --out split >split.log 2>&1 \
    || fail "split: $(cat split.log)"
  expect_verdicts split "2 valid"
  ! "$BMOE" run split.toml --target "$target" --engine "$ENGINE" --models . --out split2 --dry-run | grep -q 'push  *[1-9]' \
    || fail "split: it would be sent again"
  rm parts-*.gguf
  say "a model in three files: $(verdicts split)"
}
two_targets() {
  "$BMOE" run long.toml --target "$target" --target local --engine "$ENGINE" --models "$MODELS" --out two >two.log 2>&1 \
    || fail "two: $(cat two.log)"
  local there=two/adb-${ADBD_ADDR//:/-}
  [ -d "$there" ] || there=$(echo two/adb*)
  expect_verdicts "$there" "2 valid"
  expect_verdicts two/local "2 valid"
  # Both at the same time: each started before the other was done.
  python3 - "$there" two/local <<'P' || fail "two: one after the other"
import json, sys
def spans(folder):
    starts = [e["unix_ms"] for e in map(json.loads, open(folder + "/journal.jsonl")) if e["event"] == "started"]
    return min(starts), max(starts)
(a, b), (c, d) = map(spans, sys.argv[1:])
sys.exit(not (a < d and c < b))
P
  grep -q "^adb:" two.log && grep -q "^local:" two.log || fail "two: whose lines these are is not told: $(cat two.log)"
  say "two targets at once: $(verdicts "$there") and $(verdicts two/local)"
}
server_restarted() {
  start restart long.toml
  adb kill-server
  ended restart 0
  expect_verdicts restart "2 valid"
  no_orphan restart
  say "the adb server ended in the middle: $(verdicts restart)"
}
cable_pulled() {
  start pulled long.toml
  # The phone's adbd stands still; what it had started runs on, and is over before it can be heard again.
  local adbd seconds=${CABLE_S:-20}
  adbd=$(pgrep -P "$ADB_RIG_PID")
  kill -STOP "$adbd"
  sleep "$seconds"
  kill -CONT "$adbd"
  ended pulled 0
  expect_verdicts pulled "2 valid"
  first_attempts pulled
  say "nothing from the phone for $seconds s: $(verdicts pulled)"
}
# The viewer over a run on the phone, as plain lines: what it shows comes over the cable.
viewed() {
  "$BMOE" view --matrix long.toml --out viewed --target "$target" --no-tui -- --engine "$ENGINE" --models "$MODELS" \
    >viewer.log 2>&1 || fail "viewed: $(cat viewer.log)"
  for _ in $(seq 300); do
    [ -s viewed/report.md ] && break
    sleep 0.1
  done
  expect_verdicts viewed "2 valid"
  [ "$(grep -c ': 400 tokens, [0-9.]* tok/s' viewer.log)" = 2 ] || fail "viewed: $(cat viewer.log)"
  say "a run viewed: $(grep -o '400 tokens, .*' viewer.log | head -n 1)"
}
# The phone's disk fills up while an engine runs: what could not be written there is told, not taken for a result.
disk_fills() {
  start fills long.toml
  adb shell 'cat /dev/zero > /data/local/tmp/fill' >/dev/null 2>&1 || true
  sleep 1
  adb shell rm -f /data/local/tmp/fill
  ended fills 4
  python3 - <<'P' || fail "fills: $(cat fills.log fills/cells.jsonl)"
import json
records = [json.loads(line) for line in open("fills/cells.jsonl")]
failed = [r for r in records if r["verdict"] != "valid"]
assert failed and all("space" in r["reason"].lower() for r in failed), records
P
  no_orphan fills
  "$BMOE" run --resume fills --only-failed >fills2.log 2>&1 || fail "fills: $(cat fills2.log)"
  say "the disk filled up: $(verdicts fills)"
}
engine_killed() {
  start killed long.toml
  # toybox's pkill kills itself, too.
  adb shell pkill -9 -f "'[b]moe-engine generate'" || true
  ended killed 4
  expect_verdicts killed "1 killed 1 valid"
  say "the engine killed: $(verdicts killed)"
}
runner_killed() {
  start resumed long.toml
  kill -9 $runner
  wait $runner 2>/dev/null || true
  "$BMOE" run --resume resumed >resumed.log 2>&1 || fail "resumed: $(cat resumed.log)"
  expect_verdicts resumed "2 valid"
  # The engine that still ran was followed, not ended and begun again.
  first_attempts resumed
  no_orphan resumed
  say "the runner killed, and another one went on: $(verdicts resumed)"
}
wrong_engine() {
  # Of the right machine, but no program.
  { printf '\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x3e\x00'; head -c 4000 /dev/zero; } > wrong-engine
  chmod +x wrong-engine
  local code=0
  "$BMOE" run small.toml --target "$target" --engine wrong-engine --models "$MODELS" --out wrong >wrong.log 2>&1 || code=$?
  [ $code = 3 ] && grep -q 'cannot run on adb:' wrong.log || fail "wrong: exit code $code: $(cat wrong.log)"
  say "an engine that can't run there: $(grep -o 'cannot run on [^;]*' wrong.log)"
}
push_cut_off() {
  "$BMOE" clean --target "$target" >/dev/null
  "$BMOE" run small.toml --target "$target" --engine "$ENGINE" --models "$MODELS" --out cut --filter mmap >cut.log 2>&1 &
  runner=$!
  until adb shell 'ls /data/local/tmp/bmoe/files/*/*.gguf.partial' >/dev/null 2>&1; do
    kill -0 $runner 2>/dev/null || fail "cut: nothing was sent: $(cat cut.log)"
    sleep 0.05
  done
  adb kill-server
  ended cut 0
  expect_verdicts cut "2 valid"
  say "the push cut off: $(verdicts cut)"
}
phone_killed() {
  sed -i 's/^patience_s.*/patience_s = 5/' long.toml
  start lost long.toml
  kill -9 "$ADB_RIG_PID"
  local code=0
  wait $runner || code=$?
  [ $code = 5 ] && grep -qi 'lost' lost.log || fail "lost: exit code $code: $(cat lost.log)"
  ! grep -q '"verdict":"valid"' lost/cells.jsonl || fail "lost: $(cat lost/cells.jsonl)"
  say "the phone killed: exit code $code, $(tail -n 1 lost.log)"
}
arm64() {
  # The engine of the device's ABI is found, not told; it runs on an emulated CPU.
  sed 's/shape = "quickstart"/shape = "tiny-qwen3moe"/; s/n_predict = 64/n_predict = 8/; s/\[345\]/[0, 64]/' small.toml > arm64.toml
  "$BMOE" doctor --target "$target" >doctor.log 2>&1 || fail "arm64: doctor: $(cat doctor.log)"
  grep -q 'target/device/arm64-v8a' doctor.log || fail "arm64: doctor names no engine of its own: $(cat doctor.log)"
  "$BMOE" run arm64.toml --target "$target" --models . --out arm64 >arm64.log 2>&1 || fail "arm64: $(cat arm64.log)"
  expect_verdicts arm64 "6 valid"
  local variant
  variant=$(grep -o 'built for [^"]*' arm64/environment.json) || fail "arm64: which engine is not recorded: $(cat arm64/environment.json)"
  say "an arm64 engine, $variant: $(verdicts arm64)"
}
sensors_missing() {
  # No thermal zone and no clock of the CPU, as on a virtual machine: empty folders stand in front of those that
  # there may be.
  "$BMOE" run small.toml --target "$target" --engine "$ENGINE" --models "$MODELS" --out blind >blind.log 2>&1 \
    || fail "blind: $(cat blind.log)"
  expect_verdicts blind "4 valid"
  grep -q 'does not tell .*temperature.*clock.*; runs wait for' blind.log || fail "blind: the log does not tell: $(cat blind.log)"
  python3 - <<'P' || fail "blind: what a gate lacked is not recorded: $(head -n 1 blind/cells.jsonl)"
import json
for record in map(json.loads, open("blind/cells.jsonl")):
    gate = record["conditions"]["gate"]
    assert any("temperature" in what for what in gate["unavailable"]), gate
    assert any("clock" in what for what in gate["unavailable"]), gate
    assert gate["used"], gate
P
  say "without sensors and clocks: $(grep -o 'does not tell.*' blind.log | head -n 1)"
}
disk_full() {
  local code=0
  "$BMOE" run small.toml --target "$target" --engine "$ENGINE" --models "$MODELS" --out full >full.log 2>&1 || code=$?
  [ $code = 3 ] && grep -q 'MiB free in' full.log || fail "full: exit code $code: $(cat full.log)"
  say "no room: $(grep -o '[0-9]* MiB free.*needed' full.log)"
}

for scenario in "$@"; do $scenario; done
