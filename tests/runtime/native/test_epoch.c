/* Native epochs, a part of test_rt.c: a step that adds up what it gets. */

enum { ROWS = 23, WIDTH = 5000, BATCH = 4 }; /* a batch of 80 kB is gathered by several threads */
enum { DIVISOR = 4, EMPTY = 3 };             /* of the loss of each batch, but the third, which counts for nothing */

struct sums {
    int64_t calls, labels, refused_label;
    double pixels;
};

static void add_pixels(void *closure, int64_t begin, int64_t end)
{
    double *rows = ((void **)closure)[0];
    const float *batch = ((void **)closure)[1];
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < WIDTH; j++)
            rows[i] += batch[i * WIDTH + j];
}

/* Buffers: the batch's pixels, its labels, the loss, the sums, the divisor. Refuses a label before it changes anything. */
static int32_t add_up(const pb_runtime *runtime, void *const *buffers, void *arena, int64_t *trace)
{
    const int64_t *labels = buffers[1];
    struct sums *sums = buffers[3];
    double rows[BATCH] = {0};
    void *closure[] = {rows, buffers[0]};
    (void)trace;
    CHECK(runtime->abi == PB_ABI);
    memset(arena, 0, 64);
    for (int i = 0; i < BATCH; i++)
        if (labels[i] == sums->refused_label)
            return 7;
    runtime->parallel_for(runtime, add_pixels, closure, BATCH);
    for (int i = 0; i < BATCH; i++) {
        sums->labels += labels[i];
        sums->pixels += rows[i];
    }
    sums->calls++;
    *(float *)buffers[2] = sums->calls == EMPTY ? NAN : 0.5f * (float)sums->calls;
    *(double *)buffers[4] = sums->calls == EMPTY ? 0 : DIVISOR;
    return 0;
}

struct data {
    uint8_t pixels[ROWS][WIDTH];
    int32_t labels[ROWS];
    int64_t order[ROWS];
    float batch[BATCH][WIDTH];
    int64_t batch_labels[BATCH];
    float loss;
    double divisor;
    struct sums sums;
    char arena[64];
    void *buffers[5];
    pb_column columns[2];
    pb_epoch epoch;
    pb_call call;
};

/* Rows that lie one after another, of WIDTH elements or one, each of so many bytes. */
static pb_column column_of(const void *source, void *batch, int64_t elements, int32_t source_dtype, int32_t dtype,
                           int64_t size)
{
    static const int64_t one_axis[] = {WIDTH, 1}, bytes[] = {1, 2, 4, 8};
    int64_t k = size == 8 ? 3 : size == 4 ? 2 : size - 1;
    return (pb_column){.source = source, .batch = batch, .elements = elements, .row_stride = elements * size,
                       .shape = elements == 1 ? &one_axis[1] : one_axis, .strides = &bytes[k], .rank = 1,
                       .source_dtype = source_dtype, .dtype = dtype};
}

/* Five whole batches of a data set whose labels are its row numbers, in an order that begins with the last row. */
static struct data *new_data(void)
{
    struct data *d = calloc(1, sizeof *d);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < WIDTH; j++)
            d->pixels[i][j] = (uint8_t)(i * 31 + j);
        d->labels[i] = i;
        d->order[i] = (ROWS - 1 - i) * 8 % ROWS;
    }
    d->sums.refused_label = -1;
    d->columns[0] = column_of(d->pixels, d->batch, WIDTH, PB_UINT8, PB_FLOAT32, 1);
    d->columns[1] = column_of(d->labels, d->batch_labels, 1, PB_INT32, PB_INT64, 4);
    d->buffers[0] = d->batch, d->buffers[1] = d->batch_labels, d->buffers[2] = &d->loss, d->buffers[3] = &d->sums;
    d->buffers[4] = &d->divisor;
    d->epoch = (pb_epoch){.columns = d->columns, .column_count = 2, .rows = ROWS, .order = d->order,
                          .batch_rows = BATCH, .batches = ROWS / BATCH};
    d->call = (pb_call){add_up, pb_runtime_get(), d->buffers, d->arena, &d->loss, &d->divisor, PB_FLOAT32, PB_FLOAT64};
    return d;
}

