/*
 * billing_recount.c - meters from the ledger, see recount.h.
 *
 *   adjustments -> late sums, manual sum, which events are not folded
 *   events ------> [billing_project] -> folded sums, watermark, values
 *   live rows, values ----------------> [compare]
 *
 * On time or late was decided at ingest; the ledger (disposition) and the
 * adjustments say how. What was adjusted in one metric may well be folded in
 * another one.
 */

#include "project/billing_recount.h"

#include <endian.h>
#include <stdlib.h>

#define ARENA_BLOCK ((size_t)1 << 20)
#define KEY_MAX     ((size_t)1 << 20)


/* ---- rows and values -------------------------------------------------- */

static void *
recount_create(const struct recount_scope *scope)
{
    struct billing_recounting *all = calloc(1, sizeof(*all));

    if (all == NULL) {
        return NULL;
    }
    all->scope = *scope;
    map_init(&all->row_map, RECOUNT_ROWS_MAX);
    map_init(&all->value_map, RECOUNT_ROWS_MAX);
    map_init(&all->close_map, RECOUNT_ROWS_MAX);
    map_init(&all->adjusted_map, RECOUNT_ROWS_MAX);
    arena_init(&all->arena, ARENA_BLOCK, RECOUNT_MEMORY_MAX);
    arena_init(&all->adjusted_arena, ARENA_BLOCK, RECOUNT_MEMORY_MAX);
    buf_init(&all->key, KEY_MAX);
    return all;
}

static void
recount_destroy(void *recount)
{
    struct billing_recounting *all = recount;

    if (all == NULL) {
        return;
    }
    map_fini(&all->row_map);
    map_fini(&all->value_map);
    map_fini(&all->close_map);
    map_fini(&all->adjusted_map);
    arena_fini(&all->arena);
    arena_fini(&all->adjusted_arena);
    buf_fini(&all->key);
    free(all->rows.items);
    free(all->values.items);
    free(all);
}

/*
 * metric, NUL, period, customer, NUL, group key. The sign bit of the period
 * is turned, so that bytes stand in the order of instants.
 */
static void
key_put(struct buf *out, const struct billed_key *of)
{
    uint64_t period = htobe64((uint64_t)of->period_us ^ UINT64_C(1) << 63);

    buf_put_str(out, of->meter->metric);
    buf_put_byte(out, 0);
    buf_put(out, &period, sizeof(period));
    buf_put_str(out, of->customer);
    buf_put_byte(out, 0);
    buf_put(out, of->group.key, sizeof(of->group.key));
}

/* Made when it is the first time; NULL: no memory. */
static struct billed_row *
row_take(struct billing_recounting *all, const struct billed_key *of)
{
    struct billed_row *row;

    buf_reset(&all->key);
    key_put(&all->key, of);
    if (all->key.failed) {
        return NULL;
    }
    row = map_find(&all->row_map, buf_str(&all->key));
    if (row != NULL) {
        return row;
    }
    row = arena_zalloc(&all->arena, sizeof(*row));
    if (row == NULL ||
        !arena_copy(&all->arena, buf_str(&all->key), &row->key) ||
        !arena_copy(&all->arena, of->group.json, &row->of.group.json)) {
        return NULL;
    }
    row->of.meter = of->meter;
    row->of.period_us = of->period_us;
    row->of.customer = (struct meter_str){
        row->key.data + of->meter->metric.size + 1 + 8, of->customer.size};
    memcpy(row->of.group.key, of->group.key, sizeof(of->group.key));
    billing_sums_init(&row->sums.folded);
    billing_sums_init(&row->sums.late);
    row->sums.watermark_us = INT64_MIN;
    row->since_us = RECOUNT_SINCE_NEVER;
    return map_add(&all->row_map, row->key, row);
}

static void
since_lower(struct billed_row *row, int64_t us)
{
    if (us < row->since_us) {
        row->since_us = us;
    }
}

