/* blas.c - a BLAS that is loaded while the program runs.  Prefixed names are those of the builds that Python packages
 * bring along. */
#include "blas.h"

#include "base/base.h"

#include <string.h>

/* Values of the CBLAS interface. */
enum { ROW_MAJOR = 101, NO_TRANS = 111 };

/* ISO C has no cast from an object pointer to a function's; the copy is what POSIX promises to work. */
static bool find_function(void *library, const char *const *names, void *function) {
  for (; *names; names++) {
    void *symbol = weft__dynlib_symbol(library, *names);
    if (symbol) return memcpy(function, &symbol, sizeof symbol), true;
  }
  return false;
}

weft_status cli_blas_open(cli_blas *blas, const char *path, int n_threads) {
  static const char *const products[] = {"cblas_sgemm", "scipy_cblas_sgemm", NULL};
  static const char *const setters[] = {"openblas_set_num_threads", "scipy_openblas_set_num_threads", NULL};
  void (*set_threads)(int);
  weft_status status = weft__dynlib_open(&blas->library, path);
  if (status) return status;
  if (!find_function(blas->library, products, &blas->sgemm)) {
    cli_blas_close(blas);
    return weft__error(WEFT_EUNSUPPORTED, "%s: it has no cblas_sgemm (give a BLAS with the C interface)", path);
  }
  blas->sets_threads = find_function(blas->library, setters, &set_threads);
  if (blas->sets_threads) set_threads(n_threads);
  return WEFT_OK;
}

void cli_blas_close(cli_blas *blas) {
  if (blas->library) weft__dynlib_close(blas->library);
  *blas = (cli_blas){0};
}

void cli_blas_run(const cli_blas *blas, const cli_product *p, float *c) {
  int m = (int)p->m, k = (int)p->k, n = (int)p->n;
  for (int64_t i = 0; i < p->batch; i++) {
    const float *b = p->b + (p->is_b_batched ? i * p->k * p->n : 0);
    blas->sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, m, n, k, 1, p->a + i * p->m * p->k, k, b, n, 0, c + i * p->m * p->n, n);
  }
}
