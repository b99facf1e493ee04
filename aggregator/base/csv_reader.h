/*
 * csv_reader.h - comma-separated values as RFC 4180 has them. Pure.
 *
 *   text -> [csv_record_end] -> record -> [csv_cell_next] -> cell, cell, ...
 *
 * A record ends at LF or CR LF outside of quotes. A cell that begins with a
 * quote goes to the closing one and may hold commas, line breaks and doubled
 * quotes; in any other cell a quote is a mistake.
 */

#ifndef BASE_CSV_READER_H
#define BASE_CSV_READER_H

#include "base/buf.h"

enum csv_end {
    CSV_END_FOUND,
    CSV_END_MORE,  /* text does not reach that far */
    CSV_END_BROKEN /* text behind a closing quote, or a quote never closed */
};

/*
 * Where the record at the front of text ends: *size with its line break.
 * is_last: nothing comes behind text, which ends the record, too.
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
