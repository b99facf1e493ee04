/*
 * recount.h - what the rows of a projection should be, from the ledger.
 *
 *   inputs -> events of one tenant -> [recount] -> expected rows
 *                         live rows -> [compare] -> differences -> writes
 *
 * The same functions decide as at ingest (project, then one by one on the
 * row), in the order (recorded_at, writer, writer_seq), which is the order in
 * which clamped rows were changed. Rules are those of the catalog given.
 * Counters and metrics that the catalog does not have are left as they are.
 *
 * A recount never talks to the server: it makes parameters and reads rows,
 * as a projection does. It holds all rows of one tenant: some 200 bytes for
 * a counter row, an entity or a unique value and 600 for a meter row, each
 * with the text of its key, at most RECOUNT_MEMORY_MAX.
 */

#ifndef PROJECT_RECOUNT_H
#define PROJECT_RECOUNT_H

#include "config/rule_digest.h"
#include "project/attribute.h"
#include "project/projection.h"
#include "store/ledger_store.h"

#define RECOUNT_MEMORY_MAX ((size_t)16 << 30)
#define RECOUNT_ROWS_MAX   ((size_t)1 << 26)

/* Periods of this start and later; INT64_MIN: all. */
#define RECOUNT_FROM_EVER INT64_MIN

/* A closed period that is to be put right all the same, which is noted. */
struct recount_reopen {
    int64_t period_us;
    struct meter_str actor;
    struct meter_str reason;
};

/* What is recomputed; borrowed for the life of the recount. */
struct recount_scope {
    const struct catalog *catalog;
    struct meter_str tenant;
    struct meter_str name; /* one counter or metric; data NULL: all */
    int64_t from_us;       /* meters: earlier periods are left out */
    bool is_chained;       /* counters: also the end of the audit log */
    const struct recount_reopen *reopen; /* of the metric; NULL: none */
};

/* A row of the ledger; row->event is what was accepted. */
struct recount_event {
    const struct ledger_row *row;
    const struct event_type *type;
    const struct json_value *attributes;
};

enum recount_result {
    RECOUNT_OK,
    RECOUNT_UNFIT, /* the rules would reject it now: *error; nothing done */
    RECOUNT_FAULT  /* no memory */
};

/* A row of a checkpoint: where the recount starts instead of at nothing. */
enum recount_base_kind {
    RECOUNT_BASE_COUNTER,
    RECOUNT_BASE_ENTITY,
    RECOUNT_BASE_USAGE
};

struct recount_base {
    enum recount_base_kind kind;
    struct meter_str name; /* of the counter, also of an entity */
    bool has_set;          /* false: an entity that is not counted */
    struct dimension_set set;
    int64_t value;
    struct meter_str entity;
    int64_t usage[USAGE_COLUMN_COUNT];
    enum usage_status status;
    int64_t updated_us;
};

enum recount_when {
    RECOUNT_INPUT, /* before the events: also decides; read again later */
    RECOUNT_LIVE   /* behind them: what is compared */
};

/* A statement whose rows the recount reads. */
struct recount_source {
    enum recount_when when;
    enum statement statement;
    void (*params)(const void *recount, struct pg_params *params);
    /* False: no memory. */
    bool (*row)(void *recount, const void *result, int row);
};

/* No change of a rule can be the reason of a difference. */
#define RECOUNT_SINCE_NEVER INT64_MAX
/* A row that nobody knows the age of. */
#define RECOUNT_SINCE_EVER INT64_MIN

#define RECOUNT_RULES_MAX (USAGE_COLUMN_COUNT + 1)

/*
 * The rules that a row is made by. since_us: from when on events can have
 * gone into it, those that should have and those that did; a change of a rule
 * before is none of its business.
 */
struct recount_origin {
    enum rule_kind kind;
    struct meter_str names[RECOUNT_RULES_MAX];
    size_t name_count;
    bool is_any; /* one of them explains it; else all have to */
    int64_t since_us;
};

/* One row that is not what it should be. */
struct recount_difference {
    struct recount_origin origin;
    const char *what;          /* "counter", "entity", "meter", ... */
    struct meter_str key;      /* a JSON object */
    struct meter_str expected; /* JSON; data NULL: no row */
    struct meter_str found;    /* likewise */
};

typedef void (*recount_difference_cb)(void *asker,
                                      const struct recount_difference *one);

/* A closed period and how many differences of it are left. */
typedef void (*recount_left_cb)(void *asker, struct meter_str metric,
                                const char *period, size_t count);

struct recount_ops {
    /* The tenant of scope, nothing counted yet. NULL: no memory. */
    void *(*create)(const struct recount_scope *scope);
    void (*destroy)(void *recount);

    /* Before the first event. False: no memory. NULL: has no base. */
    bool (*base)(void *recount, const struct recount_base *row);

    /*
     * In the order of struct recount_source; forget: before the sources of
     * kind INPUT are read, each time. NULL: has none.
     */
    const struct recount_source *sources;
    size_t source_count;
    void (*forget)(void *recount);

    /* The arena is for the time of the call. */
    enum recount_result (*add)(void *recount, const struct recount_event *event,
                               struct arena *arena, const char **error);

    /*
     * Behind all rows: marks what differs; *count of it. Marked rows stay
     * marked: events that are added later are what happened since, and the
     * writes then say what the marked rows should be behind them. False: no
     * memory.
     */
    bool (*compare)(void *recount, size_t *count);
    /* By key. False: no memory. */
    bool (*differences)(void *recount, recount_difference_cb cb, void *asker);
    /* The next statement that puts marked rows right, as projection.next. */
    bool (*write)(void *recount, size_t *at, struct projection_query *out);

    /*
     * Behind compare, or behind the writes: differences that stay, since
     * their period is closed, and their number; cb NULL: only that. NULL:
     * none ever stays.
     */
    size_t (*left)(const void *recount, recount_left_cb cb, void *asker);

    /* Live rows passed over: the catalog does not know their name. */
    size_t (*strangers)(const void *recount);
};

/* A column made_at: when the row was made. */
static inline int64_t
recount_made(const void *result, int row, int column)
{
    return pg_is_null(result, row, column) ? RECOUNT_SINCE_EVER
                                           : pg_get_time(result, row, column);
}

extern const struct recount_ops counter_recount;
extern const struct recount_ops usage_recount;
extern const struct recount_ops billing_recount;
/* States of the entities of state series; buckets do not fit in memory. */
extern const struct recount_ops series_recount;

#endif
