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
 */
#include "internal.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    CACHE_LINE = 128, /* two lines of 64: neighbours are prefetched in pairs */
    PIECES_PER_THREAD = 16,
    PAUSES_PER_LOOK = 32,      /* between two looks at the clock */
    LONGEST_SPIN_NS = 1000000, /* an idle worker's, before it parks: it takes 14 us to wake (Granite Rapids) */
    SHORTEST_SPIN_NS = 5000,   /* what it shrinks to while jobs are far apart */
    YIELD_AFTER_NS = 20000     /* of spinning, we offer the CPU to others */
};

struct lane {
    _Alignas(CACHE_LINE) _Atomic uint64_t word; /* job number: 48 bits, next piece: 8, end: 8 */
    _Atomic int parked;
    pthread_mutex_t mutex; /* held around `parked` going up and the signal that ends it */
    pthread_cond_t wake;
    pthread_t thread;
};

static struct pool {
    _Atomic int threads; /* wanted, the caller included; 0: not yet decided */
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
    _Alignas(CACHE_LINE) _Atomic int64_t remaining; /* pieces not yet reported done */
    struct lane lanes[PB_MAX_THREADS];              /* lane 0 is the caller's */
} pool;

static _Thread_local int inside_task;

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
static int take(struct lane *lane, uint64_t job, int from_back, int *first)
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
    uint64_t job;
    int self, step;      /* its lane, and which one it takes from: the step-th after its own */
    int first, count;    /* pieces of that lane which it took last */
    int64_t done;        /* all pieces that it has taken */
};

static int take_more(struct hold *hold)
{
    struct lane *lane = &pool.lanes[hold->step == 0 ? hold->self : (hold->self + hold->step) % pool.lanes_used];
    hold->count = take(lane, hold->job, hold->step > 0, &hold->first);
    hold->done += hold->count;
    return hold->count > 0;
}

static int32_t next_of_job(pb_share *share, int64_t range[2])
{
    struct hold *hold = (struct hold *)share;
    while (hold->count == 0 && !take_more(hold))
        if (++hold->step >= pool.lanes_used)
            return 0;
    int64_t first = cut(pool.pieces, pool.lanes_used, (hold->self + hold->step) % pool.lanes_used) + hold->first;
    range[0] = cut(pool.count, pool.pieces, first);
    range[1] = cut(pool.count, pool.pieces, first + hold->count);
    hold->count = 0;
    return 1;
}

