/*
 * series_recount_read.c - rows of a slice from the database, see
 * series_recount_run.h.
 *
 *   ledger rows | rows of the level below -> expected
 *   rows of the level, its marks, the dictionary -> found
 */

#include "maintain/series_recount_run.h"

#include "meter_time.h"

#define UNFIT_TOLD_MAX 10
#define KEYS_AT_ONCE   5000
#define SEEK_US        METER_TIME_DAY

enum row_column { ROW_SERIES, ROW_KEY, ROW_BUCKET, ROW_CELL };

/* As they were accepted; what is in the ledger was within. */
static const struct json_limits attribute_limits = {
    .depth_max = METER_JSON_DEPTH_MAX,
    .key_count_max = METER_ATTRIBUTE_COUNT_MAX,
    .name_size_max = METER_EVENT_SIZE_MAX,
    .string_size_max = METER_EVENT_SIZE_MAX,
};

struct slice_reading {
    struct series_run *series;
    const struct series_slice *slice;
    enum series_rows_end end; /* why a callback stopped */
    int64_t *seen;
};

/* False, for a callback: the reading stops. */
static bool
go_on(struct slice_reading *reading, enum series_rows_end end)
{
    reading->end = end;
    return end == SERIES_ROWS_OK;
}


/* ---- parameters ------------------------------------------------------- */

static bool
is_looked_at(const struct series_run *series, size_t at)
{
    return series->only == NULL || series->only == &series->catalog->series[at];
}

void
series_recount_put_known(const struct series_run *series,
                         struct pg_params *params)
{
    const struct catalog *catalog = series->catalog;
    size_t count = series->only == NULL ? catalog->series_count : 1;

    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < catalog->series_count; i++) {
        if (is_looked_at(series, i)) {
            pg_put_text(&params->bytes, catalog->series[i].name);
        }
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT8, count);
    for (size_t i = 0; i < catalog->series_count; i++) {
        if (is_looked_at(series, i)) {
            pg_put_int8(&params->bytes, catalog->series[i].version);
        }
    }
    pg_param_array_end(params);
}

static void
put_stretch(const struct series_run *series, const struct series_slice *slice)
{
    struct pg_params *params = &series->run->params;

    pg_param_text(params, series->tenant);
    series_recount_put_known(series, params);
    pg_param_time(params, slice->from_us);
    pg_param_time(params, slice->to_us);
}

/* Types with series; NULL where any type may have some. */
static void
put_types(const struct series_run *series, struct pg_params *params)
{
    const struct catalog *catalog = series->catalog;
    size_t count = 0;

    if (catalog->any_type != NULL && catalog->any_type->series_count > 0) {
        pg_param_null(params);
        return;
    }
    for (size_t i = 0; i < catalog->event_type_count; i++) {
        count += catalog->event_types[i].series_count > 0;
    }
    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < catalog->event_type_count; i++) {
        if (catalog->event_types[i].series_count > 0) {
            pg_put_text(&params->bytes, catalog->event_types[i].name);
        }
    }
    pg_param_array_end(params);
}

static void
put_flushed(const struct ledger_seqs *flushed, struct pg_params *params)
{
    pg_param_array_begin(params, PG_UUID, flushed->count);
    for (size_t i = 0; i < flushed->count; i++) {
        pg_put_uuid(&params->bytes, flushed->items[i].writer);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT8, flushed->count);
    for (size_t i = 0; i < flushed->count; i++) {
        pg_put_int8(&params->bytes, flushed->items[i].last);
    }
    pg_param_array_end(params);
}


/* ---- events ----------------------------------------------------------- */

static void
tell_unfit(struct series_run *series, const struct ledger_row *row,
           const char *error)
{
    struct recount_run *run = series->run;

    run->out->unfit++;
    if (run->told++ < UNFIT_TOLD_MAX) {
        recount_say(run, "event \"%.*s\" of tenant \"%.*s\": series: %s",
                    (int)row->event.event_id.size, row->event.event_id.data,
                    (int)series->tenant.size, series->tenant.data, error);
    }
}

/* False: unfit, or no memory, which the arena knows. */
static bool
event_project(struct arena *arena, const struct ledger_row *row,
              const struct event_type *type,
              const struct series_effect **effect,
              const struct meter_str **from, const char **error)
{
    struct json_value attributes;
    struct json_error json_error;
    const void *made = NULL;
    bool is_careful = false;
    size_t used;

    *error = "its attributes cannot be read";
    if (!json_read(row->event.attributes, &attribute_limits, arena, &attributes,
                   &used, &json_error) ||
        attributes.kind != JSON_OBJECT) {
        return false;
    }
    if (!series_project(type, &row->event, &attributes, arena, &made,
                        &is_careful, error)) {
        return false;
    }
    *effect = made;
    *error = "its states cannot be read";
    return made == NULL || series_from_read(made, row->from_state, arena, from);
}

