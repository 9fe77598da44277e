#!/usr/bin/env bash
# Runs a command in a memory control group (version 1) of its own, with the readahead of the disk that holds the
# current folder set for the time. Needs root.
#
#   scripts/with-memory-limit.sh MIB [--readahead KIB] COMMAND...
set -euo pipefail

usage() {
  sed -n '2,5s/^# \{0,1\}//p' "$0"
  exit 2
}
[[ $# -ge 2 && $1 =~ ^[1-9][0-9]*$ ]] || usage
mib=$1
shift
readahead=
if [[ $1 == --readahead ]]; then
  [[ $# -ge 3 && $2 =~ ^[0-9]+$ ]] || usage
  readahead=$2
  shift 2
fi

if [[ $EUID -ne 0 ]]; then
  echo "with-memory-limit: needs root to make a control group; run it as root" >&2
  exit 1
fi
root=/sys/fs/cgroup/memory
if [[ ! -w $root/memory.limit_in_bytes && ! -d $root ]]; then
  echo "with-memory-limit: no version 1 memory controller at $root" >&2
  exit 1
fi

# The queue of the block device (of a partition: of its disk).
queue() {
  local device path
  device=$(stat -c '%Hd:%Ld' .)
  path=$(readlink -f "/sys/dev/block/$device")
  [[ -d $path/queue ]] || path=$(dirname "$path")
  echo "$path/queue/read_ahead_kb"
}

group=$root/bmoe.$$
mkdir "$group"
old=
cleanup() {
  [[ -z $old ]] || echo "$old" > "$(queue)"
  # The last page cache of the group keeps it busy for a moment.
  for _ in 1 2 3 4 5; do rmdir "$group" 2> /dev/null && return; sleep 0.2; done
}
trap cleanup EXIT
echo $((mib << 20)) > "$group/memory.limit_in_bytes"
if [[ -n $readahead ]]; then
  old=$(< "$(queue)")
  echo "$readahead" > "$(queue)"
fi
sync
echo 3 > /proc/sys/vm/drop_caches
(
  echo "$BASHPID" > "$group/cgroup.procs"
  exec "$@"
)