static struct billed_value *
value_take(struct billing_recounting *all, struct billed_row *row,
           struct meter_str text)
{
    struct billed_value *value;

    buf_reset(&all->key);
    buf_put_str(&all->key, row->key);
    buf_put_str(&all->key, text);
    if (all->key.failed) {
        return NULL;
    }
    value = map_find(&all->value_map, buf_str(&all->key));
    if (value != NULL) {
        return value;
    }
    value = arena_zalloc(&all->arena, sizeof(*value));
    if (value == NULL ||
        !arena_copy(&all->arena, buf_str(&all->key), &value->key)) {
        return NULL;
    }
    value->row = row;
    value->text =
        (struct meter_str){value->key.data + row->key.size, text.size};
    return map_add(&all->value_map, value->key, value);
}

/* NULL: not recomputed. */
static const struct billing_meter *
meter_in_scope(const struct billing_recounting *all, struct meter_str metric)
{
    return all->scope.name.data == NULL ||
                   meter_str_equal(all->scope.name, metric)
               ? catalog_meter(all->scope.catalog, metric)
               : NULL;
}

static struct meter_str
adjusted_key(struct billing_recounting *all, struct meter_str metric,
             struct meter_str event_id)
{
    buf_reset(&all->key);
    buf_put_str(&all->key, metric);
    buf_put_byte(&all->key, 0);
    buf_put_str(&all->key, event_id);
    return buf_str(&all->key);
}


/* ---- adjustments ------------------------------------------------------ */

/* They are read again: all that came from them goes. */
static void
recount_forget(void *recount)
{
    struct billing_recounting *all = recount;
    struct billed_value *value;
    struct billed_row *row;
    size_t cursor = 0;

    while ((row = map_next(&all->row_map, &cursor)) != NULL) {
        billing_sums_init(&row->sums.late);
        row->sums.manual.units = 0;
        row->sums.has_late = false;
        row->sums.has_manual = false;
        row->is_adjusted = false;
    }
    cursor = 0;
    while ((value = map_next(&all->value_map, &cursor)) != NULL) {
        value->is_late = false;
    }
    map_clear(&all->adjusted_map);
    arena_reset(&all->adjusted_arena);
}

/* Columns of recount_adjustments. */
enum {
    AT_METRIC,
    AT_PERIOD,
    AT_CUSTOMER,
    AT_GROUP_KEY,
    AT_GROUPS,
    AT_IS_MANUAL,
    AT_ID,
    AT_AMOUNT,
    AT_TS,
    AT_VALUE,
    AT_SUM,
    AT_COUNT,
    AT_UNIQUE,
    AT_WRITER,
    AT_SEQ,
    AT_RECORDED,
    AT_CLOCK
};

/* metric to group_key stand first in all three; false: no row of ours. */
static bool
key_read(const struct billing_recounting *all, const void *result, int at,
         struct billed_key *of)
{
    struct meter_str key = pg_get_bytes(result, at, AT_GROUP_KEY);

    of->meter = meter_in_scope(all, pg_get_bytes(result, at, AT_METRIC));
    if (of->meter == NULL || key.size != sizeof(of->group.key)) {
        return false;
    }
    of->period_us = pg_get_time(result, at, AT_PERIOD);
    of->customer = pg_get_bytes(result, at, AT_CUSTOMER);
    memcpy(of->group.key, key.data, sizeof(of->group.key));
    return true;
}

/* What an adjusted event gave to the meter. False: no number. */
static bool
reading_read(const void *result, int at, struct billing_reading *reading,
             struct billing_mark *mark)
{
    struct meter_str writer = pg_get_bytes(result, at, AT_WRITER);

