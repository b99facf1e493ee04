/*
 * json_canonical.c - json_canonical: one text for equal values.
 *
 *   tree -> [json_canonical] -> ledger text, fingerprint
 *
 * Most trees are small: they are written to the stack and copied once.
 * What does not fit there is measured first. Depth is that of the tree,
 * which json_read has bounded.
 */

#include "base/json_reader.h"

#include "meter_bytes.h"
#include "meter_decimal.h"

#define STACK_ROOM   1024
#define PLAIN_DIGITS 40 /* an integer up to here is canonical as it is */

/* Digits alone: nothing to cut, no point, no exponent. */
static bool
is_plain_integer(struct meter_str lexeme)
{
    if (lexeme.size > PLAIN_DIGITS) {
        return false;
    }
    for (size_t i = 0; i < lexeme.size; i++) {
        if (lexeme.data[i] < '0' || lexeme.data[i] > '9') {
            return false;
        }
    }
    return true;
}

static void
put_number(struct meter_str lexeme, struct meter_writer *out)
{
    char text[METER_NUMBER_TEXT_SIZE + 1];
    size_t size;

    if (is_plain_integer(lexeme)) {
        meter_put_bytes(out, lexeme.data, lexeme.size);
    } else if (meter_number_canonical(lexeme, text, &size)) {
        meter_put_bytes(out, text, size);
    } else {
        out->failed = true;
    }
}

static void
put_string(struct meter_str text, struct meter_writer *out)
{
    meter_put_u8(out, '"');
    meter_put_json_escaped(out, text);
    meter_put_u8(out, '"');
}

static void
put_value(const struct json_value *value, struct meter_writer *out)
{
    switch (value->kind) {
    case JSON_NULL: meter_put_bytes(out, "null", 4); break;
    case JSON_FALSE: meter_put_bytes(out, "false", 5); break;
    case JSON_TRUE: meter_put_bytes(out, "true", 4); break;
    case JSON_NUMBER: put_number(value->text, out); break;
    case JSON_STRING: put_string(value->text, out); break;
    case JSON_ARRAY:
        meter_put_u8(out, '[');
        for (uint32_t i = 0; i < value->count && !out->failed; i++) {
            if (i > 0) {
                meter_put_u8(out, ',');
            }
            put_value(&value->items[i], out);
        }
        meter_put_u8(out, ']');
        break;
    case JSON_OBJECT:
        meter_put_u8(out, '{');
        for (uint32_t i = 0; i < value->count && !out->failed; i++) {
            if (i > 0) {
                meter_put_u8(out, ',');
            }
            put_string(value->members[i].name, out);
            meter_put_u8(out, ':');
            put_value(&value->members[i].value, out);
        }
        meter_put_u8(out, '}');
        break;
    }
}

static size_t
string_room(struct meter_str text)
{
    size_t room = text.size + 2;

    for (size_t i = 0; i < text.size; i++) {
        unsigned char byte = (unsigned char)text.data[i];

        room += byte < 0x20 ? 5 : byte == '"' || byte == '\\';
    }
    return room;
}

/* At least what put_value writes. */
static size_t
value_room(const struct json_value *value)
{
    size_t room = 2;

    switch (value->kind) {
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE: return 5;
    case JSON_NUMBER:
        return is_plain_integer(value->text) ? value->text.size
                                             : METER_NUMBER_TEXT_SIZE;
    case JSON_STRING: return string_room(value->text);
    case JSON_ARRAY:
        for (uint32_t i = 0; i < value->count; i++) {
            room += 1 + value_room(&value->items[i]);
        }
        break;
    case JSON_OBJECT:
        for (uint32_t i = 0; i < value->count; i++) {
            room += 2 + string_room(value->members[i].name) +
                    value_room(&value->members[i].value);
        }
        break;
    }
    return room;
}

bool
json_canonical(const struct json_value *value, struct arena *arena,
               struct meter_str *out)
{
    uint8_t stack[STACK_ROOM];
    struct meter_writer writer;
    size_t room;
    char *text;

    meter_writer_init(&writer, stack, sizeof(stack));
    put_value(value, &writer);
    if (!writer.failed) {
        return arena_copy(
            arena, (struct meter_str){(const char *)stack, writer.at}, out);
    }
    room = value_room(value);
    text = arena_alloc(arena, room);
    if (text == NULL) {
        return false;
    }
    meter_writer_init(&writer, text, room);
    put_value(value, &writer);
    *out = (struct meter_str){text, writer.at};
    return !writer.failed;
}