static bool
event_row(void *asker, const struct ledger_row *row)
{
    struct slice_reading *reading = asker;
    struct series_run *series = reading->series;
    struct arena *arena = &series->run->arena;
    const struct event_type *type =
        catalog_event_type(series->catalog, row->event.type);
    const struct series_effect *effect = NULL;
    const struct meter_str *from = NULL;
    const char *error;
    struct cell_place place = {
        .ts_us = row->event.ts_us,
        .recorded_us = row->recorded_us,
        .seq = row->writer_seq,
    };

    ++*reading->seen;
    if (type == NULL || type->series_count == 0) {
        return true;
    }
    memcpy(place.writer, row->writer, sizeof(place.writer));
    arena_reset(arena);
    if (!event_project(arena, row, type, &effect, &from, &error)) {
        if (arena->no_memory) {
            return go_on(reading, SERIES_ROWS_FAULT);
        }
        tell_unfit(series, row, error);
        return true;
    }
    return effect == NULL ||
           go_on(reading, series_rows_fold(series->rows, effect, from, &place,
                                           series->only));
}

static bool
events_read(struct slice_reading *reading)
{
    struct series_run *series = reading->series;
    struct pg_params *params = &series->run->params;

    pg_params_reset(params);
    pg_param_text(params, series->tenant);
    pg_param_time(params, reading->slice->from_us);
    pg_param_time(params, reading->slice->to_us);
    put_types(series, params);
    put_flushed(&series->view.flushed, params);
    return ledger_store_events_of(series->run->store,
                                  STATEMENT_SERIES_RECOUNT_EVENTS, params,
                                  series->tenant, event_row, reading);
}


/* ---- rows ------------------------------------------------------------- */

/* Which row it is; false: of none that is looked at. */
static bool
at_read(const struct series_run *series, const void *result, int row,
        struct series_rows_at *at)
{
    struct meter_str key = pg_get_bytes(result, row, ROW_KEY);

    at->series =
        catalog_series(series->catalog, pg_get_bytes(result, row, ROW_SERIES));
    at->key = (const uint8_t *)key.data;
    at->bucket_us = pg_get_time(result, row, ROW_BUCKET);
    return at->series != NULL && key.size == METER_DIGEST_SIZE;
}

/* Labels and counts; false: no memory. *is_odd: not what is ever written. */
static bool
tally_read(const void *result, int row, struct cell *cell, bool *is_odd)
{
    const struct cell_place nowhere = {0};
    struct pg_array labels = pg_get_array(result, row, ROW_CELL + CELL_LABELS);
    struct pg_array counts = pg_get_array(result, row, ROW_CELL + CELL_COUNTS);
    struct meter_str before = {NULL, 0};
    struct series_change one = {.count = 0};

    *is_odd = labels.count != counts.count;
    while (!*is_odd && labels.count > 0) {
        struct meter_str count = pg_array_next(&counts);

        one.label = pg_array_next(&labels);
        if (one.label.data == NULL || count.data == NULL ||
            (before.data != NULL &&
             meter_str_compare(before, one.label) >= 0)) {
            *is_odd = true;
            break;
        }
        one.count = pg_int8_of(count);
        before = one.label;
        if (!cell_fold(cell, &one, (struct meter_str){NULL, 0}, &nowhere)) {
            return false;
        }
    }
    return true;
}

static void
numeric_read(const void *result, int row, enum cell_column column,
             struct series_rows_found *found, struct meter_decimal *out)
{
    if ((found->nulls & (1u << column)) == 0 &&
        !pg_get_numeric(result, row, ROW_CELL + (int)column, out)) {
        found->nulls |= 1u << column; /* beyond all that is ever written */
    }
}

static void
place_read(const void *result, int row, const struct series_rows_found *found,
           struct cell_place *place)
{
    if ((found->nulls & (1u << CELL_LAST_AT)) == 0) {
        place->ts_us = pg_get_time(result, row, ROW_CELL + CELL_LAST_AT);
    }
    if ((found->nulls & (1u << CELL_LAST_RECORDED_AT)) == 0) {
        place->recorded_us =
            pg_get_time(result, row, ROW_CELL + CELL_LAST_RECORDED_AT);
    }
    if ((found->nulls & (1u << CELL_LAST_WRITER)) == 0) {
        memcpy(place->writer,
               pg_get_bytes(result, row, ROW_CELL + CELL_LAST_WRITER).data,
               sizeof(place->writer));
    }
    if ((found->nulls & (1u << CELL_LAST_SEQ)) == 0) {
        place->seq = pg_get_int8(result, row, ROW_CELL + CELL_LAST_SEQ);
    }
}

