/* Ranks: collectives that are in progress, in the order in which they were started, and who drives them.
 *
 * Whoever waits does, and while nobody does, a thread, which sleeps when nothing is in progress: one lock, and nobody
 * waits for a message while holding it. Without ranks a process is alone, rank 0 of 1.
 */
#include "ranks.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    RING = 64, /* collectives that are started and not finished: start waits for the oldest, then */
    SLOTS = 2, /* those that exchange messages */
    SPINS = 200,
    YIELDS = 400,
    LONGEST_PAUSE = 50000, /* nanoseconds */
};

static const int64_t TIMEOUT = 600 * (int64_t)1000000000;

struct pb_ranks {
    pb_runtime table;
    pb_transport *transport;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    int has_thread, ending;
    int long_ones;       /* in progress: the thread drives while there are any */
    _Atomic int waiting; /* threads that wait, and so drive themselves */
    int64_t newest;      /* the last ticket given; the first one is 1 */
    int64_t next;        /* the first one whose turn has not come */
    _Atomic int64_t oldest; /* the first one that is not finished */
    int64_t moved_ns;       /* when anything moved last */
    int64_t waited_ns;      /* in start and in wait, of the thread that they belong to */
    pb_flight *flights;     /* of the tickets from `first_flight` on, `room` of them */
    int64_t first_flight, room;
    _Atomic int64_t timeout;
    pb_started ring[RING];
    pb_slot slots[SLOTS];
    int64_t last;           /* the last ticket in which all ranks take part; more may still begin: INT64_MAX */
    pb_news ended;          /* of the rank by which it is the last */
    int has_left;           /* this one has told that it begins nothing more */
    _Atomic int failed;
    char failure[PB_FAILURE_BYTES];
};

/* ---- pauses -------------------------------------------------------------------------------------------------- */

/* A message may come within a microsecond; but cores that wait are others' too. `times`: how often in vain. */
static void pause_a_little(int times)
{
    if (times < SPINS) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    } else if (times < YIELDS) {
        sched_yield();
    } else {
        int64_t pause = (int64_t)(times - YIELDS + 1) * 1000;
        nanosleep(&(struct timespec){0, pause < LONGEST_PAUSE ? pause : LONGEST_PAUSE}, NULL);
    }
}

/* ---- driving, with the lock held ----------------------------------------------------------------------------- */

static pb_started *started_of(pb_ranks *ranks, int64_t ticket)
{
    return &ranks->ring[ticket % RING];
}

static int has_failed(const pb_ranks *ranks)
{
    return atomic_load_explicit(&ranks->failed, memory_order_acquire);
}

/* Nobody touches the arrays of what is in progress, from then on. */
static void give_up(pb_ranks *ranks, const char *failure)
{
    snprintf(ranks->failure, sizeof ranks->failure, "%s", failure);
    for (int64_t t = atomic_load(&ranks->oldest); t < ranks->next; t++)
        if (started_of(ranks, t)->slot != NULL)
            pb_collective_cancel(started_of(ranks, t), ranks->transport);
    ranks->long_ones = 0;
    atomic_store_explicit(&ranks->failed, 1, memory_order_release);
}

static void fail(pb_ranks *ranks, const char *text)
{
    pb_news news = {.last = -1};
    if (has_failed(ranks))
        return;
    snprintf(news.text, sizeof news.text, "rank %d failed: %s", ranks->transport->rank, text);
    give_up(ranks, news.text);
    ranks->transport->tell(ranks->transport, &news);
}

/* What others have told: one that failed takes all of them with it, one that ended only those that wait for it. */
static void hear(pb_ranks *ranks)
{
    pb_news news;
    while (!has_failed(ranks) && ranks->transport->hear(ranks->transport, &news)) {
        if (news.last < 0)
            give_up(ranks, news.text);
        else if (news.last < ranks->last) {
            ranks->last = news.last;
            ranks->ended = news;
        }
    }
    if (!has_failed(ranks) && ranks->newest > ranks->last && atomic_load(&ranks->oldest) <= ranks->newest)
        give_up(ranks, ranks->ended.text);
}

