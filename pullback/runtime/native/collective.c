/* Collective: one thing that all ranks compute together, as phases of messages, none of which waits.
 *
 * A phase posts messages; when all of them have come and gone, the next one begins. What an array's elements are to a
 * rank, its *share* of them, is a question of the algorithm: the whole, a piece, or a run of all arrays one after the
 * other. All that goes from one rank to another in a phase is one message, without copies where it lies in one piece.
 */
#include "ranks.h"

#include <stdio.h>
#include <string.h>

#ifndef PB_MESSAGE_BYTES
#define PB_MESSAGE_BYTES (1 << 30) /* of the longest message that a transport gets: longer ones go in pieces */
#endif

enum {
    DIRECT_BYTES = 16384, /* up to here few ranks send all to all, and many by a tree */
    DIRECT_RANKS = 8,
    SEQUENCES = 1024,        /* collectives until tags repeat; they stay below 32768, which all MPIs allow */
    KINDS = 8,               /* at least as many as there are */
    MOST_NAMED = 8,          /* ranks, where a message lists those that are waited for */
};

static const char *const kind_names[] = {"reduce",     "reduce_pieces", "gather_pieces", "broadcast",
                                         "all_to_all", "piece",         "rank"};
static const char *const dtype_names[PB_DTYPES] = {
    [PB_BOOL] = "bool",       [PB_INT8] = "int8",       [PB_INT16] = "int16",     [PB_INT32] = "int32",
    [PB_INT64] = "int64",     [PB_UINT8] = "uint8",     [PB_UINT16] = "uint16",   [PB_UINT32] = "uint32",
    [PB_UINT64] = "uint64",   [PB_FLOAT16] = "float16", [PB_FLOAT32] = "float32", [PB_FLOAT64] = "float64",
    [PB_BFLOAT16] = "bfloat16",
};

/* ---- shares -------------------------------------------------------------------------------------------------- */

/* Which of an array's elements belong to a rank. */
enum share {
    WHOLE,  /* all of them to every rank */
    RUNS,   /* of all arrays one after the other, as many to each rank */
    PIECES, /* of each array as many to each rank */
};

