/* Evaluate: the mean loss of any number of rows, and the share of those whose largest output is at the right class. */
#include "instance.h"

/* A tensor whose elements along one axis are compared: before it `outer`, along it `classes`, behind it `inner`. */
struct scores {
    const char *values;
    int64_t outer, classes, inner;
    int32_t dtype;
};

static struct scores scores_of(const pb_tensor *tensor, const void *values, int32_t axis, int64_t rows)
{
    struct scores scores = {values, 1, tensor->shape[axis], 1, tensor->dtype};
    for (int32_t i = 0; i < axis; i++)
        scores.outer *= i == 0 && tensor->row_elements > 0 ? rows : tensor->shape[i];
    for (int32_t i = axis + 1; i < tensor->rank; i++)
        scores.inner *= tensor->shape[i];
    return scores;
}

static double score_at(const struct scores *scores, int64_t element)
{
    return pb_real_at(scores->values + element * pb_dtype_bytes(scores->dtype), scores->dtype);
}

/* The first of the largest scores; one that is no number counts as the largest, as in NumPy. */
static int64_t largest(const struct scores *scores, int64_t place)
{
    int64_t element = place / scores->inner * scores->classes * scores->inner + place % scores->inner, best = 0;
    double most = score_at(scores, element);
    for (int64_t i = 1; i < scores->classes && most == most; i++) {
        double score = score_at(scores, element + i * scores->inner);
        if (!(score <= most)) {
            most = score;
            best = i;
        }
    }
    return best;
}

/* A class number; labels are integers. */
static int64_t label_at(const char *labels, int32_t dtype, int64_t element)
{
    int64_t label = -1;
    pb_convert(labels + element * pb_dtype_bytes(dtype), dtype, &label, PB_INT64, 1);
    return label;
}

struct counts {
    int64_t right, all;
};

/* Compares the first output of the function called last with the first target. */
static void count_right(const pb_model *model, const pb_function *function, struct counts *counts)
{
    const pb_program *program = model->program;
    const pb_tensor *target = &program->tensors[program->input_count];
    const pb_tensor *output = target + program->target_count;
    const char *labels = model->at[program->input_count];
    struct scores found = scores_of(output, model->results + function->outputs[0], program->classes, function->rows);
    int is_label = target->rank < output->rank; /* else a number for each class, of which the largest counts */
    struct scores wanted = is_label ? found : scores_of(target, labels, program->classes, function->rows);
    for (int64_t i = 0; i < found.outer * found.inner; i++) {
        int64_t label = is_label ? label_at(labels, target->dtype, i) : largest(&wanted, i);
        if (program->has_ignored && label == program->ignored)
            continue;
        counts->right += label == largest(&found, i);
        counts->all++;
    }
}

static pb_status evaluate_all(pb_model *model, const pb_data_column *columns, int64_t rows, double *loss,
                              double *accuracy)
{
    const pb_program *program = model->program;
    int has_classes = accuracy != NULL && program->classes >= 0 && program->target_count > 0;
    pb_mean mean = {0, 0, 0};
    struct counts counts = {0, 0};
    pb_status status = pb_check_rows(model, &program->evaluate, &program->evaluate_one, rows, "evaluates");
    if (status == PB_OK)
        status = pb_take_columns(model, columns, 1, rows);
    for (int64_t done = 0; done < rows && status == PB_OK;) {
        const pb_function *function = pb_function_of(&program->evaluate, &program->evaluate_one, rows - done);
        status = pb_take_batch(model, 1, done, function->rows, NULL);
        if (status == PB_OK)
            status = pb_call_function(model, function, 0);
        if (status != PB_OK)
            break;
        pb_mean_add(&mean, model, function);
        if (has_classes && function->outputs != NULL)
            count_right(model, function, &counts);
        done += function->rows;
    }
    if (status == PB_OK && loss != NULL)
        *loss = pb_mean_of(&mean, program);
    if (status == PB_OK && accuracy != NULL)
        *accuracy = counts.all > 0 ? (double)counts.right / (double)counts.all : pb_not_a_number();
    return status;
}

pb_status pb_model_evaluate(pb_model *model, const pb_data_column *columns, int64_t rows, double *loss,
                            double *accuracy)
{
    pb_status status = pb_enter(model, 1);
    return status != PB_OK ? status : pb_leave(model, evaluate_all(model, columns, rows, loss, accuracy));
}
