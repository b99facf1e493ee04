/*
 * counter_projection.c - the projection `counters`: the way of counter rows
 * and entities through a transaction.
 *
 *   fast     [fold] -> counter_upsert -> [answer]: all rows, 64 bits, keys
 *   careful  [collect] -> entity_state_ensure, _lock -> [collect] ->
 *            counter_ensure, _lock -> [apply], [undo] -> counter_write,
 *            entity_state_write
 *   both     counter_audit_insert, for the rows that are audited
 *
 * The fold gives what one-by-one application gives. Where it cannot (64
 * bits, two dimension sets under one key, a clamped row that is as late as
 * the transaction, more keys than allowed) the careful path decides event by
 * event.
 *
 * Which rows a transition touches depends on where its entity is counted, and
 * that on the items before it: collect walks the same way that apply goes
 * when nothing is rejected. Where something is, the transaction is run again
 * without it.
 */

#include "project/counter_rows.h"

#include "base/log.h"
#include "base/metrics.h"
#include "base/reason.h"
#include "pg/column.h"
#include "project/recount.h"

#include <stdlib.h>

#define ARENA_BLOCK ((size_t)256 << 10)
#define ARENA_MAX   ((size_t)512 << 20)
#define COUNT_MAX   ((size_t)1 << 24)


/* ---- rows -----------------------------------------------------------------
 */

static void *
counter_rows_create(void)
{
    struct counter_rows *rows = memory_alloc(sizeof(*rows));

    map_init(&rows->row_map, COUNT_MAX);
    map_init(&rows->group_map, COUNT_MAX);
    map_init(&rows->state_map, COUNT_MAX);
    arena_init(&rows->arena, ARENA_BLOCK, ARENA_MAX);
    return rows;
}

/* Gives back all memory; the rows are as new. */
static void
rows_trim(struct counter_rows *rows)
{
    map_fini(&rows->row_map);
    map_fini(&rows->group_map);
    map_fini(&rows->state_map);
    vec_fini(&rows->rows);
    vec_fini(&rows->states);
    vec_fini(&rows->steps);
    arena_fini(&rows->arena);
    arena_init(&rows->arena, ARENA_BLOCK, ARENA_MAX);
}

static void
counter_rows_destroy(void *data)
{
    if (data != NULL) {
        rows_trim(data);
        free(data);
    }
}

static void
counter_rows_clear(void *data, bool is_trim)
{
    struct counter_rows *rows = data;

    if (is_trim) {
        rows_trim(rows);
    }
    memset(rows->recent, 0, sizeof(rows->recent));
    map_clear(&rows->row_map);
    map_clear(&rows->group_map);
    map_clear(&rows->state_map);
    vec_clear(&rows->rows);
    vec_clear(&rows->states);
    vec_clear(&rows->steps);
    rows->audited_count = 0;
    rows->up_max = 0;
    rows->down_max = 0;
    arena_reset(&rows->arena);
}


/* ---- parameters -----------------------------------------------------------
 */

#define ROW_COLUMN(kind, member)   PG_COLUMN(kind, struct counter_row, member)
#define STATE_COLUMN(kind, member) PG_COLUMN(kind, struct counter_state, member)

/* Of a fold that left 64 bits there is no a and no b. */
#define ROW_KEY                                       \
    ROW_COLUMN(TEXT, tenant), ROW_COLUMN(TEXT, name), \
        ROW_COLUMN(DIGEST, dimension_key)
#define ROW_FOLD                                                          \
    PG_COLUMN_IF(INT8, struct counter_row, tally.fold.a, tally.has_fold), \
        PG_COLUMN_IF(INT8, struct counter_row, tally.fold.b, tally.fold.has_b)

#define ROW_KEY_COLUMNS    3
#define ROW_ENSURE_COLUMNS 4

/* The first three are the key, the first four make a row. */
static const struct pg_column upsert_columns[] = {
    ROW_KEY,
    ROW_COLUMN(TEXT, dimensions),
    ROW_FOLD,
};

static const struct pg_column write_columns[] = {
    ROW_KEY,
    ROW_COLUMN(INT8, tally.value),
};

static const struct pg_column audit_columns[] = {
    ROW_KEY,
    ROW_FOLD,
    ROW_COLUMN(INT8, tally.seq_first),
    ROW_COLUMN(INT8, tally.seq_last),
};