/* False: no memory. */
static bool
found_read(const void *result, int row, const struct series_rows_at *at,
           struct series_rows_found *found)
{
    struct cell *cell = &found->cell;
    bool is_odd;

    *found = (struct series_rows_found){.nulls = 0};
    for (int i = 0; i < CELL_COLUMNS; i++) {
        if (pg_is_null(result, row, ROW_CELL + i)) {
            found->nulls |= 1u << i;
        }
    }
    /* A tally adds up in the same way for all kinds that have one. */
    cell_init(cell, SERIES_HISTOGRAM, at->bucket_us);
    if (!tally_read(result, row, cell, &is_odd)) {
        cell_fini(cell);
        return false;
    }
    if (is_odd) {
        found->nulls |= SERIES_ROWS_ODD;
    }
    cell->kind = (uint32_t)at->series->kind & 3;
    cell->count = pg_get_int8(result, row, ROW_CELL + CELL_COUNT);
    if ((found->nulls & (1u << CELL_SUM)) == 0 &&
        !pg_get_sum(result, row, ROW_CELL + CELL_SUM, &cell->sum)) {
        found->nulls |= 1u << CELL_SUM;
    }
    numeric_read(result, row, CELL_MIN, found, &cell->min);
    numeric_read(result, row, CELL_MAX, found, &cell->max);
    numeric_read(result, row, CELL_LAST, found, &cell->last);
    place_read(result, row, found, &cell->last_place);
    return true;
}

static bool
level_row(void *asker, const void *result, int row)
{
    struct slice_reading *reading = asker;
    struct series_rows_at at;
    struct series_rows_found found;
    enum series_rows_end end;

    ++*reading->seen;
    if (!at_read(reading->series, result, row, &at)) {
        return true;
    }
    if (!found_read(result, row, &at, &found)) {
        return go_on(reading, SERIES_ROWS_FAULT);
    }
    end = series_rows_found(reading->series->rows, &at, &found);
    cell_fini(&found.cell);
    return go_on(reading, end);
}

static bool
below_row(void *asker, const void *result, int row)
{
    struct slice_reading *reading = asker;
    struct series_rows_at at;
    struct series_rows_found found;
    enum series_rows_end end;

    ++*reading->seen;
    if (!at_read(reading->series, result, row, &at)) {
        return true;
    }
    if (!found_read(result, row, &at, &found)) {
        return go_on(reading, SERIES_ROWS_FAULT);
    }
    end = series_rows_merge(reading->series->rows, &at, &found);
    cell_fini(&found.cell);
    return go_on(reading, end);
}

static bool
mark_row(void *asker, const void *result, int row)
{
    struct slice_reading *reading = asker;
    struct series_rows_at at;

    return !at_read(reading->series, result, row, &at) ||
           go_on(reading, series_rows_mark(reading->series->rows, &at));
}

static bool
level_read(struct slice_reading *reading, enum meter_level level,
           ledger_result_cb cb)
{
    struct recount_run *run = reading->series->run;

    pg_params_reset(&run->params);
    put_stretch(reading->series, reading->slice);
    return ledger_store_rows(run->store,
                             SERIES_STATEMENT(SERIES_RECOUNT_ROWS, level),
                             &run->params, cb, reading);
}

static bool
marks_read(struct slice_reading *reading)
{
    struct recount_run *run = reading->series->run;

    pg_params_reset(&run->params);
    pg_param_int4(&run->params, reading->slice->level);
    put_stretch(reading->series, reading->slice);
    return ledger_store_rows(run->store, STATEMENT_SERIES_RECOUNT_MARKS,
                             &run->params, mark_row, reading);
}


/* ---- dictionary ------------------------------------------------------- */

static bool
key_row(void *asker, const void *result, int row)
{
    struct slice_reading *reading = asker;
    struct meter_str key = pg_get_bytes(result, row, ROW_KEY);
    const struct series_rows_at at = {
        .series = catalog_series(reading->series->catalog,
                                 pg_get_bytes(result, row, ROW_SERIES)),
        .key = (const uint8_t *)key.data,
    };

    return at.series == NULL || key.size != METER_DIGEST_SIZE ||
           go_on(reading, series_rows_dictionary(reading->series->rows, &at,
                                                 pg_get_bytes(result, row, 2)));
}

