/* detect.c - which variants there are, which of them this processor runs, and which one to use. */
#include "cpu/cpu.h"

#include <stdlib.h> /* getenv */
#include <string.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h> /* syscall */
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

static bool always(void) { return true; }

#if defined(__x86_64__) || defined(_M_X64)
/* The compiler's run-time check covers the operating system's support for the wide registers, too. */
static bool has_avx2(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); /* F16C came before AVX2 */
}
static bool has_avx512(void) {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

#if defined(__linux__)
/* Linux gives the matrix unit's registers to processes that ask, as they enlarge every thread's state. */
static bool has_amx(void) {
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
  const unsigned int tile = 1u << 24, int8 = 1u << 25;
  unsigned int a, b, c, d;
  return has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & tile) && (d & int8) &&
         syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#else
static bool has_amx(void) { return false; } /* how to ask is not known */
#endif
#elif defined(__aarch64__) && defined(__linux__)
static bool has_dotprod(void) { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }
static bool has_i8mm(void) { return has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM); }
#elif defined(__aarch64__) && defined(__APPLE__)
static bool has_feature(const char *name) {
  int value = 0;
  size_t n_bytes = sizeof value;
  return sysctlbyname(name, &value, &n_bytes, NULL, 0) == 0 && value;
}
static bool has_dotprod(void) { return has_feature("hw.optional.arm.FEAT_DotProd"); }
static bool has_i8mm(void) { return has_dotprod() && has_feature("hw.optional.arm.FEAT_I8MM"); }
#elif defined(__aarch64__) /* no way to ask is known here */
static bool has_dotprod(void) { return false; }
static bool has_i8mm(void) { return false; }
#endif

static const struct variant {
  const weft__cpu_kernels *kernels;
  bool (*is_usable)(void);
} VARIANTS[] = {
#if defined(__x86_64__) || defined(_M_X64)
    {&weft__kernels_amx, has_amx},
    {&weft__kernels_avx512, has_avx512},
    {&weft__kernels_avx2, has_avx2},
#elif defined(__aarch64__)
    {&weft__kernels_neon_i8mm, has_i8mm},
    {&weft__kernels_neon_dotprod, has_dotprod},
    {&weft__kernels_neon_base, always},
#endif
    {&weft__kernels_scalar, always},
};

const weft__cpu_kernels *weft__cpu_variant(int index, bool *is_usable) {
  if (index < 0 || (size_t)index >= WEFT_COUNT(VARIANTS)) return NULL;
  *is_usable = VARIANTS[index].is_usable();
  return VARIANTS[index].kernels;
}

/* Sets the error that names all variants. */
static const weft__cpu_kernels *unknown_variant(const char *name, const char *why) {
  char list[128] = "";
  for (size_t i = 0; i < WEFT_COUNT(VARIANTS); i++) {
    if (!VARIANTS[i].is_usable()) continue;
    if (list[0]) strncat(list, ", ", sizeof list - strlen(list) - 1);
    strncat(list, VARIANTS[i].kernels->name, sizeof list - strlen(list) - 1);
  }
  weft__error(WEFT_EINVAL, "WEFT_CPU=%s: %s (this machine has: %s)", name, why, list);
  return NULL;
}

/* The best usable variant of a family: neon is neon_i8mm, neon_dotprod and neon_base. */
static const weft__cpu_kernels *best_of_family(const char *family) {
  size_t n = strlen(family);
  for (size_t i = 0; i < WEFT_COUNT(VARIANTS); i++) {
    const char *name = VARIANTS[i].kernels->name;
    if (strncmp(name, family, n) == 0 && name[n] == '_' && VARIANTS[i].is_usable()) return VARIANTS[i].kernels;
  }
  return unknown_variant(family, "no such variant");
}

const weft__cpu_kernels *weft__cpu_select(void) {
  const char *name = getenv("WEFT_CPU");
  for (size_t i = 0; i < WEFT_COUNT(VARIANTS); i++) {
    bool is_usable = VARIANTS[i].is_usable();
    if (!name || !*name) {
      if (is_usable) return VARIANTS[i].kernels;
    } else if (!strcmp(name, VARIANTS[i].kernels->name)) {
      return is_usable ? VARIANTS[i].kernels : unknown_variant(name, "this processor cannot run it");
    }
  }
  return best_of_family(name);
}
