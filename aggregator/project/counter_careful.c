/*
 * counter_careful.c - counters one by one, on locked rows; see
 * counter_rows.h.
 *
 *   items -> [collect STATES] -> entities -> locked
 *         -> [collect LOCK] --> rows ------> locked
 *         -> [apply], [undo] -> values, entities, marks
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

bool
counter_collect(void *data, enum projection_phase phase,
                const struct projected *item)
{
    return phase == PROJECTION_STATES ? collect_states(data, item)
                                      : collect_rows(data, item);
}

/* Clamped rows and entities: what they become depends on the order. */
int64_t
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

enum projection_apply
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

void
counter_undo_item(void *data, const struct projected *item)
{
    steps_undo(data);
    item->marks->from_state = (struct meter_str){NULL, 0};
    item->marks->counted = NULL;
}
