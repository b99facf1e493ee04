/* Meter rows of transactions: any order, any batches, both paths. */

#include "billing_model.h"

#define EVENTS 5

static const struct meter_str user_segment = {"user", 4};
static const struct attribute_path user_path = {
    .name = {"user", 4}, .segments = &user_segment, .segment_count = 1};

/* One meter for each aggregation. */
static struct billing_meter meters[] = {
    METER("m_sum", BILLING_SUM),     METER("m_count", BILLING_COUNT),
    METER("m_min", BILLING_MIN),     METER("m_max", BILLING_MAX),
    METER("m_avg", BILLING_AVG),     METER("m_last", BILLING_LAST),
    METER("m_uniq", BILLING_UNIQUE),
};

#define METERS (sizeof(meters) / sizeof(meters[0]))

static const struct billing_meter *meter_list[METERS];
static struct event_type all_meters = {.name = {"use", 3}};
static struct event_type sum_only = {.name = {"use", 3}};

struct template
{
    const char *id;
    int64_t ts_us;
    const char *quantity;
    const char *attributes;
};

static int
setup_types(void **state)
{
    for (size_t i = 0; i < METERS; i++) {
        meter_list[i] = &meters[i];
    }
    meters[METERS - 1].value = &user_path;
    all_meters.meters = meter_list;
    all_meters.meter_count = METERS;
    sum_only.meters = meter_list;
    sum_only.meter_count = 1;
    memset(&model, 0, sizeof(model));
    return setup_rows(state);
}

#define TEST_METERS(name) \
    cmocka_unit_test_setup_teardown(name, setup_types, teardown_rows)

static void
close_day(int64_t period_us)
{
    for (size_t i = 0; i < METERS; i++) {
        struct fake_key *key = &fake.closes[fake.close_count++];

        memset(key, 0, sizeof(*key));
        memcpy(key->tenant, "acme", 4);
        memcpy(key->metric, meters[i].metric.data, meters[i].metric.size);
        key->period = period_us - EPOCH;
    }
}

static void
swap(size_t *a, size_t *b)
{
    size_t kept = *a;

    *a = *b;
    *b = kept;
}

/* The next order of 0..count - 1; false: that was the last one. */
static bool
next_order(size_t *order, size_t count)
{
    size_t i = count - 1;
    size_t j = count - 1;

    while (i > 0 && order[i - 1] >= order[i]) {
        i--;
    }
    if (i == 0) {
        return false;
    }
    while (order[j] <= order[i - 1]) {
        j--;
    }
    swap(&order[i - 1], &order[j]);
    for (j = count - 1; i < j; i++, j--) {
        swap(&order[i], &order[j]);
    }
    return true;
}

/*
 * The events in this order, cut behind each one whose bit is set. Batches
 * are step_us apart; the model gets the events one by one.
 */
static void
run_cut(struct item *items, const size_t *order, unsigned cuts, int64_t step_us,
        enum transaction_way way)
{
    struct item *batch[EVENTS];
    int64_t recorded_us = NOON + HOUR;
    size_t count = 0;

    for (size_t i = 0; i < EVENTS; i++) {
        struct item *item = &items[order[i]];

        item->error = NULL;
        model_arrive(item, recorded_us);
        batch[count++] = item;
        if (i == EVENTS - 1 || (cuts & 1U << i) != 0) {
            transaction_run(batch, count, recorded_us, way);
            recorded_us += step_us;
            count = 0;
        }
    }
}

static void
make_items(const struct template *templates, struct item *items)
{
    for (size_t i = 0; i < EVENTS; i++) {
        item_make(&items[i], &all_meters, templates[i].id, templates[i].ts_us,
                  templates[i].quantity, templates[i].attributes);
    }
}

