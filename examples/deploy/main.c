/* Goes on training where Python stopped, on images of this device, and keeps what it learns:
 *
 *     python train.py dist
 *     cc -std=c11 -O2 main.c -Idist dist/libdigits.a -pthread -o main
 *     ./main images.bin labels.bin digits.safetensors
 *
 * Each run starts from the checkpoint that the last one has left.
 */
#include <stdio.h>
#include <stdlib.h>

#include "digits.h"

#define IMAGES 297
#define THREADS 1

static float images[IMAGES][DIGITS_INPUT_ROW];
static int64_t labels[IMAGES];
static int32_t order[IMAGES];

static void read_file(const char *path, void *to, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(to, 1, bytes, file) != bytes) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    fclose(file);
}

static void check(digits *self, digits_status status)
{
    if (status != DIGITS_OK) {
        fprintf(stderr, "error: %s\n", self == NULL ? digits_status_text(status) : digits_last_error(self));
        exit(1);
    }
}

static int report(void *context, int64_t step, int64_t epoch, int epoch_ended, double loss)
{
    (void)context;
    if (epoch_ended)
        printf("epoch %lld, %lld steps: loss %.4f\n", (long long)epoch, (long long)step, loss);
    return 0; /* anything else ends the run */
}

int main(int argc, char **argv)
{
    size_t bytes = digits_bytes(THREADS);
    void *memory = aligned_alloc(DIGITS_ALIGNMENT, bytes); /* all the memory there will be */
    digits *self = NULL;
    digits_column columns[] = {{images, DIGITS_FLOAT32}, {labels, DIGITS_INT64}};
    digits_run_options options = {.epochs = 3, .order = order, .progress = report};
    float scores[DIGITS_OUTPUT_ROW];
    double loss, accuracy;
    FILE *earlier;

    if (argc != 4) {
        fprintf(stderr, "usage: main IMAGES LABELS CHECKPOINT\n");
        return 2;
    }
    read_file(argv[1], images, sizeof images);
    read_file(argv[2], labels, sizeof labels);
    check(NULL, digits_init(memory, bytes, THREADS, &self));
    if ((earlier = fopen(argv[3], "rb")) != NULL) {
        fclose(earlier);
        check(self, digits_load(self, argv[3]));
    }
    check(self, digits_evaluate(self, columns, IMAGES, &loss, &accuracy));
    printf("after %lld steps: loss %.4f, accuracy %.3f\n", (long long)digits_steps(self), loss, accuracy);

    check(self, digits_set_hyperparameter(self, "lr", 1e-3));
    check(self, digits_run(self, columns, IMAGES, &options));
    check(self, digits_evaluate(self, columns, IMAGES, &loss, &accuracy));
    printf("after %lld steps: loss %.4f, accuracy %.3f\n", (long long)digits_steps(self), loss, accuracy);

    check(self, digits_predict(self, images[0], 1, scores));
    for (int k = 0; k < DIGITS_OUTPUT_ROW; k++)
        printf("%s%.2f", k == 0 ? "scores of the first: " : " ", scores[k]);
    printf("\n");
    check(self, digits_save(self, argv[3]));
    digits_close(self);
    free(memory);
    return 0;
}
