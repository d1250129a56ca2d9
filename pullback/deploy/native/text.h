/* Text composed in a fixed buffer, without a C library: messages, and headers of checkpoints. */
#ifndef PULLBACK_TEXT_H
#define PULLBACK_TEXT_H

#include "../../runtime/native/rt.h"

#ifndef PB_INNER
#define PB_INNER PB_API /* what the files of an exported trainer share; static where they are one file */
#endif

typedef struct pb_text {
    char *buffer; /* ends with a zero once something was appended */
    size_t size;  /* of the buffer, at least 1 */
    size_t length;
    int is_cut;   /* something did not fit, and was left out */
} pb_text;

/* One piece of a message: PB_TEXT("a text"), PB_INTEGER(3), PB_REAL(0.1) as %g prints it, PB_PATH("file"), of long ones
 * the end, and PB_QUOTED(at, length), bytes that anybody may have written: of long ones the beginning, unprintable ones
 * as '?'. */
typedef struct pb_part {
    char kind; /* 0 ends a message */
    const char *text;
    size_t length;
    int64_t integer;
    double real;
} pb_part;

#define PB_TEXT(value) {'t', value, 0, 0, 0}
#define PB_INTEGER(value) {'i', NULL, 0, value, 0}
#define PB_REAL(value) {'r', NULL, 0, 0, value}
#define PB_PATH(value) {'p', value, 0, 0, 0}
#define PB_QUOTED(value, count) {'q', value, count, 0, 0}

PB_INNER void pb_text_add(pb_text *text, const char *value);
PB_INNER void pb_text_add_bytes(pb_text *text, const char *value, size_t length);
PB_INNER void pb_text_add_unsigned(pb_text *text, uint64_t value);
PB_INNER void pb_text_add_integer(pb_text *text, int64_t value);
PB_INNER void pb_text_add_wide(pb_text *text, const uint64_t value[2]); /* words are high, low */
PB_INNER void pb_text_add_real(pb_text *text, double value); /* six digits */
PB_INNER void pb_text_add_parts(pb_text *text, const pb_part *parts);

#endif