/* Numbers of events are given in the order in which they arrive. */
static void
check_against_model(const struct template *templates)
{
    size_t order[EVENTS] = {0, 1, 2, 3, 4};
    struct item items[EVENTS];

    make_items(templates, items);
    do {
        for (unsigned cuts = 0; cuts < 1U << (EVENTS - 1); cuts++) {
            for (int way = WAY_FAST; way <= WAY_CAREFUL; way++) {
                memset(&fake, 0, sizeof(fake));
                memset(&model, 0, sizeof(model));
                close_day(NOON - 36 * HOUR);
                for (size_t i = 0; i < EVENTS; i++) {
                    items[order[i]].writer_seq = (int64_t)i + 1;
                }
                run_cut(items, order, cuts, METER_TIME_SECOND,
                        (enum transaction_way)way);
                model_check();
            }
        }
    } while (next_order(order, EVENTS));
}

static void
orders_and_batches__on_time_late_and_closed__are_the_model(void **state)
{
    static const struct template templates[EVENTS] = {
        {"on", NOON, "10", "{\"user\":\"a\"}"},
        {"in-window", NOON - HOUR / 2, "-3.5", "{\"user\":\"b\"}"},
        {"too-late", NOON - 3 * HOUR, "7", "{\"user\":\"c\"}"},
        {"newest", NOON + HOUR / 2, "10.000000001", "{\"user\":\"a\"}"},
        {"closed", NOON - 24 * HOUR, "2", "{\"user\":\"c\"}"},
    };

    (void)state;
    check_against_model(templates);
}

static void
orders_and_batches__a_microsecond_past_the_window__are_the_model(void **state)
{
    static const struct template templates[EVENTS] = {
        {"a", NOON, "0.000000003", "{\"user\":1}"},
        {"b", NOON - HOUR - 1, "-0.000000002", "{\"user\":\"1\"}"},
        {"c", NOON - HOUR, "0.000000001", "{\"user\":1.0}"},
        {"d", NOON - HOUR - 2, "5", "{\"user\":true}"},
        {"e", NOON - HOUR - 2, "-5", "{\"user\":null}"},
    };

    (void)state;
    check_against_model(templates);
}

static void
orders_and_batches__values_seen_late_first__are_the_model(void **state)
{
    static const struct template templates[EVENTS] = {
        {"a", NOON, "1", "{\"user\":\"a\"}"},
        {"b", NOON - 2 * HOUR, "2", "{\"user\":\"b\"}"},
        {"c", NOON + 1, "3", "{\"user\":\"b\"}"},
        {"d", NOON - 2 * HOUR, "4", "{\"user\":\"b\"}"},
        {"e", NOON + HOUR / 2, "5", "{\"user\":\"b\"}"},
    };

    (void)state;
    check_against_model(templates);
}

static void
orders_and_batches__within_the_window__give_equal_bytes(void **state)
{
    static const struct template templates[EVENTS] = {
        {"a", NOON, "0.1", "{\"user\":\"a\"}"},
        {"b", NOON - HOUR, "0.000000002", "{\"user\":\"b\"}"},
        {"c", NOON - HOUR / 2, "-7.25", "{\"user\":\"a\"}"},
        {"d", NOON, "12345678901234567890.123456789", "{\"user\":\"d\"}"},
        {"e", NOON - 1, "-0.3", "{}"},
    };
    static struct fake_database first;
    size_t order[EVENTS] = {0, 1, 2, 3, 4};
    struct item items[EVENTS];
    bool is_first = true;

    (void)state;
    make_items(templates, items);
    for (size_t i = 0; i < EVENTS; i++) {
        items[i].writer_seq = (int64_t)i + 1;
    }
    do {
        for (unsigned cuts = 0; cuts < 1U << (EVENTS - 1); cuts++) {
            for (int way = WAY_FAST; way <= WAY_CAREFUL; way++) {
                memset(&fake, 0, sizeof(fake));
                memset(&model, 0, sizeof(model));
                run_cut(items, order, cuts, 0, (enum transaction_way)way);
                fake_sort();
                if (is_first) {
                    first = fake;
                    is_first = false;
                }
                assert_memory_equal(&fake, &first, sizeof(fake));
            }
        }
    } while (next_order(order, EVENTS));
    assert_int_equal(fake_carefuls, 0);
    assert_int_equal(fake.adjustment_count, 0);
}


