/*
 * test_batch_rings.c - records of rings in a batch: fates, totals, and what
 * becomes of events without an identity. The reference walks the items one
 * by one with one number per session.
 */

#include "batch_fixture.h"

#define SESSIONS 5

static struct batch_ring rings[EVENTS_MAX];
static struct batch_record records[EVENTS_MAX];

/* A row of the database. */
struct row {
    bool is_there;
    struct batch_totals totals;
};

static int
rings_set_up(void **state)
{
    memset(rings, 0, sizeof(rings));
    memset(records, 0, sizeof(records));
    return set_up(state);
}

/* Item i becomes one of a ring of its own request. */
static struct batch_record *
make_record(size_t i, unsigned session, enum batch_kind kind, int64_t seq)
{
    struct batch_ring *ring = &rings[i];
    struct batch_record *record = &records[i];

    memset(ring->session, (int)(session * 91 + 7) & 0xff, BATCH_SESSION_SIZE);
    ring->node = METER_STR("node");
    *record = (struct batch_record){.ring = ring,
                                    .kind = kind,
                                    .seq = seq,
                                    .weight = kind == BATCH_EVENT,
                                    .bytes = METER_STR("bytes"),
                                    .tenant = METER_STR("acme")};
    items[i].record = record;
    if (kind != BATCH_EVENT) {
        items[i].event = NULL;
    }
    return record;
}

/* An event with a minted id. */
static struct batch_record *
make_minted(size_t i, unsigned session, int64_t seq)
{
    make_item(i, (unsigned)i, 0, "acme", "acme");
    items[i].identity = (struct meter_str){NULL, 0};
    return make_record(i, session, BATCH_EVENT, seq);
}

static struct batch_record *
make_hello(size_t i, unsigned session, int64_t oldest)
{
    make_item(i, 0, 0, "acme", "acme");
    return make_record(i, session, BATCH_HELLO, oldest);
}

static struct batch_record *
make_loss(size_t i, unsigned session, int64_t seq, uint64_t count)
{
    struct batch_record *record;

    make_item(i, 0, 0, "acme", "acme");
    record = make_record(i, session, BATCH_LOSS, seq);
    record->loss.count = count;
    return record;
}

static void
lock(unsigned session, int64_t last_seq)
{
    uint8_t key[BATCH_SESSION_SIZE];
    struct batch_totals totals = {.last_seq = last_seq};

    memset(key, (int)(session * 91 + 7) & 0xff, sizeof(key));
    assert_true(batch_session_locked(
        &batch, (struct meter_str){(char *)key, sizeof(key)}, &totals));
}

/* Loads and judges until nothing changes; rows of all sessions are locked. */
static unsigned
run(size_t count, const int64_t *last_seq)
{
    unsigned tries = 0;

    do {
        tries++;
        assert_true(tries < 4);
        assert_true(batch_load(&batch, order, count));
        for (unsigned i = 0; i < SESSIONS; i++) {
            uint8_t key[BATCH_SESSION_SIZE];
            struct batch_totals totals = {.last_seq = last_seq[i]};
            bool is_of_batch;

            memset(key, (int)(i * 91 + 7) & 0xff, sizeof(key));
            is_of_batch = batch_session_locked(
                &batch, (struct meter_str){(char *)key, sizeof(key)}, &totals);
            (void)is_of_batch;
        }
    } while (!batch_rings_judge(&batch));
    batch_decide(&batch, 0, RECORDED);
    batch_rings_advance(&batch);
    return tries;
}

