/* MPI: messages by whatever MPI library there is. Its functions and handles come in a pb_mpi, so no mpi.h is needed and
 * nothing is linked: MPICH's handles are ints, those of the standard ABI and of Open MPI addresses. All of them fit in
 * an address, whose lower half is what a function gets that takes an int. */
#include "ranks.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NEWS_TAG = 16384,  /* above those of collectives */
    NEWS_PATIENCE = 8, /* tests in vain until somebody may have told something */
    MOST_ERROR_BYTES = 2048, /* MPI_MAX_ERROR_STRING is 1024 at the most */
};

static const int64_t FAREWELL = 100000000; /* nanoseconds for a last message */

struct mpi {
    pb_transport transport;
    pb_mpi call;
    int patience;
    pb_news told;
};

static struct mpi *mpi_of(pb_transport *transport)
{
    return (struct mpi *)transport;
}

static pb_status checked(const pb_mpi *call, int code, const char *function)
{
    char text[MOST_ERROR_BYTES] = "";
    int length = 0;
    if (code == 0)
        return PB_OK;
    if (call->error_string(code, text, &length) != 0)
        snprintf(text, sizeof text, "error %d", code);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\n')
            *c = ' ';
    return pb_fail(PB_ERROR_STATE, "%s failed: %s", function, text);
}

static pb_status mpi_send(pb_transport *transport, int peer, int tag, char *bytes, size_t count, pb_request *request)
{
    const pb_mpi *call = &mpi_of(transport)->call;
    request->mpi = NULL; /* an int is written to half of it */
    int code = call->isend(bytes, (int)count, call->byte, peer, tag, call->communicator, &request->mpi);
    return checked(call, code, "MPI_Isend");
}

static pb_status mpi_receive(pb_transport *transport, int peer, int tag, char *bytes, size_t count, pb_request *request)
{
    const pb_mpi *call = &mpi_of(transport)->call;
    request->mpi = NULL;
    int code = call->irecv(bytes, (int)count, call->byte, peer, tag, call->communicator, &request->mpi);
    return checked(call, code, "MPI_Irecv");
}

static pb_status mpi_test(pb_transport *transport, pb_request *request, int *done)
{
    const pb_mpi *call = &mpi_of(transport)->call;
    pb_status status = checked(call, call->test(&request->mpi, done, call->no_status), "MPI_Test");
    if (status != PB_OK)
        request->mpi = NULL; /* an error ends it */
    return status;
}

/* What is received ends at once. What is sent goes on: MPI has copied it, or the ranks end anyway. */
static void mpi_cancel(pb_transport *transport, pb_request *request)
{
    const pb_mpi *call = &mpi_of(transport)->call;
    int64_t begin = pb_now_ns();
    if (request->mpi == NULL)
        return;
    int done = call->cancel(&request->mpi) != 0;
    while (!done && pb_now_ns() - begin < FAREWELL && call->test(&request->mpi, &done, call->no_status) == 0)
        sched_yield();
}

static void mpi_tell(pb_transport *transport, const pb_news *news)
{
    struct mpi *mpi = mpi_of(transport);
    int64_t begin = pb_now_ns();
    pb_request *requests = calloc((size_t)transport->size, sizeof *requests);
    if (requests == NULL)
        return;
    mpi->told = *news;
    for (int p = 0; p < transport->size; p++)
        if (p != transport->rank)
            mpi_send(transport, p, NEWS_TAG, (char *)&mpi->told, sizeof mpi->told, &requests[p]);
    for (int p = 0; p < transport->size; p++) {
        int done = p == transport->rank;
        while (!done && pb_now_ns() - begin < FAREWELL && mpi_test(transport, &requests[p], &done) == PB_OK)
            sched_yield();
    }
    free(requests);
}

static int mpi_hear(pb_transport *transport, pb_news *news)
{
    struct mpi *mpi = mpi_of(transport);
    const pb_mpi *call = &mpi->call;
    int there = 0;
    if (++mpi->patience < NEWS_PATIENCE)
        return 0;
    mpi->patience = 0;
    if (call->iprobe(call->any_source, NEWS_TAG, call->communicator, &there, call->no_status) != 0 || !there)
        return 0;
    if (call->recv(news, sizeof *news, call->byte, call->any_source, NEWS_TAG, call->communicator, call->no_status))
        return 0;
    news->text[sizeof news->text - 1] = '\0';
    return 1;
}

static void mpi_close(pb_transport *transport)
{
    free(transport);
}

pb_status pb_ranks_over_mpi(const pb_mpi *call, pb_ranks **handle)
{
    struct mpi *mpi = calloc(1, sizeof *mpi);
    if (mpi != NULL) {
        mpi->call = *call;
        mpi->transport = (pb_transport){call->rank, call->size, mpi_send, mpi_receive, mpi_test,
                                        mpi_cancel, mpi_tell,   mpi_hear, mpi_close};
    }
    *handle = mpi != NULL ? pb_ranks_over(&mpi->transport) : NULL;
    return *handle != NULL ? PB_OK : pb_fail(PB_ERROR_MEMORY, "out of memory: no rank could be made");
}
