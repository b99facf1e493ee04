/*
 * reason.c - sentences that tell a sender why something was refused.
 *
 * What the sender wrote is quoted here only: escaped, and cut to a length, so
 * that it steers neither a log nor a terminal.
 */

#include "base/reason.h"

#include <stdarg.h>
#include <stdio.h>

#include "meter_bytes.h"
#include "meter_event.h"

/* Escapes the character at the front; false: it does not fit any more. */
static bool
quote_character(struct meter_str text, struct meter_writer *out, size_t *used)
{
    struct meter_writer attempt = *out;
    size_t size = meter_utf8_size((const uint8_t *)text.data, text.size);

    *used = size == 0 ? 1 : size;
    if (size == 0 || *text.data == 0x7f) {
        meter_put_u8(&attempt, '?');
    } else {
        meter_put_json_escaped(&attempt, (struct meter_str){text.data, size});
    }
    if (!attempt.failed) {
        *out = attempt;
    }
    return !attempt.failed;
}

struct reason_quote
reason_quote(struct meter_str text)
{
    struct reason_quote quote;
    struct meter_writer inside;
    const char *tail = "\"";

    quote.text[0] = '"';
    meter_writer_init(&inside, quote.text + 1, REASON_QUOTE_MAX);
    while (text.size > 0) {
        size_t used;

        if (!quote_character(text, &inside, &used)) {
            tail = "\"...";
            break;
        }
        text.data += used;
        text.size -= used;
    }
    memcpy(quote.text + 1 + inside.at, tail, strlen(tail) + 1);
    return quote;
}

const char *
reason_format(struct arena *arena, const char *format, ...)
{
    char text[REASON_SIZE_MAX];
    const char *copy;
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    copy = arena_strdup(arena, text);
    return copy != NULL ? copy : "refused; no memory is left to say why";
}