struct range {
    int64_t begin, end;
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t parts(int64_t elements, int64_t ranks)
{
    return (elements + ranks - 1) / ranks;
}

static struct range share_of(const pb_started *started, enum share how, int32_t k, int64_t rank, int64_t ranks)
{
    int64_t elements = started->what.elements[k], first = how == RUNS ? started->firsts[k] : 0;
    int64_t length = how == WHOLE ? elements : parts(how == RUNS ? started->all : elements, ranks);
    int64_t begin = (how == WHOLE ? 0 : rank * length) - first, end = begin + length;
    begin = begin < 0 ? 0 : smaller(begin, elements);
    end = end < 0 ? 0 : smaller(end, elements);
    return (struct range){begin, end};
}

/* Arrays, several for each of the collective's, and which elements of them take part. */
struct view {
    const pb_started *started;
    const char *const *arrays;
    int32_t each;
    enum share how;
    int own; /* whether an array has nothing but the rank's own share */
    int ranks;
};

static const char *place(const struct view *v, int32_t k, int32_t j, struct range r)
{
    return v->arrays[k * v->each + j] + (v->own ? 0 : r.begin * pb_dtype_bytes(v->started->what.dtype));
}

/* The bytes of a rank's share; *whole is where they are if they lie in one piece, else NULL. */
static size_t measure(const struct view *v, int rank, char **whole)
{
    size_t bytes = 0;
    int segments = 0;
    for (int32_t k = 0; k < v->started->what.count; k++) {
        struct range r = share_of(v->started, v->how, k, rank, v->ranks);
        if (r.begin == r.end)
            continue;
        *whole = (char *)place(v, k, 0, r); /* the transport reads what is sent, and writes nothing there */
        segments += v->each;
        bytes += (size_t)((r.end - r.begin) * v->each * pb_dtype_bytes(v->started->what.dtype));
    }
    if (segments != 1)
        *whole = NULL;
    return bytes;
}

/* Copies a rank's share between its places and a message. */
static void copy_share(const struct view *v, int rank, char *message, int is_sent)
{
    for (int32_t k = 0; k < v->started->what.count; k++) {
        struct range r = share_of(v->started, v->how, k, rank, v->ranks);
        size_t bytes = (size_t)((r.end - r.begin) * pb_dtype_bytes(v->started->what.dtype));
        for (int32_t j = 0; j < v->each && bytes > 0; j++, message += bytes) {
            char *there = (char *)place(v, k, j, r);
            memcpy(is_sent ? message : there, is_sent ? there : message, bytes);
        }
    }
}

/* ---- memory that is kept ------------------------------------------------------------------------------------- */

static size_t rounded(size_t bytes)
{
    return (bytes + PB_ALIGNMENT - 1) / PB_ALIGNMENT * PB_ALIGNMENT;
}

/* Makes a block at least so large; what was in it is lost. */
static pb_status reserve(void *block, size_t *bytes, size_t wanted)
{
    void **pointer = block;
    if (wanted <= *bytes)
        return PB_OK;
    pb_free(*pointer);
    *bytes = 0;
    *pointer = pb_alloc(wanted);
    if (*pointer == NULL)
        return PB_ERROR_MEMORY;
    *bytes = wanted;
    return PB_OK;
}

/* So much staging memory for a phase; nothing of the phase before is in it any more. */
static pb_status stage(pb_slot *slot, size_t bytes)
{
    return reserve(&slot->staging, &slot->staging_bytes, bytes);
}

pb_status pb_slot_make(pb_slot *slot, int ranks)
{
    *slot = (pb_slot){0};
    slot->transfers = pb_alloc_zeros((size_t)(2 * ranks) * sizeof *slot->transfers);
    slot->incoming = pb_alloc_zeros((size_t)ranks * sizeof *slot->incoming);
    return slot->transfers != NULL && slot->incoming != NULL ? PB_OK : PB_ERROR_MEMORY;
}

void pb_slot_free(pb_slot *slot)
{
    pb_free(slot->staging);
    pb_free(slot->sums);
    pb_free(slot->leaves);
    pb_free(slot->transfers);
    pb_free(slot->incoming);
    *slot = (pb_slot){0};
}

pb_status pb_collective_copy(pb_started *started, const pb_collective *from)
{
    size_t count = (size_t)from->count, given = count * (size_t)from->shards;
    if (reserve(&started->lists, &started->list_bytes, (2 * count + given + count) * sizeof(int64_t)) != PB_OK)
        return PB_ERROR_MEMORY;
    int64_t *elements = started->lists;
    const void **sources = (const void **)(elements + 2 * count);
    void **targets = (void **)(sources + given);
    started->firsts = elements + count;
    started->all = 0;
    for (size_t k = 0; k < count; k++) {
        started->firsts[k] = started->all;
        started->all += elements[k] = from->elements[k];
    }
    memcpy(sources, from->given, given * sizeof *sources);
    memcpy(targets, from->received, count * sizeof *targets);
    started->phase = started->distance = 0;
    started->sent = 0;
    started->slot = NULL;
    started->wanted_ns = 0;
    started->terms = NULL;
    started->terms_each = 1;
    started->what = *from;
    started->what.elements = elements;
    started->what.given = sources;
    started->what.received = targets;
    return PB_OK;
}

/* ---- messages ------------------------------------------------------------------------------------------------ */

/* Where a message goes: to whom something is brought together, or from there. A part of its tag. */
enum { THERE, BACK, WAYS };

static pb_status hand_over(pb_started *started, pb_transport *transport, pb_transfer *transfer)
{
    int number = (int)(started->ticket % SEQUENCES), tag = (number * WAYS + transfer->way) * KINDS + started->what.kind;
    transfer->going = transfer->left < PB_MESSAGE_BYTES ? transfer->left : PB_MESSAGE_BYTES;
    if (transfer->is_sent)
        return transport->send(transport, transfer->peer, tag, transfer->bytes, transfer->going, &transfer->request);
    return transport->receive(transport, transfer->peer, tag, transfer->bytes, transfer->going, &transfer->request);
}

static pb_status post(pb_started *started, pb_transport *transport, pb_transfer message)
{
    if (message.left == 0)
        return PB_OK;
    pb_transfer *transfer = &started->slot->transfers[started->slot->transfer_count++];
    *transfer = message;
    started->sent += message.is_sent ? (int64_t)message.left : 0;
    return hand_over(started, transport, transfer);
}

static pb_status send_to(pb_started *started, pb_transport *transport, int peer, int way, char *bytes, size_t count)
{
    pb_transfer message = {.bytes = bytes, .left = count, .peer = peer, .way = way, .is_sent = 1};
    return post(started, transport, message);
}

static pb_status receive_of(pb_started *started, pb_transport *transport, int peer, int way, char *bytes, size_t count)
{
    return post(started, transport, (pb_transfer){.bytes = bytes, .left = count, .peer = peer, .way = way});
}

/* Whether all messages of the phase have come and gone. */
static pb_status look_at_messages(pb_started *started, pb_transport *transport, int *all, int *moved)
{
    pb_slot *slot = started->slot;
    *all = 1;
    for (int i = 0; i < slot->transfer_count; i++) {
        pb_transfer *transfer = &slot->transfers[i];
        while (!transfer->done) {
            int arrived = 0;
            if (transport->test(transport, &transfer->request, &arrived) != PB_OK)
                return PB_ERROR_STATE;
            if (!arrived)
                break;
            *moved = 1;
            transfer->bytes += transfer->going;
            transfer->left -= transfer->going;
            transfer->done = transfer->left == 0;
            if (!transfer->done && hand_over(started, transport, transfer) != PB_OK)
                return PB_ERROR_STATE;
        }
        *all &= transfer->done;
    }
    return PB_OK;
}

void pb_collective_cancel(pb_started *started, pb_transport *transport)
{
    for (int i = 0; i < started->slot->transfer_count; i++)
        if (!started->slot->transfers[i].done)
            transport->cancel(transport, &started->slot->transfers[i].request);
    started->slot->transfer_count = 0;
}

/* What ranks swap in a phase. */
struct swap {
    struct view sent;
    const struct view *received; /* where what comes belongs; NULL: it stays in the staging memory */
    int same; /* everybody gets this rank's share, and gives theirs; else each gets its own, and gives this rank's */
    int way;
};

/* The bytes that come from a rank; *whole is where they belong if that is one piece, else NULL. */
static size_t measure_incoming(const struct swap *s, int rank, int me, char **whole)
{
    if (s->received != NULL)
        return measure(s->received, rank, whole);
    size_t bytes = measure(&s->sent, me, whole);
    *whole = NULL;
    return bytes;
}

static pb_status exchange(pb_started *started, pb_transport *transport, struct swap s)
{
    pb_slot *slot = started->slot;
    int me = transport->rank, ranks = transport->size;
    size_t bytes = 0, at = 0, message;
    char *whole, *for_all = NULL;
    for (int i = 1; i < ranks; i++) {
        int p = (me + i) % ranks;
        message = measure_incoming(&s, p, me, &whole);
        bytes += whole == NULL ? rounded(message) : 0;
        message = measure(&s.sent, s.same ? me : p, &whole);
        bytes += whole == NULL && (i == 1 || !s.same) ? rounded(message) : 0;
    }
    if (stage(slot, bytes) != PB_OK)
        return PB_ERROR_MEMORY;
    memset(slot->incoming, 0, (size_t)ranks * sizeof *slot->incoming);
    for (int i = 1; i < ranks; i++) {
        int p = (me + i) % ranks;
        message = measure_incoming(&s, p, me, &whole);
        if (whole == NULL && message > 0) {
            slot->incoming[p] = whole = slot->staging + at;
            at += rounded(message);
        }
        if (receive_of(started, transport, p, s.way, whole, message) != PB_OK)
            return PB_ERROR_STATE;
    }
    for (int i = 1; i < ranks; i++) { /* each begins with another one */
        int p = (me + i) % ranks;
        message = measure(&s.sent, s.same ? me : p, &whole);
        if (whole == NULL)
            whole = for_all;
        if (whole == NULL && message > 0) {
            whole = slot->staging + at;
            copy_share(&s.sent, s.same ? me : p, whole, 1);
            at += rounded(message);
            for_all = s.same ? whole : NULL;
        }
        if (send_to(started, transport, p, s.way, whole, message) != PB_OK)
            return PB_ERROR_STATE;
    }
    return PB_OK;
}

/* What was staged goes to its place. */
static void unpack(pb_started *started, const struct view *received)
{
    for (int p = 0; p < received->ranks; p++)
        if (started->slot->incoming[p] != NULL)
            copy_share(received, p, started->slot->incoming[p], 0);
}

/* ---- sums ---------------------------------------------------------------------------------------------------- */

/* A reduction has ranks · shards leaves, those of a rank side by side. As many of these as are a power of 2 and divide
 * the shards are a subtree, whose sum is sent in their place. */
static pb_status add_shards(pb_started *started)
{
    pb_slot *slot = started->slot;
    pb_collective *what = &started->what;
    int32_t group = what->shards & -what->shards, each = what->shards / group;
    int64_t size = pb_dtype_bytes(what->dtype);
    started->terms = (const char *const *)what->given;
    started->terms_each = each;
    if (group == 1)
        return PB_OK;
    size_t list = rounded((size_t)what->count * (size_t)each * sizeof(char *)), bytes = list;
    for (int32_t k = 0; k < what->count; k++)
        bytes += (size_t)each * rounded((size_t)(what->elements[k] * size));
    if (reserve(&slot->sums, &slot->sum_bytes, bytes) != PB_OK)
        return PB_ERROR_MEMORY;
    char **sums = (char **)slot->sums, *next = slot->sums + list;
    for (int32_t k = 0; k < what->count; k++)
        for (int32_t j = 0; j < each; j++) {
            const char *const *shards = (const char *const *)what->given + k * what->shards + j * group;
            sums[k * each + j] = next;
            pb_combine(what->dtype, what->reduction, shards, group, next, what->elements[k]);
            next += rounded((size_t)(what->elements[k] * size));
        }
    started->terms = (const char *const *)sums;
    return PB_OK;
}

/* Adds up this rank's share of all leaves: its own, and those that came. */
static pb_status add_up(pb_started *started, enum share how, int me, int ranks)
{
    pb_slot *slot = started->slot;
    const pb_collective *what = &started->what;
    int64_t size = pb_dtype_bytes(what->dtype), each = started->terms_each, leaves = ranks * each;
    size_t at = 0;
    if (reserve(&slot->leaves, &slot->leaf_bytes, (size_t)leaves * sizeof(char *)) != PB_OK)
        return PB_ERROR_MEMORY;
    for (int32_t k = 0; k < what->count; k++) {
        struct range r = share_of(started, how, k, me, ranks);
        size_t bytes = (size_t)((r.end - r.begin) * size);
        char *result = (char *)what->received[k] + (how == PIECES ? 0 : r.begin * size);
        for (int p = 0; p < ranks && bytes > 0; p++)
            for (int64_t j = 0; j < each; j++)
                slot->leaves[p * each + j] = p == me ? started->terms[k * each + j] + r.begin * size
                                                     : slot->incoming[p] + at + (size_t)j * bytes;
        if (bytes > 0)
            pb_combine(what->dtype, what->reduction, slot->leaves, leaves, result, r.end - r.begin);
        if (how == PIECES)
            memset(result + bytes, 0, (size_t)(parts(what->elements[k], ranks) * size) - bytes);
        at += (size_t)each * bytes;
    }
    return PB_OK;
}

/* ---- algorithms ---------------------------------------------------------------------------------------------- */

/* Each does what follows when the messages of the phase before have come and gone, and returns its next phase. */
enum { FINISHED = -1, FAILED = -2 };

static int then(pb_status status, int phase)
{
    return status == PB_OK ? phase : FAILED;
}

static struct view terms_of(const pb_started *started, enum share how, int ranks)
{
    return (struct view){started, started->terms, started->terms_each, how, 0, ranks};
}

static struct view given_of(const pb_started *started, enum share how, int own, int ranks)
{
    return (struct view){started, (const char *const *)started->what.given, 1, how, own, ranks};
}

static struct view results_of(const pb_started *started, enum share how, int ranks)
{
    return (struct view){started, (const char *const *)started->what.received, 1, how, 0, ranks};
}

/* Few elements and ranks: all send all to all. */
static int reduce_directly(pb_started *started, pb_transport *transport)
{
    int me = transport->rank, ranks = transport->size;
    if (started->phase == 0)
        return then(exchange(started, transport, (struct swap){terms_of(started, WHOLE, ranks), NULL, 1, THERE}), 1);
    return then(add_up(started, WHOLE, me, ranks), FINISHED);
}

/* Each rank adds up a part, and gives it to all. */
static int reduce_by_parts(pb_started *started, pb_transport *transport)
{
    int me = transport->rank, ranks = transport->size;
    struct view results = results_of(started, RUNS, ranks);
    if (started->phase == 0)
        return then(exchange(started, transport, (struct swap){terms_of(started, RUNS, ranks), NULL, 0, THERE}), 1);
    if (started->phase == 1) {
        if (add_up(started, RUNS, me, ranks) != PB_OK)
            return FAILED;
        return then(exchange(started, transport, (struct swap){results, &results, 1, BACK}), 2);
    }
    unpack(started, &results);
    return FINISHED;
}

static int reduce_to_pieces(pb_started *started, pb_transport *transport)
{
    int me = transport->rank, ranks = transport->size;
    if (started->phase == 0)
        return then(exchange(started, transport, (struct swap){terms_of(started, PIECES, ranks), NULL, 0, THERE}), 1);
    return then(add_up(started, PIECES, me, ranks), FINISHED);
}

/* Pieces of this rank to all, or the piece of each rank to that one: its own it copies. */
static int move_pieces(pb_started *started, pb_transport *transport)
{
    int me = transport->rank, ranks = transport->size, is_gather = started->what.kind == PB_GATHER_PIECES;
    struct view given = given_of(started, PIECES, is_gather, ranks), results = results_of(started, PIECES, ranks);
    if (started->phase == 0)
        return then(exchange(started, transport, (struct swap){given, &results, is_gather, THERE}), 1);
    unpack(started, &results);
    for (int32_t k = 0; k < started->what.count; k++) {
        struct range r = share_of(started, PIECES, k, me, ranks);
        if (r.begin < r.end)
            memcpy((char *)place(&results, k, 0, r), place(&given, k, 0, r),
                   (size_t)((r.end - r.begin) * pb_dtype_bytes(started->what.dtype)));
    }
    return FINISHED;
}

/* ---- trees --------------------------------------------------------------------------------------------------- */

/* From its root on, rank number v is below v less its lowest bit, and above v + 1, v + 2, v + 4 … up to that bit. */
static pb_status send_down(pb_started *started, pb_transport *transport, int root, int way, char *message, size_t bytes)
{
    int ranks = transport->size, number = (transport->rank - root + ranks) % ranks, distance = 1;
    while (distance < ranks && (number & distance) == 0)
        distance *= 2;
    for (distance /= 2; distance > 0; distance /= 2)
        if (number + distance < ranks &&
            send_to(started, transport, (transport->rank + distance) % ranks, way, message, bytes) != PB_OK)
            return PB_ERROR_STATE;
    return PB_OK;
}

static pb_status receive_from_above(pb_started *started, pb_transport *transport, int root, int way, char *message,
                                    size_t bytes)
{
    int ranks = transport->size, number = (transport->rank - root + ranks) % ranks, above = number & (number - 1);
    return number == 0 ? PB_OK : receive_of(started, transport, (above + root) % ranks, way, message, bytes);
}

static int broadcast(pb_started *started, pb_transport *transport)
{
    int root = started->what.root, is_root = transport->rank == root;
    struct view results = results_of(started, WHOLE, transport->size);
    char *message;
    size_t bytes = measure(&results, 0, &message);
    int is_staged = message == NULL;
    if (is_staged && stage(started->slot, bytes) != PB_OK)
        return FAILED;
    if (is_staged)
        message = started->slot->staging;
    if (started->phase == 0) {
        for (int32_t k = 0; k < started->what.count && is_root; k++)
            if (started->what.elements[k] > 0 && started->what.received[k] != started->what.given[k])
                memcpy(started->what.received[k], started->what.given[k],
                       (size_t)(started->what.elements[k] * pb_dtype_bytes(started->what.dtype)));
        if (is_root && is_staged && bytes > 0)
            copy_share(&results, 0, message, 1);
        return then(receive_from_above(started, transport, root, THERE, message, bytes), 1);
    }
    if (started->phase == 1)
        return then(send_down(started, transport, root, THERE, message, bytes), 2);
    if (!is_root && is_staged && bytes > 0)
        copy_share(&results, 0, message, 0);
    return FINISHED;
}

/* Few elements and many ranks: a rank adds the sum of its right neighbour, at growing distances, until it is a right
 * one itself, and rank 0 has the whole. Then it goes back. */
static int reduce_by_tree(pb_started *started, pb_transport *transport)
{
    enum { BEGIN, ADD, CLIMB, DESCEND, END };
    const pb_collective *what = &started->what;
    int me = transport->rank, ranks = transport->size;
    struct view terms = terms_of(started, WHOLE, ranks), results = results_of(started, WHOLE, ranks);
    char *whole;
    size_t bytes = measure(&terms, me, &whole), room = rounded(bytes);
    if (stage(started->slot, 3 * room) != PB_OK)
        return FAILED;
    char *sum = started->slot->staging, *other = sum + room, *both = other + room;
    switch (started->phase) {
    case BEGIN:
        copy_share(&terms, me, sum, 1);
        started->distance = 1;
        return CLIMB;
    case ADD:
        pb_combine(what->dtype, what->reduction, (const char *const[]){sum, other}, 2, both, started->all);
        memcpy(sum, both, bytes);
        started->distance *= 2;
        return CLIMB;
    case CLIMB:
        while (started->distance < ranks && (me & started->distance) == 0 && me + started->distance >= ranks)
            started->distance *= 2; /* the last one has no neighbour */
        if (started->distance >= ranks)
            return DESCEND;
        if ((me & started->distance) == 0)
            return then(receive_of(started, transport, me + started->distance, THERE, other, bytes), ADD);
        if (send_to(started, transport, me - started->distance, THERE, sum, bytes) != PB_OK)
            return FAILED;
        return then(receive_from_above(started, transport, 0, BACK, other, bytes), DESCEND);
    case DESCEND:
        if (me != 0)
            memcpy(sum, other, bytes);
        return then(send_down(started, transport, 0, BACK, sum, bytes), END);
    default:
        copy_share(&results, 0, sum, 0);
        return FINISHED;
    }
}

/* ---- all of them --------------------------------------------------------------------------------------------- */

static int next_phase(pb_started *started, pb_transport *transport)
{
    const pb_collective *what = &started->what;
    int is_small = started->all * started->terms_each * pb_dtype_bytes(what->dtype) <= DIRECT_BYTES;
    switch (what->kind) {
    case PB_REDUCE:
        if (is_small && transport->size <= DIRECT_RANKS)
            return reduce_directly(started, transport);
        if (is_small && started->terms_each == 1 && started->all > 0)
            return reduce_by_tree(started, transport);
        return reduce_by_parts(started, transport);
    case PB_REDUCE_PIECES:
        return reduce_to_pieces(started, transport);
    case PB_BROADCAST:
        return broadcast(started, transport);
    default:
        return move_pieces(started, transport);
    }
}

pb_status pb_collective_advance(pb_started *started, pb_transport *transport, int *moved)
{
    uint64_t own_mode = pb_float_mode();
    pb_status status = PB_OK;
    int all = 1;
    pb_set_float_mode(started->float_mode);
    if (started->phase == 0 && started->terms == NULL && started->what.kind <= PB_REDUCE_PIECES)
        status = add_shards(started);
    while (status == PB_OK) {
        status = look_at_messages(started, transport, &all, moved);
        if (status != PB_OK || !all)
            break;
        *moved = 1;
        started->slot->transfer_count = 0;
        started->phase = next_phase(started, transport);
        if (started->phase == FAILED)
            status = PB_ERROR_STATE;
        if (started->phase == FINISHED)
            break;
    }
    pb_set_float_mode(own_mode);
    return status;
}

int pb_collective_is_long(const pb_started *started)
{
    return started->all * pb_dtype_bytes(started->what.dtype) > DIRECT_BYTES;
}

/* What one rank has: the sums of its shards, or what it gives. */
static void copy_alone(const pb_collective *what)
{
    int is_reduction = what->kind == PB_REDUCE || what->kind == PB_REDUCE_PIECES;
    for (int32_t k = 0; k < what->count; k++) {
        const char *const *given = (const char *const *)what->given + k * what->shards;
        if (what->elements[k] == 0 || what->received[k] == given[0])
            continue;
        pb_combine(what->dtype, what->reduction, given, is_reduction ? what->shards : 1, what->received[k],
                   what->elements[k]);
    }
}

int pb_collective_at_once(const pb_collective *what, int rank, int ranks)
{
    int64_t size = pb_dtype_bytes(what->dtype);
    if (what->kind == PB_RANK)
        *(int64_t *)what->received[0] = rank;
    else if (what->kind == PB_PIECE)
        for (int32_t k = 0; k < what->count; k++) {
            int64_t length = parts(what->elements[k], ranks), begin = smaller(rank * length, what->elements[k]);
            size_t bytes = (size_t)(smaller(length, what->elements[k] - begin) * size);
            if (length > 0)
                memcpy(what->received[k], (const char *)what->given[k] + begin * size, bytes);
            if (length > 0)
                memset((char *)what->received[k] + bytes, 0, (size_t)(length * size) - bytes);
        }
    else if (ranks == 1)
        copy_alone(what);
    else
        return 0;
    return 1;
}

pb_status pb_collective_check(const pb_collective *what, int ranks)
{
    if (what->kind < PB_REDUCE || what->kind > PB_RANK || what->reduction < PB_SUM || what->reduction > PB_MAX)
        return pb_fail(PB_ERROR_ARGUMENT, "there is no collective of kind %d and reduction %d", (int)what->kind,
                       (int)what->reduction);
    if (pb_dtype_bytes(what->dtype) == 0)
        return pb_fail(PB_ERROR_ARGUMENT, "there is no dtype %d", (int)what->dtype);
    if (what->shards < 1 || what->count < 0 || what->root < 0 || what->root >= ranks)
        return pb_fail(PB_ERROR_ARGUMENT, "a collective of %d ranks has %d arrays of %d shards and the root %d", ranks,
                       (int)what->count, (int)what->shards, (int)what->root);
    if (what->ranks != 0 && what->ranks != ranks)
        return pb_fail(PB_ERROR_ARGUMENT, "a collective of %d ranks is started by one of %d", (int)what->ranks, ranks);
    return PB_OK;
}

void pb_collective_tell(const pb_started *started, char *text, size_t bytes)
{
    const pb_collective *what = &started->what;
    size_t at = (size_t)snprintf(text, bytes, "%s of %d %s of %s (%lld elements)", kind_names[what->kind],
                                 (int)what->count, what->count == 1 ? "array" : "arrays", dtype_names[what->dtype],
                                 (long long)started->all);
    int named = 0;
    for (int i = 0; started->slot != NULL && i < started->slot->transfer_count; i++) {
        const pb_transfer *transfer = &started->slot->transfers[i];
        int again = transfer->done;
        for (int j = 0; j < i && !again; j++)
            again = !started->slot->transfers[j].done && started->slot->transfers[j].peer == transfer->peer;
        if (again || at >= bytes)
            continue;
        at += (size_t)snprintf(text + at, bytes - at, "%s%d", named == 0 ? ", which waits for rank " : ", ",
                               transfer->peer);
        if (++named == MOST_NAMED)
            break;
    }
}
