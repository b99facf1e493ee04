/*
 * test_intake.c - the records of a ring on their way in.
 */

#include "intake_fixture.h"


/* ---- opening --------------------------------------------------------- */

static void
open__tells_where_the_session_is_and_credit(void **state)
{
    struct owner owner = {0};

    (void)state;
    begin_ring(&owner, 1, 11, 10, 0);
    assert_int_equal(owner.opened, 0);
    assert_true(requests[0].is_open_ring);
    assert_int_equal(requests[0].oldest, 0);
    answer(0, INGEST_DONE, 10);
    assert_int_equal(owner.opened, 1);
    assert_int_equal(owner.last_seq, 10);
    assert_int_equal(owner.credit, 10 + INTAKE_WINDOW_MAX);
    assert_int_equal(owner.intake->expected, 11);
    assert_int_equal(metrics.edgemeter_edge_rings, 1);
    assert_int_equal(intakes_db_epoch(&intakes), 77);
    intake_close(owner.intake);
    assert_int_equal(metrics.edgemeter_edge_rings, 0);
}

static void
open__closed_while_it_waits__withdrawn(void **state)
{
    struct owner owner = {0};

    (void)state;
    begin_ring(&owner, 1, 1, 0, 0);
    intake_close(owner.intake);
    assert_true(requests[0].is_withdrawn);
}

static void
open__same_session_twice__older_is_fenced_and_withdrawn(void **state)
{
    struct owner older = {0}, newer = {0}, other = {0};

    (void)state;
    begin(&older, 1, 0);
    begin(&other, 2, 0);
    assert_int_equal(put(&older, 1, 3), INTAKE_TAKEN);
    assert_int_equal(put(&older, 4, 3), INTAKE_TAKEN);
    assert_int_equal(put(&other, 1, 3), INTAKE_TAKEN);
    begin_ring(&newer, 1, 7, 0, 0);
    assert_int_equal(older.fenced, 1);
    assert_true(requests[2].is_withdrawn);
    assert_true(requests[3].is_withdrawn);
    assert_false(requests[4].is_withdrawn);
    assert_int_equal(newer.opened, 0);
    assert_int_equal(other.fenced, 0);
    assert_int_equal(metrics.edgemeter_edge_fenced_total, 1);
    assert_int_equal(metrics.edgemeter_edge_rings, 2);
    answer(5, INGEST_DONE, 3); /* a transaction had the first of them */
    assert_int_equal(newer.intake->expected, 4);
    intake_close(older.intake); /* does not harm the newer one */
    assert_int_equal(put(&newer, 4, 3), INTAKE_TAKEN);
    answer(6, INGEST_DONE, 6);
    assert_int_equal(newer.results, 1);
    intake_close(newer.intake);
    intake_close(other.intake);
}

static void
open__fenced_while_opening__only_the_newer_opens(void **state)
{
    struct owner older = {.closes = true}, newer = {0};

    (void)state;
    begin_ring(&older, 1, 1, 0, 0);
    begin_ring(&newer, 1, 1, 0, 0);
    assert_int_equal(older.fenced, 1);
    assert_true(requests[0].is_withdrawn);
    answer(1, INGEST_DONE, 0);
    assert_int_equal(older.opened, 0);
    assert_int_equal(newer.opened, 1);
    intake_close(newer.intake);
}

static void
open__answers_at_once__start_over(void **state)
{
    struct owner owner = {.closes = true};

    (void)state;
    at_once = INGEST_UNAVAILABLE;
    begin_ring(&owner, 1, 1, 0, 0);
    assert_null(owner.intake);
    assert_int_equal(owner.restarted, 1);
    assert_int_equal(owner.why, INGEST_UNAVAILABLE);
}

