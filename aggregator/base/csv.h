/*
 * csv.h - comma-separated values as RFC 4180 has them, written and read.
 *
 * Rows end in CR LF; a cell with a comma, a quote, CR or LF is put in
 * quotes. Commas are put by the writer: cell, cell, ..., row_end.
 *
 * Text that a client once sent is made safe for spreadsheets: where it
 * starts with = + - @, with one of these in full width, or with a blank, a
 * tab, a line end or another control character, and might be run as a
 * formula, a ' is put in front. Numbers are never changed.
 */

#ifndef BASE_CSV_H
#define BASE_CSV_H

#include "base/buf.h"

struct csv_writer {
    struct buf *out;
    bool comma; /* the next cell needs one */
};

void csv_writer_init(struct csv_writer *csv, struct buf *out);
/* Our own words and numbers, as they are. */
void csv_cell(struct csv_writer *csv, struct meter_str value);
/* A client's text; the empty one is "" and no empty cell. */
void csv_client_text(struct csv_writer *csv, struct meter_str value);
/* No value. */
void csv_empty(struct csv_writer *csv);
void csv_bool(struct csv_writer *csv, bool value);
void csv_int(struct csv_writer *csv, int64_t value);
/* RFC 3339 UTC. */
void csv_time(struct csv_writer *csv, int64_t ts_us);
void csv_row_end(struct csv_writer *csv);


/* ---- reading ----------------------------------------------------------- */

/*
 *   text -> [csv_record_end] -> record -> [csv_cell_next] -> cell, cell, ...
 *
 * A record ends at LF or CR LF outside of quotes. A cell that begins with a
 * quote goes to the closing one and may hold commas, line breaks and doubled
 * quotes; in any other cell a quote is a mistake.
 */
enum csv_end {
    CSV_END_FOUND,
    CSV_END_MORE,  /* text does not reach that far */
    CSV_END_BROKEN /* text after a closing quote, or a quote never closed */
};

/*
 * Where the record at the front of text ends: *size with its line break.
 * is_last: nothing comes after text, which ends the record, too.
 */
MUST_CHECK enum csv_end
csv_record_end(struct meter_str text, bool is_last, size_t *size);

enum csv_next {
    CSV_CELL,
    CSV_NO_CELL,    /* that was the last one */
    CSV_CELL_BROKEN /* a quote where none may be, or no memory */
};

struct csv_reader {
    struct meter_str record; /* without its line break */
    size_t at;
    bool is_done;
};

static inline void
csv_reader_init(struct csv_reader *reader, struct meter_str record)
{
    *reader = (struct csv_reader){.record = record};
}

/*
 * *cell is without its quotes, and valid until the next call: it lies in the
 * record, or in unquoted where quotes had to be taken out.
 */
MUST_CHECK enum csv_next
csv_cell_next(struct csv_reader *reader, struct buf *unquoted,
              struct meter_str *cell);

#endif
