/*
 * test_billing_recount.c - meters from the ledger: random histories against a
 * plain model, adjustments, unique values, what is written.
 */

#include "meter_random.h"
#include "recount_fixture.h"

#include "meter_time.h"
#include "project/billing.h"

static const char rules[] =
    "events:\n"
    "  - { type: use }\n"
    "meters:\n"
    "  - { metric: total, on: [use], aggregation: sum, period: day,\n"
    "      lateness: 1h, groupBy: [g] }\n"
    "  - { metric: users, on: [use], value: u, aggregation: unique,\n"
    "      period: month, lateness: 1h }\n";

#define DAY   METER_TIME_DAY
#define START (INT64_C(20000) * DAY + DAY) /* 2024-10-05 */

#define UNITS INT64_C(1000000000)

/* How far the order is ahead of the clock. */
static int64_t ahead_us;

static int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    fixture_open(f, rules, &billing_recount);
    ahead_us = 0;
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

static struct meter_decimal
units(int64_t value)
{
    return (struct meter_decimal){(meter_int128)value * UNITS};
}

static void
put_group_key(struct buf *out, bool has_group)
{
    struct meter_dim dim = {.name = METER_STR("g"),
                            .kind = METER_DIM_STRING,
                            .value = METER_STR("x")};
    uint8_t key[METER_DIGEST_SIZE];

    meter_dims_key(&dim, has_group ? 1 : 0, key);
    pg_put_bytes(out, (struct meter_str){(char *)key, sizeof(key)});
}

/* One figure of a metric and period; customer "c". */
struct model {
    int64_t sum;
    int64_t count;
    int64_t min, max, last;
    int64_t last_ts, last_recorded, last_seq;
    int64_t uniques;
    int64_t watermark;
};

static void
put_key(struct buf *out, const char *metric, int64_t period_us)
{
    bool is_total = strcmp(metric, "total") == 0;

    pg_put_text(out, str_of(metric));
    pg_put_time(out, period_us);
    pg_put_text(out, METER_STR("c"));
    put_group_key(out, is_total);
}

static void
put_sums(struct buf *out, const struct model *model, bool has_value)
{
    static const uint8_t writer[16] = {7};

    pg_put_numeric(out, units(model->sum));
    pg_put_int8(out, model->count);
    if (has_value) {
        pg_put_numeric(out, units(model->min));
        pg_put_numeric(out, units(model->max));
        pg_put_numeric(out, units(model->last));
        pg_put_time(out, model->last_ts);
        pg_put_time(out, model->last_recorded);
        pg_put_uuid(out, writer);
        pg_put_int8(out, model->last_seq);
    } else {
        for (int i = 0; i < 7; i++) {
            pg_put_null(out);
        }
    }
}

static void
live_meter(struct fixture *f, const char *metric, int64_t period_us,
           const struct model *model, const struct model *late,
           const int64_t *manual)
{
    bool is_total = strcmp(metric, "total") == 0;
    struct fixture_row row;
    struct buf *out = row_begin(&row);

    put_key(out, metric, period_us);
    pg_put_text(out, str_of(is_total ? "{\"g\":\"x\"}" : "{}"));
    put_sums(out, model, is_total && model->count > 0);
    pg_put_int8(out, model->uniques);
    if (model->count > 0) {
        pg_put_time(out, model->watermark);
    } else {
        pg_put_null(out);
    }
    if (late != NULL) {
        put_sums(out, late, is_total);
        pg_put_int8(out, late->uniques);
    } else {
        for (int i = 0; i < 10; i++) {
            pg_put_null(out);
        }
    }
    if (manual != NULL) {
        pg_put_numeric(out, units(*manual));
    } else {
        pg_put_null(out);
    }
    pg_put_time(out, START);
    put_made(f, out);
    row_end(f, &row, STATEMENT_RECOUNT_METERS);
}

static void
live_value(struct fixture *f, int64_t period_us, const char *value,
           bool is_folded)
{
    struct fixture_row row;
    struct buf *out = row_begin(&row);

    put_key(out, "users", period_us);
    pg_put_text(out, str_of(value));
    put_bool(out, is_folded);
    row_end(f, &row, STATEMENT_RECOUNT_UNIQUES);
}

