/* Checkpoint: what is kept, in the form that Python's trainer.save gives it: a safetensors file with metadata.
 *
 * Eight bytes of length, a JSON header, tensors one after the other. Its checksum is taken over the metadata, sorted by
 * name, and the tensors, sorted by key, each after what announces it: over the SHA-256s of their parts.
 */
#include "instance.h"

/* ---- the checksum -------------------------------------------------------------------------------------------- */

void pb_checksum_begin(pb_checksum *checksum, int32_t in_parts)
{
    pb_sha256_begin(&checksum->all);
    pb_sha256_begin(&checksum->part);
    checksum->in_parts = in_parts;
}

pb_status pb_checksum_entry(pb_model *model, pb_checksum *checksum, const char *name, size_t name_length,
                            const char *text, size_t length)
{
    pb_sha256 *digest = &checksum->all;
    int32_t unknown = pb_sha256_add_repr(digest, name, name_length);
    pb_sha256_add(digest, "=", 1);
    if (unknown == 0)
        unknown = pb_sha256_add_repr(digest, text, length);
    pb_sha256_add(digest, ";", 1);
    if (unknown != 0)
        return pb_refuse(model, PB_ERROR_CHECKPOINT, PB_TEXT("the checksum cannot be computed: the metadata entry "),
                         PB_QUOTED(name, name_length), PB_TEXT(" holds the character number "), PB_INTEGER(unknown),
                         PB_TEXT(", and it is not known here whether Python shows that"));
    return PB_OK;
}

void pb_checksum_announce(pb_checksum *checksum, const pb_tensor *tensor)
{
    pb_sha256_add(&checksum->all, tensor->announced, strlen(tensor->announced));
}

static void end_part(pb_checksum *checksum)
{
    uint8_t bytes[32];
    pb_sha256_end(&checksum->part, bytes);
    pb_sha256_add(&checksum->all, bytes, sizeof bytes);
    pb_sha256_begin(&checksum->part);
}

void pb_checksum_add(pb_checksum *checksum, const void *bytes, size_t count)
{
    const char *next = bytes;
    if (!checksum->in_parts)
        pb_sha256_add(&checksum->all, bytes, count);
    while (checksum->in_parts && count > 0) {
        size_t room = PB_PART_BYTES - (size_t)checksum->part.length, some = count < room ? count : room;
        pb_sha256_add(&checksum->part, next, some);
        if (some == room)
            end_part(checksum);
        next += some;
        count -= some;
    }
}

void pb_checksum_end_tensor(pb_checksum *checksum)
{
    if (checksum->part.length > 0)
        end_part(checksum);
}

void pb_checksum_end(pb_checksum *checksum, char hexadecimal[65])
{
    pb_sha256_end_text(&checksum->all, hexadecimal);
}

/* ---- metadata ------------------------------------------------------------------------------------------------ */

/* The entries that change. */
struct own_metadata {
    char epochs[24], random[240], steps[24];
};

/* As json.dumps writes NumPy's state. */
static void compose_random(const pb_random *random, char *buffer, size_t size)
{
    pb_text text = {buffer, size, 0, 0};
    pb_text_add(&text, "{\"bit_generator\": \"PCG64\", \"state\": {\"state\": ");
    pb_text_add_wide(&text, random->state);
    pb_text_add(&text, ", \"inc\": ");
    pb_text_add_wide(&text, random->increment);
    pb_text_add(&text, "}, \"has_uint32\": ");
    pb_text_add_unsigned(&text, random->has_word);
    pb_text_add(&text, ", \"uinteger\": ");
    pb_text_add_unsigned(&text, random->word);
    pb_text_add(&text, "}");
}

static void compose_own(const pb_model *model, struct own_metadata *own)
{
    pb_text epochs = {own->epochs, sizeof own->epochs, 0, 0}, steps = {own->steps, sizeof own->steps, 0, 0};
    pb_text_add_integer(&epochs, model->epochs);
    pb_text_add_integer(&steps, pb_model_steps(model));
    compose_random(&model->random, own->random, sizeof own->random);
}

