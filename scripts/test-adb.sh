#!/usr/bin/env bash
# Tests everything that has to do with devices on a phone without a phone: AOSP's own adbd and the real adb server in
# namespaces of their own (scripts/rig). Installs both when they are missing (Debian). Needs root, skips without.
#
#   scripts/test-adb.sh            builds and tests, in two minutes or three besides the build
#   CABLE_S=70 scripts/test-adb.sh the same, with the cable pulled for so many seconds [20]
#   scripts/test-adb.sh arm64      a matrix with the engines of scripts/build-device.sh, on an emulated CPU
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
skip() { echo "SKIPPED: test-adb: $*"; exit 0; }
say() { printf '\n-- %s\n' "$*"; }
[ "$(id -u)" = 0 ] || skip "only root can make the namespaces of the rig"
unshare --net --pid --mount --fork true 2>/dev/null || skip "this machine allows no namespaces"
scripts/rig/setup.sh || skip "the rig's packages are not to be had (above)"
if ! command -v cargo >/dev/null 2>&1; then PATH="$HOME/.cargo/bin:$PATH"; fi

# The same selection as the tests', so that nothing is compiled twice.
cargo build --workspace --bins
test=$(cargo test --workspace --no-run --test adb_rig --message-format=json 2>/dev/null \
  | python3 -c 'import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("target", {}).get("name") == "adb_rig" and message.get("executable"):
        print(message["executable"])')
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
export BMOE=$target/debug/bmoe ENGINE=$target/debug/bmoe-engine

# rig MIB TEST...: these tests, one after the other, on a new phone.
rig() {
  local mib=$1
  shift
  DATA_MIB=$mib timeout -k 10 300 scripts/rig/with-device.sh "$test" --ignored --test-threads=1 --nocapture --exact "$@"
}

if [ "${1:-}" = arm64 ]; then
  [ -d target/device/arm64-v8a ] || scripts/build-device.sh arm64
  scripts/rig/setup.sh --arm64
  say "a matrix on an arm64 phone"
  ABI=arm64-v8a QEMU_CPU=max timeout -k 10 900 scripts/rig/with-device.sh scripts/rig/matrix.sh arm64
  exit 0
fi

say "commands, files, pushes that are cut off, a restarted server"
rig '' commands_end_as_they_end_in_a_shell a_command_that_is_left_ends_on_the_phone small_files_go_there_and_back \
  what_is_there_is_not_sent_again_but_another_content_is_found \
  a_push_that_is_cut_off_goes_on_where_it_was a_server_that_was_restarted_loses_nothing_that_runs_detached
say "a full disk"
rig 80 a_full_disk_is_told_before_and_while_it_fills
say "a phone that vanishes"
rig '' a_phone_that_vanishes_is_lost
say "devices, doctor, clean"
timeout -k 10 300 scripts/rig/with-device.sh scripts/rig/commands.sh
export MODELS=$PWD/models
mkdir -p "$MODELS"
say "a matrix on the phone, undisturbed and disturbed"
timeout -k 10 600 scripts/rig/with-device.sh scripts/rig/matrix.sh undisturbed split_model two_targets viewed server_restarted \
  cable_pulled \
  engine_killed runner_killed wrong_engine push_cut_off phone_killed
BLIND=1 timeout -k 10 300 scripts/rig/with-device.sh scripts/rig/matrix.sh sensors_missing
DATA_MIB=300 timeout -k 10 300 scripts/rig/with-device.sh scripts/rig/matrix.sh disk_full
# Room for the engine and the model, and little more.
DATA_MIB=1000 timeout -k 10 300 scripts/rig/with-device.sh scripts/rig/matrix.sh disk_fills
echo
echo "test-adb: all passed"