#define STATE_KEY_COLUMNS 3

/* The first three are the key. */
static const struct pg_column state_columns[] = {
    STATE_COLUMN(TEXT, tenant),       STATE_COLUMN(TEXT, name),
    STATE_COLUMN(TEXT, entity),       STATE_COLUMN(BYTES, written_key),
    STATE_COLUMN(TEXT, written_json),
};

static void
put_rows(struct pg_params *out, const struct counter_rows *rows,
         const struct pg_column *columns, size_t count)
{
    pg_param_pointers(out, columns, count,
                      (const void *const *)rows->rows.items, rows->rows.count);
}

static void
put_states(struct pg_params *out, const struct counter_rows *rows, size_t count)
{
    pg_param_pointers(out, state_columns, count,
                      (const void *const *)rows->states.items,
                      rows->states.count);
}

static const void *
audited_next(const void *data, size_t *cursor)
{
    const struct counter_rows *rows = data;

    while (*cursor < rows->rows.count) {
        const struct counter_row *row = rows->rows.items[(*cursor)++];

        if (row->is_audited) {
            return row;
        }
    }
    return NULL;
}

static void
counter_audit_params(const struct counter_rows *rows,
                     const struct projection_stamp *stamp,
                     struct pg_params *out)
{
    pg_param_columns(out, audit_columns, PG_COLUMN_COUNT(audit_columns), rows,
                     rows->audited_count, audited_next);
    pg_param_uuid(out, stamp->writer);
    pg_param_time(out, stamp->clock_us);
}

/* Where each entity is now, as columns. */
static void
states_settle(const struct counter_rows *rows)
{
    for (size_t i = 0; i < rows->states.count; i++) {
        struct counter_state *state = rows->states.items[i];
        const struct dimension_set *now = state->now;

        state->written_key = (struct meter_str){NULL, 0};
        state->written_json = (struct meter_str){NULL, 0};
        if (now != NULL) {
            state->written_key =
                (struct meter_str){(const char *)now->key, METER_DIGEST_SIZE};
            state->written_json = now->json;
        }
    }
}


/* ---- the careful path -----------------------------------------------------
 */

static const struct counter_effect *
effect_of(const struct projected *item)
{
    return item->effects->of[PROJECTION_COUNTERS];
}

/*
 * What a change is counted under, moving its entity from *place on: up once
 * while it is counted nowhere, down once where it is. NULL: no change.
 */
static const struct dimension_set *
entity_move(const struct counter_change *change,
            const struct dimension_set **place)
{
    const struct dimension_set *from = *place;

    if (change->delta > 0) {
        if (from != NULL) {
            return NULL;
        }
        *place = &change->set;
        return &change->set;
    }
    *place = NULL;
    return from;
}

static bool
collect_states(struct counter_rows *rows, const struct projected *item)
{
    const struct counter_effect *effect = effect_of(item);

    for (size_t i = 0; i < effect->count; i++) {
        const struct counter_change *change = &effect->changes[i];

        if (change->entity.data != NULL &&
            counter_state_take(rows, item->event->tenant, change->counter,
                               change->entity) == NULL) {
            return false;
        }
    }
    return true;
}

static bool
collect_rows(struct counter_rows *rows, const struct projected *item)
{
    const struct counter_effect *effect = effect_of(item);
    struct meter_str tenant = item->event->tenant;

    for (size_t i = 0; i < effect->count; i++) {
        const struct counter_change *change = &effect->changes[i];
        const struct dimension_set *set = &change->set;

        if (change->entity.data != NULL) {
            struct counter_state *state = counter_state_find(
                rows, tenant, change->counter->name, change->entity);

            CHECK(state != NULL && state->is_locked);
            set = entity_move(change, &state->ahead);
        }
        if (set != NULL &&
            counter_row_take(rows, tenant, change->counter, set) == NULL) {
            return false;
        }
    }
    return true;
}

static bool
counter_collect(void *data, enum projection_phase phase,
                const struct projected *item)
{
    return phase == PROJECTION_STATES ? collect_states(data, item)
                                      : collect_rows(data, item);
}

