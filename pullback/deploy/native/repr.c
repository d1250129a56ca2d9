/* Repr: texts as Python's repr shows them, of which the checksum of checkpoints is taken. */
#include "instance.h"

/* Where characters beyond Latin 1 are known to be shown as they are: ranges that Unicode has filled for long. */
static const struct {
    int32_t first, last;
} shown[] = {
    {0x100, 0x377},     {0x384, 0x38a},     {0x38e, 0x3a1},     {0x3a3, 0x52f},     /* Latin, Greek, Cyrillic */
    {0x5d0, 0x5ea},     {0x620, 0x6dc},     {0x904, 0x939},     {0xe01, 0xe3a},     /* Hebrew, Arabic, Hindi, Thai */
    {0x10d0, 0x10ff},   {0x1e00, 0x1f15},   {0x2010, 0x2027},   {0x2030, 0x205e},   /* Georgian, Latin, punctuation */
    {0x2070, 0x2071},   {0x2074, 0x208e},   {0x20a0, 0x20bf},   {0x2100, 0x218b},   /* exponents, currencies, letters */
    {0x2190, 0x2426},   {0x2440, 0x244a},   {0x2460, 0x2b73},   {0x3001, 0x303f},   /* arrows, mathematics, figures */
    {0x3041, 0x3096},   {0x3099, 0x30ff},   {0x3400, 0x4db5},   {0x4e00, 0x9fef},   /* Japanese, Chinese */
    {0xac00, 0xd7a3},   {0x1d400, 0x1d454}, {0x1f300, 0x1f64f}, {0x20000, 0x2a6d6}, /* Korean, faces, Chinese */
};

int pb_is_printable(int32_t code)
{
    if (code < 0x20 || (code >= 0x7f && code <= 0xa0) || code == 0xad || (code >= 0xd800 && code <= 0xf8ff))
        return 0;
    if (code < 0x100)
        return 1;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (code >= shown[i].first && code <= shown[i].last)
            return 1;
    return -1;
}

/* \x07 or \ud800 */
static void add_number(pb_sha256 *digest, int32_t code)
{
    char escaped[6] = {'\\', code < 0x100 ? 'x' : 'u'};
    int digits = code < 0x100 ? 2 : 4;
    for (int i = 0; i < digits; i++)
        escaped[2 + i] = "0123456789abcdef"[code >> 4 * (digits - 1 - i) & 15];
    pb_sha256_add(digest, escaped, (size_t)(2 + digits));
}

static int has(const char *text, size_t length, char character)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] == character)
            return 1;
    return 0;
}

int32_t pb_sha256_add_repr(pb_sha256 *digest, const char *text, size_t length)
{
    const char *end = text + length;
    char quote = has(text, length, '\'') && !has(text, length, '"') ? '"' : '\'';
    pb_sha256_add(digest, &quote, 1);
    while (text < end) {
        const char *begin = text;
        int32_t code = pb_code_point(&text, end);
        int printable = pb_is_printable(code);
        if (printable < 0)
            return code;
        if (code == '\\' || code == quote)
            pb_sha256_add(digest, "\\", 1);
        if (code == '\t' || code == '\n' || code == '\r')
            pb_sha256_add(digest, code == '\t' ? "\\t" : code == '\n' ? "\\n" : "\\r", 2);
        else if (printable)
            pb_sha256_add(digest, begin, (size_t)(text - begin));
        else
            add_number(digest, code);
    }
    pb_sha256_add(digest, &quote, 1);
    return 0;
}
