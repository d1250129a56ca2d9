/* Runs compiled host functions on buffers from stdin, and writes the buffers back to stdout.
 *
 * The program that links this defines `programs`, a table of host functions. Numbers are int64, in the order
 *
 *     for each call:   index  arena_bytes  buffers  then for each buffer: bytes, contents
 *
 * and the answer has for each call: status (-1: memory beside a buffer was overwritten), contents of each buffer.
 * Parallel loops run in uneven pieces, the last first: no task may depend on another.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*task_function)(void *closure, int64_t begin, int64_t end);
typedef struct share {
    int32_t (*next)(struct share *share, int64_t range[2]);
    int64_t first, end; /* what is left */
} share;
typedef void (*work_function)(void *closure, share *share);
typedef struct runtime {
    int64_t abi;
    void (*parallel_for)(const struct runtime *runtime, task_function task, void *closure, int64_t count);
    int64_t (*now_ns)(void);
    void (*parallel_share)(const struct runtime *runtime, work_function work, void *closure, int64_t count);
} runtime;
typedef int32_t (*host_function)(const runtime *runtime, void *const *buffers, void *arena, int64_t *trace);

extern const host_function programs[];

enum { ALIGNMENT = 64, GUARD = 64, MARK = 0xAB };

static int32_t last_piece(share *share, int64_t range[2]) {
    int64_t left = share->end - share->first, size = 1 + share->end % 3 < left ? 1 + share->end % 3 : left;
    range[0] = share->end - size;
    range[1] = share->end;
    share->end -= size;
    return size > 0;
}

enum { ABI = 4 };

/* Compiled code hands on the table that it got. */
static void check_table(const runtime *table) {
    if (table->abi == ABI) return;
    fprintf(stderr, "this is no runtime table\n");
    exit(4);
}

static void backwards(const runtime *table, task_function task, void *closure, int64_t count) {
    check_table(table);
    share whole = {last_piece, 0, count};
    for (int64_t range[2]; last_piece(&whole, range);) task(closure, range[0], range[1]);
}

/* As two threads would, one after the other. */
static void in_two(const runtime *table, work_function work, void *closure, int64_t count) {
    check_table(table);
    share last = {last_piece, count / 2, count}, first = {last_piece, 0, count / 2};
    work(closure, &last);
    work(closure, &first);
}

static int64_t no_clock(void) { return 0; }

static void take(void *to, size_t bytes) {
    if (fread(to, 1, bytes, stdin) != bytes) {
        fprintf(stderr, "the input ends too soon\n");
        exit(2);
    }
}

static int64_t number(void) {
    int64_t value;
    take(&value, sizeof value);
    return value;
}

/* A block of so many bytes with marked memory on both sides. */
static unsigned char *guarded(int64_t bytes) {
    size_t whole = (size_t)bytes + GUARD + 2 * ALIGNMENT;
    unsigned char *block = malloc(whole + ALIGNMENT);
    if (block == NULL) {
        fprintf(stderr, "no memory for %lld bytes\n", (long long)bytes);
        exit(3);
    }
    memset(block, MARK, whole + ALIGNMENT);
    uintptr_t first = ((uintptr_t)block + GUARD + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return (unsigned char *)first;
}

static int is_whole(const unsigned char *block, int64_t bytes) {
    for (int k = 0; k < GUARD; k++)
        if (block[bytes + k] != MARK || block[-1 - k] != MARK) return 0;
    return 1;
}

int main(void) {
    const runtime table = {ABI, backwards, no_clock, in_two};
    for (int64_t calls = number(); calls > 0; calls--) {
        host_function function = programs[number()];
        int64_t arena_bytes = number(), count = number();
        unsigned char *arena = guarded(arena_bytes);
        unsigned char **buffers = malloc((size_t)(count + 1) * sizeof *buffers);
        int64_t *bytes = malloc((size_t)(count + 1) * sizeof *bytes);
        for (int64_t k = 0; k < count; k++) {
            bytes[k] = number();
            buffers[k] = guarded(bytes[k]);
            take(buffers[k], (size_t)bytes[k]);
        }
        memset(arena, 0xFF, (size_t)arena_bytes); /* NaNs */
        int64_t status = function(&table, (void *const *)buffers, arena, NULL);
        int whole = is_whole(arena, arena_bytes);
        for (int64_t k = 0; k < count; k++) whole &= is_whole(buffers[k], bytes[k]);
        if (!whole) status = -1;
        fwrite(&status, sizeof status, 1, stdout);
        for (int64_t k = 0; k < count; k++) fwrite(buffers[k], 1, (size_t)bytes[k], stdout);
        fflush(stdout); /* blocks are not given back: the process ends soon */
    }
    return 0;
}
