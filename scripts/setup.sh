#!/usr/bin/env bash
# Finds or installs what compiling llama.cpp needs (cmake, libclang) and writes .cargo/config.toml, so that
# a plain `cargo build` or `cargo test` works afterwards. Repeating it changes nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
tools=$root/.tools
config=.cargo/config.toml
marker="# Written by scripts/setup.sh."
cmake_minimum=3.14

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
# at_least VERSION MINIMUM
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
# A libclang counts when it can be loaded, for it can lack libraries of its own.
loads() { python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1]).clang_getClangVersion' "$1" 2>/dev/null; }

# --- what has to be there -------------------------------------------------------------------------------
if ! have cargo && [ -x "$HOME/.cargo/bin/cargo" ]; then PATH="$HOME/.cargo/bin:$PATH"; fi
have cargo || die "cargo is missing; install Rust (rustup, or your distribution's package) and run this again"
for tool in gcc:gcc g++:g++ python3:python3; do
  have "${tool%%:*}" || die "${tool%%:*} is missing; on Debian or Ubuntu: apt-get install ${tool##*:}"
done
rust_wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
rust_found=$(rustc --version | cut -d' ' -f2)
at_least "${rust_found%%-*}" "$rust_wanted" \
  || die "Rust $rust_found is too old: expected $rust_wanted or later; with rustup: rustup update"

# --- is it done already? --------------------------------------------------------------------------------
# value KEY: what the existing configuration says.
value() { sed -n "s/^$1 = \"\(.*\)\"\$/\1/p" "$config"; }
if [ -f "$config" ]; then
  cmake=$(value CMAKE); clang=$(value LIBCLANG_PATH)
  if [ -x "$cmake" ] && [ -d "$clang" ] && { have make || [ -n "$(value CMAKE_GENERATOR)" ]; }; then
    say "nothing to do ($config names cmake and libclang, and both are there)"
    exit 0
  fi
  grep -qF "$marker" "$config" \
    || die "$config exists and is not ours; set CMAKE, LIBCLANG_PATH and BINDGEN_EXTRA_CLANG_ARGS in its \
[env], or move it away and run this again"
fi

# --- packages from PyPI, in .tools ----------------------------------------------------------------------
# install PACKAGE: into .tools/venv, or .tools/packages where this Python can't make virtual environments.
install() {
  say "installing $1 from PyPI into ${tools#"$root"/} ..."
  mkdir -p "$tools"
  if [ ! -d "$tools/packages" ] && make_venv; then
    "$tools/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
      --root-user-action=ignore "$1" && return
  elif python3 -m pip --version >/dev/null 2>&1; then
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
      --target "$tools/packages/$1" "$1" && return
  else
    die "this Python has neither venv nor pip, so $1 cannot be installed; on Debian or Ubuntu, as root: \
apt-get install python3-venv (or: apt-get install cmake libclang-dev)"
  fi
  die "$1 could not be installed (pip's message is above); install it with your package manager instead"
}
make_venv() {
  [ -x "$tools/venv/bin/pip" ] && return
  rm -rf "$tools/venv"
  python3 -m venv "$tools/venv" >/dev/null 2>&1 && return
  rm -rf "$tools/venv"
  # Debian keeps a part of venv in a package of its own; root can have it, others get the next best.
  if [ "$(id -u)" = 0 ] && have apt-get && ! python3 -m pip --version >/dev/null 2>&1; then
    say "installing Debian's python3-venv ..."
    { apt-get install -y -qq python3-venv || { apt-get update -qq && apt-get install -y -qq python3-venv; }; } \
      >"$tools/apt.log" 2>&1 || die "apt-get install python3-venv failed; see $tools/apt.log"
    python3 -m venv "$tools/venv" >/dev/null 2>&1 && return
    rm -rf "$tools/venv"
  fi
  return 1
}
# in_tools PATTERN: the first file below .tools whose path ends like this.
in_tools() { [ -d "$tools" ] && find "$tools" -path "*/$1" 2>/dev/null | sort | head -n 1; }

# --- cmake ----------------------------------------------------------------------------------------------
find_cmake() {
  local found version
  for found in "$(command -v cmake || true)" "$(in_tools cmake/data/bin/cmake)"; do
    [ -n "$found" ] || continue
    version=$("$found" --version 2>/dev/null | sed -n '1s/.*version \([0-9.]*\).*/\1/p') || continue
    if [ -n "$version" ] && at_least "$version" "$cmake_minimum"; then
      cmake=$found
      say "cmake $version: $cmake"
      return
    fi
  done
  return 1
}
find_cmake || { install cmake; find_cmake; } || die "PyPI's cmake does not run here; install cmake with your package manager"

# --- libclang -------------------------------------------------------------------------------------------
find_libclang() {
  local folder file
  for folder in "${LIBCLANG_PATH:-}" "$(dirname "$(in_tools clang/native/libclang.so)")" \
    "$(llvm-config --libdir 2>/dev/null || true)" \
    $(printf '%s\n' /usr/lib/llvm-*/lib | sort -rV) "/usr/lib/$(gcc -print-multiarch 2>/dev/null)" /usr/lib64 /usr/lib; do
    for file in "$folder"/libclang.so "$folder"/libclang-[0-9]*.so* "$folder"/libclang.so.*; do
      if [ -f "$file" ] && loads "$file"; then
        libclang=$folder
        say "libclang: $file"
        return
      fi
    done
  done
  return 1
}
find_libclang || { install libclang; find_libclang; } || die "PyPI's libclang does not load here; install libclang (Debian: libclang-dev)"

# --- make, or ninja instead of it -----------------------------------------------------------------------
generator=
if ! have make; then
  ninja=$(command -v ninja || in_tools bin/ninja)
  [ -n "$ninja" ] || { install ninja; ninja=$(in_tools bin/ninja); }
  [ -n "$ninja" ] || die "neither make nor ninja is here; on Debian or Ubuntu: apt-get install make"
  say "ninja, as make is missing: $ninja"
  # cmake looks for ninja on PATH, which is cargo's caller's.
  mkdir -p "$tools/bin"
  printf '#!/bin/sh\nPATH="%s:$PATH" exec "%s" "$@"\n' "$(dirname "$ninja")" "$cmake" >"$tools/bin/cmake"
  chmod +x "$tools/bin/cmake"
  cmake=$tools/bin/cmake
  generator='CMAKE_GENERATOR = "Ninja"'
fi

# --- the configuration ----------------------------------------------------------------------------------
mkdir -p .cargo
cat >"$config.part" <<TOML
$marker It is not tracked; delete it to look for the tools again.
[env]
CMAKE = "$cmake"
LIBCLANG_PATH = "$libclang"
# libclang alone does not know the compiler's own headers (stdbool.h and others).
BINDGEN_EXTRA_CLANG_ARGS = "-I$(gcc -print-file-name=include)"
$generator
TOML
mv "$config.part" "$config"
say "wrote $config"