    *reading =
        (struct billing_reading){.unique = pg_get_bytes(result, at, AT_UNIQUE)};
    *mark = (struct billing_mark){
        .ts_us = pg_get_time(result, at, AT_TS),
        .recorded_us = pg_get_time(result, at, AT_RECORDED),
    };
    if (!pg_is_null(result, at, AT_COUNT)) {
        reading->count = pg_get_int8(result, at, AT_COUNT);
    }
    if (!pg_is_null(result, at, AT_SEQ)) {
        mark->writer_seq = pg_get_int8(result, at, AT_SEQ);
    }
    if (writer.size == sizeof(mark->writer)) {
        memcpy(mark->writer, writer.data, sizeof(mark->writer));
    }
    return (pg_is_null(result, at, AT_VALUE) ||
            pg_get_numeric(result, at, AT_VALUE, &reading->value)) &&
           (pg_is_null(result, at, AT_SUM) ||
            pg_get_numeric(result, at, AT_SUM, &reading->sum));
}

/* The event is not folded. False: no memory. */
static bool
adjusted_note(struct billing_recounting *all, struct billed_row *row,
              struct meter_str event_id)
{
    struct meter_str key = adjusted_key(all, row->of.meter->metric, event_id);

    return !all->key.failed &&
           (map_find(&all->adjusted_map, key) != NULL ||
            (arena_copy(&all->adjusted_arena, key, &key) &&
             map_add(&all->adjusted_map, key, row) != NULL));
}

static bool
late_add(struct billing_recounting *all, struct billed_row *row,
         const void *result, int at)
{
    struct billing_reading reading;
    struct billing_mark mark;
    struct billed_value *value;

    if (!reading_read(result, at, &reading, &mark) ||
        !billing_sums_add(&row->sums.late, &reading, &mark)) {
        return true; /* the row then differs */
    }
    row->sums.has_late = true;
    if (reading.unique.size == 0) {
        return true;
    }
    value = value_take(all, row, reading.unique);
    if (value == NULL) {
        return false;
    }
    row->sums.late.uniques += !value->is_folded && !value->is_late;
    value->is_late = true;
    return true;
}

static bool
input_adjustment(void *recount, const void *result, int at)
{
    struct billing_recounting *all = recount;
    int64_t clock_us = pg_get_time(result, at, AT_CLOCK);
    struct meter_decimal amount;
    struct billed_key of;
    struct billed_row *row;

    if (!key_read(all, result, at, &of)) {
        return true;
    }
    of.group.json = pg_get_bytes(result, at, AT_GROUPS);
    row = row_take(all, &of);
    if (row == NULL) {
        return false;
    }
    row->is_adjusted = true;
    since_lower(row, clock_us);
    if (clock_us > row->updated_us) {
        row->updated_us = clock_us;
    }
    if (!pg_get_bool(result, at, AT_IS_MANUAL)) {
        return adjusted_note(all, row, pg_get_bytes(result, at, AT_ID)) &&
               late_add(all, row, result, at);
    }
    if (pg_get_numeric(result, at, AT_AMOUNT, &amount) &&
        meter_decimal_add(row->sums.manual, amount, &row->sums.manual)) {
        row->sums.has_manual = true;
    }
    return true;
}


/* ---- closes ----------------------------------------------------------- */

/* None is ever taken back, so what was read before stays. */
static bool
input_close(void *recount, const void *result, int at)
{
    struct billing_recounting *all = recount;
    const struct billed_key of = {
        .meter = meter_in_scope(all, pg_get_bytes(result, at, AT_METRIC)),
        .period_us = pg_get_time(result, at, AT_PERIOD),
    };
    struct billed_close *close;

    if (of.meter == NULL) {
        return true;
    }
    buf_reset(&all->key);
    key_put(&all->key, &of);
    if (billed_close_find(all, of.meter, all->key.data) != NULL) {
        return true;
    }
    close = arena_zalloc(&all->arena, sizeof(*close));
    if (close == NULL || all->key.failed ||
        !arena_copy(&all->arena, buf_str(&all->key), &close->key)) {
        return false;
    }
    close->key.size = billed_close_key_size(of.meter);
    close->of = of;
    return map_add(&all->close_map, close->key, close) != NULL;
}