static void
open__database_is_past_head__rollback_is_counted(void **state)
{
    struct owner owner = {0};

    (void)state;
    begin_ring(&owner, 1, 10, 5, 0);
    answer(0, INGEST_DONE, 10);
    assert_int_equal(owner.opened, 1);
    assert_int_equal(metrics.edgemeter_edge_rollbacks_total, 1);
    assert_int_equal(metrics.edgemeter_edge_rewinds_total, 0);
    intake_close(owner.intake);
}

static void
open__database_is_at_head__no_rollback(void **state)
{
    struct owner owner = {0};

    (void)state;
    begin_ring(&owner, 1, 10, 5, 0);
    answer(0, INGEST_DONE, 9);
    assert_int_equal(metrics.edgemeter_edge_rollbacks_total, 0);
    assert_int_equal(metrics.edgemeter_edge_rewinds_total, 0);
    intake_close(owner.intake);
}

static void
open__database_is_behind_acked__rewind_is_counted_once(void **state)
{
    struct owner owner = {0}, again = {0};

    (void)state;
    begin_ring(&owner, 1, 10, 8, 0);
    answer(0, INGEST_DONE, 3);
    assert_int_equal(metrics.edgemeter_edge_rewinds_total, 1);
    assert_int_equal(owner.intake->expected, 4);
    begin_ring(&again, 1, 10, 5, 6); /* the ring has it from 6 on */
    assert_int_equal(requests[1].oldest, 6);
    answer(1, INGEST_DONE, 5);
    assert_int_equal(metrics.edgemeter_edge_rewinds_total, 1);
    intake_close(owner.intake);
    intake_close(again.intake);
}


/* ---- records --------------------------------------------------------- */

static void
put__next_numbers__taken_and_answered(void **state)
{
    struct owner owner = {0};

    (void)state;
    begin(&owner, 1, 20);
    assert_int_equal(put(&owner, 21, 2), INTAKE_TAKEN);
    assert_int_equal(put(&owner, 23, 1), INTAKE_TAKEN);
    assert_int_equal(requests[1].first_seq, 21);
    assert_int_equal(requests[1].count, 2);
    assert_int_equal(requests[1].size, 400);
    assert_false(TAILQ_EMPTY(&owner.intake->parts));
    answer(1, INGEST_DONE, 23); /* one transaction took both */
    assert_int_equal(owner.results, 1);
    assert_int_equal(owner.last_seq, 23);
    assert_int_equal(owner.first_seq, 21);
    assert_int_equal(owner.codes, 2);
    answer(2, INGEST_DONE, 23);
    assert_int_equal(owner.first_seq, 23);
    assert_int_equal(owner.codes, 1);
    assert_true(TAILQ_EMPTY(&owner.intake->parts));
    intake_close(owner.intake);
}

static void
put__other_numbers__gap_and_nothing_submitted(void **state)
{
    struct owner owner = {0};

    (void)state;
    begin(&owner, 1, 20);
    assert_int_equal(put(&owner, 20, 2), INTAKE_GAP);
    assert_int_equal(put(&owner, 22, 2), INTAKE_GAP);
    assert_int_equal(put(&owner, UINT64_MAX, 2), INTAKE_GAP);
    assert_int_equal(request_count, 1);
    assert_int_equal(metrics.edgemeter_edge_gaps_total, 3);
    assert_int_equal(owner.intake->expected, 21);
    assert_int_equal(put(&owner, 21, 2), INTAKE_TAKEN);
    intake_close(owner.intake);
    assert_true(requests[1].is_withdrawn);
}

static void
put__past_credit__refused_to_the_record(void **state)
{
    struct owner owner = {0};
    uint64_t left = INTAKE_WINDOW_MAX % 5000;

    (void)state;
    begin(&owner, 1, 0);
    for (uint64_t seq = 1; seq + 5000 <= owner.credit; seq += 5000) {
        assert_int_equal(put(&owner, seq, 5000), INTAKE_TAKEN);
    }
    assert_int_equal(put(&owner, owner.credit - left + 1, left + 1),
                     INTAKE_PAST_CREDIT);
    assert_int_equal(put(&owner, owner.credit - left + 1, left), INTAKE_TAKEN);
    assert_int_equal(put(&owner, owner.credit + 1, 1), INTAKE_PAST_CREDIT);
    answer(1, INGEST_DONE, 5000);
    assert_int_equal(owner.credit, 5000 + INTAKE_WINDOW_MAX);
    assert_int_equal(put(&owner, INTAKE_WINDOW_MAX + 1, 5000), INTAKE_TAKEN);
    intake_close(owner.intake);
}

