/*
 * test_counter_recount.c - counters from the ledger: random histories against
 * a plain model, what counts as a difference, what is written.
 */

#include "meter_random.h"
#include "recount_fixture.h"

#include "project/counter.h"

static const char rules[] =
    "events:\n"
    "  - { type: up }\n"
    "  - { type: down }\n"
    "  - { type: big }\n"
    "  - { type: huge }\n"
    "counters:\n"
    "  - { counterName: raw, mode: persistent, dimensions: [a],\n"
    "      idempotency: { requireEventId: true, scope: globalEventId },\n"
    "      rules: [ { on: up, op: increment, by: n },\n"
    "               { on: big, op: increment, by: n },\n"
    "               { on: down, op: decrement } ] }\n"
    "  - { counterName: floored, mode: persistent, dimensions: [a],\n"
    "      floorAtZero: true, audit: true,\n"
    "      idempotency: { requireEventId: true, scope: globalEventId },\n"
    "      rules: [ { on: up, op: increment },\n"
    "               { on: down, op: decrement, by: n } ] }\n"
    "  - { counterName: placed, mode: persistent, dimensions: [a],\n"
    "      transitions: { entity: e },\n"
    "      idempotency: { requireEventId: true, scope: globalEventId },\n"
    "      rules: [ { on: up, op: increment },\n"
    "               { on: down, op: decrement } ] }\n"
    "  - { counterName: second, mode: persistent, dimensions: [],\n"
    "      idempotency: { requireEventId: true, scope: globalEventId },\n"
    "      rules: [ { on: big, op: increment, by: n },\n"
    "               { on: huge, op: increment, by: n } ] }\n";

enum { RAW, FLOORED, PLACED, COUNTERS };
static const char *const names[] = {"raw", "floored", "placed"};

#define SETS     3
#define ENTITIES 4
#define NOWHERE  (-1)

static const char *const sets[SETS] = {"{\"a\":\"x\"}", "{\"a\":\"y\"}",
                                       "{\"a\":null}"};

/* What the rows should be, kept by hand. */
struct model {
    int64_t value[COUNTERS][SETS];
    bool is_there[COUNTERS][SETS];
    int place[ENTITIES];
    bool is_known[ENTITIES];
};

static int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    fixture_open(f, rules, &counter_recount);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    fixture_close(*state);
    free(*state);
    return 0;
}

static void
set_key(int set, uint8_t key[METER_DIGEST_SIZE])
{
    struct meter_dim dim = {
        .name = METER_STR("a"),
        .kind = set == 2 ? METER_DIM_NULL : METER_DIM_STRING,
        .value = set == 2 ? (struct meter_str){NULL, 0}
                          : (struct meter_str){set == 0 ? "x" : "y", 1},
    };

    meter_dims_key(&dim, 1, key);
}

static void
model_init(struct model *model)
{
    memset(model, 0, sizeof(*model));
    for (int i = 0; i < ENTITIES; i++) {
        model->place[i] = NOWHERE;
    }
}

static void
model_step(struct model *model, int counter, int set, int64_t delta)
{
    int64_t value = model->value[counter][set] + delta;

    model->is_there[counter][set] = true;
    model->value[counter][set] = counter == FLOORED && value < 0 ? 0 : value;
}

/* One event; from gets what its transaction would have left in the ledger. */
static void
model_event(struct model *model, bool is_up, int set, int entity, int64_t n,
            char from[64])
{
    snprintf(from, 64, "{\"placed\":%s}",
             model->place[entity] == NOWHERE ? "null"
                                             : sets[model->place[entity]]);
    model_step(model, RAW, set, is_up ? n : -1);
    model_step(model, FLOORED, set, is_up ? 1 : -n);
    model->is_known[entity] = true;
    if (is_up && model->place[entity] == NOWHERE) {
        model_step(model, PLACED, set, 1);
        model->place[entity] = set;
    } else if (!is_up && model->place[entity] != NOWHERE) {
        model_step(model, PLACED, model->place[entity], -1);
        model->place[entity] = NOWHERE;
    }
}

