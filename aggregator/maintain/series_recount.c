/*
 * series_recount.c - see series_recount.h.
 *
 *   may it be done? -> tenants, one after the other -> slices, levels
 */

#include "maintain/series_recount.h"

#include "base/check.h"
#include "base/clock.h"
#include "maintain/series_recount_run.h"
#include "meter_time.h"

#define EVENT_ARENA_BLOCK ((size_t)1 << 16)
#define EVENT_ARENA_MAX   ((size_t)1 << 26)
#define SLICE_MS          1000 /* not made longer where it takes more */

/* How long a slice is at first and at most. */
static const struct {
    int64_t first_us;
    int64_t most_us;
} lengths[METER_LEVEL_COUNT] = {
    [METER_LEVEL_5S] = {METER_TIME_HOUR, METER_TIME_DAY},
    [METER_LEVEL_1M] = {6 * METER_TIME_HOUR, METER_TIME_DAY},
    [METER_LEVEL_1H] = {METER_TIME_DAY, 28 * METER_TIME_DAY},
    [METER_LEVEL_1D] = {28 * METER_TIME_DAY, 364 * METER_TIME_DAY},
    [METER_LEVEL_7D] = {364 * METER_TIME_DAY, 364 * METER_TIME_DAY},
};

/* A walk through time. */
struct walk {
    enum series_source source;
    enum meter_level level; /* of SERIES_FROM_BELOW */
    int64_t at_us;
    int64_t size_us[METER_LEVEL_COUNT];
    bool is_gap; /* nothing was where it came from: look for what is next */
    bool is_over;
};

static int64_t
align_up(enum meter_level level, int64_t at_us)
{
    int64_t bucket_us = meter_level_bucket(level, at_us);

    return bucket_us == at_us ? at_us : bucket_us + meter_level_size_us(level);
}

static int64_t
max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}


/* ---- slices ----------------------------------------------------------- */

/*
 * What lies before: the lowest level that is kept there, up to where the one
 * below it is kept.
 */
static void
stretch_of_events(struct series_run *series, struct walk *walk,
                  struct series_slice *out)
{
    const struct series_floors *floors = &series->view.floors;
    enum meter_level level = METER_LEVEL_7D;

    walk->at_us = max_of(walk->at_us, floors->event_us);
    walk->at_us = max_of(walk->at_us, floors->level_us[METER_LEVEL_7D]);
    while (level > METER_LEVEL_5S &&
           walk->at_us >= floors->level_us[level - 1]) {
        level--;
    }
    *out = (struct series_slice){.level = level, .source = SERIES_FROM_EVENTS};
    out->from_us = align_up(level, walk->at_us);
    out->to_us = align_up(level, series->to_us);
    if (level > METER_LEVEL_5S && out->to_us > floors->level_us[level - 1]) {
        out->to_us = floors->level_us[level - 1];
    }
}

static void
stretch_of_level(struct series_run *series, struct walk *walk,
                 struct series_slice *out)
{
    int64_t floor_us = series->view.floors.level_us[walk->level - 1];

    *out = (struct series_slice){.level = walk->level,
                                 .source = SERIES_FROM_BELOW};
    out->from_us = align_up(walk->level, max_of(walk->at_us, floor_us));
    out->to_us = align_up(walk->level, series->to_us);
}

/* The next slice; false: database. Nothing there: from_us is to_us. */
static bool
slice_next(struct series_run *series, struct walk *walk,
           struct series_slice *out)
{
    int64_t next_us;

    if (walk->source == SERIES_FROM_EVENTS) {
        stretch_of_events(series, walk, out);
    } else {
        stretch_of_level(series, walk, out);
    }
    walk->is_over =
        out->from_us >= out->to_us &&
        (out->level == METER_LEVEL_5S || walk->source == SERIES_FROM_BELOW ||
         out->to_us >= series->to_us);
    if (out->from_us >= out->to_us) {
        out->to_us = out->from_us;
        return true;
    }
    if (walk->is_gap) {
        if (!series_recount_seek(series, out, &next_us)) {
            return false;
        }
        out->from_us = next_us == INT64_MAX
                           ? out->to_us
                           : meter_level_bucket(out->level, next_us);
    }
    if (out->to_us - out->from_us > walk->size_us[out->level]) {
        out->to_us = out->from_us + walk->size_us[out->level];
    }
    return true;
}

