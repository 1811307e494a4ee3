/* pool.c - the thread pool behind every parallel loop.
 *
 * A decoded token runs hundreds of loops of a few microseconds, so starting one must not enter the system while the
 * workers are awake: the caller stores one word, `cursor`, which spinning workers watch.
 *
 * Invariants:
 * - `cursor` holds a loop's number of tasks and its next task, and one fetch-add both claims a task and learns whether
 *   it exists.  A loop with a claimed, unreported task cannot end, so whoever claimed one may read `task` and `context`:
 *   a worker that comes late claims from the loop that runs now or gets nothing, never an old loop's function.
 * - `unfinished` counts tasks not yet reported; each thread reports once, after its last claim has failed.
 * - Who goes to sleep first sets its flag and then looks again; who has news first stores it and then looks at the flag.
 *   All of these are sequentially consistent, so one of the two sees the other and no wake-up is lost. */
#include "base/pool.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#elif defined(__linux__)
#include <sched.h>
#include <unistd.h>
#else
#include <unistd.h>
#endif

/* How long an idle thread spins before it sleeps: longer than the serial stretches between the loops of a token, of which
 * drawing one from a vocabulary of 150 000 is the longest.  Waking 15 sleepers would cost more than a layer. */
#define SPIN_MS 1.0
/* Pauses between two looks at the clock: 0.2 to 3 microseconds by processor. */
#define PAUSES_PER_CLOCK 64

typedef struct worker {
  weft__pool *pool;
  int index; /* 1 .. n_threads-1 */
  pthread_t thread;
} worker;

/* Each group of fields has a cache line of its own, by who writes it during loops. */
struct weft__pool {
  /* The loop: written by the caller to start it, `cursor` by all as they claim. */
  _Alignas(64) _Atomic uint64_t cursor; /* n_tasks << 32 | next task */
  weft__task task;
  void *context;
  atomic_bool is_stopping;

  /* The end of the loop: written by all as they report. */
  _Alignas(64) atomic_int unfinished;
  atomic_bool caller_sleeps;

  /* Touched by callers, and by workers only to sleep. */
  _Alignas(64) atomic_bool workers_sleep; /* some may; cleared by the caller that wakes them all */
  pthread_mutex_t loop_mutex;             /* held by the caller whose loop runs */
  pthread_mutex_t sleep_mutex;            /* guards both waits below */
  pthread_cond_t work_came, loop_finished;

  int n_threads;
  atomic_bool spins; /* false if there are more threads than processors: a spinner would keep a worker from running */
  bool is_pinned;
  weft__affinity caller; /* if pinned: of the thread that pinned the pool, before */
  worker workers[];
};

/* ---- claiming and reporting ---- */

static uint32_t n_tasks_of(uint64_t cursor) { return (uint32_t)(cursor >> 32); }

static uint32_t next_task_of(uint64_t cursor) { return (uint32_t)cursor; }

/* Whether a worker has something to do: an unclaimed task, or the end. */
static bool has_work(weft__pool *pool) {
  uint64_t cursor = atomic_load(&pool->cursor);
  return next_task_of(cursor) < n_tasks_of(cursor) || atomic_load(&pool->is_stopping);
}

static bool is_finished(weft__pool *pool) { return atomic_load(&pool->unfinished) == 0; }

static void report_finished(weft__pool *pool, int n_finished) {
  if (atomic_fetch_sub(&pool->unfinished, n_finished) != n_finished || !atomic_load(&pool->caller_sleeps)) return;
  pthread_mutex_lock(&pool->sleep_mutex);
  pthread_cond_signal(&pool->loop_finished);
  pthread_mutex_unlock(&pool->sleep_mutex);
}

/* Runs tasks until none is left to claim.  A failed claim moves the cursor on too, but only once a thread and loop, as
 * threads look before they come here: 2^31 tasks and 256 threads stay far from a carry into n_tasks. */
static void run_tasks(weft__pool *pool, int worker_index) {
  int n_finished = 0;
  for (;;) {
    uint64_t cursor = atomic_fetch_add(&pool->cursor, 1);
    if (next_task_of(cursor) >= n_tasks_of(cursor)) break;
    pool->task(pool->context, (int)next_task_of(cursor), worker_index);
    n_finished++;
  }
  if (n_finished > 0) report_finished(pool, n_finished);
}

/* ---- waiting ---- */