static void
credit__told_when_it_moved_by_a_quarter_window(void **state)
{
    struct owner owner = {0};
    uint64_t seq = 1;

    (void)state;
    begin(&owner, 1, 0);
    for (size_t i = 0; i < 16; i++) {
        size_t count = INTAKE_WINDOW_MAX / 16;

        assert_int_equal(put(&owner, seq, count), INTAKE_TAKEN);
        seq += count;
        answer(i + 1, INGEST_DONE, seq - 1);
        assert_int_equal(owner.credits, (i + 1) / 4);
    }
    assert_int_equal(owner.credit, 2 * INTAKE_WINDOW_MAX);
    intake_close(owner.intake);
}

static void
restart(enum ingest_outcome why, bool closes)
{
    struct owner owner = {.intake = NULL};

    begin(&owner, 1, 0);
    assert_int_equal(put(&owner, 1, 1), INTAKE_TAKEN);
    assert_int_equal(put(&owner, 2, 1), INTAKE_TAKEN);
    owner.closes = closes;
    answer(request_count - 2, why, 0);
    assert_int_equal(owner.restarted, 1);
    assert_int_equal(owner.why, why);
    assert_int_equal(owner.results, 0);
    assert_true(requests[request_count - 1].is_withdrawn);
    assert_int_equal(metrics.edgemeter_edge_rings, 0);
    intake_close(owner.intake);
}

static void
answer__gap_or_unavailable__withdrawn_and_told_once(void **state)
{
    (void)state;
    for (int closes = 0; closes < 2; closes++) {
        restart(INGEST_GAP, closes);
        restart(INGEST_UNAVAILABLE, closes);
        restart(INGEST_BUSY, closes);
        restart(INGEST_BAD, closes);
    }
}

static void
put__refused_at_once__ended(void **state)
{
    struct owner owner = {0};

    (void)state;
    begin(&owner, 1, 0);
    assert_int_equal(put(&owner, 1, 1), INTAKE_TAKEN);
    at_once = INGEST_BAD;
    owner.closes = true;
    assert_int_equal(put(&owner, 2, 1), INTAKE_ENDED);
    assert_null(owner.intake);
    assert_int_equal(owner.why, INGEST_BAD);
    assert_true(requests[1].is_withdrawn);
}

static void
result__owner_closes_in_it__the_rest_is_withdrawn(void **state)
{
    struct owner owner = {0};

    (void)state;
    begin(&owner, 1, 0);
    assert_int_equal(put(&owner, 1, 1), INTAKE_TAKEN);
    assert_int_equal(put(&owner, 2, 1), INTAKE_TAKEN);
    owner.closes = true;
    answer(1, INGEST_DONE, 1);
    assert_int_equal(owner.results, 1);
    assert_true(requests[2].is_withdrawn);
}


static void
database_ready__another_one__open_intakes_start_over(void **state)
{
    struct owner owners[20] = {{0}}, opening = {0}, later = {0};

    (void)state;
    for (size_t i = 0; i < 20; i++) {
        begin(&owners[i], (uint8_t)(i + 1), 5);
        owners[i].closes = i % 2;
    }
    assert_int_equal(put(&owners[0], 6, 1), INTAKE_TAKEN);
    begin_ring(&opening, 100, 1, 0, 0);
    intakes_database_ready(&intakes);
    assert_int_equal(owners[0].restarted, 0);
    db_epoch = 78;
    begin(&later, 101, 5);
    intakes_database_ready(&intakes);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(owners[i].restarted, 1);
        assert_int_equal(owners[i].why, INGEST_GAP);
        intake_close(owners[i].intake);
    }
    assert_true(requests[20].is_withdrawn);
    assert_int_equal(opening.restarted, 0); /* the new one will answer it */
    assert_int_equal(later.restarted, 0);
    intake_close(opening.intake);
    intake_close(later.intake);
}


