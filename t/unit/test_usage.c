/*
 * test_usage.c - what an event does to the usage row of its tenant.
 */

#include "meter_cmocka.h"
#include "meter_random.h"

#include "config/config.h"
#include "project/usage.h"

static const char rules[] =
    "events:\n"
    "  - { type: memory.created }\n"
    "  - { type: memory.deleted }\n"
    "  - { type: memory.archived }\n"
    "  - { type: api.request }\n"
    "  - { type: tenant.provisioned }\n"
    "  - { type: tenant.decommissioned }\n"
    "  - { type: idle }\n"
    "usage:\n"
    "  entryCount: { increment: [memory.created],\n"
    "                decrement: [memory.deleted, memory.archived] }\n"
    "  storageBytes: { increment: [memory.created],\n"
    "                  decrement: [memory.deleted], by: contentSize }\n"
    "  apiCallCount: { increment: [api.request, tenant.provisioned] }\n"
    "  provisioned: tenant.provisioned\n"
    "  decommissioned: tenant.decommissioned\n";

/* No decrement and no status: no order. */
static const char plain_rules[] =
    "events:\n"
    "  - { type: memory.created }\n"
    "usage:\n"
    "  entryCount: { increment: [memory.created] }\n"
    "  storageBytes: { increment: [memory.created], by: contentSize }\n";

struct fixture {
    struct config *config;
    struct arena arena;
    struct json_value attributes;
    const struct usage_effect *effect;
    const char *error;
};

static struct config *
load(const char *text)
{
    struct config *config = NULL;
    struct config_errors errors;

    if (!config_load_text("rules", str_of(text), &config, &errors)) {
        config_errors_print(&errors, stderr);
        abort();
    }
    return config;
}

static int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->config = load(rules);
    arena_init(&f->arena, 4096, 16 << 20);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;

    arena_fini(&f->arena);
    config_unref(f->config);
    free(f);
    return 0;
}

static bool
project_flagged(struct fixture *f, const char *type, const char *attributes,
                int64_t count, uint32_t flags)
{
    static const struct json_limits limits = {16, 256, 128, 8192};
    const struct event_type *row =
        catalog_event_type(f->config->catalog, str_of(type));
    struct meter_event event = {.count = count, .flags = flags};
    struct json_error error;
    const void *effect = NULL;
    bool is_careful = false;
    size_t used;
    bool is_ok;

    assert_non_null(row);
    assert_true(json_read(str_of(attributes), &limits, &f->arena,
                          &f->attributes, &used, &error));
    f->error = NULL;
    is_ok = usage_project(row, &event, &f->attributes, &f->arena, &effect,
                          &is_careful, &f->error);
    assert_false(is_careful);
    assert_true(is_ok == (f->error == NULL));
    f->effect = effect;
    return is_ok;
}

static bool
project(struct fixture *f, const char *type, const char *attributes,
        int64_t count)
{
    return project_flagged(f, type, attributes, count, 0);
}

static void
assert_effect(const struct fixture *f, int64_t entries, int64_t bytes,
              int64_t calls, enum usage_status status)
{
    const int64_t expected[] = {entries, bytes, calls};

    assert_non_null(f->effect);
    for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
        assert_true(f->effect->delta[i] == expected[i]);
        assert_true(f->effect->is_touched[i] || expected[i] == 0);
    }
    assert_int_equal(f->effect->status, status);
}

static void
project__each_type__moves_its_columns(void **state)
{
    struct fixture *f = *state;
    enum usage_status keep = USAGE_STATUS_KEEP;

    assert_true(project(f, "memory.created", "{\"contentSize\":7}", 1));
    assert_effect(f, 1, 7, 0, keep);
    assert_false(f->effect->is_touched[USAGE_API_CALL_COUNT]);
    assert_true(project(f, "memory.deleted", "{\"contentSize\":7}", 1));
    assert_effect(f, -1, -7, 0, keep);
    assert_true(project(f, "memory.archived", "{\"contentSize\":7}", 1));
    assert_effect(f, -1, 0, 0, keep);
    assert_false(f->effect->is_touched[USAGE_STORAGE_BYTES]);
    assert_true(project(f, "api.request", "{}", 1));
    assert_effect(f, 0, 0, 1, keep);
    assert_true(project(f, "tenant.provisioned", "{}", 1));
    assert_effect(f, 0, 0, 1, USAGE_STATUS_ACTIVE);
    assert_true(project(f, "tenant.decommissioned", "{}", 1));
    assert_effect(f, 0, 0, 0, USAGE_STATUS_DECOMMISSIONED);
    assert_true(project(f, "idle", "{}", 1));
    assert_null(f->effect);
}

