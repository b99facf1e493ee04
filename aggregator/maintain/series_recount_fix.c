/*
 * series_recount_fix.c - rows of series are put right, see
 * series_recount_run.h.
 *
 *   lock flushes -> read again -> dictionary, delete, insert, mark -> commit
 *
 * Flushes wait meanwhile, so a slice is done in pieces that take some
 * hundred milliseconds each. A flush that comes behind adds to rows that are
 * right.
 */

#include "maintain/series_recount_run.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "maintain/series_recount_text.h"
#include "meter_time.h"
#include "project/recount.h"

#include <signal.h>
#include <stdlib.h>

#define PIECE_MS   200 /* that flushes have to wait */
#define LOCK_TRIES 60  /* of 5 seconds each */
#define AT_ONCE    2000
#define TEXT_MAX   ((size_t)16 << 20)


/* ---- telling ---------------------------------------------------------- */

struct telling {
    struct buf key;
    struct buf expected;
    struct buf found;
    struct recount_difference one;
};

static bool
tell(struct series_run *series, struct telling *telling)
{
    const struct recount_finding finding = {.projection = "series",
                                            .tenant = series->tenant,
                                            .difference = &telling->one,
                                            .rule_changed_us = INT64_MIN};

    if (telling->key.failed || telling->expected.failed ||
        telling->found.failed) {
        recount_say(series->run, "out of memory");
        return false;
    }
    telling->one.key = buf_str(&telling->key);
    recount_find(series->run, &finding);
    buf_reset(&telling->key);
    buf_reset(&telling->expected);
    buf_reset(&telling->found);
    return true;
}

/*
 * An event that goes into a bucket is recorded at most futureSkew before it.
 * What is made from the level below is right or wrong by any rules.
 */
static int64_t
since_of(const struct series_run *series, const struct series_slice *slice,
         const struct series_rows_row *row)
{
    int64_t skew_us = series->run->wish->config->idempotency.future_skew_us;
    int64_t bucket_us = row->expected.bucket_us - skew_us;

    if (slice->source == SERIES_FROM_BELOW) {
        return RECOUNT_SINCE_NEVER;
    }
    return row->found != NULL && bucket_us < row->since_us ? bucket_us
                                                           : row->since_us;
}

static bool
tell_row(struct series_run *series, const struct series_slice *slice,
         const struct series_rows_row *row, struct telling *telling)
{
    telling->one = (struct recount_difference){
        .origin = {.kind = RULE_SERIES,
                   .names = {row->set->series->name},
                   .name_count = 1,
                   .since_us = since_of(series, slice, row)},
        .what = "bucket"};
    series_recount_put_key(&telling->key, row, slice->level);
    if (row->expected.count > 0) {
        series_recount_put_expected(&telling->expected, row);
        telling->one.expected = buf_str(&telling->expected);
    }
    if (row->found != NULL) {
        series_recount_put_found(&telling->found, row);
        telling->one.found = buf_str(&telling->found);
    }
    return tell(series, telling);
}

static bool
tell_set(struct series_run *series, struct series_rows_set *set,
         struct telling *telling)
{
    telling->one =
        (struct recount_difference){.origin = {.kind = RULE_SERIES,
                                               .names = {set->series->name},
                                               .name_count = 1,
                                               .since_us = set->since_us},
                                    .what = "dimensions",
                                    .expected = set->json,
                                    .found = set->stored};
    series_recount_put_set(&telling->key, set);
    set->is_told = true;
    return tell(series, telling);
}

