/*
 * The driver of transactions against a connection that is made of a list:
 * what is sent, who hears what in which order, and how it ends.
 */

#include "meter_cmocka.h"

#include "pg/tx.h"

#define WORK_MAX 64
#define TEXT_MAX 512
#define READ     STATEMENT_ROLLUP_FLOORS
#define WRITE    STATEMENT_ROLLUP_LAG
#define COPY     STATEMENT_SERIES_DIRTY_MARK

struct work {
    enum statement statement;
    pg_answer_cb cb;
    void *asker;
};

/* Stands for the one of pg/conn.c, which is not linked. */
struct pg_conn {
    struct work work[WORK_MAX];
    size_t count;
    size_t at;           /* whose answer comes next */
    bool is_away;        /* all is lost at once */
    char sent[TEXT_MAX]; /* words of what was sent; "|" is a flush */
};

static struct pg_conn conn;
static struct pg_tx tx;
static char heard[TEXT_MAX]; /* words of what the owner heard */
static enum pg_tx_end ended;
static int more; /* that a rows_cb asks for */
static int remedy;

static void
say(char *text, const char *word)
{
    size_t size = strlen(text);

    assert_true(size + strlen(word) + 2 < TEXT_MAX);
    snprintf(text + size, TEXT_MAX - size, "%s%s", size == 0 ? "" : " ", word);
}

static const char *
word_of(enum statement statement)
{
    switch (statement) {
    case STATEMENT_BEGIN: return "BEGIN";
    case STATEMENT_COMMIT: return "COMMIT";
    case STATEMENT_ROLLBACK: return "ROLLBACK";
    case STATEMENT_SAVEPOINT: return "SAVEPOINT";
    case STATEMENT_SAVEPOINT_ROLLBACK: return "BACK";
    case STATEMENT_SAVEPOINT_RELEASE: return "RELEASE";
    case READ: return "read";
    case WRITE: return "write";
    case COPY: return "copy";
    default: return "?";
    }
}

static void
conn_take(struct pg_conn *to, enum statement statement, pg_answer_cb cb,
          void *asker)
{
    static const struct pg_answer lost = {.outcome = PG_OUTCOME_LOST};

    say(to->sent, word_of(statement));
    if (to->is_away) {
        cb(asker, &lost);
        return;
    }
    assert_true(to->count < WORK_MAX);
    to->work[to->count++] = (struct work){statement, cb, asker};
}

void
pg_conn_query(struct pg_conn *to, enum statement statement,
              const struct pg_params *params, pg_answer_cb cb, void *asker)
{
    (void)params;
    conn_take(to, statement, cb, asker);
}

void
pg_conn_command(struct pg_conn *to, enum statement statement, pg_answer_cb cb,
                void *asker)
{
    conn_take(to, statement, cb, asker);
}

void
pg_conn_copy(struct pg_conn *to, enum statement statement,
             struct meter_str data, pg_answer_cb cb, void *asker)
{
    (void)data;
    conn_take(to, statement, cb, asker);
}

void
pg_conn_copy_pieces(struct pg_conn *to, enum statement statement,
                    pg_piece_cb next, pg_answer_cb cb, void *asker)
{
    while (next(asker).size > 0) {
        say(to->sent, "piece");
    }
    conn_take(to, statement, cb, asker);
}

void
pg_conn_flush(struct pg_conn *to)
{
    say(to->sent, "|");
}

void
pg_conn_reset(struct pg_conn *to, const char *why)
{
    (void)to;
    (void)why;
    say(heard, "reset");
}

bool
pg_conn_is_ready(const struct pg_conn *to)
{
    return !to->is_away;
}


/* ---- the server ------------------------------------------------------- */

static void
answer(enum statement statement, const struct pg_answer *what)
{
    struct work work;

    assert_true(conn.at < conn.count);
    work = conn.work[conn.at++];
    assert_string_equal(word_of(work.statement), word_of(statement));
    work.cb(work.asker, what);
}

