/*
 * recount_tenant.c - one tenant's projections, recomputed; see recount.h.
 *
 *   snapshot: base, adjustments, events -> expected; live rows -> compare
 *   lock:     adjustments, events since -> expected; marked rows -> written
 *
 * Between snapshot and lock ingest goes on. What it does to rows that were
 * right leaves them right; the rows that were not are known from the
 * snapshot, and what they should be behind all events is written over them.
 * When too much came in between it is read in another snapshot first, so
 * that the lock is a short one.
 */

#include "maintain/recount_run.h"

#include "base/check.h"
#include "base/log.h"
#include "pg/column.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TAIL_EVENTS_MAX 50000 /* of all tenants, read under the lock */
#define ROUNDS_MAX      8     /* snapshots, then the lock in any case */
#define LOCK_TRIES      60    /* of 5 seconds each */
#define UNFIT_TOLD_MAX  10

/* As they were accepted; what is in the ledger was within. */
static const struct json_limits attribute_limits = {
    .depth_max = METER_JSON_DEPTH_MAX,
    .key_count_max = METER_ATTRIBUTE_COUNT_MAX,
    .name_size_max = METER_EVENT_SIZE_MAX,
    .string_size_max = METER_EVENT_SIZE_MAX,
};

struct tenant_run {
    struct recount_run *run;
    struct meter_str tenant;
    void *recounts[PROJECTION_COUNT]; /* NULL: not wanted */
    size_t differing[PROJECTION_COUNT];
    struct ledger_seqs seqs; /* events up to here are in the recounts */
    int64_t ts_from_us;      /* earlier events do nothing */
    int64_t first_us;        /* the first event read was recorded */
    int64_t events;
};

static const struct recount_ops *
ops_of(size_t projection)
{
    return projections[projection]->recount;
}


/* ---- events ----------------------------------------------------------- */

static void
tell_unfit(struct tenant_run *one, const struct ledger_row *row,
           const char *projection, const char *error)
{
    struct recount_run *run = one->run;

    run->out->unfit++;
    if (run->told++ < UNFIT_TOLD_MAX) {
        recount_say(run, "event \"%.*s\" of tenant \"%.*s\": %s: %s",
                    (int)row->event.event_id.size, row->event.event_id.data,
                    (int)one->tenant.size, one->tenant.data, projection, error);
    }
}

static bool
type_does_something(const struct event_type *type)
{
    return type != NULL && (type->counter_count > 0 || type->meter_count > 0 ||
                            type->series_count > 0 || type->usage_count > 0 ||
                            type->usage_status != USAGE_STATUS_KEEP);
}

/* To every projection; false: no memory, told. */
static bool
event_fold(struct tenant_run *one, const struct recount_event *event)
{
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        const char *error = "no reason is known";
        enum recount_result result = RECOUNT_OK;

        if (one->recounts[i] != NULL) {
            result = ops_of(i)->add(one->recounts[i], event, &one->run->arena,
                                    &error);
        }
        if (result == RECOUNT_UNFIT) {
            tell_unfit(one, event->row, projections[i]->name, error);
        } else if (result == RECOUNT_FAULT) {
            recount_say(one->run, "tenant \"%.*s\": out of memory",
                        (int)one->tenant.size, one->tenant.data);
            return false;
        }
    }
    return true;
}

static bool
event_row(void *asker, const struct ledger_row *row)
{
    struct tenant_run *one = asker;
    struct recount_run *run = one->run;
    const struct event_type *type =
        catalog_event_type(run->wish->config->catalog, row->event.type);
    struct json_value attributes;
    struct json_error error;
    size_t used;

    one->events++;
    if (row->recorded_us < one->first_us) {
        one->first_us = row->recorded_us;
    }
    progress_add(&run->progress, 1);
    if (!type_does_something(type)) {
        return true;
    }
    arena_reset(&run->arena);
    if (!json_read(row->event.attributes, &attribute_limits, &run->arena,
                   &attributes, &used, &error) ||
        attributes.kind != JSON_OBJECT) {
        tell_unfit(one, row, "all", "its attributes cannot be read");
        return true;
    }
    return event_fold(one, &(struct recount_event){row, type, &attributes});
}


/* ---- sources ---------------------------------------------------------- */

struct source_reading {
    const struct recount_source *source;
    struct tenant_run *one;
    void *recount;
};