bool
series_recount_tell(struct series_run *series, const struct series_slice *slice,
                    size_t *count)
{
    struct series_rows_set *const *sets;
    struct series_rows_row *const *rows;
    struct telling telling;
    bool is_good = true;
    size_t more;

    buf_init(&telling.key, TEXT_MAX);
    buf_init(&telling.expected, TEXT_MAX);
    buf_init(&telling.found, TEXT_MAX);
    sets = series_rows_sets_differing(series->rows, count);
    for (size_t i = 0; sets != NULL && is_good && i < *count; i++) {
        is_good = sets[i]->is_told || tell_set(series, sets[i], &telling);
    }
    is_good = is_good && sets != NULL;
    rows = is_good ? series_rows_differing(series->rows, &more) : NULL;
    for (size_t i = 0; rows != NULL && is_good && i < more; i++) {
        is_good = tell_row(series, slice, rows[i], &telling);
    }
    *count += rows != NULL ? more : 0;
    buf_fini(&telling.key);
    buf_fini(&telling.expected);
    buf_fini(&telling.found);
    return is_good && rows != NULL;
}


/* ---- dictionary ------------------------------------------------------- */

static void
put_sets(struct series_run *series, struct series_rows_set *const *sets,
         size_t count)
{
    struct pg_params *params = &series->run->params;

    pg_params_reset(params);
    pg_param_text(params, series->tenant);
    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&params->bytes, sets[i]->series->name);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT8, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_int8(&params->bytes, sets[i]->series->version);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_bytes(
            &params->bytes,
            (struct meter_str){(const char *)sets[i]->key, METER_DIGEST_SIZE});
    }
    pg_param_array_end(params);
}

static bool
sets_write(struct series_run *series, struct series_rows_set *const *sets,
           size_t count)
{
    struct recount_run *run = series->run;

    put_sets(series, sets, count);
    if (!ledger_store_rows(run->store, STATEMENT_SERIES_RECOUNT_KEYS_DELETE,
                           &run->params, NULL, NULL)) {
        return false;
    }
    put_sets(series, sets, count);
    pg_param_array_begin(&run->params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&run->params.bytes, sets[i]->json);
    }
    pg_param_array_end(&run->params);
    return ledger_store_rows(run->store, STATEMENT_SERIES_RECOUNT_KEYS_INSERT,
                             &run->params, NULL, NULL);
}

/* Behind the commit. */
static bool
sets_are_written(struct series_run *series)
{
    struct series_rows_set *const *sets;
    enum series_rows_end end = SERIES_ROWS_OK;
    size_t count;

    sets = series_rows_sets_differing(series->rows, &count);
    for (size_t i = 0; sets != NULL && end == SERIES_ROWS_OK && i < count;
         i++) {
        const struct series_rows_at at = {sets[i]->series, sets[i]->key, 0};

        end = series_rows_dictionary(series->rows, &at, sets[i]->json);
    }
    return sets != NULL && end == SERIES_ROWS_OK;
}


/* ---- rows ------------------------------------------------------------- */

/* tenant, then arrays of series, version, dimension_key, bucket. */
static void
put_rows(struct series_run *series, struct series_rows_row *const *rows,
         size_t count)
{
    struct pg_params *params = &series->run->params;

    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&params->bytes, rows[i]->set->series->name);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT8, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_int8(&params->bytes, rows[i]->set->series->version);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_bytes(&params->bytes,
                     (struct meter_str){(const char *)rows[i]->set->key,
                                        METER_DIGEST_SIZE});
    }
    pg_param_array_end(params);
}

static void
put_buckets(struct series_run *series, struct series_rows_row *const *rows,
            size_t count, enum meter_level level)
{
    struct pg_params *params = &series->run->params;

    pg_param_array_begin(params, PG_TIMESTAMPTZ, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_time(&params->bytes,
                    meter_level_bucket(level, rows[i]->expected.bucket_us));
    }
    pg_param_array_end(params);
}

static bool
rows_delete(struct series_run *series, const struct series_slice *slice,
            struct series_rows_row *const *rows, size_t count)
{
    struct recount_run *run = series->run;

    pg_params_reset(&run->params);
    pg_param_text(&run->params, series->tenant);
    put_rows(series, rows, count);
    put_buckets(series, rows, count, slice->level);
    pg_param_time(&run->params, slice->from_us);
    pg_param_time(&run->params, slice->to_us);
    return ledger_store_rows(
        run->store, SERIES_STATEMENT(SERIES_RECOUNT_DELETE, slice->level),
        &run->params, NULL, NULL);
}