/* One event of sum_only in a transaction of its own. */
static struct item *
add(const char *id, int64_t ts_us, const char *quantity, int64_t recorded_us,
    enum transaction_way way)
{
    struct item *item = arena_alloc(&arena, sizeof(*item));
    static int64_t seq;

    assert_non_null(item);
    item_make(item, &sum_only, id, ts_us, quantity, "{}");
    item->writer_seq = ++seq;
    transaction_run(&item, 1, recorded_us, way);
    return item;
}

static meter_int128
cell(int column)
{
    assert_int_equal(fake.row_count, 1);
    assert_true(fake.rows[0].cells[column].is_set);
    return fake.rows[0].cells[column].number;
}

static meter_int128
units(const char *text)
{
    struct meter_decimal value = {0};

    assert_int_equal(meter_decimal_parse(str_of(text), &value),
                     METER_DECIMAL_OK);
    return value.units;
}

static void
watermark__event_of_the_future__stops_at_the_clock(void **state)
{
    (void)state;
    for (int way = WAY_FAST; way <= WAY_CAREFUL; way++) {
        const struct item *item;

        memset(&fake, 0, sizeof(fake));
        add("a", NOON + HOUR - 1, "1", NOON, (enum transaction_way)way);
        assert_true(cell(FAKE_WATERMARK) == NOON - EPOCH);
        item = add("b", NOON - HOUR, "1", NOON, (enum transaction_way)way);
        assert_false(item->marks.is_adjusted);
        item = add("c", NOON - HOUR - 1, "1", NOON, (enum transaction_way)way);
        assert_true(item->marks.is_adjusted);
        assert_true(cell(FAKE_SUM) == units("2"));
        assert_true(cell(FAKE_WATERMARK) == NOON - EPOCH);
    }
}

static void
watermark__order_ahead_of_the_clock__stops_at_the_clock(void **state)
{
    (void)state;
    for (int way = WAY_FAST; way <= WAY_CAREFUL; way++) {
        const struct item *item;

        memset(&fake, 0, sizeof(fake));
        test_ahead_us = 365 * 24 * HOUR;
        add("a", NOON + HOUR - 1, "1", NOON, (enum transaction_way)way);
        assert_true(cell(FAKE_WATERMARK) == NOON - EPOCH);
        assert_true(cell(FAKE_LAST_RECORDED) == NOON + test_ahead_us - EPOCH);
        item = add("b", NOON - HOUR, "1", NOON, (enum transaction_way)way);
        assert_false(item->marks.is_adjusted);
        item = add("c", NOON - HOUR - 1, "1", NOON, (enum transaction_way)way);
        assert_true(item->marks.is_adjusted);
        assert_int_equal(fake.adjustments[0].recorded, NOON - EPOCH);
        test_ahead_us = 0;
    }
}

/* Folded while the clock was a year ahead; then it was set right. */
static void
watermark__left_by_a_clock_ahead__counts_as_now(void **state)
{
    const int64_t later = NOON + 2 * HOUR;

    (void)state;
    for (int way = WAY_FAST; way <= WAY_CAREFUL; way++) {
        const struct item *item;

        memset(&fake, 0, sizeof(fake));
        fake_carefuls = 0;
        add("a", later, "1", NOON + 365 * 24 * HOUR, (enum transaction_way)way);
        assert_true(cell(FAKE_WATERMARK) == later - EPOCH);
        item = add("b", NOON - HOUR, "1", NOON, (enum transaction_way)way);
        assert_false(item->marks.is_adjusted);
        assert_int_equal(fake_carefuls, 0);
        item = add("c", NOON - HOUR - 1, "1", NOON, (enum transaction_way)way);
        assert_true(item->marks.is_adjusted);
        assert_true(cell(FAKE_WATERMARK) == later - EPOCH);
    }
}

