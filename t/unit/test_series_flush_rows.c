/*
 * The cells of a flush as statements: levels, floors, marks, pieces.
 */

#include "series_fixture.h"

#include "meter_random.h"
#include "series/flush.c"

#define SECOND INT64_C(1000000)
#define DAY    METER_TIME_DAY
#define HEAD   20 /* of a binary array */

/* All of a flush: how many statements and rows of each kind. */
struct tally {
    size_t statements;
    int64_t keys;
    int64_t rows[METER_LEVEL_COUNT];
    int64_t counts[METER_LEVEL_COUNT]; /* sum of the column count */
    int64_t marks[METER_LEVEL_COUNT];  /* by their level */
    enum statement order[64];
};

static struct flush_rows rows;

static int64_t
read_int(const char *at, size_t size)
{
    int64_t value = 0;

    for (size_t i = 0; i < size; i++) {
        value = (int64_t)((uint64_t)value << 8) | (uint8_t)at[i];
    }
    return value;
}

static int64_t
array_count(const struct pg_params *params, int column)
{
    return read_int(params->bytes.data + params->offset[column] + 12, 4);
}

/* Of a column of int8 or timestamps without NULLs. */
static int64_t
array_int(const struct pg_params *params, int column, int64_t i)
{
    return read_int(
        params->bytes.data + params->offset[column] + HEAD + 12 * i + 4, 8);
}

static int
level_of(enum statement statement)
{
    int level = 0;

    while (level < METER_LEVEL_COUNT && flush_upserts[level] != statement) {
        level++;
    }
    return level;
}

static void
count_statement(struct tally *tally, enum statement statement,
                const struct pg_params *params)
{
    int level = level_of(statement);

    tally->order[tally->statements++ % 64] = statement;
    if (statement == STATEMENT_SERIES_KEY_ENSURE) {
        assert_int_equal(params->count, 5);
        tally->keys += array_count(params, 0);
    } else if (statement == STATEMENT_SERIES_DIRTY_MARK) {
        assert_int_equal(params->count, 7);
        level = (int)read_int(params->bytes.data + params->offset[0], 4);
        tally->marks[level] += array_count(params, 5);
    } else {
        assert_in_range(level, 0, METER_LEVEL_COUNT - 1);
        assert_int_equal(params->count, 16);
        for (int column = 0; column < params->count; column++) {
            assert_int_equal(array_count(params, column),
                             array_count(params, 0));
        }
        assert_true(array_count(params, 0) <= FLUSH_ROWS_MAX);
        tally->rows[level] += array_count(params, 0);
        for (int64_t i = 0; i < array_count(params, 5); i++) {
            tally->counts[level] += array_int(params, 5, i);
        }
    }
}

static struct tally
run(struct buffer *buffer, const struct flush_floors *floors)
{
    struct tally tally = {0};
    struct pg_params params;
    enum statement statement;
    size_t count;
    struct buffer_cell *const *cells;

    buffer_cut(buffer);
    cells = buffer_flushing(buffer, &count);
    assert_non_null(cells);
    pg_params_init(&params);
    flush_rows_init(&rows, cells, count, floors, 77);
    while (flush_rows_next(&rows, &statement, &params)) {
        count_statement(&tally, statement, &params);
        pg_params_reset(&params);
    }
    assert_int_equal(rows.stage, FLUSH_STAGE_END);
    flush_rows_drop(&rows);
    pg_params_fini(&params);
    return tally;
}

static void
fold(struct series_fixture *f, struct buffer *buffer, int64_t ts_us)
{
    static int64_t seq;
    struct buffer_event event = {
        .tenant = str_of("t"),
        .effect = f->effect,
        .place = {.ts_us = ts_us, .recorded_us = 1, .seq = ++seq},
    };

    assert_true(buffer_fold(buffer, &event));
}

static const struct flush_floors nothing_dropped = {
    {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN}};

/* Of 5s and 1m ten days, of 1h twenty, of 1d and 7d forty. */
static const struct flush_floors some_dropped = {
    {-10 * DAY, -10 * DAY, -20 * DAY, -40 * DAY, -40 * DAY}};

static void
level__floors__lowest_that_is_kept(void **state)
{
    const struct flush_floors *floors = &some_dropped;

    (void)state;
    assert_int_equal(flush_floors_level(floors, 0), METER_LEVEL_5S);
    assert_int_equal(flush_floors_level(floors, -10 * DAY), METER_LEVEL_5S);
    assert_int_equal(flush_floors_level(floors, -10 * DAY - 5 * SECOND),
                     METER_LEVEL_1H);
    assert_int_equal(flush_floors_level(floors, -20 * DAY), METER_LEVEL_1H);
    assert_int_equal(flush_floors_level(floors, -20 * DAY - 5 * SECOND),
                     METER_LEVEL_1D);
    assert_int_equal(flush_floors_level(floors, -40 * DAY), METER_LEVEL_1D);
    assert_int_equal(flush_floors_level(floors, -40 * DAY - 5 * SECOND),
                     METER_LEVEL_COUNT);
}