static void
good(enum statement statement)
{
    static const struct pg_answer ok = {.outcome = PG_OUTCOME_OK};

    answer(statement, &ok);
}

static void
bad(enum statement statement, const char *sqlstate)
{
    struct pg_answer error = {
        .outcome = PG_OUTCOME_ERROR,
        .kind = sqlstate_classify(sqlstate, true),
        .message = sqlstate,
    };

    memcpy(error.sqlstate, sqlstate, sizeof(error.sqlstate));
    answer(statement, &error);
}

static void
aborted(enum statement statement)
{
    static const struct pg_answer skipped = {.outcome = PG_OUTCOME_ABORTED};

    answer(statement, &skipped);
}

/* All that is outstanding, and all that is asked from now on. */
static void
lose(void)
{
    static const struct pg_answer lost = {.outcome = PG_OUTCOME_LOST};

    conn.is_away = true;
    while (conn.at < conn.count) {
        answer(conn.work[conn.at].statement, &lost);
    }
}


/* ---- the owner -------------------------------------------------------- */

static void
rows_cb(void *owner, const void *result)
{
    (void)result;
    assert_ptr_equal(owner, &ended);
    say(heard, "rows");
    if (more > 0) {
        more--;
        pg_tx_ask(&tx, READ, NULL, rows_cb);
        pg_tx_flush(&tx);
    }
}

static void
rows_fail_cb(void *owner, const void *result)
{
    (void)owner;
    (void)result;
    say(heard, "rows");
    pg_tx_fail(&tx, 7, "not as it should be");
}

static void
then_commit(void *owner)
{
    (void)owner;
    say(heard, "then");
    pg_tx_commit(&tx);
}

static void
then_write(void *owner)
{
    (void)owner;
    say(heard, "then");
    pg_tx_ask(&tx, WRITE, NULL, NULL);
    pg_tx_send(&tx, then_commit);
}

static void
then_rollback(void *owner)
{
    (void)owner;
    say(heard, "then");
    pg_tx_rollback(&tx);
}

static void
error_cb(void *owner, const struct pg_answer *what)
{
    (void)owner;
    say(heard, "error");
    say(heard, what->sqlstate);
    tx.failure.remedy = remedy;
}

static void
end_cb(void *owner, enum pg_tx_end end)
{
    static const char *const words[] = {
        [PG_TX_COMMITTED] = "COMMITTED", [PG_TX_ROLLED_BACK] = "ROLLED_BACK",
        [PG_TX_FAILED] = "FAILED",       [PG_TX_LOST] = "LOST",
        [PG_TX_DOUBT] = "DOUBT",
    };

    (void)owner;
    assert_true(pg_tx_is_idle(&tx));
    say(heard, words[end]);
    ended = end;
}

static int
setup(void **state)
{
    static const struct pg_tx_events events = {
        .on_error = error_cb,
        .on_end = end_cb,
    };

    (void)state;
    memset(&conn, 0, sizeof(conn));
    heard[0] = '\0';
    more = 0;
    remedy = 0;
    pg_tx_init(&tx, &conn, &events, &ended);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    assert_int_equal(conn.at, conn.count);
    assert_true(pg_tx_is_idle(&tx));
    pg_tx_fini(&tx);
    return 0;
}

/* BEGIN, read and then what follows. */
static void
start(pg_tx_then then)
{
    pg_tx_begin(&tx);
    pg_tx_ask(&tx, READ, NULL, rows_cb);
    pg_tx_send(&tx, then);
}


/* ---- order ------------------------------------------------------------ */

