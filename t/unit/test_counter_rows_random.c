/*
 * test_counter_rows_random.c - random events in random batches against the
 * same events one by one: values, keys, entities, marks, verdicts, the log.
 */

#include "counter_run.h"

#include "meter_random.h"

#ifdef __SANITIZE_ADDRESS__
#define ROUNDS 300
#else
#define ROUNDS 3000
#endif

#define BATCH_MAX 24
#define SETS      6
#define ENTITIES  4

/* The definition, without batches. */
struct world {
    bool exists[RULES_COUNT][SETS];
    int64_t value[RULES_COUNT][SETS];
    int64_t keys[RULES_COUNT];
    int place[RULES_COUNT][ENTITIES]; /* set number; -1: nowhere */
};

static const char *const entities[ENTITIES] = {"1", "\"1\"", "true", "\"x\""};
static struct meter_random dice;

static bool
world_change(struct world *world, int rule, size_t set, int64_t delta)
{
    const struct counter *counter = &rules[rule];
    meter_int128 value = world->value[rule][set];

    if (!world->exists[rule][set]) {
        if (counter->keys_max > 0 && world->keys[rule] >= counter->keys_max) {
            return false;
        }
        world->exists[rule][set] = true;
        world->keys[rule]++;
    }
    value += delta;
    if (value < INT64_MIN || value > INT64_MAX) {
        return false;
    }
    if (counter->floor_at_zero && value < 0) {
        value = 0;
    }
    world->value[rule][set] = (int64_t)value;
    return true;
}

/* What a change is, by number: items hold pointers. */
struct numbers {
    int rule;
    size_t set;
    int64_t delta;
    int entity; /* -1: none */
};

static struct numbers plan[BATCH_MAX][CHANGES_MAX];
static char expected_from[BATCH_MAX][128];
static bool is_rejected[BATCH_MAX];

/* {"devices":...,"seats":...}, as far as the event has them. */
static void
world_mark(const struct world *before, size_t i)
{
    char *out = expected_from[i];
    size_t used = 0;

    out[0] = '\0';
    for (int rule = DEVICES; rule <= SEATS; rule++) {
        for (size_t c = 0; c < items[i].effect.count; c++) {
            const struct numbers *change = &plan[i][c];
            int place;

            if (change->rule != rule) {
                continue;
            }
            place = before->place[rule][change->entity];
            used += (size_t)snprintf(
                out + used, sizeof(expected_from[i]) - used, "%s\"%s\":%s",
                used == 0 ? "{" : ",", rules[rule].name.data,
                place < 0 ? "null" : set_text_of[place]);
            break;
        }
    }
    if (used > 0) {
        snprintf(out + used, sizeof(expected_from[i]) - used, "}");
    }
}

static void
world_apply(struct world *world, size_t i)
{
    struct world next = *world;
    bool is_good = true;

    for (size_t c = 0; is_good && c < items[i].effect.count; c++) {
        const struct numbers *change = &plan[i][c];
        size_t set = change->set;

        if (change->entity >= 0) {
            int *place = &next.place[change->rule][change->entity];

            if ((change->delta > 0) == (*place >= 0)) {
                continue;
            }
            set = change->delta > 0 ? set : (size_t)*place;
            *place = change->delta > 0 ? (int)set : -1;
        }
        is_good = world_change(&next, change->rule, set, change->delta);
    }
    is_rejected[i] = !is_good;
    if (is_good) {
        world_mark(world, i);
        *world = next;
    }
}

static int64_t
random_delta(void)
{
    switch (random_below(&dice, 100)) {
    case 0: return INT64_MAX - (int64_t)random_below(&dice, 3);
    case 1: return INT64_MIN + 1 + (int64_t)random_below(&dice, 3);
    case 2: return INT64_MAX / 2;
    default: return (int64_t)random_below(&dice, 9) - 4;
    }
}

