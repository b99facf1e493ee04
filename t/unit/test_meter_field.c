#include "meter_cmocka.h"

#include "meter_field.h"


static struct meter_field_list
list_of(const struct meter_writer *writer)
{
    struct meter_field_list list;

    meter_field_list_init(
        &list, (struct meter_str){(const char *)writer->data, writer->at});
    return list;
}


static void
put__every_kind__has_frozen_bytes(void **state)
{
    uint8_t data[128];
    struct meter_writer writer;

    (void)state;
    meter_writer_init(&writer, data, sizeof(data));
    meter_put_field_u8(&writer, 1 | METER_TAG_CRITICAL, 0x11);
    meter_put_field_u16(&writer, 2, 0x2221);
    meter_put_field_u32(&writer, 3, 0x34333231);
    meter_put_field_u64(&writer, 4, 5);
    meter_put_field_str(&writer, 5, METER_STR("ab"));
    meter_put_field_str(&writer, 6, METER_STR(""));
    meter_put_field_optional(&writer, 7, (struct meter_str){NULL, 0});
    meter_put_field_optional(&writer, 8, METER_STR("c"));
    meter_put_field_pair(&writer, 9, METER_STR("n"), METER_STR("v"));
    assert_false(writer.failed);
    assert_hex_equal(data, writer.at,
                     "01800100000011"
                     "0200020000002122"
                     "03000400000031323334"
                     "0400080000000500000000000000"
                     "0500020000006162"
                     "060000000000"
                     "08000100000063"
                     "090006000000"
                     "010000006e76");
}


static void
next__written_fields__come_back(void **state)
{
    uint8_t data[128], fixed[3];
    struct meter_writer writer;
    struct meter_field_list list;
    struct meter_field field;
    struct meter_str name, value;

    (void)state;
    meter_writer_init(&writer, data, sizeof(data));
    meter_put_field_u8(&writer, 1 | METER_TAG_CRITICAL, 0x11);
    meter_put_field_u16(&writer, 2, 0x2221);
    meter_put_field_u32(&writer, 3, 0x34333231);
    meter_put_field_u64(&writer, 63, UINT64_MAX);
    meter_put_field_str(&writer, 5, METER_STR("abc"));
    meter_put_field_str(&writer, 6, METER_STR(""));
    meter_put_field_pair(&writer, 9, METER_STR(""), METER_STR(""));

    list = list_of(&writer);
    assert_true(meter_field_next(&list, &field));
    assert_int_equal(field.number, 1);
    assert_true(field.critical);
    assert_int_equal(meter_field_u8(&list, &field), 0x11);
    assert_true(meter_field_next(&list, &field));
    assert_false(field.critical);
    assert_int_equal(meter_field_u16(&list, &field), 0x2221);
    assert_true(meter_field_next(&list, &field));
    assert_int_equal(meter_field_u32(&list, &field), 0x34333231);
    assert_true(meter_field_next(&list, &field));
    assert_true(meter_field_u64(&list, &field) == UINT64_MAX);
    assert_true(meter_field_next(&list, &field));
    meter_field_fixed(&list, &field, fixed, 3);
    assert_memory_equal(fixed, "abc", 3);
    assert_true(meter_field_next(&list, &field));
    value = meter_field_str(&list, &field);
    assert_non_null(value.data);
    assert_int_equal(value.size, 0);
    assert_true(meter_field_next(&list, &field));
    meter_field_pair(&list, &field, &name, &value);
    assert_int_equal(name.size + value.size, 0);
    assert_false(meter_field_next(&list, &field));
    assert_true(meter_field_list_end(
        &list, METER_FIELD_BIT(1) | METER_FIELD_BIT(2) | METER_FIELD_BIT(63) |
                   METER_FIELD_BIT(9)));
    assert_false(meter_field_list_end(&list, METER_FIELD_BIT(4)));
}


static void
next__cut_anywhere__fails_unless_between_fields(void **state)
{
    uint8_t data[64];
    struct meter_writer writer;

    (void)state;
    meter_writer_init(&writer, data, sizeof(data));
    meter_put_field_u8(&writer, 1, 7);                 /* 7 bytes */
    meter_put_field_str(&writer, 2, METER_STR("abc")); /* 9 bytes */
    for (size_t size = 0; size <= writer.at; size++) {
        struct meter_field_list list;
        struct meter_field field;
        bool whole = size == 0 || size == 7 || size == 16;

        meter_field_list_init(&list,
                              (struct meter_str){(const char *)data, size});
        while (meter_field_next(&list, &field)) {
            (void)meter_field_str(&list, &field);
        }
        assert_int_equal(meter_field_list_end(&list, 0), whole);
    }
}