/* Where a collective is recorded; NULL: it is not. */
static pb_flight *flight_of(pb_ranks *ranks, int64_t ticket)
{
    int64_t number = ticket - ranks->first_flight;
    return number >= 0 && number < ranks->room ? &ranks->flights[number] : NULL;
}

static pb_slot *free_slot(pb_ranks *ranks)
{
    for (int i = 0; i < SLOTS; i++)
        if (!ranks->slots[i].taken)
            return &ranks->slots[i];
    return NULL;
}

static void end(pb_ranks *ranks, pb_started *started)
{
    pb_flight *flight = flight_of(ranks, started->ticket);
    if (flight != NULL) {
        flight->sent = started->sent;
        flight->done = pb_now_ns();
    }
    started->slot->taken = 0;
    started->slot = NULL;
    ranks->long_ones -= pb_collective_is_long(started);
}

/* Does what can be done without waiting; returns whether that was anything. */
static int drive(pb_ranks *ranks)
{
    int moved = 0, again = 1;
    while (again && !has_failed(ranks)) {
        pb_slot *slot;
        again = 0;
        while (ranks->next <= ranks->newest && (slot = free_slot(ranks)) != NULL) {
            slot->taken = 1;
            started_of(ranks, ranks->next++)->slot = slot;
        }
        for (int64_t t = atomic_load(&ranks->oldest); t < ranks->next; t++) {
            pb_started *started = started_of(ranks, t);
            if (started->slot == NULL)
                continue;
            if (pb_collective_advance(started, ranks->transport, &moved) != PB_OK) {
                fail(ranks, pb_last_error());
                return 1;
            }
            if (started->phase < 0) {
                end(ranks, started);
                again = 1; /* another one has its turn */
            }
        }
        int64_t oldest = atomic_load(&ranks->oldest);
        while (oldest < ranks->next && started_of(ranks, oldest)->slot == NULL)
            oldest++;
        atomic_store(&ranks->oldest, oldest);
    }
    if (moved)
        ranks->moved_ns = pb_now_ns();
    else
        hear(ranks);
    return moved;
}

static int is_finished(pb_ranks *ranks, int64_t ticket)
{
    return ticket < atomic_load(&ranks->oldest) || (ticket < ranks->next && started_of(ranks, ticket)->slot == NULL);
}

/* Fails when nothing has moved for too long, since somebody began to wait for this one. */
static void look_at_clock(pb_ranks *ranks, int64_t ticket)
{
    int64_t now = pb_now_ns(), *wanted = &started_of(ranks, ticket)->wanted_ns;
    if (*wanted == 0)
        *wanted = now;
    if (now - (ranks->moved_ns > *wanted ? ranks->moved_ns : *wanted) <= atomic_load(&ranks->timeout))
        return;
    char name[PB_FAILURE_BYTES / 2], text[PB_FAILURE_BYTES - 64];
    pb_collective_tell(started_of(ranks, ticket), name, sizeof name);
    snprintf(text, sizeof text, "nothing has come for %lld s: it is in a %s",
             (long long)(atomic_load(&ranks->timeout) / 1000000000), name);
    fail(ranks, text);
}

/* ---- the thread that drives while nobody waits --------------------------------------------------------------- */

static void *drive_in_background(void *argument)
{
    pb_ranks *ranks = argument;
    int times = YIELDS;
    pthread_mutex_lock(&ranks->lock);
    while (!ranks->ending) {
        if (ranks->long_ones == 0) {
            pthread_cond_wait(&ranks->wake, &ranks->lock);
            continue;
        }
        int moved = atomic_load(&ranks->waiting) == 0 && drive(ranks);
        pthread_mutex_unlock(&ranks->lock);
        times = moved ? YIELDS : times + 1;
        pause_a_little(times);
        pthread_mutex_lock(&ranks->lock);
    }
    pthread_mutex_unlock(&ranks->lock);
    return NULL;
}

