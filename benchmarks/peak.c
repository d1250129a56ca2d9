/* The machine's limits: FMA rate and memory bandwidth, with 1..N threads. Usage: peak THREADS, prints one JSON line. */
#define _GNU_SOURCE
#include <pthread.h>
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
#define TRIES 15

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

/* A triad over arrays far larger than any cache: two streams read, one written. */
static void triad(float *restrict x, const float *restrict y, const float *restrict z, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = y[i] + 0.5f * z[i];
}

typedef struct {
    pthread_barrier_t *barrier;
    long steps;
    size_t count;
    float *x, *y, *z;
    double started[TRIES], ended[TRIES];
} job;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *work(void *argument) {
    job *j = argument;
    for (int t = 0; t < TRIES; t++) {
        pthread_barrier_wait(j->barrier);
        j->started[t] = now();
        if (j->steps) fma_chains(j->steps);
        else triad(j->x, j->y, j->z, j->count);
        j->ended[t] = now();
    }
    return NULL;
}

/* The best time of TRIES runs in which all threads do their job at once: from the first start to the last end. */
static double best_seconds(job *jobs, int threads) {
    pthread_t handles[threads];
    pthread_barrier_t barrier;
    double best = 1e30;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        jobs[i].barrier = &barrier;
        if (pthread_create(&handles[i], NULL, work, &jobs[i])) {
            fprintf(stderr, "peak: cannot start a thread\n");
            exit(1);
        }
    }
    for (int i = 0; i < threads; i++) pthread_join(handles[i], NULL);
    for (int t = 0; t < TRIES; t++) {
        double started = jobs[0].started[t], ended = jobs[0].ended[t];
        for (int i = 1; i < threads; i++) {
            if (jobs[i].started[t] < started) started = jobs[i].started[t];
            if (jobs[i].ended[t] > ended) ended = jobs[i].ended[t];
        }
        if (ended - started < best) best = ended - started;
    }
    pthread_barrier_destroy(&barrier);
    return best;
}

static float *filled(size_t count) {
    float *p = malloc(count * sizeof *p);
    if (!p) {
        fprintf(stderr, "peak: out of memory\n");
        exit(1);
    }
    memset(p, 1, count * sizeof *p); /* not 0: that would be calloc, and all pages the one of zeros */
    return p;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    if (threads < 1 || threads > 1024) {
        fprintf(stderr, "usage: peak THREADS\n");
        return 2;
    }
    const long steps = 2000000;
    const size_t total = (size_t)24 << 20; /* floats an array: 96 MiB */
    job jobs[threads];
    for (int i = 0; i < threads; i++) jobs[i] = (job){.steps = steps};
    double fma = best_seconds(jobs, threads);
    size_t share = total / (size_t)threads;
    for (int i = 0; i < threads; i++)
        jobs[i] = (job){.count = share, .x = filled(share), .y = filled(share), .z = filled(share)};
    double copy = best_seconds(jobs, threads);
    printf("{\"gflops\": %.3f, \"gigabytes_per_second\": %.3f, \"vector_bytes\": %d}\n",
           2.0 * LANES * CHAINS * (double)steps * threads / fma * 1e-9,
           3.0 * sizeof(float) * (double)share * threads / copy * 1e-9, BYTES);
    return 0;
}