static void
live_counter(struct fixture *f, const char *name, int set, int64_t value)
{
    struct fixture_row row;
    struct buf *out = row_begin(&row);
    uint8_t key[METER_DIGEST_SIZE];

    set_key(set, key);
    pg_put_text(out, str_of(name));
    pg_put_bytes(out, (struct meter_str){(char *)key, sizeof(key)});
    pg_put_text(out, str_of(sets[set]));
    pg_put_int8(out, value);
    pg_put_time(out, 1);
    put_made(f, out);
    row_end(f, &row, STATEMENT_RECOUNT_COUNTERS);
}

static void
live_keys(struct fixture *f, const char *name, int64_t keys)
{
    struct fixture_row row;
    struct buf *out = row_begin(&row);

    pg_put_text(out, str_of(name));
    pg_put_int8(out, keys);
    row_end(f, &row, STATEMENT_RECOUNT_COUNTER_KEYS);
}

static void
live_entity(struct fixture *f, int entity, int set)
{
    struct fixture_row row;
    struct buf *out = row_begin(&row);
    uint8_t key[METER_DIGEST_SIZE];
    char name[16];

    snprintf(name, sizeof(name), "\"e%d\"", entity);
    pg_put_text(out, METER_STR("placed"));
    pg_put_text(out, str_of(name));
    if (set == NOWHERE) {
        pg_put_null(out);
        pg_put_null(out);
    } else {
        set_key(set, key);
        pg_put_bytes(out, (struct meter_str){(char *)key, sizeof(key)});
        pg_put_text(out, str_of(sets[set]));
    }
    pg_put_time(out, 1);
    put_made(f, out);
    row_end(f, &row, STATEMENT_RECOUNT_ENTITIES);
}

static void
live_chain(struct fixture *f, const char *name, int set, int64_t value,
           int64_t logged)
{
    struct fixture_row row;
    struct buf *out = row_begin(&row);
    uint8_t key[METER_DIGEST_SIZE];

    set_key(set, key);
    pg_put_text(out, str_of(name));
    pg_put_bytes(out, (struct meter_str){(char *)key, sizeof(key)});
    pg_put_text(out, str_of(sets[set]));
    pg_put_int8(out, value);
    pg_put_int8(out, logged);
    row_end(f, &row, STATEMENT_RECOUNT_CHAINS);
}

static void
live_model(struct fixture *f, const struct model *model)
{
    for (int i = 0; i < COUNTERS; i++) {
        int64_t keys = 0;

        for (int set = 0; set < SETS; set++) {
            if (model->is_there[i][set]) {
                live_counter(f, names[i], set, model->value[i][set]);
                keys++;
            }
        }
        if (keys > 0) {
            live_keys(f, names[i], keys);
        }
    }
    for (int i = 0; i < ENTITIES; i++) {
        if (model->is_known[i]) {
            live_entity(f, i, model->place[i]);
        }
    }
}

static enum recount_result
add(struct fixture *f, const char *type, int set, int entity, int64_t n,
    const char *from)
{
    char attributes[128];
    struct ledger_row row = {
        .event = {.type = str_of(type)},
        .recorded_us = 1000 + f->writer_seq,
        .from_state = {from, from == NULL ? 0 : strlen(from)},
    };

    snprintf(attributes, sizeof(attributes), "{%s\"e\":\"e%d\",\"n\":%lld}",
             set == 0   ? "\"a\":\"x\","
             : set == 1 ? "\"a\":\"y\","
                        : "",
             entity, (long long)n);
    row.event.attributes = str_of(attributes);
    return fixture_add(f, &row);
}

static void
random_event(struct fixture *f, struct meter_random *random,
             struct model *model, bool has_from)
{
    int set = (int)random_below(random, SETS);
    int entity = (int)random_below(random, ENTITIES);
    bool is_up = random_below(random, 2) == 0;
    int64_t n = (int64_t)random_below(random, 4);
    char from[64];

    model_event(model, is_up, set, entity, n, from);
    assert_int_equal(RECOUNT_OK, add(f, is_up ? "up" : "down", set, entity, n,
                                     has_from ? from : NULL));
}

