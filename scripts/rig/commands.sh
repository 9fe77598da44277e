#!/usr/bin/env bash
# What a person types, on the rig's phone: with-device.sh runs this for test-adb.sh. $BMOE and $ENGINE are the programs.
set -euo pipefail
cd "$WORK"
fail() { echo "commands: $*" >&2; exit 1; }
# expect STATUS PATTERN COMMAND...: it ends with this exit code and says this.
expect() {
  local status=$1 pattern=$2 out code=0
  shift 2
  out=$("$@" 2>&1) || code=$?
  [ "$code" = "$status" ] || fail "$*: exit code $code, expected $status: $out"
  grep -qE -- "$pattern" <<<"$out" || fail "$*: expected /$pattern/ in: $out"
  echo "ok: ${*##*/} ($status)"
}
name=adb:$ADBD_ADDR

expect 0 "^$name +Bench AdbRig, Android 14 \(API 34\), x86_64" "$BMOE" devices
"$BMOE" devices --json | python3 -c '
import json, sys
local, phone = json.load(sys.stdin)["devices"]
assert local["target"] == "local" and local["facts"]["cores"] > 0, local
assert phone["state"] == "ready" and phone["facts"]["battery"]["pct"] == 87, phone
assert phone["facts"]["zones"] == [] and phone["facts"]["clusters"] == [], "a virtual machine has neither"
'
expect 0 'temperatures +no sensor of the CPU' "$BMOE" doctor --target adb --engine "$ENGINE"
expect 0 "ok +engine" "$BMOE" doctor --target "$name" --engine "$ENGINE"
expect 3 'cannot be opened' "$BMOE" doctor --target adb --engine "$ENGINE" --model none.gguf
expect 3 'name one of: adb:127' "$BMOE" doctor --target adb:NONE --engine "$ENGINE"
expect 3 'refused|cannot connect|failed to connect' "$BMOE" doctor --target adb:127.0.0.1:1 --engine "$ENGINE"

# An engine for another machine is refused before it is sent.
printf '\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00' > arm-engine
expect 3 'is for arm64-v8a, the device is x86_64' "$BMOE" doctor --target adb --engine arm-engine

expect 0 'nothing of bmoe' "$BMOE" clean --target adb
adb shell 'mkdir -p /data/local/tmp/bmoe/files/00; head -c 5000000 /dev/zero >/data/local/tmp/bmoe/files/00/m; echo x >/data/local/tmp/other'
expect 0 'would remove 4.8 MiB' "$BMOE" clean --target adb --dry-run
expect 0 'removed 4.8 MiB' "$BMOE" clean --target "$name"
expect 1 'No such file' adb shell ls /data/local/tmp/bmoe
expect 0 x adb shell cat /data/local/tmp/other

# Without a server one is started, and a wireless device is connected again.
adb kill-server
expect 0 "^$name: Bench AdbRig" "$BMOE" doctor --target "$name" --engine "$ENGINE"
adb disconnect "$ADBD_ADDR" >/dev/null
expect 3 'connect one with USB debugging on' "$BMOE" doctor --target adb --engine "$ENGINE"
expect 0 'no devices behind adb' "$BMOE" devices
# And without adb it is said how to get it.
adb kill-server
expect 3 'adb is not installed' env PATH=/nowhere "$BMOE" clean --target adb
