/* Thread pool: the engine below the pool of the process, and below each instance of an exported library.
 *
 * A pool lies in memory that its owner gives, and nothing of it elsewhere. It begins with the table that compiled code
 * gets: so that code reaches the pool of whoever called it.
 */
#ifndef PULLBACK_THREAD_POOL_H
#define PULLBACK_THREAD_POOL_H

#include "internal.h"

#ifndef PB_NO_THREADS
#include <pthread.h>
#include <stdatomic.h>
#endif

struct pb_pool;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* How many bytes a pool takes whose jobs are done by so many threads, the caller's among them; 0 for a number out of
 * range: 1 to PB_MAX_THREADS, or 1 with PB_NO_THREADS. */
PB_API size_t pb_pool_bytes(int threads);

/* Makes a pool in memory that is aligned to PB_ALIGNMENT. Until it is started, jobs run on the thread that calls for
 * them. PB_ERROR_ARGUMENT: the memory is not aligned, or `threads` is out of range. */
PB_API pb_status pb_pool_init(struct pb_pool *pool, int threads);

/* Starts all its threads but the caller's; not to be called inside a task. PB_ERROR_MEMORY: the system refuses one, and
 * none of them runs. */
PB_API pb_status pb_pool_start(struct pb_pool *pool);

/* Waits for the job in progress and ends the threads: the pool is as pb_pool_init left it. Not to be called inside a
 * task, nor in a fork's child, which has none of the threads (see pb_pool_forget_workers). */
PB_API void pb_pool_close(struct pb_pool *pool);

/* The table of the pool, for compiled code. */
PB_API const pb_runtime *pb_pool_runtime(const struct pb_pool *pool);

/* Runs all of a job on this thread. */
PB_API void pb_do_alone(pb_work work, void *closure, int64_t count);

/* A pb_work that calls a task for each range; its closure is a pb_ranges. */
struct pb_ranges {
    pb_task task;
    void *closure;
};
PB_API void pb_do_ranges(void *ranges, pb_share *share);

#ifdef PB_NO_THREADS

struct pb_pool {
    pb_runtime runtime;
};

#else

/* Lines are prefetched in pairs: where neighbours are written by different threads, a line between them is left free,
 * so that it does not matter which line of a pair is the first of the pool's memory. */
struct pb_lane {
    _Alignas(PB_ALIGNMENT) _Atomic uint64_t word; /* job number: 48 bits, next piece: 8, end: 8 */
    _Atomic int parked;
    pthread_mutex_t mutex; /* held around `parked` going up and the signal that ends it */
    pthread_cond_t wake;
    pthread_t thread;
    struct pb_pool *pool;
    char apart[PB_ALIGNMENT];
};

struct pb_pool {
    pb_runtime runtime;
    _Atomic int threads; /* wanted, the caller included */
    _Atomic int busy;    /* held by whoever runs a job or changes the pool; guards the fields up to `lanes_used` */
    int workers;         /* threads running, in lanes 1 to `workers` */
    uint64_t job;        /* its number */
    pb_work work;
    void *closure;
    int64_t count;
    int64_t pieces;
    uint64_t float_mode; /* the caller's, in which all threads do the job: results must not depend on their number */
    int lanes_used;
    _Atomic int stop;
    char apart[PB_ALIGNMENT];
    _Alignas(PB_ALIGNMENT) _Atomic int64_t remaining; /* pieces not yet reported done */
    char apart_too[PB_ALIGNMENT];
    struct pb_lane lanes[]; /* lane 0 is the caller's */
};

/* Whether this thread is in a task, of whichever pool. */
PB_API int pb_inside_task(void);

/* Who holds a pool may run a job or change it; all others wait, or do their work alone. */
PB_API int pb_pool_try_hold(struct pb_pool *pool); /* whether this thread holds it now */
PB_API void pb_pool_hold(struct pb_pool *pool);    /* waits; not to be called inside a task */
PB_API void pb_pool_release(struct pb_pool *pool);

/* For who holds it. So many workers: fewer, when the system refuses a thread, only make jobs slower. */
PB_API void pb_pool_start_workers(struct pb_pool *pool, int wanted);
PB_API void pb_pool_stop_workers(struct pb_pool *pool);
PB_API void pb_pool_do_job(struct pb_pool *pool, pb_work work, void *closure, int64_t count);

/* In a fork's child no worker exists, and the pool may have been caught in any state. */
PB_API void pb_pool_forget_workers(struct pb_pool *pool);

#endif

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
