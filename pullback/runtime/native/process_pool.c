/* Process pool: the one pool of threads that all compiled functions of a process share.
 *
 * Its threads start with the first job that wants them, and again in the child of a fork. How many there are is decided
 * when somebody asks, and can be changed between two jobs.
 */
#include "thread_pool.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* Zeros are a pool without workers, whose number of threads is not yet decided. Its own table is not used: that of the
 * process has functions that start workers first. No other variable shares a pair of lines with it. */
static _Alignas(2 * PB_ALIGNMENT) union {
    struct pb_pool pool;
    char memory[sizeof(struct pb_pool) + PB_MAX_THREADS * sizeof(struct pb_lane)];
} process;

static void forget_workers(void)
{
    pb_pool_forget_workers(&process.pool);
}

/* When the library is loaded: a fork may come while the first job is being prepared. */
__attribute__((constructor)) static void register_fork_handler(void)
{
    pthread_atfork(NULL, NULL, forget_workers);
}

/* ---- how many threads ---------------------------------------------------------------------------------------- */

/* *threads stays as it is when the variable is unset or empty. */
static pb_status threads_from_environment(int *threads)
{
    const char *text = getenv("PULLBACK_NUM_THREADS");
    if (text == NULL || *text == '\0')
        return PB_OK;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    while (isspace((unsigned char)*end))
        end++;
    if (end == text || *end != '\0' || errno != 0 || value < 1 || value > PB_MAX_THREADS)
        return pb_fail(PB_ERROR_ENVIRONMENT,
                       "PULLBACK_NUM_THREADS must be a whole number from 1 to %d, got \"%.64s\"; mend it or unset it",
                       PB_MAX_THREADS, text);
    *threads = (int)value;
    return PB_OK;
}

pb_status pb_check_environment(void)
{
    int ignored;
    return threads_from_environment(&ignored);
}

int pb_get_num_threads(void)
{
    int threads = atomic_load_explicit(&process.pool.threads, memory_order_relaxed);
    if (threads == 0) {
        int undecided = 0;
        threads = pb_usable_cpus();
        threads_from_environment(&threads);
        if (!atomic_compare_exchange_strong(&process.pool.threads, &undecided, threads))
            threads = undecided; /* another thread set it meanwhile */
    }
    return threads;
}

/* Stops the workers between two jobs; the next job starts as many as it wants. */
static pb_status end_workers(int threads_of_next_job)
{
    if (pb_inside_task())
        return pb_fail(PB_ERROR_STATE, "the thread pool can't be changed from inside one of its tasks");
    pb_pool_hold(&process.pool);
    pb_pool_stop_workers(&process.pool);
    atomic_store(&process.pool.threads, threads_of_next_job);
    pb_pool_release(&process.pool);
    return PB_OK;
}

pb_status pb_set_num_threads(int threads)
{
    if (threads < 1 || threads > PB_MAX_THREADS)
        return pb_fail(PB_ERROR_ARGUMENT, "the number of threads must be from 1 to %d, got %d", PB_MAX_THREADS,
                       threads);
    return end_workers(threads);
}

pb_status pb_shutdown(void)
{
    return end_workers(pb_get_num_threads());
}

/* ---- jobs ---------------------------------------------------------------------------------------------------- */

static void process_share(const pb_runtime *runtime, pb_work work, void *closure, int64_t count)
{
    struct pb_pool *pool = &process.pool;
    (void)runtime;
    if (count <= 0)
        return;
    if (count == 1 || pb_get_num_threads() == 1 || pb_inside_task() || !pb_pool_try_hold(pool)) {
        pb_do_alone(work, closure, count);
        return;
    }
    pb_pool_start_workers(pool, pb_get_num_threads() - 1);
    pb_pool_do_job(pool, work, closure, count);
    pb_pool_release(pool);
}

static void process_for(const pb_runtime *runtime, pb_task task, void *closure, int64_t count)
{
    struct pb_ranges ranges = {task, closure};
    process_share(runtime, pb_do_ranges, &ranges, count);
}

static const pb_runtime process_runtime = {PB_ABI, process_for, pb_now_ns, process_share, PB_HEAP_FUNCTIONS,
                                          NULL, pb_collective_start, pb_collective_wait};

const pb_runtime *pb_runtime_get(void)
{
    return &process_runtime;
}

void pb_parallel_share(pb_work work, void *closure, int64_t count)
{
    process_share(&process_runtime, work, closure, count);
}

void pb_parallel_for(pb_task task, void *closure, int64_t count)
{
    process_for(&process_runtime, task, closure, count);
}

int64_t pb_thread_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}
