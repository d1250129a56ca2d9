/* Thread pool: a small persistent team that runs one job at a time.
 *
 * A job [0, count) is cut into contiguous pieces, at most PIECES_PER_THREAD a thread, and each thread owns a lane: a
 * run of consecutive pieces. A thread takes half of what is left of its own lane, from the front, and at the end half
 * of what is left of the others', from the back. So in a quiet machine a thread always gets the same part of the data,
 * and in a busy one nobody waits for what a thread which isn't running has not taken yet: the caller can finish a job
 * alone.
 *
 * A lane is one atomic word, (job number, next piece, end), so a thread that comes late finds another job number, or no
 * piece, and touches nothing else. Only a thread that holds a piece may read the job, which can't end before that piece
 * is reported done. Idle workers spin for a bounded time that adapts to the gaps between jobs, then park.
 *
 * With PB_NO_THREADS, all that is left of it is the calling thread.
 */
#include "thread_pool.h"

#include "bytes.h"

/* ---- a job on the calling thread ----------------------------------------------------------------------------- */

struct whole {
    pb_share share; /* first, as in a hold */
    int64_t count;  /* 0 once it is given */
};

static int32_t next_of_whole(pb_share *share, int64_t range[2])
{
    struct whole *whole = (struct whole *)share;
    range[0] = 0;
    range[1] = whole->count;
    whole->count = 0;
    return range[1] > 0;
}

PB_API void pb_do_alone(pb_work work, void *closure, int64_t count)
{
    struct whole whole = {{next_of_whole}, count};
    work(closure, &whole.share);
}

PB_API void pb_do_ranges(void *closure, pb_share *share)
{
    const struct pb_ranges *ranges = closure;
    for (int64_t range[2]; share->next(share, range);)
        ranges->task(ranges->closure, range[0], range[1]);
}

#ifdef PB_NO_THREADS

enum { MOST_THREADS = 1 };

static size_t bytes_of(int threads)
{
    (void)threads;
    return sizeof(struct pb_pool);
}

static void set_threads(struct pb_pool *pool, int threads)
{
    (void)pool, (void)threads;
}

PB_API pb_status pb_pool_start(struct pb_pool *pool)
{
    (void)pool;
    return PB_OK;
}

PB_API void pb_pool_close(struct pb_pool *pool)
{
    (void)pool;
}

static void share_job(const pb_runtime *runtime, pb_work work, void *closure, int64_t count)
{
    (void)runtime;
    if (count > 0)
        pb_do_alone(work, closure, count);
}

#else

#include <sched.h>
#include <signal.h>

enum {
    MOST_THREADS = PB_MAX_THREADS,
    PIECES_PER_THREAD = 16,
    PAUSES_PER_LOOK = 32,      /* between two looks at the clock */
    LONGEST_SPIN_NS = 1000000, /* an idle worker's, before it parks: it takes 14 us to wake (Granite Rapids) */
    SHORTEST_SPIN_NS = 5000,   /* what it shrinks to while jobs are far apart */
    YIELD_AFTER_NS = 20000     /* of spinning, we offer the CPU to others */
};

static _Thread_local int inside_task;

PB_API int pb_inside_task(void)
{
    return inside_task;
}

/* ---- ranges and words ---------------------------------------------------------------------------------------- */

/* Where part `index` begins when [0, total) is cut into `parts` ranges whose lengths differ by at most one, the longer
 * ones evenly among the others, so that ranges of parts are of even lengths too: total * index / parts. */
static int64_t cut(int64_t total, int64_t parts, int64_t index)
{
    return total / parts * index + total % parts * index / parts;
}

static uint64_t make_word(uint64_t job, int64_t pieces)
{
    return job << 16 | (uint64_t)pieces;
}

static uint64_t job_of(uint64_t word)
{
    return word >> 16;
}

static int next_of(uint64_t word)
{
    return word >> 8 & 0xff;
}

static int end_of(uint64_t word)
{
    return word & 0xff;
}

static int has_piece(uint64_t word)
{
    return next_of(word) < end_of(word);
}

