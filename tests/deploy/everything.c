/* All that an instance of an exported library does (LIB, included by HEADER, with its dtypes FLOAT32 and INT64; images
 * of IMAGE floats, CLASSES classes), for valgrind: everything THREADS CHECKPOINT. Prints the last loss. */
#include <stdio.h>
#include <stdlib.h>

#include HEADER

#define JOINED(a, b) a##b
#define EXPANDED(a, b) JOINED(a, b)
#define CALL(name) EXPANDED(LIB, name)

enum { ROWS = 37 };

static void check(LIB *self, int status)
{
    if (status != 0) {
        fprintf(stderr, "status %d: %s\n", status, CALL(_last_error)(self));
        exit(1);
    }
}

/* Blocks of their own, so that a read behind their end is noticed. */
int main(int count, char **arguments)
{
    int threads = count == 3 ? atoi(arguments[1]) : 1;
    size_t bytes = CALL(_bytes)(threads);
    char *memory = aligned_alloc(64, bytes);
    float *images = malloc(sizeof *images * ROWS * IMAGE), *scores = malloc(sizeof *scores * ROWS * CLASSES);
    int64_t *labels = malloc(sizeof *labels * ROWS);
    int32_t *order = malloc(sizeof *order * ROWS);
    CALL(_column) columns[] = {{images, FLOAT32}, {labels, INT64}};
    CALL(_run_options) options = {.epochs = 2, .order = order};
    double loss, accuracy;
    int64_t parameters;
    float *values;
    LIB *self;
    if (count != 3 || memory == NULL || CALL(_init)(memory, bytes, threads, &self) != 0)
        return 2;
    for (int row = 0; row < ROWS; row++) {
        labels[row] = row % CLASSES;
        for (int i = 0; i < IMAGE; i++)
            images[row * IMAGE + i] = (float)((row * 31 + i * 7) % 17) / 16;
    }
    parameters = CALL(_parameter_count)(self);
    values = malloc(sizeof *values * (size_t)parameters);
    check(self, CALL(_step)(self, images, labels, &loss));
    check(self, CALL(_run)(self, columns, ROWS, &options));
    check(self, CALL(_predict)(self, images, ROWS, scores));
    check(self, CALL(_evaluate)(self, columns, ROWS, &loss, &accuracy));
    check(self, CALL(_get_parameters)(self, values, parameters));
    check(self, CALL(_add_parameters)(self, values, parameters, -0.5));
    check(self, CALL(_save)(self, arguments[2]));
    check(self, CALL(_seed)(self, 3));
    check(self, CALL(_run)(self, columns, ROWS, &options));
    check(self, CALL(_reset)(self));
    check(self, CALL(_load)(self, arguments[2]));
    check(self, CALL(_evaluate)(self, columns, ROWS, &loss, &accuracy));
    printf("%.9g %.9g\n", loss, scores[ROWS * CLASSES - 1]);
    labels[0] = CLASSES;
    if (CALL(_step)(self, images, labels, &loss) == 0 || CALL(_load)(self, "/nonexistent") == 0)
        return 3;
    CALL(_close)(self);
    free(memory);
    free(images);
    free(scores);
    free(labels);
    free(order);
    free(values);
    return 0;
}