static void check_sums(const struct data *d, int64_t batches)
{
    int64_t labels = 0, pixels = 0;
    for (int64_t i = 0; i < batches * BATCH; i++) {
        labels += d->order[i];
        for (int j = 0; j < WIDTH; j++)
            pixels += d->pixels[d->order[i]][j];
    }
    CHECK(d->epoch.done == batches && d->sums.calls == batches);
    CHECK(d->sums.labels == labels && d->sums.pixels == (double)pixels);
    int64_t empty = batches >= EMPTY, sum = batches * (batches + 1) / 2 - empty * EMPTY;
    CHECK(d->epoch.loss == 0.5 * (double)(batches == EMPTY ? EMPTY - 1 : batches));
    CHECK(d->epoch.loss_sum == DIVISOR * 0.5 * (double)sum);
    CHECK(d->epoch.divisor_sum == DIVISOR * (double)(batches - empty));
}

static void test_epoch(void)
{
    for (int threads = 1; threads <= 3; threads++) {
        struct data *whole = new_data(), *sliced = new_data(), *refused = new_data();
        CHECK(pb_set_num_threads(threads) == PB_OK);
        CHECK(pb_epoch_run(&whole->epoch, &whole->call, INT64_MAX) == PB_OK);
        check_sums(whole, 5);
        CHECK(pb_epoch_run(&whole->epoch, &whole->call, INT64_MAX) == PB_OK); /* nothing is left */
        check_sums(whole, 5);
        for (int batches = 1; batches <= 5; batches++) {
            CHECK(pb_epoch_run(&sliced->epoch, &sliced->call, 0) == PB_OK);
            check_sums(sliced, batches);
        }
        refused->sums.refused_label = refused->order[2 * BATCH + 1];
        for (int again = 0; again < 2; again++) {
            CHECK(pb_epoch_run(&refused->epoch, &refused->call, INT64_MAX) == PB_ERROR_STEP);
            CHECK(refused->epoch.failure == 7 && strcmp(pb_last_error(), "the step on batch 2 failed") == 0);
            check_sums(refused, 2);
        }
        refused->sums.refused_label = -1;
        CHECK(pb_epoch_run(&refused->epoch, &refused->call, INT64_MAX) == PB_OK);
        check_sums(refused, 5);
        free(whole), free(sliced), free(refused);
    }
}

static void test_epochs_that_make_no_sense(void)
{
    struct data *d = new_data();
    CHECK(pb_epoch_gather(&d->epoch) == PB_OK);
    d->order[1] = ROWS;
    CHECK(pb_epoch_run(&d->epoch, &d->call, 0) == PB_ERROR_ARGUMENT);
    CHECK(strcmp(pb_last_error(), "row 23 is out of range: the data set has 23 rows") == 0);
    d->order[1] = -1;
    CHECK(pb_epoch_gather(&d->epoch) == PB_ERROR_ARGUMENT);
    d->epoch.order = NULL;
    d->epoch.done = 5;
    CHECK(pb_epoch_gather(&d->epoch) == PB_ERROR_ARGUMENT);
    d->epoch.done = 0;
    d->columns[0].source_dtype = PB_DTYPES;
    CHECK(pb_epoch_gather(&d->epoch) == PB_ERROR_ARGUMENT);
    CHECK(strcmp(pb_last_error(), "column 0: there is no dtype 13") == 0);
    d->columns[0].source_dtype = PB_UINT8, d->columns[0].elements--;
    CHECK(pb_epoch_gather(&d->epoch) == PB_ERROR_ARGUMENT);
    d->columns[0].elements++, d->columns[0].rank = 0;
    CHECK(pb_copy_rows(&d->columns[0], 0, 1, &d->epoch.misfit) == PB_ERROR_ARGUMENT);
    d->columns[0].rank = 1, d->epoch.rows = 0;
    CHECK(pb_epoch_gather(&d->epoch) == PB_ERROR_ARGUMENT);
    d->epoch.rows = ROWS;
    d->call.loss_dtype = PB_INT32;
    CHECK(pb_epoch_run(&d->epoch, &d->call, 0) == PB_ERROR_ARGUMENT);
    d->call.loss_dtype = PB_FLOAT32, d->call.divisor_dtype = PB_INT64;
    CHECK(pb_epoch_run(&d->epoch, &d->call, 0) == PB_ERROR_ARGUMENT);
    CHECK(d->sums.calls == 0);
    free(d);
    for (int32_t from = -1; from <= PB_DTYPES; from++)
        for (int32_t to = -1; to <= PB_DTYPES; to++)
            if (from == to)
                CHECK(pb_always_fits(from, to) == (from >= 0 && from < PB_DTYPES));
    CHECK(pb_always_fits(PB_UINT16, PB_FLOAT32) && !pb_always_fits(PB_INT32, PB_FLOAT32));
    CHECK(pb_always_fits(PB_INT32, PB_FLOAT64) && !pb_always_fits(PB_INT64, PB_FLOAT64));
    CHECK(pb_always_fits(PB_BOOL, PB_INT8) && !pb_always_fits(PB_INT8, PB_BOOL) && !pb_always_fits(PB_INT8, PB_UINT64));
    CHECK(pb_always_fits(PB_FLOAT16, PB_FLOAT32) && !pb_always_fits(PB_BFLOAT16, PB_FLOAT16));
}