static void
next__size_of_four_gigabytes__fails(void **state)
{
    static const uint8_t data[] = {1, 0, 0xff, 0xff, 0xff, 0xff, 'x'};
    struct meter_field_list list;
    struct meter_field field;

    (void)state;
    meter_field_list_init(&list,
                          (struct meter_str){(const char *)data, sizeof(data)});
    assert_false(meter_field_next(&list, &field));
    assert_false(meter_field_list_end(&list, 0));
}


static void
once__same_number_twice__fails_with_and_without_the_bit(void **state)
{
    (void)state;
    for (int critical = 0; critical < 2; critical++) {
        uint8_t data[64];
        struct meter_writer writer;
        struct meter_field_list list;
        struct meter_field field;

        meter_writer_init(&writer, data, sizeof(data));
        meter_put_field_u8(&writer, 1, 7);
        meter_put_field_u8(
            &writer, (uint16_t)(1 | (critical ? METER_TAG_CRITICAL : 0)), 7);
        list = list_of(&writer);
        assert_true(meter_field_next(&list, &field));
        (void)meter_field_u8(&list, &field);
        assert_true(meter_field_next(&list, &field));
        (void)meter_field_u8(&list, &field);
        assert_false(meter_field_next(&list, &field));
        assert_false(meter_field_list_end(&list, 0));
    }
}


static void
sized__wrong_size__fails(void **state)
{
    static const char zeros[32];

    (void)state;
    for (size_t size = 0; size <= 17; size++) {
        for (int kind = 0; kind < 5; kind++) {
            static const size_t wanted[] = {1, 2, 4, 8, 16};
            uint8_t data[64], fixed[16];
            struct meter_writer writer;
            struct meter_field_list list;
            struct meter_field field;

            meter_writer_init(&writer, data, sizeof(data));
            meter_put_field_str(&writer, 1, (struct meter_str){zeros, size});
            list = list_of(&writer);
            assert_true(meter_field_next(&list, &field));
            switch (kind) {
            case 0: (void)meter_field_u8(&list, &field); break;
            case 1: (void)meter_field_u16(&list, &field); break;
            case 2: (void)meter_field_u32(&list, &field); break;
            case 3: (void)meter_field_u64(&list, &field); break;
            case 4: meter_field_fixed(&list, &field, fixed, 16); break;
            }
            assert_int_equal(meter_field_list_end(&list, 0),
                             size == wanted[kind]);
        }
    }
}


static void
pair__length_past_the_value__fails(void **state)
{
    (void)state;
    for (uint32_t length = 0; length < 8; length++) {
        uint8_t data[64];
        struct meter_writer writer;
        struct meter_field_list list;
        struct meter_field field;
        struct meter_str name, value;

        meter_writer_init(&writer, data, sizeof(data));
        meter_put_u16(&writer, 1);
        meter_put_u32(&writer, 8);
        meter_put_u32(&writer, length);
        meter_put_bytes(&writer, "abcd", 4);
        list = list_of(&writer);
        assert_true(meter_field_next(&list, &field));
        meter_field_pair(&list, &field, &name, &value);
        assert_int_equal(meter_field_list_end(&list, 0), length <= 4);
        if (length <= 4) {
            assert_int_equal(name.size, length);
            assert_int_equal(value.size, 4 - length);
        }
    }
}


static void
unknown__critical_or_not__is_bad_or_skipped(void **state)
{
    static const uint16_t numbers[] = {0, 12, 63, 64, 0x7fff};

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        for (int critical = 0; critical < 2; critical++) {
            uint8_t data[64];
            struct meter_writer writer;
            struct meter_field_list list;
            struct meter_field field;

            meter_writer_init(&writer, data, sizeof(data));
            meter_put_field_str(
                &writer,
                (uint16_t)(numbers[i] | (critical ? METER_TAG_CRITICAL : 0)),
                METER_STR("later"));
            list = list_of(&writer);
            assert_true(meter_field_next(&list, &field));
            assert_int_equal(field.number, numbers[i]);
            meter_field_unknown(&list, &field);
            assert_int_equal(meter_field_list_end(&list, 0), !critical);
        }
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(put__every_kind__has_frozen_bytes),
    cmocka_unit_test(next__written_fields__come_back),
    cmocka_unit_test(next__cut_anywhere__fails_unless_between_fields),
    cmocka_unit_test(next__size_of_four_gigabytes__fails),
    cmocka_unit_test(once__same_number_twice__fails_with_and_without_the_bit),
    cmocka_unit_test(sized__wrong_size__fails),
    cmocka_unit_test(pair__length_past_the_value__fails),
    cmocka_unit_test(unknown__critical_or_not__is_bad_or_skipped),
};

RUN_TAP(tests)