static void
recount__of_random_histories__is_what_one_by_one_gives(void **state)
{
    struct fixture *f = *state;

    for (uint64_t seed = 0; seed < 300; seed++) {
        struct meter_random random = {seed};
        struct model model;

        fixture_again(f);
        model_init(&model);
        for (uint64_t i = random_below(&random, 60); i > 0; i--) {
            random_event(f, &random, &model, seed % 2 == 0);
        }
        live_model(f, &model);
        assert_string_equal("", fixture_compare(f));
        assert_int_equal(0, f->count);
    }
}

/* A damaged entity decided so: what the ledger says stands. */
static void
transition__is_what_the_ledger_says(void **state)
{
    struct fixture *f = *state;

    add(f, "up", 0, 1, 1, "{\"placed\":null}");
    add(f, "up", 1, 1, 1, "{\"placed\":null}");
    add(f, "down", 2, 1, 1, "{\"placed\":{\"a\":\"y\"}}");
    live_counter(f, "placed", 0, 1);
    live_counter(f, "placed", 1, 0);
    live_keys(f, "placed", 2);
    live_entity(f, 1, NOWHERE);
    fixture_compare(f);
    assert_null(strstr(f->text.data, "placed"));
}

static void
transition__with_other_dimensions_in_the_ledger__own_history_decides(
    void **state)
{
    struct fixture *f = *state;

    add(f, "up", 0, 1, 1, "{\"placed\":null}");
    add(f, "down", 1, 1, 1, "{\"placed\":{\"b\":\"old\"}}");
    live_counter(f, "placed", 0, 0);
    live_keys(f, "placed", 1);
    fixture_compare(f);
    assert_null(strstr(f->text.data, "placed"));
}

/* What a change of rules can explain begins before it. */
static void
differences__begin_with_the_row_or_its_first_event(void **state)
{
    static const struct {
        int64_t made_us; /* 0: not known, -1: no row */
        bool is_expected;
        int64_t since_us;
    } cases[] = {
        {2000, true, 1000},  {500, true, 500}, {0, true, RECOUNT_SINCE_EVER},
        {2000, false, 2000}, {-1, true, 1000},
    };
    struct fixture *f = *state;

    f->scope.name = METER_STR("raw");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture_again(f);
        f->writer_seq = 0;
        f->made_us = cases[i].made_us;
        if (cases[i].is_expected) {
            add(f, "up", 0, 1, 4, NULL); /* recorded at 1000 */
            add(f, "up", 0, 1, 4, NULL);
        }
        if (cases[i].made_us >= 0) {
            live_counter(f, "raw", 0, 7);
        }
        if (cases[i].is_expected) {
            live_keys(f, "raw", 1);
        }
        fixture_compare(f);
        assert_int_equal(1, f->count);
        assert_int_equal(RULE_COUNTER, f->origin.kind);
        assert_int_equal(1, f->origin.name_count);
        assert_memory_equal("raw", f->origin.names[0].data, 3);
        assert_true(f->origin.since_us == cases[i].since_us);
    }
}

static void
differences__of_the_audit_log__have_no_beginning(void **state)
{
    struct fixture *f = *state;

    f->scope.name = METER_STR("floored");
    fixture_again(f);
    add(f, "up", 0, 1, 1, NULL);
    live_counter(f, "floored", 0, 5);
    live_keys(f, "floored", 1);
    live_chain(f, "floored", 0, 5, 1);
    fixture_compare(f);
    assert_int_equal(1, f->count);
    assert_true(f->origin.since_us == RECOUNT_SINCE_NEVER);
}

/* Where an entity was before decides what the event does to the row. */
static void
differences__of_a_row_with_entities__begin_with_these(void **state)
{
    struct fixture *f = *state;

    f->scope.name = METER_STR("placed");
    fixture_again(f);
    f->made_us = 5000;
    add(f, "up", 0, 1, 1, "{\"placed\":null}"); /* recorded at 1000 */
    add(f, "down", 0, 1, 1, "{\"placed\":{\"a\":\"x\"}}");
    add(f, "up", 1, 1, 1, "{\"placed\":null}"); /* recorded at 1002 */
    live_counter(f, "placed", 0, 0);
    live_counter(f, "placed", 1, 7);
    live_keys(f, "placed", 2);
    live_entity(f, 1, 1);
    fixture_compare(f);
    assert_int_equal(1, f->count);
    assert_true(f->origin.since_us == 1000);
}

