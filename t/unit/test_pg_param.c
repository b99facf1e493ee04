/* Golden bytes are those of PostgreSQL's own send functions and COPY. */

#include "meter_cmocka.h"

#include "meter_limits.h"
#include "meter_time.h"
#include "pg/param.h"

#include <libpq-fe.h>

#define DAY_2026_03_01 20513


static struct meter_decimal
decimal(const char *text)
{
    struct meter_decimal value = {0};

    assert_int_equal(meter_decimal_parse(str_of(text), &value),
                     METER_DECIMAL_OK);
    return value;
}


/* A field without its length word, which must say the same. */
static struct meter_str
field_of(const struct buf *out)
{
    assert_false(out->failed);
    assert_true(out->size >= 4);

    const uint8_t *size = (const uint8_t *)out->data;
    size_t said = (size_t)size[0] << 24 | (size_t)size[1] << 16 |
                  (size_t)size[2] << 8 | size[3];

    assert_int_equal(said, out->size - 4);
    return (struct meter_str){out->data + 4, said};
}


static void
put_numeric__edges__are_the_server_s_bytes(void **state)
{
    static const char *const cases[][2] = {
        {"0", "0000000000000009"},
        {"-0", "0000000000000009"},
        {"1", "00010000000000090001"},
        {"-1", "00010000400000090001"},
        {"0.000000001", "0001fffd0000000903e8"},
        {"-0.000000001", "0001fffd4000000903e8"},
        {"0.5", "0001ffff000000091388"},
        {"0.0001", "0001ffff000000090001"},
        {"9999", "0001000000000009270f"},
        {"10000", "00010001000000090001"},
        {"100000000", "00010002000000090001"},
        {"10001.0001", "0003000100000009000100010001"},
        {"123456789.123456789", "0006000200000009000109291a8504d2162e2328"},
        {"12345678901234567890", "000500040000000904d2162e23340d801ed2"},
        {"1000000000000.000001", "0006000300000009000100000000000000000064"},
        {"99999999999999999999999999999.999999999",
         "000b0007000000090009270f270f270f270f270f270f270f270f270f2328"},
        {"-99999999999999999999999999999.999999999",
         "000b0007400000090009270f270f270f270f270f270f270f270f270f2328"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf out;

        buf_init(&out, 1024);
        pg_put_numeric(&out, decimal(cases[i][0]));

        struct meter_str field = field_of(&out);

        assert_hex_equal(field.data, field.size, cases[i][1]);
        buf_fini(&out);
    }
}


static void
put__each_type__is_length_and_network_order(void **state)
{
    static const uint8_t uuid[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                     8, 9, 10, 11, 12, 13, 14, 15};
    struct buf out;

    (void)state;
    buf_init(&out, 1024);
    pg_put_int8(&out, -2);
    pg_put_int4(&out, 65536);
    pg_put_int2(&out, -1);
    pg_put_bool(&out, true);
    pg_put_bool(&out, false);
    pg_put_uuid(&out, uuid);
    pg_put_text(&out, str_of(""));
    pg_put_text(&out, (struct meter_str){NULL, 0});
    pg_put_bytes(&out, (struct meter_str){"\0x", 2});
    pg_put_null(&out);
    assert_hex_equal(out.data, out.size,
                     "00000008fffffffffffffffe"
                     "0000000400010000"
                     "00000002ffff"
                     "0000000101"
                     "0000000100"
                     "00000010000102030405060708090a0b0c0d0e0f"
                     "00000000"
                     "ffffffff"
                     "000000020078"
                     "ffffffff");
    buf_fini(&out);
}


static void
put_time_and_date__both_sides_of_2000__are_the_server_s_bytes(void **state)
{
    struct buf out;

    (void)state;
    buf_init(&out, 1024);
    pg_put_time(&out, DAY_2026_03_01 * METER_TIME_DAY + 1);
    pg_put_time(&out, -1);
    pg_put_date(&out, DAY_2026_03_01);
    pg_put_date(&out, meter_time_day(METER_TIME_MIN));
    assert_hex_equal(out.data, out.size,
                     "000000080002eee9eb8b8001"
                     "00000008fffca2fec4c81fff"
                     "0000000400002554"
                     "00000004fff4dbf9");
    buf_fini(&out);
}


static void
array__with_null__is_the_server_s_bytes(void **state)
{
    struct pg_params params;

    (void)state;
    pg_params_init(&params);
    pg_param_array_begin(&params, PG_TEXT, 3);
    pg_put_text(&params.bytes, str_of("a"));
    pg_put_null(&params.bytes);
    pg_put_text(&params.bytes, str_of(""));
    pg_param_array_end(&params);

    assert_int_equal(params.count, 1);
    assert_int_equal(params.size[0], params.bytes.size);
    assert_hex_equal(params.bytes.data, params.bytes.size,
                     "0000000100000001000000190000000300000001"
                     "0000000161ffffffff00000000");
    pg_params_fini(&params);
}


static void
array__empty__has_no_dimension(void **state)
{
    struct pg_params params;

    (void)state;
    pg_params_init(&params);
    pg_param_array_begin(&params, PG_UUID, 0);
    pg_param_array_end(&params);
    assert_hex_equal(params.bytes.data, params.bytes.size,
                     "000000000000000000000b86");
    pg_params_fini(&params);
}


static void
params__several__lie_one_behind_the_other(void **state)
{
    static const uint8_t uuid[16] = {0xff};
    struct pg_params params;

    (void)state;
    pg_params_init(&params);
    pg_param_text(&params, str_of("tenant"));
    pg_param_null(&params);
    pg_param_int8(&params, 1);
    pg_param_text(&params, (struct meter_str){NULL, 0});
    pg_param_uuid(&params, uuid);
    pg_param_text(&params, str_of(""));
    pg_param_date(&params, DAY_2026_03_01);

    static const int sizes[] = {6, -1, 8, -1, 16, 0, 4};

    assert_int_equal(params.count, 7);
    for (int i = 0; i < params.count; i++) {
        assert_int_equal(params.size[i], sizes[i]);
    }
    assert_memory_equal(params.bytes.data + params.offset[0], "tenant", 6);
    assert_hex_equal(params.bytes.data + params.offset[2], 8,
                     "0000000000000001");
    assert_memory_equal(params.bytes.data + params.offset[4], uuid, 16);
    assert_hex_equal(params.bytes.data + params.offset[6], 4, "00002554");

    pg_params_reset(&params);
    assert_int_equal(params.count, 0);
    assert_int_equal(params.bytes.size, 0);
    pg_params_fini(&params);
}


static void
params__past_the_maximum__say_failed(void **state)
{
    struct pg_params params;

    (void)state;
    pg_params_init(&params);
    params.bytes.size_max = 8;
    pg_param_int8(&params, 1);
    assert_false(params.bytes.failed);
    pg_param_int8(&params, 2);
    pg_param_int8(&params, 3);
    assert_true(params.bytes.failed);
    pg_params_reset(&params);
    assert_false(params.bytes.failed);
    pg_params_fini(&params);
}


static void
copy__one_row__is_the_server_s_stream(void **state)
{
    struct buf out;

    (void)state;
    buf_init(&out, 1024);
    pg_copy_begin(&out);
    pg_copy_row(&out, 4);
    pg_put_text(&out, str_of("ab"));
    pg_put_null(&out);
    pg_put_int2(&out, 7);
    pg_put_date(&out, DAY_2026_03_01);
    pg_copy_end(&out);
    assert_hex_equal(out.data, out.size,
                     "5047434f50590aff0d0a000000000000000000"
                     "0004000000026162ffffffff0000000200070000000400002554"
                     "ffff");
    buf_fini(&out);
}


static void
get__what_put_wrote__comes_back(void **state)
{
    static char names[][8] = {"a", "b", "c", "d", "e", "f", "g"};
    PGresAttDesc columns[7];
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    struct pg_params params;

    (void)state;
    memset(columns, 0, sizeof(columns));
    for (int i = 0; i < 7; i++) {
        columns[i].name = names[i];
        columns[i].format = 1;
    }
    assert_int_equal(PQsetResultAttrs(result, 7, columns), 1);

    pg_params_init(&params);
    pg_param_int8(&params, INT64_MIN);
    pg_param_int4(&params, -7);
    pg_param_time(&params, METER_TIME_MIN);
    pg_param_date(&params, meter_time_day(METER_TIME_MIN));
    pg_param_text(&params, str_of("\xc3\xa9"));
    pg_param_bytes(&params, (struct meter_str){"\1", 1});
    pg_param_null(&params);
    for (int i = 0; i < 7; i++) {
        char *value =
            params.size[i] < 0 ? NULL : params.bytes.data + params.offset[i];

        assert_int_equal(PQsetvalue(result, 0, i, value, params.size[i]), 1);
    }

    assert_int_equal(pg_row_count(result), 1);
    assert_true(pg_get_int8(result, 0, 0) == INT64_MIN);
    assert_int_equal(pg_get_int4(result, 0, 1), -7);
    assert_true(pg_get_time(result, 0, 2) == METER_TIME_MIN);
    assert_int_equal(pg_get_date(result, 0, 3), meter_time_day(METER_TIME_MIN));
    assert_true(
        meter_str_equal(pg_get_bytes(result, 0, 4), str_of("\xc3\xa9")));
    assert_true(pg_get_bool(result, 0, 5));
    assert_false(pg_is_null(result, 0, 5));
    assert_true(pg_is_null(result, 0, 6));
    assert_null(pg_get_bytes(result, 0, 6).data);
    assert_int_equal(pg_affected(result), 0);
    pg_params_fini(&params);
    PQclear(result);
}


/* One row of one binary column. */
static PGresult *
result_of(const void *value, size_t size)
{
    static char name[] = "a";
    PGresAttDesc column = {.name = name, .format = 1};
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    char copy[64];

    assert_true(size <= sizeof(copy));
    memcpy(copy, value, size);
    assert_int_equal(PQsetResultAttrs(result, 1, &column), 1);
    assert_int_equal(PQsetvalue(result, 0, 0, copy, (int)size), 1);
    return result;
}


static void
get_numeric__what_put_wrote__comes_back(void **state)
{
    static const char *const cases[] = {
        "0",
        "1",
        "-1",
        "9999",
        "10000",
        "0.000000001",
        "-0.000000010",
        "0.0001",
        "0.00010001",
        "123456789.123456789",
        "1000000000000.000001",
        "99999999999999999999999999999.999999999",
        "-99999999999999999999999999999.999999999",
        "10000000000000000000000000000",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct meter_decimal value = {7};
        struct buf out;

        buf_init(&out, 1024);
        pg_put_numeric(&out, decimal(cases[i]));

        struct meter_str field = field_of(&out);
        PGresult *result = result_of(field.data, field.size);

        assert_true(pg_get_numeric(result, 0, 0, &value));
        assert_int_equal(meter_decimal_compare(value, decimal(cases[i])), 0);
        PQclear(result);
        buf_fini(&out);
    }
}


/* What a server sends for an array: the bytes of a parameter. */
static void
get_array__elements__one_by_one(void **state)
{
    struct pg_params params;
    struct decimal_sum sum;
    struct pg_array array;
    struct meter_decimal value;

    (void)state;
    pg_params_init(&params);
    pg_param_array_begin(&params, PG_NUMERIC, 3);
    pg_put_numeric(&params.bytes, decimal("-1.5"));
    pg_put_null(&params.bytes);
    pg_put_numeric(&params.bytes, decimal("7"));
    pg_param_array_end(&params);
    pg_param_array_begin(&params, PG_INT8, 2);
    pg_put_int8(&params.bytes, INT64_MIN);
    pg_put_time(&params.bytes, 1234567);
    pg_param_array_end(&params);
    pg_param_array_begin(&params, PG_INT8, 0);
    pg_param_array_end(&params);

    PGresult *numbers =
        result_of(params.bytes.data + params.offset[0], (size_t)params.size[0]);
    PGresult *words =
        result_of(params.bytes.data + params.offset[1], (size_t)params.size[1]);
    PGresult *none =
        result_of(params.bytes.data + params.offset[2], (size_t)params.size[2]);

    array = pg_get_array(numbers, 0, 0);
    assert_int_equal(array.count, 3);
    assert_true(pg_sum_of(pg_array_next(&array), &sum));
    assert_true(decimal_sum_decimal(sum, &value));
    assert_int_equal(meter_decimal_compare(value, decimal("-1.5")), 0);
    assert_null(pg_array_next(&array).data);
    assert_true(pg_sum_of(pg_array_next(&array), &sum));
    assert_true(decimal_sum_decimal(sum, &value));
    assert_int_equal(meter_decimal_compare(value, decimal("7")), 0);
    assert_int_equal(array.count, 0);
    array = pg_get_array(words, 0, 0);
    assert_int_equal(pg_int8_of(pg_array_next(&array)), INT64_MIN);
    assert_int_equal(pg_time_of(pg_array_next(&array)), 1234567);
    assert_int_equal(pg_get_array(none, 0, 0).count, 0);
    PQclear(numbers);
    PQclear(words);
    PQclear(none);
    pg_params_fini(&params);
}

static void
get_numeric__other_scales_and_spellings__by_value(void **state)
{
    static const struct {
        const char *bytes; /* groups, weight, sign, scale, digits */
        size_t size;
        const char *value; /* NULL: does not fit */
    } cases[] = {
        /* 1.5 with scale 1, and 0.5 with groups of zeros around it */
        {"\0\2\0\0\0\0\0\1\0\1\x13\x88", 12, "1.5"},
        {"\0\3\0\0\0\0\0\11\0\0\x13\x88\0\0", 14, "0.5"},
        /* the tenth decimal: 0 fits, 1 does not */
        {"\0\1\xff\xfd\0\0\0\14\x03\xe8", 10, "0.000000001"},
        {"\0\1\xff\xfd\0\0\0\14\x03\xe9", 10, NULL},
        {"\0\1\xff\xfc\0\0\0\20\x27\x0f", 10, NULL},
        {"\0\1\xff\xfc\0\0\0\20\0\0", 10, "0"},
        /* 10^29 and what is far beyond 128 bits */
        {"\0\1\0\7\0\0\0\0\0\12", 10, NULL},
        {"\0\1\0\x40\0\0\0\0\0\1", 10, NULL},
        /* NaN, Infinity, -Infinity */
        {"\0\0\0\0\xc0\0\0\0", 8, NULL},
        {"\0\0\0\0\xd0\0\0\40", 8, NULL},
        {"\0\0\0\0\xf0\0\0\40", 8, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        PGresult *result = result_of(cases[i].bytes, cases[i].size);
        struct meter_decimal value = {7};

        if (cases[i].value == NULL) {
            assert_false(pg_get_numeric(result, 0, 0, &value));
            assert_int_equal((int64_t)value.units, 7);
        } else {
            assert_true(pg_get_numeric(result, 0, 0, &value));
            assert_int_equal(
                meter_decimal_compare(value, decimal(cases[i].value)), 0);
        }
        PQclear(result);
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(put_numeric__edges__are_the_server_s_bytes),
    cmocka_unit_test(put__each_type__is_length_and_network_order),
    cmocka_unit_test(
        put_time_and_date__both_sides_of_2000__are_the_server_s_bytes),
    cmocka_unit_test(array__with_null__is_the_server_s_bytes),
    cmocka_unit_test(array__empty__has_no_dimension),
    cmocka_unit_test(params__several__lie_one_behind_the_other),
    cmocka_unit_test(params__past_the_maximum__say_failed),
    cmocka_unit_test(copy__one_row__is_the_server_s_stream),
    cmocka_unit_test(get__what_put_wrote__comes_back),
    cmocka_unit_test(get_numeric__what_put_wrote__comes_back),
    cmocka_unit_test(get_array__elements__one_by_one),
    cmocka_unit_test(get_numeric__other_scales_and_spellings__by_value),
};

RUN_TAP(tests)
