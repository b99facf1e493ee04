/*
 * series_recount_run.h - a recount of series at work, between the files
 * series_recount*.c.
 */

#ifndef MAINTAIN_SERIES_RECOUNT_RUN_H
#define MAINTAIN_SERIES_RECOUNT_RUN_H

#include "maintain/recount_run.h"
#include "maintain/series_recount_rows.h"
#include "store/ledger_store.h"

struct series_run {
    struct recount_run *run;
    const struct catalog *catalog;
    const struct series *only; /* NULL: all */
    struct meter_str tenant;
    int64_t from_us; /* buckets that begin then or later */
    int64_t to_us;   /* and before */
    struct series_rows *rows;
    struct series_days *days;
    struct series_view view; /* of the transaction that is open */
    int64_t events;          /* of the tenant */
    int64_t written;         /* slices that were put right */
};

/* What rows of a level should be is known from ... */
enum series_source {
    SERIES_FROM_EVENTS, /* the ledger */
    SERIES_FROM_BELOW   /* the level below */
};

struct series_slice {
    enum meter_level level;
    enum series_source source;
    int64_t from_us; /* aligned to the level, as is to_us */
    int64_t to_us;
};

enum series_read {
    SERIES_READ_OK,
    SERIES_READ_FULL, /* more than rows_max rows: cut the slice */
    SERIES_READ_TROUBLE
};

/*
 * Expected and found of a slice into run->rows, in the transaction that is
 * open; with the dictionary of what was not asked for yet. *seen: events and
 * rows that were read.
 */
MUST_CHECK enum series_read
series_recount_read(struct series_run *series, const struct series_slice *slice,
                    size_t rows_max, int64_t *seen);

/*
 * The first instant of the slice's stretch at which there is something to
 * read, in the transaction that is open; INT64_MAX: nothing.
 */
MUST_CHECK bool
series_recount_seek(struct series_run *series,
                    const struct series_slice *stretch, int64_t *out_us);

/* Tells the differences of rows; *count of them. */
MUST_CHECK bool
series_recount_tell(struct series_run *series, const struct series_slice *slice,
                    size_t *count);

/* Puts a slice right that is made from events, in short transactions. */
MUST_CHECK bool
series_recount_fix(struct series_run *series, const struct series_slice *slice,
                   uint64_t took_ms);
/* Marks the rows that differ: they are computed again. */
MUST_CHECK bool series_recount_mark(struct series_run *series,
                                    const struct series_slice *slice);
/* Computes what is marked of a level, until all that is marked now is done. */
MUST_CHECK bool
series_recount_drain(struct series_run *series, enum meter_level level);

/* $n, $n+1: names and versions of the series that are looked at. */
void series_recount_put_known(const struct series_run *series,
                              struct pg_params *params);

#endif