/* It takes no signals: those are for the program's own threads. Where the system refuses a thread, who waits drives. */
static void wake_thread(pb_ranks *ranks)
{
    if (!ranks->has_thread) {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        ranks->has_thread = pthread_create(&ranks->thread, NULL, drive_in_background, ranks) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_cond_signal(&ranks->wake);
}

/* ---- how long it takes --------------------------------------------------------------------------------------- */

static void count_wait(pb_ranks *ranks, int64_t ticket, int64_t nanoseconds)
{
    pb_flight *flight = flight_of(ranks, ticket);
    ranks->waited_ns += nanoseconds;
    if (flight != NULL)
        flight->waited += nanoseconds;
}

int64_t pb_collectives_waited(const pb_runtime *runtime)
{
    return runtime->ranks == NULL ? 0 : runtime->ranks->waited_ns;
}

int64_t pb_collectives_record(const pb_runtime *runtime, pb_flight *flights, int64_t room)
{
    pb_ranks *ranks = runtime->ranks;
    if (ranks == NULL)
        return 0;
    pthread_mutex_lock(&ranks->lock);
    int64_t count = ranks->newest + 1 - ranks->first_flight;
    ranks->first_flight = ranks->newest + 1;
    ranks->flights = flights;
    ranks->room = flights == NULL ? 0 : room;
    pthread_mutex_unlock(&ranks->lock);
    return count;
}

/* ---- what a table has ---------------------------------------------------------------------------------------- */

int32_t pb_ranks_wait(pb_ranks *ranks, int64_t ticket, int64_t nanoseconds)
{
    int64_t begin = pb_now_ns();
    int done = ticket < atomic_load(&ranks->oldest) || has_failed(ranks), times = 0;
    if (done)
        return 1;
    atomic_fetch_add(&ranks->waiting, 1);
    while (!done) {
        if (pthread_mutex_trylock(&ranks->lock) == 0) {
            int moved = drive(ranks);
            done = is_finished(ranks, ticket);
            if (!done)
                look_at_clock(ranks, ticket);
            pthread_mutex_unlock(&ranks->lock);
            times = moved ? 0 : times;
        }
        done |= ticket < atomic_load(&ranks->oldest) || has_failed(ranks);
        if (!done && pb_now_ns() - begin >= nanoseconds)
            break;
        if (!done)
            pause_a_little(times++);
    }
    atomic_fetch_sub(&ranks->waiting, 1);
    count_wait(ranks, ticket, pb_now_ns() - begin);
    return done;
}

int64_t pb_collective_start(const pb_runtime *runtime, const pb_collective *collective)
{
    pb_ranks *ranks = runtime->ranks;
    if (ranks == NULL) {
        pb_collective_at_once(collective, 0, 1);
        return 0;
    }
    int64_t begin = pb_now_ns(), waited = ranks->waited_ns;
    int size = ranks->transport->size;
    int is_wrong = pb_collective_check(collective, size) != PB_OK;
    if (has_failed(ranks) || (!is_wrong && pb_collective_at_once(collective, ranks->transport->rank, size)))
        return 0;
    while (!is_wrong && atomic_load(&ranks->oldest) + RING <= ranks->newest + 1 && !has_failed(ranks))
        pb_collective_wait(runtime, atomic_load(&ranks->oldest));
    pthread_mutex_lock(&ranks->lock);
    pb_started *started = started_of(ranks, ranks->newest + 1);
    if (is_wrong || pb_collective_copy(started, collective) != PB_OK) {
        fail(ranks, pb_last_error());
        pthread_mutex_unlock(&ranks->lock);
        return 0;
    }
    int64_t ticket = started->ticket = ++ranks->newest;
    started->float_mode = pb_float_mode();
    pb_flight *flight = flight_of(ranks, ticket);
    if (flight != NULL)
        *flight = (pb_flight){.started = begin, .bytes = started->all * pb_dtype_bytes(started->what.dtype),
                              .kind = started->what.kind};
    ranks->long_ones += pb_collective_is_long(started);
    drive(ranks);
    if (ranks->long_ones > 0)
        wake_thread(ranks);
    pthread_mutex_unlock(&ranks->lock);
    count_wait(ranks, ticket, pb_now_ns() - begin - (ranks->waited_ns - waited)); /* less that for older ones */
    return ticket;
}

void pb_collective_wait(const pb_runtime *runtime, int64_t ticket)
{
    if (runtime->ranks != NULL)
        pb_ranks_wait(runtime->ranks, ticket, INT64_MAX);
}

/* ---- handles ------------------------------------------------------------------------------------------------- */

static void free_ranks(pb_ranks *ranks)
{
    for (int i = 0; i < SLOTS; i++)
        pb_slot_free(&ranks->slots[i]);
    for (int i = 0; i < RING; i++)
        pb_free(ranks->ring[i].lists);
    pthread_cond_destroy(&ranks->wake);
    pthread_mutex_destroy(&ranks->lock);
    ranks->transport->close(ranks->transport);
    free(ranks);
}

pb_ranks *pb_ranks_over(pb_transport *transport)
{
    pb_ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks == NULL) {
        transport->close(transport);
        return NULL;
    }
    ranks->transport = transport;
    ranks->table = *pb_runtime_get();
    ranks->table.ranks = ranks;
    ranks->next = ranks->first_flight = 1;
    ranks->last = INT64_MAX;
    atomic_store(&ranks->oldest, 1);
    atomic_store(&ranks->timeout, TIMEOUT);
    pthread_mutex_init(&ranks->lock, NULL);
    pthread_cond_init(&ranks->wake, NULL);
    for (int i = 0; i < SLOTS; i++)
        if (pb_slot_make(&ranks->slots[i], transport->size) != PB_OK) {
            free_ranks(ranks);
            return NULL;
        }
    return ranks;
}