/* ---- events ----------------------------------------------------------- */

static bool
change_is_folded(struct billing_recounting *all,
                 const struct recount_event *event,
                 const struct billing_change *change)
{
    struct meter_str metric = change->meter->metric;

    return meter_in_scope(all, metric) != NULL &&
           change->period_us >= all->scope.from_us &&
           !(event->row->is_adjusted &&
             map_find(&all->adjusted_map,
                      adjusted_key(all, metric, event->row->event.event_id)) !=
                 NULL);
}

static struct billed_row *
change_row(struct billing_recounting *all, const struct billing_change *change)
{
    const struct billed_key of = {
        .meter = change->meter,
        .period_us = change->period_us,
        .customer = change->customer,
        .group = change->group,
    };

    return row_take(all, &of);
}

static struct billing_mark
mark_of(const struct recount_event *event)
{
    struct billing_mark mark = {
        .ts_us = event->row->event.ts_us,
        .recorded_us = event->row->recorded_us,
        .writer_seq = event->row->writer_seq,
    };

    memcpy(mark.writer, event->row->writer, sizeof(mark.writer));
    return mark;
}

/* Changes of one event are of as many meters, so of as many rows. */
static enum recount_result
change_try(struct billing_recounting *all, const struct recount_event *event,
           const struct billing_change *change, const char **error)
{
    const struct billing_mark mark = mark_of(event);
    const struct billed_row *row = change_row(all, change);
    struct billing_sums sums;

    if (row == NULL) {
        return RECOUNT_FAULT;
    }
    sums = row->sums.folded;
    if (!billing_sums_add(&sums, &change->reading, &mark)) {
        *error = "a meter would leave 38 digits or 64 bits";
        return RECOUNT_UNFIT;
    }
    return RECOUNT_OK;
}

static bool
change_fold(struct billing_recounting *all, const struct recount_event *event,
            const struct billing_change *change)
{
    const struct billing_mark mark = mark_of(event);
    struct billed_row *row = change_row(all, change);
    int64_t clock_us = event->row->clock_us;
    struct billed_value *value;

    if (row == NULL ||
        !billing_sums_add(&row->sums.folded, &change->reading, &mark)) {
        return false;
    }
    row->is_folded = true;
    billing_watermark_move(&row->sums.watermark_us, mark.ts_us, clock_us);
    since_lower(row, clock_us);
    if (clock_us > row->updated_us) {
        row->updated_us = clock_us;
    }
    if (change->reading.unique.size == 0) {
        return true;
    }
    value = value_take(all, row, change->reading.unique);
    if (value == NULL) {
        return false;
    }
    if (!value->is_folded) {
        row->sums.folded.uniques++;
        row->sums.late.uniques -= value->is_late;
        value->is_folded = true;
    }
    return true;
}

static enum recount_result
recount_add(void *recount, const struct recount_event *event,
            struct arena *arena, const char **error)
{
    struct billing_recounting *all = recount;
    const struct billing_effect *effect;
    enum recount_result result = RECOUNT_OK;
    const void *made;
    bool is_careful;

    if (!billing_project(event->type, &event->row->event, event->attributes,
                         arena, &made, &is_careful, error)) {
        return arena->no_memory ? RECOUNT_FAULT : RECOUNT_UNFIT;
    }
    if (made == NULL) {
        return RECOUNT_OK;
    }
    effect = made;
    for (size_t i = 0; result == RECOUNT_OK && i < effect->count; i++) {
        if (change_is_folded(all, event, &effect->changes[i])) {
            result = change_try(all, event, &effect->changes[i], error);
        }
    }
    for (size_t i = 0; result == RECOUNT_OK && i < effect->count; i++) {
        if (change_is_folded(all, event, &effect->changes[i]) &&
            !change_fold(all, event, &effect->changes[i])) {
            result = RECOUNT_FAULT;
        }
    }
    return result;
}


