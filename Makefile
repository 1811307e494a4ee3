# weft: build, test, install.  `make help` lists the targets.
#
# The folders are the architecture: every .c file under src/ belongs to libweft, app/cli is the program, tests/test_*.c
# is a suite each.  A file counts by being there; only flags that differ from the common ones are named here.

# ---- what the command line may set ----

ifeq ($(origin CC),default)
CC = gcc
endif
SAN ?=# address (with undefined), thread or fuzzer: a sanitizer, in a build folder of its own
WERROR ?=# 1: a warning is an error
BUILD ?= build$(if $(SAN),/san-$(SAN))
CFLAGS ?= $(if $(SAN),-O2 -g -fno-omit-frame-pointer,-O3 -g)
WGPU ?= all# the WebGPU bindings compiled in: all, v29 (or wgpu24), v22 (or wgpu), none
PREFIX ?= /usr/local
DESTDIR ?=
MODEL ?= models/SmolLM2-135M-Instruct.Q4_1.gguf
PROMPT ?= What is the capital of France?
SUITES ?=# names of suites, as in `make test SUITES="gguf cli"`; empty: all
EMULATOR ?=# a command that the suites run under, when they are built for another processor
PEER ?=# a program that `make bench` runs in turn with weft
FUZZ ?= gguf
FUZZ_SECONDS ?= 60
V ?=# 1: print whole commands

# ---- flags ----

TARGET := $(shell $(CC) -dumpmachine 2>/dev/null)
COMPILER := $(TARGET) $(shell $(CC) -dumpfullversion -dumpversion 2>/dev/null)

WARNINGS = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes $(if $(WERROR),-Werror)
# No contraction: a*b+c is fused only where a kernel says so, or the scalar reference would differ by compiler.
# Hidden by default, so that a shared library exports what WEFT_API marks; -fPIC, so that the archive can go into one.
COMMON = -std=c11 -D_GNU_SOURCE $(WGPU_DEFINES) -Iinclude -Isrc $(WARNINGS) -fPIC -fvisibility=hidden -ffp-contract=off \
  -ffile-prefix-map=$(CURDIR)=. $(SANITIZE)
SANITIZE_address = -fsanitize=address,undefined -fno-sanitize-recover=all
SANITIZE_thread = -fsanitize=thread
SANITIZE_fuzzer = -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all
SANITIZE = $(SANITIZE_$(SAN))

# The generations of the WebGPU library behind each value of WGPU=.
GENERATIONS_all = v29 v22
GENERATIONS_v29 = v29
GENERATIONS_wgpu24 = v29
GENERATIONS_v22 = v22
GENERATIONS_wgpu = v22
GENERATIONS_none =
ifeq ($(origin GENERATIONS_$(WGPU)),undefined)
$(error WGPU=$(WGPU): there is no such binding (there are all, v29 or wgpu24, v22 or wgpu, none))
endif
GENERATIONS = $(GENERATIONS_$(WGPU))
WGPU_DEFINES = $(if $(GENERATIONS),-DWEFT_GPU) $(patsubst v%,-DWEFT_WGPU_V%,$(GENERATIONS))

# Kernels: nobody reads errno after sqrtf, and setting it keeps the compiler from vectorising.
KERNEL_FLAGS = -fno-math-errno
# One instruction set for one object each: the rest must run on any processor.
AVX2_FLAGS = -mavx2 -mfma -mf16c
AVX512_FLAGS = $(AVX2_FLAGS) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
AMX_FLAGS = $(AVX512_FLAGS) -mamx-tile -mamx-int8
# gcc's first scheduling moves loads to the top of a loop without end, and half of the sums out of their registers.
ifneq ($(filter aarch64-%,$(TARGET)),)
NEON_FLAGS := $(if $(findstring clang,$(shell $(CC) --version)),,-fno-schedule-insns)
endif
NEON_DOTPROD_FLAGS = $(NEON_FLAGS) -march=armv8.2-a+dotprod
NEON_I8MM_FLAGS = $(NEON_DOTPROD_FLAGS)+i8mm
# For arm64, gcc 12 fails with an internal error where it vectorises a reduction by fmax, as tests have them.
TEST_FLAGS = -Itests -isystem lib/weft $(if $(filter aarch64-%,$(TARGET)),-fno-tree-vectorize)

