#!/usr/bin/env bash
# Builds engines for devices:
#
#   scripts/build-device.sh arm64 [VARIANT...]
#
# Static arm64 Linux programs, which run from /data/local/tmp of an Android device too, one for each variant of
# the CPU (all of them by default); `bmoe run` takes the best one that the device's CPU can run:
#
#   armv8-a               every 64-bit Arm
#   armv8.2-a+dotprod     Cortex-A55/A75 and later (2018): several times faster on quantised weights
#   armv8.6-a+i8mm        Cortex-A510/A710/X2 and later (2021)
#
# With ANDROID_NDK_HOME set they are made for Android (bionic) with the NDK's compiler instead.
# They land in target/device/arm64-v8a/VARIANT/bmoe-engine.
#
# Needs, and on Debian as root installs: the cross compiler and, where rustup can't add the target, the
# standard library's sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
abi=arm64-v8a
all=(armv8-a armv8.2-a+dotprod armv8.6-a+i8mm)

say() { printf 'device: %s\n' "$*"; }
die() { printf 'device: error: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '2,/^set -/{s/^# \{0,1\}//;/^set -/d;p}' "${BASH_SOURCE[0]}"; }

case "${1:-}" in
  -h|--help) usage; exit 0 ;;
  arm64) shift ;;
  "") usage >&2; exit 2 ;;
  *) die "\"$1\" is no device that engines can be built for; expected arm64" ;;
esac
variants=("$@")
[ ${#variants[@]} -gt 0 ] || variants=("${all[@]}")
for variant in "${variants[@]}"; do
  printf '%s\n' "${all[@]}" | grep -qxF -- "$variant" || die "\"$variant\" is no variant; expected ${all[*]}"
done

scripts/setup.sh
if ! command -v cargo >/dev/null 2>&1; then PATH="$HOME/.cargo/bin:$PATH"; fi

if [ -n "${ANDROID_NDK_HOME:-}" ]; then
  [ -f "$ANDROID_NDK_HOME/build/cmake/android.toolchain.cmake" ] \
    || die "ANDROID_NDK_HOME=$ANDROID_NDK_HOME is no NDK (no build/cmake/android.toolchain.cmake); unset it for static Linux programs"
  target=aarch64-linux-android
  api=${ANDROID_API_LEVEL:-29}
  tools=$(echo "$ANDROID_NDK_HOME"/toolchains/llvm/prebuilt/*/bin)
  export ANDROID_NDK=$ANDROID_NDK_HOME ANDROID_API_LEVEL=$api
  export CARGO_TARGET_AARCH64_LINUX_ANDROID_LINKER=$tools/aarch64-linux-android$api-clang
  export CC_aarch64_linux_android=$CARGO_TARGET_AARCH64_LINUX_ANDROID_LINKER
  export CXX_aarch64_linux_android=$tools/aarch64-linux-android$api-clang++ AR_aarch64_linux_android=$tools/llvm-ar
  flags=
else
  target=aarch64-unknown-linux-gnu
  if ! command -v aarch64-linux-gnu-g++ >/dev/null 2>&1; then
    packages="gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross"
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
      || die "the arm64 cross compiler is missing; on Debian or Ubuntu, as root: apt-get install $packages"
    say "installing $packages ..."
    # shellcheck disable=SC2086
    { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages \
      || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages; }; } >/dev/null
  fi
  export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
  export CMAKE_TOOLCHAIN_FILE=$root/scripts/cross/aarch64-linux-gnu.cmake
  export BINDGEN_EXTRA_CLANG_ARGS_aarch64_unknown_linux_gnu="--target=aarch64-linux-gnu -I$(aarch64-linux-gnu-gcc -print-file-name=include) -I/usr/aarch64-linux-gnu/include"
  flags="-C target-feature=+crt-static"
fi

# The standard library: rustup's where there is one, else built from its sources.
std=()
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
  if command -v rustup >/dev/null 2>&1 && timeout 120 rustup target add "$target" >/dev/null 2>&1; then
    say "rustup added $target"
  else
    [ -f "$(rustc --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ] \
      || scripts/cross/fetch-rust-src.sh "$root/.tools/rust-src" \
      || die "the standard library for $target is missing; with rustup: rustup target add $target, or rustup component add rust-src"
    # Building the standard library is an option that only nightly toolchains have by default.
    export RUSTC_BOOTSTRAP=1
    std=(-Zbuild-std=std,panic_abort)
  fi
fi

export CARGO_TARGET_DIR=$root/target/device/build
for variant in "${variants[@]}"; do
  say "building $abi $variant ..."
  # llama-cpp-sys-2 configures once; another variant must configure again, and compiles what that changes.
  rm -f "$CARGO_TARGET_DIR/$target/debug/build"/llama-cpp-sys-2-*/out/build/CMakeCache.txt
  GGML_CPU_ARM_ARCH=$variant RUSTFLAGS="$flags" \
    cargo build -p bmoe-engine --bin bmoe-engine --features static-stdcxx --target "$target" "${std[@]}"
  out=$root/target/device/$abi/$variant
  mkdir -p "$out"
  grep -qxF "GGML_CPU_ARM_ARCH:STRING=$variant" \
    "$CARGO_TARGET_DIR/$target/debug/build"/llama-cpp-sys-2-*/out/build/CMakeCache.txt \
    || die "llama.cpp was not configured for $variant; remove target/device/build and try again"
  # Whole or not at all: a runner may be looking for it meanwhile.
  cp "$CARGO_TARGET_DIR/$target/debug/bmoe-engine" "$out/.bmoe-engine.part"
  strip=$(command -v aarch64-linux-gnu-strip || command -v "${tools:-}/llvm-strip" || true)
  [ -z "$strip" ] || "$strip" "$out/.bmoe-engine.part"
  mv "$out/.bmoe-engine.part" "$out/bmoe-engine"
  say "$(du -h "$out/bmoe-engine" | cut -f1)  ${out#"$root"/}/bmoe-engine"
done
