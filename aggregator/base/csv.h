/*
 * csv.h - comma-separated values into a buf, RFC 4180.
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

#endif
