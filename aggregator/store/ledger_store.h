/*
 * ledger_store.h - ledger and series, read in full, for the commands that
 * recompute.
 *
 *   snapshot:  begin -> numbers -> events, rows ... -> end
 *   exclusive: begin -> numbers -> events, rows, writes ... -> commit
 *
 * Blocking; one connection as meter_writer (database). A snapshot shows
 * ledger and projections as of one moment and holds up no one but the
 * removal of old partitions. The exclusive transaction waits for those that
 * ingest, and they wait for it.
 */

#ifndef STORE_LEDGER_STORE_H
#define STORE_LEDGER_STORE_H

#include "meter_event.h"
#include "meter_level.h"
#include "pg/param.h"
#include "pg/statements.h"
#include "store/partition.h"

struct ledger_store;

/* Newest ledger row of a writer; what it records next is after stamp. */
struct ledger_seq {
    uint8_t writer[16];
    int64_t last;
    int64_t stamp_us;
};

/* Sorted by writer; a writer that is not there has none: 0. */
struct ledger_seqs {
    struct ledger_seq *items;
    size_t count;
};

void ledger_seqs_fini(struct ledger_seqs *seqs);

/* Pointers are valid during the callback only. */
struct ledger_row {
    struct meter_event event;
    int64_t recorded_us; /* of the order */
    int64_t clock_us;    /* the database's clock then */
    uint8_t writer[16];
    int64_t writer_seq;
    bool is_adjusted;            /* disposition 1 */
    struct meter_str from_state; /* data NULL: none */
};

/* NULL: logged, as every failure here. */
MUST_CHECK struct ledger_store *
ledger_store_open(const char *url, const char *name);
void ledger_store_close(struct ledger_store *store);

/*
 * Read only. *floor_us: start of the oldest day that retention has left,
 * INT64_MIN when it never took any; no day goes while the snapshot lasts.
 */
MUST_CHECK bool
ledger_store_snapshot(struct ledger_store *store, int64_t *floor_us);

/* Ends what was begun. False of commit: it may have happened or not. */
MUST_CHECK bool ledger_store_commit(struct ledger_store *store);
void ledger_store_rollback(struct ledger_store *store);

/* Numbers of all writers; for ledger_seqs_fini. */
MUST_CHECK bool
ledger_store_seqs(struct ledger_store *store, struct ledger_seqs *out);

/* False stops it; whoever says so has told why. */
typedef bool (*ledger_row_cb)(void *asker, const struct ledger_row *row);
/* A statement with the columns of recount_events, in its own order. */
MUST_CHECK bool
ledger_store_events_of(struct ledger_store *store, enum statement statement,
                       const struct pg_params *params, struct meter_str tenant,
                       ledger_row_cb cb, void *asker);
typedef bool (*ledger_result_cb)(void *asker, const void *result, int row);
/*
 * Any statement with its parameters (NULL: none), row by row as the server
 * sends them; cb NULL: it has none.
 */
MUST_CHECK bool
ledger_store_rows(struct ledger_store *store, enum statement statement,
                  const struct pg_params *params, ledger_result_cb cb,
                  void *asker);


/* ---- series ----------------------------------------------------------- */

/*
 * In both transactions below the series are exactly what the ledger has up to
 * `flushed`: a flush moves that number in the transaction in which it writes.
 * The exclusive one waits for flushes, and they wait for it; ingest goes on.
 */

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

/* What the exclusive transaction keeps from others. */
enum ledger_scope {
    LEDGER_COUNTS,            /* ingest */
    LEDGER_COUNTS_AND_METERS, /* likewise, and the meters' rows */
    LEDGER_SERIES             /* flushes; the view is read */
};

enum ledger_lock {
    LEDGER_LOCKED,
    LEDGER_BUSY, /* not within 5 seconds; nothing is open: ask again */
    LEDGER_FAILED
};

/* view: NULL unless LEDGER_SERIES. */
MUST_CHECK enum ledger_lock
ledger_store_exclusive(struct ledger_store *store, enum ledger_scope scope,
                       struct series_view *view);

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

#endif
