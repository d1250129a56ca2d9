/* An exported function: its pool of threads, the memory of its temporaries, and why a call failed.
 *
 * The pool is made at the first call. Calls of several threads may overlap: each has temporaries of its own, and while
 * one has the pool the others compute alone.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the generated file says of the function. */
typedef struct pb_exported {
    int32_t (*entry)(const pb_runtime *, void *const *, void *, int64_t *);
    void *const *constants;
    const char *const *messages; /* of the statuses 1, 2, … */
    int32_t inputs, constant_count, outputs;
    int64_t arena_bytes;
} pb_exported;

static pthread_once_t pool_once = PTHREAD_ONCE_INIT;
static struct pb_pool *pool; /* NULL: there is no memory for it */
static int wanted_threads;   /* 0: as many as there are CPUs */
static _Atomic(void *) spare_arena;
static _Thread_local const char *last_error = "";

static void *aligned_block(size_t bytes)
{
    void *block = NULL;
    return posix_memalign(&block, PB_ALIGNMENT, bytes > 0 ? bytes : 1) == 0 ? block : NULL;
}

static void forget_workers(void)
{
    if (pool != NULL)
        pb_pool_forget_workers(pool);
}

static void make_pool(void)
{
    long cpus = wanted_threads > 0 ? wanted_threads : sysconf(_SC_NPROCESSORS_ONLN);
    int threads = cpus < 1 ? 1 : cpus > PB_MAX_THREADS ? PB_MAX_THREADS : (int)cpus;
    struct pb_pool *made = aligned_block(pb_pool_bytes(threads));
    if (made == NULL || pb_pool_init(made, threads) != PB_OK) {
        free(made);
        return;
    }
    pb_pool_start(made); /* where the system refuses threads, the caller's does all */
    pool = made;
    pthread_atfork(NULL, NULL, forget_workers);
}

#ifdef __GNUC__
__attribute__((destructor)) static void end_pool(void)
{
    if (pool != NULL)
        pb_pool_close(pool);
    free(pool);
    pool = NULL;
    free(atomic_exchange(&spare_arena, NULL));
}
#endif

static int fail(int status, const char *message)
{
    last_error = message;
    return status;
}

static int choose_threads(int threads)
{
    if (threads < 1 || threads > PB_MAX_THREADS)
        return fail(PB_ERROR_ARGUMENT, "the number of threads is out of range");
    if (pool != NULL)
        return fail(PB_ERROR_STATE, "threads are set before the first call");
    wanted_threads = threads;
    return PB_OK;
}

/* `buffers` has room for the inputs, the constants and the outputs. */
static int call_exported(const pb_exported *function, void **buffers, const void *const *inputs, void *const *outputs)
{
    int32_t status;
    void *arena;
    for (int32_t k = 0; k < function->inputs; k++)
        if (inputs[k] == NULL)
            return fail(PB_ERROR_ARGUMENT, "an input is NULL");
    for (int32_t k = 0; k < function->outputs; k++)
        if (outputs[k] == NULL)
            return fail(PB_ERROR_ARGUMENT, "an output is NULL");
    pthread_once(&pool_once, make_pool);
    arena = atomic_exchange(&spare_arena, NULL);
    if (arena == NULL)
        arena = aligned_block((size_t)function->arena_bytes);
    if (pool == NULL || arena == NULL) {
        free(arena);
        return fail(PB_ERROR_MEMORY, "there is not enough memory");
    }
    memcpy(buffers, inputs, (size_t)function->inputs * sizeof *buffers);
    memcpy(buffers + function->inputs, function->constants, (size_t)function->constant_count * sizeof *buffers);
    memcpy(buffers + function->inputs + function->constant_count, outputs, (size_t)function->outputs * sizeof *buffers);
    status = function->entry(pb_pool_runtime(pool), buffers, arena, NULL);
    free(atomic_exchange(&spare_arena, arena));
    return status == 0 ? PB_OK : fail(PB_ERROR_STEP, function->messages[status - 1]);
}
