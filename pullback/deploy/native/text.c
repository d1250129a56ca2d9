/* Text: what it is composed of, appended piece by piece. */
#include "text.h"

#include "../../runtime/native/bytes.h"

enum { DIGITS = 6, LONGEST_QUOTED = 60, LONGEST_PATH_SHOWN = 300 };

void pb_text_add_bytes(pb_text *text, const char *value, size_t length)
{
    size_t room = text->size - 1 - text->length;
    if (length > room) {
        text->is_cut = 1;
        length = room;
    }
    if (length > 0)
        memcpy(text->buffer + text->length, value, length);
    text->length += length;
    text->buffer[text->length] = '\0';
}

void pb_text_add(pb_text *text, const char *value)
{
    pb_text_add_bytes(text, value, strlen(value));
}

void pb_text_add_unsigned(pb_text *text, uint64_t value)
{
    char digits[20];
    size_t first = sizeof digits;
    do
        digits[--first] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    pb_text_add_bytes(text, digits + first, sizeof digits - first);
}

void pb_text_add_integer(pb_text *text, int64_t value)
{
    if (value < 0)
        pb_text_add(text, "-");
    pb_text_add_unsigned(text, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void pb_text_add_wide(pb_text *text, const uint64_t value[2])
{
    uint32_t limbs[4] = {(uint32_t)(value[0] >> 32), (uint32_t)value[0], (uint32_t)(value[1] >> 32),
                         (uint32_t)value[1]};
    char digits[39];
    size_t first = sizeof digits;
    do {
        uint64_t rest = 0;
        for (int i = 0; i < 4; i++) {
            rest = rest << 32 | limbs[i];
            limbs[i] = (uint32_t)(rest / 10);
            rest %= 10;
        }
        digits[--first] = (char)('0' + rest);
    } while ((limbs[0] | limbs[1] | limbs[2] | limbs[3]) != 0);
    pb_text_add_bytes(text, digits + first, sizeof digits - first);
}

/* `value` = its result × 10^*exponent, 1 <= result < 10. */
static double normalized(double value, int *exponent)
{
    static const double powers[] = {1e1, 1e2, 1e4, 1e8, 1e16, 1e32, 1e64, 1e128, 1e256};
    *exponent = 0;
    if (value < 1e-256) { /* what is subnormal gets its digits first */
        value *= 1e256;
        *exponent = -256;
    }
    for (int i = 8; i >= 0; i--)
        if (value >= powers[i]) {
            value /= powers[i];
            *exponent += 1 << i;
        }
    for (int i = 8; i >= 0; i--)
        if (value * powers[i] < 10) {
            value *= powers[i];
            *exponent -= 1 << i;
        }
    return value;
}

/* The first digits of a number >= 0, rounded, as an integer below 10^DIGITS. */
static uint32_t leading_digits(double value, int *exponent)
{
    uint32_t digits;
    *exponent = 0;
    if (value == 0)
        return 0;
    value = normalized(value, exponent) * 1e5; /* DIGITS of them */
    digits = (uint32_t)(value + 0.5);
    if (digits >= 1000000) {
        digits /= 10;
        ++*exponent;
    }
    return digits;
}

static void add_digits(pb_text *text, const char *digits, int from, int to)
{
    pb_text_add_bytes(text, digits + from, (size_t)(to - from));
}

void pb_text_add_real(pb_text *text, double value)
{
    char digits[DIGITS];
    int exponent, count = DIGITS;
    uint32_t whole;
    if (value != value) {
        pb_text_add(text, "nan");
        return;
    }
    if (value < 0) {
        pb_text_add(text, "-");
        value = -value;
    }
    if (value > 1.7976931348623157e308) {
        pb_text_add(text, "inf");
        return;
    }
    whole = leading_digits(value, &exponent);
    for (int i = DIGITS - 1; i >= 0; i--, whole /= 10)
        digits[i] = (char)('0' + whole % 10);
    while (count > 1 && digits[count - 1] == '0')
        count--;
    if (exponent < -4 || exponent >= DIGITS) {
        add_digits(text, digits, 0, 1);
        if (count > 1)
            pb_text_add(text, ".");
        add_digits(text, digits, 1, count);
        pb_text_add(text, exponent < 0 ? "e-" : "e+");
        exponent = exponent < 0 ? -exponent : exponent;
        if (exponent < 10)
            pb_text_add(text, "0");
        pb_text_add_integer(text, exponent);
    } else if (exponent < 0) {
        pb_text_add_bytes(text, "0.000", (size_t)(1 - exponent));
        add_digits(text, digits, 0, count);
    } else {
        add_digits(text, digits, 0, exponent + 1);
        if (count > exponent + 1) {
            pb_text_add(text, ".");
            add_digits(text, digits, exponent + 1, count);
        }
    }
}

static void add_quoted(pb_text *text, const char *value, size_t length)
{
    size_t count = length < LONGEST_QUOTED ? length : LONGEST_QUOTED;
    for (size_t i = 0; i < count; i++)
        pb_text_add_bytes(text, value[i] < 0x20 || value[i] > 0x7e ? "?" : value + i, 1);
    if (count < length)
        pb_text_add(text, "...");
}

static void add_path(pb_text *text, const char *path)
{
    size_t length = strlen(path), hidden = length > LONGEST_PATH_SHOWN ? length - LONGEST_PATH_SHOWN : 0;
    while (hidden > 0 && ((unsigned char)path[hidden] & 0xc0) == 0x80)
        hidden++; /* no part of a character in UTF-8 */
    if (hidden > 0)
        pb_text_add(text, "...");
    pb_text_add(text, path + hidden);
}

void pb_text_add_parts(pb_text *text, const pb_part *parts)
{
    for (; parts->kind != 0; parts++)
        switch (parts->kind) {
        case 't': pb_text_add(text, parts->text); break;
        case 'i': pb_text_add_integer(text, parts->integer); break;
        case 'r': pb_text_add_real(text, parts->real); break;
        case 'p': add_path(text, parts->text); break;
        default: add_quoted(text, parts->text, parts->length);
        }
}