/* ---- doing a job --------------------------------------------------------------------------------------------- */

/* Takes half of what is left of `job` in the lane, from its front (the owner) or back (others): returns how many
 * pieces, and the first of them. Each taking waits for all stores before it, which counts where pieces are short. */
static int take(struct pb_lane *lane, uint64_t job, int from_back, int *first)
{
    uint64_t word = atomic_load_explicit(&lane->word, memory_order_acquire);
    while (job_of(word) == job && has_piece(word)) {
        int count = (end_of(word) - next_of(word) + 1) / 2;
        uint64_t rest = from_back ? word - (uint64_t)count : word + ((uint64_t)count << 8);
        *first = from_back ? end_of(word) - count : next_of(word);
        if (atomic_compare_exchange_weak_explicit(&lane->word, &word, rest, memory_order_acq_rel, memory_order_acquire))
            return count;
    }
    return 0;
}

/* What a thread of a job holds while it works. */
struct hold {
    pb_share share; /* first: the work knows no more of it */
    struct pb_pool *pool;
    uint64_t job;
    int self, step;   /* its lane, and which one it takes from: the step-th after its own */
    int first, count; /* pieces of that lane which it took last */
    int64_t done;     /* all pieces that it has taken */
};

static int take_more(struct hold *hold)
{
    struct pb_pool *pool = hold->pool;
    struct pb_lane *lane = &pool->lanes[hold->step == 0 ? hold->self : (hold->self + hold->step) % pool->lanes_used];
    hold->count = take(lane, hold->job, hold->step > 0, &hold->first);
    hold->done += hold->count;
    return hold->count > 0;
}

static int32_t next_of_job(pb_share *share, int64_t range[2])
{
    struct hold *hold = (struct hold *)share;
    struct pb_pool *pool = hold->pool;
    while (hold->count == 0 && !take_more(hold))
        if (++hold->step >= pool->lanes_used)
            return 0;
    int64_t first = cut(pool->pieces, pool->lanes_used, (hold->self + hold->step) % pool->lanes_used) + hold->first;
    range[0] = cut(pool->count, pool->pieces, first);
    range[1] = cut(pool->count, pool->pieces, first + hold->count);
    hold->count = 0;
    return 1;
}

/* Enters a job through its own lane, then helps with the others. A piece not yet reported keeps the job in place. */
static void take_part(struct pb_pool *pool, int self, uint64_t job)
{
    struct hold hold = {.share = {next_of_job}, .pool = pool, .job = job, .self = self};
    if (!take_more(&hold))
        return;
    pb_set_float_mode(pool->float_mode);
    pool->work(pool->closure, &hold.share);
    atomic_fetch_sub_explicit(&pool->remaining, hold.done, memory_order_acq_rel);
}

/* ---- waiting ------------------------------------------------------------------------------------------------- */

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield");
#endif
}

static int spin_until_work(struct pb_lane *self, int64_t limit_ns)
{
    struct pb_pool *pool = self->pool;
    int64_t start = pb_now_ns(), spent = 0;
    while (spent < limit_ns && !atomic_load_explicit(&pool->stop, memory_order_relaxed)) {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (has_piece(atomic_load_explicit(&self->word, memory_order_acquire)))
                return 1;
            pause_cpu();
        }
        if (spent > YIELD_AFTER_NS)
            sched_yield();
        spent = pb_now_ns() - start;
    }
    return 0;
}

/* `parked` and `word` are written and read in opposite orders here and in wake_if_parked, all sequentially consistent.
 * A wake-up counts even if others have done the work by then: jobs are coming, and the worker goes back to spinning. */
static void park_until_woken(struct pb_lane *self)
{
    pthread_mutex_lock(&self->mutex);
    atomic_store(&self->parked, 1);
    if (!has_piece(atomic_load(&self->word)) && !atomic_load(&self->pool->stop)) {
        while (atomic_load(&self->parked))
            pthread_cond_wait(&self->wake, &self->mutex);
    }
    atomic_store(&self->parked, 0);
    pthread_mutex_unlock(&self->mutex);
}

