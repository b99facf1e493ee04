/*
 * csv.c - comma-separated values, see csv.h.
 */

#include "base/csv.h"

#include "meter_time.h"

void
csv_writer_init(struct csv_writer *csv, struct buf *out)
{
    *csv = (struct csv_writer){.out = out};
}

static void
csv_separate(struct csv_writer *csv)
{
    if (csv->comma) {
        buf_put_byte(csv->out, ',');
    }
    csv->comma = true;
}

static bool
csv_needs_quotes(struct meter_str value)
{
    for (size_t i = 0; i < value.size; i++) {
        char c = value.data[i];

        if (c == ',' || c == '"' || c == '\r' || c == '\n') {
            return true;
        }
    }
    return false;
}

static void
csv_put(struct csv_writer *csv, const char *guard, struct meter_str value)
{
    bool quoted = csv_needs_quotes(value);

    csv_separate(csv);
    if (quoted) {
        buf_put_byte(csv->out, '"');
    }
    buf_put_text(csv->out, guard);
    for (size_t i = 0; i < value.size; i++) {
        if (value.data[i] == '"') {
            buf_put_byte(csv->out, '"');
        }
        buf_put_byte(csv->out, (uint8_t)value.data[i]);
    }
    if (quoted) {
        buf_put_byte(csv->out, '"');
    }
}

void
csv_cell(struct csv_writer *csv, struct meter_str value)
{
    csv_put(csv, "", value);
}

/* The signs that begin a formula, and what a spreadsheet takes for them. */
static bool
csv_is_formula(struct meter_str value)
{
    static const char wide[] = "\xef\xbc"; /* before the last byte of = + - @ */
    size_t size = sizeof(wide) - 1;

    if ((uint8_t)value.data[0] <= ' ') {
        return true; /* blanks and line ends are skipped */
    }
    if (value.size > size && memcmp(value.data, wide, size) == 0) {
        return strchr("\x9d\x8b\x8d\xa0", value.data[size]) != NULL;
    }
    return strchr("=+-@", value.data[0]) != NULL;
}

void
csv_client_text(struct csv_writer *csv, struct meter_str value)
{
    if (value.size == 0) {
        csv_separate(csv);
        buf_put_text(csv->out, "\"\"");
        return;
    }
    csv_put(csv, csv_is_formula(value) ? "'" : "", value);
}

void
csv_empty(struct csv_writer *csv)
{
    csv_separate(csv);
}

void
csv_bool(struct csv_writer *csv, bool value)
{
    csv_cell(csv, value ? METER_STR("true") : METER_STR("false"));
}

void
csv_int(struct csv_writer *csv, int64_t value)
{
    csv_separate(csv);
    buf_put_int(csv->out, value);
}

void
csv_time(struct csv_writer *csv, int64_t ts_us)
{
    char text[METER_TIME_TEXT_SIZE + 1];

    meter_time_format(ts_us, text);
    csv_cell(csv, (struct meter_str){text, METER_TIME_TEXT_SIZE});
}

void
csv_row_end(struct csv_writer *csv)
{
    buf_put_text(csv->out, "\r\n");
    csv->comma = false;
}