/* ---- live rows -------------------------------------------------------- */

static void
put_scope(const void *recount, struct pg_params *params)
{
    const struct billing_recounting *all = recount;

    pg_param_text(params, all->scope.tenant);
    pg_param_text(params, all->scope.name);
    if (all->scope.from_us == RECOUNT_FROM_EVER) {
        pg_param_null(params);
    } else {
        pg_param_time(params, all->scope.from_us);
    }
}

/* Kept only where it is another one than it should be. */
static bool
live_row(void *recount, const void *result, int at)
{
    struct billing_recounting *all = recount;
    struct figure expected[FIGURE_COLUMNS];
    struct figure found[FIGURE_COLUMNS];
    bool is_equal = true;
    struct billed_key of;
    struct billed_row *row;

    if (!key_read(all, result, at, &of)) {
        all->strangers++;
        return true;
    }
    of.group.json = pg_get_bytes(result, at, AT_GROUPS);
    row = row_take(all, &of);
    if (row == NULL) {
        return false;
    }
    figures_read(result, at, AT_GROUPS + 1, found);
    figures_of_sums(&row->sums, expected);
    for (int i = 0; i < FIGURE_COLUMNS; i++) {
        is_equal = is_equal && figure_is_equal((enum figure_column)i,
                                               &expected[i], &found[i]);
    }
    row->is_found = true;
    row->found_us = pg_get_time(result, at, AT_GROUPS + 1 + FIGURE_COLUMNS);
    since_lower(row, recount_made(result, at, AT_GROUPS + 2 + FIGURE_COLUMNS));
    if (!meter_str_equal(of.group.json, row->of.group.json) &&
        !arena_copy(&all->arena, of.group.json, &row->found_groups)) {
        return false;
    }
    if (!is_equal || !billed_row_is_expected(row)) {
        struct figure *copy = arena_alloc(&all->arena, sizeof(found));

        if (copy == NULL) {
            return false;
        }
        memcpy(copy, found, sizeof(found));
        row->found = copy;
    }
    return true;
}

static bool
live_value(void *recount, const void *result, int at)
{
    struct billing_recounting *all = recount;
    struct billed_value *value;
    struct billed_key of;
    struct billed_row *row;

    if (!key_read(all, result, at, &of)) {
        all->strangers++;
        return true;
    }
    of.group.json = METER_STR("{}"); /* where no row tells it */
    row = row_take(all, &of);
    if (row == NULL) {
        return false;
    }
    value = value_take(all, row, pg_get_bytes(result, at, AT_GROUPS));
    if (value == NULL) {
        return false;
    }
    value->is_found = true;
    value->is_found_folded = pg_get_bool(result, at, AT_GROUPS + 1);
    return true;
}

static size_t
recount_strangers(const void *recount)
{
    const struct billing_recounting *all = recount;

    return all->strangers;
}

static const struct recount_source sources[] = {
    {RECOUNT_INPUT, STATEMENT_RECOUNT_ADJUSTMENTS, put_scope, input_adjustment},
    {RECOUNT_LIVE, STATEMENT_RECOUNT_METERS, put_scope, live_row},
    {RECOUNT_LIVE, STATEMENT_RECOUNT_UNIQUES, put_scope, live_value},
    {RECOUNT_INPUT, STATEMENT_RECOUNT_CLOSES, put_scope, input_close},
};

const struct recount_ops billing_recount = {
    .create = recount_create,
    .destroy = recount_destroy,
    .sources = sources,
    .source_count = sizeof(sources) / sizeof(sources[0]),
    .forget = recount_forget,
    .add = recount_add,
    .compare = billing_recount_compare,
    .differences = billing_recount_differences,
    .write = billing_recount_write,
    .left = billing_recount_left,
    .strangers = recount_strangers,
};
