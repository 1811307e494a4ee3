/* test_install.c - `make install` as its users meet it: what it puts where, what `make uninstall` leaves, and whether
 * the examples build against the installed library in each of the documented ways, and say what they should.
 *
 * The build under test is installed once, below a temporary folder; WEFT_TEST_CC is the compiler with the flags of the
 * sanitizer that the library was built with, if any. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/folder.h"
#include "support/weft_program.h"

#include "weft/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- running ---- */

/* Runs a script with $T the temporary folder, $P the prefix below it, $CC the compiler and $MODEL the model. */
static run_result shell(const char *script) {
  char t[64], p[64], cc[256], model[256], pkg_config[128];
  const char *given_cc = getenv("WEFT_TEST_CC"), *given_model = getenv("WEFT_TEST_MODEL");
  snprintf(t, sizeof t, "T=%s", folder_path());
  snprintf(p, sizeof p, "P=%s/usr", folder_path());
  snprintf(cc, sizeof cc, "CC=%s", given_cc ? given_cc : "cc");
  snprintf(model, sizeof model, "MODEL=%s", given_model ? given_model : "models/SmolLM2-135M-Instruct.Q4_1.gguf");
  snprintf(pkg_config, sizeof pkg_config, "PKG_CONFIG_PATH=%s/usr/lib/pkgconfig", folder_path());
  const char *const environment[] = {t, p, cc, model, pkg_config, NULL};
  return run_program((const char *const[]){"bash", "-euo", "pipefail", "-c", script, NULL},
                     &(run_options){.environment = environment});
}

/* The script succeeds and prints exactly `text`. */
static void assert_shell(const char *script, const char *text) {
  run_result r = shell(script);
  assert_status(&r, 0);
  assert_string_equal(r.out, text);
  run_clear(&r);
}

static int install_once(void **state) {
  if (folder_create(state)) return -1;
  run_result r = shell("make --no-print-directory -s install DESTDIR= PREFIX=$P");
  if (r.status) print_error("%s", r.err);
  int status = r.status;
  run_clear(&r);
  return status;
}

/* ---- what is where ---- */

/* Programs, libraries and headers, each of the kind that it should be; the version is the library's own. */
static void test_files(void **state) {
  (void)state;
  char expected[64], major[8];
  snprintf(major, sizeof major, "%.*s", (int)strcspn(weft_version(), "."), weft_version());
  snprintf(expected, sizeof expected, "libweft.so.%s\nlibweft.so.%s\n", weft_version(), major);
  assert_shell("readlink $P/lib/libweft.so.[0-9]; readelf -d $P/lib/libweft.so | sed -n 's/.*soname: .\\(.*\\)./\\1/p'",
               expected);
  assert_shell("cd include && find weft.h weft -type f | sort | while read -r f; do cmp $f $P/include/$f; done", "");
  snprintf(expected, sizeof expected, "%s\n", weft_version());
  assert_shell("pkg-config --modversion weft", expected);
  assert_shell("test -f $P/lib/libweft.a && find $P -type f -perm /022", "");
  snprintf(expected, sizeof expected, "weft %s\n", weft_version());
  assert_shell("env -i $P/bin/weft version | head -n 1", expected);
}

/* The WebGPU libraries that set-up fetched are found by the installed program, from any working folder. */
static void test_gpu_library(void **state) {
  (void)state;
  assert_shell(
      "cd / && env -i $P/bin/weft version --json | "
      "if [ -e $P/lib/weft/v29 ]; then grep -c \"v29), $P/bin/../lib/weft/v29/\"; else grep -c gpu_library; fi",
      "1\n");
}

/* Where man, bash, zsh and fish look for them. */
static void test_pages(void **state) {
  (void)state;
  assert_shell("$P/bin/weft help --format man | cmp - $P/share/man/man1/weft.1\n"
               "$P/bin/weft help --format bash | cmp - $P/share/bash-completion/completions/weft\n"
               "$P/bin/weft help --format zsh | cmp - $P/share/zsh/site-functions/_weft\n"
               "$P/bin/weft help --format fish | cmp - $P/share/fish/vendor_completions.d/weft.fish\n"
               "head -n 1 $P/share/zsh/site-functions/_weft\n"
               "test -s $P/share/man/man1/weft.1",
               "#compdef weft\n");
}

/* A name that is not weft_* could meet one of the program's; weft__* is the library's own business. */
static void test_exported_symbols(void **state) {
  (void)state;
  assert_shell(
      "nm -D --defined-only $P/lib/libweft.so | awk '{ print $NF }' | grep -vE '^weft_[a-z]|^__(asan|odr)' || true",
      "");
  assert_shell("nm -D --defined-only $P/lib/libweft.so | grep -c ' T weft_model_load$'", "1\n");
}

/* ---- installing again, staging, uninstalling ---- */

#define MAKE "make --no-print-directory -s "

/* A second time nothing changes but what an older version has left, which goes. */
static void test_install_again(void **state) {
  (void)state;
  assert_shell(
      "list() { (cd $T/again && find . -printf '%y %m %p %l\\n' | sort); }\n" MAKE "install DESTDIR= PREFIX=$T/again\n"
      "list >$T/before\n"
      "touch $T/again/lib/old && echo lib/old >>$T/again/lib/weft/installed\n" MAKE "install DESTDIR= PREFIX=$T/again\n"
      "list | diff $T/before -\n" MAKE "uninstall DESTDIR= PREFIX=$T/again\n"
      "find $T/again -mindepth 1",
      "");
}

