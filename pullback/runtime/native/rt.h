/* The C runtime of pullback: threads, memory and time for compiled code, shared by the JIT and by exported programs.
 *
 * Plain C11 and POSIX threads; no Python. Every public name starts with pb_ or PB_. A function that can fail returns a
 * pb_status, and pb_last_error() says why, for the calling thread. Build it from the single file one.c:
 *
 *     cc -O2 -std=c11 -fPIC -shared -pthread one.c -o libpullback_rt.so
 */
#ifndef PULLBACK_RT_H
#define PULLBACK_RT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PB_ABI 1 /* changes whenever pb_runtime does */
#define PB_MAX_THREADS 256
#define PB_ALIGNMENT 64 /* of every block from pb_alloc, in bytes */

/* ---- status.c: how a call reports failure -------------------------------------------------------------------- */

typedef enum pb_status {
    PB_OK = 0,
    PB_ERROR_ARGUMENT = 1,    /* an argument out of range */
    PB_ERROR_MEMORY = 2,      /* not enough memory */
    PB_ERROR_ENVIRONMENT = 3, /* an environment variable that can't be understood */
    PB_ERROR_STATE = 4        /* a call that is not allowed at this point */
} pb_status;

/* Why the last failing call of this thread failed; "" if none has. Valid until this thread's next failure. */
const char *pb_last_error(void);

/* ---- memory.c: aligned blocks, counted ----------------------------------------------------------------------- */

/* A block of at least `bytes` bytes, aligned to PB_ALIGNMENT, contents undefined; NULL when there is no memory. */
void *pb_alloc(size_t bytes);

/* Gives a block from pb_alloc back; NULL is allowed. */
void pb_free(void *block);

int64_t pb_allocation_count(void); /* calls of pb_alloc that succeeded, since the start */
int64_t pb_allocated_bytes(void);  /* bytes asked for and not yet freed */
int64_t pb_peak_bytes(void);       /* the largest value pb_allocated_bytes() has had */

/* ---- clock.c ------------------------------------------------------------------------------------------------- */

int64_t pb_now_ns(void); /* a monotonic clock, in nanoseconds from an arbitrary origin */

/* ---- thread_pool.c: data parallelism ------------------------------------------------------------------------- */

/* Does the items [begin, end) of a job. Must not care how a job is cut into ranges, nor on which thread it runs. */
typedef void (*pb_task)(void *closure, int64_t begin, int64_t end);

/* Covers [0, count) once with calls of `task` on the pool's threads, the caller among them; returns when all are done.
 *
 * Runs as one call on the calling thread when there is one thread or one item, when it is called from inside a task, or
 * while another thread is in pb_parallel_for. Safe in the child of a fork, unless the fork happens inside a task.
 */
void pb_parallel_for(pb_task task, void *closure, int64_t count);

/* The threads of a job, 1 to PB_MAX_THREADS; at first PULLBACK_NUM_THREADS, or else the CPUs this process may use. */
int pb_get_num_threads(void);

/* Waits for the job in progress; an error inside a task. The new threads start with the next job. */
pb_status pb_set_num_threads(int threads);

/* PB_ERROR_ENVIRONMENT when PULLBACK_NUM_THREADS is set to something that isn't a number of threads. */
pb_status pb_check_environment(void);

/* Ends the pool's threads (before dlclose, say). A later job starts them again. An error inside a task. */
pb_status pb_shutdown(void);

/* ---- runtime.c: what compiled code gets ---------------------------------------------------------------------- */

/* Compiled code calls the runtime through this table alone; no address of the runtime is baked into it. */
typedef struct pb_runtime {
    int64_t abi; /* PB_ABI */
    void (*parallel_for)(pb_task task, void *closure, int64_t count);
    int64_t (*now_ns)(void);
} pb_runtime;

const pb_runtime *pb_runtime_get(void);

#ifdef __cplusplus
}
#endif

#endif
