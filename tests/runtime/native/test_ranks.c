/* Ranks that are threads, a part of test_rt.c: numbers so small that each dtype holds the sums of all. */

enum { MOST_RANKS = 9, MOST_ARRAYS = 3, SHARDS = 2, LAPS = 8 };

static const int64_t rank_sizes[][MOST_ARRAYS] = {{1, 0, 2}, {70, 13, 1}, {9000, 1, 517}, {40000, 40000, 3}};

static void put(void *array, int32_t dtype, int64_t i, int value)
{
    float number = (float)value;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (dtype == PB_INT32)
        ((int32_t *)array)[i] = value;
    else if (dtype == PB_FLOAT32)
        ((float *)array)[i] = number;
    else
        ((uint16_t *)array)[i] = (uint16_t)(bits >> 16); /* bfloat16 */
}

static int number_at(const void *array, int32_t dtype, int64_t i)
{
    return dtype == PB_INT32 ? ((const int32_t *)array)[i]
                             : (int)pb_float_value((const char *)array + i * pb_dtype_bytes(dtype), dtype);
}

static int given_number(int rank, int64_t k, int shard, int64_t i)
{
    return (int)((rank + 2 * k + 3 * shard + i) % 5);
}

struct rank_call {
    pb_collective what;
    int64_t elements[MOST_ARRAYS];
    void *given[MOST_ARRAYS * SHARDS], *received[MOST_ARRAYS];
};

static int64_t piece_of(int64_t elements, int ranks)
{
    return (elements + ranks - 1) / ranks;
}

/* Arrays of their own, so that a byte too much is seen. */
static void prepare(struct rank_call *call, int kind, int32_t dtype, const int64_t *sizes, int rank, int ranks)
{
    int64_t bytes = pb_dtype_bytes(dtype);
    int shards = kind <= PB_REDUCE_PIECES ? SHARDS : 1;
    for (int k = 0; k < MOST_ARRAYS; k++) {
        int64_t whole = sizes[k] * (kind == PB_ALL_TO_ALL ? ranks : 1), piece = piece_of(whole, ranks);
        int64_t given = kind == PB_GATHER_PIECES ? piece : whole;
        int64_t received = kind == PB_REDUCE_PIECES || kind == PB_PIECE ? piece : whole;
        call->elements[k] = whole;
        for (int j = 0; j < shards; j++) {
            call->given[k * shards + j] = malloc((size_t)(given * bytes) + 1);
            for (int64_t i = 0; i < given; i++)
                put(call->given[k * shards + j], dtype, i, given_number(rank, k, j, i));
        }
        call->received[k] = malloc((size_t)(received * bytes) + 1);
    }
    call->what = (pb_collective){.kind = kind, .reduction = PB_SUM, .dtype = dtype, .root = ranks / 2,
                                 .shards = shards, .count = MOST_ARRAYS, .elements = call->elements,
                                 .given = (const void *const *)call->given, .received = call->received};
}

static int sum_of_given(int64_t k, int64_t i, int ranks)
{
    int sum = 0;
    for (int r = 0; r < ranks; r++)
        for (int j = 0; j < SHARDS; j++)
            sum += given_number(r, k, j, i);
    return sum;
}

static int expected(const struct rank_call *call, int64_t k, int64_t i, int rank, int ranks)
{
    int64_t whole = call->elements[k], piece = piece_of(whole, ranks), at = rank * piece + i;
    switch (call->what.kind) {
    case PB_REDUCE:
        return sum_of_given(k, i, ranks);
    case PB_REDUCE_PIECES:
        return at < whole ? sum_of_given(k, at, ranks) : 0;
    case PB_GATHER_PIECES:
        return given_number((int)(i / piece), k, 0, i % piece);
    case PB_BROADCAST:
        return given_number(ranks / 2, k, 0, i);
    case PB_ALL_TO_ALL:
        return given_number((int)(i / piece), k, 0, rank * piece + i % piece);
    default:
        return at < whole ? given_number(rank, k, 0, at) : 0;
    }
}

static void check_and_free(struct rank_call *call, int rank, int ranks)
{
    int kind = call->what.kind;
    for (int k = 0; k < MOST_ARRAYS; k++) {
        int64_t whole = call->elements[k];
        int64_t received = kind == PB_REDUCE_PIECES || kind == PB_PIECE ? piece_of(whole, ranks) : whole;
        for (int64_t i = 0; i < received; i++)
            CHECK(number_at(call->received[k], call->what.dtype, i) == expected(call, k, i, rank, ranks));
        for (int j = 0; j < call->what.shards; j++)
            free(call->given[k * call->what.shards + j]);
        free(call->received[k]);
    }
}