/* Clamped rows and entities: what they become depends on the order. */
static int64_t
counter_stamp_floor(const void *data)
{
    const struct counter_rows *rows = data;
    int64_t floor_us = 0;

    for (size_t i = 0; i < rows->rows.count; i++) {
        const struct counter_row *row = rows->rows.items[i];

        if (row->is_floored && row->updated_us > floor_us) {
            floor_us = row->updated_us;
        }
    }
    for (size_t i = 0; i < rows->states.count; i++) {
        const struct counter_state *state = rows->states.items[i];

        if (state->updated_us > floor_us) {
            floor_us = state->updated_us;
        }
    }
    return floor_us;
}

/* Newest first: an item may touch a row twice. */
static void
steps_undo(struct counter_rows *rows)
{
    while (rows->steps.count > 0) {
        const struct counter_step *step =
            &rows->steps.items[--rows->steps.count];

        if (step->row != NULL) {
            if (step->row->tally.is_admitted && !step->tally.is_admitted) {
                step->row->group->admitted--;
            }
            step->row->tally = step->tally;
        }
        if (step->state != NULL) {
            step->state->now = step->now;
        }
    }
}

static void
collision_log(struct counter_row *row, struct meter_str dimensions)
{
    char key[2 * METER_DIGEST_SIZE + 1];

    if (row->is_reported) {
        return;
    }
    row->is_reported = true;
    meter_hex(row->dimension_key, METER_DIGEST_SIZE, key);
    log_error("counters", "two dimension sets share a key",
              log_bytes("tenant", row->tenant),
              log_bytes("counterName", row->name), log_str("dimensionKey", key),
              log_bytes("stored", row->dimensions),
              log_bytes("dimensions", dimensions));
}

/* True: the row is old, or there is room for one more key. */
static bool
row_admit(struct counter_row *row, const struct counter *counter)
{
    struct counter_group *group = row->group;

    if (!row->is_new || row->tally.is_admitted) {
        return true;
    }
    if (counter->keys_max > 0 &&
        group->keys - group->made + group->admitted >= counter->keys_max) {
        return false;
    }
    group->admitted++;
    row->tally.is_admitted = true;
    return true;
}

/* One change on its row; false: *error, and the row may be half changed. */
static bool
row_step(struct counter_row *row, const struct counter_change *change,
         const struct dimension_set *set, const struct projected *item,
         const char **error)
{
    const struct counter *counter = change->counter;
    struct counter_tally *tally = &row->tally;
    int name_size = (int)counter->name.size;

    if (!meter_str_equal(row->dimensions, set->json)) {
        collision_log(row, set->json);
        *error = reason_format(item->arena,
                               "counter %.*s: these dimensions share their "
                               "key with others",
                               name_size, counter->name.data);
        return false;
    }
    if (!row_admit(row, counter)) {
        const struct counter_group *group = row->group;

        metrics.edgemeter_cardinality_rejected_total++;
        *error = reason_format(
            item->arena,
            "counter %s has %lld keys for this tenant; the limit is %lld "
            "(limits.counterKeys)",
            reason_quote(counter->name).text,
            (long long)(group->keys - group->made + group->admitted),
            (long long)counter->keys_max);
        return false;
    }
    if (!counter_apply(&tally->value, change->delta, counter->floor_at_zero)) {
        *error =
            reason_format(item->arena, "counter %.*s would overflow 64 bits",
                          name_size, counter->name.data);
        return false;
    }
    tally->has_fold =
        tally->has_fold &&
        counter_fold_step(&tally->fold, change->delta, counter->floor_at_zero);
    if (!tally->has_fold) {
        tally->fold.has_b = false;
    }
    tally->seq_first =
        tally->seq_first == 0 ? item->writer_seq : tally->seq_first;
    tally->seq_last = item->writer_seq;
    return true;
}

static enum projection_apply
change_apply(struct counter_rows *rows, const struct counter_change *change,
             const struct projected *item, const char **error)
{
    struct meter_str tenant = item->event->tenant;
    struct counter_step *step = vec_add(&rows->steps);
    const struct dimension_set *set = &change->set;
    struct counter_row *row;

    *step = (struct counter_step){.name = change->counter->name};
    if (change->entity.data != NULL) {
        step->state = counter_state_find(rows, tenant, change->counter->name,
                                         change->entity);
        if (step->state == NULL) {
            return PROJECTION_MISSING;
        }
        step->now = step->state->now;
        set = entity_move(change, &step->state->now);
        if (set == NULL) {
            return PROJECTION_APPLIED;
        }
    }
    row = counter_row_find(
        rows, tenant, change->counter->name,
        (struct meter_str){(const char *)set->key, METER_DIGEST_SIZE});
    if (row == NULL || !row->is_locked) {
        return PROJECTION_MISSING;
    }
    step->row = row;
    step->tally = row->tally;
    return row_step(row, change, set, item, error) ? PROJECTION_APPLIED
                                                   : PROJECTION_REJECTED;
}