static bool
source_row(void *asker, const void *result, int row)
{
    struct source_reading *reading = asker;

    if (!reading->source->row(reading->recount, result, row)) {
        recount_say(reading->one->run, "tenant \"%.*s\": out of memory",
                    (int)reading->one->tenant.size, reading->one->tenant.data);
        return false;
    }
    return true;
}

static bool
sources_read(struct tenant_run *one, enum recount_when when)
{
    struct recount_run *run = one->run;

    for (int i = 0; i < PROJECTION_COUNT; i++) {
        if (one->recounts[i] == NULL) {
            continue;
        }
        if (when == RECOUNT_INPUT && ops_of(i)->forget != NULL) {
            ops_of(i)->forget(one->recounts[i]);
        }
        for (size_t j = 0; j < ops_of(i)->source_count; j++) {
            const struct recount_source *source = &ops_of(i)->sources[j];
            struct source_reading reading = {source, one, one->recounts[i]};

            if (source->when != when) {
                continue;
            }
            pg_params_reset(&run->params);
            source->params(one->recounts[i], &run->params);
            if (!ledger_store_rows(run->store, source->statement, &run->params,
                                   source_row, &reading)) {
                return false;
            }
        }
    }
    return true;
}

static bool
base_row(struct tenant_run *one, const struct checkpoint_row *row)
{
    struct recount_base base = {
        .kind = row->kind == CHECKPOINT_COUNTER  ? RECOUNT_BASE_COUNTER
                : row->kind == CHECKPOINT_ENTITY ? RECOUNT_BASE_ENTITY
                                                 : RECOUNT_BASE_USAGE,
        .name = row->name,
        .has_set = row->has_dimensions,
        .set.json = row->dimensions,
        .value = row->value,
        .entity = row->entity,
        .updated_us = row->updated_us,
        .status = meter_str_equal(row->status, METER_STR("decommissioned"))
                      ? USAGE_STATUS_DECOMMISSIONED
                      : USAGE_STATUS_ACTIVE,
    };

    memcpy(base.set.key, row->dimension_key, sizeof(base.set.key));
    for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
        base.usage[i] = row->usage[i];
    }
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        if (one->recounts[i] != NULL && ops_of(i)->base != NULL &&
            !ops_of(i)->base(one->recounts[i], &base)) {
            recount_say(one->run, "tenant \"%.*s\": out of memory",
                        (int)one->tenant.size, one->tenant.data);
            return false;
        }
    }
    return true;
}

_Static_assert((int)USAGE_COLUMN_COUNT == CHECKPOINT_USAGE_COLUMNS,
               "a checkpoint has all columns");

/* The file's rows of the tenant; the reader stands behind them then. */
static bool
base_read(struct tenant_run *one)
{
    struct checkpoint_reader *reader = one->run->wish->base;
    const struct checkpoint_row *row;

    if (reader == NULL) {
        return true;
    }
    if (!checkpoint_reader_seek(reader, one->tenant)) {
        return false;
    }
    while ((row = checkpoint_reader_row(reader)) != NULL &&
           meter_str_equal(row->tenant, one->tenant)) {
        if (!base_row(one, row) || !checkpoint_reader_next(reader)) {
            return false;
        }
    }
    return true;
}


/* ---- the ledger from a number on --------------------------------------- */

/* Which rows of a tenant. */
struct ledger_range {
    struct meter_str tenant;
    const struct ledger_seqs *after; /* behind these numbers; NULL: all */
    const struct ledger_seqs *upto;  /* what there is now; NULL: not known,
                                        with it the search is a short one */
    int64_t ts_from_us;              /* INT64_MIN: of any time */
};