static bool
rows_insert(struct series_run *series, const struct series_slice *slice,
            struct series_rows_row *const *rows, size_t count)
{
    struct recount_run *run = series->run;
    struct pg_params *params = &run->params;

    pg_params_reset(params);
    pg_param_text(params, series->tenant);
    put_rows(series, rows, count);
    put_buckets(series, rows, count, slice->level);
    for (int column = 0; column < CELL_COLUMNS; column++) {
        pg_param_array_begin(params, cell_column_type(column), count);
        for (size_t i = 0; i < count; i++) {
            cell_put(&rows[i]->expected, column, &params->bytes);
        }
        pg_param_array_end(params);
    }
    return ledger_store_rows(
        run->store, SERIES_STATEMENT(SERIES_RECOUNT_INSERT, slice->level),
        params, NULL, NULL);
}

/* Marks buckets of a level that the rows belong to. */
static bool
rows_mark(struct series_run *series, struct series_rows_row *const *rows,
          size_t count, enum meter_level level)
{
    struct recount_run *run = series->run;
    struct pg_params *params = &run->params;
    int64_t now_us = clock_wall_us();

    pg_params_reset(params);
    pg_param_int4(params, level);
    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&params->bytes, series->tenant);
    }
    pg_param_array_end(params);
    put_rows(series, rows, count);
    put_buckets(series, rows, count, level);
    pg_param_array_begin(params, PG_TIMESTAMPTZ, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_time(&params->bytes, now_us);
    }
    pg_param_array_end(params);
    return ledger_store_rows(run->store, STATEMENT_SERIES_DIRTY_MARK, params,
                             NULL, NULL);
}

/* One of each bucket above; rows are in order, so equal ones are adjacent. */
static size_t
parents_of(struct series_rows_row *const *rows, size_t count,
           enum meter_level above, struct series_rows_row **out)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && out[kept - 1]->set == rows[i]->set &&
            meter_level_bucket(above, out[kept - 1]->expected.bucket_us) ==
                meter_level_bucket(above, rows[i]->expected.bucket_us)) {
            continue;
        }
        out[kept++] = rows[i];
    }
    return kept;
}

static bool
some_write(struct series_run *series, const struct series_slice *slice,
           struct series_rows_row *const *rows, size_t count)
{
    struct series_rows_row *some[AT_ONCE] = {NULL};
    size_t found = 0;
    size_t wanted = 0;

    for (size_t i = 0; i < count; i++) {
        if (rows[i]->is_found) {
            some[found++] = rows[i];
        }
    }
    if (found > 0 && !rows_delete(series, slice, some, found)) {
        return false;
    }
    CRASH_POINT("rebuild_in_write");
    for (size_t i = 0; i < count; i++) {
        if (rows[i]->expected.count > 0) {
            some[wanted++] = rows[i];
        }
    }
    if (wanted > 0 && !rows_insert(series, slice, some, wanted)) {
        return false;
    }
    if (slice->level == METER_LEVEL_7D) {
        return true;
    }
    return rows_mark(series, some,
                     parents_of(rows, count, slice->level + 1, some),
                     slice->level + 1);
}


/* ---- one piece -------------------------------------------------------- */

static bool
differing_write(struct series_run *series, const struct series_slice *slice)
{
    struct series_rows_set *const *sets;
    struct series_rows_row *const *rows;
    size_t count;

    sets = series_rows_sets_differing(series->rows, &count);
    for (size_t i = 0; sets != NULL && i < count; i += AT_ONCE) {
        if (!sets_write(series, sets + i,
                        count - i < AT_ONCE ? count - i : AT_ONCE)) {
            return false;
        }
    }
    rows = sets == NULL ? NULL : series_rows_differing(series->rows, &count);
    if (rows == NULL) {
        recount_say(series->run, "out of memory");
        return false;
    }
    for (size_t i = 0; i < count; i += AT_ONCE) {
        if (!some_write(series, slice, rows + i,
                        count - i < AT_ONCE ? count - i : AT_ONCE)) {
            return false;
        }
    }
    return true;
}