static void
rings__in_order__are_taken_in_one_run(void **state)
{
    static const int64_t last[SESSIONS] = {10, 0};

    (void)state;
    make_minted(0, 0, 11);
    make_minted(1, 1, 1);
    make_loss(2, 0, 12, 9);
    make_minted(3, 0, 13)->weight = 5;
    assert_int_equal(run(4, last), 1);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(records[i].fate, BATCH_TAKEN);
    }
    assert_int_equal(batch.accepted_count, 3);
    assert_int_equal(batch.minted_count, 3);
    assert_int_equal(batch.key_count, 0);
    assert_int_equal(batch_fresh_count(&batch), 0);
    assert_int_equal(items[3].writer_seq, 3);
    assert_int_equal(rings[0].totals.last_seq, 11);
    assert_int_equal(rings[0].totals.verdicts[METER_VERDICT_ACCEPTED], 1);
    assert_int_equal(rings[2].totals.lost, 9);
    assert_int_equal(rings[3].totals.last_seq, 13);
    assert_int_equal(rings[3].totals.verdicts[METER_VERDICT_ACCEPTED], 6);
    assert_int_equal(batch.rings.moved_count, 2);
    assert_int_equal(batch.rings.loss_count, 1);
    assert_int_equal(batch.rings.dead_count, 0);
}

static void
rings__replay_and_gap__leave_the_batch(void **state)
{
    static const int64_t last[SESSIONS] = {10};

    (void)state;
    make_minted(0, 0, 10);
    make_minted(1, 0, 11);
    make_minted(2, 0, 13);
    make_minted(3, 0, 12); /* behind the gap, though it would fit */
    make_item(4, 4, 0, "acme", "acme");
    assert_int_equal(run(5, last), 2);
    assert_int_equal(records[0].fate, BATCH_REPLAY);
    assert_int_equal(records[1].fate, BATCH_TAKEN);
    assert_int_equal(records[2].fate, BATCH_GAP);
    assert_int_equal(records[3].fate, BATCH_BEHIND);
    assert_int_equal(rings[2].expected_seq, 12);
    assert_int_equal(batch.accepted_count, 2);
    assert_int_equal(batch.minted_count, 1);
    assert_int_equal(batch.rings.sessions[0]->totals.last_seq, 11);
    /* The row went back meanwhile: what was a replay is one no more. */
    static const int64_t back[SESSIONS] = {9};

    assert_int_equal(run(5, back), 2);
    assert_int_equal(records[0].fate, BATCH_TAKEN);
    assert_int_equal(batch.accepted_count, 3);
}

static void
rings__a_replay__does_not_stand_for_its_id(void **state)
{
    static const int64_t last[SESSIONS] = {10};

    (void)state;
    make_item(0, 3, 0, "acme", "acme");
    make_record(0, 0, BATCH_EVENT, 10);
    make_item(1, 3, 1, "acme", "acme");
    assert_int_equal(run(2, last), 2);
    assert_int_equal(items[1].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(batch.key_count, 1);
}

static void
rings__no_row__is_a_gap(void **state)
{
    (void)state;
    make_minted(0, 0, 1);
    assert_true(batch_load(&batch, order, 1));
    assert_false(batch_rings_judge(&batch));
    assert_int_equal(records[0].fate, BATCH_GAP);
    assert_int_equal(rings[0].expected_seq, 1);
    assert_true(batch_load(&batch, order, 1));
    assert_true(batch_rings_judge(&batch));
    batch_rings_advance(&batch);
    assert_int_equal(batch.rings.moved_count, 0);
}

static void
rings__rejected__cover_their_number_and_are_dead(void **state)
{
    static const int64_t last[SESSIONS] = {0};

    (void)state;
    make_minted(0, 0, 1)->weight = 4;
    items[0].event = NULL;
    items[0].error = "why";
    make_loss(1, 0, 2, 3);
    items[1].error = "why";
    make_minted(2, 0, 3);
    assert_int_equal(run(3, last), 1);
    assert_int_equal(rings[2].totals.last_seq, 3);
    assert_int_equal(rings[2].totals.verdicts[METER_VERDICT_REJECTED], 4);
    assert_int_equal(rings[2].totals.lost, 0);
    assert_int_equal(batch.rings.dead_count, 2);
    assert_int_equal(batch.rings.loss_count, 0);
    assert_true(batch_item_is_dead(&items[0]));
    assert_false(batch_item_is_dead(&items[2]));
    /* Not again when it comes again. */
    static const int64_t later[SESSIONS] = {3};

    assert_int_equal(run(3, later), 2);
    assert_int_equal(batch.rings.dead_count, 0);
}

static void
hello__oldest_past_the_row__gives_up_what_is_between(void **state)
{
    static const int64_t last[SESSIONS] = {10};

    (void)state;
    make_minted(0, 0, 11);
    make_hello(1, 0, 0);
    make_hello(2, 0, 12);
    make_hello(3, 0, 20);
    make_minted(4, 0, 20);
    make_minted(5, 0, 30);
    make_hello(6, 0, 5);
    make_minted(7, 0, 21);
    run(8, last);
    assert_int_equal(rings[1].totals.last_seq, 11);
    assert_int_equal(rings[1].missing, 0);
    assert_int_equal(rings[2].missing, 0);
    assert_int_equal(rings[3].missing, 8);
    assert_int_equal(rings[3].totals.last_seq, 19);
    assert_int_equal(records[4].fate, BATCH_TAKEN);
    assert_int_equal(records[5].fate, BATCH_GAP);
    assert_int_equal(records[7].fate, BATCH_TAKEN);
    assert_int_equal(rings[7].totals.last_seq, 21);
    assert_int_equal(batch.rings.loss_count, 1);
    assert_int_equal(batch.rings.hello_count, 4);
    assert_true(batch_item_has_loss(&items[3]));
}

static void
totals__past_64_bits__stay_at_the_end(void **state)
{
    static const int64_t last[SESSIONS] = {0};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        make_minted(i, 0, (int64_t)i + 1)->weight = INT64_MAX;
    }
    run(3, last);
    assert_true(rings[2].totals.verdicts[METER_VERDICT_ACCEPTED] == INT64_MAX);
    assert_int_equal(rings[2].totals.last_seq, 3);
}