static void
differences__are_told_one_by_one(void **state)
{
    struct fixture *f = *state;

    f->scope.name = METER_STR("placed");
    fixture_again(f);
    add(f, "up", 0, 1, 1, "{\"placed\":null}");
    add(f, "up", 1, 2, 1, "{\"placed\":null}");
    live_counter(f, "placed", 0, 7);
    live_counter(f, "placed", 2, 5);
    live_counter(f, "raw", 2, 5);
    live_entity(f, 1, NOWHERE);
    live_entity(f, 2, 1);
    live_entity(f, 3, 0);
    live_keys(f, "placed", 9);
    fixture_compare(f);
    assert_int_equal(6, f->count);
    assert_non_null(strstr(f->text.data,
                           "counter {\"counter\":\"placed\",\"dimensions\":"
                           "{\"a\":\"x\"}} \"1\" \"7\"\n"));
    assert_non_null(strstr(f->text.data, "{\"a\":\"y\"}} \"1\" -\n"));
    assert_non_null(strstr(f->text.data, "{\"a\":null}} - \"5\"\n"));
    assert_non_null(strstr(f->text.data,
                           "entity {\"counter\":\"placed\",\"entity\":"
                           "\"e1\"} {\"a\":\"x\"} -\n"));
    assert_non_null(strstr(f->text.data, "\"e3\"} - {\"a\":\"x\"}\n"));
    assert_non_null(
        strstr(f->text.data, "keys {\"counter\":\"placed\"} \"2\" \"9\"\n"));
}

static void
audit_log__that_ends_elsewhere__is_a_difference(void **state)
{
    struct fixture *f = *state;

    f->scope.name = METER_STR("floored");
    fixture_again(f);
    add(f, "up", 0, 1, 1, NULL);
    live_counter(f, "floored", 0, 1);
    live_keys(f, "floored", 1);
    live_chain(f, "floored", 0, 1, 3);
    fixture_compare(f);
    assert_string_equal("audit {\"counter\":\"floored\",\"dimensions\":"
                        "{\"a\":\"x\"}} \"1\" \"3\"\n",
                        f->text.data);
    assert_string_equal(
        "1 ", fixture_written(f, STATEMENT_RECOUNT_AUDIT_INSERT, 4, 4));
}

/* What comes behind the comparison moves what is written, not what is. */
static void
write__behind_later_events__is_what_they_leave(void **state)
{
    struct fixture *f = *state;

    f->scope.name = METER_STR("floored");
    fixture_again(f);
    for (int i = 0; i < 3; i++) {
        add(f, "up", 0, 1, 1, NULL);
    }
    add(f, "up", 1, 1, 1, NULL);
    live_counter(f, "floored", 0, 9);
    live_counter(f, "floored", 1, 1);
    live_counter(f, "floored", 2, 4);
    live_keys(f, "floored", 3);
    fixture_compare(f);
    assert_int_equal(3, f->count); /* two rows, number of keys */

    add(f, "down", 0, 1, 2, NULL); /* 1 */
    add(f, "down", 0, 1, 5, NULL); /* 0 */
    add(f, "up", 0, 1, 1, NULL);   /* 1 */
    add(f, "up", 1, 1, 1, NULL);   /* right, not written */
    assert_string_equal(
        "{\"a\":\"x\"} | 1 ",
        fixture_written(f, STATEMENT_RECOUNT_COUNTERS_INSERT, 3, 4));
    assert_string_equal(
        "floored floored ",
        fixture_written(f, STATEMENT_RECOUNT_COUNTERS_DELETE, 1, 1));
    assert_string_equal(
        "floored | 2 ",
        fixture_written(f, STATEMENT_RECOUNT_COUNTER_KEYS_INSERT, 1, 2));

    add(f, "up", 2, 1, 1, NULL); /* the row too many is one now */
    assert_string_equal(
        "floored | 3 ",
        fixture_written(f, STATEMENT_RECOUNT_COUNTER_KEYS_INSERT, 1, 2));
    fixture_written(f, STATEMENT_RECOUNT_COUNTERS_INSERT, 3, 4);
    assert_non_null(strstr(f->text.data, "{\"a\":null}"));
    assert_non_null(strstr(f->text.data, "| 1 1 "));
}

