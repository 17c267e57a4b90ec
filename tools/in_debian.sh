#!/usr/bin/env bash
# Runs a command in a Debian of its own, made by debootstrap: over a copy of this tree, or in a clean system in which what
# was built is tried. It takes root; the network is the host's, as its settings of apt and pip say.
#   tools/in_debian.sh VERSION [COMMAND]
#       The tree's files, tracked or new, are copied to /sluice, where the command runs. What it leaves there stays for the
#       next time, build folders and packages too: build/debian-VERSION/root. Without a command: a shell.
#   tools/in_debian.sh --clean [--with PATH]... VERSION [COMMAND]
#       In a new system without compiler, CMake or Python, which is gone afterwards. Each PATH lies below /trial, where the
#       command runs: tools/in_debian.sh --clean --with dist 13 'apt-get install -y ./dist/*.deb && sluice-serve --version'
#   VERSION: 12 or 13. --fresh: the systems kept in build/debian-VERSION are made anew first.
# The exit status is the command's; 125 where the system could not be made.
set -euo pipefail
export LC_ALL=C.UTF-8
tree=$(cd "$(dirname "$0")/.." && pwd -P)
host_certificates=/etc/ssl/certs/ca-certificates.crt

wrong() {
  echo "in_debian: $*" >&2
  exit 125
}

[ "$(id -u)" -eq 0 ] || exec sudo --preserve-env "$0" "$@"

clean= fresh= with=()
while [[ ${1:-} = -* ]]; do
  case $1 in
  --clean) clean=1 ;;
  --fresh) fresh=1 ;;
  --with)
    [ -e "${2:-}" ] || wrong "--with: no such file or folder: ${2:-}"
    with+=("$(realpath "$2")")
    shift
    ;;
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  *) wrong "unknown option: $1; there are --clean, --with PATH and --fresh" ;;
  esac
  shift