static void wake_if_parked(struct pb_lane *lane)
{
    if (!atomic_load(&lane->parked))
        return;
    pthread_mutex_lock(&lane->mutex);
    atomic_store(&lane->parked, 0);
    pthread_cond_signal(&lane->wake);
    pthread_mutex_unlock(&lane->mutex);
}

static void wait_until_done(struct pb_pool *pool)
{
    int64_t start = 0;
    while (atomic_load_explicit(&pool->remaining, memory_order_acquire) != 0) {
        for (int i = 0; i < PAUSES_PER_LOOK && atomic_load_explicit(&pool->remaining, memory_order_acquire) != 0; i++)
            pause_cpu();
        if (start == 0)
            start = pb_now_ns();
        else if (pb_now_ns() - start > YIELD_AFTER_NS)
            sched_yield();
    }
}

/* A spin that would have met the next job is worth its time; one that never does shrinks. */
static int64_t adapted_spin(int64_t spin_ns, int64_t gap_ns)
{
    if (gap_ns <= LONGEST_SPIN_NS)
        return LONGEST_SPIN_NS;
    return spin_ns / 2 > SHORTEST_SPIN_NS ? spin_ns / 2 : SHORTEST_SPIN_NS;
}

static void *worker_main(void *argument)
{
    struct pb_lane *self = argument;
    struct pb_pool *pool = self->pool;
    int64_t spin_ns = LONGEST_SPIN_NS;
    inside_task = 1;
    while (!atomic_load(&pool->stop)) {
        if (!spin_until_work(self, spin_ns)) {
            int64_t start = pb_now_ns() - spin_ns;
            park_until_woken(self);
            spin_ns = adapted_spin(spin_ns, pb_now_ns() - start);
        }
        take_part(pool, (int)(self - pool->lanes), job_of(atomic_load_explicit(&self->word, memory_order_acquire)));
    }
    return NULL;
}

/* ---- the team ------------------------------------------------------------------------------------------------ */

PB_API int pb_pool_try_hold(struct pb_pool *pool)
{
    return !atomic_load_explicit(&pool->busy, memory_order_relaxed) &&
           !atomic_exchange_explicit(&pool->busy, 1, memory_order_acquire);
}

PB_API void pb_pool_hold(struct pb_pool *pool)
{
    while (!pb_pool_try_hold(pool))
        sched_yield();
}

PB_API void pb_pool_release(struct pb_pool *pool)
{
    atomic_store_explicit(&pool->busy, 0, memory_order_release);
}

static int start_worker(struct pb_pool *pool, struct pb_lane *lane)
{
    lane->pool = pool;
    atomic_store(&lane->word, 0);
    atomic_store(&lane->parked, 0);
    pthread_mutex_init(&lane->mutex, NULL);
    pthread_cond_init(&lane->wake, NULL);
    if (pthread_create(&lane->thread, NULL, worker_main, lane) == 0)
        return 1;
    pthread_cond_destroy(&lane->wake);
    pthread_mutex_destroy(&lane->mutex);
    return 0;
}

static void start_missing(struct pb_pool *pool, int wanted)
{
    while (pool->workers < wanted && start_worker(pool, &pool->lanes[pool->workers + 1]))
        pool->workers++;
}

/* Signals other than faults stay with the host's threads. */
PB_API void pb_pool_start_workers(struct pb_pool *pool, int wanted)
{
    if (pool->workers >= wanted)
        return;
#ifdef _WIN32
    start_missing(pool, wanted);
#else
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    start_missing(pool, wanted);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
#endif
}

PB_API void pb_pool_stop_workers(struct pb_pool *pool)
{
    atomic_store(&pool->stop, 1);
    for (int i = 1; i <= pool->workers; i++) {
        struct pb_lane *lane = &pool->lanes[i];
        wake_if_parked(lane);
        pthread_join(lane->thread, NULL);
        pthread_cond_destroy(&lane->wake);
        pthread_mutex_destroy(&lane->mutex);
    }
    pool->workers = 0;
    atomic_store(&pool->stop, 0);
}

