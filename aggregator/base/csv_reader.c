/*
 * csv_reader.c - comma-separated values, see csv_reader.h.
 */

#include "base/csv_reader.h"


/* ---- where a record ends ---------------------------------------------- */

enum record_state {
    AT_CELL,     /* its first byte is next */
    IN_PLAIN,    /* a cell without quotes */
    IN_QUOTES,   /* behind an opening quote */
    AFTER_QUOTE, /* closing, or the first of two */
    AFTER_CR     /* behind a closing quote */
};

/* One byte inside of a record that goes on; false: it may not be there. */
static bool
record_step(enum record_state *state, char byte)
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
        if (!record_step(&state, text.data[i])) {
            return CSV_END_BROKEN;
        }
    }
    if (!is_last) {
        return CSV_END_MORE;
    }
    *size = text.size;
    return state == IN_QUOTES ? CSV_END_BROKEN : CSV_END_FOUND;
}


/* ---- cells ------------------------------------------------------------ */

void
csv_reader_init(struct csv_reader *reader, struct meter_str record)
{
    *reader = (struct csv_reader){.record = record};
}

/* The cell goes to here; what follows is a comma or the end. */
static enum csv_next
cell_end(struct csv_reader *reader, size_t at)
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
plain_cell(struct csv_reader *reader, struct meter_str *cell)
{
    const char *from = reader->record.data + reader->at;
    size_t left = reader->record.size - reader->at;
    const char *comma = left == 0 ? NULL : memchr(from, ',', left);
    size_t size = comma == NULL ? left : (size_t)(comma - from);

    *cell = (struct meter_str){from, size};
    if (size > 0 && memchr(from, '"', size) != NULL) {
        return CSV_CELL_BROKEN;
    }
    return cell_end(reader, reader->at + size);
}

/* Two quotes stand for one. */
static enum csv_next
quoted_cell(struct csv_reader *reader, struct buf *unquoted,
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
               : cell_end(reader, (size_t)(at - reader->record.data));
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
        return quoted_cell(reader, unquoted, cell);
    }
    return plain_cell(reader, cell);
}