/* Tells the processor that this is a spin loop, which saves power and frees the core's other thread. */
static void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb"); /* "yield" does nothing on most cores */
#endif
}

/* Spins until `is_ready` or until the spin time is over; returns whether it is ready. */
static bool spin_until(weft__pool *pool, bool (*is_ready)(weft__pool *)) {
  if (is_ready(pool)) return true;
  if (!atomic_load_explicit(&pool->spins, memory_order_relaxed)) return false;
  double start_ms = 0; /* the clock is not read for short waits */
  for (;;) {
    for (int i = 0; i < PAUSES_PER_CLOCK; i++) {
      cpu_pause();
      if (is_ready(pool)) return true;
    }
    double now_ms = weft__now_ms();
    if (start_ms == 0) start_ms = now_ms;
    if (now_ms - start_ms >= SPIN_MS) return false;
  }
}

/* Returns after any wake-up, with work or without: a worker that comes too late for a loop should spin for the next. */
static void sleep_until_called(weft__pool *pool) {
  pthread_mutex_lock(&pool->sleep_mutex);
  atomic_store(&pool->workers_sleep, true);
  if (!has_work(pool)) pthread_cond_wait(&pool->work_came, &pool->sleep_mutex);
  pthread_mutex_unlock(&pool->sleep_mutex);
}

static void wake_workers(weft__pool *pool) {
  pthread_mutex_lock(&pool->sleep_mutex);
  atomic_store(&pool->workers_sleep, false);
  pthread_cond_broadcast(&pool->work_came);
  pthread_mutex_unlock(&pool->sleep_mutex);
}

static void wait_until_finished(weft__pool *pool) {
  if (spin_until(pool, is_finished)) return;
  pthread_mutex_lock(&pool->sleep_mutex);
  atomic_store(&pool->caller_sleeps, true);
  while (!is_finished(pool)) pthread_cond_wait(&pool->loop_finished, &pool->sleep_mutex);
  atomic_store(&pool->caller_sleeps, false);
  pthread_mutex_unlock(&pool->sleep_mutex);
}

static void *worker_main(void *argument) {
  worker *self = argument;
  weft__pool *pool = self->pool;
  for (;;) {
    if (!spin_until(pool, has_work)) sleep_until_called(pool);
    if (atomic_load(&pool->is_stopping)) return NULL;
    if (has_work(pool)) run_tasks(pool, self->index);
  }
}

/* ---- loops ---- */

static void run_shared(weft__pool *pool, int n_tasks, weft__task task, void *context) {
  pool->task = task;
  pool->context = context;
  atomic_store(&pool->unfinished, n_tasks);
  atomic_store(&pool->cursor, (uint64_t)n_tasks << 32);
  if (atomic_load(&pool->workers_sleep)) wake_workers(pool);
  run_tasks(pool, 0);
  wait_until_finished(pool);
}

void weft__pool_run(weft__pool *pool, int n_tasks, weft__task task, void *context) {
  /* Held for loops that share nothing too: worker 0's scratch belongs to one caller at a time. */
  pthread_mutex_lock(&pool->loop_mutex);
  if (n_tasks > 1 && pool->n_threads > 1)
    run_shared(pool, n_tasks, task, context);
  else
    for (int i = 0; i < n_tasks; i++) task(context, i, 0);
  pthread_mutex_unlock(&pool->loop_mutex);
}

int weft__pool_n_threads(const weft__pool *pool) { return pool->n_threads; }

/* ---- life ---- */

static void destroy_locks(weft__pool *pool) {
  pthread_cond_destroy(&pool->loop_finished);
  pthread_cond_destroy(&pool->work_came);
  pthread_mutex_destroy(&pool->sleep_mutex);
  pthread_mutex_destroy(&pool->loop_mutex);
}

/* 0 or an error number. */
static int init_locks(weft__pool *pool) {
  int error = pthread_mutex_init(&pool->loop_mutex, NULL);
  if (error) return error;
  error = pthread_mutex_init(&pool->sleep_mutex, NULL);
  if (error) goto destroy_loop_mutex;
  error = pthread_cond_init(&pool->work_came, NULL);
  if (error) goto destroy_sleep_mutex;
  error = pthread_cond_init(&pool->loop_finished, NULL);
  if (error) goto destroy_work_came;
  return 0;
destroy_work_came:
  pthread_cond_destroy(&pool->work_came);
destroy_sleep_mutex:
  pthread_mutex_destroy(&pool->sleep_mutex);
destroy_loop_mutex:
  pthread_mutex_destroy(&pool->loop_mutex);
  return error;
}