typedef pb_status (*entry_function)(pb_model *model, void *to, const char *name, const char *text);

/* Calls a function with each entry of the metadata but the checksum, in the order of their names. */
static pb_status each_entry(pb_model *model, const struct own_metadata *own, entry_function function, void *to)
{
    const char *const names[] = {"epochs", "random", "steps"}, *const texts[] = {own->epochs, own->random, own->steps};
    const pb_program *program = model->program;
    pb_status status = PB_OK;
    for (int32_t i = 0, k = 0; (i < program->metadata_count || k < 3) && status == PB_OK;) {
        const pb_entry_text *fixed = i < program->metadata_count ? &program->metadata[i] : NULL;
        if (fixed == NULL || (k < 3 && strcmp(names[k], fixed->name) < 0)) {
            status = function(model, to, names[k], texts[k]);
            k++;
        } else {
            status = function(model, to, fixed->name, fixed->text);
            i++;
        }
    }
    return status;
}

static pb_status digest_entry(pb_model *model, void *checksum, const char *name, const char *text)
{
    return pb_checksum_entry(model, checksum, name, strlen(name), text, strlen(text));
}

static pb_status digest_all(pb_model *model, const struct own_metadata *own, char hexadecimal[65])
{
    const pb_program *program = model->program;
    pb_checksum checksum;
    pb_status status;
    pb_checksum_begin(&checksum, 1);
    status = each_entry(model, own, digest_entry, &checksum);
    for (int32_t i = 0; i < program->kept_count; i++) {
        const pb_tensor *tensor = pb_kept(program, program->sorted[i]);
        pb_checksum_announce(&checksum, tensor);
        pb_checksum_add(&checksum, pb_values(model, tensor), (size_t)tensor->bytes);
        pb_checksum_end_tensor(&checksum);
    }
    pb_checksum_end(&checksum, hexadecimal);
    return status;
}

/* ---- the header ---------------------------------------------------------------------------------------------- */

static void add_quoted_json(pb_text *to, const char *text)
{
    pb_text_add(to, "\"");
    for (; *text != '\0'; text++) {
        char escaped[] = "\\u00xx";
        if (*text == '"' || *text == '\\')
            pb_text_add(to, "\\");
        escaped[4] = "01"[(unsigned char)*text >> 4 & 1];
        escaped[5] = "0123456789abcdef"[*text & 15];
        if ((unsigned char)*text < 0x20)
            pb_text_add(to, escaped);
        else
            pb_text_add_bytes(to, text, 1);
    }
    pb_text_add(to, "\"");
}

static pb_status add_entry(pb_model *model, void *header, const char *name, const char *text)
{
    (void)model;
    add_quoted_json(header, name);
    pb_text_add(header, ":");
    add_quoted_json(header, text);
    pb_text_add(header, ",");
    return PB_OK;
}

static void add_tensor(pb_text *header, const pb_tensor *tensor, int64_t begin)
{
    pb_text_add(header, ",");
    add_quoted_json(header, tensor->key);
    pb_text_add(header, ":{\"dtype\":\"");
    pb_text_add(header, pb_dtype_code(tensor->dtype));
    pb_text_add(header, "\",\"shape\":[");
    for (int i = 0; i < tensor->rank; i++) {
        pb_text_add(header, i > 0 ? "," : "");
        pb_text_add_integer(header, tensor->shape[i]);
    }
    pb_text_add(header, "],\"data_offsets\":[");
    pb_text_add_integer(header, begin);
    pb_text_add(header, ",");
    pb_text_add_integer(header, begin + tensor->bytes);
    pb_text_add(header, "]}");
}

/* Number `place` of the tensors in a file: those of wide elements first, so that all are aligned. NULL behind the last.
 * `*size` and `*place` are what the next call takes; they begin as 8 and 0. */