/* In a snapshot of its own. */
static enum series_read
slice_read(struct series_run *series, struct walk *walk,
           struct series_slice *slice, int64_t *seen)
{
    enum series_read read = SERIES_READ_TROUBLE;
    int64_t *size_us;
    int64_t bucket_us;

    *seen = 0;
    series_view_fini(&series->view);
    if (!series_store_snapshot(series->run->store, &series->view)) {
        return read;
    }
    if (slice_next(series, walk, slice)) {
        size_us = &walk->size_us[slice->level];
        bucket_us = meter_level_size_us(slice->level);
        read =
            slice->from_us == slice->to_us
                ? SERIES_READ_OK
                : series_recount_read(series, slice,
                                      *size_us == bucket_us ? RECOUNT_ROWS_MAX
                                                            : SERIES_ROWS_MAX,
                                      seen);
        if (read == SERIES_READ_FULL && *size_us > bucket_us) {
            *size_us = max_of(*size_us / 2 / bucket_us, 1) * bucket_us;
        } else if (read == SERIES_READ_FULL) {
            recount_say(series->run, "tenant \"%.*s\": too many rows",
                        (int)series->tenant.size, series->tenant.data);
            read = SERIES_READ_TROUBLE;
        }
    }
    ledger_store_rollback(series->run->store);
    return read;
}

/* False: said. */
static bool
slice_run(struct series_run *series, struct walk *walk)
{
    uint64_t began_ms = clock_mono_ms();
    struct series_slice slice;
    size_t differences = 0;
    uint64_t took_ms;
    int64_t seen = 0;

    switch (slice_read(series, walk, &slice, &seen)) {
    case SERIES_READ_OK: break;
    case SERIES_READ_FULL: return true;
    case SERIES_READ_TROUBLE: return false;
    }
    took_ms = clock_mono_ms() - began_ms;
    progress_add(&series->run->progress, seen);
    walk->at_us = slice.to_us;
    walk->is_gap = seen == 0;
    if (slice.from_us == slice.to_us) {
        walk->is_gap = true;
        return true;
    }
    if (took_ms < SLICE_MS && seen < SERIES_ROWS_MAX / 4 &&
        walk->size_us[slice.level] * 2 <= lengths[slice.level].most_us) {
        walk->size_us[slice.level] *= 2;
    }
    if (!series_recount_tell(series, &slice, &differences)) {
        return false;
    }
    if (differences == 0 || !series->run->wish->is_writing) {
        return true;
    }
    CRASH_POINT("rebuild_after_compare");
    return slice.source == SERIES_FROM_EVENTS
               ? series_recount_fix(series, &slice, took_ms)
               : series_recount_mark(series, &slice);
}

static bool
walk_run(struct series_run *series, enum series_source source,
         enum meter_level level)
{
    struct walk walk = {
        .source = source,
        .level = level,
        .is_gap = true,
        .at_us = source == SERIES_FROM_EVENTS
                     ? series->from_us
                     : meter_level_bucket(level, series->from_us),
    };

    for (int i = 0; i < METER_LEVEL_COUNT; i++) {
        walk.size_us[i] = lengths[i].first_us;
    }
    while (!walk.is_over) {
        if (!slice_run(series, &walk)) {
            return false;
        }
    }
    return true;
}


/* ---- tenants ---------------------------------------------------------- */

static bool
number_row(void *asker, const void *result, int row)
{
    *(int64_t *)asker = pg_get_int8(result, row, 0);
    return true;
}

/* Dimension sets of names or versions that the rules do not have. */
static bool
strangers_count(struct series_run *series)
{
    struct recount_run *run = series->run;
    struct series_run all = *series;
    int64_t count = 0;

    all.only = NULL;
    pg_params_reset(&run->params);
    pg_param_text(&run->params, series->tenant);
    series_recount_put_known(&all, &run->params);
    if (!ledger_store_rows(run->store, STATEMENT_SERIES_RECOUNT_STRANGERS,
                           &run->params, number_row, &count)) {
        return false;
    }
    run->out->strangers += count;
    return true;
}

