/*
 * test_usage_recount.c - the usage row from the ledger: random histories
 * against a plain model, what counts as a difference, what is written.
 */

#include "meter_random.h"
#include "recount_fixture.h"

#include "project/usage.h"

static const char rules[] =
    "events:\n"
    "  - { type: made }\n"
    "  - { type: gone }\n"
    "  - { type: call }\n"
    "  - { type: born }\n"
    "  - { type: dead }\n"
    "usage:\n"
    "  entryCount: { increment: [made], decrement: [gone] }\n"
    "  storageBytes: { increment: [made], decrement: [gone], by: n }\n"
    "  apiCallCount: { increment: [call] }\n"
    "  provisioned: born\n"
    "  decommissioned: dead\n";

static const char other_rules[] = "events:\n"
                                  "  - { type: made }\n";

static int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    fixture_open(f, rules, &usage_recount);
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
live(struct fixture *f, int64_t entries, int64_t bytes, int64_t calls,
     const char *status)
{
    struct fixture_row row;
    struct buf *out = row_begin(&row);

    pg_put_int8(out, entries);
    pg_put_int8(out, bytes);
    pg_put_int8(out, calls);
    pg_put_text(out, str_of(status));
    pg_put_time(out, 1);
    row_end(f, &row, STATEMENT_RECOUNT_USAGE);
}

static enum recount_result
add(struct fixture *f, const char *type, int64_t n)
{
    char attributes[64];
    struct ledger_row row = {.event = {.type = str_of(type)},
                             .recorded_us = 1000 + f->writer_seq};

    snprintf(attributes, sizeof(attributes), "{\"n\":%lld}", (long long)n);
    row.event.attributes = str_of(attributes);
    return fixture_add(f, &row);
}

static int64_t
clamp(int64_t value)
{
    return value < 0 ? 0 : value;
}

static void
recount__of_random_histories__is_what_one_by_one_gives(void **state)
{
    static const char *const types[] = {"made", "gone", "call", "born", "dead"};
    struct fixture *f = *state;

    for (uint64_t seed = 0; seed < 300; seed++) {
        struct meter_random random = {seed};
        int64_t entries = 0, bytes = 0, calls = 0;
        const char *status = "active";
        uint64_t count = random_below(&random, 40);

        fixture_again(f);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t type = random_below(&random, 5);
            int64_t n = (int64_t)random_below(&random, 9);

            assert_int_equal(RECOUNT_OK, add(f, types[type], n));
            switch (type) {
            case 0:
                entries++;
                bytes += n;
                break;
            case 1:
                entries = clamp(entries - 1);
                bytes = clamp(bytes - n);
                break;
            case 2: calls++; break;
            case 3: status = "active"; break;
            default: status = "decommissioned"; break;
            }
        }
        if (count > 0) {
            live(f, entries, bytes, calls, status);
        }
        assert_string_equal("", fixture_compare(f));
        assert_int_equal(0, f->count);
    }
}

static void
differences__are_the_columns_that_differ(void **state)
{
    struct fixture *f = *state;

    add(f, "made", 5);
    live(f, 1, 6, 0, "decommissioned");
    assert_string_equal("usage {} {\"storageBytes\":\"5\",\"status\":"
                        "\"active\"} {\"storageBytes\":\"6\",\"status\":"
                        "\"decommissioned\"}\n",
                        fixture_compare(f));
    assert_int_equal(1, f->count);
}

static void
differences__belong_to_the_rules_of_their_columns(void **state)
{
    struct fixture *f = *state;

    add(f, "made", 5);
    live(f, 1, 6, 0, "decommissioned");
    fixture_compare(f);
    assert_int_equal(RULE_USAGE, f->origin.kind);
    assert_int_equal(2, f->origin.name_count);
    assert_memory_equal("storageBytes", f->origin.names[0].data, 12);
    assert_memory_equal("status", f->origin.names[1].data, 6);
    assert_false(f->origin.is_any);
    assert_true(f->origin.since_us == RECOUNT_SINCE_EVER);

    /* A row that should not be: what is in it counts. */
    fixture_again(f);
    live(f, 0, 0, 3, "active");
    fixture_compare(f);
    assert_int_equal(1, f->origin.name_count);
    assert_memory_equal("apiCallCount", f->origin.names[0].data, 12);
    assert_true(f->origin.since_us == RECOUNT_SINCE_EVER);

    /* No row: what should be in it begins with its first event. */
    fixture_again(f);
    f->writer_seq = 0;
    add(f, "made", 5);
    fixture_compare(f);
    assert_int_equal(2, f->origin.name_count);
    assert_true(f->origin.since_us == 1000);

    /* Nothing is in it: any rule may have made it. */
    fixture_again(f);
    live(f, 0, 0, 0, "active");
    fixture_compare(f);
    assert_int_equal(RECOUNT_RULES_MAX, f->origin.name_count);
    assert_true(f->origin.is_any);
}