/* Only what is below DESTDIR/PREFIX is written, and nothing there names the staging folder. */
static void test_staging(void **state) {
  (void)state;
  assert_shell(MAKE "install \"DESTDIR=$T/a stage\" PREFIX=/opt/weft\n"
                    "cd \"$T/a stage\" && find . -type f -not -path './opt/weft/*'\n"
                    "grep -rIl -e \"$T\" . || true\n"
                    "sed -n 's/^prefix=//p' opt/weft/lib/pkgconfig/weft.pc",
               "/opt/weft\n");
}

/* Exactly what was installed goes: other people's files and folders stay, empty ones too. */
static void test_uninstall(void **state) {
  (void)state;
  assert_shell("mkdir -p $T/shared/lib/pkgconfig $T/shared/empty\n"
               "echo theirs >$T/shared/lib/pkgconfig/other.pc\n" MAKE "install DESTDIR= PREFIX=$T/shared\n"
               "echo theirs >$T/shared/include/weft/other.h\n" MAKE "uninstall DESTDIR= PREFIX=$T/shared\n"
               "cd $T/shared && find . | sort\n",
               ".\n./empty\n./include\n./include/weft\n./include/weft/other.h\n./lib\n./lib/pkgconfig\n"
               "./lib/pkgconfig/other.pc\n");
  assert_shell(MAKE "uninstall DESTDIR= PREFIX=$T/nothing 2>&1 | grep -c 'nothing of weft is installed in'", "1\n");
}

/* ---- the examples ---- */

/* Runs those in $B, with the shared library found through $L. */
#define RUN_EXAMPLES                                                                                                   \
  "export LD_LIBRARY_PATH=$L\n"                                                                                        \
  "$B/matmul\n"                                                                                                        \
  "$B/generate $MODEL 'What is the capital of France?'\n"                                                              \
  "$B/stream $MODEL '1 2 3 4 5 6 7' 10 2>$T/said; cat $T/said\n"                                                       \
  "$B/stream $MODEL 'The capital of France is' 24 2>$T/said; cat $T/said\n"                                            \
  "$B/generate $T/none.gguf hi 2>&1 || echo status $?\n"                                                               \
  "readelf -d $B/stream | grep -c 'NEEDED.*libweft.so' || true"

/* What they say, and whether they load libweft.so. */
static void assert_examples(const char *script, int is_shared) {
  char expected[512];
  snprintf(expected, sizeof expected,
           "58 64\n139 154\nThe capital of France is Paris.\n 8 9 10 11\n10 tokens in 10 pieces\n Paris.\n"
           "2 tokens in 2 pieces\ngenerate: %s/none.gguf: No such file or directory\nstatus 1\n%d\n",
           folder_path(), is_shared);
  assert_shell(script, expected);
}

#define COMPILE(flags)                                                                                                 \
  "mkdir -p $B && for e in matmul generate stream; do\n"                                                               \
  "  $CC -std=c11 -Wall -Wextra -Werror -o $B/$e examples/$e.c " flags "\n"                                            \
  "done\n"

static void test_pkg_config_shared(void **state) {
  (void)state;
  assert_examples("B=$T/shared-build L=$P/lib\n" COMPILE("$(pkg-config --cflags --libs weft)") RUN_EXAMPLES, 1);
}

static void test_pkg_config_static(void **state) {
  (void)state;
  assert_examples("B=$T/static-build L=\n" COMPILE(
                      "$(pkg-config --static --cflags --libs weft | sed 's/-lweft/-l:libweft.a/')") RUN_EXAMPLES,
                  0);
}

/* $1: what is set besides. */
#define CMAKE(setting)                                                                                                 \
  "read -r compiler flags <<<\"$CC\"\n"                                                                                \
  "cmake -S examples -B $B -DCMAKE_PREFIX_PATH=$P -DCMAKE_C_COMPILER=$compiler -DCMAKE_C_FLAGS=\"$flags\" " setting    \
  " >$T/cmake.log\n"                                                                                                   \
  "cmake --build $B >>$T/cmake.log\n"

static void test_cmake(void **state) {
  (void)state;
  assert_examples("B=$T/cmake-shared L=\n" CMAKE("") RUN_EXAMPLES, 1);
  assert_examples("B=$T/cmake-static L=\n" CMAKE("-Dweft_USE_STATIC_LIBS=ON") RUN_EXAMPLES, 0);
}

/* A version that the installed one does not answer is refused. */
static void test_cmake_version(void **state) {
  (void)state;
  assert_shell("mkdir -p $T/versions && cd $T/versions\n"
               "for v in 0.1 0.1.0 0.2 1.0 0.0; do\n"
               "  echo \"cmake_minimum_required(VERSION 3.18)\nproject(v NONE)\nfind_package(weft $v QUIET)\n"
               "file(WRITE result \\${weft_FOUND})\" >CMakeLists.txt\n"
               "  cmake -B build-$v -DCMAKE_PREFIX_PATH=$P . >log && echo $v $(cat result)\n"
               "done",
               "0.1 1\n0.1.0 1\n0.2 0\n1.0 0\n0.0 0\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_files),
      cmocka_unit_test(test_gpu_library),
      cmocka_unit_test(test_pages),
      cmocka_unit_test(test_exported_symbols),
      cmocka_unit_test(test_install_again),
      cmocka_unit_test(test_staging),
      cmocka_unit_test(test_uninstall),
      cmocka_unit_test(test_pkg_config_shared),
      cmocka_unit_test(test_pkg_config_static),
      cmocka_unit_test(test_cmake),
      cmocka_unit_test(test_cmake_version),
  };
  return cmocka_run_group_tests(tests, install_once, folder_remove);
}
