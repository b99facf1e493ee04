/*
 * json_writer.c - JSON output into a buf: answers, log lines, reports.
 *
 * The writer puts the commas. It is the only place that escapes: what a
 * terminal or a reader's eye would obey never leaves as it is.
 */

#include "base/json_writer.h"

#include "meter_event.h"
#include "meter_time.h"

void
json_writer_init(struct json_writer *json, struct buf *out)
{
    *json = (struct json_writer){.out = out};
}

/* Before any value or key; after it the next one needs a comma. */
static void
json_separate(struct json_writer *json)
{
    if (json->comma) {
        buf_put_byte(json->out, ',');
    }
    json->comma = true;
}

static void
json_open(struct json_writer *json, char bracket)
{
    json_separate(json);
    buf_put_byte(json->out, (uint8_t)bracket);
    json->comma = false;
}

static void
json_close(struct json_writer *json, char bracket)
{
    buf_put_byte(json->out, (uint8_t)bracket);
    json->comma = true;
}

void
json_object_begin(struct json_writer *json)
{
    json_open(json, '{');
}

void
json_object_end(struct json_writer *json)
{
    json_close(json, '}');
}

void
json_array_begin(struct json_writer *json)
{
    json_open(json, '[');
}

void
json_array_end(struct json_writer *json)
{
    json_close(json, ']');
}

static void
json_escape_ascii(struct buf *out, unsigned char byte)
{
    static const char hex[] = "0123456789abcdef";
    char unicode[6] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]};
    char two[2] = {'\\', (char)byte};

    switch (byte) {
    case '"':
    case '\\': break;
    case '\b': two[1] = 'b'; break;
    case '\f': two[1] = 'f'; break;
    case '\n': two[1] = 'n'; break;
    case '\r': two[1] = 'r'; break;
    case '\t': two[1] = 't'; break;
    default: buf_put(out, unicode, sizeof(unicode)); return;
    }
    buf_put(out, two, sizeof(two));
}

static bool
json_is_plain(unsigned char byte)
{
    return byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\';
}

/*
 * What a terminal or a reader's eye would obey: C1 controls (U+009B starts
 * an escape sequence), line ends U+2028/2029, changes of direction
 * U+202A..202E and U+2066..2069.
 */
static bool
json_is_hostile(const unsigned char *text, size_t length)
{
    if (length == 2) {
        return text[0] == 0xc2 && text[1] < 0xa0;
    }
    if (length != 3 || text[0] != 0xe2) {
        return false;
    }
    return (text[1] == 0x80 && text[2] >= 0xa8 && text[2] <= 0xae) ||
           (text[1] == 0x81 && text[2] >= 0xa6 && text[2] <= 0xa9);
}

/* A sequence of two or three bytes as \uXXXX. */
static void
json_escape_unicode(struct buf *out, const unsigned char *text, size_t length)
{
    unsigned code = text[0] & (length == 2 ? 0x1f : 0x0f);

    for (size_t i = 1; i < length; i++) {
        code = code << 6 | (text[i] & 0x3f);
    }
    buf_printf(out, "\\u%04x", code);
}

void
json_escape(struct buf *out, struct meter_str value)
{
    const unsigned char *text = (const unsigned char *)value.data;
    size_t at = 0;

    while (at < value.size) {
        size_t start = at;
        size_t length;

        while (at < value.size && json_is_plain(text[at])) {
            at++;
        }
        buf_put(out, text + start, at - start);
        if (at == value.size) {
            return;
        }
        if (text[at] < 0x80) {
            json_escape_ascii(out, text[at++]);
            continue;
        }
        length = meter_utf8_size(text + at, value.size - at);
        if (length == 0) {
            buf_put_text(out, "\xef\xbf\xbd");
            at++;
        } else if (json_is_hostile(text + at, length)) {
            json_escape_unicode(out, text + at, length);
            at += length;
        } else {
            buf_put(out, text + at, length);
            at += length;
        }
    }
}

static void
json_put_string(struct json_writer *json, struct meter_str value)
{
    buf_put_byte(json->out, '"');
    json_escape(json->out, value);
    buf_put_byte(json->out, '"');
}

void
json_key_str(struct json_writer *json, struct meter_str key)
{
    json_separate(json);
    json_put_string(json, key);
    buf_put_byte(json->out, ':');
    json->comma = false;
}

void
json_key(struct json_writer *json, const char *key)
{
    json_key_str(json, (struct meter_str){key, strlen(key)});
}

void
json_string(struct json_writer *json, struct meter_str value)
{
    json_separate(json);
    json_put_string(json, value);
}

void
json_text(struct json_writer *json, const char *value)
{
    json_string(json, (struct meter_str){value, strlen(value)});
}

void
json_int(struct json_writer *json, int64_t value)
{
    json_separate(json);
    buf_put_int(json->out, value);
}

void
json_int_string(struct json_writer *json, int64_t value)
{
    json_separate(json);
    buf_put_byte(json->out, '"');
    buf_put_int(json->out, value);
    buf_put_byte(json->out, '"');
}

void
json_bool(struct json_writer *json, bool value)
{
    json_raw(json, value ? METER_STR("true") : METER_STR("false"));
}

void
json_null(struct json_writer *json)
{
    json_raw(json, METER_STR("null"));
}

void
json_time(struct json_writer *json, int64_t ts_us)
{
    char text[METER_TIME_TEXT_SIZE + 1];

    meter_time_format(ts_us, text);
    json_text(json, text);
}

void
json_raw(struct json_writer *json, struct meter_str value)
{
    json_separate(json);
    buf_put_str(json->out, value);
}