struct rank_thread {
    pthread_t thread;
    pb_ranks *ranks;
    void (*run)(pb_ranks *ranks);
};

static void *run_rank(void *argument)
{
    struct rank_thread *thread = argument;
    thread->run(thread->ranks);
    return NULL;
}

static void run_ranks(int size, void (*run)(pb_ranks *ranks))
{
    pb_ranks *handles[MOST_RANKS];
    struct rank_thread threads[MOST_RANKS];
    CHECK(pb_ranks_local(size, handles) == PB_OK);
    for (int r = 0; r < size; r++) {
        threads[r] = (struct rank_thread){.ranks = handles[r], .run = run};
        CHECK(pthread_create(&threads[r].thread, NULL, run_rank, &threads[r]) == 0);
    }
    for (int r = 0; r < size; r++)
        pthread_join(threads[r].thread, NULL);
    for (int r = 0; r < size; r++)
        pb_ranks_close(handles[r]);
}

/* All kinds at a time, awaited from the newest to the oldest. */
static void all_kinds(pb_ranks *ranks)
{
    static const int32_t dtypes[] = {PB_INT32, PB_FLOAT32, PB_BFLOAT16};
    const pb_runtime *runtime = pb_ranks_table(ranks);
    int rank = pb_ranks_rank(ranks), size = pb_ranks_size(ranks);
    for (size_t s = 0; s < sizeof rank_sizes / sizeof *rank_sizes; s++)
        for (int d = 0; d < 3; d++) {
            struct rank_call calls[PB_RANK];
            int64_t tickets[PB_RANK], number = -1;
            for (int kind = 0; kind < PB_RANK; kind++) {
                prepare(&calls[kind], kind, dtypes[d], rank_sizes[s], rank, size);
                tickets[kind] = runtime->start(runtime, &calls[kind].what);
            }
            for (int kind = PB_RANK; kind-- > 0;)
                runtime->wait(runtime, tickets[kind]);
            CHECK(pb_ranks_failure(ranks) == NULL);
            for (int kind = 0; kind < PB_RANK; kind++)
                check_and_free(&calls[kind], rank, size);
            pb_collective which = {.kind = PB_RANK, .shards = 1, .count = 1, .dtype = PB_INT64,
                                   .elements = (int64_t[]){1}, .received = (void *[]){&number}};
            runtime->wait(runtime, runtime->start(runtime, &which));
            CHECK(number == rank);
        }
}

/* More at a time than there is room for. */
static void many_at_a_time(pb_ranks *ranks)
{
    enum { COUNT = 200 };
    const pb_runtime *runtime = pb_ranks_table(ranks);
    int32_t own[COUNT], sums[COUNT];
    int64_t last = 0;
    for (int lap = 0; lap < LAPS; lap++) {
        for (int i = 0; i < COUNT; i++) {
            own[i] = i + pb_ranks_rank(ranks);
            pb_collective what = {.kind = PB_REDUCE, .dtype = PB_INT32, .shards = 1, .count = 1,
                                  .elements = (int64_t[]){1}, .given = (const void *[]){&own[i]},
                                  .received = (void *[]){&sums[i]}};
            last = runtime->start(runtime, &what);
        }
        runtime->wait(runtime, last);
        runtime->wait(runtime, last - 1);
        for (int i = 0; i < COUNT - 2; i++)
            CHECK(sums[i] == 3 * i + 3);
    }
}

static int64_t start_large(pb_ranks *ranks, float *given, float *received, int64_t count)
{
    pb_collective what = {.kind = PB_REDUCE, .dtype = PB_FLOAT32, .shards = 1, .count = 1,
                          .elements = &count, .given = (const void *[]){given}, .received = (void *[]){received}};
    return pb_ranks_table(ranks)->start(pb_ranks_table(ranks), &what);
}

