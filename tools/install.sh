#!/usr/bin/env bash
# Installs weft from a build folder, or removes what it installed.
#
#   tools/install.sh install|uninstall BUILD PREFIX DESTDIR [GENERATION...]
#
# Files go to DESTDIR/PREFIX; what they say of their place names PREFIX alone.  Nothing outside of it is written but the
# folders that lead to it.  What was put there, folders too, is listed in PREFIX/lib/weft/installed, and uninstalling
# removes exactly that.  Installing again replaces the files, and removes those that this version has no more.
# GENERATION (v29, v22): the WebGPU libraries to install, where set-up has fetched them.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 4 ] || {
  echo "install.sh: needs install or uninstall, a build folder, a prefix and a staging folder, which may be empty" >&2
  exit 2
}
action=$1 build=$2 prefix=$3 root=$4$3
shift 4
generations=("$@")
list=lib/weft/installed

version=$(sed -n 's/^#define WEFT_VERSION_STRING "\(.*\)"$/\1/p' src/base/version.h)
IFS=. read -r major minor _ <<<"$version"
[ -n "$minor" ] || {
  echo "install.sh: src/base/version.h holds no version" >&2
  exit 1
}

# ---- putting ----

# The list while it grows; folders end in a slash and stand before what is in them.
entries=()

# Makes the folder $1 below the root, and enters those that were not there.
put_folder() {
  [ "$1" = . ] || [ -d "$root/$1" ] || {
    put_folder "$(dirname "$1")"
    install -d "$root/$1"
    entries+=("$1/")
  }
}

# put MODE FILE TARGET
put() {
  put_folder "$(dirname "$3")"
  install -m "$1" "$2" "$root/$3"
  entries+=("$3")
}

# put_link TEXT TARGET
put_link() {
  put_folder "$(dirname "$2")"
  ln -sfn "$1" "$root/$2"
  entries+=("$2")
}

# put_filled TEMPLATE TARGET: with the places of the template filled in.
put_filled() {
  local text
  text=$(<"$1")
  text=${text//@PREFIX@/"$prefix"}
  text=${text//@VERSION@/"$version"}
  text=${text//@MAJOR@/"$major"}
  text=${text//@MINOR@/"$minor"}
  put_folder "$(dirname "$2")"
  printf '%s\n' "$text" | install -m 644 /dev/stdin "$root/$2"
  entries+=("$2")
}

put_all() {
  local file generation
  put 755 "$build/weft" bin/weft
  put 644 "$build/libweft.a" lib/libweft.a
  put 755 "$build/libweft.so" "lib/libweft.so.$version"
  put_link "libweft.so.$version" "lib/libweft.so.$major"
  put_link "libweft.so.$major" lib/libweft.so
  put 644 include/weft.h include/weft.h
  for file in include/weft/*; do put 644 "$file" "$file"; done
  put_filled tools/install/weft.pc.in lib/pkgconfig/weft.pc
  for file in weftConfig weftConfigVersion; do
    put_filled "tools/install/$file.cmake.in" "lib/cmake/weft/$file.cmake"
  done
  put 644 "$build/pages/weft.1" share/man/man1/weft.1
  put 644 "$build/pages/weft.bash" share/bash-completion/completions/weft
  put 644 "$build/pages/weft.zsh" share/zsh/site-functions/_weft
  put 644 "$build/pages/weft.fish" share/fish/vendor_completions.d/weft.fish
  for generation in "${generations[@]}"; do
    for file in lib/weft/"$generation"/*.so; do
      [ ! -e "$file" ] || put 755 "$file" "$file"
    done
  done
}

# ---- removing ----

# Removes what the lines of $1 name, the last first: a folder only if it is empty.  A line that leads out of the root is
# not ours.
remove() {
  local entry
  tac <<<"$1" | while IFS= read -r entry; do
    case /$entry in
    / | // | */../* | */..) ;;
    */) [ ! -d "$root/$entry" ] || rmdir --ignore-fail-on-non-empty "$root/$entry" ;;
    *) rm -f "$root/$entry" ;;
    esac
  done
}

# The lines of the list that is there.
installed() { [ ! -f "$root/$list" ] || cat "$root/$list"; }

case "$action" in
install)
  before=$(installed)
  put_folder lib/weft
  put_all
  entries+=("$list")
  # What the last version put and this one does not goes; folders that it made remain entered.
  gone=$(grep -vxF "$(printf '%s\n' "${entries[@]}")" <<<"$before" || true)
  remove "$(grep -v '/$' <<<"$gone" || true)"
  {
    grep '/$' <<<"$gone" || true
    printf '%s\n' "${entries[@]}"
  } | install -m 644 /dev/stdin "$root/$list"
  ;;
uninstall)
  [ -f "$root/$list" ] || echo "uninstall: nothing of weft is installed in $root" >&2
  remove "$(installed)"
  ;;
*)
  echo "install.sh: unknown action '$action'" >&2
  exit 2
  ;;
esac
