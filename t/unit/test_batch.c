/*
 * test_batch.c - a batch decides what one-by-one processing decides.
 *
 * The reference is a plain walk over the events with a list for the
 * registry and one value per row; nothing of it is shared with the code
 * under test.
 */

#include "batch_fixture.h"

/* The reference. */

struct reference {
    bool is_there[IDS_MAX];
    unsigned content[IDS_MAX];
    int64_t first_seen_us[IDS_MAX];
    int64_t values[PROJECTION_COUNT][ROWS_MAX];
};

static enum meter_verdict
reference_event(struct reference *reference, unsigned id, unsigned content)
{
    if (reference->is_there[id]) {
        return reference->content[id] == content ? METER_VERDICT_DUPLICATE
                                                 : METER_VERDICT_CONFLICT;
    }
    reference->is_there[id] = true;
    reference->content[id] = content;
    reference->first_seen_us[id] = RECORDED;
    return METER_VERDICT_ACCEPTED;
}

/* One random batch with about `repeats` percent of repeated ids. */
static void
compare_random_batch(size_t count, unsigned repeats)
{
    struct projection_stamp stamp = {writer, RECORDED, RECORDED};
    struct reference reference = {0};
    struct reference start;
    enum meter_verdict expected[EVENTS_MAX];
    unsigned ids[EVENTS_MAX];
    unsigned contents[EVENTS_MAX];
    unsigned fresh = 0;
    size_t accepted = 0;
    int64_t seq = 1000;

    for (unsigned id = 0; id < IDS_MAX; id += 5) {
        reference.is_there[id] = random_below(2) == 0;
        reference.content[id] = random_below(2);
        reference.first_seen_us[id] = 500 + id;
    }
    start = reference;
    for (size_t i = 0; i < count; i++) {
        bool is_repeat = fresh > 0 && random_below(100) < repeats;

        ids[i] = is_repeat ? random_below(fresh) : fresh % IDS_MAX;
        fresh += !is_repeat && fresh < IDS_MAX;
        contents[i] = random_below(2);
        make_item(i, ids[i], contents[i], "acme", "acme");
        expected[i] = reference_event(&reference, ids[i], contents[i]);
        for (size_t at = 0; at < PROJECTION_COUNT; at++) {
            size_t row = random_below(ROWS_MAX);
            int64_t delta = random_below(2) == 0 ? 1 : -1;

            set_effect(i, (enum projection_id)at, row, delta);
            if (expected[i] == METER_VERDICT_ACCEPTED) {
                reference.values[at][row] += delta;
            }
        }
    }
    assert_true(batch_load(&batch, order, count));
    for (unsigned id = 0; id < IDS_MAX; id++) {
        if (start.is_there[id]) {
            make_known(id, start.content[id], "acme", "acme",
                       start.first_seen_us[id]);
        }
    }
    batch_decide(&batch, seq, RECORDED);
    assert_int_equal(batch_fold(&batch, &stamp), PROJECTION_OK);

    for (size_t i = 0; i < count; i++) {
        assert_int_equal(items[i].verdict, expected[i]);
        assert_int_equal(items[i].first_seen_us,
                         reference.first_seen_us[ids[i]]);
        if (expected[i] == METER_VERDICT_ACCEPTED) {
            accepted++;
            assert_int_equal(items[i].writer_seq, ++seq);
        }
    }
    assert_int_equal(batch.accepted_count, accepted);
    assert_int_equal(batch.audited_count, count - accepted);
    for (size_t at = 0; at < PROJECTION_COUNT; at++) {
        const struct fake_rows *rows = rows_of((enum projection_id)at);

        assert_memory_equal(rows->values, reference.values[at],
                            sizeof(rows->values));
        assert_int_equal(rows->seen_count, accepted);
        for (size_t i = 1; i < accepted; i++) {
            assert_int_equal(rows->seqs[i], rows->seqs[i - 1] + 1);
            assert_true(rows->seen[i] > rows->seen[i - 1]); /* arrival */
        }
    }
}

static void
batch__repeats_from_none_to_all__equal_to_one_by_one(void **state)
{
    (void)state;
    for (unsigned repeats = 0; repeats <= 100; repeats += 10) {
        for (unsigned round = 0; round < 60; round++) {
            compare_random_batch(1 + random_below(EVENTS_MAX), repeats);
        }
    }
}

