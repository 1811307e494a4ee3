/* test_pool.c - the thread pool: every task once, whatever the sizes, the threads and the callers. */
#include "base/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <cmocka.h>
#include <pthread.h>

#define MAX_TASKS 257

static const int thread_counts[] = {1, 2, 3, 8};
static const int loop_sizes[] = {0, 1, 7, 63, 65, MAX_TASKS, 2};

/* What the tasks of a caller's loops leave behind.  `loop` tells a task that runs with another loop's context. */
typedef struct record {
  int loop, n_threads;
  int n_runs[MAX_TASKS], seen_loop[MAX_TASKS]; /* plain: a task run twice at once is a race that the sanitizer sees */
  atomic_int n_bad_workers;
  atomic_int worker_is_busy[8];
} record;

static void record_task(void *context, int task, int worker) {
  record *r = context;
  if (worker < 0 || worker >= r->n_threads || atomic_exchange(&r->worker_is_busy[worker], 1))
    atomic_fetch_add(&r->n_bad_workers, 1);
  r->n_runs[task]++;
  r->seen_loop[task] = r->loop;
  if (worker >= 0 && worker < r->n_threads) atomic_store(&r->worker_is_busy[worker], 0);
}

/* Runs a loop and returns how many tasks did not run exactly once in it, plus any that ran beyond its end. */
static int run_recorded(weft__pool *pool, record *r, int n_tasks) {
  int n_wrong = 0;
  r->loop++;
  r->n_threads = weft__pool_n_threads(pool);
  for (int i = 0; i < MAX_TASKS; i++) r->n_runs[i] = 0;
  weft__pool_run(pool, n_tasks, record_task, r);
  for (int i = 0; i < MAX_TASKS; i++) {
    bool is_right = i < n_tasks ? r->n_runs[i] == 1 && r->seen_loop[i] == r->loop : r->n_runs[i] == 0;
    n_wrong += !is_right;
  }
  return n_wrong + atomic_load(&r->n_bad_workers);
}

static weft__pool *create(int n_threads) {
  weft__pool *pool = NULL;
  assert_int_equal(weft__pool_create(&pool, n_threads), WEFT_OK);
  assert_non_null(pool);
  assert_int_equal(weft__pool_n_threads(pool), n_threads);
  return pool;
}

static void each_task_runs_once(void **state) {
  (void)state;
  for (size_t t = 0; t < WEFT_COUNT(thread_counts); t++) {
    weft__pool *pool = create(thread_counts[t]);
    record r = {0};
    for (int repeat = 0; repeat < 300; repeat++)
      for (size_t s = 0; s < WEFT_COUNT(loop_sizes); s++) assert_int_equal(run_recorded(pool, &r, loop_sizes[s]), 0);
    weft__pool_free(pool);
  }
}

static void negative_count_runs_nothing(void **state) {
  (void)state;
  weft__pool *pool = create(2);
  record r = {0};
  assert_int_equal(run_recorded(pool, &r, -3), 0);
  weft__pool_free(pool);
}

/* Many loops of so few tasks that a worker often looks for work while the loop ends and the next begins.  Contexts
 * alternate: a task that ran with the last loop's would be counted there. */
typedef struct short_loop {
  int n_runs[2];
} short_loop;

static void count_run(void *context, int task, int worker) {
  (void)worker;
  ((short_loop *)context)->n_runs[task]++;
}

static void late_workers_never_see_an_old_loop(void **state) {
  (void)state;
  enum { N_LOOPS = 100000 };
  for (size_t t = 0; t < WEFT_COUNT(thread_counts); t++) {
    weft__pool *pool = create(thread_counts[t]);
    short_loop loops[2] = {0};
    for (int i = 0; i < N_LOOPS; i++) weft__pool_run(pool, 2, count_run, &loops[i % 2]);
    weft__pool_free(pool);
    for (int i = 0; i < 4; i++) assert_int_equal(loops[i / 2].n_runs[i % 2], N_LOOPS / 2);
  }
}