static void
next__one_minute__one_mark(void **state)
{
    struct series_fixture *f = *state;
    struct buffer *buffer = buffer_create();
    struct tally tally;

    assert_true(series_event(f, "sample", "{\"depth\":4}", 1, "1"));
    for (int i = 0; i < 13; i++) {
        fold(f, buffer, i * 5 * SECOND); /* the 13th is of the next minute */
        fold(f, buffer, i * 5 * SECOND);
    }
    tally = run(buffer, &nothing_dropped);
    assert_int_equal(tally.statements, 3);
    assert_int_equal(tally.order[0], STATEMENT_SERIES_KEY_ENSURE);
    assert_int_equal(tally.order[1], STATEMENT_SERIES_UPSERT_5S);
    assert_int_equal(tally.order[2], STATEMENT_SERIES_DIRTY_MARK);
    assert_int_equal(tally.keys, 1);
    assert_int_equal(tally.rows[METER_LEVEL_5S], 13);
    assert_int_equal(tally.counts[METER_LEVEL_5S], 26);
    assert_int_equal(tally.marks[METER_LEVEL_1M], 2);

    buffer_flushed(buffer);
    fold(f, buffer, 0);
    tally = run(buffer, &nothing_dropped);
    assert_int_equal(tally.keys, 0); /* stored already */
    assert_int_equal(tally.statements, 2);
    buffer_destroy(buffer);
}

static void
next__nothing__no_statement(void **state)
{
    struct buffer *buffer = buffer_create();

    (void)state;
    assert_int_equal(run(buffer, &nothing_dropped).statements, 0);
    buffer_destroy(buffer);
}

static void
next__late_cells__add_up_in_the_level_above(void **state)
{
    struct series_fixture *f = *state;
    struct buffer *buffer = buffer_create();
    struct tally tally;

    assert_true(series_event(f, "sample", "{\"depth\":4}", 1, "1"));
    for (int i = 0; i < 1000; i++) {
        fold(f, buffer, -11 * DAY + i * 5 * SECOND); /* two hours: 720, 280 */
    }
    fold(f, buffer, 0);
    fold(f, buffer, -30 * DAY);
    fold(f, buffer, -31 * DAY + 5 * SECOND);
    fold(f, buffer, -31 * DAY);
    fold(f, buffer, -50 * DAY);
    tally = run(buffer, &some_dropped);
    assert_int_equal(tally.rows[METER_LEVEL_5S], 1);
    assert_int_equal(tally.rows[METER_LEVEL_1M], 0);
    assert_int_equal(tally.rows[METER_LEVEL_1H], 2);
    assert_int_equal(tally.counts[METER_LEVEL_1H], 1000);
    assert_int_equal(tally.rows[METER_LEVEL_1D], 2);
    assert_int_equal(tally.counts[METER_LEVEL_1D], 3);
    assert_int_equal(tally.rows[METER_LEVEL_7D], 0);
    assert_int_equal(tally.marks[METER_LEVEL_1M], 1);
    assert_int_equal(tally.marks[METER_LEVEL_1H], 0);
    assert_int_equal(tally.marks[METER_LEVEL_1D], 1);
    assert_int_equal(tally.marks[METER_LEVEL_7D], 1);
    assert_int_equal(tally.order[1], STATEMENT_SERIES_UPSERT_5S);
    assert_int_equal(tally.order[2], STATEMENT_SERIES_UPSERT_1H);
    assert_int_equal(tally.order[3], STATEMENT_SERIES_UPSERT_1D);
    assert_int_equal(tally.order[4], STATEMENT_SERIES_DIRTY_MARK);
    assert_int_equal(rows.expired, 1);
    assert_int_equal(rows.written, 5);
    buffer_destroy(buffer);
}