PB_API void pb_pool_forget_workers(struct pb_pool *pool)
{
    pool->workers = 0;
    atomic_store(&pool->remaining, 0);
    atomic_store(&pool->stop, 0);
    pb_pool_release(pool);
}

PB_API pb_status pb_pool_start(struct pb_pool *pool)
{
    pb_pool_hold(pool);
    int wanted = atomic_load(&pool->threads) - 1;
    pb_pool_start_workers(pool, wanted);
    pb_status status = pool->workers < wanted ? PB_ERROR_MEMORY : PB_OK;
    if (status != PB_OK)
        pb_pool_stop_workers(pool);
    pb_pool_release(pool);
    return status;
}

PB_API void pb_pool_close(struct pb_pool *pool)
{
    pb_pool_hold(pool);
    pb_pool_stop_workers(pool);
    pb_pool_release(pool);
}

/* ---- a job --------------------------------------------------------------------------------------------------- */

static void publish(struct pb_pool *pool, pb_work work, void *closure, int64_t count)
{
    int64_t threads = pool->workers + 1;
    int64_t pieces = count < threads * PIECES_PER_THREAD ? count : threads * PIECES_PER_THREAD;
    pool->job = (pool->job + 1) & (UINT64_MAX >> 16);
    pool->work = work;
    pool->closure = closure;
    pool->count = count;
    pool->pieces = pieces;
    pool->float_mode = pb_float_mode();
    pool->lanes_used = (int)(pieces < threads ? pieces : threads);
    atomic_store_explicit(&pool->remaining, pieces, memory_order_relaxed);
    for (int i = 0; i < pool->lanes_used; i++) {
        int64_t own = cut(pieces, pool->lanes_used, i + 1) - cut(pieces, pool->lanes_used, i);
        atomic_store(&pool->lanes[i].word, make_word(pool->job, own));
    }
    for (int i = 1; i < pool->lanes_used; i++)
        wake_if_parked(&pool->lanes[i]);
}

PB_API void pb_pool_do_job(struct pb_pool *pool, pb_work work, void *closure, int64_t count)
{
    inside_task = 1;
    publish(pool, work, closure, count);
    take_part(pool, 0, pool->job);
    wait_until_done(pool);
    inside_task = 0;
}

static void share_job(const pb_runtime *runtime, pb_work work, void *closure, int64_t count)
{
    struct pb_pool *pool = (struct pb_pool *)runtime;
    if (count <= 0)
        return;
    if (count == 1 || pool->workers == 0 || inside_task || !pb_pool_try_hold(pool)) {
        pb_do_alone(work, closure, count);
        return;
    }
    pb_pool_do_job(pool, work, closure, count);
    pb_pool_release(pool);
}

/* ---- a pool in its owner's memory ---------------------------------------------------------------------------- */

static size_t bytes_of(int threads)
{
    return sizeof(struct pb_pool) + (size_t)threads * sizeof(struct pb_lane);
}

static void set_threads(struct pb_pool *pool, int threads)
{
    atomic_store(&pool->threads, threads);
}

#endif

static void do_job(const pb_runtime *runtime, pb_task task, void *closure, int64_t count)
{
    struct pb_ranges ranges = {task, closure};
    share_job(runtime, pb_do_ranges, &ranges, count);
}

PB_API size_t pb_pool_bytes(int threads)
{
    return threads < 1 || threads > MOST_THREADS ? 0 : bytes_of(threads);
}

PB_API pb_status pb_pool_init(struct pb_pool *pool, int threads)
{
    if (pb_pool_bytes(threads) == 0 || (uintptr_t)pool % PB_ALIGNMENT != 0)
        return PB_ERROR_ARGUMENT;
    memset(pool, 0, bytes_of(threads));
    pool->runtime = (pb_runtime){PB_ABI, do_job, pb_now_ns, share_job, PB_HEAP_FUNCTIONS, NULL, NULL, NULL};
    set_threads(pool, threads);
    return PB_OK;
}

PB_API const pb_runtime *pb_pool_runtime(const struct pb_pool *pool)
{
    return &pool->runtime;
}