static const pb_tensor *next_tensor(const pb_program *program, int64_t *size, int32_t *place)
{
    for (; *size > 0; *size /= 2, *place = 0)
        while (*place < program->kept_count) {
            const pb_tensor *tensor = pb_kept(program, program->sorted[(*place)++]);
            if (pb_dtype_bytes(tensor->dtype) == *size)
                return tensor;
        }
    return NULL;
}

static void compose_header(pb_model *model, const struct own_metadata *own, const char *hexadecimal, pb_text *header)
{
    const pb_tensor *tensor;
    int64_t size = 8, begin = 0;
    int32_t place = 0;
    pb_text_add(header, "{\"__metadata__\":{");
    each_entry(model, own, add_entry, header);
    pb_text_add(header, "\"sha256\":\"");
    pb_text_add(header, hexadecimal);
    pb_text_add(header, "\"}");
    while ((tensor = next_tensor(model->program, &size, &place)) != NULL) {
        add_tensor(header, tensor, begin);
        begin += tensor->bytes;
    }
    pb_text_add(header, "}");
    while (header->length % 8 != 0 && !header->is_cut)
        pb_text_add(header, " ");
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

int64_t pb_model_checkpoint_bytes(const pb_model *model)
{
    int64_t bytes = model == NULL ? 0 : 8 + model->program->header_bytes;
    for (int32_t i = 0; model != NULL && i < model->program->kept_count; i++)
        bytes += pb_kept(model->program, i)->bytes;
    return bytes;
}

struct output {
    pb_write write;
    void *context;
    int64_t written;
};

static pb_status write_bytes(pb_model *model, struct output *output, const void *bytes, size_t count)
{
    int failure = count > 0 ? output->write(output->context, bytes, count) : 0;
    if (failure != 0)
        return pb_refuse(model, PB_ERROR_FILE, PB_TEXT("the function that writes returned "), PB_INTEGER(failure),
                         PB_TEXT(" after "), PB_INTEGER(output->written), PB_TEXT(" bytes"));
    output->written += (int64_t)count;
    return PB_OK;
}

static pb_status write_all(pb_model *model, struct output *output)
{
    struct own_metadata own;
    pb_text header = {model->arena, (size_t)model->program->header_bytes + 1, 0, 0};
    char hexadecimal[65];
    uint8_t length[8];
    const pb_tensor *tensor;
    int64_t size = 8;
    int32_t place = 0;
    pb_status status;
    compose_own(model, &own);
    status = digest_all(model, &own, hexadecimal);
    if (status != PB_OK)
        return status;
    compose_header(model, &own, hexadecimal, &header);
    if (header.is_cut)
        return pb_refuse(model, PB_ERROR_CHECKPOINT, PB_TEXT("the header does not fit in the "),
                         PB_INTEGER(model->program->header_bytes), PB_TEXT(" bytes that the library has for it"));
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)header.length >> 8 * i);
    status = write_bytes(model, output, length, sizeof length);
    if (status == PB_OK)
        status = write_bytes(model, output, header.buffer, header.length);
    while (status == PB_OK && (tensor = next_tensor(model->program, &size, &place)) != NULL)
        status = write_bytes(model, output, pb_values(model, tensor), (size_t)tensor->bytes);
    return status;
}

pb_status pb_write_checkpoint(pb_model *model, pb_write write, void *context, int64_t *written)
{
    struct output output = {write, context, 0};
    pb_status status;
    if (write == NULL)
        return pb_refuse(model, PB_ERROR_ARGUMENT, PB_TEXT("the function that writes is NULL"));
    status = write_all(model, &output);
    if (status == PB_OK && written != NULL)
        *written = output.written;
    return status;
}

pb_status pb_model_write(pb_model *model, pb_write write, void *context, int64_t *written)
{
    pb_status status = pb_enter(model, 1);
    return status != PB_OK ? status : pb_leave(model, pb_write_checkpoint(model, write, context, written));
}
