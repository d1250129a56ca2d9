/* Ranks: the engine of collectives (ranks.c, collective.c), and what it asks of whoever carries its messages
 * (local_ranks.c, mpi.c). */
#ifndef PULLBACK_RANKS_H
#define PULLBACK_RANKS_H

#include "internal.h"

#include <stdatomic.h>

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

enum { PB_FAILURE_BYTES = 504 };

/* What a rank tells the others when it takes part in nothing more. */
typedef struct pb_news {
    int64_t last; /* the ticket of the last collective in which it takes part; below 0: it failed */
    char text[PB_FAILURE_BYTES];
} pb_news;

/* ---- messages ------------------------------------------------------------------------------------------------ */

/* A message between two ranks of this process: it stays where it is until its receiver has copied it. */
typedef struct pb_letter {
    struct pb_letter *next;
    char *bytes; /* received: where to */
    size_t count;
    int peer, tag, is_sent;
    _Atomic int state;
} pb_letter;

typedef union pb_request {
    void *mpi;
    pb_letter letter;
} pb_request;

/* Carries messages of at most INT_MAX bytes. Those of one sender and tag come in the order in which they were sent. One
 * thread at a time calls a transport. What fails says why by pb_fail. */
typedef struct pb_transport {
    int rank, size;
    pb_status (*send)(struct pb_transport *transport, int peer, int tag, char *bytes, size_t count,
                      pb_request *request);
    pb_status (*receive)(struct pb_transport *transport, int peer, int tag, char *bytes, size_t count,
                         pb_request *request);
    pb_status (*test)(struct pb_transport *transport, pb_request *request, int *done);

    /* Gives up a message: from then on nobody reads or writes its bytes. */
    void (*cancel)(struct pb_transport *transport, pb_request *request);

    /* Tells all other ranks. */
    void (*tell)(struct pb_transport *transport, const pb_news *news);

    /* Whether another one has told something, which *news is then. */
    int (*hear)(struct pb_transport *transport, pb_news *news);

    void (*close)(struct pb_transport *transport);
} pb_transport;

/* ranks.c: ranks by this transport, which they own from then on; NULL, and the transport is closed, when there is no
 * memory. */
struct pb_ranks *pb_ranks_over(pb_transport *transport);

/* ---- sums ---------------------------------------------------------------------------------------------------- */

/* combine.c: `count` arrays of so many elements as one, which is no part of them. */
void pb_combine(int32_t dtype, int32_t reduction, const char *const *leaves, int64_t count, char *result,
                int64_t elements);

/* ---- a collective in progress -------------------------------------------------------------------------------- */

/* A message, in pieces that a transport takes, one after the other. */
typedef struct pb_transfer {
    char *bytes;
    size_t left;  /* bytes that have not arrived */
    size_t going; /* of these, those on their way */
    int peer, way, is_sent, done;
    pb_request request;
} pb_transfer;

/* What a collective in progress needs. It is kept for the next one. */
typedef struct pb_slot {
    int taken;
    int transfer_count;
    pb_transfer *transfers; /* of the phase: to and from each other rank */
    char **incoming;        /* by rank: where in the staging memory its message is; NULL: where it belongs */
    char *staging, *sums;   /* messages, and the sums of shards */
    const char **leaves;    /* of a sum */
    size_t staging_bytes, sum_bytes, leaf_bytes;
} pb_slot;

/* A collective that was started. */
typedef struct pb_started {
    int64_t ticket;
    pb_collective what; /* with lists of its own */
    void *lists;
    size_t list_bytes;
    int64_t *firsts;     /* by array: the elements of all arrays before */
    int64_t all;         /* elements of all arrays */
    int64_t sent;        /* bytes, to other ranks */
    uint64_t float_mode; /* of the thread that started it */
    pb_slot *slot;       /* NULL until its turn comes */
    int64_t wanted_ns;   /* since when somebody waits for it; 0: nobody does */
    int phase;           /* below 0: there is none left */
    int distance;        /* in a tree */
    const char *const *terms; /* of a reduction: what it adds up, `terms_each` for each array */
    int32_t terms_each;
} pb_started;

/* collective.c */
pb_status pb_slot_make(pb_slot *slot, int ranks);
void pb_slot_free(pb_slot *slot);

/* PB_ERROR_ARGUMENT: this is no collective. */
pb_status pb_collective_check(const pb_collective *what, int ranks);

/* Does one that needs no messages; returns whether it is one. */
int pb_collective_at_once(const pb_collective *what, int rank, int ranks);

/* Fills in `what` and what follows from it. */
pb_status pb_collective_copy(pb_started *started, const pb_collective *from);

/* Whether it should go on while nobody waits for it. */
int pb_collective_is_long(const pb_started *started);

/* Does what can be done without waiting; *moved becomes 1 when that is anything. */
pb_status pb_collective_advance(pb_started *started, pb_transport *transport, int *moved);

/* Gives up the messages on their way. */
void pb_collective_cancel(pb_started *started, pb_transport *transport);

/* Its name, and the ranks that it waits for. */
void pb_collective_tell(const pb_started *started, char *text, size_t bytes);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