/* One level above the other: each is made from the one below. */
static bool
levels_run(struct series_run *series)
{
    bool is_writing = series->run->wish->is_writing;

    for (int level = METER_LEVEL_1M; level < METER_LEVEL_COUNT; level++) {
        if ((is_writing && !series_recount_drain(series, level)) ||
            !walk_run(series, SERIES_FROM_BELOW, level) ||
            (is_writing && !series_recount_drain(series, level))) {
            return false;
        }
    }
    return true;
}

static bool
tenant_run(struct series_run *series)
{
    struct recount_outcome *out = series->run->out;
    bool is_good;

    series->events = 0;
    series->written = 0;
    series->rows = series_rows_create(series->catalog);
    if (series->rows == NULL) {
        recount_say(series->run, "out of memory");
        return false;
    }
    is_good = walk_run(series, SERIES_FROM_EVENTS, METER_LEVEL_5S) &&
              levels_run(series) && strangers_count(series);
    series_rows_destroy(series->rows);
    series->rows = NULL;
    if (is_good) {
        out->tenants++;
        out->events += series->events;
        out->rebuilt += series->written;
    }
    return is_good;
}

static bool
tenant_row(void *asker, const void *result, int row)
{
    struct buf *tenant = asker;

    buf_reset(tenant);
    if (!pg_is_null(result, row, 0)) {
        buf_put_str(tenant, pg_get_bytes(result, row, 0));
    }
    return !tenant->failed;
}

static bool
tenants_all(struct series_run *series)
{
    struct recount_run *run = series->run;
    struct buf tenant;
    bool is_good = true;

    buf_init(&tenant, METER_TENANT_SIZE_MAX * 4);
    do {
        pg_params_reset(&run->params);
        pg_param_text(&run->params,
                      tenant.data == NULL ? METER_STR("") : buf_str(&tenant));
        is_good =
            ledger_store_rows(run->store, STATEMENT_SERIES_RECOUNT_TENANT_NEXT,
                              &run->params, tenant_row, &tenant);
        if (is_good && tenant.size > 0) {
            series->tenant = buf_str(&tenant);
            is_good = tenant_run(series);
        }
    } while (is_good && tenant.size > 0);
    buf_fini(&tenant);
    return is_good;
}


/* ---- may it be done? -------------------------------------------------- */

static bool
dense_row(void *asker, const void *result, int row)
{
    int64_t *lacking = asker;

    if (!pg_get_bool(result, row, 3)) {
        int64_t wanted = pg_get_int8(result, row, 1);
        int64_t found = pg_get_int8(result, row, 2);

        *lacking += wanted > found ? wanted - found : 1;
    }
    return true;
}

static bool
there_row(void *asker, const void *result, int row)
{
    *(bool *)asker = *(bool *)asker || pg_get_bool(result, row, 0);
    return true;
}

/* Rows of these series in front of what the ledger has. */
static bool
rows_before(struct series_run *series, int64_t floor_us, bool *is_there)
{
    struct recount_run *run = series->run;
    const char *tenant = run->wish->tenant;

    *is_there = false;
    for (int level = 0; level < METER_LEVEL_COUNT; level++) {
        pg_params_reset(&run->params);
        pg_param_text(
            &run->params,
            (struct meter_str){tenant, tenant == NULL ? 0 : strlen(tenant)});
        series_recount_put_known(series, &run->params);
        pg_param_time(&run->params, series->from_us);
        pg_param_time(&run->params, floor_us);
        if (!ledger_store_rows(run->store,
                               SERIES_STATEMENT(SERIES_RECOUNT_BEFORE, level),
                               &run->params, there_row, is_there)) {
            return false;
        }
    }
    return true;
}