static bool
lock(struct series_run *series)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        series_view_fini(&series->view);
        switch (ledger_store_exclusive(series->run->store, LEDGER_SERIES,
                                       &series->view)) {
        case LEDGER_LOCKED: return true;
        case LEDGER_FAILED: return false;
        case LEDGER_BUSY:
            recount_say(series->run, "waiting for a flush of meterd");
            break;
        }
    }
    recount_say(series->run, "the series stay locked by someone else");
    return false;
}

/* Retention has moved on: the piece is made from another level now. */
static bool
is_moved(const struct series_run *series, const struct series_slice *slice)
{
    const struct series_floors *floors = &series->view.floors;

    return slice->from_us < floors->event_us ||
           slice->from_us < floors->level_us[slice->level];
}

/* Test switch: stands still under the lock until it gets SIGCONT. */
static void
stop_for_test(void)
{
    const char *text = getenv("METERD_TEST_REBUILD_STOP");

    if (text != NULL && *text != '\0') {
        raise(SIGSTOP);
    }
}

static bool
piece_write(struct series_run *series, const struct series_slice *piece)
{
    struct ledger_store *store = series->run->store;
    bool is_good = false;
    int64_t seen = 0;

    if (!lock(series)) {
        return false;
    }
    CRASH_POINT("rebuild_after_lock");
    if (is_moved(series, piece)) {
        recount_say(series->run,
                    "retention has removed events or buckets meanwhile: run "
                    "it again");
    } else if (series_recount_read(series, piece, RECOUNT_ROWS_MAX, &seen) ==
               SERIES_READ_OK) {
        stop_for_test();
        is_good = differing_write(series, piece);
        CRASH_POINT("rebuild_before_commit");
        is_good = is_good && ledger_store_commit(store);
        CRASH_POINT("rebuild_after_commit");
        is_good = is_good && sets_are_written(series);
    }
    ledger_store_rollback(store);
    return is_good;
}

bool
series_recount_fix(struct series_run *series, const struct series_slice *slice,
                   uint64_t took_ms)
{
    int64_t size_us = meter_level_size_us(slice->level);
    int64_t buckets = (slice->to_us - slice->from_us) / size_us;
    int64_t pieces = (int64_t)(took_ms / PIECE_MS) + 1;
    int64_t step_us =
        (buckets > pieces ? (buckets + pieces - 1) / pieces : 1) * size_us;
    struct series_slice piece = *slice;
    enum partition_parent parent = PARTITION_SERIES + slice->level;
    int64_t events = series->events;

    if (!series_days_make(series->days, parent,
                          meter_time_day(slice->from_us)) ||
        !series_days_make(series->days, parent,
                          meter_time_day(slice->to_us - size_us))) {
        return false;
    }
    for (; piece.from_us < slice->to_us; piece.from_us = piece.to_us) {
        piece.to_us = slice->to_us - piece.from_us > step_us
                          ? piece.from_us + step_us
                          : slice->to_us;
        if (!piece_write(series, &piece)) {
            return false;
        }
    }
    series->events = events; /* not counted twice */
    series->written++;
    return true;
}

bool
series_recount_mark(struct series_run *series, const struct series_slice *slice)
{
    struct ledger_store *store = series->run->store;
    struct series_rows_row *const *rows;
    bool is_good = true;
    size_t count;

    rows = series_rows_differing(series->rows, &count);
    if (rows == NULL) {
        recount_say(series->run, "out of memory");
        return false;
    }
    for (size_t i = 0; is_good && i < count; i += AT_ONCE) {
        is_good = ledger_store_rows(store, STATEMENT_BEGIN, NULL, NULL, NULL) &&
                  rows_mark(series, rows + i,
                            count - i < AT_ONCE ? count - i : AT_ONCE,
                            slice->level) &&
                  ledger_store_commit(store);
        ledger_store_rollback(store);
    }
    series->written += count > 0;
    return is_good;
}