static bool
sets_ask(struct slice_reading *reading, struct series_rows_set *const *sets,
         size_t count)
{
    struct recount_run *run = reading->series->run;
    struct pg_params *params = &run->params;

    pg_params_reset(params);
    pg_param_text(params, reading->series->tenant);
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
    return ledger_store_rows(run->store, STATEMENT_SERIES_RECOUNT_KEYS, params,
                             key_row, reading);
}

static bool
dictionary_read(struct slice_reading *reading)
{
    struct series_rows_set *sets[KEYS_AT_ONCE];
    struct series_rows_set *set = NULL;
    size_t count;

    do {
        count = 0;
        while (count < KEYS_AT_ONCE &&
               (set = series_rows_unasked(reading->series->rows, set)) !=
                   NULL) {
            sets[count++] = set;
        }
        if (count > 0 && !sets_ask(reading, sets, count)) {
            return false;
        }
        for (size_t i = 0; i < count; i++) {
            sets[i]->is_asked = true;
        }
    } while (set != NULL);
    return true;
}


/* ---- all of it -------------------------------------------------------- */

enum series_read
series_recount_read(struct series_run *series, const struct series_slice *slice,
                    size_t rows_max, int64_t *seen)
{
    struct slice_reading reading = {series, slice, SERIES_ROWS_OK, seen};
    bool is_below = slice->source == SERIES_FROM_BELOW;
    bool is_good;

    *seen = 0;
    series_rows_start(series->rows, slice->level, rows_max);
    is_good = is_below ? level_read(&reading, slice->level - 1, below_row)
                       : events_read(&reading);
    if (is_good && !is_below) {
        series->events += *seen;
    }
    is_good = is_good && level_read(&reading, slice->level, level_row) &&
              (!is_below || marks_read(&reading)) && dictionary_read(&reading);
    if (is_good) {
        return SERIES_READ_OK;
    }
    if (reading.end == SERIES_ROWS_FULL) {
        return SERIES_READ_FULL;
    }
    if (reading.end == SERIES_ROWS_FAULT) {
        recount_say(series->run, "tenant \"%.*s\": out of memory",
                    (int)series->tenant.size, series->tenant.data);
    }
    return SERIES_READ_TROUBLE;
}

static bool
instant_row(void *asker, const void *result, int row)
{
    int64_t *out_us = asker;

    if (!pg_is_null(result, row, 0)) {
        *out_us = pg_get_time(result, row, 0);
    }
    return true;
}

/* The first bucket in the stretch; days without any cost next to nothing. */
static bool
bucket_next(struct series_run *series, enum meter_level level, int64_t from_us,
            int64_t to_us, int64_t *out_us)
{
    struct recount_run *run = series->run;
    struct series_slice part = {.level = level, .from_us = from_us};
    int64_t size_us = SEEK_US;

    *out_us = INT64_MAX;
    while (part.from_us < to_us && *out_us == INT64_MAX) {
        part.to_us =
            to_us - part.from_us > size_us ? part.from_us + size_us : to_us;
        pg_params_reset(&run->params);
        put_stretch(series, &part);
        if (!ledger_store_rows(run->store,
                               SERIES_STATEMENT(SERIES_RECOUNT_NEXT, level),
                               &run->params, instant_row, out_us)) {
            return false;
        }
        part.from_us = part.to_us;
        size_us *= 2;
    }
    return true;
}

bool
series_recount_seek(struct series_run *series,
                    const struct series_slice *stretch, int64_t *out_us)
{
    struct recount_run *run = series->run;
    int64_t end_us = stretch->to_us;
    int64_t stored_us;

    *out_us = INT64_MAX;
    if (stretch->source == SERIES_FROM_EVENTS) {
        pg_params_reset(&run->params);
        pg_param_text(&run->params, series->tenant);
        pg_param_time(&run->params, stretch->from_us);
        if (!ledger_store_rows(run->store, STATEMENT_SERIES_RECOUNT_EVENT_NEXT,
                               &run->params, instant_row, out_us)) {
            return false;
        }
    } else if (!bucket_next(series, stretch->level - 1, stretch->from_us,
                            end_us, out_us)) {
        return false;
    }
    *out_us = *out_us < end_us ? *out_us : INT64_MAX;
    end_us = *out_us < end_us ? *out_us : end_us;
    if (!bucket_next(series, stretch->level, stretch->from_us, end_us,
                     &stored_us)) {
        return false;
    }
    *out_us = stored_us < *out_us ? stored_us : *out_us;
    return true;
}