static void
late__any_number_of_them__move_neither_sums_nor_watermark(void **state)
{
    struct fake_cell before[FAKE_LATE];

    (void)state;
    add("a", NOON, "1", NOON, WAY_FAST);
    memcpy(before, fake.rows[0].cells, sizeof(before));
    add("b", NOON - 2 * HOUR, "5", NOON + 1, WAY_FAST);
    add("c", NOON - 3 * HOUR, "-7", NOON + 2, WAY_FAST);
    assert_memory_equal(before, fake.rows[0].cells, sizeof(before));
    assert_true(cell(FAKE_LATE + FAKE_SUM) == units("-2"));
    assert_int_equal(fake_carefuls, 2);
    assert_int_equal(fake.adjustment_count, 2);
    assert_string_equal(fake.adjustments[1].id, "c");
    assert_true(fake.adjustments[1].amount.number == units("-7"));
    assert_true(fake.adjustments[1].value.number == units("-7"));
    assert_true(fake.adjustments[1].sum.number == units("-7"));
    assert_int_equal(fake.adjustments[1].count, 1);
    assert_int_equal(fake.adjustments[1].ts, NOON - 3 * HOUR - EPOCH);
    assert_int_equal(fake.adjustments[1].recorded, NOON + 2 - EPOCH);
}

#define MOST "99999999999999999999999999999.999999999"

/* Of three events the second one would be the 39th digit. */
static void
sums__past_38_digits__that_event_alone_is_rejected(void **state)
{
    (void)state;
    for (int way = WAY_FAST; way <= WAY_CAREFUL; way++) {
        for (int sign = 1; sign >= -1; sign -= 2) {
            struct item items[3];
            struct item *batch[] = {&items[0], &items[1], &items[2]};

            memset(&fake, 0, sizeof(fake));
            item_make(&items[0], &sum_only, "a", NOON,
                      sign > 0 ? MOST : "-" MOST, "{}");
            item_make(&items[1], &sum_only, "b", NOON,
                      sign > 0 ? "0.000000001" : "-0.000000001", "{}");
            item_make(&items[2], &sum_only, "c", NOON, sign > 0 ? "-1" : "1",
                      "{}");
            transaction_run(batch, 3, NOON, (enum transaction_way)way);
            assert_null(items[0].error);
            assert_string_equal(items[1].error,
                                "meter \"m_sum\" would leave 38 digits, or 64 "
                                "bits of count");
            assert_null(items[2].error);
            assert_int_equal(cell(FAKE_COUNT), 2);
            assert_true(cell(FAKE_SUM) == sign * (units(MOST) - units("1")));
        }
    }
}

/* 10^28 is what one row and one fold may have without a look at each. */
static void
fold__sums_beyond_the_limit__goes_the_careful_way(void **state)
{
    (void)state;
    add("a", NOON, "10000000000000000000000000000", NOON, WAY_FAST);
    assert_int_equal(fake_carefuls, 0);
    add("b", NOON, "10000000000000000000000000000", NOON, WAY_FAST);
    assert_int_equal(fake_carefuls, 0);
    add("c", NOON, "1", NOON, WAY_FAST);
    assert_int_equal(fake_carefuls, 1);
    assert_true(cell(FAKE_SUM) == units("20000000000000000000000000001"));

    memset(&fake, 0, sizeof(fake));
    add("d", NOON, "10000000000000000000000000000.000000001", NOON, WAY_FAST);
    assert_int_equal(fake_carefuls, 2);
    memset(&fake, 0, sizeof(fake));
    add("e", NOON, "-10000000000000000000000000000.000000001", NOON, WAY_FAST);
    assert_int_equal(fake_carefuls, 3);
}

