/* How long the thread pool takes to hand out work: jobs back to back, after some work, and after a pause (`make pool`).
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

static void nothing(void *closure, int64_t begin, int64_t end)
{
    (void)closure, (void)begin, (void)end;
}

static void wait_ns(int64_t ns)
{
    for (int64_t start = pb_now_ns(); pb_now_ns() - start < ns;)
        ;
}

static void busy_task(void *closure, int64_t begin, int64_t end)
{
    wait_ns(*(int64_t *)closure * (end - begin));
}

static int ascending(const void *a, const void *b)
{
    return (*(const int64_t *)a > *(const int64_t *)b) - (*(const int64_t *)a < *(const int64_t *)b);
}

/* Medians and 99th percentiles of one job's time, a gap of `gap_ns` of the caller's own work before each. */
static void measure(const char *name, pb_task task, void *closure, int64_t count, int64_t gap_ns)
{
    enum { ROUNDS = 2001 };
    static int64_t times[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        wait_ns(gap_ns);
        int64_t start = pb_now_ns();
        pb_parallel_for(task, closure, count);
        times[i] = pb_now_ns() - start;
    }
    qsort(times, ROUNDS, sizeof *times, ascending);
    printf("%-44s median %8.2f us   99%% %8.2f us\n", name, times[ROUNDS / 2] * 1e-3, times[ROUNDS * 99 / 100] * 1e-3);
}

int main(void)
{
    int64_t two_us = 2000, ten_us = 10000;
    for (int threads = 1; threads <= 2; threads++) {
        pb_set_num_threads(threads);
        printf("%d thread%s\n", threads, threads > 1 ? "s" : "");
        measure("  empty job of 2, back to back", nothing, NULL, 2, 0);
        measure("  empty job of 1000, back to back", nothing, NULL, 1000, 0);
        measure("  empty job of 1000, every 10 us", nothing, NULL, 1000, 10000);
        measure("  empty job of 1000, every 50 us", nothing, NULL, 1000, 50000);
        measure("  empty job of 1000, every 300 us", nothing, NULL, 1000, 300000);
        measure("  2 x 2 us of work, every 10 us", busy_task, &two_us, 2, 10000);
        measure("  8 x 2 us of work, every 10 us", busy_task, &two_us, 8, 10000);
        measure("  2 x 10 us of work, every 10 us", busy_task, &ten_us, 2, 10000);
        measure("  2 x 10 us of work, every 50 us", busy_task, &ten_us, 2, 50000);
        measure("  2 x 10 us of work, every 300 us", busy_task, &ten_us, 2, 300000);
    }
    return 0;
}