static void
session_locked__strange_rows__are_refused(void **state)
{
    struct batch_totals totals = {.last_seq = 1};
    uint8_t other[BATCH_SESSION_SIZE] = {1, 2};
    struct meter_str mine = {(const char *)rings[0].session,
                             BATCH_SESSION_SIZE};

    (void)state;
    make_minted(0, 0, 1);
    assert_true(batch_load(&batch, order, 1));
    assert_false(batch_session_locked(
        &batch, (struct meter_str){(char *)other, sizeof(other)}, &totals));
    totals.last_seq = -1;
    assert_false(batch_session_locked(&batch, mine, &totals));
    totals.last_seq = INT64_MAX;
    assert_false(batch_session_locked(&batch, mine, &totals));
    lock(0, 5);
    totals.last_seq = 1;
    assert_false(batch_session_locked(&batch, mine, &totals));
}

static void
sessions__leave_sorted_by_their_bytes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SESSIONS; i++) {
        make_minted(i, i, 1);
    }
    assert_true(batch_load(&batch, order, SESSIONS));
    assert_int_equal(batch.rings.session_count, SESSIONS);
    for (size_t i = 1; i < SESSIONS; i++) {
        assert_true(meter_str_compare(batch.rings.sessions[i - 1]->key,
                                      batch.rings.sessions[i]->key) < 0);
    }
    make_item(0, 0, 0, "acme", "acme");
    assert_true(batch_load(&batch, order, 1));
    assert_int_equal(batch.rings.record_count, 0);
    assert_int_equal(batch.rings.session_count, 0);
}

/* One item after the other, as if each had a transaction of its own. */
static void
reference_item(struct row *row, size_t i, bool *is_gapped,
               enum batch_fate *fate)
{
    const struct batch_record *record = &records[i];

    *fate = BATCH_TAKEN;
    if (record->kind == BATCH_HELLO) {
        *is_gapped = false;
        if (record->seq > row->totals.last_seq + 1) {
            row->totals.last_seq = record->seq - 1;
        }
    } else if (*is_gapped) {
        *fate = BATCH_BEHIND;
    } else if (record->seq <= row->totals.last_seq) {
        *fate = BATCH_REPLAY;
    } else if (record->seq > row->totals.last_seq + 1) {
        *fate = BATCH_GAP;
        *is_gapped = true;
    } else {
        row->totals.last_seq++;
        if (record->kind == BATCH_LOSS) {
            row->totals.lost += (int64_t)record->loss.count;
        } else {
            row->totals.verdicts[items[i].error != NULL
                                     ? METER_VERDICT_REJECTED
                                     : METER_VERDICT_ACCEPTED] +=
                record->weight;
        }
    }
}