/* Nothing is left out or written twice where a piece ends. */
static void
next__many_cells__come_in_pieces(void **state)
{
    struct series_fixture *f = *state;
    struct buffer *buffer = buffer_create();
    const struct flush_floors minutes = {
        {INT64_MAX, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN}};
    struct tally tally;
    int64_t count = 5 * FLUSH_ROWS_MAX + 1;

    assert_true(series_event(f, "sample", "{\"depth\":4}", 1, "1"));
    for (int64_t i = 0; i < count; i++) {
        fold(f, buffer, i * 5 * SECOND);
    }
    tally = run(buffer, &nothing_dropped);
    assert_int_equal(tally.rows[METER_LEVEL_5S], count);
    assert_int_equal(tally.counts[METER_LEVEL_5S], count);
    assert_int_equal(tally.marks[METER_LEVEL_1M], (count + 11) / 12);
    assert_int_equal(tally.statements, 1 + 6 + 1);

    buffer_flushed(buffer);
    count = 12 * FLUSH_ROWS_MAX + 12;
    for (int64_t i = 0; i < count; i++) {
        fold(f, buffer, i * 5 * SECOND);
    }
    tally = run(buffer, &minutes);
    assert_int_equal(tally.rows[METER_LEVEL_1M], FLUSH_ROWS_MAX + 1);
    assert_int_equal(tally.counts[METER_LEVEL_1M], count);
    assert_int_equal(tally.marks[METER_LEVEL_1H], (count + 719) / 720);
    buffer_destroy(buffer);
}

/* Every seventh row of each stage is refused, whatever piece it comes in. */
static bool
is_refused(size_t first)
{
    return rows.rows[first].first % 7 == 3;
}

static bool
piece_is_refused(void)
{
    for (size_t i = 0; i < rows.row_count; i++) {
        if (is_refused(i)) {
            return true;
        }
    }
    return false;
}

/* As a careful flush does it: halves until one row is alone. */
static void
again__halves__all_others_are_written_once(void **state)
{
    struct series_fixture *f = *state;
    struct buffer *buffer = buffer_create();
    struct tally tally = {0};
    struct pg_params params;
    enum statement statement;
    struct buffer_cell *const *cells;
    size_t count;
    size_t refused = 0;

    assert_true(series_event(f, "sample", "{\"depth\":4}", 1, "1"));
    for (int64_t i = 0; i < 5000; i++) {
        fold(f, buffer, i * 5 * SECOND);
    }
    buffer_cut(buffer);
    cells = buffer_flushing(buffer, &count);
    assert_non_null(cells);
    assert_int_equal(count, 5000);
    pg_params_init(&params);
    flush_rows_init(&rows, cells, count, &nothing_dropped, 77);
    while (flush_rows_next(&rows, &statement, &params)) {
        if (rows.stage != FLUSH_STAGE_CELLS || !piece_is_refused()) {
            count_statement(&tally, statement, &params);
            rows.row_max = FLUSH_ROWS_MAX;
        } else if (rows.row_count > 1) {
            flush_rows_again(&rows, rows.row_count / 2);
        } else {
            flush_rows_take_back(&rows);
            refused++;
        }
        pg_params_reset(&params);
    }
    assert_int_equal(refused, 714);
    assert_int_equal(tally.rows[METER_LEVEL_5S], 5000 - 714);
    assert_int_equal(rows.written, 5000 - 714);
    assert_int_equal(tally.keys, 1);
    assert_int_equal(tally.marks[METER_LEVEL_1M], (5000 + 11) / 12);
    flush_rows_drop(&rows);
    pg_params_fini(&params);
    buffer_destroy(buffer);
}

/* Cells of a key or a bucket above are one row, however small the piece. */
static void
next__pieces_of_one_row__none_comes_twice(void **state)
{
    struct series_fixture *f = *state;
    struct buffer *buffer = buffer_create();
    struct tally tally = {0};
    struct pg_params params;
    enum statement statement;
    struct buffer_cell *const *cells;
    size_t count;

    assert_true(series_event(f, "sample", "{\"depth\":4}", 1, "1"));
    for (int64_t i = 0; i < 30; i++) {
        fold(f, buffer, i * 5 * SECOND);
    }
    buffer_cut(buffer);
    cells = buffer_flushing(buffer, &count);
    assert_non_null(cells);
    pg_params_init(&params);
    flush_rows_init(&rows, cells, count, &nothing_dropped, 77);
    rows.row_max = 1;
    while (flush_rows_next(&rows, &statement, &params)) {
        assert_int_equal(rows.row_count, 1);
        count_statement(&tally, statement, &params);
        pg_params_reset(&params);
    }
    assert_int_equal(tally.statements, 1 + 30 + 3);
    assert_int_equal(tally.keys, 1);
    assert_int_equal(tally.marks[METER_LEVEL_1M], 3);
    flush_rows_drop(&rows);
    pg_params_fini(&params);
    buffer_destroy(buffer);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(level__floors__lowest_that_is_kept),
        cmocka_unit_test(next__nothing__no_statement),
        cmocka_unit_test(next__one_minute__one_mark),
        cmocka_unit_test(next__late_cells__add_up_in_the_level_above),
        cmocka_unit_test(next__many_cells__come_in_pieces),
        cmocka_unit_test(again__halves__all_others_are_written_once),
        cmocka_unit_test(next__pieces_of_one_row__none_comes_twice),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, series_setup, series_teardown);
}