/* The transition whose counter comes next by name behind `last`. */
static const struct counter_step *
step_behind(const struct counter_rows *rows, const struct counter_step *last)
{
    const struct counter_step *next = NULL;

    for (size_t i = 0; i < rows->steps.count; i++) {
        const struct counter_step *step = &rows->steps.items[i];

        if (step->state != NULL &&
            (last == NULL || meter_str_compare(step->name, last->name) > 0) &&
            (next == NULL || meter_str_compare(step->name, next->name) < 0)) {
            next = step;
        }
    }
    return next;
}

/* {"<counter>":{dimensions}|null,...}: where the entity was counted before.
   False: no memory. */
static bool
mark_from_state(const struct counter_rows *rows, const struct projected *item)
{
    const struct counter_step *step = NULL;
    struct meter_writer writer;
    size_t room = 2;
    char *text;

    while ((step = step_behind(rows, step)) != NULL) {
        room += METER_JSON_ESCAPED_SIZE(step->name.size) + 8 +
                (step->now != NULL ? step->now->json.size : 0);
    }
    if (room == 2) {
        return true; /* no transition */
    }
    text = arena_alloc(item->arena, room);
    if (text == NULL) {
        return false;
    }
    meter_writer_init(&writer, text, room);
    while ((step = step_behind(rows, step)) != NULL) {
        struct meter_str from =
            step->now != NULL ? step->now->json : METER_STR("null");

        meter_put_u8(&writer, writer.at == 0 ? '{' : ',');
        meter_put_u8(&writer, '"');
        meter_put_json_escaped(&writer, step->name);
        meter_put_bytes(&writer, "\":", 2);
        meter_put_bytes(&writer, from.data, from.size);
    }
    meter_put_u8(&writer, '}');
    CHECK(!writer.failed);
    item->marks->from_state = (struct meter_str){text, writer.at};
    return true;
}

/* For each change with its step: was it counted, and where? False: no memory.
 */
static bool
mark_counted(const struct counter_rows *rows, const struct projected *item)
{
    struct counter_counted *counted;

    if (step_behind(rows, NULL) == NULL) {
        return true; /* no transition */
    }
    counted = arena_alloc(item->arena, rows->steps.count * sizeof(*counted));
    if (counted == NULL) {
        return false;
    }
    for (size_t i = 0; i < rows->steps.count; i++) {
        const struct counter_row *row = rows->steps.items[i].row;

        counted[i].is_ignored = row == NULL;
        if (row != NULL) {
            memcpy(counted[i].key, row->dimension_key, METER_DIGEST_SIZE);
        }
    }
    item->marks->counted = counted;
    return true;
}

static enum projection_apply
counter_apply_item(void *data, const struct projected *item,
                   const struct projection_stamp *stamp, const char **error)
{
    const struct counter_effect *effect = effect_of(item);
    struct counter_rows *rows = data;
    enum projection_apply applied = PROJECTION_APPLIED;

    (void)stamp;
    vec_clear(&rows->steps);
    item->marks->from_state = (struct meter_str){NULL, 0};
    item->marks->counted = NULL;
    for (size_t i = 0; applied == PROJECTION_APPLIED && i < effect->count;
         i++) {
        applied = change_apply(rows, &effect->changes[i], item, error);
    }
    if (applied == PROJECTION_APPLIED &&
        !(mark_from_state(rows, item) && mark_counted(rows, item))) {
        *error = "no memory is left for the event's counters";
        applied =
            item->arena->no_memory ? PROJECTION_MISSING : PROJECTION_REJECTED;
    }
    if (applied != PROJECTION_APPLIED) {
        steps_undo(rows);
    }
    return applied;
}

static void
counter_undo_item(void *data, const struct projected *item)
{
    steps_undo(data);
    item->marks->from_state = (struct meter_str){NULL, 0};
    item->marks->counted = NULL;
}


