/* Reading of checkpoints. Anybody may have written one, so all of the header is checked before any of it is believed,
 * and nothing of the instance is changed before the checksum was right.
 *
 * The header and what is noted of it lie in the arena, which is free between calls. Tensors are read twice: for the
 * checksum, and, when that is right, to where they belong, with the checksum again.
 */
#include "instance.h"

enum { MOST_ENTRIES = 64, MOST_AXES = 64, LEAST_CHUNK = 1024 };

struct entry {
    pb_span name, text;
};

struct reading {
    pb_model *model;
    pb_read read;
    void *context;
    int64_t size, first; /* of the file; where its tensors begin */
    pb_json json;        /* what is left of the header */
    int64_t *begins;     /* of the kept tensors, counted from `first`; -1: not found yet */
    int32_t *order;      /* of their places */
    struct entry *entries; /* of the metadata, in the file's order */
    int32_t entry_count, has_metadata;
    int32_t in_parts;    /* whether the checksum takes the SHA-256s of parts: not in version 1 */
    pb_span extra;       /* a tensor that is none of this trainer's */
    int32_t other;       /* a tensor that is of another type there; -1: none */
    char *chunk;
    size_t chunk_bytes;
    pb_random random;
    int64_t epochs, steps, steps_in_tensors;
};

/* Divides the arena, if there is one; returns how many bytes are needed. */
static int64_t divide_arena(const pb_program *program, struct reading *reading)
{
    int64_t header = pb_aligned(program->header_bytes + 1);
    int64_t begins = pb_aligned(program->kept_count * (int64_t)sizeof *reading->begins);
    int64_t order = pb_aligned(program->kept_count * (int64_t)sizeof *reading->order);
    int64_t entries = pb_aligned(MOST_ENTRIES * (int64_t)sizeof *reading->entries);
    if (reading != NULL) {
        char *arena = reading->model->arena + header;
        reading->begins = (int64_t *)(void *)arena;
        reading->order = (int32_t *)(void *)(arena += begins);
        reading->entries = (struct entry *)(void *)(arena += order);
        reading->chunk = arena += entries;
        reading->chunk_bytes = reading->model->arena_bytes - (size_t)(arena - reading->model->arena);
    }
    return header + begins + order + entries + LEAST_CHUNK;
}

int64_t pb_checkpoint_arena_bytes(const pb_program *program)
{
    return divide_arena(program, NULL);
}

static pb_status refuse_damaged(struct reading *reading, const char *problem)
{
    return pb_refuse(reading->model, PB_ERROR_CHECKPOINT, PB_TEXT("the checkpoint is damaged: "), PB_TEXT(problem));
}

static pb_status refuse_header(struct reading *reading)
{
    return pb_refuse(reading->model, PB_ERROR_CHECKPOINT,
                     PB_TEXT("it is no checkpoint of pullback, or its header is damaged"));
}

static pb_status read_bytes(struct reading *reading, int64_t offset, void *bytes, size_t count)
{
    int failure = count > 0 ? reading->read(reading->context, offset, bytes, count) : 0;
    if (failure != 0)
        return pb_refuse(reading->model, PB_ERROR_FILE, PB_TEXT("the function that reads returned "),
                         PB_INTEGER(failure), PB_TEXT(" for "), PB_INTEGER((int64_t)count), PB_TEXT(" bytes from "),
                         PB_INTEGER(offset), PB_TEXT(" on"));
    return PB_OK;
}

/* ---- the header: what it says ---------------------------------------------------------------------------------- */

/* Its length, and then all of it to the arena. */
static pb_status read_header(struct reading *reading)
{
    pb_model *model = reading->model;
    uint8_t bytes[8] = {0};
    uint64_t length = 0;
    pb_status status = reading->size < 8 ? PB_OK : read_bytes(reading, 0, bytes, sizeof bytes);
    if (status != PB_OK)
        return status;
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)bytes[i] << 8 * i;
    if (reading->size < 8 || length > (uint64_t)(reading->size - 8))
        return pb_refuse(model, PB_ERROR_CHECKPOINT, PB_TEXT("the checkpoint has "), PB_INTEGER(reading->size),
                         PB_TEXT(" bytes, too few for its header: it is truncated, or none"));
    if (length > (uint64_t)model->program->header_bytes)
        return pb_refuse(model, PB_ERROR_CHECKPOINT, PB_TEXT("the checkpoint's header has "),
                         PB_INTEGER((int64_t)length), PB_TEXT(" bytes, that of this trainer has no more than "),
                         PB_INTEGER(model->program->header_bytes));
    reading->first = 8 + (int64_t)length;
    reading->json = (pb_json){model->arena, model->arena + length};
    return read_bytes(reading, 8, model->arena, (size_t)length);
}