/* The number is right, and yet ingest may make the row once more. */
static void
keys__of_a_counter_with_wrong_rows__are_written_too(void **state)
{
    struct fixture *f = *state;

    f->scope.name = METER_STR("floored");
    fixture_again(f);
    add(f, "up", 0, 1, 1, NULL);
    live_counter(f, "floored", 2, 4);
    live_keys(f, "floored", 1);
    fixture_compare(f);
    assert_int_equal(2, f->count);
    assert_null(strstr(f->text.data, "keys"));
    assert_string_equal(
        "floored | 1 ",
        fixture_written(f, STATEMENT_RECOUNT_COUNTER_KEYS_INSERT, 1, 2));
}

static void
overflow__is_unfit_and_changes_nothing(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(RECOUNT_OK, add(f, "big", 0, 1, 5, NULL));
    assert_int_equal(RECOUNT_OK, add(f, "huge", 0, 1, INT64_MAX - 5, NULL));
    /* raw would take it, second not */
    assert_int_equal(RECOUNT_UNFIT, add(f, "big", 0, 1, 1, NULL));
    assert_non_null(f->error);
    live_counter(f, "raw", 0, 5);
    live_keys(f, "raw", 1);
    fixture_compare(f);
    assert_null(strstr(f->text.data, "raw"));
    assert_non_null(strstr(f->text.data, "\"9223372036854775807\" -"));
}

static void
amount__that_is_none__is_unfit(void **state)
{
    struct fixture *f = *state;
    struct ledger_row row = {
        .event = {.type = METER_STR("up"),
                  .attributes = METER_STR("{\"n\":\"many\"}")}};

    assert_int_equal(RECOUNT_UNFIT, fixture_add(f, &row));
    assert_string_equal("", fixture_compare(f));
}

static void
base__is_where_it_starts(void **state)
{
    struct fixture *f = *state;
    struct recount_base base = {
        .kind = RECOUNT_BASE_COUNTER,
        .name = METER_STR("floored"),
        .has_set = true,
        .set.json = METER_STR("{\"a\":\"x\"}"),
        .value = 40,
    };

    set_key(0, base.set.key);
    f->scope.name = (struct meter_str){NULL, 0};
    fixture_again(f);
    assert_true(f->ops->base(f->recount, &base));
    base.kind = RECOUNT_BASE_ENTITY;
    base.name = METER_STR("placed");
    base.entity = METER_STR("\"e1\"");
    assert_true(f->ops->base(f->recount, &base));
    base.name = METER_STR("gone");
    assert_true(f->ops->base(f->recount, &base));

    assert_int_equal(RECOUNT_OK, add(f, "down", 1, 1, 2, NULL));
    live_counter(f, "floored", 0, 40);
    live_counter(f, "floored", 1, 0);
    live_keys(f, "floored", 2);
    live_counter(f, "placed", 0, -1);
    live_keys(f, "placed", 1);
    live_counter(f, "raw", 1, -1);
    live_keys(f, "raw", 1);
    assert_string_equal("", fixture_compare(f));
}

static void
names__that_the_rules_lack__are_left_alone(void **state)
{
    struct fixture *f = *state;

    live_counter(f, "gone", 0, 5);
    live_keys(f, "gone", 1);
    assert_string_equal("", fixture_compare(f));
    assert_int_equal(2, f->ops->strangers(f->recount));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(recount__of_random_histories__is_what_one_by_one_gives),
    TEST(transition__is_what_the_ledger_says),
    TEST(transition__with_other_dimensions_in_the_ledger__own_history_decides),
    TEST(differences__begin_with_the_row_or_its_first_event),
    TEST(differences__of_the_audit_log__have_no_beginning),
    TEST(differences__of_a_row_with_entities__begin_with_these),
    TEST(differences__are_told_one_by_one),
    TEST(audit_log__that_ends_elsewhere__is_a_difference),
    TEST(write__behind_later_events__is_what_they_leave),
    TEST(keys__of_a_counter_with_wrong_rows__are_written_too),
    TEST(overflow__is_unfit_and_changes_nothing),
    TEST(amount__that_is_none__is_unfit),
    TEST(base__is_where_it_starts),
    TEST(names__that_the_rules_lack__are_left_alone),
};

RUN_TAP(tests)