/* ---- the fast path, statements and answers --------------------------------
 */

#define STATEMENTS_MAX 3 /* of a phase */

static enum projection_result
fold_change(struct counter_rows *rows, const struct projected *item,
            const struct counter_change *change)
{
    struct counter_row *row;

    if (change->entity.data != NULL) {
        return PROJECTION_CAREFUL;
    }
    row = counter_row_take(rows, item->event->tenant, change->counter,
                           &change->set);
    if (row == NULL) {
        return PROJECTION_FAULT;
    }
    if (!meter_str_equal(row->dimensions, change->set.json) ||
        !counter_fold_step(&row->tally.fold, change->delta,
                           change->counter->floor_at_zero)) {
        return PROJECTION_CAREFUL;
    }
    if (row->tally.seq_first == 0) {
        row->tally.seq_first = item->writer_seq;
    }
    row->tally.seq_last = item->writer_seq;
    return PROJECTION_OK;
}

static enum projection_result
counter_fold_item(void *data, const struct projected *item,
                  const struct projection_stamp *stamp)
{
    const struct counter_effect *effect =
        item->effects->of[PROJECTION_COUNTERS];
    enum projection_result result = PROJECTION_OK;

    (void)stamp;
    for (size_t i = 0; result == PROJECTION_OK && i < effect->count; i++) {
        result = fold_change(data, item, &effect->changes[i]);
    }
    return result;
}

/* How far each fold strays from its end. False: too far to tell. */
static bool
rows_measure(struct counter_rows *rows)
{
    for (size_t i = 0; i < rows->rows.count; i++) {
        const struct counter_row *row = rows->rows.items[i];
        const struct counter_fold *fold = &row->tally.fold;
        int64_t up;
        int64_t down;

        if (__builtin_sub_overflow(fold->high, fold->a, &up) ||
            __builtin_sub_overflow(fold->a, fold->low, &down)) {
            return false;
        }
        rows->up_max = up > rows->up_max ? up : rows->up_max;
        /* Behind a clamp the way down is no longer known, nor of interest. */
        if (!fold->has_b && down > rows->down_max) {
            rows->down_max = down;
        }
    }
    return true;
}

static enum projection_result
counter_fold_end(void *data)
{
    if (!rows_measure(data)) {
        return PROJECTION_CAREFUL;
    }
    counter_rows_sort(data);
    return PROJECTION_OK;
}

/*
 * The end of a fold may fit into 64 bits while a step on its way did not;
 * the smallest and the largest value tell.
 */
static bool
folds_fit(const struct counter_rows *rows, int64_t value_min, int64_t value_max)
{
    int64_t edge;

    return !__builtin_add_overflow(value_max, rows->up_max, &edge) &&
           !__builtin_sub_overflow(value_min, rows->down_max, &edge);
}

/* The statements of a phase in their order; how many. */
static size_t
phase_statements(const struct counter_rows *rows, enum projection_phase phase,
                 enum statement out[STATEMENTS_MAX])
{
    bool has_rows = rows->rows.count > 0;
    bool has_states = rows->states.count > 0;
    size_t count = 0;

    switch (phase) {
    case PROJECTION_LOOK: break;
    case PROJECTION_STATES:
        if (has_states) {
            out[count++] = STATEMENT_ENTITY_STATE_ENSURE;
            out[count++] = STATEMENT_ENTITY_STATE_LOCK;
        }
        break;
    case PROJECTION_LOCK:
        if (has_rows) {
            out[count++] = STATEMENT_COUNTER_ENSURE;
            out[count++] = STATEMENT_COUNTER_LOCK;
        }
        break;
    case PROJECTION_APPLY:
    case PROJECTION_WRITE:
        if (has_rows) {
            out[count++] = phase == PROJECTION_APPLY ? STATEMENT_COUNTER_UPSERT
                                                     : STATEMENT_COUNTER_WRITE;
        }
        if (rows->audited_count > 0) {
            out[count++] = STATEMENT_COUNTER_AUDIT_INSERT;
        }
        if (has_states) {
            out[count++] = STATEMENT_ENTITY_STATE_WRITE;
        }
        break;
    }
    return count;
}

