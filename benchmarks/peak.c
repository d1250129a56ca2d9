/* The machine's limits: FMA rate and memory bandwidth, with 1..N threads. Prints one JSON line.
   Usage: peak THREADS [BYTES OF L2] [BYTES OF L3]
          peak THREADS BYTES OF L2, OF L3 watch   prints for each line that it reads, "fma" or "L2 read", that rate now,
                                                  in about a millisecond */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define LANES (BYTES / 4)
#define CHAINS 12
#define TRIES 9

typedef float vec __attribute__((vector_size(BYTES)));

/* Enough independent chains to fill the latency of every FMA unit, few enough to stay in registers. */
#define EACH(OP) OP(0) OP(1) OP(2) OP(3) OP(4) OP(5) OP(6) OP(7) OP(8) OP(9) OP(10) OP(11)
#define DECLARE(i) vec a##i = factor * (float)(i + 1);
#define STEP(i) a##i = a##i * factor + addend;
#define COLLECT(i) sum += a##i;

static volatile float source_factor = 0.5f, source_addend = 1.0f, sink;

static void fma_chains(long steps) {
    vec zero = {0}, factor = zero + source_factor, addend = zero + source_addend, sum = zero;
    EACH(DECLARE)
    for (long k = 0; k < steps; k++) {
        EACH(STEP)
    }
    EACH(COLLECT)
    for (int i = 0; i < LANES; i++) sink += sum[i];
}

/* Streams over arrays, again and again: reading one, writing one, scaling one into another, and a triad, which reads two
   and writes one. */
static void read_stream(float *restrict x, const float *restrict y, const float *restrict z, size_t count) {
    const vec *v = (const vec *)y;
    vec zero = {0}, sums[8] = {zero, zero, zero, zero, zero, zero, zero, zero};
    (void)x, (void)z;
    for (size_t i = 0; i + 8 <= count / LANES; i += 8)
        for (int k = 0; k < 8; k++) sums[k] += v[i + k];
    for (int k = 1; k < 8; k++) sums[0] += sums[k];
    for (int i = 0; i < LANES; i++) sink += sums[0][i];
}

static void write_stream(float *restrict x, const float *restrict y, const float *restrict z, size_t count) {
    vec *v = (vec *)x, value = (vec){0} + source_addend;
    (void)y, (void)z;
    for (size_t i = 0; i < count / LANES; i++) {
        v[i] = value;
        __asm__ volatile("" ::: "memory"); /* stores, not a call of memset */
    }
}

static void scale_stream(float *restrict x, const float *restrict y, const float *restrict z, size_t count) {
    (void)z;
    for (size_t i = 0; i < count; i++) x[i] = 0.5f * y[i];
}

static void triad_stream(float *restrict x, const float *restrict y, const float *restrict z, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = y[i] + 0.5f * z[i];
}

typedef void stream(float *restrict, const float *restrict, const float *restrict, size_t);

/* Threads meet here, and leave at the same time: they spin, as one that sleeps wakes late. */
typedef struct {
    int threads;
    atomic_int arrived, round;
} meeting;

static void meet(meeting *m) {
    int round = atomic_load(&m->round);
    if (atomic_fetch_add(&m->arrived, 1) + 1 == m->threads) {
        atomic_store(&m->arrived, 0);
        atomic_fetch_add(&m->round, 1);
    }
    for (long spins = 0; atomic_load(&m->round) == round; spins++)
        if (spins > 100000) sched_yield();
}

typedef struct {
    meeting *meeting;
    int number, tries;
    long steps; /* of multiply-adds, or 0: then it is */
    stream *run;
    long passes;
    size_t count;
    float *x, *y, *z;
    double started[TRIES], ended[TRIES];
} job;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The calling thread keeps to one of the processors that it may use: in runs so short the system would not part two that
   began on the same. */
static void pin(int number) {
    cpu_set_t allowed, own;
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && number-- == 0) CPU_SET(cpu, &own);
    if (CPU_COUNT(&own)) sched_setaffinity(0, sizeof own, &own);
}

static void *work(void *argument) {
    job *j = argument;
    pin(j->number);
    for (int t = 0; t < j->tries; t++) {
        meet(j->meeting);
        j->started[t] = now();
        if (j->steps) fma_chains(j->steps);
        for (long pass = 0; pass < j->passes; pass++) j->run(j->x, j->y, j->z, j->count);
        j->ended[t] = now();
    }
    return NULL;
}

/* The best time of some runs in which all threads do their job at once: from the first start to the last end. */
static double best_seconds(job *jobs, int threads, int tries) {
    pthread_t handles[threads];
    meeting all = {.threads = threads};
    double best = 1e30;
    for (int i = 0; i < threads; i++) {
        jobs[i].meeting = &all;
        jobs[i].tries = tries;
        jobs[i].number = i;
        if (pthread_create(&handles[i], NULL, work, &jobs[i])) {
            fprintf(stderr, "peak: cannot start a thread\n");
            exit(1);
        }
    }
    for (int i = 0; i < threads; i++) pthread_join(handles[i], NULL);
    for (int t = 0; t < tries; t++) {
        double started = jobs[0].started[t], ended = jobs[0].ended[t];
        for (int i = 1; i < threads; i++) {
            if (jobs[i].started[t] < started) started = jobs[i].started[t];
            if (jobs[i].ended[t] > ended) ended = jobs[i].ended[t];
        }
        if (ended - started < best) best = ended - started;
    }
    return best;
}

