/* Pools in memory of their own, a part of test_rt.c: as each instance of an exported library has one. */

static struct pb_pool *new_pool(int threads)
{
    struct pb_pool *pool = aligned_alloc(PB_ALIGNMENT, pb_pool_bytes(threads));
    CHECK(pool != NULL);
    memset(pool, 255, pb_pool_bytes(threads));
    CHECK(pb_pool_init(pool, threads) == PB_OK);
    return pool;
}

static void check_pool(const struct pb_pool *pool, int64_t count, int threads)
{
    const pb_runtime *runtime = pb_pool_runtime(pool);
    struct shared shared = {{0}, 0};
    int visits[MANY] = {0};
    runtime->parallel_for(runtime, visit, visits, count);
    runtime->parallel_share(runtime, visit_share, &shared, count);
    for (int64_t i = 0; i < MANY; i++)
        CHECK(visits[i] == (i < count) && shared.visits[i] == (i < count));
    CHECK(shared.threads <= threads && (shared.threads >= 1 || count <= 0));
}

/* Tasks that wait for one another: each is done by another thread, all at the same time. */
struct meeting {
    atomic_int present;
    int expected;
};

static void meet(void *closure, int64_t begin, int64_t end)
{
    struct meeting *meeting = closure;
    CHECK(end - begin == 1);
    atomic_fetch_add(&meeting->present, 1);
    while (atomic_load(&meeting->present) < meeting->expected)
        sched_yield();
}

static void check_all_threads(const struct pb_pool *pool, int threads)
{
    struct meeting meeting = {0, threads};
    pb_pool_runtime(pool)->parallel_for(pb_pool_runtime(pool), meet, &meeting, threads);
    CHECK(meeting.present == threads);
}

static void test_a_pool_that_cannot_be_made(void)
{
    struct pb_pool *pool = new_pool(2);
    CHECK(pb_pool_bytes(0) == 0 && pb_pool_bytes(-1) == 0 && pb_pool_bytes(PB_MAX_THREADS + 1) == 0);
    CHECK(pb_pool_bytes(1) % PB_ALIGNMENT == 0 && pb_pool_bytes(4) < 4096);
    CHECK(pb_pool_init(pool, 0) == PB_ERROR_ARGUMENT && pb_pool_init(pool, PB_MAX_THREADS + 1) == PB_ERROR_ARGUMENT);
    CHECK(pb_pool_init((struct pb_pool *)((char *)pool + PB_ALIGNMENT / 2), 1) == PB_ERROR_ARGUMENT);
    check_pool(pool, 10, 1); /* as it was made, and not yet started */
    free(pool);
}

static void test_a_pool_of_one_thread(void)
{
    struct pb_pool *pool = new_pool(1);
    for (int started = 0; started < 2; started++) {
        for (int64_t count = -1; count < 40; count++)
            check_pool(pool, count, 1);
        CHECK(pb_pool_start(pool) == PB_OK);
    }
    pb_pool_close(pool);
    check_pool(pool, 10, 1);
    free(pool);
}

static void test_a_pool_is_closed_and_started_again(void)
{
    enum { THREADS = 4 };
    struct pb_pool *pool = new_pool(THREADS);
    pb_pool_close(pool); /* never started */
    for (int i = 0; i < 10; i++) {
        CHECK(pb_pool_start(pool) == PB_OK);
        CHECK(pb_pool_start(pool) == PB_OK); /* is started already */
        check_all_threads(pool, THREADS);
        for (int64_t count = -1; count < 100; count += 7)
            check_pool(pool, count, THREADS);
        pb_pool_close(pool);
        check_pool(pool, 50, 1);
        pb_pool_close(pool); /* is closed already */
    }
    free(pool);
}

/* Two threads, each with a pool of its own, while a third has jobs in that of the process. */
struct user {
    struct pb_pool *pool;
    int threads;
    struct meeting *meeting;
};

static void *use_pool(void *argument)
{
    struct user *user = argument;
    const pb_runtime *runtime = pb_pool_runtime(user->pool);
    for (int i = 0; i < 200; i++)
        check_pool(user->pool, i % 60, user->threads);
    runtime->parallel_for(runtime, meet, user->meeting, user->threads);
    return NULL;
}

static void test_two_pools_at_once(void)
{
    struct meeting all = {0, 2 + 3};
    struct user users[2] = {{new_pool(2), 2, &all}, {new_pool(3), 3, &all}};
    pthread_t threads[2];
    for (int k = 0; k < 2; k++) {
        CHECK(pb_pool_start(users[k].pool) == PB_OK);
        CHECK(pthread_create(&threads[k], NULL, use_pool, &users[k]) == 0);
    }
    run_jobs(NULL);
    for (int k = 0; k < 2; k++) {
        pthread_join(threads[k], NULL);
        pb_pool_close(users[k].pool);
        free(users[k].pool);
    }
    CHECK(all.present == 2 + 3); /* the threads of both, in one job of each */
}

static void use_pool_inside(void *closure, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        check_pool(closure, 30, 1);
}

/* It runs on the thread that calls for it, as those of the same pool do. */
static void test_a_job_of_one_pool_inside_another(void)
{
    struct pb_pool *outer = new_pool(3), *inner = new_pool(3);
    CHECK(pb_pool_start(outer) == PB_OK && pb_pool_start(inner) == PB_OK);
    pb_pool_runtime(outer)->parallel_for(pb_pool_runtime(outer), use_pool_inside, inner, 20);
    CHECK(pb_set_num_threads(3) == PB_OK);
    pb_parallel_for(use_pool_inside, inner, 20);
    pb_pool_close(outer), pb_pool_close(inner);
    free(outer), free(inner);
}