/* Rank 1 fails while the others wait for it; nobody reads or writes the arrays after that. */
static void one_fails(pb_ranks *ranks)
{
    enum { COUNT = 50000 };
    float *given = malloc(COUNT * sizeof *given), *received = malloc(COUNT * sizeof *received);
    for (int i = 0; i < COUNT; i++)
        given[i] = 1;
    int64_t ticket = start_large(ranks, given, received, COUNT);
    if (pb_ranks_rank(ranks) != 1)
        ticket = start_large(ranks, given, received, COUNT);
    if (pb_ranks_rank(ranks) == 1)
        pb_ranks_fail(ranks, "it has had enough");
    pb_ranks_table(ranks)->wait(pb_ranks_table(ranks), ticket);
    free(given);
    free(received);
    if (pb_ranks_rank(ranks) != 1) {
        CHECK(strcmp(pb_ranks_failure(ranks), "rank 1 failed: it has had enough") == 0);
        float one = 1, result;
        pb_ranks_table(ranks)->wait(pb_ranks_table(ranks), start_large(ranks, &one, &result, 1)); /* at once */
    }
}

static void one_ends(pb_ranks *ranks)
{
    float given[3] = {1, 2, 3}, received[3];
    pb_ranks_table(ranks)->wait(pb_ranks_table(ranks), start_large(ranks, given, received, 3));
    CHECK(pb_ranks_failure(ranks) == NULL && received[2] == 9);
    if (pb_ranks_rank(ranks) == 2) {
        pb_ranks_leave(ranks);
        return;
    }
    pb_ranks_table(ranks)->wait(pb_ranks_table(ranks), start_large(ranks, given, received, 3));
    CHECK(strcmp(pb_ranks_failure(ranks), "rank 2 ended, and others wait for it") == 0);
}

static void one_does_not_come(pb_ranks *ranks)
{
    float given[3] = {1, 2, 3}, received[3];
    pb_ranks_set_timeout(ranks, 50000000);
    if (pb_ranks_rank(ranks) != 0)
        pb_ranks_table(ranks)->wait(pb_ranks_table(ranks), start_large(ranks, given, received, 3));
    CHECK(pb_ranks_rank(ranks) == 0 || strstr(pb_ranks_failure(ranks), "waits for rank 0") != NULL);
}

/* Sums are computed as the caller's own are, whoever computes them: here with subnormal numbers as zeros, or as they
 * are. */
static void subnormal_numbers(pb_ranks *ranks)
{
    enum { COUNT = 50000 };
    uint64_t before = pb_float_mode();
#if defined(__SSE__)
    uint64_t flushed = before | 0x8040;
#elif defined(__aarch64__)
    uint64_t flushed = before | 1u << 24;
#else
    uint64_t flushed = before;
#endif
    float *given = malloc(COUNT * sizeof *given), *received = malloc(COUNT * sizeof *received);
    const uint32_t word = 0x400; /* 2^-139 */
    for (int i = 0; i < COUNT; i++)
        memcpy(&given[i], &word, sizeof word);
    for (int lap = 0; lap < 4; lap++) {
        uint64_t mode = lap % 2 ? flushed : before;
        pb_set_float_mode(mode);
        int64_t ticket = start_large(ranks, given, received, COUNT);
        if (lap >= 2)
            nanosleep(&(struct timespec){0, 20000000}, NULL); /* the thread does it meanwhile */
        pb_ranks_table(ranks)->wait(pb_ranks_table(ranks), ticket);
        CHECK(pb_float_mode() == mode);
        pb_set_float_mode(before);
        for (int i = 0; i < COUNT; i++) {
            uint32_t sum;
            memcpy(&sum, &received[i], sizeof sum);
            CHECK(sum == (mode == before ? 2 * word : 0));
        }
    }
    free(given);
    free(received);
}

/* The handles are closed while collectives are in progress. */
static void nobody_waits(pb_ranks *ranks)
{
    enum { COUNT = 50000 };
    static float given[2][COUNT], received[2][COUNT];
    int rank = pb_ranks_rank(ranks);
    start_large(ranks, given[rank], received[rank], COUNT);
}

static void test_ranks(void)
{
    for (int size = 1; size <= MOST_RANKS; size++)
        run_ranks(size, all_kinds);
    run_ranks(3, many_at_a_time);
    for (int lap = 0; lap < LAPS; lap++) {
        run_ranks(3, one_fails);
        run_ranks(3, one_ends);
        run_ranks(2, nobody_waits);
    }
    run_ranks(3, one_does_not_come);
    run_ranks(2, subnormal_numbers);
    CHECK(pb_ranks_local(0, NULL) == PB_ERROR_ARGUMENT);
}
