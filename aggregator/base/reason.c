/*
 * reason.c - sentences for a sender, see reason.h.
 */

#include "base/reason.h"

#include <stdarg.h>
#include <stdio.h>

#include "meter_bytes.h"
#include "meter_event.h"

/* Bytes of the character at the front, by its first byte. */
static size_t
character_size(unsigned char first)
{
    return first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Escapes the character at the front; false: it does not fit any more. */
static bool
quote_character(struct meter_str text, struct meter_writer *out, size_t *used)
{
    struct meter_str character = {text.data,
                                  character_size((unsigned char)*text.data)};
    struct meter_writer attempt = *out;

    if (character.size > text.size || !meter_utf8_valid(character)) {
        character.size = 1;
    }
    if (meter_utf8_valid(character) && *text.data != 0x7f) {
        meter_put_json_escaped(&attempt, character);
    } else {
        meter_put_u8(&attempt, '?');
    }
    if (attempt.failed) {
        return false;
    }
    *out = attempt;
    *used = character.size;
    return true;
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
