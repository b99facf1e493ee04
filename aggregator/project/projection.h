/*
 * projection.h - what accepted events become, inside their transaction.
 *
 *   event -> [project] -> effect -> rows of a transaction -> statements
 *   ledger ------------> [recount] -> what the rows should be
 *
 * A projection decides purely and never talks to the server: it makes the
 * parameters of the next statement and reads what came back. The
 * transaction asks all of them in the order of enum projection_id, which is
 * the order in which their tables are locked; rows of a table are locked by
 * the bytes of their key.
 *
 * Fast path: items are folded, one statement or a few change all rows.
 * Careful path: rows are locked, items are applied to them one by one in
 * arrival order, and the outcome is written. How events were batched never
 * changes a result; what a fold cannot promise it refuses (CAREFUL).
 *
 * A fourth projection is one file with a struct projection, one word in the
 * enum and one row in projection.c.
 */

#ifndef PROJECT_PROJECTION_H
#define PROJECT_PROJECTION_H

#include "base/arena.h"
#include "base/json_reader.h"
#include "config/catalog.h"
#include "meter_event.h"
#include "meter_time.h"
#include "pg/param.h"
#include "pg/statements.h"

struct recount_ops;

/* How far the clock may have gone between look() and the writer's lock. */
#define PROJECTION_CLOCK_MARGIN_US METER_TIME_MINUTE

/* In the order of locking. */
enum projection_id {
    PROJECTION_METERS,
    PROJECTION_COUNTERS,
    PROJECTION_USAGE,
    PROJECTION_INDEX,
    PROJECTION_SERIES,
    PROJECTION_COUNT
};

/* What one event would do, each read by its own projection only. */
struct effects {
    const void *of[PROJECTION_COUNT]; /* NULL: nothing */
    bool is_careful; /* some decision needs locked rows in any case */
};

/* What a projection leaves in the ledger row of an accepted event. */
struct projection_marks {
    bool is_adjusted;            /* booked as an adjustment by some meter */
    struct meter_str from_state; /* of counters: an object; data NULL: none */
    const struct counter_counted *counted; /* see counter.h; for the log */
    struct meter_str series_members;       /* for the same object, likewise */
    struct meter_str *series_from;         /* see series.h; for the buffer */
};

/* An accepted item, as projections see it. */
struct projected {
    const struct meter_event *event;
    const struct effects *effects;
    int64_t writer_seq;
    int32_t part_day; /* of the ledger row */
    struct projection_marks *marks;
    struct arena *arena; /* for a reason or a mark */
};

/*
 * The transaction. recorded_us is its place in the order: later than that of
 * every earlier transaction of the writer; rows whose order matters (those
 * clamped at 0) take only transactions that are later than themselves, so
 * (recorded_at, writer, writer_seq) is the order in which they were applied.
 * clock_us is the time of day: the same, unless the order is ahead of the
 * database's clock.
 */
struct projection_stamp {
    const uint8_t *writer; /* 16 bytes */
    int64_t recorded_us;
    int64_t clock_us;
    int32_t index_floor; /* earlier days are not indexed */
};

enum projection_phase {
    PROJECTION_LOOK,   /* with the known keys: what may forbid a fold */
    PROJECTION_STATES, /* first: rows that decide about others */
    PROJECTION_LOCK,   /* careful, then: all other rows, made and locked */
    PROJECTION_APPLY,  /* fast: folds */
    PROJECTION_WRITE   /* careful: what was decided */
};

struct projection_query {
    enum statement statement;
    struct pg_params *params; /* given by the caller, reset */
};

enum projection_result {
    PROJECTION_OK,
    PROJECTION_CAREFUL,   /* one by one, please; never on the careful path */
    PROJECTION_OVERTAKEN, /* likewise: a later transaction was there first */
    PROJECTION_RETRY,     /* a lost race: the whole transaction again */
    PROJECTION_FAULT /* no memory, or rows that cannot be: wait, try again */
};

enum projection_apply {
    PROJECTION_APPLIED,
    PROJECTION_REJECTED, /* *error says why; nothing is changed */
    PROJECTION_MISSING   /* touches a row that is not locked; likewise */
};

struct projection {
    const char *name; /* word of the commands: "counters" */

    /*
     * Pure, when an event is read. *effect is in the arena, NULL when the
     * event does nothing here; may set *is_careful. False: *error is the
     * reason for which the event is rejected.
     */
    bool (*project)(const struct event_type *type,
                    const struct meter_event *event,
                    const struct json_value *attributes, struct arena *arena,
                    const void **effect, bool *is_careful, const char **error);

    /* Rows of one transaction; NULL: no memory. */
    void *(*rows_create)(void);
    void (*rows_destroy)(void *rows);
    /* Starts a try; is_trim: also gives back memory kept for reuse. */
    void (*rows_clear)(void *rows, bool is_trim);

    /*
     * For every item that may be accepted, before any row is touched, both
     * paths. What it notes is asked in the phase LOOK, behind the lock of
     * the writer; when that was got, the database's clock stood at most
     * PROJECTION_CLOCK_MARGIN_US past now_us. False: no memory. May be NULL.
     */
    bool (*look)(void *rows, const struct projected *item, int64_t now_us);

    /*
     * Items are collected for the phase STATES on the fast path as well, and
     * folded behind it; the ledger rows are made then.
     */
    bool has_fast_states;

    /* Fast path: every accepted item in arrival order, then the end. */
    enum projection_result (*fold)(void *rows, const struct projected *item,
                                   const struct projection_stamp *stamp);
    enum projection_result (*fold_end)(void *rows);

    /*
     * Careful path: every accepted item in arrival order, before the phase
     * STATES and again before the phase LOCK, when the states are known.
     */
    bool (*collect)(void *rows, enum projection_phase phase,
                    const struct projected *item);
    /* All locked rows: recorded_us must be greater than this; 0: may be any. */
    int64_t (*stamp_floor)(const void *rows);
    /* On locked rows, in arrival order; all effects of the item or none. */
    enum projection_apply (*apply)(void *rows, const struct projected *item,
                                   const struct projection_stamp *stamp,
                                   const char **error);
    /* Takes back the item applied last: another projection rejects it. */
    void (*undo)(void *rows, const struct projected *item);

    /*
     * The statements of a phase, *at from 0 on: the next one, and *at moved
     * on. False: none left. Its answer comes with the same number that *at
     * had before. A projection without rows gives none.
     */
    bool (*next)(void *rows, enum projection_phase phase,
                 const struct projection_stamp *stamp, size_t *at,
                 struct projection_query *out);
    enum projection_result (*answer)(void *rows, enum projection_phase phase,
                                     size_t at, const void *result);

    /* Rows that the transaction changes, for the metrics. */
    size_t (*changed)(const void *rows);

    /* What the rows should be, from the ledger; see recount.h. */
    const struct recount_ops *recount;
};

/* By enum projection_id. */
extern const struct projection *const projections[PROJECTION_COUNT];

extern const struct projection projection_meters;
extern const struct projection projection_counters;
extern const struct projection projection_usage;
extern const struct projection projection_index;
extern const struct projection projection_series;

/* All projections on one event. False: *error, as project above. */
MUST_CHECK bool
projections_project(const struct event_type *type,
                    const struct meter_event *event,
                    const struct json_value *attributes, struct arena *arena,
                    struct effects *effects, const char **error);

/* Test switch: rows are locked in arrival order, so that lanes deadlock. */
extern bool projection_is_unsorted;

#endif
