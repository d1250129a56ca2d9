/* The C runtime's own test: exit status 0 when all is well. `make sanitize` runs it under ASan, UBSan and TSan. */
#include "thread_pool.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

#include "check_heap.h"

enum { MANY = 1000 };

/* ---- tasks: each counts its visits to an item, so a job that skips or repeats one is seen -------------------- */

static void visit(void *closure, int64_t begin, int64_t end)
{
    int *visits = closure;
    for (int64_t i = begin; i < end; i++)
        visits[i]++;
}

static void check_job(int64_t count)
{
    int visits[MANY] = {0};
    pb_parallel_for(visit, visits, count);
    for (int64_t i = 0; i < MANY; i++)
        CHECK(visits[i] == (i < count));
}

/* A job's items, and how many threads took part. */
struct shared {
    int visits[MANY];
    _Atomic int threads;
};

static void visit_share(void *closure, pb_share *share)
{
    struct shared *shared = closure;
    shared->threads++;
    for (int64_t range[2]; share->next(share, range);)
        visit(shared->visits, range[0], range[1]);
    int64_t range[2];
    CHECK(!share->next(share, range)); /* and nothing more */
}

static void check_shares(int64_t count, int threads)
{
    struct shared shared = {{0}, 0};
    pb_parallel_share(visit_share, &shared, count);
    for (int64_t i = 0; i < MANY; i++)
        CHECK(shared.visits[i] == (i < count));
    CHECK(shared.threads <= threads && (shared.threads >= 1 || count <= 0));
}

