#!/usr/bin/env bash
# Installs weft from a build folder, or removes what it installed.
#
#   tools/install.sh install|uninstall BUILD PREFIX DESTDIR
#
# Files go to DESTDIR/PREFIX; what they say of their place names PREFIX alone.
set -euo pipefail
cd "$(dirname "$0")/.."
action=$1 build=$2 prefix=$3 root=$4$3

# The description that pkg-config reads.  There is a static library only, so what it needs is linked by whoever uses it.
write_pc() {
  local version
  version=$(sed -n 's/^#define WEFT_VERSION_STRING "\(.*\)"$/\1/p' src/base/version.h)
  [ -n "$version" ] || {
    echo "install.sh: src/base/version.h holds no version" >&2
    return 1
  }
  cat <<PC
prefix=$prefix
includedir=\${prefix}/include
libdir=\${prefix}/lib

Name: weft
Description: runs language models
Version: $version
Requires: libpcre2-8 libxxhash
Cflags: -I\${includedir}
Libs: -L\${libdir} -lweft -lm -pthread
PC
}

case "$action" in
install)
  write_pc >"$build/weft.pc"
  install -d "$root/bin" "$root/lib/pkgconfig" "$root/include/weft"
  install -m 755 "$build/weft" "$root/bin/weft"
  install -m 644 "$build/libweft.a" "$root/lib/libweft.a"
  install -m 644 "$build/weft.pc" "$root/lib/pkgconfig/weft.pc"
  install -m 644 include/weft.h "$root/include/weft.h"
  install -m 644 include/weft/* "$root/include/weft/"
  ;;
uninstall)
  rm -f "$root/bin/weft" "$root/lib/libweft.a" "$root/lib/pkgconfig/weft.pc" "$root/include/weft.h"
  for file in include/weft/*; do rm -f "$root/$file"; done
  [ ! -d "$root/include/weft" ] || rmdir --ignore-fail-on-non-empty "$root/include/weft"
  ;;
*)
  echo "install.sh: unknown action '$action'" >&2
  exit 2
  ;;
esac