static void
statement_params(const struct counter_rows *rows, enum statement statement,
                 const struct projection_stamp *stamp, struct pg_params *out)
{
    switch (statement) {
    case STATEMENT_ENTITY_STATE_ENSURE:
    case STATEMENT_ENTITY_STATE_LOCK:
        put_states(out, rows, STATE_KEY_COLUMNS);
        return;
    case STATEMENT_COUNTER_ENSURE:
        put_rows(out, rows, upsert_columns, ROW_ENSURE_COLUMNS);
        return;
    case STATEMENT_COUNTER_LOCK:
        put_rows(out, rows, upsert_columns, ROW_KEY_COLUMNS);
        return;
    case STATEMENT_COUNTER_AUDIT_INSERT:
        counter_audit_params(rows, stamp, out);
        return;
    case STATEMENT_ENTITY_STATE_WRITE:
        states_settle(rows);
        put_states(out, rows, PG_COLUMN_COUNT(state_columns));
        break;
    case STATEMENT_COUNTER_UPSERT:
        put_rows(out, rows, upsert_columns, PG_COLUMN_COUNT(upsert_columns));
        break;
    default:
        put_rows(out, rows, write_columns, PG_COLUMN_COUNT(write_columns));
        break;
    }
    pg_param_time(out, stamp->recorded_us);
}

static bool
counter_next(void *data, enum projection_phase phase,
             const struct projection_stamp *stamp, size_t *at,
             struct projection_query *out)
{
    enum statement list[STATEMENTS_MAX];
    size_t count = phase_statements(data, phase, list);

    if (*at >= count) {
        return false;
    }
    if (*at == 0 && (phase == PROJECTION_STATES || phase == PROJECTION_LOCK)) {
        counter_rows_sort(data);
    }
    out->statement = list[(*at)++];
    statement_params(data, out->statement, stamp, out->params);
    return true;
}

/* What the database said cannot be: nothing is decided on it. */
static enum projection_result
fault(const char *text)
{
    log_error("counters", text);
    return PROJECTION_FAULT;
}

/*
 * One row without a tenant: how many rows were touched, the smallest and the
 * largest of their values. Then one for each group with new keys.
 */
static enum projection_result
answer_upsert(const struct counter_rows *rows, const void *result)
{
    int count = pg_row_count(result);
    int64_t touched = 0;
    int64_t value_min = 0;
    int64_t value_max = 0;
    bool is_over = false;

    for (int row = 0; row < count; row++) {
        const struct counter_group *group;

        if (pg_is_null(result, row, 0)) {
            touched = pg_get_int8(result, row, 2);
            value_min = pg_get_int8(result, row, 3);
            value_max = pg_get_int8(result, row, 4);
            continue;
        }
        group = counter_group_find(rows, pg_get_bytes(result, row, 0),
                                   pg_get_bytes(result, row, 1));
        if (group == NULL) {
            return fault("keys were counted that no event has");
        }
        if (group->keys_max > 0 &&
            pg_get_int8(result, row, 2) > group->keys_max) {
            is_over = true;
        }
    }
    if (is_over || !folds_fit(rows, value_min, value_max)) {
        return PROJECTION_CAREFUL;
    }
    if (touched != (int64_t)rows->rows.count) {
        return PROJECTION_OVERTAKEN;
    }
    return PROJECTION_OK;
}

/* The rows that were made; one without a key: what their group has now. */
static enum projection_result
answer_ensure(const struct counter_rows *rows, const void *result)
{
    int count = pg_row_count(result);

    for (int i = 0; i < count; i++) {
        struct meter_str tenant = pg_get_bytes(result, i, 0);
        struct meter_str name = pg_get_bytes(result, i, 1);
        struct counter_group *group = counter_group_find(rows, tenant, name);
        struct counter_row *row;

        if (group == NULL) {
            return fault("keys were counted that no event has");
        }
        if (pg_is_null(result, i, 2)) {
            group->keys = pg_get_int8(result, i, 3);
            continue;
        }
        row = counter_row_find(rows, tenant, name, pg_get_bytes(result, i, 2));
        if (row == NULL || row->is_new) {
            return fault("a counter row was made that no event has");
        }
        row->is_new = true;
        group->made++;
    }
    return PROJECTION_OK;
}