static void
tx__all_good__rows_then_commit_end(void **state)
{
    (void)state;
    start(then_write);
    assert_string_equal(conn.sent, "BEGIN read |");
    good(STATEMENT_BEGIN);
    assert_string_equal(heard, "");
    good(READ);
    assert_string_equal(heard, "rows then");
    assert_string_equal(conn.sent, "BEGIN read | write |");
    good(WRITE);
    assert_string_equal(conn.sent, "BEGIN read | write | COMMIT |");
    assert_false(pg_tx_is_idle(&tx));
    good(STATEMENT_COMMIT);
    assert_string_equal(heard, "rows then then COMMITTED");
}

static void
tx__lone_read__is_one_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        conn.sent[0] = '\0';
        heard[0] = '\0';
        pg_tx_begin(&tx);
        pg_tx_ask(&tx, READ, NULL, rows_cb);
        pg_tx_commit(&tx);
        assert_string_equal(conn.sent, "BEGIN read COMMIT |");
        good(STATEMENT_BEGIN);
        good(READ);
        good(STATEMENT_COMMIT);
        assert_string_equal(heard, "rows COMMITTED");
    }
}

static void
tx__owner_rolls_back__is_no_failure(void **state)
{
    (void)state;
    start(then_rollback);
    good(STATEMENT_BEGIN);
    good(READ);
    good(STATEMENT_ROLLBACK);
    assert_string_equal(heard, "rows then ROLLED_BACK");
}

static void
tx__flush_in_rows__step_waits_for_all(void **state)
{
    (void)state;
    more = 2;
    start(then_commit);
    good(STATEMENT_BEGIN);
    good(READ);
    assert_string_equal(heard, "rows");
    assert_string_equal(conn.sent, "BEGIN read | read |");
    good(READ);
    good(READ);
    assert_string_equal(heard, "rows rows rows then");
    good(STATEMENT_COMMIT);
    assert_int_equal(ended, PG_TX_COMMITTED);
}

static struct meter_str
piece_cb(void *owner)
{
    static int left = 2;

    assert_ptr_equal(owner, &ended);
    return left-- > 0 ? METER_STR("x") : METER_STR("");
}

static void
then_copy(void *owner)
{
    (void)owner;
    pg_tx_copy_pieces(&tx, COPY, piece_cb, NULL);
    pg_tx_send(&tx, then_commit);
}

static void
tx__copy__pieces_are_asked_of_the_owner(void **state)
{
    struct buf stream;

    (void)state;
    start(then_copy);
    good(STATEMENT_BEGIN);
    good(READ);
    assert_string_equal(conn.sent, "BEGIN read | piece piece copy |");
    good(COPY);
    good(STATEMENT_COMMIT);
    assert_int_equal(ended, PG_TX_COMMITTED);

    buf_init(&stream, 4);
    buf_put_text(&stream, "too long");
    pg_tx_begin(&tx);
    pg_tx_copy(&tx, COPY, &stream, NULL);
    pg_tx_send(&tx, then_commit);
    good(STATEMENT_BEGIN);
    good(STATEMENT_ROLLBACK);
    assert_int_equal(ended, PG_TX_FAILED);
    buf_fini(&stream);
}


/* ---- failures --------------------------------------------------------- */

static void
tx__two_errors__first_wins_and_rows_are_kept_back(void **state)
{
    (void)state;
    remedy = 3;
    pg_tx_begin(&tx);
    pg_tx_ask(&tx, WRITE, NULL, rows_cb);
    pg_tx_flush(&tx);
    pg_tx_ask(&tx, READ, NULL, rows_cb);
    pg_tx_flush(&tx);
    pg_tx_ask(&tx, READ, NULL, rows_cb);
    pg_tx_send(&tx, then_commit);
    good(STATEMENT_BEGIN);
    bad(WRITE, "22003");
    bad(READ, "40001");
    pg_tx_fail(&tx, 9, "late");
    good(READ);
    assert_string_equal(heard, "error 22003");
    good(STATEMENT_ROLLBACK);
    assert_string_equal(heard, "error 22003 FAILED");
    assert_string_equal(tx.failure.sqlstate, "22003");
    assert_string_equal(pg_tx_reason(&tx), "22003");
    assert_int_equal(tx.failure.kind, SQL_DATA);
    assert_int_equal(tx.failure.remedy, 3);
}