/* An event with this id was adjusted in the metric; id NULL: a manual one. */
static void
adjustment(struct fixture *f, const char *metric, const char *id,
           int64_t period_us, int64_t amount, const char *unique,
           const struct model *at)
{
    static const uint8_t writer[16] = {7};
    bool is_total = strcmp(metric, "total") == 0;
    struct fixture_row row;
    struct buf *out = row_begin(&row);

    put_key(out, metric, period_us);
    pg_put_text(out, str_of(is_total ? "{\"g\":\"x\"}" : "{}"));
    put_bool(out, id == NULL);
    pg_put_text(out, str_of(id == NULL ? "m" : id));
    pg_put_numeric(out, units(amount));
    pg_put_time(out, at->last_ts);
    if (id == NULL) {
        for (int i = 0; i < 6; i++) {
            pg_put_null(out);
        }
    } else {
        if (is_total) {
            pg_put_numeric(out, units(amount));
            pg_put_numeric(out, units(amount));
        } else {
            pg_put_null(out);
            pg_put_null(out);
        }
        pg_put_int8(out, 1);
        pg_put_text(out, unique == NULL ? (struct meter_str){NULL, 0}
                                        : str_of(unique));
        pg_put_uuid(out, writer);
        pg_put_int8(out, at->last_seq);
    }
    pg_put_time(out, at->last_recorded);
    pg_put_time(out, at->last_recorded - ahead_us);
    row_end(f, &row, STATEMENT_RECOUNT_ADJUSTMENTS);
}

/* user < 0: none. */
static enum recount_result
add(struct fixture *f, const char *id, int64_t ts_us, int64_t recorded_us,
    int64_t quantity, int user, bool is_adjusted)
{
    char attributes[64];
    struct ledger_row row = {
        .event =
            {
                .type = METER_STR("use"),
                .event_id = str_of(id),
                .customer = METER_STR("c"),
                .ts_us = ts_us,
                .quantity = units(quantity),
            },
        .recorded_us = recorded_us,
        .clock_us = recorded_us - ahead_us,
        .writer = {7},
        .is_adjusted = is_adjusted,
    };

    if (user < 0) {
        snprintf(attributes, sizeof(attributes), "{\"g\":\"x\"}");
    } else {
        snprintf(attributes, sizeof(attributes), "{\"g\":\"x\",\"u\":\"u%d\"}",
                 user);
    }
    row.event.attributes = str_of(attributes);
    return fixture_add(f, &row);
}

static void
model_add(struct model *model, int64_t ts_us, int64_t recorded_us,
          int64_t quantity, int64_t seq)
{
    int64_t clock_us = recorded_us - ahead_us;
    int64_t water = ts_us < clock_us ? ts_us : clock_us;
    bool is_first = model->count == 0;

    model->sum += quantity;
    model->count++;
    model->min = is_first || quantity < model->min ? quantity : model->min;
    model->max = is_first || quantity > model->max ? quantity : model->max;
    /* recorded_us and seq grow with every event here */
    if (is_first || ts_us >= model->last_ts) {
        model->last = quantity;
        model->last_ts = ts_us;
        model->last_recorded = recorded_us;
        model->last_seq = seq;
    }
    model->watermark =
        is_first || water > model->watermark ? water : model->watermark;
}

/* Without late events; those have tests of their own. */
static void
recount__of_random_histories__is_what_one_by_one_gives(void **state)
{
    struct fixture *f = *state;

    for (uint64_t seed = 0; seed < 300; seed++) {
        struct meter_random random = {seed};
        struct model days[3] = {{0}};
        struct model users = {0};
        bool is_seen[4] = {false};

        ahead_us = seed % 2 == 0 ? 0 : 365 * DAY;
        fixture_again(f);
        f->ops->forget(f->recount);
        for (uint64_t i = random_below(&random, 40); i > 0; i--) {
            int64_t ts = START + (int64_t)random_below(&random, 3 * DAY);
            int64_t recorded = START + DAY + f->writer_seq + ahead_us;
            int64_t quantity = (int64_t)random_below(&random, 9) - 4;
            int user = (int)random_below(&random, 5) - 1;

            assert_int_equal(RECOUNT_OK,
                             add(f, "e", ts, recorded, quantity, user, false));
            model_add(&days[(ts - START) / DAY], ts, recorded, quantity,
                      f->writer_seq);
            if (user >= 0) {
                model_add(&users, ts, recorded, 0, 0);
                users.uniques += !is_seen[user];
                is_seen[user] = true;
            }
        }
        for (int i = 0; i < 3; i++) {
            if (days[i].count > 0) {
                live_meter(f, "total", START + i * DAY, &days[i], NULL, NULL);
            }
        }
        if (users.count > 0) {
            live_meter(f, "users", START - 4 * DAY, &users, NULL, NULL);
        }
        for (int i = 0; i < 4; i++) {
            char text[16];

            snprintf(text, sizeof(text), "\"u%d\"", i);
            if (is_seen[i]) {
                live_value(f, START - 4 * DAY, text, true);
            }
        }
        assert_string_equal("", fixture_compare(f));
        assert_int_equal(0, f->count);
    }
}