static void visit_nested(void *closure, int64_t begin, int64_t end)
{
    int(*visits)[10] = closure;
    CHECK(pb_set_num_threads(2) == PB_ERROR_STATE);
    for (int64_t i = begin; i < end; i++)
        pb_parallel_for(visit, visits[i], 10);
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

static void test_status(void)
{
    CHECK(strcmp(pb_last_error(), "") == 0);
    CHECK(pb_set_num_threads(0) == PB_ERROR_ARGUMENT);
    CHECK(strcmp(pb_last_error(), "the number of threads must be from 1 to 256, got 0") == 0);
    CHECK(pb_set_num_threads(PB_MAX_THREADS + 1) == PB_ERROR_ARGUMENT);
}

static void test_environment(void)
{
    const char *bad[] = {"0", "-1", "two", "3x", "257", "99999999999999999999", "1.5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("PULLBACK_NUM_THREADS", bad[i], 1);
        CHECK(pb_check_environment() == PB_ERROR_ENVIRONMENT);
        CHECK(strstr(pb_last_error(), bad[i]) != NULL);
    }
    setenv("PULLBACK_NUM_THREADS", "", 1);
    CHECK(pb_check_environment() == PB_OK);
    setenv("PULLBACK_NUM_THREADS", " 3 ", 1);
    CHECK(pb_check_environment() == PB_OK);
    CHECK(pb_get_num_threads() == 3); /* the first look decides */
    unsetenv("PULLBACK_NUM_THREADS");
    CHECK(pb_get_num_threads() == 3);
}

/* Writes `text` to a file below a folder, whose parents it makes. */
static void write_file(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *p = path + 1; (p = strchr(p, '/')) != NULL; *p++ = '/') {
        *p = '\0';
        mkdir(path, 0700);
    }
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static int cgroup_cpus(const char *folder)
{
    char membership[300];
    snprintf(membership, sizeof membership, "%s/membership", folder);
    return pb_cgroup_cpus(membership, folder);
}

static void test_control_groups(void)
{
    char folder[] = "/tmp/pullback-test-XXXXXX", command[64];
    CHECK(mkdtemp(folder) != NULL);
    CHECK(cgroup_cpus(folder) == PB_MAX_THREADS); /* no control groups */
    write_file(folder, "membership", "0::/a/b\n");
    CHECK(cgroup_cpus(folder) == PB_MAX_THREADS); /* none of them visible */
    write_file(folder, "a/b/cpu.max", "max 100000\n");
    CHECK(cgroup_cpus(folder) == PB_MAX_THREADS);
    write_file(folder, "a/cpu.max", "350000 100000\n"); /* of a group around ours */
    CHECK(cgroup_cpus(folder) == 4);
    write_file(folder, "a/b/cpu.max", "200000 100000\n");
    CHECK(cgroup_cpus(folder) == 2);
    write_file(folder, "a/b/cpu.max", "1000 100000\n");
    CHECK(cgroup_cpus(folder) == 1);
    write_file(folder, "a/b/cpu.max", "nonsense\n");
    CHECK(cgroup_cpus(folder) == 4);
    write_file(folder, "membership", "0::/the/host/has/it/elsewhere\n");
    write_file(folder, "cpu.max", "600000 100000\n"); /* a container sees its own group as the root */
    CHECK(cgroup_cpus(folder) == 6);
    write_file(folder, "membership", "4:memory:/x\n3:cpu,cpuacct:/x\n2:cpuset:/\n0::/\n");
    write_file(folder, "cpu.max", "max 100000\n");
    write_file(folder, "cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
    write_file(folder, "cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
    CHECK(cgroup_cpus(folder) == PB_MAX_THREADS);
    write_file(folder, "cpu,cpuacct/x/cpu.cfs_quota_us", "150000\n");
    CHECK(cgroup_cpus(folder) == 2);
    write_file(folder, "membership", "garbage\n:\n3:cpu\n");
    CHECK(cgroup_cpus(folder) == PB_MAX_THREADS);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

static void test_memory(void)
{
    int64_t count = pb_allocation_count(), bytes = pb_allocated_bytes();
    char *block = pb_alloc(100), *empty = pb_alloc(0);
    CHECK(block != NULL && (uintptr_t)block % PB_ALIGNMENT == 0);
    CHECK(empty != NULL && empty != block);
    memset(block, 1, 100);
    CHECK(pb_allocation_count() == count + 2);
    CHECK(pb_allocated_bytes() == bytes + 100);
    CHECK(pb_peak_bytes() >= bytes + 100);
    pb_free(block);
    pb_free(empty);
    pb_free(NULL);
    CHECK(pb_allocated_bytes() == bytes);
    CHECK(pb_alloc(SIZE_MAX) == NULL && pb_alloc_zeros(SIZE_MAX) == NULL);
    CHECK(strstr(pb_last_error(), "out of memory") != NULL);
    CHECK(pb_allocated_bytes() == bytes);
}

/* Of this process; -1 where the system does not tell. */
static long resident_pages(void)
{
    long total, resident = -1;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL)
        return -1;
    CHECK(fscanf(file, "%ld %ld", &total, &resident) == 2);
    fclose(file);
    return resident;
}

/* Small and large blocks: the first are malloc's, the others mappings. */
static void test_zeros(void)
{
    static const size_t sizes[] = {0, 1, 100, PB_MAPPED_BYTES - 1, PB_MAPPED_BYTES, PB_MAPPED_BYTES + 7};
    int64_t bytes = pb_allocated_bytes();
    for (int round = 0; round < 2; round++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            unsigned char *used = pb_alloc(sizes[k]);
            CHECK(used != NULL && (uintptr_t)used % PB_ALIGNMENT == 0);
            memset(used, 255, sizes[k]);
            pb_free(used);
            unsigned char *zeros = pb_alloc_zeros(sizes[k]);
            CHECK(zeros != NULL && (uintptr_t)zeros % PB_ALIGNMENT == 0);
            CHECK(pb_allocated_bytes() == bytes + (int64_t)sizes[k]);
            for (size_t i = 0; i < sizes[k]; i++)
                CHECK(zeros[i] == 0);
            pb_free(zeros);
        }
    CHECK(pb_allocated_bytes() == bytes);
}

static void test_zeros_all_at_once(void)
{
    enum { COUNT = 4 };
    const size_t sizes[COUNT] = {PB_MAPPED_BYTES + 7, 0, 100, PB_MAPPED_BYTES}, impossible[COUNT] = {100, PB_MAPPED_BYTES, SIZE_MAX, 100};
    int64_t bytes = pb_allocated_bytes();
    unsigned char *blocks[COUNT];
    CHECK(pb_alloc_all_zeros(COUNT, sizes, (void **)blocks) == PB_OK);
    for (int k = 0; k < COUNT; k++) {
        CHECK((uintptr_t)blocks[k] % PB_ALIGNMENT == 0);
        for (size_t i = 0; i < sizes[k]; i++)
            CHECK(blocks[k][i] == 0);
        memset(blocks[k], k + 1, sizes[k]);
    }
    for (int k = 0; k < COUNT; k++) {
        for (size_t i = 0; i < sizes[k]; i++)
            CHECK(blocks[k][i] == k + 1);
        pb_free(blocks[k]);
    }
    CHECK(pb_alloc_all_zeros(COUNT, impossible, (void **)blocks) == PB_ERROR_MEMORY);
    CHECK(pb_allocated_bytes() == bytes);
    CHECK(pb_alloc_all_zeros(0, NULL, NULL) == PB_OK);
}

static void test_a_large_block_takes_memory_while_it_lives_or_is_kept(void)
{
    enum { SIZE = 320 << 20 };
    pb_keep_at_most(0);
    long before = resident_pages(), pages = SIZE / sysconf(_SC_PAGESIZE);
    for (int is_kept = 0; before >= 0 && is_kept < 2; is_kept++) {
        pb_keep_at_most(SIZE - 1 + is_kept);
        char *block = pb_alloc(SIZE);
        CHECK(block != NULL && resident_pages() - before < pages / 8);
        memset(block, 1, SIZE);
        CHECK(resident_pages() - before > pages / 8 * 7);
        pb_free(block);
        CHECK((resident_pages() - before > pages / 2) == is_kept);
    }
    pb_keep_at_most(0);
    CHECK(before < 0 || resident_pages() - before < pages / 8);
    pb_keep_at_most(SIZE);
}

/* Allocates, fills, checks and frees: no two live blocks share memory, whatever was freed before by whom. */
static void *use_blocks(void *seed)
{
    unsigned random = (unsigned)(uintptr_t)seed;
    uint32_t *blocks[8] = {0};
    size_t lengths[8] = {0};
    for (int i = 0; i < 4000; i++) {
        int k = rand_r(&random) % 8;
        if (blocks[k] != NULL) {
            CHECK(blocks[k][0] == (uint32_t)((uintptr_t)seed * 8 + k) && blocks[k][lengths[k] - 1] == (uint32_t)((uintptr_t)seed * 8 + k));
            pb_free(blocks[k]);
        }
        lengths[k] = (size_t)(4096 << rand_r(&random) % 4);
        blocks[k] = rand_r(&random) % 2 ? pb_alloc(4 * lengths[k]) : pb_alloc_zeros(4 * lengths[k]);
        CHECK(blocks[k] != NULL);
        blocks[k][0] = blocks[k][lengths[k] - 1] = (uint32_t)((uintptr_t)seed * 8 + k);
    }
    for (int k = 0; k < 8; k++)
        pb_free(blocks[k]);
    return NULL;
}

static void test_freed_blocks_are_used_again(void)
{
    enum { SIZE = 1 << 20, BLOCKS = 40 };
    char *blocks[BLOCKS], *first = pb_alloc(SIZE), *second = pb_alloc(SIZE);
    memset(first, 255, SIZE);
    pb_free(first);
    pb_free(second);
    CHECK(pb_alloc(SIZE) == second); /* the last one freed: the likeliest to be in a cache */
    char *zeros = pb_alloc_zeros(SIZE);
    CHECK(zeros == first && zeros[0] == 0 && zeros[SIZE - 1] == 0);
    pb_free(zeros);
    char *other = pb_alloc(SIZE + 1);
    CHECK(other != first && pb_alloc(SIZE) == first);
    pb_free(first);
    pb_free(second);
    pb_free(other);
    for (int k = 0; k < BLOCKS; k++)
        CHECK((blocks[k] = pb_alloc(SIZE)) != NULL);
    for (int k = 0; k < BLOCKS; k++)
        pb_free(blocks[k]);
    pthread_t threads[4];
    for (uintptr_t k = 0; k < 4; k++)
        CHECK(pthread_create(&threads[k], NULL, use_blocks, (void *)(k + 1)) == 0);
    for (int k = 0; k < 4; k++)
        CHECK(pthread_join(threads[k], NULL) == 0);
}

/* A block that fits beside what is used, but not beside what is kept as well, has the kept ones released. */
static void test_kept_blocks_do_not_add_to_the_peak(void)
{
    enum { SIZE = 48 << 20 };
    char *block = pb_alloc(SIZE);
    CHECK(block != NULL);
    memset(block, 1, SIZE);
    pb_free(block);
    long before = resident_pages(), pages = SIZE / sysconf(_SC_PAGESIZE);
    block = pb_alloc(SIZE + PB_ALIGNMENT);
    CHECK(block != NULL);
    memset(block, 1, SIZE);
    CHECK(before < 0 || labs(resident_pages() - before) < pages / 4);
    pb_free(block);
}

static void test_clock(void)
{
    int64_t start = pb_now_ns();
    usleep(2000);
    CHECK(pb_now_ns() - start >= 2000000);
}

static void test_table(void)
{
    const pb_runtime *runtime = pb_runtime_get();
    int visits[3] = {0};
    CHECK(runtime->abi == PB_ABI);
    CHECK(runtime->now_ns() > 0);
    runtime->parallel_for(runtime, visit, visits, 3);
    CHECK(visits[0] == 1 && visits[1] == 1 && visits[2] == 1);
    struct shared shared = {{0}, 0};
    runtime->parallel_share(runtime, visit_share, &shared, 3);
    CHECK(shared.threads >= 1 && shared.visits[0] == 1 && shared.visits[1] == 1 && shared.visits[2] == 1);
    int64_t before = pb_allocated_bytes();
    check_heap(runtime);
    CHECK(pb_allocated_bytes() == before);
}

static void test_jobs(void)
{
    for (int threads = 1; threads <= 5; threads++) {
        CHECK(pb_set_num_threads(threads) == PB_OK);
        CHECK(pb_get_num_threads() == threads);
        for (int64_t count = -1; count <= MANY; count += count < 40 ? 1 : 137) {
            check_job(count);
            check_shares(count, threads);
        }
        for (int i = 0; i < 300; i++) {
            check_job(i % 20);
            if (i % 50 == 0)
                usleep(300); /* long enough for workers to park */
        }
    }
}

static void test_nested_jobs(void)
{
    int visits[20][10] = {{0}};
    CHECK(pb_set_num_threads(3) == PB_OK);
    pb_parallel_for(visit_nested, visits, 20);
    for (int i = 0; i < 20; i++)
        for (int j = 0; j < 10; j++)
            CHECK(visits[i][j] == 1);
}

static void *run_jobs(void *argument)
{
    for (int i = 0; i < 300; i++)
        check_job(50);
    return argument;
}

static void *change_threads(void *argument)
{
    for (int i = 0; i < 30; i++)
        CHECK(pb_set_num_threads(1 + i % 3) == PB_OK);
    return argument;
}

static void test_concurrent_callers(void)
{
    pthread_t threads[3];
    CHECK(pb_set_num_threads(3) == PB_OK);
    pthread_create(&threads[0], NULL, run_jobs, NULL);
    pthread_create(&threads[1], NULL, run_jobs, NULL);
    pthread_create(&threads[2], NULL, change_threads, NULL);
    run_jobs(NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

static void test_shutdown(void)
{
    CHECK(pb_set_num_threads(3) == PB_OK);
    for (int i = 0; i < 20; i++) {
        check_job(10);
        CHECK(pb_shutdown() == PB_OK);
    }
    CHECK(pb_get_num_threads() == 3);
}

static atomic_int keep_running;

static void *run_jobs_while_told(void *argument)
{
    while (atomic_load(&keep_running))
        check_job(50);
    return argument;
}

/* What a fork's child can do: run jobs in a pool of its own. TSan can't follow threads started after a fork. */
static void use_pool_in_child(void)
{
#if defined(__SANITIZE_THREAD__)
    CHECK(pb_set_num_threads(1) == PB_OK);
#endif
    for (int i = 0; i < 20; i++)
        check_job(100);
    CHECK(pb_shutdown() == PB_OK);
}

/* Forks while another thread uses the pool. */
static void test_fork(void)
{
    pthread_t other;
    CHECK(pb_set_num_threads(3) == PB_OK);
    check_job(100);
    atomic_store(&keep_running, 1);
    pthread_create(&other, NULL, run_jobs_while_told, NULL);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            use_pool_in_child();
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        check_job(100);
    }
    atomic_store(&keep_running, 0);
    pthread_join(other, NULL);
}

#include "test_epoch.c"
#include "test_flights.c"
#include "test_pools.c"
#include "test_ranks.c"

int main(void)
{
    test_status();
    test_environment();
    test_control_groups();
    test_memory();
    test_zeros();
    test_zeros_all_at_once();
    test_kept_blocks_do_not_add_to_the_peak(); /* while the peak is small */
    test_a_large_block_takes_memory_while_it_lives_or_is_kept();
    test_freed_blocks_are_used_again();
    test_clock();
    test_table();
    test_jobs();
    test_nested_jobs();
    test_concurrent_callers();
    test_shutdown();
    test_epoch();
    test_epochs_that_make_no_sense();
    test_values_that_do_not_fit();
    test_all_conversions();
    test_a_ring();
    test_an_epoch_of_sums();
    test_an_epoch_until();
    test_concurrent_epochs();
    test_a_pool_that_cannot_be_made();
    test_a_pool_of_one_thread();
    test_a_pool_is_closed_and_started_again();
    test_two_pools_at_once();
    test_a_job_of_one_pool_inside_another();
    test_ranks();
    test_recorded_collectives();
    test_a_process_alone_records_nothing();
#ifndef EMULATED /* qemu-user 7.2 does not survive the fork of a process with threads */
    test_fork();
#endif
    CHECK(pb_shutdown() == PB_OK);
    CHECK(pb_allocated_bytes() == 0);
    puts("C runtime: all tests passed");
    return 0;
}
