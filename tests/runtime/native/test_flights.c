/* What ranks record of their collectives, a part of test_rt.c: ranks are threads, and long collectives are driven by
 * the engine's own threads while recordings begin and end. */

enum { FLYING = 3, FLIGHTS = 8, LONG = 20000 };

static pb_ranks *flying[FLYING];

static int64_t start_sum(const pb_runtime *runtime, const float *given, float *received, int64_t elements)
{
    const pb_collective sum = {.kind = PB_REDUCE, .reduction = PB_SUM, .dtype = PB_FLOAT32, .shards = 1, .count = 1,
                               .elements = &elements, .given = (const void *const[]){given},
                               .received = (void *const[]){received}};
    return runtime->start(runtime, &sum);
}

static void check_flight(const pb_flight *flight, int64_t began, int64_t elements)
{
    CHECK(flight->kind == PB_REDUCE && flight->bytes == 4 * elements);
    CHECK(flight->sent > 0 && flight->waited > 0);
    CHECK(began <= flight->started && flight->started <= flight->done && flight->done <= pb_now_ns());
}

static void *fly(void *argument)
{
    const pb_runtime *runtime = pb_ranks_table(argument);
    float *given = calloc(LONG, sizeof *given), *received[2] = {calloc(LONG, sizeof(float)), calloc(LONG, sizeof(float))};
    CHECK(given != NULL && received[0] != NULL && received[1] != NULL);
    for (int round = 0; round < 50; round++) {
        pb_flight flights[FLIGHTS + 1];
        memset(flights, 255, sizeof flights);
        int64_t began = pb_now_ns(), waited = pb_collectives_waited(runtime), in_flights = 0;
        int count = round % (FLIGHTS + 3), kept = count < FLIGHTS ? count : FLIGHTS; /* more than there is room for */
        int64_t tickets[2] = {0, 0};
        for (int k = 0; k < FLIGHTS; k++)
            flights[k].done = 0;
        pb_collectives_record(runtime, flights, FLIGHTS);
        for (int k = 0; k < count; k++) {
            runtime->wait(runtime, tickets[k % 2]);
            tickets[k % 2] = start_sum(runtime, given, received[k % 2], k % 3 == 0 ? LONG : 5);
        }
        runtime->wait(runtime, tickets[0]);
        runtime->wait(runtime, tickets[1]);
        CHECK(pb_collectives_record(runtime, NULL, 0) == count);
        for (int k = 0; k < kept; k++) {
            check_flight(&flights[k], began, k % 3 == 0 ? LONG : 5);
            in_flights += flights[k].waited;
        }
        waited = pb_collectives_waited(runtime) - waited;
        CHECK(count > FLIGHTS ? waited >= in_flights : waited == in_flights);
        CHECK(flights[FLIGHTS].started == -1 && flights[FLIGHTS].done == -1); /* no room: nothing is written */
        runtime->wait(runtime, start_sum(runtime, given, received[0], LONG)); /* not recorded */
        for (int k = kept; k < FLIGHTS; k++)
            CHECK(flights[k].done == 0);
    }
    free(given);
    free(received[0]);
    free(received[1]);
    return NULL;
}

static void test_recorded_collectives(void)
{
    pthread_t threads[FLYING];
    CHECK(pb_ranks_local(FLYING, flying) == PB_OK);
    for (int r = 0; r < FLYING; r++)
        CHECK(pthread_create(&threads[r], NULL, fly, flying[r]) == 0);
    for (int r = 0; r < FLYING; r++)
        CHECK(pthread_join(threads[r], NULL) == 0);
    for (int r = 0; r < FLYING; r++)
        pb_ranks_close(flying[r]);
}

static void test_a_process_alone_records_nothing(void)
{
    pb_flight flight = {.done = -1};
    float x = 2, y = 0;
    pb_collectives_record(pb_runtime_get(), &flight, 1);
    pb_runtime_get()->wait(pb_runtime_get(), start_sum(pb_runtime_get(), &x, &y, 1));
    CHECK(pb_collectives_record(pb_runtime_get(), NULL, 0) == 0);
    CHECK(y == 2 && flight.done == -1 && pb_collectives_waited(pb_runtime_get()) == 0);
}