static void
project__count__multiplies_every_step(void **state)
{
    struct fixture *f = *state;

    assert_true(project(f, "memory.deleted", "{\"contentSize\":7}", 1000));
    assert_effect(f, -1000, -7000, 0, USAGE_STATUS_KEEP);
    assert_true(project(f, "memory.created",
                        "{\"contentSize\":9223372036854775807}", 1));
    assert_effect(f, 1, INT64_MAX, 0, USAGE_STATUS_KEEP);
    assert_true(project(f, "memory.deleted",
                        "{\"contentSize\":9223372036854775807}", 1));
    assert_effect(f, -1, -INT64_MAX, 0, USAGE_STATUS_KEEP);
    assert_false(project(f, "memory.created",
                         "{\"contentSize\":9223372036854775807}", 2));
    assert_string_equal(f->error,
                        "amount for usage storageBytes is past 64 bits");
}

static void
project__amount_missing_or_null__counts_zero(void **state)
{
    struct fixture *f = *state;

    assert_true(project(f, "memory.created", "{}", 1));
    assert_effect(f, 1, 0, 0, USAGE_STATUS_KEEP);
    assert_true(f->effect->is_touched[USAGE_STORAGE_BYTES]);
    assert_true(project(f, "memory.created", "{\"contentSize\":null}", 1));
    assert_effect(f, 1, 0, 0, USAGE_STATUS_KEEP);
}

static void
project__amount_by_value_not_by_spelling(void **state)
{
    struct fixture *f = *state;

    assert_true(project(f, "memory.created", "{\"contentSize\":5.0}", 1));
    assert_effect(f, 1, 5, 0, USAGE_STATUS_KEEP);
    assert_true(project(f, "memory.created", "{\"contentSize\":50e-1}", 1));
    assert_effect(f, 1, 5, 0, USAGE_STATUS_KEEP);
    assert_true(project_flagged(f, "memory.created", "{\"contentSize\":\"5\"}",
                                1, METER_EVENT_CAPTURED));
    assert_effect(f, 1, 5, 0, USAGE_STATUS_KEEP);
}

static void
project__amount_that_is_none__rejected_with_both_names(void **state)
{
    static const char *const bad[] = {
        "{\"contentSize\":-1}",
        "{\"contentSize\":0.5}",
        "{\"contentSize\":9223372036854775808}",
        "{\"contentSize\":\"5\"}",
        "{\"contentSize\":true}",
        "{\"contentSize\":{}}",
        "{\"contentSize\":[1]}",
        "{\"contentSize\":1e-10}",
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(project(f, "memory.created", bad[i], 1));
        assert_string_equal(f->error,
                            "attribute \"contentSize\" is not a non-negative "
                            "64-bit integer, as usage storageBytes wants it");
    }
    /* Archived does not ask for it. */
    assert_true(project(f, "memory.archived", bad[0], 1));
}

static void
project__order__matters_where_a_column_may_fall_or_a_status_is_set(void **state)
{
    struct fixture *f = *state;

    assert_true(project(f, "memory.created", "{}", 1));
    assert_true(f->effect->is_ordered);
    assert_true(project(f, "memory.deleted", "{}", 1));
    assert_true(f->effect->is_ordered);
    assert_true(project(f, "tenant.provisioned", "{}", 1));
    assert_true(f->effect->is_ordered);
    assert_true(project(f, "tenant.decommissioned", "{}", 1));
    assert_true(f->effect->is_ordered);
    assert_true(project(f, "api.request", "{}", 1));
    assert_false(f->effect->is_ordered);

    config_unref(f->config);
    f->config = load(plain_rules);
    assert_true(project(f, "memory.created", "{}", 1));
    assert_false(f->effect->is_ordered);
}


/* ---- rows and folds -------------------------------------------------- */

static void
apply__decrement_on_zero__stays_zero(void **state)
{
    struct usage_effect down = {.is_touched = {true}, .delta = {-5}};
    enum usage_column column;
    struct usage_row row;

    (void)state;
    usage_row_init(&row);
    assert_int_equal(row.status, USAGE_STATUS_ACTIVE);
    assert_true(usage_apply(&row, &down, &column));
    assert_true(row.value[USAGE_ENTRY_COUNT] == 0);
}