/* A batch whose value does not fit is refused before the step; which it is does not depend on the threads. */
static void test_values_that_do_not_fit(void)
{
    for (int threads = 1; threads <= 3; threads++) {
        struct data *d = new_data();
        double *pixels = calloc((size_t)ROWS * WIDTH, sizeof *pixels);
        CHECK(pb_set_num_threads(threads) == PB_OK);
        for (int64_t i = 0; i < ROWS * WIDTH; i++)
            pixels[i] = d->pixels[i / WIDTH][i % WIDTH];
        d->columns[0] = column_of(pixels, d->batch, WIDTH, PB_FLOAT64, PB_FLOAT32, 8);
        pixels[d->order[2 * BATCH + 1] * WIDTH + 77] = pixels[d->order[2 * BATCH + 1] * WIDTH + 78] = -1e300;
        pixels[d->order[2 * BATCH + 3] * WIDTH] = 1e300;
        CHECK(pb_epoch_run(&d->epoch, &d->call, INT64_MAX) == PB_ERROR_VALUE);
        check_sums(d, 2);
        CHECK(d->epoch.misfit.column == 0 && d->epoch.misfit.row == d->order[2 * BATCH + 1]);
        CHECK(d->epoch.misfit.element == 77);
        free(pixels), free(d);
    }
}

/* Every dtype to every other, from elements that lie apart and are not aligned. */
static void test_all_conversions(void)
{
    enum { COUNT = 300, APART = 11 };
    static const int8_t sizes[PB_DTYPES] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2};
    char *source = calloc(1, 2 * COUNT * APART + 16), *contiguous = calloc(8, 2 * COUNT);
    char *apart = calloc(8, 2 * COUNT), *together = calloc(8, 2 * COUNT);
    for (int32_t from = 0; from < PB_DTYPES; from++)
        for (int32_t to = 0; to < PB_DTYPES; to++) {
            int64_t ones[2] = {2, COUNT}, steps[2] = {COUNT * APART, APART}, all = 2 * COUNT, size = sizes[from];
            uint8_t numbers[2 * COUNT];
            pb_misfit misfit = {-1, -1, -1};
            for (int i = 0; i < 2 * COUNT; i++)
                numbers[i] = (uint8_t)(i % 2);
            int64_t step = 1; /* zeros and ones in the source's dtype */
            pb_column make = {.source = numbers, .batch = contiguous, .elements = all, .shape = &all, .strides = &step,
                              .rank = 1, .source_dtype = PB_BOOL, .dtype = from};
            CHECK(pb_copy_rows(&make, 0, 1, &misfit) == PB_OK);
            for (int64_t i = 0; i < 2 * COUNT; i++)
                memcpy(source + 3 + i * APART, contiguous + i * size, (size_t)size);
            pb_column two = {.source = source + 3, .batch = apart, .elements = all, .shape = ones, .strides = steps,
                             .rank = 2, .source_dtype = from, .dtype = to, .exact = 1};
            pb_column one = {.source = contiguous, .batch = together, .elements = all, .shape = &all, .strides = &size,
                             .rank = 1, .source_dtype = from, .dtype = to};
            CHECK(pb_copy_rows(&two, 0, 1, &misfit) == PB_OK && pb_copy_rows(&one, 0, 1, &misfit) == PB_OK);
            CHECK(memcmp(apart, together, (size_t)(2 * COUNT * sizes[to])) == 0);
        }
    free(source), free(contiguous), free(apart), free(together);
}