static enum projection_result
answer_lock(struct counter_rows *rows, const void *result)
{
    int count = pg_row_count(result);

    for (int i = 0; i < count; i++) {
        struct meter_str dimensions = pg_get_bytes(result, i, 3);
        struct counter_row *row = counter_row_find(
            rows, pg_get_bytes(result, i, 0), pg_get_bytes(result, i, 1),
            pg_get_bytes(result, i, 2));

        if (row == NULL || row->is_locked) {
            return fault("a counter row was locked that no event has");
        }
        if (!meter_str_equal(row->dimensions, dimensions) &&
            !arena_copy(&rows->arena, dimensions, &row->dimensions)) {
            return PROJECTION_FAULT;
        }
        row->is_locked = true;
        row->tally.value = pg_get_int8(result, i, 4);
        row->updated_us = pg_get_time(result, i, 5);
    }
    if ((size_t)count != rows->rows.count) {
        log_error("counters", "a counter row was not found");
        return PROJECTION_RETRY;
    }
    return PROJECTION_OK;
}

/* Where the row says the entity is counted; false: no memory. */
static bool
state_read(struct counter_rows *rows, struct counter_state *state,
           const void *result, int i)
{
    struct dimension_set *set;

    if (!pg_is_null(result, i, 3)) {
        struct meter_str key = pg_get_bytes(result, i, 3);

        set = arena_alloc(&rows->arena, sizeof(*set));
        if (set == NULL || key.size != METER_DIGEST_SIZE ||
            !arena_copy(&rows->arena, pg_get_bytes(result, i, 4), &set->json)) {
            return false;
        }
        memcpy(set->key, key.data, METER_DIGEST_SIZE);
        state->now = set;
        state->ahead = set;
    }
    state->is_locked = true;
    state->updated_us = pg_get_time(result, i, 5);
    return true;
}

static enum projection_result
answer_states(struct counter_rows *rows, const void *result)
{
    int count = pg_row_count(result);

    for (int i = 0; i < count; i++) {
        struct counter_state *state = counter_state_find(
            rows, pg_get_bytes(result, i, 0), pg_get_bytes(result, i, 1),
            pg_get_bytes(result, i, 2));

        if (state == NULL || state->is_locked) {
            return fault("an entity was locked that no event has");
        }
        if (!state_read(rows, state, result, i)) {
            return PROJECTION_FAULT;
        }
    }
    if ((size_t)count != rows->states.count) {
        log_error("counters", "an entity was not found");
        return PROJECTION_RETRY;
    }
    return PROJECTION_OK;
}

/* A statement that has to touch what it is given. */
static enum projection_result
answer_count(const void *result, size_t expected)
{
    if (pg_affected(result) != (int64_t)expected) {
        return fault("rows were passed over");
    }
    return PROJECTION_OK;
}

static enum projection_result
counter_answer(void *data, enum projection_phase phase, size_t at,
               const void *result)
{
    struct counter_rows *rows = data;
    enum statement list[STATEMENTS_MAX];

    CHECK(at < phase_statements(rows, phase, list));
    switch (list[at]) {
    case STATEMENT_ENTITY_STATE_ENSURE: return PROJECTION_OK;
    case STATEMENT_ENTITY_STATE_LOCK: return answer_states(rows, result);
    case STATEMENT_ENTITY_STATE_WRITE:
        return answer_count(result, rows->states.count);
    case STATEMENT_COUNTER_ENSURE: return answer_ensure(rows, result);
    case STATEMENT_COUNTER_LOCK: return answer_lock(rows, result);
    case STATEMENT_COUNTER_UPSERT: return answer_upsert(rows, result);
    case STATEMENT_COUNTER_WRITE: return answer_count(result, rows->rows.count);
    default: return answer_count(result, rows->audited_count);
    }
}

static size_t
counter_changed(const void *data)
{
    const struct counter_rows *rows = data;

    return rows->rows.count;
}

const struct projection projection_counters = {
    .name = "counters",
    .project = counter_project,
    .rows_create = counter_rows_create,
    .rows_destroy = counter_rows_destroy,
    .rows_clear = counter_rows_clear,
    .fold = counter_fold_item,
    .fold_end = counter_fold_end,
    .collect = counter_collect,
    .stamp_floor = counter_stamp_floor,
    .apply = counter_apply_item,
    .undo = counter_undo_item,
    .next = counter_next,
    .answer = counter_answer,
    .changed = counter_changed,
    .recount = &counter_recount,
};