/* Events that are gone without retention. */
static enum recount_end
lost_judge(struct series_run *series)
{
    struct recount_run *run = series->run;
    int64_t lacking = 0;

    pg_params_reset(&run->params);
    pg_param_null(&run->params);
    pg_param_array_begin(&run->params, PG_UUID, 0);
    pg_param_array_end(&run->params);
    pg_param_array_begin(&run->params, PG_INT8, 0);
    pg_param_array_end(&run->params);
    if (!ledger_store_rows(run->store, STATEMENT_RECOUNT_WRITERS, &run->params,
                           dense_row, &lacking)) {
        return RECOUNT_TROUBLE;
    }
    if (lacking > 0) {
        recount_say(run, "the ledger lacks %lld events", (long long)lacking);
    }
    return lacking > 0 ? RECOUNT_REFUSED : RECOUNT_DONE;
}

static enum recount_end
ledger_judge(struct series_run *series)
{
    struct recount_run *run = series->run;
    int64_t floor_us = series->view.floors.event_us;
    char text[METER_TIME_TEXT_SIZE + 1];
    bool is_there;

    run->out->whole_us = floor_us;
    if (floor_us == INT64_MIN) {
        return run->wish->is_reconciled ? RECOUNT_DONE : lost_judge(series);
    }
    if (series->from_us >= floor_us) {
        return RECOUNT_DONE;
    }
    if (!rows_before(series, floor_us, &is_there)) {
        return RECOUNT_TROUBLE;
    }
    if (is_there && run->wish->is_reconciled) {
        run->out->floor_us = floor_us; /* they are left out */
    } else if (is_there) {
        meter_time_format(floor_us, text);
        recount_say(run,
                    "retention has removed events before %.10s, and there are "
                    "series of that time: they cannot be recomputed. Say "
                    "--from %.10s to recompute what is later",
                    text, text);
        return RECOUNT_REFUSED;
    }
    return RECOUNT_DONE;
}

static enum recount_end
judge(struct series_run *series)
{
    enum recount_end end;

    if (!series_store_snapshot(series->run->store, &series->view)) {
        return RECOUNT_TROUBLE;
    }
    end = ledger_judge(series);
    ledger_store_rollback(series->run->store);
    return end;
}

static enum recount_end
run_all(struct series_run *series)
{
    struct recount_run *run = series->run;
    const char *tenant = run->wish->tenant;
    enum recount_end end;
    bool is_good;

    run->store =
        ledger_store_open(run->wish->config->database, run->wish->command);
    series->days = series_days_create(run->wish->config->admin_database,
                                      run->wish->command);
    if (run->store == NULL || series->days == NULL) {
        return RECOUNT_TROUBLE;
    }
    end = judge(series);
    if (end != RECOUNT_DONE) {
        return end;
    }
    progress_start(&run->progress, run->wish->command, "events and rows", 0);
    if (tenant == NULL) {
        is_good = tenants_all(series);
    } else {
        series->tenant = (struct meter_str){tenant, strlen(tenant)};
        is_good = tenant_run(series);
    }
    progress_end(&run->progress);
    return is_good ? RECOUNT_DONE : RECOUNT_TROUBLE;
}

enum recount_end
series_recount_run(const struct recount_wish *wish, int64_t to_us,
                   struct recount_outcome *out)
{
    struct recount_run run = {.wish = wish, .out = out};
    struct series_run series = {
        .run = &run,
        .catalog = wish->config->catalog,
        .from_us = max_of(wish->from_us, METER_TIME_MIN),
        .to_us = to_us > METER_TIME_MAX ? METER_TIME_MAX : to_us,
    };
    enum recount_end end = RECOUNT_DONE;

    *out =
        (struct recount_outcome){.floor_us = INT64_MIN, .whole_us = INT64_MIN};
    if (wish->name != NULL) {
        series.only = catalog_series(
            series.catalog, (struct meter_str){wish->name, strlen(wish->name)});
        CHECK(series.only != NULL);
    }
    arena_init(&run.arena, EVENT_ARENA_BLOCK, EVENT_ARENA_MAX);
    pg_params_init(&run.params);
    end = run_all(&series);
    series_view_fini(&series.view);
    series_days_destroy(series.days);
    ledger_store_close(run.store);
    pg_params_fini(&run.params);
    arena_fini(&run.arena);
    return end;
}
