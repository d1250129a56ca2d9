/* The runtime of an exported library at work, with and without threads: exit status 0 when all is well. */
#ifndef PB_NO_THREADS
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>

/* A system that refuses all threads after some. */
static int threads_left = 1000;

static int create_some(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    return threads_left-- > 0 ? pthread_create(thread, attributes, run, argument) : EAGAIN;
}
#define pthread_create create_some
#endif

#include "exported.c"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

#ifndef PB_NO_HEAP
#include "check_heap.h"
#endif

enum { ITEMS = 100 };

struct counts {
    int visits[ITEMS];
    int calls; /* of the task, or of the work */
};

static void visit(void *closure, int64_t begin, int64_t end)
{
    struct counts *counts = closure;
    __atomic_fetch_add(&counts->calls, 1, __ATOMIC_RELAXED);
    for (int64_t i = begin; i < end; i++)
        counts->visits[i]++;
}

static void visit_share(void *closure, pb_share *share)
{
    struct counts *counts = closure;
    __atomic_fetch_add(&counts->calls, 1, __ATOMIC_RELAXED);
    for (int64_t range[2]; share->next(share, range);)
        for (int64_t i = range[0]; i < range[1]; i++)
            counts->visits[i]++;
}

/* Jobs of all sizes, each in one call if there is one thread. */
static void check_jobs(const pb_runtime *runtime, int is_alone)
{
    CHECK(runtime->abi == PB_ABI);
    for (int64_t count = -1; count <= ITEMS; count++) {
        struct counts tasks = {{0}, 0}, shares = {{0}, 0};
        runtime->parallel_for(runtime, visit, &tasks, count);
        runtime->parallel_share(runtime, visit_share, &shares, count);
        for (int i = 0; i < ITEMS; i++)
            CHECK(tasks.visits[i] == (i < count) && shares.visits[i] == (i < count));
        CHECK(!is_alone || (tasks.calls == (count > 0) && shares.calls == (count > 0)));
    }
}

static void test_a_pool(int threads)
{
    static _Alignas(PB_ALIGNMENT) unsigned char memory[4096];
    struct pb_pool *pool = (struct pb_pool *)memory;
    CHECK(pb_pool_bytes(threads) > 0 && pb_pool_bytes(threads) <= sizeof memory);
    CHECK(pb_pool_init(pool, threads) == PB_OK);
    check_jobs(pb_pool_runtime(pool), 1);
#ifdef PB_NO_HEAP
    CHECK(pb_pool_runtime(pool)->grow == NULL && pb_pool_runtime(pool)->shrink == NULL);
#else
    check_heap(pb_pool_runtime(pool));
#endif
#ifndef PB_NO_THREADS
    for (int granted = 0; granted < threads - 1; granted++) {
        threads_left = granted;
        CHECK(pb_pool_start(pool) == PB_ERROR_MEMORY);
        check_jobs(pb_pool_runtime(pool), 1);
    }
    threads_left = threads - 1;
#endif
    CHECK(pb_pool_start(pool) == PB_OK);
    check_jobs(pb_pool_runtime(pool), threads == 1);
    pb_pool_close(pool);
    check_jobs(pb_pool_runtime(pool), 1);
}

#ifdef PB_NO_THREADS
static void test_that_there_are_no_threads(void)
{
    static _Alignas(PB_ALIGNMENT) struct pb_pool pool;
    CHECK(pb_pool_bytes(1) == sizeof(pb_runtime) && pb_pool_bytes(2) == 0);
    CHECK(pb_pool_init(&pool, 2) == PB_ERROR_ARGUMENT);
    CHECK(pb_now_ns() == 0);
}
#endif

static void test_conversions(void)
{
    static const int64_t shape = 3, stride = sizeof(double);
    double source[2][3] = {{1.5, -2, 3}, {4, 1e300, 1e300}};
    float batch[2][3];
    int32_t whole[2][3];
    pb_misfit misfit = {-1, -1, -1};
    pb_column column = {.source = source, .batch = batch, .elements = 3, .row_stride = 3 * sizeof(double),
                        .shape = &shape, .strides = &stride, .rank = 1, .source_dtype = PB_FLOAT64,
                        .dtype = PB_FLOAT32};
    CHECK(pb_copy_rows(&column, 0, 1, &misfit) == PB_OK);
    CHECK(batch[0][0] == 1.5f && batch[0][1] == -2 && batch[0][2] == 3 && misfit.row == -1);
    CHECK(pb_copy_rows(&column, 0, 2, &misfit) == PB_ERROR_VALUE);
    CHECK(misfit.column == 0 && misfit.row == 1 && misfit.element == 1);
    column.batch = whole, column.dtype = PB_INT32;
    CHECK(pb_copy_rows(&column, 0, 1, &misfit) == PB_ERROR_VALUE);
    CHECK(misfit.row == 0 && misfit.element == 0);
    column.dtype = PB_DTYPES;
    CHECK(pb_copy_rows(&column, 0, 1, &misfit) == PB_ERROR_ARGUMENT);
    CHECK(pb_always_fits(PB_FLOAT32, PB_FLOAT64) && !pb_always_fits(PB_FLOAT64, PB_FLOAT32));
}

int main(void)
{
    test_a_pool(1);
#ifdef PB_NO_THREADS
    test_that_there_are_no_threads();
#else
    test_a_pool(4);
    CHECK(pb_now_ns() > 0);
#endif
    test_conversions();
    puts("exported runtime: all tests passed");
    return 0;
}