static void
row__missing_or_too_many__is_told(void **state)
{
    struct fixture *f = *state;

    add(f, "call", 0);
    assert_string_equal("usage {} {\"entryCount\":\"0\",\"storageBytes\":"
                        "\"0\",\"apiCallCount\":\"1\",\"status\":\"active\"} "
                        "-\n",
                        fixture_compare(f));
    fixture_again(f);
    live(f, 0, 0, 0, "active");
    fixture_compare(f);
    assert_int_equal(1, f->count);
    assert_non_null(strstr(f->text.data, "usage {} - {"));
}

/* Statements in their order, and the values of the last one. */
static size_t
writes(struct fixture *f, int64_t values[3])
{
    struct pg_params params;
    struct projection_query query = {.params = &params};
    size_t at = 0;

    pg_params_init(&params);
    while (f->ops->write(f->recount, &at, &query)) {
        if (query.statement == STATEMENT_RECOUNT_USAGE_INSERT) {
            for (int i = 0; i < 3; i++) {
                uint64_t wire;

                memcpy(&wire, params.bytes.data + params.offset[i + 1], 8);
                values[i] = (int64_t)be64toh(wire);
            }
        } else {
            assert_int_equal(STATEMENT_RECOUNT_USAGE_DELETE, query.statement);
            assert_int_equal(1, at);
        }
        pg_params_reset(&params);
    }
    pg_params_fini(&params);
    return at;
}

static void
write__behind_later_events__is_what_they_leave(void **state)
{
    struct fixture *f = *state;
    int64_t values[3];

    add(f, "made", 5);
    live(f, 9, 9, 9, "active");
    fixture_compare(f);
    add(f, "gone", 7);
    add(f, "made", 2);
    assert_int_equal(2, writes(f, values));
    assert_int_equal(1, values[0]);
    assert_int_equal(2, values[1]);
    assert_int_equal(0, values[2]);

    fixture_again(f); /* a row too many goes */
    live(f, 1, 1, 1, "active");
    fixture_compare(f);
    assert_int_equal(1, writes(f, values));

    fixture_again(f); /* what is right is not touched */
    add(f, "call", 0);
    live(f, 0, 0, 1, "active");
    fixture_compare(f);
    assert_int_equal(0, writes(f, values));
}

static void
base__is_where_it_starts(void **state)
{
    struct fixture *f = *state;
    const struct recount_base base = {
        .kind = RECOUNT_BASE_USAGE,
        .usage = {10, 20, 30},
        .status = USAGE_STATUS_DECOMMISSIONED,
    };

    assert_true(f->ops->base(f->recount, &base));
    add(f, "gone", 25);
    live(f, 9, 0, 30, "decommissioned");
    assert_string_equal("", fixture_compare(f));
}

static void
rules__without_usage__leave_the_row_alone(void **state)
{
    struct fixture f;
    const struct recount_base base = {.kind = RECOUNT_BASE_USAGE,
                                      .status = USAGE_STATUS_ACTIVE};

    (void)state;
    fixture_open(&f, other_rules, &usage_recount);
    assert_true(f.ops->base(f.recount, &base));
    live(&f, 1, 2, 3, "active");
    assert_string_equal("", fixture_compare(&f));
    assert_int_equal(1, f.ops->strangers(f.recount));
    fixture_close(&f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(recount__of_random_histories__is_what_one_by_one_gives),
    TEST(differences__are_the_columns_that_differ),
    TEST(differences__belong_to_the_rules_of_their_columns),
    TEST(row__missing_or_too_many__is_told),
    TEST(write__behind_later_events__is_what_they_leave),
    TEST(base__is_where_it_starts),
    TEST(rules__without_usage__leave_the_row_alone),
};

RUN_TAP(tests)