static float *filled(size_t count) {
    float *p;
    if (posix_memalign((void **)&p, 64, count * sizeof *p)) {
        fprintf(stderr, "peak: out of memory\n");
        exit(1);
    }
    memset(p, 1, count * sizeof *p); /* not 0: that would be calloc, and all pages the one of zeros */
    return p;
}

static const struct {
    const char *name;
    stream *run;
    int arrays;
} STREAMS[] = {{"read", read_stream, 1}, {"write", write_stream, 1}, {"scale", scale_stream, 2}, {"triad", triad_stream, 3}};
#define KINDS (sizeof STREAMS / sizeof *STREAMS)

/* A level of memory, and how much of it the streams of all threads run over. */
typedef struct {
    const char *name;
    size_t total;
    float **arrays; /* of each thread */
} level;

static void allocate(level *l, int threads) {
    l->arrays = malloc((size_t)threads * sizeof *l->arrays);
    for (int i = 0; i < threads; i++) l->arrays[i] = filled(l->total / (size_t)threads / sizeof(float));
}

/* GB/s of a stream, in the best of some tries of about so many bytes for each thread. */
static double bandwidth(const level *l, size_t s, int threads, double bytes, int tries) {
    job jobs[threads];
    size_t count = l->total / (size_t)threads / sizeof(float) / (size_t)STREAMS[s].arrays / 1024 * 1024;
    double moved = (double)count * (double)STREAMS[s].arrays * sizeof(float);
    long passes = 1 + (long)(bytes / moved);
    for (int i = 0; i < threads; i++) {
        float *x = l->arrays[i], *y = STREAMS[s].arrays > 1 ? x + count : x;
        jobs[i] = (job){.run = STREAMS[s].run, .passes = passes, .count = count, .x = x, .y = y, .z = y + count};
    }
    return moved * (double)passes * threads / best_seconds(jobs, threads, tries) * 1e-9;
}

/* GFLOP/s of multiply-adds. */
static double fma_rate(int threads, long steps, int tries) {
    job jobs[threads];
    for (int i = 0; i < threads; i++) jobs[i] = (job){.steps = steps};
    return 2e-9 * LANES * CHAINS * (double)steps * threads / best_seconds(jobs, threads, tries);
}

static int watch(level *levels, const level *end, int threads) {
    char line[64], name[8], stream_name[8];
    while (fgets(line, sizeof line, stdin)) {
        double rate = 0; /* of what there is not */
        if (strcmp(line, "fma\n") == 0) rate = fma_rate(threads, 500000, 1);
        else if (sscanf(line, "%7s %7s", name, stream_name) == 2)
            for (level *l = levels; l < end; l++)
                for (size_t s = 0; s < KINDS; s++)
                    if (strcmp(l->name, name) == 0 && strcmp(STREAMS[s].name, stream_name) == 0) {
                        if (!l->arrays) allocate(l, threads);
                        rate = bandwidth(l, s, threads, 64e6, 1);
                    }
        printf("%.3f\n", rate);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    size_t l2 = argc > 2 ? strtoul(argv[2], NULL, 10) : 0, l3 = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    if (threads < 1 || threads > 1024) {
        fprintf(stderr, "usage: peak THREADS [BYTES OF L2] [BYTES OF L3] [watch]\n");
        return 2;
    }
    size_t large = (size_t)256 << 20;
    level levels[3], *end = levels;
    if (l2) *end++ = (level){.name = "L2", .total = l2 / 2 * (size_t)threads};
    if (l3 > 4 * l2 * (size_t)threads) *end++ = (level){.name = "L3", .total = l3 / 2};
    *end++ = (level){.name = "DRAM", .total = l3 * 4 > large ? l3 * 4 : large};
    if (argc > 4 && strcmp(argv[4], "watch") == 0) return watch(levels, end, threads);
    printf("{\"gflops\": %.3f, \"vector_bytes\": %d, \"bandwidth\": {", fma_rate(threads, 2000000, TRIES), BYTES);
    for (level *l = levels; l < end; l++) {
        allocate(l, threads);
        printf("%s\"%s\": {", l > levels ? ", " : "", l->name);
        for (size_t s = 0; s < KINDS; s++)
            printf("%s\"%s\": %.3f", s ? ", " : "", STREAMS[s].name, bandwidth(l, s, threads, 32e6, TRIES));
        printf("}");
        for (int i = 0; i < threads; i++) free(l->arrays[i]);
    }
    printf("}}\n");
    return 0;
}