/* An entity has one name in an event, whatever counts it. */
static void
random_item(size_t i, int rules_max)
{
    struct item *item = item_make(i, "acme");
    size_t count = 1 + random_below(&dice, CHANGES_MAX);
    int entity = (int)random_below(&dice, ENTITIES);

    for (size_t c = 0; c < count; c++) {
        struct numbers *change = &plan[i][c];

        change->rule = (int)random_below(&dice, (uint64_t)rules_max);
        change->set = random_below(&dice, SETS);
        change->delta = random_delta();
        change->entity = -1;
        if (change->rule >= DEVICES) {
            change->entity = entity;
            change->delta = random_below(&dice, 2) == 0 ? 1 : -1;
            transition_add(item, change->rule, change->set, change->delta,
                           entities[entity]);
        } else {
            change_add(item, change->rule, change->set, change->delta);
        }
    }
}

static void
assert_world(const struct world *world)
{
    for (int rule = 0; rule < RULES_COUNT; rule++) {
        assert_true(keys_of(rule) == world->keys[rule]);
        for (size_t set = 0; set < SETS; set++) {
            if (world->exists[rule][set]) {
                assert_value(rule, set, world->value[rule][set]);
            } else {
                assert_null(row_of(rule, set));
            }
        }
        for (int entity = 0; rule >= DEVICES && entity < ENTITIES; entity++) {
            struct meter_str name = str_of(entities[entity]);
            const struct table_row *row = table_find(
                STATE, str_of("acme"), rules[rule].name, NULL, &name);
            int place = world->place[rule][entity];

            if (row != NULL && row->has_key) {
                assert_true(place >= 0);
                assert_string_equal(row->dimensions, set_text_of[place]);
            } else {
                assert_int_equal(place, -1);
            }
        }
    }
}

/* By the order of the log: each value follows from the one before it. */
static void
assert_chains(void)
{
    for (size_t i = 0; i < tables[AUDIT].count; i++) {
        const struct table_row *log = &tables[AUDIT].rows[i];
        int64_t before = 0;
        int64_t seq = 0;
        meter_int128 value;

        for (size_t j = 0; j < i; j++) {
            const struct table_row *old = &tables[AUDIT].rows[j];

            if (strcmp(old->name, log->name) == 0 &&
                memcmp(old->key, log->key, METER_DIGEST_SIZE) == 0) {
                before = old->value;
                seq = old->seq_last;
                assert_true(old->updated_us < log->updated_us);
            }
        }
        assert_true(log->seq_first > seq && log->seq_last >= log->seq_first);
        value = (meter_int128)before + log->add;
        if (log->has_floor && value < log->floor) {
            value = log->floor;
        }
        assert_true(!log->has_add || value == log->value);
    }
}

static void
play(int rules_max, size_t *fast, size_t *careful, size_t *rejected)
{
    struct world world = {.keys = {0}};

    memset(world.place, 0xff, sizeof(world.place));
    for (int batch = 0; batch < 6; batch++) {
        size_t count = 1 + random_below(&dice, BATCH_MAX);

        for (size_t i = 0; i < count; i++) {
            random_item(i, rules_max);
            world_apply(&world, i);
        }
        /* Another process may have been there, its clock ahead of ours. */
        if (tables[COUNTER].count > 0 && random_below(&dice, 3) == 0) {
            tables[COUNTER]
                .rows[random_below(&dice, tables[COUNTER].count)]
                .updated_us += (int64_t)random_below(&dice, 100);
        }
        run(count);
        *fast += !was_careful;
        *careful += was_careful;
        for (size_t i = 0; i < count; i++) {
            assert_true((items[i].error != NULL) == is_rejected[i]);
            *rejected += is_rejected[i];
            if (!is_rejected[i] && was_careful) {
                assert_from_state(
                    i, expected_from[i][0] == '\0' ? NULL : expected_from[i]);
            }
        }
        assert_world(&world);
    }
    assert_chains();
}

static void
run__random_batches__equal_one_by_one(void **state)
{
    static const int rules_max[] = {LIMITED, DEVICES, RULES_COUNT};
    size_t fast = 0, careful = 0, rejected = 0;

    dice = (struct meter_random){11};
    for (int round = 0; round < ROUNDS; round++) {
        set_up(state);
        play(rules_max[round % 3], &fast, &careful, &rejected);
        tear_down(state);
    }
    /* The cases are worth something. */
    assert_true(fast > ROUNDS / 2);
    assert_true(careful > 3 * ROUNDS);
    assert_true(rejected > 10 * ROUNDS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(run__random_batches__equal_one_by_one),
};

RUN_TAP(tests)
