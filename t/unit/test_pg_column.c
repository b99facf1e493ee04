/* Tables of columns write what the put functions of pg/param.h write. */

#include "meter_cmocka.h"

#include "pg/column.h"

#define NEVER INT64_MIN
#define ROWS  5

struct place {
    int16_t small;
    int32_t number;
};

struct row {
    struct meter_str text;
    struct meter_str bytes;
    uint8_t digest[20];
    uint8_t uuid[16];
    int64_t big;
    struct place place;
    bool is_open;
    int64_t start_us;
    int32_t day;
    struct meter_decimal amount;
    struct decimal_sum sum;
    bool has_amount;
    bool is_chosen;
};

/* Every kind once, in the order of enum pg_field. */
static const struct pg_column all_columns[] = {
    PG_COLUMN(TEXT, struct row, text),
    PG_COLUMN(BYTES, struct row, bytes),
    PG_COLUMN(DIGEST, struct row, digest),
    PG_COLUMN(UUID, struct row, uuid),
    PG_COLUMN(INT8, struct row, big),
    PG_COLUMN(INT4, struct row, place.number),
    PG_COLUMN(INT2, struct row, place.small),
    PG_COLUMN(BOOL, struct row, is_open),
    PG_COLUMN(TIME, struct row, start_us),
    PG_COLUMN(DATE, struct row, day),
    PG_COLUMN(NUMERIC, struct row, amount),
    PG_COLUMN(SUM, struct row, sum),
};

static const enum pg_type all_types[] = {
    PG_TEXT, PG_BYTEA, PG_BYTEA,       PG_UUID, PG_INT8,    PG_INT4,
    PG_INT2, PG_BOOL,  PG_TIMESTAMPTZ, PG_DATE, PG_NUMERIC, PG_NUMERIC,
};

static struct row rows[ROWS];


/* Rows that differ in every member, with extremes among them. */
static int
setup(void **state)
{
    static const char *const texts[ROWS] = {"a", "", "tenant", "\xc3\xa4", "z"};

    (void)state;
    for (int i = 0; i < ROWS; i++) {
        struct row *row = &rows[i];

        *row = (struct row){
            .text = str_of(texts[i]),
            .bytes = {"\0\xff\x01"
                      "abc",
                      (size_t)i + 1},
            .big = i == 0   ? INT64_MIN
                   : i == 1 ? INT64_MAX
                            : i * 1000003,
            .place = {(int16_t)(i == 0 ? INT16_MIN : i * 77),
                      i == 0 ? INT32_MIN : i * 70001},
            .is_open = i % 2 == 1,
            .start_us = INT64_C(1767225600000000) * (i - 1),
            .day = 20454 * (i - 2),
            .amount = {(meter_int128)(i - 2) * 1234567890123},
            .has_amount = i % 3 != 0,
            .is_chosen = i % 2 == 0,
        };
        memset(row->digest, 0x10 + i, sizeof(row->digest));
        memset(row->uuid, 0xa0 + i, sizeof(row->uuid));
        row->sum = decimal_sum_times(row->amount, INT64_MAX);
    }
    return 0;
}

/* What the put function of that kind writes. */
static void
put_field(struct buf *out, size_t column, const struct row *row)
{
    switch ((enum pg_field)column) {
    case PG_FIELD_TEXT: pg_put_text(out, row->text); break;
    case PG_FIELD_BYTES: pg_put_bytes(out, row->bytes); break;
    case PG_FIELD_DIGEST:
        pg_put_bytes(out, (struct meter_str){(const char *)row->digest,
                                             sizeof(row->digest)});
        break;
    case PG_FIELD_UUID: pg_put_uuid(out, row->uuid); break;
    case PG_FIELD_INT8: pg_put_int8(out, row->big); break;
    case PG_FIELD_INT4: pg_put_int4(out, row->place.number); break;
    case PG_FIELD_INT2: pg_put_int2(out, row->place.small); break;
    case PG_FIELD_BOOL: pg_put_bool(out, row->is_open); break;
    case PG_FIELD_TIME: pg_put_time(out, row->start_us); break;
    case PG_FIELD_DATE: pg_put_date(out, row->day); break;
    case PG_FIELD_NUMERIC: pg_put_numeric(out, row->amount); break;
    case PG_FIELD_SUM: pg_put_sum(out, row->sum); break;
    }
}

/* One array for each column, from the rows that the list names. */
static void
expect_arrays(struct pg_params *params, const int *list, size_t count)
{
    for (size_t i = 0; i < PG_COLUMN_COUNT(all_columns); i++) {
        pg_param_array_begin(params, all_types[i], count);
        for (size_t j = 0; j < count; j++) {
            put_field(&params->bytes, i, &rows[list[j]]);
        }
        pg_param_array_end(params);
    }
}

