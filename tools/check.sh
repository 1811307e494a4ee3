#!/usr/bin/env bash
# What must hold before a change lands, besides the tests in the ordinary build.
#
#   tools/check.sh [STAGE...]      all stages, or those named: a function stage_NAME below each
#
# Every stage runs, whatever the ones before it said; the last lines name those that failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

stages=(format scripts includes headers names docs gcc clang none lint windows arm64 neon address thread)

# The makes below are their own, whatever make called this script with.
unset MAKEFLAGS MAKELEVEL MFLAGS

# make, in a build folder of this script's, where a warning is an error; all of them are shown.
build_in() {
  local folder=build/check/$1
  shift
  make --no-print-directory -k -s BUILD="$folder" WERROR=1 "$@"
}

stage_format() { tools/format.sh --dry-run -Werror; }

stage_scripts() { shellcheck tools/*.sh .ci/run; }

stage_includes() { tools/check_includes.sh; }

# Each public header compiles alone, as strict C11 and as C++.
stage_headers() {
  local header status=0
  for header in include/weft.h include/weft/*.h; do
    header=${header#include/}
    echo "#include \"$header\"" |
      gcc -std=c11 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c - || status=1
    echo "#include \"$header\"" |
      clang -std=c++11 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c++ - || status=1
  done
  return $status
}

# Neither the names of package registries' hosts nor folders of the machine it was written on belong in the repository.
stage_names() {
  local hosts='(pypi|pythonhosted|npmjs|crates|deb|debian|maven|golang)[.](org|com|io|net)' folders='/(work|root|home)/'
  ! git ls-files -co --exclude-standard -z | xargs -0 grep -nIE "$hosts|[\"'( =]$folders" -- |
    grep -vE '^tools/check\.sh:'
}

# The operators' reference is the one that their table makes.
stage_docs() { make --no-print-directory -s docs && git diff --exit-code --stat -- docs/operators.md; }

# What the archive offers begins with weft_, and a file has at most one changing global, a struct that names its state.
check_symbols() {
  local lib=$1 status=0
  nm -g --defined-only "$lib" | awk 'NF == 3 && $3 !~ /^weft_/ { print "exported: " $3; bad = 1 } END { exit bad }' ||
    status=1
  objdump -t "$lib" | awk '
    / file format / { file = $1 }
    $0 ~ / O \.(data|bss|tdata|tbss)[ \t]/ { seen[file]++; names[file] = names[file] " " $NF }
    END { for (file in seen) if (seen[file] > 1) { print file names[file] ": more than one global"; bad = 1 }; exit bad }' ||
    status=1
  return $status
}

stage_gcc() { build_in gcc build test-programs && check_symbols build/check/gcc/libweft.a; }

stage_clang() { build_in clang CC=clang build test-programs; }

stage_lint() { make --no-print-directory -k lint; }

# A build without bindings has no GPU code: no symbol of it is in the program.
stage_none() {
  build_in none WGPU=none build test-programs && ! nm build/check/none/weft | grep -iE 'wgpu|weft__gpu_'
}

# The platform layer and the GPU code, which loads its library there by other means, compile for Windows, and all that needs only libc for arm64.
stage_windows() { build_in windows CC=x86_64-w64-mingw32-gcc DIRS="src/base src/tensor src/gpu" objects; }

stage_arm64() {
  build_in arm64 CC=aarch64-linux-gnu-gcc DIRS="src/base src/tensor src/cpu src/device src/format" objects
}

# Without the GPU and line editing, which kernels do not need.
arm64_build=(CC=aarch64-linux-gnu-gcc WGPU=none EDIT_LIBS=)

# The suites $3... with the kernels of variant $2 on the emulated arm64 processor $1.
run_on_arm64() {
  local processor=$1
  local -x WEFT_TEST_CPU=$2 WEFT_TEST_QUICK=1
  shift 2
  build_in neon "${arm64_build[@]}" EMULATOR="qemu-aarch64 -cpu $processor" SUITES="$*" run-suites
}

# The arm64 kernels, run: each variant on a processor that has just what it needs, where an instruction too many would end
# the program.  What the variants do not differ in is tested once.
stage_neon() {
  local status=0
  build_in neon "${arm64_build[@]}" build || return
  run_on_arm64 max neon_i8mm matmul ops ops_elementwise ops_norm ops_optimizer gemm attention dense_attention model gguf tokenizer \
    tensor || status=1
  run_on_arm64 neoverse-n1 neon_dotprod matmul tensor || status=1
  run_on_arm64 cortex-a72 neon_base matmul tensor || status=1
  same_on_arm64 || status=1
  return $status
}

# The variants give the sample model's logits to the last bit alike: their integers are exact, and the rest is the same.
same_on_arm64() {
  local weft=build/check/neon/weft model=models/SmolLM2-135M-Instruct.Q4_1.gguf i8mm dotprod base
  i8mm=$(WEFT_CPU=neon qemu-aarch64 -cpu max $weft logits $model -p "The capital of France is" --json) || return
  dotprod=$(WEFT_CPU=neon qemu-aarch64 -cpu neoverse-n1 $weft logits $model -p "The capital of France is" --json) || return
  base=$(WEFT_CPU=neon qemu-aarch64 -cpu cortex-a72 $weft logits $model -p "The capital of France is" --json) || return
  if [ -z "$i8mm" ] || [ "$i8mm" != "$dotprod" ] || [ "$i8mm" != "$base" ]; then
    echo "logits differ:"
    printf '%s\n' "$i8mm" "$dotprod" "$base"
    return 1
  fi
  [ "$(qemu-aarch64 -cpu max $weft run $model --raw --temperature 0 -n 2 -p "The capital of France is")" = " Paris." ]
}

# The whole suite; the model's tests run one variant of the CPU's code, as under a sanitizer each takes minutes.
stage_address() { WEFT_TEST_QUICK=1 make --no-print-directory -s SAN=address run-suites; }

# What has threads of its own.
stage_thread() { make --no-print-directory -s SAN=thread SUITES=pool run-suites; }

[ $# = 0 ] || stages=("$@")
failed=()
for stage in "${stages[@]}"; do
  declare -F "stage_$stage" >/dev/null || {
    echo "check.sh: no stage '$stage' (there are: ${stages[*]})" >&2
    exit 2
  }
  echo "==== $stage"
  SECONDS=0
  "stage_$stage" || failed+=("$stage")
  echo "---- $stage: $SECONDS s"
done
if [ "${#failed[@]}" -gt 0 ]; then
  echo "check: failed: ${failed[*]}"
  exit 1
fi
echo "check: all ${#stages[@]} stages passed"