/* One thread fills a ring of batches while another steps on them, all of them right. */
enum { RING = 3, PASSES = 50 };

struct ring {
    struct data *data;
    int64_t first_label;
};

static void *fill(void *argument)
{
    struct ring *ring = argument;
    pb_epoch *epoch = &ring->data->epoch;
    for (int64_t batch = 0; batch < PASSES; batch++) {
        while (batch - pb_epoch_done(epoch) >= RING)
            pb_epoch_wait(epoch, batch - RING + 1, 1000000);
        for (int64_t i = 0; i < BATCH; i++) {
            int64_t row = (batch * BATCH + i) % (RING * BATCH);
            ring->data->labels[row] = (int32_t)(ring->first_label + batch * BATCH + i);
            memset(ring->data->pixels[row], (int)batch, WIDTH);
        }
        pb_epoch_extend(epoch, 1);
    }
    return NULL;
}

static void test_a_ring(void)
{
    struct ring ring = {new_data(), 5};
    pb_epoch *epoch = &ring.data->epoch;
    pthread_t filling;
    double pixels = 0;
    int64_t labels = 0;
    epoch->order = NULL, epoch->rows = RING * BATCH, epoch->batches = 0;
    CHECK(pb_epoch_wait(epoch, 1, INT64_MAX) == 0); /* all there are */
    pthread_create(&filling, NULL, fill, &ring);
    while (pb_epoch_done(epoch) < PASSES)
        CHECK(pb_epoch_run(epoch, &ring.data->call, 100000) == PB_OK);
    pthread_join(filling, NULL);
    for (int64_t batch = 0; batch < PASSES; batch++)
        for (int64_t i = 0; i < BATCH; i++)
            labels += 5 + batch * BATCH + i, pixels += (double)batch * WIDTH;
    CHECK(ring.data->sums.labels == labels && ring.data->sums.pixels == pixels);
    free(ring.data);
}

/* Two threads, each with an epoch of its own, while a third changes the number of threads. */
static void *run_epochs(void *argument)
{
    for (int i = 0; i < 20; i++) {
        struct data *d = new_data();
        while (d->epoch.done < d->epoch.batches)
            CHECK(pb_epoch_run(&d->epoch, &d->call, 1000) == PB_OK);
        check_sums(d, 5);
        free(d);
    }
    return argument;
}

/* Without a divisor, each batch weighs 1. */
static void test_an_epoch_of_sums(void)
{
    struct data *d = new_data();
    d->call.divisor = NULL;
    d->epoch.batches = 2;
    CHECK(pb_epoch_run(&d->epoch, &d->call, INT64_MAX) == PB_OK);
    CHECK(d->epoch.loss_sum == 0.5 * (1 + 2) && d->epoch.divisor_sum == 2);
    free(d);
}

/* It returns after as many batches as are asked for, counted from the first of the epoch. */
static void test_an_epoch_until(void)
{
    static const int64_t untils[] = {1, 3, 4, 4, 2, 0}, done[] = {1, 3, 4, 5, 5, 5}; /* a number that is past is none */
    struct data *d = new_data();
    for (int i = 0; i < 6; i++) {
        d->epoch.until = untils[i];
        CHECK(pb_epoch_run(&d->epoch, &d->call, INT64_MAX) == PB_OK);
        check_sums(d, (int)done[i]);
    }
    free(d);
}

static void test_concurrent_epochs(void)
{
    pthread_t other, changing;
    pthread_create(&other, NULL, run_epochs, NULL);
    pthread_create(&changing, NULL, change_threads, NULL);
    run_epochs(NULL);
    pthread_join(other, NULL);
    pthread_join(changing, NULL);
}