static void
tx__owner_fails__rest_is_not_sent(void **state)
{
    (void)state;
    pg_tx_begin(&tx);
    pg_tx_ask(&tx, READ, NULL, rows_fail_cb);
    pg_tx_ask(&tx, READ, NULL, rows_cb);
    pg_tx_send(&tx, then_commit);
    good(STATEMENT_BEGIN);
    good(READ);
    good(READ);
    good(STATEMENT_ROLLBACK);
    assert_string_equal(heard, "rows FAILED");
    assert_int_equal(tx.failure.remedy, 7);
    assert_string_equal(tx.failure.sqlstate, "");
    assert_string_equal(pg_tx_reason(&tx), "not as it should be");

    conn.sent[0] = '\0';
    pg_tx_begin(&tx);
    pg_tx_fail(&tx, 1, "at once");
    pg_tx_ask(&tx, READ, NULL, rows_cb);
    pg_tx_command(&tx, STATEMENT_SAVEPOINT);
    pg_tx_commit(&tx);
    good(STATEMENT_BEGIN);
    good(STATEMENT_ROLLBACK);
    assert_string_equal(conn.sent, "BEGIN | ROLLBACK |");
    assert_int_equal(ended, PG_TX_FAILED);
}

static void
tx__parameters_too_large__fails(void **state)
{
    struct pg_params params;

    (void)state;
    pg_params_init(&params);
    params.bytes.failed = true;
    pg_tx_begin(&tx);
    pg_tx_ask(&tx, READ, &params, rows_cb);
    pg_tx_send(&tx, then_commit);
    good(STATEMENT_BEGIN);
    good(STATEMENT_ROLLBACK);
    assert_string_equal(heard, "FAILED");
    pg_params_fini(&params);
}

static void
tx__rollback_fails__lost_and_reset(void **state)
{
    (void)state;
    start(then_commit);
    good(STATEMENT_BEGIN);
    bad(READ, "22003");
    bad(STATEMENT_ROLLBACK, "57014");
    assert_string_equal(heard, "error 22003 reset LOST");
    assert_string_equal(tx.failure.sqlstate, "22003");
}

static void
tx__codes_that_need_a_connection__lost_and_reset(void **state)
{
    static const char *const codes[] = {"08006", "25006", "26000", "0A000"};

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        char expected[64];

        assert_int_equal(setup(state), 0);
        start(then_commit);
        good(STATEMENT_BEGIN);
        bad(READ, codes[i]);
        snprintf(expected, sizeof(expected), "error %s reset LOST", codes[i]);
        assert_string_equal(heard, expected);
        assert_string_equal(conn.sent, "BEGIN read |");
        assert_int_equal(teardown(state), 0);
    }
}


/* ---- losses ----------------------------------------------------------- */

static void
tx__lost_inside_ask__one_end_after_send(void **state)
{
    (void)state;
    conn.is_away = true;
    pg_tx_begin(&tx);
    pg_tx_ask(&tx, READ, NULL, rows_cb);
    assert_string_equal(heard, "");
    pg_tx_send(&tx, then_commit);
    assert_string_equal(heard, "LOST");
    assert_string_equal(pg_tx_reason(&tx), "the connection was lost");
}

static void
tx__lost_in_a_step__lost_without_rollback(void **state)
{
    (void)state;
    start(then_write);
    good(STATEMENT_BEGIN);
    good(READ);
    lose();
    assert_string_equal(heard, "rows then LOST");
    assert_string_equal(conn.sent, "BEGIN read | write |");
}

static void
tx__lost_in_rollback__lost(void **state)
{
    (void)state;
    start(then_rollback);
    good(STATEMENT_BEGIN);
    good(READ);
    lose();
    assert_string_equal(heard, "rows then LOST");
}

