/* MPI: messages by whatever MPI library there is. Its functions and handles come in a pb_mpi, so no mpi.h is needed and
 * nothing is linked: MPICH's handles are ints, those of the standard ABI and of Open MPI addresses. All of them fit in
 * an address, whose lower half is what a function gets that takes an int. */
#include "ranks.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    NEWS_TAG = 16384,  /* above those of collectives */
    NEWS_PATIENCE = 8, /* tests in vain until somebody may have told something */
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

static pb_status checked(int code, const char *function)
{
    return code == 0 ? PB_OK : pb_fail(PB_ERROR_STATE, "%s returned the error %d", function, code);
}

static pb_status mpi_send(pb_transport *transport, int peer, int tag, char *bytes, size_t count, pb_request *request)
{
    const pb_mpi *call = &mpi_of(transport)->call;
    request->mpi = NULL; /* an int is written to half of it */
    int code = call->isend(bytes, (int)count, call->byte, peer, tag, call->communicator, &request->mpi);
    return checked(code, "MPI_Isend");
}

static pb_status mpi_receive(pb_transport *transport, int peer, int tag, char *bytes, size_t count, pb_request *request)
{
    const pb_mpi *call = &mpi_of(transport)->call;
    request->mpi = NULL;
    int code = call->irecv(bytes, (int)count, call->byte, peer, tag, call->communicator, &request->mpi);
    return checked(code, "MPI_Irecv");
}

static pb_status mpi_test(pb_transport *transport, pb_request *request, int *done)
{
    const pb_mpi *call = &mpi_of(transport)->call;
    return checked(call->test(&request->mpi, done, call->no_status), "MPI_Test");
}

/* What is received ends at once. What is sent goes on: MPI has copied it, or the ranks end anyway. */
static void mpi_cancel(pb_transport *transport, pb_request *request)
{
    const pb_mpi *call = &mpi_of(transport)->call;
    int64_t begin = pb_now_ns();
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
