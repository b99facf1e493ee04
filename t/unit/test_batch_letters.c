/*
 * test_batch_letters.c - dead letters that are judged again, in a batch:
 * found, gone or rejected once more, and what their session's row says then.
 */

#include "batch_fixture.h"

static struct batch_ring rings[EVENTS_MAX];
static struct batch_record records[EVENTS_MAX];

static int
letters_set_up(void **state)
{
    memset(rings, 0, sizeof(rings));
    memset(records, 0, sizeof(records));
    return set_up(state);
}

/* Item i is of the one session that there is. */
static struct batch_record *
make_record(size_t i, enum batch_kind kind, int64_t seq)
{
    memset(rings[i].session, 7, BATCH_SESSION_SIZE);
    rings[i].node = METER_STR("node");
    records[i] = (struct batch_record){.ring = &rings[i],
                                       .kind = kind,
                                       .seq = seq,
                                       .weight = kind == BATCH_EVENT,
                                       .bytes = METER_STR("bytes"),
                                       .tenant = METER_STR("acme")};
    items[i].record = &records[i];
    return &records[i];
}

/* Without an id, as the ring sends it now. */
static struct batch_record *
make_minted(size_t i, int64_t seq)
{
    make_item(i, (unsigned)i, 0, "acme", "acme");
    items[i].identity = (struct meter_str){NULL, 0};
    return make_record(i, BATCH_EVENT, seq);
}

static struct batch_record *
make_letter(size_t i, int64_t seq)
{
    rings[i].is_letters = true;
    return make_minted(i, seq);
}

/* The same, with an id of the client's. */
static struct batch_record *
make_known_letter(size_t i, unsigned id, int64_t seq)
{
    make_item(i, id, 0, "acme", "acme");
    rings[i].is_letters = true;
    return make_record(i, BATCH_EVENT, seq);
}

/* One run with this row; places are the letters found. */
static bool
letters_run(size_t count, const struct batch_totals *row, const int *places)
{
    uint8_t key[BATCH_SESSION_SIZE];

    assert_true(batch_load(&batch, order, count));
    memset(key, 7, sizeof(key));
    assert_true(batch_session_locked(
        &batch, (struct meter_str){(char *)key, sizeof(key)}, row));
    for (; *places != 0; places++) {
        assert_true(batch_letter_found(&batch, *places));
    }
    if (!batch_rings_judge(&batch)) {
        return false;
    }
    batch_decide(&batch, 0, RECORDED);
    batch_rings_advance(&batch);
    return true;
}