/* Sums may be small where one value is not: then a total could leave. */
static void
total__past_38_digits__rejects_on_either_way(void **state)
{
    (void)state;
    for (int way = WAY_FAST; way <= WAY_CAREFUL; way++) {
        const struct item *item;

        memset(&fake, 0, sizeof(fake));
        add("a", NOON, "1", NOON, (enum transaction_way)way);
        fake.rows[0].cells[FAKE_LATE + FAKE_SUM].is_set = 1;
        fake.rows[0].cells[FAKE_LATE + FAKE_COUNT].is_set = 1;
        fake.rows[0].cells[FAKE_LATE + FAKE_UNIQUES].is_set = 1;
        fake.rows[0].cells[FAKE_LATE + FAKE_SUM].number =
            units(MOST) - units("2");
        item = add("b", NOON, "1", NOON, (enum transaction_way)way);
        assert_null(item->error);
        item = add("c", NOON, "0.000000001", NOON, (enum transaction_way)way);
        assert_non_null(item->error);
        item = add("d", NOON, "-1", NOON, (enum transaction_way)way);
        assert_null(item->error);
    }
}

static void
count__past_64_bits__that_event_alone_is_rejected(void **state)
{
    static const char *const ids[] = {"a", "b", "c", "d"};
    static const int64_t counts[] = {INT64_MAX - 1, 1, 1, 1};
    struct item items[4];
    struct item *batch[] = {&items[0], &items[1], &items[2], &items[3]};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct billing_effect *effect;

        item_make(&items[i], &sum_only, ids[i], NOON, "1", "{}");
        effect = (void *)items[i].effects.of[PROJECTION_METERS];
        ((struct billing_change *)effect->changes)->reading.count = counts[i];
    }
    transaction_run(batch, 2, NOON, WAY_FAST);
    assert_int_equal(fake_carefuls, 1);
    assert_true(cell(FAKE_COUNT) == INT64_MAX);
    transaction_run(batch + 2, 1, NOON, WAY_FAST);
    assert_int_equal(fake_carefuls, 2);
    assert_non_null(items[2].error);
    fake.rows[0].cells[FAKE_COUNT].number = INT64_C(1) << 61;
    transaction_run(batch + 3, 1, NOON, WAY_FAST);
    assert_int_equal(fake_carefuls, 2);
}

static void
last__ties_of_ts__go_to_the_later_commit_then_the_number(void **state)
{
    (void)state;
    for (int way = WAY_FAST; way <= WAY_CAREFUL; way++) {
        memset(&fake, 0, sizeof(fake));
        add("a", NOON, "1", NOON + 5, (enum transaction_way)way);
        add("b", NOON, "2", NOON + 5, (enum transaction_way)way);
        assert_true(cell(FAKE_LAST) == units("2"));
        add("c", NOON, "3", NOON + 4, (enum transaction_way)way);
        assert_true(cell(FAKE_LAST) == units("2"));
        add("d", NOON - 1, "4", NOON + 9, (enum transaction_way)way);
        assert_true(cell(FAKE_LAST) == units("2"));
        add("e", NOON, "5", NOON + 6, (enum transaction_way)way);
        assert_true(cell(FAKE_LAST) == units("5"));
    }
}

static const struct CMUnitTest tests[] = {
    TEST_METERS(orders_and_batches__on_time_late_and_closed__are_the_model),
    TEST_METERS(
        orders_and_batches__a_microsecond_past_the_window__are_the_model),
    TEST_METERS(orders_and_batches__values_seen_late_first__are_the_model),
    TEST_METERS(orders_and_batches__within_the_window__give_equal_bytes),
    TEST_METERS(watermark__event_of_the_future__stops_at_the_clock),
    TEST_METERS(watermark__order_ahead_of_the_clock__stops_at_the_clock),
    TEST_METERS(watermark__left_by_a_clock_ahead__counts_as_now),
    TEST_METERS(late__any_number_of_them__move_neither_sums_nor_watermark),
    TEST_METERS(sums__past_38_digits__that_event_alone_is_rejected),
    TEST_METERS(fold__sums_beyond_the_limit__goes_the_careful_way),
    TEST_METERS(total__past_38_digits__rejects_on_either_way),
    TEST_METERS(count__past_64_bits__that_event_alone_is_rejected),
    TEST_METERS(last__ties_of_ts__go_to_the_later_commit_then_the_number),
};

RUN_TAP(tests)