# libedit: line editing in chat, which reads plain lines without it; `make EDIT_LIBS=` leaves it out.
ifeq ($(origin EDIT_LIBS),undefined)
EDIT_LIBS := $(shell pkg-config --libs libedit 2>/dev/null)
endif
FLAGS_app/cli/line.c = $(if $(EDIT_LIBS),-DWEFT_LIBEDIT $(shell pkg-config --cflags libedit))

# PCRE2: pre-tokenizer patterns.  utf8proc: normalisation form C.  xxHash: tables of names.  Jansson: the headers of safetensors
# files, --json, test data.
LIBS = -ljansson -lpcre2-8 -lutf8proc -lxxhash -lm -pthread
APP_LIBS = $(EDIT_LIBS)
TEST_LIBS = -lcmocka

# ---- what is built from what ----

X86_ONLY = src/cpu/isa/avx2.c src/cpu/isa/avx512.c src/cpu/isa/amx.c
ARM64_ONLY = src/cpu/isa/neon_base.c src/cpu/isa/neon_dotprod.c src/cpu/isa/neon_i8mm.c
LIB_SRC := $(wildcard src/*/*.c src/*/*/*.c)
# Without a binding there is no GPU code; otherwise only the bindings that are not asked for are left out.
ALL_BINDINGS = $(GENERATIONS_all:%=src/gpu/abi/%.c)
LIB_SRC := $(filter-out $(if $(GENERATIONS),$(filter-out $(GENERATIONS:%=src/gpu/abi/%.c),$(ALL_BINDINGS)),src/gpu/%),$(LIB_SRC))
ifeq ($(filter x86_64-%,$(TARGET)),)
LIB_SRC := $(filter-out $(X86_ONLY),$(LIB_SRC))
endif
ifeq ($(filter aarch64-% arm64-%,$(TARGET)),)
LIB_SRC := $(filter-out $(ARM64_ONLY),$(LIB_SRC))
endif
WGSL := $(wildcard src/gpu/wgsl/*.wgsl)
APP_SRC := $(wildcard app/cli/*.c)
SUPPORT_SRC := $(wildcard tests/support/*.c)
LONG = $(BUILD)/tests/long
SUITE_NAMES := $(patsubst tests/test_%.c,%,$(wildcard tests/test_*.c))
# Suites of what a build without GPU code does not have.
GPU_SUITES = abi pieces
ifeq ($(GENERATIONS),)
SUITE_NAMES := $(filter-out $(GPU_SUITES),$(SUITE_NAMES))
endif
FUZZ_NAMES := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
CORPUS_NAMES := $(patsubst tests/fuzz/make_%_corpus.c,%,$(wildcard tests/fuzz/make_*_corpus.c))

OBJ = $(BUILD)/obj
LIB_OBJ = $(LIB_SRC:%.c=$(OBJ)/%.o)
APP_OBJ = $(APP_SRC:%.c=$(OBJ)/%.o)
SUPPORT_OBJ = $(SUPPORT_SRC:%.c=$(OBJ)/%.o)
SUITE_BIN = $(SUITE_NAMES:%=$(BUILD)/tests/test_%)
FUZZ_BIN = $(FUZZ_NAMES:%=$(BUILD)/tests/fuzz_%)
CORPUS_BIN = $(CORPUS_NAMES:%=$(BUILD)/tests/make_%_corpus)

LIB = $(BUILD)/libweft.a
SHARED = $(BUILD)/libweft.so
APP = $(BUILD)/weft

# A run over all files uses all processors; `make -jN` decides otherwise.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
# A line a file; `make V=1` shows the commands, `make -s` nothing.
quiet = $(findstring s,$(firstword -$(MAKEFLAGS)))
say = $(if $(V),,@$(if $(quiet),,echo "  $(1) $(patsubst $(BUILD)/%,%,$@)";))

.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
.PHONY: setup setup-dev build run test run-suites test-programs objects docs format lint check check-long bench fuzz corpus clean install uninstall help FORCE

build: $(LIB) $(if $(APP_SRC),$(APP)) ## build the library and the program (the default)

# ---- building ----

# $(1) a file, $(2) its one line of text: written only when the text changes, so that what depends on it follows.
define stamp
$(1): FORCE
	@$$(if $$(TARGET),,echo "make: $$(CC): no such compiler (make setup installs one)" >&2; exit 1)
	@mkdir -p $$(@D)
	@printf '%s\n' '$$(subst ','\'',$(2))' | cmp -s - $$@ || printf '%s\n' '$$(subst ','\'',$(2))' >$$@
endef
$(eval $(call stamp,$(BUILD)/flags,$$(CC) $$(COMPILER) $$(COMMON) $$(CPPFLAGS) $$(CFLAGS) $$(KERNEL_FLAGS) $$(AMX_FLAGS) \
  $$(NEON_I8MM_FLAGS) $$(TEST_FLAGS) $$(EDIT_LIBS)))
$(eval $(call stamp,$(BUILD)/sources,$$(LIB_SRC) $$(WGSL) $$(APP_SRC) $$(SUPPORT_SRC)))

FLAGS_src/cpu/isa/avx2.c = $(AVX2_FLAGS)
FLAGS_src/cpu/isa/avx512.c = $(AVX512_FLAGS)
FLAGS_src/cpu/isa/amx.c = $(AMX_FLAGS)
# The tests' own matrix unit, which needs none.
FLAGS_tests/support/amx_program.c = $(if $(filter x86_64-%,$(TARGET)),$(AVX512_FLAGS))
FLAGS_src/cpu/isa/neon_base.c = $(NEON_FLAGS)
FLAGS_src/cpu/isa/neon_dotprod.c = $(NEON_DOTPROD_FLAGS)
FLAGS_src/cpu/isa/neon_i8mm.c = $(NEON_I8MM_FLAGS)
# All flags that the source $< is compiled with.
flags = $(COMMON) $(if $(filter src/cpu/%,$<),$(KERNEL_FLAGS)) $(if $(filter tests/%,$<),$(TEST_FLAGS)) $(FLAGS_$<) $(CPPFLAGS)

$(OBJ)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(flags) $(CFLAGS) -MMD -MP -c -o $@ $<

# Setup brings the headers of the WebGPU libraries, perhaps after a build that had to do without.
$(GENERATIONS_all:%=$(OBJ)/tests/support/headers_%.o): $(wildcard lib/weft/*/include/*.h)

# The shaders are part of the program.
GENERATED = $(BUILD)/generated
FLAGS_src/gpu/kernels.c = -I$(GENERATED)
$(GENERATED)/gpu/wgsl_embedded.h: tools/embed_wgsl.sh $(WGSL) $(BUILD)/sources
	@mkdir -p $(@D)
	$(call say,WGSL)tools/embed_wgsl.sh $(WGSL) >$@
$(OBJ)/src/gpu/kernels.o lint/src/gpu/kernels.c: $(GENERATED)/gpu/wgsl_embedded.h

# The archive is made anew, or it would keep the object of a source that is gone.
$(LIB): $(LIB_OBJ) $(BUILD)/sources
	$(call say,AR)rm -f $@ && ar rcs $@ $(LIB_OBJ)

# The name that programs are linked with holds the major version: another one is another interface.
MAJOR = $(shell sed -n 's/^\#define WEFT_VERSION_STRING "\([0-9]*\)\..*/\1/p' src/base/version.h)
$(SHARED): $(LIB_OBJ) $(BUILD)/sources src/base/version.h
	$(call say,LD)$(CC) $(SANITIZE) $(LDFLAGS) -shared -Wl,-soname,libweft.so.$(MAJOR) -o $@ $(LIB_OBJ) $(LIBS)

$(APP): $(APP_OBJ) $(LIB) $(BUILD)/sources
	$(call say,LD)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $(APP_OBJ) $(LIB) $(APP_LIBS) $(LIBS)

# $(1) what main is in: a suite, the replay of a fuzzer's corpus, or the maker of one.
link_test = $(call say,LD)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $(1) $(SUPPORT_OBJ) $(LIB) $(TEST_LIBS) $(LIBS)

$(SUITE_BIN): $(BUILD)/tests/%: $(OBJ)/tests/%.o
	@mkdir -p $(@D)
	$(call link_test,$<)

$(FUZZ_BIN): $(BUILD)/tests/%: $(OBJ)/tests/fuzz/%.o $(OBJ)/tests/fuzz/replay.o
	@mkdir -p $(@D)
	$(call link_test,$(filter $(OBJ)/tests/fuzz/%,$^))

$(CORPUS_BIN): $(BUILD)/tests/%: $(OBJ)/tests/fuzz/%.o
	@mkdir -p $(@D)
	$(call link_test,$<)

$(LONG): $(OBJ)/tests/long/long.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $< $(LIB) $(LIBS)

# The fuzzer itself: libFuzzer brings main.
FUZZER_BIN = $(FUZZ_NAMES:%=$(BUILD)/fuzz_%)
$(FUZZER_BIN): $(BUILD)/%: $(OBJ)/tests/fuzz/%.o
	$(call say,LD)$(CC) -fsanitize=address,undefined,fuzzer $(LDFLAGS) -o $@ $< $(SUPPORT_OBJ) $(LIB) $(TEST_LIBS) $(LIBS)

$(SUITE_BIN) $(FUZZ_BIN) $(CORPUS_BIN) $(FUZZER_BIN): $(SUPPORT_OBJ) $(LIB) $(BUILD)/sources

-include $(patsubst %.o,%.d,$(LIB_OBJ) $(APP_OBJ) $(SUPPORT_OBJ) \
  $(SUITE_NAMES:%=$(OBJ)/tests/test_%.o) $(patsubst %.c,$(OBJ)/%.o,$(wildcard tests/fuzz/*.c tests/long/*.c)))

# Only the objects of the library folders in DIRS: for compilers whose system lacks the libraries to link with.
objects: $(foreach dir,$(DIRS),$(filter $(OBJ)/$(dir)/%,$(LIB_OBJ)))

# ---- using ----

setup: ## install what running and testing need, fetch two sample models (Debian; root or sudo)
	@tools/setup.sh

setup-dev: ## install what `make check` needs besides
	@tools/setup.sh dev

# What setup installs is not there yet when this file is read, so building is a make of its own.  The prompt travels
# through the environment, unexpanded: neither make nor the shell reads what it says.
override PROMPT := $(value PROMPT)
run: export WEFT_PROMPT = $(PROMPT)
run: ## answer PROMPT="..." with the sample model, greedily, the same on every processor
	@tools/setup.sh run
	@$(MAKE) --no-print-directory build
	@$(BUILD)/weft run $(MODEL) --temperature 0 --exact --prompt="$$WEFT_PROMPT"

bench: setup ## time prefill and decode with 1 and 2 threads (PEER=program runs another beside it)
	@$(MAKE) --no-print-directory build
	@for threads in 1 2; do \
	  $(BUILD)/weft bench llm $(MODEL) -p 512 -n 128 -r 3 -t $$threads $(if $(PEER),--peer "$(PEER)") || exit; \
	done

# ---- testing ----

test: setup ## run the test suites (SUITES="gguf cli": only those)
	@$(MAKE) --no-print-directory run-suites

test-programs: $(SUITE_BIN) $(FUZZ_BIN) $(CORPUS_BIN)

CHOSEN = $(if $(SUITES),$(SUITES),$(SUITE_NAMES) $(FUZZ_NAMES:%=fuzz_%))
CHOSEN_BIN = $(foreach name,$(CHOSEN),$(or $(filter $(BUILD)/tests/test_$(name) $(BUILD)/tests/$(name),$(SUITE_BIN) \
  $(FUZZ_BIN)),$(error no suite '$(name)': there are $(SUITE_NAMES) $(FUZZ_NAMES:%=fuzz_%))))

# What is built is tested: no packages are looked for, no model fetched.  A report of a sanitizer ends a program with
# 99, a status of no other meaning, so that no test can take it for an expected failure.
run-suites: export ASAN_OPTIONS = exitcode=99:handle_segv=2:handle_sigbus=2:allocator_may_return_null=1
run-suites: export LSAN_OPTIONS = exitcode=99:suppressions=$(CURDIR)/tools/lsan.supp:print_suppressions=0
run-suites: export UBSAN_OPTIONS = exitcode=99:print_stacktrace=1
run-suites: export TSAN_OPTIONS = exitcode=99
run-suites: export WEFT_TEST_FIXED_LAYOUT = $(if $(filter thread,$(SAN)),1)
run-suites: export WEFT_TEST_PROGRAM = $(APP)
run-suites: export WEFT_TEST_EMULATOR = $(EMULATOR)
run-suites: export WEFT_TEST_CC = $(CC) $(SANITIZE)
run-suites: build $(CHOSEN_BIN)
	@tools/run_tests.sh $(CHOSEN_BIN)

format: ## lay out all sources with clang-format
	@tools/format.sh -i

LINT = $(patsubst %,lint/%,$(LIB_SRC) $(APP_SRC) $(wildcard tests/*.c tests/*/*.c))
$(LINT): lint/%: % FORCE
	@clang-tidy --quiet $< -- $(flags) 2>/dev/null
lint: $(LINT) ## look for bugs with clang-tidy

# The reference of the operators is made from their table.
docs: ## write docs/operators.md anew
	@mkdir -p $(BUILD)
	@$(CC) -std=c11 $(WARNINGS) -Iinclude -o $(BUILD)/operators_page tools/operators_page.c
	@$(BUILD)/operators_page >docs/operators.md

check: ## format, lint, include and name rules, sanitizers, clang, Windows and arm64 compilers
	@tools/check.sh

# The GPU is the machine's; its library that of setup, unless another one is named.
check-long: export WEFT_WGPU_LIB ?= $(firstword $(wildcard $(GENERATIONS:%=lib/weft/%/libwgpu_native-release.so)))
check-long: $(LONG) ## tensors beyond 4 GiB, attention over 100000 positions (14 GiB; WEFT_TEST_GPU=1: on the GPU)
	@$(LONG)

fuzz: ## fuzz FUZZ=gguf for FUZZ_SECONDS=60, starting from its corpus
	@$(MAKE) --no-print-directory SAN=fuzzer CC=clang build/san-fuzzer/fuzz_$(FUZZ)
	@mkdir -p build/san-fuzzer/found_$(FUZZ)
	build/san-fuzzer/fuzz_$(FUZZ) -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=build/san-fuzzer/ \
	  build/san-fuzzer/found_$(FUZZ) tests/fuzz/corpus/$(FUZZ)

corpus: $(CORPUS_BIN) ## write the fuzzers' seeds anew
	@for name in $(CORPUS_NAMES); do \
	  mkdir -p tests/fuzz/corpus/$$name && $(BUILD)/tests/make_$${name}_corpus tests/fuzz/corpus/$$name || exit; \
	done

# ---- installing ----

# The man page and the completions of shells are what the program says of itself.
PAGES = $(BUILD)/pages/weft.1 $(BUILD)/pages/weft.bash $(BUILD)/pages/weft.zsh $(BUILD)/pages/weft.fish
FORMAT_1 = man
$(PAGES): $(BUILD)/pages/weft.%: $(APP)
	@mkdir -p $(@D)
	$(call say,PAGE)$(APP) help --format $(or $(FORMAT_$*),$*) >$@

install: build $(SHARED) $(PAGES) ## install under PREFIX=/usr/local (DESTDIR= stages it elsewhere)
	@tools/install.sh install "$(BUILD)" "$(PREFIX)" "$(DESTDIR)" $(GENERATIONS)

uninstall: ## remove what `make install` installed there
	@tools/install.sh uninstall "$(BUILD)" "$(PREFIX)" "$(DESTDIR)"

clean: ## remove the build folder; the model stays
	rm -rf -- $(BUILD)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
