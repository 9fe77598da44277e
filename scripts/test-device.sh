#!/usr/bin/env bash
# scripts/test-device.sh [VARIANT...]: the arm64 engines compute the same streamed as resident, to the last bit, on
# emulated CPUs without dot products, with them and with i8mm. Says nothing about speed: the emulator is slow.
# Needs qemu-user-static (installed as root on Debian); builds the engines that are missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
say() { printf 'device: %s\n' "$*"; }
die() { printf 'device: error: %s\n' "$*" >&2; exit 1; }

variants=("$@")
[ ${#variants[@]} -gt 0 ] || variants=(armv8-a armv8.2-a+dotprod armv8.6-a+i8mm)
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
if [ -z "$qemu" ]; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
    || die "qemu-aarch64-static is missing; on Debian or Ubuntu, as root: apt-get install qemu-user-static"
  say "installing qemu-user-static ..."
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends qemu-user-static >/dev/null
  qemu=$(command -v qemu-aarch64-static)
fi
missing=()
for variant in "${variants[@]}"; do
  [ -x "target/device/arm64-v8a/$variant/bmoe-engine" ] || missing+=("$variant")
done
[ ${#missing[@]} -eq 0 ] || scripts/build-device.sh arm64 "${missing[@]}"
[ -x target/debug/bmoe ] || cargo build -p bmoe --bin bmoe

work=$(mktemp -d "${TMPDIR:-/tmp}/bmoe-device.XXXXXX")
trap 'rm -rf "$work"' EXIT
for shape in tiny-qwen3moe tiny-gemma4 tiny-gpt-oss; do
  target/debug/bmoe synth --shape "$shape" --out "$work/$shape.gguf" >/dev/null 2>&1
done

# The oldest emulated CPU that runs each variant (for i8mm that is the one with everything). What a CPU lacks, an
# engine that needs it would die of.
cpu_of() {
  case "$1" in
    armv8-a) echo cortex-a53 ;;
    armv8.2-a+dotprod) echo cortex-a76 ;;
    *) echo max ;;
  esac
}
# Long enough that experts get enough rows at once for ggml's other kernels.
prompt=$(printf 'The lighthouse keeper climbed the stairs and looked over the sea. %.0s' 1 2 3 4)
# logits ENGINE CPU MODEL OPTION...: the hash of all logits
logits() {
  local engine=$1 cpu=$2 model=$3
  shift 3
  QEMU_CPU=$cpu timeout 600 "$qemu" "$engine" generate -m "$model" -p "$prompt" -n 8 -t 1 \
    --ctx 512 --hash-logits "$@" 2>&1 >/dev/null \
    | tee "$work/log" | sed -n 's/^logits *sha256 //p' || true
}
compared=0 failed=0
for variant in "${variants[@]}"; do
  engine=target/device/arm64-v8a/$variant/bmoe-engine
  cpu=$(cpu_of "$variant")
  for shape in tiny-qwen3moe tiny-gemma4 tiny-gpt-oss; do
    model=$work/$shape.gguf
    resident=$(logits "$engine" "$cpu" "$model" --mode resident)
    [ -n "$resident" ] || { echo "FAILED: $variant on $cpu, $shape: no logits in resident mode"; failed=$((failed + 1)); continue; }
    for way in "--cache-mb 0" "--cache-mb 0 --overlap off" "--cache-mb 2 --force-cache" "--cache-mb 64 --no-odirect" "--mode mmap"; do
      # shellcheck disable=SC2086
      streamed=$(logits "$engine" "$cpu" "$model" $way)
      compared=$((compared + 1))
      if [ "$streamed" != "$resident" ]; then
        echo "FAILED: $variant on $cpu, $shape, $way: ${streamed:-$(tail -n 1 "$work/log")} is not $resident"
        failed=$((failed + 1))
      fi
    done
    say "$variant on $cpu, $shape: ${resident:0:12}"
  done
done
[ "$compared" -gt 0 ] || die "nothing was compared"
say "$compared comparisons, $failed failed"
[ "$failed" -eq 0 ]
