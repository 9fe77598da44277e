#!/usr/bin/env bash
# fetch-rust-src.sh DIR: the sources of the installed rustc's standard library, out of a Debian package, without
# adding its suite to the machine's own; links them where `cargo -Zbuild-std` looks.
set -euo pipefail
dir=${1:?where to put them}
version=$(rustc -V | cut -d' ' -f2)
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
[ -n "$mirror" ] || { echo "this machine names no Debian mirror in /etc/apt/sources.list.d/debian.sources" >&2; exit 3; }
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
apt=$dir/apt
mkdir -p "$apt"/etc/apt/{apt.conf.d,preferences.d} "$apt"/var/lib/apt/lists/partial \
  "$apt"/var/cache/apt/archives/partial "$apt"/var/lib/dpkg
: >"$apt/var/lib/dpkg/status"
echo "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie-backports main" \
  >"$apt/etc/apt/sources.list"
cat >"$apt/apt.conf" <<CONF
Dir "$apt/";
Dir::State::status "$apt/var/lib/dpkg/status";
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
CONF
export APT_CONFIG=$apt/apt.conf
apt-get update -qq
package=$(apt-cache madison rust-src | awk -v v="$version" '$3 ~ "^" v "\\+" {print $3; exit}')
[ -n "$package" ] || {
  echo "no rust-src for rustc $version; there is: $(apt-cache madison rust-src | awk '{print $3}' | xargs)" >&2
  exit 3
}
cd "$dir"
apt-get download -qq "rust-src=$package"
dpkg -x rust-src_*_all.deb src
rm rust-src_*_all.deb
link=$(rustc --print sysroot)/lib/rustlib/src
mkdir -p "$link"
ln -sfn "$dir/src/usr/src/rustc-$version" "$link/rust"