/* Enters a job through its own lane, then helps with the others. A piece not yet reported keeps the job in place. */
static void take_part(int self, uint64_t job)
{
    struct hold hold = {.share = {next_of_job}, .job = job, .self = self};
    if (!take_more(&hold))
        return;
    pb_set_float_mode(pool.float_mode);
    pool.work(pool.closure, &hold.share);
    atomic_fetch_sub_explicit(&pool.remaining, hold.done, memory_order_acq_rel);
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

static int spin_until_work(struct lane *self, int64_t limit_ns)
{
    int64_t start = pb_now_ns(), spent = 0;
    while (spent < limit_ns && !atomic_load_explicit(&pool.stop, memory_order_relaxed)) {
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
static void park_until_woken(struct lane *self)
{
    pthread_mutex_lock(&self->mutex);
    atomic_store(&self->parked, 1);
    if (!has_piece(atomic_load(&self->word)) && !atomic_load(&pool.stop)) {
        while (atomic_load(&self->parked))
            pthread_cond_wait(&self->wake, &self->mutex);
    }
    atomic_store(&self->parked, 0);
    pthread_mutex_unlock(&self->mutex);
}

static void wake_if_parked(struct lane *lane)
{
    if (!atomic_load(&lane->parked))
        return;
    pthread_mutex_lock(&lane->mutex);
    atomic_store(&lane->parked, 0);
    pthread_cond_signal(&lane->wake);
    pthread_mutex_unlock(&lane->mutex);
}

static void wait_until_done(void)
{
    int64_t start = 0;
    while (atomic_load_explicit(&pool.remaining, memory_order_acquire) != 0) {
        for (int i = 0; i < PAUSES_PER_LOOK && atomic_load_explicit(&pool.remaining, memory_order_acquire) != 0; i++)
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
    struct lane *self = argument;
    int64_t spin_ns = LONGEST_SPIN_NS;
    inside_task = 1;
    while (!atomic_load(&pool.stop)) {
        if (!spin_until_work(self, spin_ns)) {
            int64_t start = pb_now_ns() - spin_ns;
            park_until_woken(self);
            spin_ns = adapted_spin(spin_ns, pb_now_ns() - start);
        }
        take_part((int)(self - pool.lanes), job_of(atomic_load_explicit(&self->word, memory_order_acquire)));
    }
    return NULL;
}

/* ---- the team ------------------------------------------------------------------------------------------------ */

static int try_hold_pool(void)
{
    return !atomic_load_explicit(&pool.busy, memory_order_relaxed) &&
           !atomic_exchange_explicit(&pool.busy, 1, memory_order_acquire);
}

static void release_pool(void)
{
    atomic_store_explicit(&pool.busy, 0, memory_order_release);
}

/* In a fork's child no worker exists, and the pool may have been caught in any state. */
static void reset_after_fork(void)
{
    pool.workers = 0;
    atomic_store(&pool.remaining, 0);
    atomic_store(&pool.stop, 0);
    release_pool();
}

/* When the library is loaded: a fork may come while the first job is being prepared. */
__attribute__((constructor)) static void register_fork_handler(void)
{
    pthread_atfork(NULL, NULL, reset_after_fork);
}

static int start_worker(struct lane *lane)
{
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

/* Fewer workers than wanted, when the system refuses a thread, only make jobs slower. Signals other than
 * faults stay with the host's threads. */
static void start_workers(int wanted)
{
    if (pool.workers >= wanted)
        return;
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    while (pool.workers < wanted && start_worker(&pool.lanes[pool.workers + 1]))
        pool.workers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void stop_workers(void)
{
    atomic_store(&pool.stop, 1);
    for (int i = 1; i <= pool.workers; i++) {
        struct lane *lane = &pool.lanes[i];
        wake_if_parked(lane);
        pthread_join(lane->thread, NULL);
        pthread_cond_destroy(&lane->wake);
        pthread_mutex_destroy(&lane->mutex);
    }
    pool.workers = 0;
    atomic_store(&pool.stop, 0);
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
    int threads = atomic_load_explicit(&pool.threads, memory_order_relaxed);
    if (threads == 0) {
        int undecided = 0;
        threads = pb_usable_cpus();
        threads_from_environment(&threads);
        if (!atomic_compare_exchange_strong(&pool.threads, &undecided, threads))
            threads = undecided; /* another thread set it meanwhile */
    }
    return threads;
}

/* Stops the workers between two jobs; the next job starts as many as it wants. */
static pb_status end_workers(int threads_of_next_job)
{
    if (inside_task)
        return pb_fail(PB_ERROR_STATE, "the thread pool can't be changed from inside one of its tasks");
    while (!try_hold_pool())
        sched_yield();
    stop_workers();
    atomic_store(&pool.threads, threads_of_next_job);
    release_pool();
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

/* ---- a job --------------------------------------------------------------------------------------------------- */

static void publish(pb_work work, void *closure, int64_t count)
{
    int64_t threads = pool.workers + 1;
    int64_t pieces = count < threads * PIECES_PER_THREAD ? count : threads * PIECES_PER_THREAD;
    pool.job = (pool.job + 1) & (UINT64_MAX >> 16);
    pool.work = work;
    pool.closure = closure;
    pool.count = count;
    pool.pieces = pieces;
    pool.float_mode = pb_float_mode();
    pool.lanes_used = (int)(pieces < threads ? pieces : threads);
    atomic_store_explicit(&pool.remaining, pieces, memory_order_relaxed);
    for (int i = 0; i < pool.lanes_used; i++) {
        int64_t own = cut(pieces, pool.lanes_used, i + 1) - cut(pieces, pool.lanes_used, i);
        atomic_store(&pool.lanes[i].word, make_word(pool.job, own));
    }
    for (int i = 1; i < pool.lanes_used; i++)
        wake_if_parked(&pool.lanes[i]);
}

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

void pb_parallel_share(pb_work work, void *closure, int64_t count)
{
    if (count <= 0)
        return;
    if (count == 1 || pb_get_num_threads() == 1 || inside_task || !try_hold_pool()) {
        struct whole whole = {{next_of_whole}, count};
        work(closure, &whole.share);
        return;
    }
    start_workers(pb_get_num_threads() - 1);
    inside_task = 1;
    publish(work, closure, count);
    take_part(0, pool.job);
    wait_until_done();
    inside_task = 0;
    release_pool();
}

struct ranges {
    pb_task task;
    void *closure;
};

static void do_ranges(void *closure, pb_share *share)
{
    const struct ranges *ranges = closure;
    for (int64_t range[2]; share->next(share, range);)
        ranges->task(ranges->closure, range[0], range[1]);
}

void pb_parallel_for(pb_task task, void *closure, int64_t count)
{
    struct ranges ranges = {task, closure};
    pb_parallel_share(do_ranges, &ranges, count);
}