/* Sums need no atomics: the pool's end of loop orders the tasks' writes before the caller's reads. */
static void store_square(void *context, int task, int worker) {
  (void)worker;
  ((int64_t *)context)[task] = (int64_t)task * task;
}

static void results_are_visible_to_the_caller(void **state) {
  (void)state;
  enum { N = 10000 };
  int64_t *squares = weft__calloc(N, sizeof *squares);
  assert_non_null(squares);
  weft__pool *pool = create(3);
  weft__pool_run(pool, N, store_square, squares);
  for (int i = 0; i < N; i++) assert_int_equal(squares[i], (int64_t)i * i);
  weft__pool_free(pool);
  weft_free(squares);
}

/* Tasks that end only when all of them have begun, so each needs a thread of its own.  A pool that leaves a worker
 * asleep would wait for ever; the limit turns that into a failure. */
typedef struct meeting {
  int n_tasks;
  atomic_int n_begun, n_missed;
} meeting;

static void meet(void *context, int task, int worker) {
  (void)task;
  (void)worker;
  meeting *m = context;
  const double limit_ms = 30000, start_ms = weft__now_ms();
  atomic_fetch_add(&m->n_begun, 1);
  while (atomic_load(&m->n_begun) < m->n_tasks)
    if (weft__now_ms() - start_ms > limit_ms) {
      atomic_fetch_add(&m->n_missed, 1);
      return;
    }
}

static void wait_ms(double ms) {
  double start_ms = weft__now_ms();
  while (weft__now_ms() - start_ms < ms) continue;
}

/* Waiting 1 ms is long enough that idle workers have given up spinning and must be woken. */
static void all_threads_work(void **state) {
  (void)state;
  for (size_t t = 0; t < WEFT_COUNT(thread_counts); t++) {
    weft__pool *pool = create(thread_counts[t]);
    for (int repeat = 0; repeat < 40; repeat++) {
      meeting m = {.n_tasks = thread_counts[t]};
      if (repeat % 2) wait_ms(1);
      weft__pool_run(pool, m.n_tasks, meet, &m);
      assert_int_equal(atomic_load(&m.n_missed), 0);
    }
    weft__pool_free(pool);
  }
}

/* Worker 0 finishes at once and the others are slow, so the caller gives up spinning and must be woken. */
static void slow_unless_caller(void *context, int task, int worker) {
  if (worker != 0) wait_ms(1);
  record_task(context, task, worker);
}

static void caller_wakes_from_sleep(void **state) {
  (void)state;
  weft__pool *pool = create(3);
  record r = {.n_threads = 3};
  for (int repeat = 1; repeat <= 30; repeat++) {
    weft__pool_run(pool, MAX_TASKS, slow_unless_caller, &r);
    for (int i = 0; i < MAX_TASKS; i++) assert_int_equal(r.n_runs[i], repeat);
  }
  assert_int_equal(atomic_load(&r.n_bad_workers), 0);
  weft__pool_free(pool);
}

/* ---- several callers ---- */

enum { N_CALLERS = 4 };

typedef struct caller {
  pthread_t thread;
  weft__pool *pool;
  atomic_int *n_loops_now; /* of all callers together */
  int n_wrong;
  record r;
} caller;

typedef struct guarded {
  record *r;
  atomic_int *n_loops_now;
  atomic_int n_overlaps;
} guarded;

/* A loop's first task holds the count up: a task of another caller's loop that runs meanwhile counts an overlap. */
static void guarded_task(void *context, int task, int worker) {
  guarded *g = context;
  if (atomic_fetch_add(g->n_loops_now, 1) >= g->r->n_threads) atomic_fetch_add(&g->n_overlaps, 1);
  record_task(g->r, task, worker);
  atomic_fetch_sub(g->n_loops_now, 1);
}