static void
apply__overflow__names_the_column_and_changes_nothing(void **state)
{
    struct usage_effect effect = {
        .is_touched = {true, true},
        .delta = {1, 2},
        .status = USAGE_STATUS_DECOMMISSIONED,
    };
    enum usage_column column = USAGE_API_CALL_COUNT;
    struct usage_row row = {{7, INT64_MAX - 1, 9}, USAGE_STATUS_ACTIVE};

    (void)state;
    assert_false(usage_apply(&row, &effect, &column));
    assert_int_equal(column, USAGE_STORAGE_BYTES);
    assert_true(row.value[USAGE_ENTRY_COUNT] == 7);
    assert_true(row.value[USAGE_STORAGE_BYTES] == INT64_MAX - 1);
    assert_int_equal(row.status, USAGE_STATUS_ACTIVE);
}

static struct meter_random random_state = {4711};

static unsigned
below(unsigned bound)
{
    return (unsigned)random_below(&random_state, bound);
}

static struct usage_effect
random_effect(bool is_extreme)
{
    struct usage_effect effect = {.status = USAGE_STATUS_KEEP};

    for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
        effect.is_touched[i] = below(2) == 0;
        if (effect.is_touched[i]) {
            effect.delta[i] = (int64_t)below(9) - 4;
            if (is_extreme && below(4) == 0) {
                effect.delta[i] =
                    below(2) == 0 ? INT64_MAX - 3 : -INT64_MAX + 3;
            }
        }
    }
    if (below(4) == 0) {
        effect.status =
            below(2) == 0 ? USAGE_STATUS_ACTIVE : USAGE_STATUS_DECOMMISSIONED;
    }
    return effect;
}

/*
 * A fold gives what its steps give one by one, or says that it cannot; it
 * may give up where the steps fit, but never the other way round.
 */
static void
compare_random(bool is_extreme)
{
    struct usage_row one = {{below(4), below(4), 0}, USAGE_STATUS_ACTIVE};
    struct usage_row folded = one;
    struct usage_fold fold;
    unsigned count = 1 + below(8);
    bool steps_fit = true;
    bool folds = true;
    enum usage_column column;

    usage_fold_init(&fold);
    for (unsigned i = 0; i < count; i++) {
        struct usage_effect effect = random_effect(is_extreme);

        steps_fit = steps_fit && usage_apply(&one, &effect, &column);
        folds = folds && usage_fold_step(&fold, &effect);
    }
    folds = folds && usage_fold_apply(&fold, &folded);
    assert_true(steps_fit || !folds);
    assert_true(folds || is_extreme);
    if (folds) {
        assert_memory_equal(one.value, folded.value, sizeof(one.value));
        assert_int_equal(one.status, folded.status);
    }
}

static void
fold__random_steps__equal_to_one_by_one(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        compare_random(i % 2 == 0);
    }
}

static void
fold__overflow__is_left_unchanged(void **state)
{
    struct usage_effect effect = {.is_touched = {true, true},
                                  .delta = {1, INT64_MAX}};
    struct usage_fold fold;

    (void)state;
    usage_fold_init(&fold);
    assert_true(usage_fold_step(&fold, &effect));
    assert_false(usage_fold_step(&fold, &effect));
    assert_true(fold.column[USAGE_ENTRY_COUNT].a == 1);
}

static void
status__names__there_and_back(void **state)
{
    enum usage_status status;

    (void)state;
    assert_null(usage_status_name(USAGE_STATUS_KEEP));
    for (int i = USAGE_STATUS_ACTIVE; i <= USAGE_STATUS_DECOMMISSIONED; i++) {
        const char *name = usage_status_name((enum usage_status)i);

        assert_true(usage_status_parse(str_of(name), &status));
        assert_int_equal(status, i);
    }
    assert_false(usage_status_parse(str_of("Active"), &status));
    assert_false(usage_status_parse(str_of(""), &status));
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

static const struct CMUnitTest tests[] = {
    T(project__each_type__moves_its_columns),
    T(project__count__multiplies_every_step),
    T(project__amount_missing_or_null__counts_zero),
    T(project__amount_by_value_not_by_spelling),
    T(project__amount_that_is_none__rejected_with_both_names),
    T(project__order__matters_where_a_column_may_fall_or_a_status_is_set),
    cmocka_unit_test(apply__decrement_on_zero__stays_zero),
    cmocka_unit_test(apply__overflow__names_the_column_and_changes_nothing),
    cmocka_unit_test(fold__random_steps__equal_to_one_by_one),
    cmocka_unit_test(fold__overflow__is_left_unchanged),
    cmocka_unit_test(status__names__there_and_back),
};

RUN_TAP(tests)
