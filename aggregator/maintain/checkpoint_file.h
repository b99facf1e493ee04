/*
 * checkpoint_file.h - what cannot be recomputed, in one text file.
 *
 *   {"format":"edgemeter-checkpoint","version":1,...,"writers":{...}}
 *   {"tenant":"t","counter":"c","key":"<hex>","dimensions":"{...}",...}
 *   {"tenant":"t","entity":"\"e\"","owner":"c",...}
 *   {"tenant":"t","usage":["1","2","3"],"status":"active",...}
 *   {"rows":"3","sha256":"<of all bytes before this line>"}
 *
 * One JSON object a line; 64-bit numbers are strings, as are dimensions and
 * entities: to the byte what the database holds. Rows are sorted by
 * tenant, then kind, then key, bytewise, so a reader takes one tenant at a
 * time. A file is whole or has another name: it is written beside, synced
 * and renamed. A reader has checked all of it before it gives the first row.
 */

#ifndef MAINTAIN_CHECKPOINT_FILE_H
#define MAINTAIN_CHECKPOINT_FILE_H

#include "maintain/checkpoint_row.h"

/* Between the name of a file that is being written and its random end. */
#define CHECKPOINT_TEMPORARY ".tmp-"

/* Last number of the writer in the file; 0: the file does not know it. */
int64_t checkpoint_header_last(const struct checkpoint_header *header,
                               const uint8_t writer[16]);

/* <0, 0, >0: tenant, kind, key. */
int checkpoint_row_compare(const struct checkpoint_row *a,
                           const struct checkpoint_row *b);


/* ---- writing ---------------------------------------------------------- */

struct checkpoint_writer;

/*
 * The header is written; what has the name of path stays as it is until the
 * end. NULL: logged, as all failures here.
 */
MUST_CHECK struct checkpoint_writer *
checkpoint_writer_create(const char *path,
                         const struct checkpoint_header *header);
/* Rows come in the order of checkpoint_row_compare, each one once. */
MUST_CHECK bool checkpoint_writer_put(struct checkpoint_writer *writer,
                                      const struct checkpoint_row *row);
/* Trailer, sync, rename, sync of the directory: the file is there for good. */
MUST_CHECK bool checkpoint_writer_end(struct checkpoint_writer *writer);
int64_t checkpoint_writer_rows(const struct checkpoint_writer *writer);
/* Removes what did not reach its end. NULL is allowed. */
void checkpoint_writer_destroy(struct checkpoint_writer *writer);


/* ---- reading ---------------------------------------------------------- */

struct checkpoint_reader;

/*
 * Reads the whole file once: header, every row, their order, number and
 * digest. NULL: no such file, cut short, changed, of another version; logged
 * with the reason.
 */
MUST_CHECK struct checkpoint_reader *checkpoint_reader_open(const char *path);
void checkpoint_reader_close(struct checkpoint_reader *reader);

const struct checkpoint_header *
checkpoint_reader_header(const struct checkpoint_reader *reader);
int64_t checkpoint_reader_rows(const struct checkpoint_reader *reader);

/*
 * The row it stands on, the first one at the start; NULL at the end. Valid
 * until the next call of next or seek.
 */
const struct checkpoint_row *
checkpoint_reader_row(const struct checkpoint_reader *reader);
/* To the next row or the end. False: the disk failed; logged. */
MUST_CHECK bool checkpoint_reader_next(struct checkpoint_reader *reader);
/*
 * To the first row whose tenant is not before this one. Asked in ascending
 * order it reads the file once; else it starts again at the front.
 */
MUST_CHECK bool checkpoint_reader_seek(struct checkpoint_reader *reader,
                                       struct meter_str tenant);

#endif