const pb_runtime *pb_ranks_table(const pb_ranks *ranks)
{
    return &ranks->table;
}

int32_t pb_ranks_rank(const pb_ranks *ranks)
{
    return ranks->transport->rank;
}

int32_t pb_ranks_size(const pb_ranks *ranks)
{
    return ranks->transport->size;
}

void pb_ranks_set_timeout(pb_ranks *ranks, int64_t nanoseconds)
{
    atomic_store(&ranks->timeout, nanoseconds);
}

void pb_ranks_fail(pb_ranks *ranks, const char *text)
{
    pthread_mutex_lock(&ranks->lock);
    fail(ranks, text);
    pthread_mutex_unlock(&ranks->lock);
}

void pb_ranks_leave(pb_ranks *ranks)
{
    pb_news news;
    snprintf(news.text, sizeof news.text, "rank %d ended, and others wait for it", ranks->transport->rank);
    pthread_mutex_lock(&ranks->lock);
    news.last = atomic_load(&ranks->oldest) - 1;
    if (!has_failed(ranks) && !ranks->has_left)
        ranks->transport->tell(ranks->transport, &news);
    ranks->has_left = 1;
    pthread_mutex_unlock(&ranks->lock);
}

const char *pb_ranks_failure(const pb_ranks *ranks)
{
    return has_failed(ranks) ? ranks->failure : NULL;
}

void pb_ranks_close(pb_ranks *ranks)
{
    pthread_mutex_lock(&ranks->lock);
    if (!has_failed(ranks))
        give_up(ranks, "the ranks have been closed");
    ranks->ending = 1;
    pthread_cond_signal(&ranks->wake);
    pthread_mutex_unlock(&ranks->lock);
    if (ranks->has_thread)
        pthread_join(ranks->thread, NULL);
    free_ranks(ranks);
}
