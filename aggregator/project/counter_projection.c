/*
 * counter_projection.c - counters as a projection, see projection.h.
 *
 *   fast     [fold] -> counter_upsert -> [answer]: all rows, 64 bits, keys
 *   careful  entity_state_ensure, _lock -> counter_ensure, _lock -> apply ->
 *            counter_write, entity_state_write
 *   both     counter_audit_insert, for the rows that are audited
 *
 * The fold gives what one-by-one application gives. Where it cannot (64
 * bits, two dimension sets under one key, a clamped row that is as late as
 * the transaction, more keys than allowed) the careful path decides event by
 * event.
 */

#include "project/counter_rows.h"

#include "base/log.h"
#include "project/recount.h"

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
    case STATEMENT_ENTITY_STATE_LOCK: counter_states_params(rows, out); break;
    case STATEMENT_ENTITY_STATE_WRITE:
        counter_states_write_params(rows, stamp, out);
        break;
    case STATEMENT_COUNTER_ENSURE: counter_ensure_params(rows, out); break;
    case STATEMENT_COUNTER_LOCK: counter_lock_params(rows, out); break;
    case STATEMENT_COUNTER_UPSERT:
        counter_upsert_params(rows, stamp, out);
        break;
    case STATEMENT_COUNTER_WRITE: counter_write_params(rows, stamp, out); break;
    default: counter_audit_params(rows, stamp, out); break;
    }
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
    if (*at == 0 && phase == PROJECTION_STATES) {
        counter_states_sort(data);
    } else if (*at == 0 && phase == PROJECTION_LOCK) {
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