static void
make_random(size_t i, const int64_t *near)
{
    unsigned session = random_below(SESSIONS);
    int64_t seq = near[session] + (int64_t)random_below(4) - 1;

    switch (random_below(8)) {
    case 0:
        make_hello(i, session, random_below(3) == 0 ? seq : 0);
        records[i].seq = records[i].seq < 0 ? 0 : records[i].seq;
        break;
    case 1: make_loss(i, session, seq < 1 ? 1 : seq, random_below(9)); break;
    default:
        make_minted(i, session, seq < 1 ? 1 : seq)->weight = random_below(5);
        if (random_below(5) == 0) {
            items[i].event = NULL;
            items[i].error = "why";
        }
    }
}

static void
rings__any_mixture__equal_to_one_by_one(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 400; round++) {
        size_t count = 1 + random_below(60);
        struct row rows[SESSIONS] = {{.is_there = true}};
        bool is_gapped[SESSIONS] = {false};
        int64_t last[SESSIONS];
        int64_t near[SESSIONS];

        for (size_t i = 0; i < SESSIONS; i++) {
            last[i] = random_below(3);
            near[i] = last[i] + 1;
            rows[i].totals.last_seq = last[i];
        }
        for (size_t i = 0; i < count; i++) {
            make_random(i, near);
            for (size_t s = 0; s < SESSIONS; s++) {
                near[s] += random_below(3) == 0;
            }
        }
        run(count, last);
        for (size_t i = 0; i < count; i++) {
            size_t s = 0;
            enum batch_fate fate;

            while (rings[i].session[0] != ((s * 91 + 7) & 0xff)) {
                s++;
            }
            reference_item(&rows[s], i, &is_gapped[s], &fate);
            assert_int_equal(records[i].fate, fate);
            assert_memory_equal(&rings[i].totals, &rows[s].totals,
                                sizeof(rows[s].totals));
        }
    }
}

static void
rows__of_rings__have_as_many_parameters_as_their_statements(void **state)
{
    static const int64_t last[SESSIONS] = {0};
    struct batch_stamp stamp = {.writer = writer,
                                .recorded_us = RECORDED,
                                .now_us = RECORDED};
    struct pg_params params;

    (void)state;
    make_hello(0, 0, 4);
    make_loss(1, 0, 4, 2);
    make_minted(2, 1, 1);
    items[2].event = NULL;
    items[2].error = "why";
    run(3, last);
    pg_params_init(&params);
    batch_session_ensure_params(&batch, &stamp, &params);
    assert_int_equal(params.count, 3);
    batch_session_lock_params(&batch, &params);
    assert_int_equal(params.count, 1);
    batch_session_advance_params(&batch, &stamp, &params);
    assert_int_equal(params.count, 10);
    batch_dead_letter_params(&batch, &stamp, &params);
    assert_int_equal(params.count, 6);
    batch_loss_params(&batch, &stamp, &params);
    assert_int_equal(params.count, 8);
    assert_false(params.bytes.failed);
    pg_params_fini(&params);
}

#define TEST(function) \
    cmocka_unit_test_setup_teardown(function, rings_set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rings__in_order__are_taken_in_one_run),
        TEST(rings__replay_and_gap__leave_the_batch),
        TEST(rings__a_replay__does_not_stand_for_its_id),
        TEST(rings__no_row__is_a_gap),
        TEST(rings__rejected__cover_their_number_and_are_dead),
        TEST(hello__oldest_past_the_row__gives_up_what_is_between),
        TEST(totals__past_64_bits__stay_at_the_end),
        TEST(session_locked__strange_rows__are_refused),
        TEST(sessions__leave_sorted_by_their_bytes),
        TEST(rings__any_mixture__equal_to_one_by_one),
        TEST(rows__of_rings__have_as_many_parameters_as_their_statements),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