/* An event that one metric adjusted is folded by the other one. */
static void
adjusted_event__is_late_in_that_metric_only(void **state)
{
    struct fixture *f = *state;
    struct model total = {0}, late = {0}, users = {0};
    const int64_t manual = 12;

    f->ops->forget(f->recount);
    model_add(&late, START, START + DAY, 5, 2);
    adjustment(f, "total", "two", START, 5, NULL, &late);
    adjustment(f, "total", NULL, START, 7, NULL, &late);
    adjustment(f, "total", NULL, START, 5, NULL, &late);

    add(f, "one", START + 5, START + 6, 3, 0, false);
    model_add(&total, START + 5, START + 6, 3, 1);
    model_add(&users, START + 5, START + 6, 0, 0);
    add(f, "two", START, START + DAY, 5, 1, true);
    model_add(&users, START, START + DAY, 0, 0);
    users.uniques = 2;

    live_meter(f, "total", START, &total, &late, &manual);
    live_meter(f, "users", START - 4 * DAY, &users, NULL, NULL);
    live_value(f, START - 4 * DAY, "\"u0\"", true);
    live_value(f, START - 4 * DAY, "\"u1\"", true);
    assert_string_equal("", fixture_compare(f));
}

static void
unique_value__late_first_and_folded_then__is_counted_once(void **state)
{
    struct fixture *f = *state;
    struct model users = {0}, late = {0};

    f->scope.name = METER_STR("users");
    fixture_again(f);
    f->ops->forget(f->recount);
    late.count = 2;
    late.uniques = 1;
    adjustment(f, "users", "one", START - 4 * DAY, 1, "\"u1\"", &late);
    adjustment(f, "users", "two", START - 4 * DAY, 1, "\"u2\"", &late);
    add(f, "one", START, START, 1, 1, true);
    add(f, "two", START, START, 1, 2, true);
    add(f, "three", START, START, 1, 2, false);
    model_add(&users, START, START, 0, 0);
    users.uniques = 1;
    live_meter(f, "users", START - 4 * DAY, &users, &late, NULL);
    live_value(f, START - 4 * DAY, "\"u1\"", false);
    live_value(f, START - 4 * DAY, "\"u2\"", true);
    assert_string_equal("", fixture_compare(f));
}

static void
differences__are_the_columns_that_differ(void **state)
{
    struct fixture *f = *state;
    struct model total = {0};

    f->scope.name = METER_STR("total");
    fixture_again(f);
    add(f, "one", START + 5, START + 6, 3, 0, false);
    model_add(&total, START + 5, START + 6, 3, 1);
    total.sum = 4;
    total.watermark += 1000000;
    live_meter(f, "total", START, &total, NULL, NULL);
    live_meter(f, "total", START + DAY, &total, NULL, NULL);
    fixture_compare(f);
    assert_int_equal(2, f->count);
    assert_non_null(strstr(
        f->text.data,
        "meter {\"metric\":\"total\",\"period\":\"2024-10-05\",\"customer\":"
        "\"c\",\"groups\":{\"g\":\"x\"}} {\"sum\":\"3\",\"watermark_ts\":"
        "\"2024-10-05T00:00:00.000005Z\"} {\"sum\":\"4\",\"watermark_ts\":"
        "\"2024-10-05T00:00:01.000005Z\"}\n"));
    assert_non_null(strstr(f->text.data, "\"2024-10-06\""));
    assert_non_null(strstr(f->text.data, "}} - {\"sum\":\"4\""));
}