static void
tx__lost_after_commit__doubt(void **state)
{
    (void)state;
    start(then_commit);
    good(STATEMENT_BEGIN);
    good(READ);
    lose();
    assert_string_equal(heard, "rows then DOUBT");
}

static void
tx__lost_inside_commit__doubt(void **state)
{
    (void)state;
    start(then_commit);
    good(STATEMENT_BEGIN);
    conn.is_away = true;
    good(READ);
    assert_string_equal(heard, "rows then DOUBT");
}


/* ---- COMMIT ----------------------------------------------------------- */

static void
tx__commit_refused__doubt_and_reset(void **state)
{
    (void)state;
    start(then_commit);
    good(STATEMENT_BEGIN);
    good(READ);
    bad(STATEMENT_COMMIT, "40001");
    assert_string_equal(heard, "rows then error 40001 reset DOUBT");
}

static void
tx__error_before_commit__is_rolled_back_without_doubt(void **state)
{
    (void)state;
    pg_tx_begin(&tx);
    pg_tx_ask(&tx, WRITE, NULL, NULL);
    pg_tx_commit(&tx);
    good(STATEMENT_BEGIN);
    bad(WRITE, "22003");
    aborted(STATEMENT_COMMIT);
    assert_string_equal(conn.sent, "BEGIN write COMMIT | ROLLBACK |");
    good(STATEMENT_ROLLBACK);
    assert_string_equal(heard, "error 22003 FAILED");
}

static void
tx__error_before_commit_then_lost__nothing_has_happened(void **state)
{
    (void)state;
    pg_tx_begin(&tx);
    pg_tx_ask(&tx, WRITE, NULL, NULL);
    pg_tx_commit(&tx);
    good(STATEMENT_BEGIN);
    bad(WRITE, "22003");
    lose();
    assert_string_equal(heard, "error 22003 LOST");
}

/* Its COMMIT may have been done by then. */
static void
tx__owner_fails_while_committing__doubt(void **state)
{
    (void)state;
    pg_tx_begin(&tx);
    pg_tx_ask(&tx, WRITE, NULL, rows_fail_cb);
    pg_tx_commit(&tx);
    good(STATEMENT_BEGIN);
    good(WRITE);
    good(STATEMENT_COMMIT);
    assert_string_equal(heard, "rows reset DOUBT");
}

static void
tx__owner_doubts__only_a_commit_under_way(void **state)
{
    (void)state;
    start(then_commit);
    pg_tx_doubt(&tx);
    good(STATEMENT_BEGIN);
    good(READ);
    good(STATEMENT_COMMIT);
    assert_int_equal(ended, PG_TX_COMMITTED);

    start(then_commit);
    good(STATEMENT_BEGIN);
    good(READ);
    pg_tx_doubt(&tx);
    good(STATEMENT_COMMIT);
    assert_int_equal(ended, PG_TX_DOUBT);
}


/* ---- data ------------------------------------------------------------- */

static void
then_careful(void *owner)
{
    (void)owner;
    say(heard, tx.is_refused ? tx.failure.sqlstate : "taken");
    if (tx.is_refused) {
        pg_tx_command(&tx, STATEMENT_SAVEPOINT_ROLLBACK);
        pg_tx_command(&tx, STATEMENT_SAVEPOINT_RELEASE);
        pg_tx_commit(&tx);
    } else {
        pg_tx_ask(&tx, WRITE, NULL, NULL);
        pg_tx_send(&tx, then_commit);
    }
}

static void
careful_start(void)
{
    pg_tx_begin(&tx);
    pg_tx_allow_data(&tx);
    pg_tx_command(&tx, STATEMENT_SAVEPOINT);
    pg_tx_ask(&tx, WRITE, NULL, rows_cb);
    pg_tx_command(&tx, STATEMENT_SAVEPOINT_RELEASE);
    pg_tx_send(&tx, then_careful);
    good(STATEMENT_BEGIN);
    good(STATEMENT_SAVEPOINT);
}