static void
batch__hundred_copies_of_one_id__one_accepted_ninety_nine_audited(void **state)
{
    struct batch_stamp stamp = {.writer = writer, .batch = 1};
    struct pg_params params;

    (void)state;
    for (size_t i = 0; i < 100; i++) {
        make_item(i, 7, 0, "acme", "acme");
    }
    assert_true(batch_load(&batch, order, 100));
    batch_decide(&batch, 41, RECORDED);
    assert_int_equal(batch.accepted_count, 1);
    assert_int_equal(batch.audited_count, 99);
    assert_int_equal(items[0].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(items[0].writer_seq, 42);
    for (size_t i = 1; i < 100; i++) {
        assert_int_equal(items[i].verdict, METER_VERDICT_DUPLICATE);
        assert_int_equal(items[i].first_seen_us, RECORDED);
    }
    pg_params_init(&params);
    batch_audit_params(&batch, &stamp, &params);
    assert_false(params.bytes.failed);
    assert_int_equal(params.count, 11);
    pg_params_fini(&params);
}

static void
batch__conflict_before_and_after_the_copy__first_content_wins(void **state)
{
    static const unsigned contents[] = {3, 4, 3, 4, 3};

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        make_item(i, 1, contents[i], "acme", "acme");
    }
    assert_true(batch_load(&batch, order, 5));
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(items[0].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(items[1].verdict, METER_VERDICT_CONFLICT);
    assert_int_equal(items[2].verdict, METER_VERDICT_DUPLICATE);
    assert_int_equal(items[3].verdict, METER_VERDICT_CONFLICT);
    assert_int_equal(items[4].verdict, METER_VERDICT_DUPLICATE);
}

static void
batch__same_key_of_two_tenants__both_accepted(void **state)
{
    (void)state;
    make_item(0, 1, 0, "acme", "acme");
    make_item(1, 1, 0, "globex", "globex");
    assert_true(batch_load(&batch, order, 2));
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(items[0].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(items[1].verdict, METER_VERDICT_ACCEPTED);
}

static void
batch__across_tenants__other_tenants_id_is_a_conflict(void **state)
{
    (void)state;
    make_item(0, 1, 0, "acme", "");
    make_item(1, 1, 0, "globex", "");
    make_item(2, 2, 0, "acme", "");
    make_item(3, 2, 0, "globex", "");
    assert_true(batch_load(&batch, order, 4));
    /* Known for the tenant that comes second in the batch. */
    make_known(2, 0, "globex", "", 5);
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(items[0].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(items[1].verdict, METER_VERDICT_CONFLICT);
    assert_int_equal(items[2].verdict, METER_VERDICT_CONFLICT);
    assert_int_equal(items[3].verdict, METER_VERDICT_DUPLICATE);
    assert_int_equal(items[3].first_seen_us, 5);
}

static void
batch__body_absent_on_one_side__only_the_head_is_compared(void **state)
{
    (void)state;
    make_item(0, 1, 1, "acme", "acme");
    make_item(1, 1, 2, "acme", "acme")->fingerprint.has_body = false;
    assert_true(batch_load(&batch, order, 2));
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(items[1].verdict, METER_VERDICT_DUPLICATE);
}

static void
batch_load__ids_in_any_order__keys_leave_sorted_by_key_then_scope(void **state)
{
    (void)state;
    for (size_t i = 0; i < IDS_MAX; i++) {
        const char *tenant = i % 3 == 0 ? "globex" : "acme";

        make_item(i, (unsigned)i, 0, tenant, tenant);
    }
    assert_true(batch_load(&batch, order, IDS_MAX));
    assert_int_equal(batch.key_count, IDS_MAX);
    for (size_t i = 1; i < batch.key_count; i++) {
        const struct batch_item *a = batch.by_key[i - 1];
        const struct batch_item *b = batch.by_key[i];
        int keys = memcmp(batch_item_key(a), batch_item_key(b), METER_KEY_SIZE);

        assert_true(keys < 0 ||
                    (keys == 0 && meter_str_compare(batch_item_scope(a),
                                                    batch_item_scope(b)) < 0));
    }
}

static void
batch_rows__copy_stream__has_one_row_per_fresh_key(void **state)
{
    struct batch_stamp stamp = {
        .writer = writer, .recorded_us = RECORDED, .now_us = RECORDED,
        .batch = 1};
    struct buf one;
    struct buf two;

    (void)state;
    buf_init(&one, 1 << 20);
    buf_init(&two, 1 << 20);
    make_item(0, 0, 0, "acme", "acme");
    make_item(1, 1, 0, "acme", "acme");
    make_item(2, 0, 0, "acme", "acme");
    assert_true(batch_load(&batch, order, 3));
    make_known(1, 0, "acme", "acme", 5);
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(batch_fresh_count(&batch), 1);
    batch_registry_copy(&batch, &stamp, &two);

    assert_true(batch_load(&batch, order, 1));
    batch_decide(&batch, 0, RECORDED);
    batch_registry_copy(&batch, &stamp, &one);
    assert_int_equal(one.size, two.size);
    assert_memory_equal(one.data, two.data, one.size);
    buf_fini(&one);
    buf_fini(&two);
}

#define TEST(function) \
    cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(batch__repeats_from_none_to_all__equal_to_one_by_one),
        TEST(batch__hundred_copies_of_one_id__one_accepted_ninety_nine_audited),
        TEST(batch__conflict_before_and_after_the_copy__first_content_wins),
        TEST(batch__same_key_of_two_tenants__both_accepted),
        TEST(batch__across_tenants__other_tenants_id_is_a_conflict),
        TEST(batch__body_absent_on_one_side__only_the_head_is_compared),
        TEST(batch_load__ids_in_any_order__keys_leave_sorted_by_key_then_scope),
        TEST(batch_rows__copy_stream__has_one_row_per_fresh_key),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