static const struct ledger_seq *
ledger_seqs_find(const struct ledger_seqs *seqs, const uint8_t writer[16])
{
    size_t low = 0;
    size_t high = seqs->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = memcmp(seqs->items[middle].writer, writer, 16);

        if (order == 0) {
            return &seqs->items[middle];
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

static int64_t
ledger_seqs_last(const struct ledger_seqs *seqs, const uint8_t writer[16])
{
    const struct ledger_seq *found = ledger_seqs_find(seqs, writer);

    return found == NULL ? 0 : found->last;
}

/* Rows of all tenants that are in later and not in earlier. */
static int64_t
ledger_seqs_between(const struct ledger_seqs *earlier,
                    const struct ledger_seqs *later)
{
    int64_t sum = 0;

    for (size_t i = 0; i < later->count; i++) {
        sum += later->items[i].last -
               ledger_seqs_last(earlier, later->items[i].writer);
    }
    return sum;
}

/*
 * What all rows between have a greater recorded_at than: stamps grow with
 * every transaction of a writer. INT64_MIN: not known, of a new writer.
 */
static int64_t
ledger_seqs_recorded_from(const struct ledger_seqs *earlier,
                          const struct ledger_seqs *later)
{
    int64_t from_us = INT64_MAX;

    for (size_t i = 0; i < later->count; i++) {
        const struct ledger_seq *now = &later->items[i];
        const struct ledger_seq *then = ledger_seqs_find(earlier, now->writer);

        if (now->last == (then == NULL ? 0 : then->last)) {
            continue;
        }
        if (then == NULL) {
            return INT64_MIN;
        }
        from_us = then->stamp_us < from_us ? then->stamp_us : from_us;
    }
    return from_us;
}

static void
ledger_time_put(struct pg_params *params, int64_t ts_us)
{
    if (ts_us == INT64_MIN) {
        pg_param_null(params);
    } else {
        pg_param_time(params, ts_us);
    }
}

static void
ledger_range_put(struct pg_params *params, const struct ledger_range *range)
{
    static const struct pg_column columns[] = {
        PG_COLUMN(UUID, struct ledger_seq, writer),
        PG_COLUMN(INT8, struct ledger_seq, last),
    };
    const struct ledger_seqs none = {NULL, 0};
    const struct ledger_seqs *after =
        range->after == NULL ? &none : range->after;

    pg_params_reset(params);
    pg_param_text(params, range->tenant);
    pg_param_rows(params, columns, PG_COLUMN_COUNT(columns), after->items,
                  after->count, sizeof(*after->items));
    ledger_time_put(params, range->ts_from_us);
    ledger_time_put(params, range->upto == NULL ? INT64_MIN
                                                : ledger_seqs_recorded_from(
                                                      after, range->upto));
}

/* By (recorded_at, writer, writer_seq), in constant memory. */
static bool
ledger_range_read(struct tenant_run *one, const struct ledger_range *range)
{
    if (range->upto != NULL && range->after != NULL &&
        ledger_seqs_between(range->after, range->upto) == 0) {
        return true;
    }
    ledger_range_put(&one->run->params, range);
    return ledger_store_events_of(one->run->store, STATEMENT_RECOUNT_EVENTS,
                                  &one->run->params, range->tenant, event_row,
                                  one);
}


/* ---- snapshot --------------------------------------------------------- */

/* Adjustments, then the events behind one->seqs up to now. */
static bool
tail_read(struct tenant_run *one, struct ledger_seqs *now)
{
    const struct ledger_range range = {
        .tenant = one->tenant,
        .after = &one->seqs,
        .upto = now,
        .ts_from_us = one->ts_from_us,
    };

    if (!sources_read(one, RECOUNT_INPUT) || !ledger_range_read(one, &range)) {
        return false;
    }
    ledger_seqs_fini(&one->seqs);
    one->seqs = *now;
    *now = (struct ledger_seqs){NULL, 0};
    return true;
}

/* False: told. */
static bool
recounts_create(struct tenant_run *one, int64_t floor_us)
{
    const struct recount_wish *wish = one->run->wish;
    int64_t from_us = wish->from_us > floor_us ? wish->from_us : floor_us;
    bool is_meters_only = true;

    for (int i = 0; i < PROJECTION_COUNT; i++) {
        const struct recount_scope scope = {
            .catalog = wish->config->catalog,
            .tenant = one->tenant,
            .name = {wish->name, wish->name == NULL ? 0 : strlen(wish->name)},
            .from_us = from_us,
            .is_chained = wish->is_reconciled || wish->is_writing,
            .reopen = wish->is_reopened ? &wish->reopen : NULL,
        };

        if (!one->run->is_wanted[i]) {
            continue;
        }
        is_meters_only = is_meters_only && i == PROJECTION_METERS;
        one->recounts[i] = ops_of(i)->create(&scope);
        if (one->recounts[i] == NULL) {
            recount_say(one->run, "out of memory");
            return false;
        }
    }
    one->ts_from_us = is_meters_only ? from_us : INT64_MIN;
    return true;
}

/* All of it, as of one moment; the transaction is left to the caller. */
static enum recount_end
snapshot_read(struct tenant_run *one, int64_t floor_us)
{
    struct recount_run *run = one->run;
    struct ledger_range range = {.tenant = one->tenant, .after = &run->base};

    if (floor_us != run->floor_us && (run->is_wanted[PROJECTION_COUNTERS] ||
                                      run->is_wanted[PROJECTION_USAGE])) {
        recount_say(run, "retention has removed events meanwhile: run it "
                         "again");
        return RECOUNT_REFUSED;
    }
    /* A day that nothing has gone before is no end: all may be compared. */
    if (run->is_whole && floor_us == run->floor_us) {
        floor_us = INT64_MIN;
    } else if (run->is_wanted[PROJECTION_METERS]) {
        recount_meters_from(run, floor_us);
    }
    if (!recounts_create(one, floor_us)) {
        return RECOUNT_TROUBLE;
    }
    range.ts_from_us = one->ts_from_us;
    if (!ledger_store_seqs(run->store, &one->seqs) || !base_read(one) ||
        !sources_read(one, RECOUNT_INPUT) || !ledger_range_read(one, &range) ||
        !sources_read(one, RECOUNT_LIVE)) {
        return RECOUNT_TROUBLE;
    }
    return RECOUNT_DONE;
}

/* What came since the last one; the rows that differ are known already. */
static bool
catch_up(struct tenant_run *one)
{
    struct ledger_seqs now = {NULL, 0};
    int64_t floor_us;
    bool is_good;

    if (!ledger_store_snapshot(one->run->store, &floor_us)) {
        return false;
    }
    is_good = ledger_store_seqs(one->run->store, &now) && tail_read(one, &now);
    ledger_store_rollback(one->run->store);
    ledger_seqs_fini(&now);
    return is_good;
}


/* ---- lock and write --------------------------------------------------- */

static bool
marked_write(struct tenant_run *one)
{
    struct recount_run *run = one->run;

    for (int i = 0; i < PROJECTION_COUNT; i++) {
        struct projection_query query = {.params = &run->params};
        size_t at = 0;

        if (one->differing[i] == 0) {
            continue;
        }
        pg_params_reset(&run->params);
        while (ops_of(i)->write(one->recounts[i], &at, &query)) {
            if (!ledger_store_rows(run->store, query.statement, &run->params,
                                   NULL, NULL)) {
                return false;
            }
            CRASH_POINT("rebuild_in_write");
            pg_params_reset(&run->params);
        }
    }
    return true;
}

/* Tests do not wait for so many. */
static int64_t
tail_events_max(void)
{
    const char *text = getenv("METERD_TEST_TAIL_EVENTS");

    return text == NULL || *text == '\0' ? TAIL_EVENTS_MAX
                                         : strtol(text, NULL, 10);
}

/* Test switch: stands still in front of the lock until it gets SIGCONT. */
static void
stop_for_test(void)
{
    const char *text = getenv("METERD_TEST_REBUILD_STOP");

    if (text != NULL && *text != '\0') {
        raise(SIGSTOP);
    }
}

enum locked_end {
    LOCKED_WRITTEN,
    LOCKED_TOO_MUCH, /* came since: read it first */
    LOCKED_FAILED
};

/* Under the lock; ends the transaction. */
static enum locked_end
locked_write(struct tenant_run *one, bool is_last_round)
{
    struct ledger_store *store = one->run->store;
    struct ledger_seqs now = {NULL, 0};
    enum locked_end end = LOCKED_FAILED;
    int64_t tail;

    CRASH_POINT("rebuild_after_lock");
    if (ledger_store_seqs(store, &now)) {
        tail = ledger_seqs_between(&one->seqs, &now);
        if (!is_last_round && tail > tail_events_max()) {
            recount_say(one->run,
                        "%lld events came meanwhile; they are read first",
                        (long long)tail);
            end = LOCKED_TOO_MUCH;
        } else if (tail_read(one, &now) && marked_write(one)) {
            CRASH_POINT("rebuild_before_commit");
            end = ledger_store_commit(store) ? LOCKED_WRITTEN : LOCKED_FAILED;
            CRASH_POINT("rebuild_after_commit");
        }
    }
    ledger_seqs_fini(&now);
    ledger_store_rollback(store);
    return end;
}

static bool
lock(struct tenant_run *one)
{
    enum ledger_scope scope = one->differing[PROJECTION_METERS] > 0
                                  ? LEDGER_COUNTS_AND_METERS
                                  : LEDGER_COUNTS;

    for (int i = 0; i < LOCK_TRIES; i++) {
        switch (ledger_store_exclusive(one->run->store, scope, NULL)) {
        case LEDGER_LOCKED: return true;
        case LEDGER_FAILED: return false;
        case LEDGER_BUSY:
            recount_say(one->run, "waiting for the transactions of meterd");
            break;
        }
    }
    recount_say(one->run, "the writers' rows stay locked by someone else");
    return false;
}

static bool
tenant_write(struct tenant_run *one)
{
    stop_for_test();
    for (int round = 1; lock(one); round++) {
        switch (locked_write(one, round == ROUNDS_MAX)) {
        case LOCKED_WRITTEN: one->run->out->rebuilt++; return true;
        case LOCKED_FAILED: return false;
        case LOCKED_TOO_MUCH:
            if (!catch_up(one)) {
                return false;
            }
            break;
        }
    }
    return false;
}


/* ---- all of it -------------------------------------------------------- */

struct tenant_telling {
    struct tenant_run *one;
    const char *projection;
};

static void
tell_difference(void *asker, const struct recount_difference *difference)
{
    const struct tenant_telling *telling = asker;
    const struct tenant_run *one = telling->one;
    struct recount_difference told = *difference;
    const struct recount_finding finding = {
        .projection = telling->projection,
        .tenant = one->tenant,
        .difference = &told,
        .rule_changed_us = INT64_MIN,
    };

    /* Where all events were read no row is older than the first of them. */
    if (one->run->is_whole && one->run->wish->base == NULL &&
        one->ts_from_us == INT64_MIN && told.origin.since_us < one->first_us) {
        told.origin.since_us = one->first_us;
    }
    recount_find(one->run, &finding);
}

/* False: no memory. *count of all differences. */
static bool
tenant_compare(struct tenant_run *one, size_t *count)
{
    *count = 0;
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        struct tenant_telling telling = {one, projections[i]->name};

        if (one->recounts[i] == NULL) {
            continue;
        }
        if (!ops_of(i)->compare(one->recounts[i], &one->differing[i]) ||
            (one->differing[i] > 0 &&
             !ops_of(i)->differences(one->recounts[i], tell_difference,
                                     &telling))) {
            recount_say(one->run, "out of memory");
            return false;
        }
        *count += one->differing[i];
        one->run->out->strangers +=
            (int64_t)ops_of(i)->strangers(one->recounts[i]);
    }
    return true;
}

static void
tell_left(void *asker, struct meter_str metric, const char *period,
          size_t count)
{
    const struct tenant_run *one = asker;
    const struct recount_wish *wish = one->run->wish;

    if (wish->left_cb != NULL) {
        wish->left_cb(wish->asker, metric);
    }
    recount_say(one->run,
                "%.*s %s is closed: %zu differences of tenant \"%.*s\" %s "
                "left as they are",
                (int)metric.size, metric.data, period, count,
                (int)one->tenant.size, one->tenant.data,
                wish->is_writing ? "are" : "would be");
}

/* Differences of closed periods; is_told: and which. */
static size_t
tenant_left(struct tenant_run *one, bool is_told)
{
    size_t sum = 0;

    for (int i = 0; i < PROJECTION_COUNT; i++) {
        if (one->recounts[i] != NULL && ops_of(i)->left != NULL) {
            sum += ops_of(i)->left(one->recounts[i], is_told ? tell_left : NULL,
                                   one);
        }
    }
    return sum;
}

enum recount_end
recount_tenant(struct recount_run *run, struct meter_str tenant)
{
    struct tenant_run one = {
        .run = run, .tenant = tenant, .first_us = INT64_MAX};
    enum recount_end end = RECOUNT_TROUBLE;
    size_t differences = 0;
    int64_t floor_us;

    if (ledger_store_snapshot(run->store, &floor_us)) {
        end = snapshot_read(&one, floor_us);
        ledger_store_rollback(run->store);
    }
    if (end == RECOUNT_DONE && !tenant_compare(&one, &differences)) {
        end = RECOUNT_TROUBLE;
    }
    CRASH_POINT("rebuild_after_compare");
    if (end == RECOUNT_DONE && differences > tenant_left(&one, false) &&
        run->wish->is_writing && !tenant_write(&one)) {
        end = RECOUNT_TROUBLE;
    }
    if (end == RECOUNT_DONE) {
        run->out->left += (int64_t)tenant_left(&one, !run->wish->is_reconciled);
        run->out->tenants++;
        run->out->events += one.events;
    }
    ledger_seqs_fini(&one.seqs);
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        if (one.recounts[i] != NULL) {
            ops_of(i)->destroy(one.recounts[i]);
        }
    }
    return end;
}
