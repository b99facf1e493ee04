/*
 * csv.c - comma-separated values, written and read as RFC 4180 has them.
 *
 *   api, query -> [csv_cell, csv_row_end] -> buf
 *   replay -> [csv_record_end] -> record -> [csv_cell_next] -> cell
 *
 * What a client once sent never becomes a formula of a spreadsheet. Reading is
 * strict: a quote in a cell without quotes is a mistake, not a guess.
 */

#include "base/csv.h"

#include "meter_time.h"


/* ---- writing --------------------------------------------------------- */

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


/* ---- reading: where a record ends ------------------------------------ */

enum record_state {
    AT_CELL,     /* its first byte is next */
    IN_PLAIN,    /* a cell without quotes */
    IN_QUOTES,   /* behind an opening quote */
    AFTER_QUOTE, /* closing, or the first of two */
    AFTER_CR     /* behind a closing quote */
};

/* One byte inside of a record that goes on; false: it may not be there. */
static bool
csv_record_step(enum record_state *state, char byte)
{
    switch (*state) {
    case AT_CELL:
    case IN_PLAIN:
        if (byte == ',') {
            *state = AT_CELL;
        } else {
            *state = *state == AT_CELL && byte == '"' ? IN_QUOTES : IN_PLAIN;
        }
        return true;
    case IN_QUOTES:
        if (byte == '"') {
            *state = AFTER_QUOTE;
        }
        return true;
    case AFTER_QUOTE:
        *state = byte == '"' ? IN_QUOTES : byte == ',' ? AT_CELL : AFTER_CR;
        return byte == '"' || byte == ',' || byte == '\r';
    case AFTER_CR: break;
    }
    return false;
}

enum csv_end
csv_record_end(struct meter_str text, bool is_last, size_t *size)
{
    enum record_state state = AT_CELL;

    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == '\n' && state != IN_QUOTES) {
            *size = i + 1;
            return CSV_END_FOUND;
        }
        if (!csv_record_step(&state, text.data[i])) {
            return CSV_END_BROKEN;
        }
    }
    if (!is_last) {
        return CSV_END_MORE;
    }
    *size = text.size;
    return state == IN_QUOTES ? CSV_END_BROKEN : CSV_END_FOUND;
}


/* ---- reading: cells -------------------------------------------------- */

/* The cell goes to here; what follows is a comma or the end. */
static enum csv_next
csv_cell_end(struct csv_reader *reader, size_t at)
{
    if (at == reader->record.size) {
        reader->is_done = true;
    } else if (reader->record.data[at] != ',') {
        return CSV_CELL_BROKEN;
    }
    reader->at = at + 1;
    return CSV_CELL;
}

static enum csv_next
csv_plain_cell(struct csv_reader *reader, struct meter_str *cell)
{
    const char *from = reader->record.data + reader->at;
    size_t left = reader->record.size - reader->at;
    const char *comma = left == 0 ? NULL : memchr(from, ',', left);
    size_t size = comma == NULL ? left : (size_t)(comma - from);

    *cell = (struct meter_str){from, size};
    if (size > 0 && memchr(from, '"', size) != NULL) {
        return CSV_CELL_BROKEN;
    }
    return csv_cell_end(reader, reader->at + size);
}

/* Two quotes stand for one. */
static enum csv_next
csv_quoted_cell(struct csv_reader *reader, struct buf *unquoted,
                struct meter_str *cell)
{
    const char *end = reader->record.data + reader->record.size;
    const char *at = reader->record.data + reader->at + 1;

    buf_reset(unquoted);
    for (;;) {
        const char *quote = memchr(at, '"', (size_t)(end - at));

        if (quote == NULL) {
            return CSV_CELL_BROKEN;
        }
        buf_put(unquoted, at, (size_t)(quote - at));
        at = quote + 1;
        if (at == end || *at != '"') {
            break;
        }
        buf_put_byte(unquoted, '"');
        at++;
    }
    *cell = buf_str(unquoted);
    return unquoted->failed
               ? CSV_CELL_BROKEN
               : csv_cell_end(reader, (size_t)(at - reader->record.data));
}

enum csv_next
csv_cell_next(struct csv_reader *reader, struct buf *unquoted,
              struct meter_str *cell)
{
    if (reader->is_done) {
        return CSV_NO_CELL;
    }
    if (reader->at < reader->record.size &&
        reader->record.data[reader->at] == '"') {
        return csv_quoted_cell(reader, unquoted, cell);
    }
    return csv_plain_cell(reader, cell);
}
