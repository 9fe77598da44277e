# Prints what is known of the machine or device that it runs on, for `facts/parse.rs`.
# $1 = the folder that is bmoe's own there, $2 = where files go, if that is another one. Anything that can't be read is left out. Sections begin with `@name`;
# lines of the form `@name value` are sections of one line. Only what mksh, dash and toybox have is used.
home=$1
at() { printf '\n@%s\n' "$1"; }
# file NAME PATH: a section with a file's content.
file() { if [ -r "$2" ]; then at "$1"; cat "$2" 2>/dev/null; fi; }
# word PATH: the first line of a file, into $word.
word() { word=; { IFS= read -r word <"$1"; } 2>/dev/null; }

if command -v getprop >/dev/null 2>&1; then
  for key in ro.product.manufacturer ro.product.model ro.soc.manufacturer ro.soc.model ro.build.version.release \
    ro.build.version.sdk ro.product.cpu.abi ro.product.cpu.abilist; do
    printf '\n@prop %s=%s\n' "$key" "$(getprop "$key" 2>/dev/null)"
  done
fi
at uname; uname -m 2>/dev/null; uname -r 2>/dev/null
file os-release /etc/os-release
at user; id -un 2>/dev/null
file meminfo /proc/meminfo
file cpuinfo /proc/cpuinfo
for p in /sys/devices/system/cpu/cpufreq/policy*; do
  [ -d "$p" ] || continue
  line=${p##*/}
  for key in related_cpus cpuinfo_max_freq scaling_max_freq scaling_cur_freq scaling_governor; do
    word "$p/$key"; line="$line|$word"
  done
  printf '\n@policy %s\n' "$line"
done
for z in /sys/class/thermal/thermal_zone*; do
  [ -d "$z" ] || continue
  word "$z/temp"; t=$word; word "$z/type"
  printf '\n@zone %s|%s\n' "$t" "$word"
done
for r in memory io cpu; do
  word "/proc/pressure/$r"; [ -z "$word" ] || printf '\n@psi %s\n' "$r"
done
if command -v dumpsys >/dev/null 2>&1; then
  at battery; dumpsys battery 2>/dev/null
  at power; dumpsys power 2>/dev/null | grep -E '^ *(mWakefulness|mStayOn|mIsPowered)=' 2>/dev/null
  at thermal; dumpsys thermalservice 2>/dev/null | grep -i 'thermal status' 2>/dev/null
fi
word /sys/kernel/mm/transparent_hugepage/enabled; printf '\n@huge-pages %s\n' "$word"
word /proc/sys/kernel/io_uring_disabled; printf '\n@io-uring-disabled %s\n' "$word"

# The folder that files go to, or what is there above it.
d=${2:-$home}; while [ ! -d "$d" ] && [ "$d" != / ] && [ "$d" != . ]; do d=$(dirname "$d"); done
if { : >"$d/.bmoe-writable"; } 2>/dev/null; then rm -f "$d/.bmoe-writable"; printf '\n@writable yes\n'
else printf '\n@writable no\n'; fi
at df; df -k -P "$d" 2>/dev/null | tail -n 1
if [ -d "$home" ] && [ "$home" != "${2:-}" ]; then at used; du -sk "$home" 2>/dev/null; fi
printf '\n@file-system %s\n' "$(stat -f -c %T "$d" 2>/dev/null)"
for tool in sh cat chmod df du mkdir mv rm sha256sum stat tail flock setsid; do
  command -v "$tool" >/dev/null 2>&1 || printf '\n@no-tool %s\n' "$tool"
done
printf '\n@end\n'