static int is_same(const pb_span *a, const pb_span *b)
{
    return a->length == b->length && memcmp(a->start, b->start, a->length) == 0;
}

/* "name": "text", … } */
static int parse_metadata(struct reading *reading)
{
    pb_json *json = &reading->json;
    if (reading->has_metadata++ || !pb_json_take(json, '{'))
        return 0;
    if (pb_json_take(json, '}'))
        return 1;
    do {
        struct entry *entry = &reading->entries[reading->entry_count];
        if (reading->entry_count == MOST_ENTRIES || !pb_json_text(json, &entry->name) || !pb_json_take(json, ':') ||
            !pb_json_text(json, &entry->text))
            return 0;
        for (int32_t i = 0; i < reading->entry_count; i++)
            if (is_same(&entry->name, &reading->entries[i].name))
                return 0;
        reading->entry_count++;
    } while (pb_json_take(json, ','));
    return pb_json_take(json, '}');
}

/* The number of the kept tensor that a key names; -1 when there is none. */
static int32_t number_of(const pb_program *program, const pb_span *key)
{
    int32_t low = 0, high = program->kept_count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        const char *name = pb_kept(program, program->sorted[middle])->key;
        size_t length = strlen(name), shorter = length < key->length ? length : key->length;
        int order = memcmp(key->start, name, shorter);
        if (order == 0 && length == key->length)
            return program->sorted[middle];
        if (order < 0 || (order == 0 && key->length < length))
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

/* [3, 2]; *is_mine becomes 0 when it is another shape than the tensor's. */
static int parse_shape(pb_json *json, const pb_tensor *tensor, int *is_mine)
{
    int32_t rank = 0;
    if (!pb_json_take(json, '['))
        return 0;
    if (!pb_json_take(json, ']')) {
        do {
            int64_t size;
            if (rank == MOST_AXES || !pb_json_integer(json, &size))
                return 0;
            *is_mine &= tensor != NULL && rank < tensor->rank && tensor->shape[rank] == size;
            rank++;
        } while (pb_json_take(json, ','));
        if (!pb_json_take(json, ']'))
            return 0;
    }
    *is_mine &= tensor != NULL && rank == tensor->rank;
    return 1;
}

/* {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]}, in whatever order */
static int parse_tensor(struct reading *reading, const pb_span *key)
{
    pb_json *json = &reading->json;
    int32_t number = number_of(reading->model->program, key);
    const pb_tensor *tensor = number < 0 ? NULL : pb_kept(reading->model->program, number);
    int has_dtype = 0, has_shape = 0, has_offsets = 0, is_mine = 1;
    int64_t begin = 0, end = 0;
    if (!pb_json_take(json, '{'))
        return 0;
    do {
        pb_span name, code;
        if (!pb_json_text(json, &name) || !pb_json_take(json, ':'))
            return 0;
        if (pb_span_is(&name, "dtype") && !has_dtype++) {
            if (!pb_json_text(json, &code))
                return 0;
            is_mine &= tensor != NULL && pb_span_is(&code, pb_dtype_code(tensor->dtype));
        } else if (pb_span_is(&name, "shape") && !has_shape++) {
            if (!parse_shape(json, tensor, &is_mine))
                return 0;
        } else if (pb_span_is(&name, "data_offsets") && !has_offsets++) {
            if (!pb_json_take(json, '[') || !pb_json_integer(json, &begin) || !pb_json_take(json, ',') ||
                !pb_json_integer(json, &end) || !pb_json_take(json, ']'))
                return 0;
        } else {
            return 0;
        }
    } while (pb_json_take(json, ','));
    if (!pb_json_take(json, '}') || !has_dtype || !has_shape || !has_offsets || end < begin)
        return 0;
    if (tensor == NULL) {
        reading->extra = *key;
        return 1;
    }
    if (reading->begins[number] >= 0 || (is_mine && end - begin != tensor->bytes))
        return 0;
    if (!is_mine && reading->other < 0)
        reading->other = number;
    reading->begins[number] = begin;
    return 1;
}

static int parse_header(struct reading *reading)
{
    pb_json *json = &reading->json;
    if (!pb_json_take(json, '{'))
        return 0;
    if (!pb_json_take(json, '}')) {
        do {
            pb_span key;
            if (!pb_json_text(json, &key) || !pb_json_take(json, ':'))
                return 0;
            if (!(pb_span_is(&key, "__metadata__") ? parse_metadata(reading) : parse_tensor(reading, &key)))
                return 0;
        } while (pb_json_take(json, ','));
        if (!pb_json_take(json, '}'))
            return 0;
    }
    return pb_json_is_at_end(json) && reading->has_metadata;
}

/* ---- the metadata ---------------------------------------------------------------------------------------------- */

static const pb_span *find_entry(const struct reading *reading, const char *name)
{
    for (int32_t i = 0; i < reading->entry_count; i++)
        if (pb_span_is(&reading->entries[i].name, name))
            return &reading->entries[i].text;
    return NULL;
}

static pb_status refuse_entry(struct reading *reading, const char *name, const char *problem)
{
    return pb_refuse(reading->model, PB_ERROR_CHECKPOINT, PB_TEXT("the checkpoint's metadata is damaged: "),
                     PB_TEXT(name), PB_TEXT(" "), PB_TEXT(problem));
}

/* Whether it is the version of a file that is read as well. */
static int is_older(const pb_entry_text *expected, const pb_span *found)
{
    return strcmp(expected->name, "version") == 0 && pb_span_is(found, "1");
}

/* What a file of this trainer says in any case. */
static pb_status check_fixed(struct reading *reading, const pb_entry_text *expected)
{
    const pb_span *found = find_entry(reading, expected->name);
    if (found == NULL)
        return expected->optional ? PB_OK : refuse_entry(reading, expected->name, "is missing");
    if (!expected->must_match || pb_span_is(found, expected->text) || is_older(expected, found))
        return PB_OK;
    return pb_refuse(reading->model, PB_ERROR_CHECKPOINT, PB_TEXT("the checkpoint is another training's: its "),
                     PB_TEXT(expected->name), PB_TEXT(" is "), PB_QUOTED(found->start, found->length),
                     PB_TEXT(", this trainer's is "), PB_QUOTED(expected->text, strlen(expected->text)));
}

/* A counter, which is written without sign, space or leading zero. */
static pb_status parse_count(struct reading *reading, const char *name, int64_t *count)
{
    const pb_span *text = find_entry(reading, name);
    pb_json json;
    if (text == NULL)
        return refuse_entry(reading, name, "is missing");
    json = (pb_json){text->start, text->start + text->length};
    if (text->length == 0 || *text->start < '0' || *text->start > '9' || !pb_json_integer(&json, count) ||
        json.at != json.end || *count >= PB_COUNT_END)
        return refuse_entry(reading, name, "is no number from 0 to 2^62 - 1");
    return PB_OK;
}

/* {"state": 12, "inc": 13}, in either order */
static int parse_pcg64(pb_json *json, pb_random *random)
{
    int has_state = 0, has_increment = 0;
    if (!pb_json_take(json, '{'))
        return 0;
    do {
        pb_span name;
        if (!pb_json_text(json, &name) || !pb_json_take(json, ':'))
            return 0;
        if (pb_span_is(&name, "state") && !has_state++) {
            if (!pb_json_wide(json, random->state))
                return 0;
        } else if (pb_span_is(&name, "inc") && !has_increment++) {
            if (!pb_json_wide(json, random->increment))
                return 0;
        } else {
            return 0;
        }
    } while (pb_json_take(json, ','));
    return pb_json_take(json, '}') && has_state && has_increment && random->increment[1] % 2 == 1;
}

static int parse_word(pb_json *json, int64_t most, uint32_t *word)
{
    int64_t value;
    if (!pb_json_integer(json, &value) || value > most)
        return 0;
    *word = (uint32_t)value;
    return 1;
}

static int parse_random(pb_json *json, pb_random *random)
{
    int has_name = 0, has_state = 0, has_flag = 0, has_word = 0;
    if (!pb_json_take(json, '{'))
        return 0;
    do {
        pb_span name, value;
        if (!pb_json_text(json, &name) || !pb_json_take(json, ':'))
            return 0;
        if (pb_span_is(&name, "bit_generator") && !has_name++) {
            if (!pb_json_text(json, &value) || !pb_span_is(&value, "PCG64"))
                return 0;
        } else if (pb_span_is(&name, "state") && !has_state++) {
            if (!parse_pcg64(json, random))
                return 0;
        } else if (pb_span_is(&name, "has_uint32") && !has_flag++) {
            if (!parse_word(json, 1, &random->has_word))
                return 0;
        } else if (pb_span_is(&name, "uinteger") && !has_word++) {
            if (!parse_word(json, UINT32_MAX, &random->word))
                return 0;
        } else {
            return 0;
        }
    } while (pb_json_take(json, ','));
    return pb_json_take(json, '}') && pb_json_is_at_end(json) && has_name && has_state && has_flag && has_word;
}

/* The generator's text is decoded in a copy: the checksum takes it as it is. */
static pb_status parse_generator(struct reading *reading)
{
    const pb_span *text = find_entry(reading, "random");
    pb_json json;
    if (text == NULL)
        return refuse_entry(reading, "random", "is missing");
    if (text->length > reading->chunk_bytes)
        return refuse_entry(reading, "random", "is no state of PCG64");
    memcpy(reading->chunk, text->start, text->length);
    json = (pb_json){reading->chunk, reading->chunk + text->length};
    return parse_random(&json, &reading->random) ? PB_OK : refuse_entry(reading, "random", "is no state of PCG64");
}

static pb_status check_metadata(struct reading *reading)
{
    const pb_program *program = reading->model->program;
    const pb_span *format = find_entry(reading, "format"), *version = find_entry(reading, "version");
    pb_status status = PB_OK;
    if (format == NULL || version == NULL)
        return refuse_header(reading);
    reading->in_parts = !pb_span_is(version, "1");
    for (int32_t i = 0; i < program->metadata_count && status == PB_OK; i++)
        if (strcmp(program->metadata[i].name, "format") == 0 || strcmp(program->metadata[i].name, "version") == 0)
            status = check_fixed(reading, &program->metadata[i]);
    for (int32_t i = 0; i < program->metadata_count && status == PB_OK; i++)
        status = check_fixed(reading, &program->metadata[i]);
    if (status == PB_OK)
        status = parse_count(reading, "epochs", &reading->epochs);
    if (status == PB_OK)
        status = parse_count(reading, "steps", &reading->steps);
    return status == PB_OK ? parse_generator(reading) : status;
}

/* ---- the table of tensors -------------------------------------------------------------------------------------- */

/* Whether one tensor comes before another in the file: among those of one place, the empty ones. */
static int is_before(const struct reading *reading, int32_t a, int32_t b)
{
    const pb_program *program = reading->model->program;
    int64_t first = reading->begins[a], second = reading->begins[b];
    return first != second ? first < second : pb_kept(program, a)->bytes < pb_kept(program, b)->bytes;
}

static void sift(const struct reading *reading, int32_t at, int32_t count)
{
    int32_t *order = reading->order;
    for (int32_t child; (child = 2 * at + 1) < count; at = child) {
        int32_t moved = order[at];
        if (child + 1 < count && is_before(reading, order[child], order[child + 1]))
            child++;
        if (!is_before(reading, moved, order[child]))
            return;
        order[at] = order[child];
        order[child] = moved;
    }
}

/* Heapsort: it takes no memory, and no file makes it slow. */
static void sort_by_place(const struct reading *reading)
{
    int32_t count = reading->model->program->kept_count, *order = reading->order;
    for (int32_t i = 0; i < count; i++)
        order[i] = i;
    for (int32_t i = count / 2 - 1; i >= 0; i--)
        sift(reading, i, count);
    for (int32_t i = count - 1; i > 0; i--) {
        int32_t last = order[i];
        order[i] = order[0];
        order[0] = last;
        sift(reading, 0, i);
    }
}

/* All of this trainer's tensors, and no others, lie one after the other and fill the file. */
static pb_status check_tensors(struct reading *reading)
{
    const pb_program *program = reading->model->program;
    int64_t end = 0;
    if (reading->extra.start != NULL)
        return pb_refuse(reading->model, PB_ERROR_CHECKPOINT, PB_TEXT("the checkpoint holds "),
                         PB_QUOTED(reading->extra.start, reading->extra.length),
                         PB_TEXT(", which this trainer does not have"));
    for (int32_t i = 0; i < program->kept_count; i++)
        if (reading->begins[i] < 0)
            return pb_refuse(reading->model, PB_ERROR_CHECKPOINT, PB_TEXT("the checkpoint lacks "),
                             PB_TEXT(pb_kept(program, i)->key));
    if (reading->other >= 0)
        return pb_refuse(reading->model, PB_ERROR_CHECKPOINT, PB_TEXT(pb_kept(program, reading->other)->key),
                         PB_TEXT(" is of another shape or dtype in the checkpoint than in this trainer, whose checksum"
                                 " names it "), PB_TEXT(pb_kept(program, reading->other)->announced));
    sort_by_place(reading);
    for (int32_t i = 0; i < program->kept_count; i++) {
        if (reading->begins[reading->order[i]] != end)
            return pb_refuse(reading->model, PB_ERROR_CHECKPOINT, PB_TEXT("the checkpoint is truncated or damaged: "),
                             PB_TEXT(pb_kept(program, reading->order[i])->key),
                             PB_TEXT(" does not begin where the tensor before it ends"));
        end += pb_kept(program, reading->order[i])->bytes;
    }
    if (end != reading->size - reading->first)
        return pb_refuse(reading->model, PB_ERROR_CHECKPOINT, PB_TEXT("the checkpoint is truncated or damaged: "),
                         PB_INTEGER(end), PB_TEXT(" bytes of tensors are announced, "),
                         PB_INTEGER(reading->size - reading->first), PB_TEXT(" follow the header"));
    return PB_OK;
}

/* ---- the tensors ----------------------------------------------------------------------------------------------- */

static int compare(const pb_span *a, const pb_span *b)
{
    size_t shorter = a->length < b->length ? a->length : b->length;
    int order = memcmp(a->start, b->start, shorter);
    return order != 0 ? order : (a->length > b->length) - (a->length < b->length);
}

/* All entries but the checksum, in the order of their names. */
static pb_status digest_metadata(struct reading *reading, pb_checksum *checksum)
{
    const struct entry *last = NULL;
    pb_status status = PB_OK;
    for (;;) {
        const struct entry *next = NULL;
        for (int32_t i = 0; i < reading->entry_count; i++) {
            const struct entry *entry = &reading->entries[i];
            if (!pb_span_is(&entry->name, "sha256") && (last == NULL || compare(&entry->name, &last->name) > 0) &&
                (next == NULL || compare(&entry->name, &next->name) < 0))
                next = entry;
        }
        if (next == NULL || status != PB_OK)
            return status;
        status = pb_checksum_entry(reading->model, checksum, next->name.start, next->name.length, next->text.start,
                                   next->text.length);
        last = next;
    }
}

/* Whether a part of a tensor has the values that are folded into the functions. */
static pb_status check_constant(pb_model *model, const pb_tensor *tensor, int64_t offset, const char *part, size_t count)
{
    if (memcmp((const char *)tensor->constant + offset, part, count) == 0)
        return PB_OK;
    return pb_refuse(model, PB_ERROR_CHECKPOINT, PB_TEXT(tensor->name),
                     PB_TEXT(" has other values in the checkpoint than those that are part of the library, which was"
                             " exported with fold_frozen: export it again with the new ones"));
}

/* One tensor, to its place or, part by part, for the checksum alone. *bad: what its values are refused with. */
static pb_status read_tensor(struct reading *reading, int32_t number, int to_its_place, pb_checksum *checksum,
                             pb_status *bad)
{
    pb_model *model = reading->model;
    const pb_tensor *tensor = pb_kept(model->program, number);
    to_its_place &= tensor->constant == NULL;
    pb_checksum_announce(checksum, tensor);
    for (int64_t done = 0; done < tensor->bytes;) {
        int64_t left = tensor->bytes - done;
        size_t some = to_its_place || left < (int64_t)reading->chunk_bytes ? (size_t)left : reading->chunk_bytes;
        char *part = to_its_place ? model->kept + tensor->offset + done : reading->chunk;
        pb_status status = read_bytes(reading, reading->first + reading->begins[number] + done, part, some);
        if (status != PB_OK)
            return status;
        pb_checksum_add(checksum, part, some);
        if (*bad == PB_OK && tensor->constant != NULL)
            *bad = check_constant(model, tensor, done, part, some);
        if (*bad == PB_OK && !to_its_place)
            *bad = pb_check_values(model, number, part, some, PB_ERROR_CHECKPOINT);
        if (number == model->program->steps)
            memcpy(&reading->steps_in_tensors, part, sizeof reading->steps_in_tensors);
        done += (int64_t)some;
    }
    pb_checksum_end_tensor(checksum);
    return PB_OK;
}

/* Reads all tensors; *is_right: whether the checksum is that of the metadata. */
static pb_status read_tensors(struct reading *reading, int to_their_places, int *is_right, pb_status *bad)
{
    const pb_program *program = reading->model->program;
    const pb_span *expected = find_entry(reading, "sha256");
    pb_checksum checksum;
    pb_status status;
    char hexadecimal[65];
    pb_checksum_begin(&checksum, reading->in_parts);
    status = digest_metadata(reading, &checksum);
    for (int32_t i = 0; i < program->kept_count && status == PB_OK; i++)
        status = read_tensor(reading, program->sorted[i], to_their_places, &checksum, bad);
    pb_checksum_end(&checksum, hexadecimal);
    *is_right = status == PB_OK && expected != NULL && pb_span_is(expected, hexadecimal);
    return status;
}

static pb_status check_values(struct reading *reading)
{
    int is_right;
    pb_status bad = PB_OK, status = read_tensors(reading, 0, &is_right, &bad);
    if (status != PB_OK)
        return status;
    if (!is_right)
        return refuse_damaged(reading, "its contents do not match their SHA-256");
    if (bad == PB_OK && reading->steps != reading->steps_in_tensors)
        return pb_refuse(reading->model, PB_ERROR_CHECKPOINT, PB_TEXT("the checkpoint was saved after "),
                         PB_INTEGER(reading->steps_in_tensors), PB_TEXT(" steps, its metadata says "),
                         PB_INTEGER(reading->steps));
    return bad;
}

/* Once it is known to be right. Until the end, the instance's values are a mixture. */
static pb_status take_values(struct reading *reading)
{
    pb_model *model = reading->model;
    int is_right;
    pb_status ignored = PB_OK;
    model->lacks = PB_LACKS_UNITY;
    if (read_tensors(reading, 1, &is_right, &ignored) != PB_OK || !is_right)
        return pb_refuse(model, PB_ERROR_CHECKPOINT, PB_TEXT("the checkpoint changed, or could no longer be read, while"
                         " its values were taken: the instance holds a mixture; read a whole one, or reset"));
    model->random = reading->random;
    model->epochs = reading->epochs;
    model->lacks = PB_LACKS_NOTHING;
    return PB_OK;
}

static pb_status read_all(struct reading *reading)
{
    pb_status status = read_header(reading);
    if (status == PB_OK && !parse_header(reading))
        status = refuse_header(reading);
    if (status == PB_OK)
        status = check_metadata(reading);
    if (status == PB_OK)
        status = check_tensors(reading);
    if (status == PB_OK)
        status = check_values(reading);
    return status == PB_OK ? take_values(reading) : status;
}

pb_status pb_read_checkpoint(pb_model *model, pb_read read, void *context, int64_t size)
{
    struct reading reading = {.model = model, .read = read, .context = context, .size = size, .other = -1};
    if (read == NULL)
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the function that reads is NULL"));
    if (size < 0)
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the size must not be negative, got "), PB_INTEGER(size));
    divide_arena(model->program, &reading);
    for (int32_t i = 0; i < model->program->kept_count; i++)
        reading.begins[i] = -1;
    return read_all(&reading);
}

pb_status pb_model_read(pb_model *model, pb_read read, void *context, int64_t size)
{
    pb_status status = pb_enter(model, 0);
    return status != PB_OK ? status : pb_leave(model, pb_read_checkpoint(model, read, context, size));
}