/* Ends the workers 1 .. n_started-1. */
static void stop_workers(weft__pool *pool, int n_started) {
  atomic_store(&pool->is_stopping, true);
  wake_workers(pool);
  for (int i = 1; i < n_started; i++) pthread_join(pool->workers[i - 1].thread, NULL);
}

#if defined(_WIN32)

static int start_thread(worker *self) { return pthread_create(&self->thread, NULL, worker_main, self); }

#else

/* Starts a thread that leaves signals to the threads of the program, whose blocking calls they are to end.  Faults are
 * not blocked: a thread takes its own, and a debugger's or sanitizer's handler must see them.  0 or an error number. */
static int start_thread(worker *self) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (size_t i = 0; i < WEFT_COUNT(faults); i++) sigdelset(&blocked, faults[i]);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  int error = pthread_create(&self->thread, NULL, worker_main, self);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error;
}

#endif

static weft_status start_workers(weft__pool *pool) {
  for (int i = 1; i < pool->n_threads; i++) {
    pool->workers[i - 1] = (worker){.pool = pool, .index = i};
    if (start_thread(&pool->workers[i - 1]) == 0) continue;
    stop_workers(pool, i);
    return weft__error(WEFT_ELIMIT, "threads: the system refused to start thread %d of %d (use fewer threads)", i + 1,
                       pool->n_threads);
  }
  return WEFT_OK;
}

weft_status weft__pool_create(weft__pool **out, int n_threads) {
  if (n_threads < 1 || n_threads > WEFT_MAX_THREADS)
    return weft__error(WEFT_EINVAL, "threads: %d is out of range (use 1 to %d)", n_threads, WEFT_MAX_THREADS);
  weft__pool *pool = weft__aligned_alloc(sizeof *pool + (size_t)(n_threads - 1) * sizeof(worker));
  if (!pool) return WEFT_ENOMEM;
  memset(pool, 0, sizeof *pool);
  pool->n_threads = n_threads;
  atomic_store(&pool->spins, n_threads <= weft__processors());
  int error = init_locks(pool);
  weft_status status = error ? weft__errno_error(error, "threads: cannot make a lock") : start_workers(pool);
  if (!error && status) destroy_locks(pool);
  if (status) {
    weft__aligned_free(pool);
    return status;
  }
  *out = pool;
  return WEFT_OK;
}

void weft__pool_free(weft__pool *pool) {
  if (!pool) return;
  stop_workers(pool, pool->n_threads);
  if (pool->is_pinned && pthread_equal(pool->caller.thread, pthread_self())) weft__affinity_restore(&pool->caller);
  destroy_locks(pool);
  weft__aligned_free(pool);
}

static weft_status pin_workers(weft__pool *pool, const weft__cpu_list *cpus) {
  weft_status status = WEFT_OK;
  for (int i = 0; i < cpus->n && !status; i++) status = weft__affinity_pin(pthread_self(), cpus->ids[i]);
  if (!status) status = weft__affinity_pin(pthread_self(), cpus->ids[0]);
  for (int i = 1; i < pool->n_threads && !status; i++)
    status = weft__affinity_pin(pool->workers[i - 1].thread, cpus->ids[i % cpus->n]);
  return status;
}

weft_status weft__pool_pin(weft__pool *pool, const weft__cpu_list *cpus) {
  assert(!pool->is_pinned && cpus->n > 0);
  weft_status status = weft__affinity_save(&pool->caller, pthread_self());
  if (status) return status;
  status = pin_workers(pool, cpus);
  if (status) { /* only the last of the pins can fail, and the list's were tried on this thread */
    weft__affinity_restore(&pool->caller);
    return status;
  }
  pool->is_pinned = true;
  atomic_store(&pool->spins, pool->n_threads <= cpus->n);
  return WEFT_OK;
}

int weft__processors(void) {
#if defined(_WIN32)
  DWORD_PTR process_mask, system_mask;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &process_mask, &system_mask)) return 1;
  int n = __builtin_popcountll(process_mask);
  /* The mask is 0 for a process that spans several groups of 64 processors. */
  return n > 0 ? n : (int)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
#else
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
  /* Also for a Linux with more processors than the set can hold. */
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
#endif
}