static void
assert_params_equal(const struct pg_params *made,
                    const struct pg_params *expected)
{
    assert_false(made->bytes.failed);
    assert_int_equal(made->count, expected->count);
    for (int i = 0; i < made->count; i++) {
        assert_int_equal(made->size[i], expected->size[i]);
        assert_int_equal(made->offset[i], expected->offset[i]);
    }
    assert_int_equal(made->bytes.size, expected->bytes.size);
    assert_memory_equal(made->bytes.data, expected->bytes.data,
                        made->bytes.size);
}

static void
assert_bufs_equal(const struct buf *made, const struct buf *expected)
{
    assert_false(made->failed);
    assert_int_equal(made->size, expected->size);
    assert_memory_equal(made->data, expected->data, made->size);
}


static void
rows__every_kind__one_array_for_each_column(void **state)
{
    static const int list[ROWS] = {0, 1, 2, 3, 4};
    struct pg_params made;
    struct pg_params expected;

    (void)state;
    pg_params_init(&made);
    pg_params_init(&expected);
    pg_param_rows(&made, all_columns, PG_COLUMN_COUNT(all_columns), rows, ROWS,
                  sizeof(rows[0]));
    expect_arrays(&expected, list, ROWS);
    assert_params_equal(&made, &expected);
    pg_params_fini(&made);
    pg_params_fini(&expected);
}

static void
rows__none__empty_arrays(void **state)
{
    struct pg_params made;
    struct pg_params expected;

    (void)state;
    pg_params_init(&made);
    pg_params_init(&expected);
    pg_param_rows(&made, all_columns, PG_COLUMN_COUNT(all_columns), rows, 0,
                  sizeof(rows[0]));
    expect_arrays(&expected, NULL, 0);
    assert_params_equal(&made, &expected);
    pg_params_fini(&made);
    pg_params_fini(&expected);
}

static void
pointers__any_order__the_rows_they_lead_to(void **state)
{
    static const int list[] = {3, 0, 3, 4};
    const void *pointers[4];
    struct pg_params made;
    struct pg_params expected;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        pointers[i] = &rows[list[i]];
    }
    pg_params_init(&made);
    pg_params_init(&expected);
    pg_param_pointers(&made, all_columns, PG_COLUMN_COUNT(all_columns),
                      pointers, 4);
    expect_arrays(&expected, list, 4);
    assert_params_equal(&made, &expected);
    pg_params_fini(&made);
    pg_params_fini(&expected);
}

static const void *
chosen_next(const void *from, size_t *cursor)
{
    const struct row *all = from;

    while (*cursor < ROWS && !all[*cursor].is_chosen) {
        ++*cursor;
    }
    return *cursor < ROWS ? &all[(*cursor)++] : NULL;
}

static void
columns__chosen_rows__walked_anew_for_each_column(void **state)
{
    static const int list[] = {0, 2, 4};
    struct pg_params made;
    struct pg_params expected;

    (void)state;
    pg_params_init(&made);
    pg_params_init(&expected);
    pg_param_columns(&made, all_columns, PG_COLUMN_COUNT(all_columns), rows, 3,
                     chosen_next);
    expect_arrays(&expected, list, 3);
    assert_params_equal(&made, &expected);
    pg_params_fini(&made);
    pg_params_fini(&expected);
}

static void
columns__after_other_parameters__follow_them(void **state)
{
    static const int list[] = {1, 2};
    struct pg_params made;
    struct pg_params expected;

    (void)state;
    pg_params_init(&made);
    pg_params_init(&expected);
    pg_param_text(&made, str_of("tenant"));
    pg_param_rows(&made, all_columns, PG_COLUMN_COUNT(all_columns), &rows[1], 2,
                  sizeof(rows[0]));
    pg_param_text(&expected, str_of("tenant"));
    expect_arrays(&expected, list, 2);
    assert_params_equal(&made, &expected);
    pg_params_fini(&made);
    pg_params_fini(&expected);
}


static void
put_columns__copy_row__fields_in_the_order_of_the_table(void **state)
{
    struct buf made;
    struct buf expected;

    (void)state;
    buf_init(&made, 1u << 20);
    buf_init(&expected, 1u << 20);
    pg_copy_begin(&made);
    pg_copy_begin(&expected);
    for (int i = 0; i < ROWS; i++) {
        pg_copy_row(&made, (int16_t)PG_COLUMN_COUNT(all_columns));
        pg_put_columns(&made, all_columns, PG_COLUMN_COUNT(all_columns),
                       &rows[i]);
        pg_copy_row(&expected, (int16_t)PG_COLUMN_COUNT(all_columns));
        for (size_t j = 0; j < PG_COLUMN_COUNT(all_columns); j++) {
            put_field(&expected, j, &rows[i]);
        }
    }
    pg_copy_end(&made);
    pg_copy_end(&expected);
    assert_bufs_equal(&made, &expected);
    buf_fini(&made);
    buf_fini(&expected);
}


/* ---- NULL ------------------------------------------------------------- */