/* ---- shares ---------------------------------------------------------- */

#define RINGS 40

static void
window__many_rings__together_below_the_limit(void **state)
{
    struct owner owners[RINGS] = {{0}};
    uint64_t last;

    (void)state;
    for (size_t i = 0; i < RINGS; i++) {
        begin(&owners[i], (uint8_t)(i + 1), 0);
        last = owners[i].credit;
        assert_true(last == INTAKE_WINDOW_MAX ||
                    last * (i + 1) <= INTAKE_RECORDS_MAX);
    }
    assert_int_equal(owners[7].credit, INTAKE_WINDOW_MAX);
    assert_int_equal(owners[RINGS - 1].credit, INTAKE_RECORDS_MAX / RINGS);
    for (size_t i = 0; i < RINGS; i++) {
        intake_close(owners[i].intake);
    }
}

static void
window__large_records__fewer_of_them(void **state)
{
    struct owner owner = {0}, others[9] = {{0}};
    uint64_t seq = 1;

    (void)state;
    begin(&owner, 1, 0);
    for (size_t i = 0; i < 9; i++) {
        begin(&others[i], (uint8_t)(i + 2), 0);
    }
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(put_sized(&owner, seq, 1000, 4096000), INTAKE_TAKEN);
        seq += 1000;
        answer(request_count - 1, INGEST_DONE, seq - 1);
    }
    /* A tenth of the bytes, at what such records take. */
    assert_in_range(owner.credit - (seq - 1), INTAKE_WINDOW_MIN,
                    INTAKE_BYTES_MAX / 10 / 3500);
    intake_close(owner.intake);
    for (size_t i = 0; i < 9; i++) {
        intake_close(others[i].intake);
    }
}

static void
window__more_bytes_than_it_allows__full_until_results_come(void **state)
{
    struct owner owner = {0};
    size_t each = 5000 * 4096;
    size_t count = 2 * INTAKE_BYTES_MAX / each + 1;

    (void)state;
    begin(&owner, 1, 0);
    for (size_t i = 0; i < count; i++) {
        assert_false(intakes_are_full(&intakes));
        assert_int_equal(put_sized(&owner, i + 1, 1, each), INTAKE_TAKEN);
    }
    assert_true(intakes_are_full(&intakes));
    answer(1, INGEST_DONE, 1);
    assert_false(intakes_are_full(&intakes));
    intake_close(owner.intake);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(open__tells_where_the_session_is_and_credit),
        TEST(open__closed_while_it_waits__withdrawn),
        TEST(open__same_session_twice__older_is_fenced_and_withdrawn),
        TEST(open__fenced_while_opening__only_the_newer_opens),
        TEST(open__answers_at_once__start_over),
        TEST(open__database_is_past_head__rollback_is_counted),
        TEST(open__database_is_at_head__no_rollback),
        TEST(open__database_is_behind_acked__rewind_is_counted_once),
        TEST(put__next_numbers__taken_and_answered),
        TEST(put__other_numbers__gap_and_nothing_submitted),
        TEST(put__past_credit__refused_to_the_record),
        TEST(credit__told_when_it_moved_by_a_quarter_window),
        TEST(answer__gap_or_unavailable__withdrawn_and_told_once),
        TEST(put__refused_at_once__ended),
        TEST(result__owner_closes_in_it__the_rest_is_withdrawn),
        TEST(database_ready__another_one__open_intakes_start_over),
        TEST(window__many_rings__together_below_the_limit),
        TEST(window__large_records__fewer_of_them),
        TEST(window__more_bytes_than_it_allows__full_until_results_come),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