static void *call_loops(void *argument) {
  caller *c = argument;
  for (int repeat = 0; repeat < 200; repeat++)
    for (size_t s = 0; s < WEFT_COUNT(loop_sizes); s++) {
      c->n_wrong += run_recorded(c->pool, &c->r, loop_sizes[s]);
      guarded g = {.r = &c->r, .n_loops_now = c->n_loops_now};
      c->r.loop++;
      weft__pool_run(c->pool, loop_sizes[s], guarded_task, &g);
      c->n_wrong += atomic_load(&g.n_overlaps);
    }
  return NULL;
}

static void callers_take_turns(void **state) {
  (void)state;
  for (size_t t = 0; t < WEFT_COUNT(thread_counts); t++) {
    weft__pool *pool = create(thread_counts[t]);
    caller *callers = weft__calloc(N_CALLERS, sizeof *callers);
    atomic_int n_loops_now = 0;
    assert_non_null(callers);
    for (int i = 0; i < N_CALLERS; i++) {
      callers[i].pool = pool;
      callers[i].n_loops_now = &n_loops_now;
      assert_int_equal(pthread_create(&callers[i].thread, NULL, call_loops, &callers[i]), 0);
    }
    for (int i = 0; i < N_CALLERS; i++) pthread_join(callers[i].thread, NULL);
    for (int i = 0; i < N_CALLERS; i++) assert_int_equal(callers[i].n_wrong, 0);
    weft_free(callers);
    weft__pool_free(pool);
  }
}

/* ---- life ---- */

static void create_and_free(void **state) {
  (void)state;
  for (int repeat = 0; repeat < 50; repeat++)
    for (size_t t = 0; t < WEFT_COUNT(thread_counts); t++) {
      weft__pool *pool = create(thread_counts[t]);
      record r = {0};
      if (repeat % 2) assert_int_equal(run_recorded(pool, &r, 7), 0);
      weft__pool_free(pool);
    }
  weft__pool_free(NULL);
}

static void create_refuses_bad_counts(void **state) {
  (void)state;
  static const int bad[] = {0, -1, WEFT_MAX_THREADS + 1};
  for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
    weft__pool *pool = NULL;
    assert_int_equal(weft__pool_create(&pool, bad[i]), WEFT_EINVAL);
    assert_null(pool);
  }
}

static void create_survives_a_failed_allocation(void **state) {
  (void)state;
  weft__pool *pool = NULL;
  weft__alloc_fail_at(1);
  assert_int_equal(weft__pool_create(&pool, 2), WEFT_ENOMEM);
  assert_null(pool);
  weft__pool_free(create(2));
}

static void processors_are_counted(void **state) {
  (void)state;
  assert_true(weft__processors() >= 1);
}

/* ---- pinning ---- */

static void lists_of_processors(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int n, ids[6];
  } right[] = {{"0", 1, {0}},      {"3", 1, {3}},        {"0-3,8", 5, {0, 1, 2, 3, 8}},
               {"7,2", 2, {7, 2}}, {"5-5,0", 2, {5, 0}}, {"1023", 1, {1023}},
               {"010", 1, {10}}};
  static const char *const wrong[] = {"",    ",",  "0,", ",0", "0,,1", "-1",   "1-",          "3-1",    "0-3,2", "1,1",
                                      "0 1", " 0", "0 ", "x",  "0x1",  "1024", "99999999999", "0-1024", "1-2-3", "+1"};
  weft__cpu_list list;
  for (size_t i = 0; i < WEFT_COUNT(right); i++) {
    assert_int_equal(weft__cpu_list_parse(&list, right[i].text), WEFT_OK);
    assert_int_equal(list.n, right[i].n);
    assert_memory_equal(list.ids, right[i].ids, (size_t)list.n * sizeof *list.ids);
  }
  assert_int_equal(weft__cpu_list_parse(&list, "0-1023"), WEFT_OK);
  assert_int_equal(list.n, 1024);
  for (size_t i = 0; i < WEFT_COUNT(wrong); i++)
    if (weft__cpu_list_parse(&list, wrong[i]) != WEFT_EINVAL) fail_msg("'%s' was taken", wrong[i]);
}

