/* Local ranks: threads of one process, which leave each other letters. A letter is a message's address: the receiver
 * copies from where the sender has it. */
#include "ranks.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { POSTED, TAKEN, DONE }; /* states of a letter */

struct box {
    pthread_mutex_t lock;
    pb_letter *first;
};

/* Where they meet. It ends with its last rank. */
struct meeting {
    int size;
    _Atomic int open;
    pthread_mutex_t lock;
    _Atomic int told; /* so many news, of which each rank has at most two: it ended, it failed */
    pb_news *news;
    struct box boxes[];
};

struct local {
    pb_transport transport;
    struct meeting *meeting;
    int heard; /* of the news */
};

static struct meeting *meeting_of(pb_transport *transport)
{
    return ((struct local *)transport)->meeting;
}

static pb_status local_send(pb_transport *transport, int peer, int tag, char *bytes, size_t count, pb_request *request)
{
    struct box *box = &meeting_of(transport)->boxes[peer];
    pb_letter *letter = &request->letter, **last = &box->first;
    letter->next = NULL;
    letter->bytes = bytes;
    letter->count = count;
    letter->peer = transport->rank;
    letter->tag = tag;
    letter->is_sent = 1;
    atomic_store(&letter->state, POSTED);
    pthread_mutex_lock(&box->lock);
    while (*last != NULL)
        last = &(*last)->next;
    *last = letter;
    pthread_mutex_unlock(&box->lock);
    return PB_OK;
}

static pb_status local_receive(pb_transport *transport, int peer, int tag, char *bytes, size_t count,
                               pb_request *request)
{
    pb_letter *letter = &request->letter;
    (void)transport;
    letter->bytes = bytes;
    letter->count = count;
    letter->peer = peer;
    letter->tag = tag;
    letter->is_sent = 0;
    return PB_OK;
}

/* Takes a letter of this sender and tag out of a box; NULL when there is none. */
static pb_letter *take_letter(struct box *box, int peer, int tag)
{
    pthread_mutex_lock(&box->lock);
    pb_letter **link = &box->first;
    while (*link != NULL && ((*link)->peer != peer || (*link)->tag != tag))
        link = &(*link)->next;
    pb_letter *letter = *link;
    if (letter != NULL) {
        *link = letter->next;
        atomic_store(&letter->state, TAKEN);
    }
    pthread_mutex_unlock(&box->lock);
    return letter;
}

static pb_status local_test(pb_transport *transport, pb_request *request, int *done)
{
    pb_letter *own = &request->letter;
    if (own->is_sent) {
        *done = atomic_load_explicit(&own->state, memory_order_acquire) == DONE;
        return PB_OK;
    }
    pb_letter *letter = take_letter(&meeting_of(transport)->boxes[transport->rank], own->peer, own->tag);
    if (letter == NULL) {
        *done = 0;
        return PB_OK;
    }
    size_t sent = letter->count;
    if (sent == own->count)
        memcpy(own->bytes, letter->bytes, sent);
    atomic_store_explicit(&letter->state, DONE, memory_order_release); /* the sender may forget it now */
    *done = 1;
    if (sent == own->count)
        return PB_OK;
    return pb_fail(PB_ERROR_STATE, "rank %d sent %zu bytes where rank %d expects %zu: the ranks run different programs",
                   own->peer, sent, transport->rank, own->count);
}

static void local_cancel(pb_transport *transport, pb_request *request)
{
    struct meeting *meeting = meeting_of(transport);
    pb_letter *letter = &request->letter;
    if (!letter->is_sent)
        return;
    for (int p = 0; p < meeting->size; p++) {
        pthread_mutex_lock(&meeting->boxes[p].lock);
        for (pb_letter **link = &meeting->boxes[p].first; *link != NULL; link = &(*link)->next)
            if (*link == letter) {
                *link = letter->next;
                atomic_store(&letter->state, DONE);
                break;
            }
        pthread_mutex_unlock(&meeting->boxes[p].lock);
    }
    while (atomic_load_explicit(&letter->state, memory_order_acquire) != DONE)
        sched_yield(); /* its receiver is copying it */
}

static void local_tell(pb_transport *transport, const pb_news *news)
{
    struct meeting *meeting = meeting_of(transport);
    pthread_mutex_lock(&meeting->lock);
    int told = atomic_load(&meeting->told);
    if (told < 2 * meeting->size) {
        meeting->news[told] = *news;
        atomic_store_explicit(&meeting->told, told + 1, memory_order_release);
    }
    pthread_mutex_unlock(&meeting->lock);
}

static int local_hear(pb_transport *transport, pb_news *news)
{
    struct local *local = (struct local *)transport;
    if (local->heard == atomic_load_explicit(&local->meeting->told, memory_order_acquire))
        return 0;
    *news = local->meeting->news[local->heard++];
    return 1;
}

static void leave(struct meeting *meeting, int count)
{
    if (atomic_fetch_sub(&meeting->open, count) != count)
        return;
    for (int p = 0; p < meeting->size; p++)
        pthread_mutex_destroy(&meeting->boxes[p].lock);
    pthread_mutex_destroy(&meeting->lock);
    free(meeting->news);
    free(meeting);
}

static void local_close(pb_transport *transport)
{
    struct meeting *meeting = meeting_of(transport);
    free(transport);
    leave(meeting, 1);
}

static pb_ranks *one_of(struct meeting *meeting, int rank)
{
    struct local *local = malloc(sizeof *local);
    if (local == NULL) {
        leave(meeting, 1);
        return NULL;
    }
    local->transport = (pb_transport){rank,         meeting->size, local_send, local_receive, local_test,
                                      local_cancel, local_tell,  local_hear, local_close};
    local->meeting = meeting;
    local->heard = 0;
    return pb_ranks_over(&local->transport);
}

pb_status pb_ranks_local(int32_t size, pb_ranks **handles)
{
    if (size < 1)
        return pb_fail(PB_ERROR_ARGUMENT, "there must be at least 1 rank, not %d", (int)size);
    struct meeting *meeting = calloc(1, sizeof *meeting + (size_t)size * sizeof *meeting->boxes);
    if (meeting != NULL)
        meeting->news = calloc(2 * (size_t)size, sizeof *meeting->news);
    if (meeting == NULL || meeting->news == NULL) {
        free(meeting);
        return pb_fail(PB_ERROR_MEMORY, "out of memory: %d ranks could not be made", (int)size);
    }
    meeting->size = size;
    atomic_store(&meeting->open, size);
    pthread_mutex_init(&meeting->lock, NULL);
    for (int p = 0; p < size; p++)
        pthread_mutex_init(&meeting->boxes[p].lock, NULL);
    for (int p = 0; p < size; p++) {
        handles[p] = one_of(meeting, p);
        if (handles[p] == NULL) {
            leave(meeting, size - p - 1);
            while (p > 0)
                pb_ranks_close(handles[--p]);
            return pb_fail(PB_ERROR_MEMORY, "out of memory: %d ranks could not be made", (int)size);
        }
    }
    return PB_OK;
}