static void
tx__allowed_data_refused__goes_on(void **state)
{
    (void)state;
    careful_start();
    bad(WRITE, "23514");
    aborted(STATEMENT_SAVEPOINT_RELEASE);
    assert_string_equal(heard, "23514");
    good(STATEMENT_SAVEPOINT_ROLLBACK);
    good(STATEMENT_SAVEPOINT_RELEASE);
    good(STATEMENT_COMMIT);
    assert_string_equal(heard, "23514 COMMITTED");
}

static void
tx__allowed_data_other_error__fails(void **state)
{
    (void)state;
    careful_start();
    bad(WRITE, "53100");
    aborted(STATEMENT_SAVEPOINT_RELEASE);
    good(STATEMENT_ROLLBACK);
    assert_string_equal(heard, "error 53100 FAILED");
}

static void
tx__allowed_data__is_for_one_step(void **state)
{
    (void)state;
    careful_start();
    good(WRITE);
    good(STATEMENT_SAVEPOINT_RELEASE);
    assert_string_equal(heard, "rows taken");
    bad(WRITE, "23514");
    good(STATEMENT_ROLLBACK);
    assert_string_equal(heard, "rows taken error 23514 FAILED");
}


/* ---- pauses ----------------------------------------------------------- */

static void
back_off__in_vain__doubles_up_to_two_seconds(void **state)
{
    static const uint64_t least[] = {50,   100,  200,  400, 800,
                                     1600, 2000, 2000, 2000};

    (void)state;
    for (size_t i = 0; i < sizeof(least) / sizeof(least[0]); i++) {
        assert_in_range(pg_tx_back_off_ms(&tx), least[i], least[i] * 3 / 2);
    }
    start(then_commit); /* begins anew */
    good(STATEMENT_BEGIN);
    good(READ);
    good(STATEMENT_COMMIT);
    assert_in_range(pg_tx_back_off_ms(&tx), 50, 75);

    start(then_rollback);
    good(STATEMENT_BEGIN);
    good(READ);
    good(STATEMENT_ROLLBACK);
    assert_in_range(pg_tx_back_off_ms(&tx), 100, 150);
    for (int i = 0; i < 1000; i++) {
        assert_in_range(pg_tx_retry_ms(), 1, 21);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(tx__all_good__rows_then_commit_end),
    TEST(tx__lone_read__is_one_round_trip),
    TEST(tx__owner_rolls_back__is_no_failure),
    TEST(tx__flush_in_rows__step_waits_for_all),
    TEST(tx__copy__pieces_are_asked_of_the_owner),
    TEST(tx__two_errors__first_wins_and_rows_are_kept_back),
    TEST(tx__owner_fails__rest_is_not_sent),
    TEST(tx__parameters_too_large__fails),
    TEST(tx__rollback_fails__lost_and_reset),
    cmocka_unit_test(tx__codes_that_need_a_connection__lost_and_reset),
    TEST(tx__lost_inside_ask__one_end_after_send),
    TEST(tx__lost_in_a_step__lost_without_rollback),
    TEST(tx__lost_in_rollback__lost),
    TEST(tx__lost_after_commit__doubt),
    TEST(tx__lost_inside_commit__doubt),
    TEST(tx__commit_refused__doubt_and_reset),
    TEST(tx__error_before_commit__is_rolled_back_without_doubt),
    TEST(tx__error_before_commit_then_lost__nothing_has_happened),
    TEST(tx__owner_fails_while_committing__doubt),
    TEST(tx__owner_doubts__only_a_commit_under_way),
    TEST(tx__allowed_data_refused__goes_on),
    TEST(tx__allowed_data_other_error__fails),
    TEST(tx__allowed_data__is_for_one_step),
    TEST(back_off__in_vain__doubles_up_to_two_seconds),
};

RUN_TAP(tests)