#if defined(__linux__)

/* The processors that this process may use. */
static weft__cpu_list allowed(void) {
  weft__affinity now;
  weft__cpu_list list = {0};
  assert_int_equal(weft__affinity_save(&now, pthread_self()), WEFT_OK);
  for (int i = 0; i < WEFT__MAX_CPUS; i++)
    if (CPU_ISSET(i, &now.set)) list.ids[list.n++] = i;
  return list;
}

typedef struct places {
  int cpu[MAX_TASKS], worker[MAX_TASKS];
} places;

static void record_place(void *context, int task, int worker) {
  places *p = context;
  p->cpu[task] = sched_getcpu();
  p->worker[task] = worker;
}

static void pinned_workers_stay_in_place(void **state) {
  (void)state;
  weft__cpu_list cpus = allowed();
  for (size_t t = 0; t < WEFT_COUNT(thread_counts); t++) {
    weft__pool *pool = create(thread_counts[t]);
    assert_int_equal(weft__pool_pin(pool, &cpus), WEFT_OK);
    places p;
    for (int repeat = 0; repeat < 20; repeat++) {
      weft__pool_run(pool, MAX_TASKS, record_place, &p);
      for (int i = 0; i < MAX_TASKS; i++) assert_int_equal(p.cpu[i], cpus.ids[p.worker[i] % cpus.n]);
    }
    weft__cpu_list own = allowed();
    assert_int_equal(own.n, 1);
    assert_int_equal(own.ids[0], cpus.ids[0]);
    weft__pool_free(pool);
    own = allowed();
    assert_int_equal(own.n, cpus.n);
  }
}

static void missing_processors_are_refused(void **state) {
  (void)state;
  weft__cpu_list before = allowed(), cpus = {1, {1023}};
  if (before.ids[before.n - 1] == 1023) skip(); /* a machine that has them all */
  weft__pool *pool = create(2);
  assert_int_equal(weft__pool_pin(pool, &cpus), WEFT_EINVAL);
  assert_string_equal(weft_last_error(),
                      "affinity: this process may use no processor 1023 (`taskset -cp $$` shows which)");
  cpus =
      (weft__cpu_list){5, {before.ids[0], before.ids[0], before.ids[0], before.ids[0], 1023}}; /* beyond the threads */
  assert_int_equal(weft__pool_pin(pool, &cpus), WEFT_EINVAL);
  assert_int_equal(allowed().n, before.n);
  weft__pool_free(pool);
}

#else

static void pinned_workers_stay_in_place(void **state) {
  (void)state;
  weft__pool *pool = create(2);
  assert_int_equal(weft__pool_pin(pool, &(weft__cpu_list){1, {0}}), WEFT_EUNSUPPORTED);
  weft__pool_free(pool);
}

static void missing_processors_are_refused(void **state) { pinned_workers_stay_in_place(state); }

#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_task_runs_once),
      cmocka_unit_test(negative_count_runs_nothing),
      cmocka_unit_test(late_workers_never_see_an_old_loop),
      cmocka_unit_test(results_are_visible_to_the_caller),
      cmocka_unit_test(all_threads_work),
      cmocka_unit_test(caller_wakes_from_sleep),
      cmocka_unit_test(callers_take_turns),
      cmocka_unit_test(create_and_free),
      cmocka_unit_test(create_refuses_bad_counts),
      cmocka_unit_test(create_survives_a_failed_allocation),
      cmocka_unit_test(processors_are_counted),
      cmocka_unit_test(lists_of_processors),
      cmocka_unit_test(pinned_workers_stay_in_place),
      cmocka_unit_test(missing_processors_are_refused),
  };
  return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
