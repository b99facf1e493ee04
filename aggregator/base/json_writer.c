/*
 * json_writer.c - JSON output, see json_writer.h.
 */

#include "base/json_writer.h"

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

/* Length of the well-formed UTF-8 sequence at text, 0 when there is none. */
static size_t
json_utf8_length(const unsigned char *text, size_t size)
{
    static const struct {
        unsigned char first_min, first_max, second_min, second_max, length;
    } forms[] = {
        {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
        {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
        {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (text[0] < forms[i].first_min || text[0] > forms[i].first_max) {
            continue;
        }
        if (size < forms[i].length || text[1] < forms[i].second_min ||
            text[1] > forms[i].second_max) {
            return 0;
        }
        for (size_t j = 2; j < forms[i].length; j++) {
            if ((text[j] & 0xc0) != 0x80) {
                return 0;
            }
        }
        return forms[i].length;
    }
    return 0;
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
        length = json_utf8_length(text + at, value.size - at);
        if (length == 0) {
            buf_put_text(out, "\xef\xbf\xbd");
            at++;
        } else if (length == 3 && text[at] == 0xe2 && text[at + 1] == 0x80 &&
                   (text[at + 2] | 1) == 0xa9) {
            buf_put_text(out, text[at + 2] == 0xa8 ? "\\u2028" : "\\u2029");
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