/* The row of a value that is missing may count it twice until then. */
static void
value__that_is_missing__has_its_row_written_too(void **state)
{
    struct fixture *f = *state;
    struct model users = {0};

    f->scope.name = METER_STR("users");
    fixture_again(f);
    add(f, "one", START, START, 1, 1, false);
    model_add(&users, START, START, 0, 0);
    users.uniques = 1;
    live_meter(f, "users", START - 4 * DAY, &users, NULL, NULL);
    live_value(f, START - 4 * DAY, "\"u9\"", false);
    fixture_compare(f);
    assert_int_equal(2, f->count);
    assert_non_null(strstr(f->text.data, "\"value\":\"u1\"} \"folded\" -\n"));
    assert_non_null(strstr(f->text.data, "\"value\":\"u9\"} - \"late\"\n"));

    add(f, "two", START, START, 1, 1, false);
    add(f, "three", START, START, 1, 2, false);
    /* parameter 15: uniques */
    assert_string_equal(
        "2 ", fixture_written(f, STATEMENT_RECOUNT_METERS_INSERT, 15, 15));
    assert_string_equal(
        "\"u1\" \"u9\" ",
        fixture_written(f, STATEMENT_RECOUNT_UNIQUES_DELETE, 5, 5));
    assert_string_equal(
        "\"u1\" ", fixture_written(f, STATEMENT_RECOUNT_UNIQUES_INSERT, 5, 5));
}

/* Adjustments are read again under the lock. */
static void
forget__then_the_same_and_one_more__counts_each_once(void **state)
{
    struct fixture *f = *state;
    struct model late = {0}, none = {0};
    const int64_t manual = 7;

    f->scope.name = METER_STR("total");
    fixture_again(f);
    f->ops->forget(f->recount);
    adjustment(f, "total", NULL, START, 7, NULL, &late);
    f->ops->forget(f->recount);
    adjustment(f, "total", NULL, START, 7, NULL, &late);
    live_meter(f, "total", START, &none, NULL, &manual);
    assert_string_equal("", fixture_compare(f));

    f->ops->forget(f->recount);
    model_add(&late, START, START + 9, 5, 1);
    adjustment(f, "total", "one", START, 5, NULL, &late);
    add(f, "one", START, START + 9, 5, -1, true);
    live_meter(f, "total", START, &none, &late, NULL);
    assert_string_equal("", fixture_compare(f));
}

static void
period__before_the_start__is_left_out(void **state)
{
    struct fixture *f = *state;

    f->scope.from_us = START;
    fixture_again(f);
    f->ops->forget(f->recount);
    add(f, "one", START - 1, START, 3, 1, false);
    assert_string_equal("", fixture_compare(f));
    add(f, "two", START, START, 3, -1, false);
    fixture_compare(f);
    assert_int_equal(1, f->count);
}

static void
sum__past_38_digits__is_unfit_and_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct ledger_row row = {
        .event = {.type = METER_STR("use"),
                  .event_id = METER_STR("e"),
                  .customer = METER_STR("c"),
                  .attributes = METER_STR("{\"g\":\"x\"}"),
                  .ts_us = START},
        .recorded_us = START,
        .clock_us = START,
    };

    f->scope.name = METER_STR("total");
    fixture_again(f);
    row.event.quantity.units = (meter_int128)UNITS * UNITS * UNITS * UNITS;
    row.event.quantity.units = row.event.quantity.units * 90;
    assert_int_equal(RECOUNT_OK, fixture_add(f, &row));
    assert_int_equal(RECOUNT_UNFIT, fixture_add(f, &row));
    fixture_compare(f);
    assert_non_null(strstr(f->text.data, "\"count\":\"1\""));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(recount__of_random_histories__is_what_one_by_one_gives),
    TEST(adjusted_event__is_late_in_that_metric_only),
    TEST(unique_value__late_first_and_folded_then__is_counted_once),
    TEST(differences__are_the_columns_that_differ),
    TEST(value__that_is_missing__has_its_row_written_too),
    TEST(forget__then_the_same_and_one_more__counts_each_once),
    TEST(period__before_the_start__is_left_out),
    TEST(sum__past_38_digits__is_unfit_and_changes_nothing),
};

RUN_TAP(tests)
