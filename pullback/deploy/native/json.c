/* JSON: a strict reader of what headers of checkpoints hold, texts and whole numbers; it decodes texts where they
 * stand, and allocates nothing.
 *
 * A caller takes what it expects, piece by piece, and whatever else comes is an error. So nothing is skipped, nothing
 * nests deeper than expected, and of two equal keys the caller sees both.
 */
#include "instance.h"

static void skip_space(pb_json *json)
{
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
        json->at++;
}

int pb_json_take(pb_json *json, char character)
{
    skip_space(json);
    if (json->at == json->end || *json->at != character)
        return 0;
    json->at++;
    return 1;
}

int pb_json_is_at_end(pb_json *json)
{
    skip_space(json);
    return json->at == json->end;
}

/* ---- texts --------------------------------------------------------------------------------------------------- */

/* Four hexadecimal digits; -1 when they are none. */
static int32_t code_unit(pb_json *json)
{
    int32_t unit = 0;
    if (json->end - json->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = *json->at++;
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

/* What follows \u: half of a pair alone stays what it is, as in Python. */
static int32_t unicode_escape(pb_json *json)
{
    int32_t code = code_unit(json), low;
    pb_json behind;
    if (code < 0xd800 || code > 0xdbff || json->end - json->at < 6 || json->at[0] != '\\' || json->at[1] != 'u')
        return code;
    behind = (pb_json){json->at + 2, json->end};
    low = code_unit(&behind);
    if (low < 0xdc00 || low > 0xdfff)
        return code;
    *json = behind;
    return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
}

static int32_t escape(pb_json *json)
{
    if (json->at == json->end)
        return -1;
    switch (*json->at++) {
    case '"': return '"';
    case '\\': return '\\';
    case '/': return '/';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'u': return unicode_escape(json);
    default: return -1;
    }
}

static char *encode(char *to, int32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 63));
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    }
    return to;
}

int32_t pb_code_point(const char **at, const char *end)
{
    static const int32_t least[] = {0, 0x80, 0x800, 0x10000};
    uint8_t first = (uint8_t)*(*at)++;
    int more = first < 0x80 ? 0 : first >= 0xc0 && first < 0xe0 ? 1 : first >= 0xe0 && first < 0xf0 ? 2
               : first >= 0xf0 && first < 0xf8 ? 3 : -1;
    int32_t code = more == 0 ? first : first & (0x3f >> (more > 0 ? more : 0));
    if (more < 0 || end - *at < more)
        return -1;
    for (int i = 0; i < more; i++) {
        uint8_t next = (uint8_t)*(*at)++;
        if (next >> 6 != 2)
            return -1;
        code = code << 6 | (next & 63);
    }
    return code < least[more] || code > 0x10ffff ? -1 : code;
}

int pb_json_text(pb_json *json, pb_span *text)
{
    char *to;
    if (!pb_json_take(json, '"'))
        return 0;
    to = text->start = json->at;
    while (json->at < json->end && *json->at != '"') {
        int32_t code;
        if (*json->at == '\\') {
            json->at++;
            code = escape(json);
        } else {
            const char *at = json->at;
            code = pb_code_point(&at, json->end);
            json->at += at - json->at;
            if (code < 0x20 || (code >= 0xd800 && code <= 0xdfff))
                return 0;
        }
        if (code < 0)
            return 0;
        to = encode(to, code); /* never longer than what stood there */
    }
    text->length = (size_t)(to - text->start);
    return pb_json_take(json, '"');
}

/* ---- numbers ------------------------------------------------------------------------------------------------- */

/* number = 10 number + digit; returns whether it still has 128 bits. */
static int append_digit(uint64_t number[2], unsigned digit)
{
    uint32_t limbs[4] = {(uint32_t)number[1], (uint32_t)(number[1] >> 32), (uint32_t)number[0],
                         (uint32_t)(number[0] >> 32)};
    uint64_t carry = digit;
    for (int i = 0; i < 4; i++) {
        carry += (uint64_t)limbs[i] * 10;
        limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    number[1] = limbs[0] | (uint64_t)limbs[1] << 32;
    number[0] = limbs[2] | (uint64_t)limbs[3] << 32;
    return carry == 0;
}

int pb_json_wide(pb_json *json, uint64_t number[2])
{
    char *first;
    skip_space(json);
    number[0] = number[1] = 0;
    for (first = json->at; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++)
        if (!append_digit(number, (unsigned)(*json->at - '0')))
            return 0;
    return json->at > first && (*first != '0' || json->at == first + 1);
}

int pb_json_integer(pb_json *json, int64_t *number)
{
    uint64_t wide[2];
    if (!pb_json_wide(json, wide) || wide[0] != 0 || wide[1] > INT64_MAX)
        return 0;
    *number = (int64_t)wide[1];
    return 1;
}

int pb_span_is(const pb_span *span, const char *text)
{
    size_t i = 0;
    while (i < span->length && text[i] != '\0' && text[i] == span->start[i])
        i++;
    return i == span->length && text[i] == '\0';
}