static void
letters__found__move_from_rejected_to_their_verdict(void **state)
{
    static const struct batch_totals row = {
        .last_seq = 90, .verdicts = {3, 4, 5, 100}, .lost = 6};
    static const int all[] = {1, 2, 3, 4, 0};
    const struct batch_session *session;

    (void)state;
    make_letter(0, 80)->weight = 40;
    make_letter(1, 12);
    make_known_letter(2, 3, 13);
    make_known_letter(3, 3, 14)->weight = 2; /* the same id again */
    assert_true(letters_run(4, &row, all));
    assert_int_equal(batch.rings.letter_count, 4);
    assert_int_equal(items[0].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(items[3].verdict, METER_VERDICT_DUPLICATE);
    assert_int_equal(batch.rings.moved_count, 0);
    assert_int_equal(batch.rings.settled_count, 1);
    assert_int_equal(batch.rings.dead_count, 0);
    session = batch.rings.sessions[0];
    assert_true(session->is_settled);
    assert_int_equal(session->totals.last_seq, 90);
    assert_int_equal(session->totals.verdicts[METER_VERDICT_ACCEPTED], 45);
    assert_int_equal(session->totals.verdicts[METER_VERDICT_DUPLICATE], 6);
    assert_int_equal(session->totals.verdicts[METER_VERDICT_CONFLICT], 5);
    assert_int_equal(session->totals.verdicts[METER_VERDICT_REJECTED], 56);
    assert_int_equal(session->totals.lost, 6);
}

static void
letters__gone__have_no_effect(void **state)
{
    static const struct batch_totals row = {.last_seq = 90,
                                            .verdicts = {0, 0, 0, 9}};
    static const int second[] = {2, 0};
    static const int first[] = {1, 0};
    static const int none[] = {0};

    (void)state;
    make_letter(0, 1);
    make_letter(1, 2);
    assert_false(letters_run(2, &row, second));
    assert_int_equal(records[0].fate, BATCH_REPLAY);
    assert_int_equal(records[1].fate, BATCH_TAKEN);
    /* It is not asked for any more; the other one is now the first. */
    assert_true(letters_run(2, &row, first));
    assert_int_equal(batch.rings.letter_count, 1);
    assert_int_equal(batch.accepted_count, 1);
    assert_int_equal(
        batch.rings.sessions[0]->totals.verdicts[METER_VERDICT_ACCEPTED], 1);
    /* And what was found before must be found again. */
    assert_false(letters_run(2, &row, none));
    assert_true(letters_run(2, &row, none));
    assert_int_equal(batch.accepted_count, 0);
    assert_int_equal(batch.rings.settled_count, 0);
}

static void
letters__rejected_again__stay_where_they_are(void **state)
{
    static const struct batch_totals row = {.last_seq = 90,
                                            .verdicts = {0, 0, 0, 9}};
    static const int one[] = {1, 0};

    (void)state;
    make_letter(0, 1);
    items[0].event = NULL;
    items[0].error = "why";
    make_letter(1, 2);
    assert_true(letters_run(2, &row, one));
    assert_int_equal(batch.rings.letter_count, 1);
    assert_int_equal(records[0].fate, BATCH_TAKEN);
    assert_int_equal(items[0].verdict, METER_VERDICT_REJECTED);
    assert_false(batch_item_is_dead(&items[0]));
    assert_int_equal(batch.rings.dead_count, 0);
    assert_int_equal(
        batch.rings.sessions[0]->totals.verdicts[METER_VERDICT_REJECTED], 8);
    assert_false(batch_letter_found(&batch, 0));
    assert_false(batch_letter_found(&batch, 2));
}

static void
letters__row_made_anew__does_not_go_below_nothing(void **state)
{
    static const struct batch_totals row = {.verdicts = {0, 0, 0, 1}};
    static const int all[] = {1, 2, 0};

    (void)state;
    make_letter(0, 1)->weight = 7;
    make_letter(1, 2)->kind = BATCH_LOSS;
    items[1].event = NULL;
    records[1].loss.count = 5;
    assert_true(letters_run(2, &row, all));
    assert_int_equal(
        batch.rings.sessions[0]->totals.verdicts[METER_VERDICT_ACCEPTED], 7);
    assert_int_equal(
        batch.rings.sessions[0]->totals.verdicts[METER_VERDICT_REJECTED], 0);
    assert_int_equal(batch.rings.sessions[0]->totals.lost, 5);
    assert_int_equal(batch.rings.loss_count, 1);
}

static void
letters__no_row_of_their_session__are_taken_all_the_same(void **state)
{
    (void)state;
    make_letter(0, 1);
    assert_true(batch_load(&batch, order, 1));
    assert_true(batch_letter_found(&batch, 1));
    assert_true(batch_rings_judge(&batch));
    batch_decide(&batch, 0, RECORDED);
    batch_rings_advance(&batch);
    assert_int_equal(batch.accepted_count, 1);
    assert_int_equal(batch.rings.settled_count, 0);
    assert_int_equal(batch.rings.moved_count, 0);
}

static void
letters__beside_their_ring__are_written_with_it(void **state)
{
    static const struct batch_totals row = {.last_seq = 5,
                                            .verdicts = {1, 0, 0, 4}};
    static const int all[] = {1, 0};

    (void)state;
    make_minted(0, 6);
    make_letter(1, 2);
    rings[1].node = METER_STR("not told");
    assert_true(letters_run(2, &row, all));
    assert_int_equal(batch.rings.moved_count, 1);
    assert_int_equal(batch.rings.settled_count, 0);
    assert_true(
        meter_str_equal(batch.rings.sessions[0]->node, METER_STR("node")));
    assert_int_equal(batch.rings.sessions[0]->totals.last_seq, 6);
    assert_int_equal(
        batch.rings.sessions[0]->totals.verdicts[METER_VERDICT_ACCEPTED], 3);
    assert_int_equal(
        batch.rings.sessions[0]->totals.verdicts[METER_VERDICT_REJECTED], 3);
}

static void
rows__of_letters__have_as_many_parameters_as_their_statements(void **state)
{
    static const struct batch_totals row = {.last_seq = 5};
    static const int all[] = {1, 0};
    struct pg_params params;

    (void)state;
    make_letter(0, 2);
    assert_true(letters_run(1, &row, all));
    pg_params_init(&params);
    batch_letter_params(&batch, &params);
    assert_int_equal(params.count, 2);
    batch_session_settle_params(&batch, &params);
    assert_int_equal(params.count, 6);
    assert_false(params.bytes.failed);
    pg_params_fini(&params);
}

#define TEST(function) \
    cmocka_unit_test_setup_teardown(function, letters_set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(letters__found__move_from_rejected_to_their_verdict),
        TEST(letters__gone__have_no_effect),
        TEST(letters__rejected_again__stay_where_they_are),
        TEST(letters__row_made_anew__does_not_go_below_nothing),
        TEST(letters__no_row_of_their_session__are_taken_all_the_same),
        TEST(letters__beside_their_ring__are_written_with_it),
        TEST(rows__of_letters__have_as_many_parameters_as_their_statements),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