done
version=${1:-} command=${2:-exec bash}
case $version in
12) suite=bookworm ;;
13) suite=trixie ;;
*) wrong "unknown version: '$version'; must be 12 or 13" ;;
esac
[ $# -le 2 ] || wrong "$# words: $*; the command must be one word, in quotes"
[ ${#with[@]} -eq 0 ] || [ -n "$clean" ] || wrong "--with is for --clean; the tree's files are in /sluice as it is"
command -v debootstrap >/dev/null || wrong "debootstrap is missing; apt-get install debootstrap"

home=$tree/build/debian-$version
base=$home/base  # the system as debootstrap makes it; nothing but package lists changes in it
mkdir -p "$home"

# All mounts are made in a namespace that nothing leaves, so whatever ends them, here or in the command, never reaches the
# host's; they, and all processes, are gone with it. A signal to this script ends the namespace.
in_namespace() {
  local child status=0
  env --default-signal=INT,QUIT unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$@" <&0 &
  child=$!
  trap 'kill -KILL "$child" 2>/dev/null; wait "$child" || true' INT TERM HUP
  wait "$child" || status=$?
  trap - INT TERM HUP
  return "$status"
}

# Of what apt has set up here: "URL" of the newest mirror with such a label.
mirror() {  # LABEL DEFAULT
  local found
  found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Label: $1" 2>/dev/null | head -n 1) || true
  echo "${found:-$2}"
}

make_base() {
  local part=$base.part debian security proxy
  debian=$(mirror Debian http://deb.debian.org/debian)
  security=$(mirror Debian-Security http://deb.debian.org/debian-security)
  proxy=$(apt-config dump --format '%v%n' Acquire::http::Proxy 2>/dev/null) || true
  echo "in_debian: making Debian $version in $base" >&2
  rm -rf --one-file-system "$part"
  in_namespace env ${proxy:+"http_proxy=$proxy"} debootstrap --variant=minbase --include=ca-certificates "$suite" "$part" \
    "$debian" >"$home/debootstrap.log" 2>&1 || wrong "debootstrap failed; see $home/debootstrap.log"
  printf 'deb %s main\n' "$debian $suite" "$debian $suite-updates" "$security $suite-security" >"$part/etc/apt/sources.list"
  mv "$part" "$base"
}

# The network's settings, into the system at $1. Names of hosts, certificates and apt's options are the host's own.
settle() {
  local root=$1 file
  for file in /etc/resolv.conf /etc/hosts "$host_certificates" /etc/pip.conf; do
    [ ! -f "$file" ] || cp --remove-destination -L "$file" "$root$file"
  done
  for file in "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
    [ ! -f "$file" ] || install -D -m 644 "$file" "$root/root${file#"$HOME"}"
  done
  apt-config dump 2>/dev/null | grep '^Acquire::' | grep -vE '^Acquire::(IndexTargets|cdrom)|""' >"$root/etc/apt/apt.conf.d/90host" || true
}

# Folders of this machine that pip's settings name. An index lies beside the files that it lists.
pip_folders() {
  { env | sed -n 's/^PIP_[A-Z_]*=//p' && cat /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf" 2>/dev/null; } |
    grep -oE '(^|[ =]|file://)/[^ ]+' | sed -E 's,^([ =]|file://),,; s,/simple/?$,,' | sort -u |
    while read -r path; do [ ! -d "$path" ] || echo "$path"; done
}

# Runs in the namespace, as its first process.
inside() {  # ROOT FOLDER COMMAND BOUND...
  local root=$1 folder=$2 command=$3 name path
  shift 3
  mount --bind "$root" "$root"  # programs that make mount namespaces want a root that is a mount
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount -t tmpfs -o mode=755 dev "$root/dev"
  for name in null zero full random urandom tty; do
    touch "$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
  done
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
  mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s fd/0 "$root/dev/stdin"
  ln -s fd/1 "$root/dev/stdout"
  ln -s fd/2 "$root/dev/stderr"
  for path in "$@"; do
    mkdir -p "$root$path"
    mount --bind "$path" "$root$path"
    mount -o remount,bind,ro "$root$path"
  done
  local variables=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
    "TERM=${TERM:-dumb}" DEBIAN_FRONTEND=noninteractive) certificates=/etc/ssl/certs/ca-certificates.crt
  for name in SSL_CERT_FILE PIP_CERT REQUESTS_CA_BUNDLE; do variables+=("$name=$certificates"); done
  while IFS= read -r -d '' name; do variables+=("$name"); done < <(
    env -0 | grep -zE '^(https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY|PIP_[A-Z_]+)=' | grep -zv '^PIP_CERT=')
  # This shell stays the first process, since it buries the processes that others leave behind.
  local status=0
  chroot "$root" env -i "${variables[@]}" bash -c 'cd "$1" && exec bash -c "$2"' - "$folder" "$command" || status=$?
  exit "$status"
}
export -f inside

# The tree's files that git does not ignore; those that are gone here go there. Checks that ask git find an index of them.
copy_tree() {
  local to=$1 list=$home/files
  mkdir -p "$to"
  (cd "$tree" && git ls-files -z --cached --others --exclude-standard --deduplicate | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] && [ ! -L "$file" ] || printf '%s\0' "$file"
  done) | sort -z >"$list.new"
  [ ! -f "$list" ] || comm -z -23 "$list" "$list.new" | (cd "$to" && xargs -0 -r rm -f --)
  tar -C "$tree" --null -T "$list.new" -cf - | tar -C "$to" --no-same-owner -xf -
  git -C "$to" init -q && git -C "$to" add -A
  mv "$list.new" "$list"
}

exec {lock}>"$home/lock"
flock -n "$lock" || { echo "in_debian: waiting for another run in $home" >&2 && flock "$lock"; }
[ -z "$fresh" ] || rm -rf --one-file-system "$base" "$home/root" "$home/files"
[ -d "$base" ] || make_base
mapfile -t bound < <(pip_folders)

run_in() {  # ROOT FOLDER COMMAND
  in_namespace bash -euo pipefail -c 'inside "$@"' - "$@" "${bound[@]}" {lock}>&-
}

# Package lists age, and the base is without them.
refresh() {
  local root=$1 stamp=$1/var/lib/apt/lists/in_debian.stamp
  settle "$root"
  [ -z "$(find "$stamp" -mtime -1 2>/dev/null)" ] || return 0
  run_in "$root" / 'apt-get update -q' </dev/null >"$home/apt.log" 2>&1 || wrong "apt-get update failed; see $home/apt.log"
  touch "$stamp"
}

status=0
if [ -n "$clean" ]; then
  refresh "$base"
  root=$(mktemp -d "$home/clean.XXXXXX")
  trap 'rm -rf --one-file-system "$root"' EXIT
  cp -a --reflink=auto "$base/." "$root"
  exec {lock}>&-  # each such system is its run's own
  mkdir "$root/trial"
  [ ${#with[@]} -eq 0 ] || cp -a "${with[@]}" "$root/trial"
  run_in "$root" /trial "$command" || status=$?
else
  root=$home/root
  if [ ! -d "$root" ]; then
    rm -rf --one-file-system "$root.part"
    cp -a --reflink=auto "$base" "$root.part"
    mv "$root.part" "$root"
  fi
  refresh "$root"
  [ -x "$root/usr/bin/make" ] && [ -x "$root/usr/bin/git" ] ||
    run_in "$root" / 'apt-get install -qy --no-install-recommends make git' </dev/null >"$home/apt.log" 2>&1 ||
    wrong "make and git could not be installed; see $home/apt.log"
  copy_tree "$root/sluice"
  run_in "$root" /sluice "$command" || status=$?
fi
exit "$status"