static void
null_if__the_value__null_and_no_other(void **state)
{
    static const struct pg_column columns[] = {
        PG_COLUMN_NULL_IF(INT8, struct row, big, NEVER),
        PG_COLUMN_NULL_IF(INT4, struct row, place.number, INT32_MIN),
        PG_COLUMN_NULL_IF(INT2, struct row, place.small, INT16_MIN),
        PG_COLUMN_NULL_IF(TIME, struct row, start_us, 0),
        PG_COLUMN_NULL_IF(DATE, struct row, day, 0),
    };
    struct buf made;
    struct buf expected;

    (void)state;
    buf_init(&made, 1u << 20);
    buf_init(&expected, 1u << 20);
    for (int i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];

        pg_put_columns(&made, columns, PG_COLUMN_COUNT(columns), row);
        if (i == 0) { /* has the least numbers */
            pg_put_null(&expected);
            pg_put_null(&expected);
            pg_put_null(&expected);
        } else {
            pg_put_int8(&expected, row->big);
            pg_put_int4(&expected, row->place.number);
            pg_put_int2(&expected, row->place.small);
        }
        if (i == 1) {
            pg_put_null(&expected);
        } else {
            pg_put_time(&expected, row->start_us);
        }
        if (i == 2) {
            pg_put_null(&expected);
        } else {
            pg_put_date(&expected, row->day);
        }
    }
    assert_bufs_equal(&made, &expected);
    buf_fini(&made);
    buf_fini(&expected);
}

/* Without null_if the least number and 0 are values like any other. */
static void
plain_column__zero__is_no_null(void **state)
{
    static const struct pg_column columns[] = {
        PG_COLUMN(INT8, struct row, big),
        PG_COLUMN(DATE, struct row, day),
    };
    const struct row zero = {.big = 0, .day = 0};
    struct buf made;
    struct buf expected;

    (void)state;
    buf_init(&made, 1u << 10);
    buf_init(&expected, 1u << 10);
    pg_put_columns(&made, columns, 2, &zero);
    pg_put_int8(&expected, 0);
    pg_put_date(&expected, 0);
    assert_bufs_equal(&made, &expected);
    buf_fini(&made);
    buf_fini(&expected);
}

/* The bool of the row decides, whatever the member holds. */
static void
column_if__every_kind__null_without_its_bool(void **state)
{
    static const struct pg_column columns[] = {
        PG_COLUMN_IF(TEXT, struct row, text, has_amount),
        PG_COLUMN_IF(BYTES, struct row, bytes, has_amount),
        PG_COLUMN_IF(DIGEST, struct row, digest, has_amount),
        PG_COLUMN_IF(UUID, struct row, uuid, has_amount),
        PG_COLUMN_IF(INT8, struct row, big, has_amount),
        PG_COLUMN_IF(INT4, struct row, place.number, has_amount),
        PG_COLUMN_IF(INT2, struct row, place.small, has_amount),
        PG_COLUMN_IF(BOOL, struct row, is_open, has_amount),
        PG_COLUMN_IF(TIME, struct row, start_us, has_amount),
        PG_COLUMN_IF(DATE, struct row, day, has_amount),
        PG_COLUMN_IF(NUMERIC, struct row, amount, has_amount),
        PG_COLUMN_IF(SUM, struct row, sum, has_amount),
    };
    struct buf made;
    struct buf expected;

    (void)state;
    buf_init(&made, 1u << 20);
    buf_init(&expected, 1u << 20);
    for (int i = 0; i < ROWS; i++) {
        pg_put_columns(&made, columns, PG_COLUMN_COUNT(columns), &rows[i]);
        for (size_t j = 0; j < PG_COLUMN_COUNT(columns); j++) {
            if (rows[i].has_amount) {
                put_field(&expected, j, &rows[i]);
            } else {
                pg_put_null(&expected);
            }
        }
    }
    assert_bufs_equal(&made, &expected);
    buf_fini(&made);
    buf_fini(&expected);
}

static void
text_and_bytes__no_data__null(void **state)
{
    const struct row empty = {.text = {NULL, 0}, .bytes = {NULL, 0}};
    struct buf made;
    struct buf expected;

    (void)state;
    buf_init(&made, 1u << 10);
    buf_init(&expected, 1u << 10);
    pg_put_columns(&made, all_columns, 2, &empty);
    pg_put_null(&expected);
    pg_put_null(&expected);
    assert_bufs_equal(&made, &expected);
    buf_fini(&made);
    buf_fini(&expected);
}

#define ROW_TEST(name) cmocka_unit_test_setup(name, setup)

static const struct CMUnitTest tests[] = {
    ROW_TEST(rows__every_kind__one_array_for_each_column),
    ROW_TEST(rows__none__empty_arrays),
    ROW_TEST(pointers__any_order__the_rows_they_lead_to),
    ROW_TEST(columns__chosen_rows__walked_anew_for_each_column),
    ROW_TEST(columns__after_other_parameters__follow_them),
    ROW_TEST(put_columns__copy_row__fields_in_the_order_of_the_table),
    ROW_TEST(null_if__the_value__null_and_no_other),
    ROW_TEST(plain_column__zero__is_no_null),
    ROW_TEST(column_if__every_kind__null_without_its_bool),
    ROW_TEST(text_and_bytes__no_data__null),
};

RUN_TAP(tests)
