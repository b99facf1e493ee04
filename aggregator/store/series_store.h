/*
 * series_store.h - ledger and series together, for the commands that
 * recompute series.
 *
 *   snapshot:  begin -> floors, numbers -> rows ... -> end
 *   exclusive: begin -> floors, numbers -> rows, writes ... -> commit
 *
 * Blocking, on the connection of a ledger_store. In both the series are
 * exactly what the ledger has up to `flushed`: a flush moves that number in
 * the transaction in which it writes. The exclusive transaction waits for
 * flushes, and they wait for it; ingest goes on.
 */

#ifndef STORE_SERIES_STORE_H
#define STORE_SERIES_STORE_H

#include "meter_level.h"
#include "store/ledger_store.h"
#include "store/partition.h"

/* From where on things are kept, INT64_MIN: from ever. */
struct series_floors {
    int64_t event_us;
    int64_t index_us;
    int64_t level_us[METER_LEVEL_COUNT];
};

/* As of the transaction that is open. */
struct series_view {
    struct series_floors floors;
    struct ledger_seqs flushed; /* last: ledger rows up to it are in series */
};

void series_view_fini(struct series_view *view);

/* Read only; nothing that is kept goes while it lasts. */
MUST_CHECK bool
series_store_snapshot(struct ledger_store *store, struct series_view *view);
/* BUSY: not within 5 seconds; nothing is open: ask again. */
MUST_CHECK enum ledger_lock
series_store_exclusive(struct ledger_store *store, struct series_view *view);

/* One of the statements of a level, by the name of that of 5s. */
#define SERIES_STATEMENT(name, level) \
    ((enum statement[]){              \
        STATEMENT_##name##_5S,        \
        STATEMENT_##name##_1M,        \
        STATEMENT_##name##_1H,        \
        STATEMENT_##name##_1D,        \
        STATEMENT_##name##_7D,        \
    }[level])

/*
 * Partitions that rows are to be put in, made over the administrative
 * connection where they are missing. url NULL: not given.
 */
struct series_days;
/* NULL: no memory. Connects when something is to be made. */
MUST_CHECK struct series_days *
series_days_create(const char *url, const char *name);
void series_days_destroy(struct series_days *days);
/* The partition that holds the day. False: logged. */
MUST_CHECK bool series_days_make(struct series_days *days,
                                 enum partition_parent parent, int32_t day);

/* ---- arrays in answers ------------------------------------------------ */

/* Elements of an array of one dimension, binary. */
struct series_array {
    struct meter_str rest;
    size_t count; /* that are left */
};

/* False: no such array, or it has NULLs. A NULL is an empty one. */
MUST_CHECK bool series_array_open(const void *result, int row, int column,
                                  struct series_array *out);
MUST_CHECK bool
series_array_text(struct series_array *array, struct meter_str *out);
MUST_CHECK bool series_array_int8(struct series_array *array, int64_t *out);

#endif
