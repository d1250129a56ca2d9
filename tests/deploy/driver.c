/* Trains an exported library (LIB, included by HEADER) on the batches of a file, and prints the losses; saves, goes on,
 * loads, and goes on again: the same losses. For emulators: driver BATCHES THREADS CHECKPOINT */
#include <stdio.h>
#include <stdlib.h>

#include HEADER

#define JOINED(a, b) a##b
#define EXPANDED(a, b) JOINED(a, b)
#define CALL(name) EXPANDED(LIB, name)

static int failed(const LIB *self, int status)
{
    if (status != 0)
        fprintf(stderr, "status %d: %s\n", status, CALL(_last_error)(self));
    return status != 0;
}

int main(int count, char **arguments)
{
    FILE *file = count == 4 ? fopen(arguments[1], "rb") : NULL;
    int threads = count == 4 ? atoi(arguments[2]) : 1;
    size_t bytes = CALL(_bytes)(threads);
    char *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    char *batches = malloc(STEPS * (X_BYTES + Y_BYTES));
    double losses[STEPS], loss;
    LIB *self;
    if (file == NULL || fread(batches, X_BYTES + Y_BYTES, STEPS, file) != STEPS)
        return 2;
    if (failed(NULL, CALL(_init)(memory, bytes, threads, &self)))
        return 1;
    for (int round = 0; round < 2; round++)
        for (int step = round * (STEPS / 2); step < STEPS; step++) {
            const void *x = batches + step * (X_BYTES + Y_BYTES), *y = (const char *)x + X_BYTES;
            if (step == STEPS / 2 && failed(self, round == 0 ? CALL(_save)(self, arguments[3])
                                                             : CALL(_load)(self, arguments[3])))
                return 1;
            if (failed(self, CALL(_step)(self, x, y, &loss)))
                return 1;
            if (round == 0)
                printf("%.9g\n", losses[step] = loss);
            else if (loss != losses[step])
                return 3;
        }
    CALL(_close)(self);
    return 0;
}
