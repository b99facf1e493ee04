#include "meter_cmocka.h"

#include "meter_bytes.h"
#include "meter_random.h"


static void
writer__every_size__is_little_endian(void **state)
{
    uint8_t data[64];
    struct meter_writer writer;

    (void)state;
    meter_writer_init(&writer, data, sizeof(data));
    meter_put_u8(&writer, 0x01);
    meter_put_u16(&writer, 0x0203);
    meter_put_u32(&writer, 0x04050607);
    meter_put_u64(&writer, UINT64_C(0x08090a0b0c0d0e0f));
    meter_put_str(&writer, METER_STR("ab"));
    meter_put_zeros(&writer, 3);
    assert_false(writer.failed);
    assert_hex_equal(data, writer.at,
                     "01"
                     "0302"
                     "07060504"
                     "0f0e0d0c0b0a0908"
                     "020000006162"
                     "000000");
}


static void
reader__what_the_writer_wrote__comes_back(void **state)
{
    uint8_t data[64];
    struct meter_writer writer;
    struct meter_reader reader;
    struct meter_str str;

    (void)state;
    meter_writer_init(&writer, data, sizeof(data));
    meter_put_u8(&writer, 0xff);
    meter_put_u16(&writer, 0xfffe);
    meter_put_u32(&writer, 0xfffffffdu);
    meter_put_u64(&writer, UINT64_C(0xfffffffffffffffc));
    meter_put_bytes(&writer, "xyz", 3);

    meter_reader_init(&reader, data, writer.at);
    assert_int_equal(meter_get_u8(&reader), 0xff);
    assert_int_equal(meter_get_u16(&reader), 0xfffe);
    assert_int_equal(meter_get_u32(&reader), 0xfffffffdu);
    assert_true(meter_get_u64(&reader) == UINT64_C(0xfffffffffffffffc));
    assert_int_equal(meter_reader_left(&reader), 3);
    str = meter_get_bytes(&reader, 3);
    assert_true(meter_str_equal(str, METER_STR("xyz")));
    assert_int_equal(meter_reader_left(&reader), 0);
    assert_false(reader.failed);
}


static void
reader__one_byte_short__fails_and_stays_failed(void **state)
{
    static const uint8_t data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct meter_reader reader;
    struct meter_str str;

    (void)state;
    for (size_t size = 0; size < 8; size++) {
        meter_reader_init(&reader, data, size);
        assert_true(meter_get_u64(&reader) == 0);
        assert_true(reader.failed);
        assert_int_equal(reader.at, 0);
        /* Later reads that would fit are refused too. */
        assert_int_equal(meter_get_u8(&reader), 0);
        str = meter_get_bytes(&reader, 0);
        assert_int_equal(str.size, 0);
        assert_int_equal(meter_reader_left(&reader), 0);
    }
    meter_reader_init(&reader, data, 3);
    assert_int_equal(meter_get_u32(&reader), 0);
    assert_true(reader.failed);
    meter_reader_init(&reader, data, 1);
    assert_int_equal(meter_get_u16(&reader), 0);
    assert_true(reader.failed);
}


static void
reader__huge_sizes__do_not_wrap(void **state)
{
    static const uint8_t data[8];
    struct meter_reader reader;
    struct meter_str str;

    (void)state;
    meter_reader_init(&reader, data, sizeof(data));
    (void)meter_get_u32(&reader);
    str = meter_get_bytes(&reader, SIZE_MAX);
    assert_true(reader.failed);
    assert_null(str.data);
    assert_int_equal(str.size, 0);

    meter_reader_init(&reader, data, sizeof(data));
    (void)meter_get_u32(&reader);
    (void)meter_get_bytes(&reader, SIZE_MAX - 3);
    assert_true(reader.failed);
}


static void
reader__no_bytes_at_all__gives_empty_strings(void **state)
{
    struct meter_reader reader;

    (void)state;
    meter_reader_init(&reader, NULL, 0);
    assert_int_equal(meter_get_bytes(&reader, 0).size, 0);
    assert_false(reader.failed);
    assert_int_equal(meter_get_u8(&reader), 0);
    assert_true(reader.failed);
}


static void
writer__full__drops_and_stays_failed(void **state)
{
    uint8_t data[8] = {0};
    struct meter_writer writer;

    (void)state;
    meter_writer_init(&writer, data, 5);
    meter_put_u32(&writer, 0x11111111);
    meter_put_u16(&writer, 0x2222);
    assert_true(writer.failed);
    assert_int_equal(writer.at, 4);
    meter_put_u8(&writer, 0x33); /* would fit */
    assert_int_equal(writer.at, 4);
    assert_hex_equal(data, 8, "1111111100000000");

    meter_writer_init(&writer, data, 8);
    meter_put_bytes(&writer, data, SIZE_MAX);
    assert_true(writer.failed);
    meter_writer_init(&writer, data, 8);
    meter_put_zeros(&writer, 9);
    assert_true(writer.failed);
    meter_writer_init(&writer, NULL, 0);
    meter_put_bytes(&writer, NULL, 0);
    meter_put_zeros(&writer, 0);
    assert_false(writer.failed);
    meter_put_u8(&writer, 1);
    assert_true(writer.failed);
}


static void
put_str__sizes_around_the_room__fits_or_fails(void **state)
{
    uint8_t data[16];
    struct meter_writer writer;

    (void)state;
    for (size_t room = 0; room <= sizeof(data); room++) {
        meter_writer_init(&writer, data, room);
        meter_put_str(&writer, METER_STR("12345678"));
        assert_int_equal(writer.failed, room < 12);
    }
    if (SIZE_MAX > UINT32_MAX) {
        struct meter_str huge = {(const char *)data, (size_t)UINT32_MAX + 1};

        meter_writer_init(&writer, data, sizeof(data));
        meter_put_str(&writer, huge);
        assert_true(writer.failed);
    }
}


static void
json_escaped__every_byte__has_its_one_form(void **state)
{
    static const struct {
        const char *byte;
        const char *escaped;
    } cases[] = {
        {"\"", "\\\""},      {"\\", "\\\\"},
        {"\b", "\\b"},       {"\f", "\\f"},
        {"\n", "\\n"},       {"\r", "\\r"},
        {"\t", "\\t"},       {"\x01", "\\u0001"},
        {"\x0b", "\\u000b"}, {"\x1f", "\\u001f"},
        {" ", " "},          {"/", "/"},
        {"\x7f", "\x7f"},    {"\xc3\xa4", "\xc3\xa4"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[16];
        struct meter_writer writer;

        meter_writer_init(&writer, out, sizeof(out));
        meter_put_json_escaped(&writer, str_of(cases[i].byte));
        assert_int_equal(writer.at, strlen(cases[i].escaped));
        assert_memory_equal(out, cases[i].escaped, writer.at);
    }
}


static void
json_escaped__mixed_text_and_nul__runs_are_kept(void **state)
{
    static const char text[] = "ab\"cd\0ef\n";
    char out[6 * sizeof(text)];
    struct meter_writer writer;

    (void)state;
    meter_writer_init(&writer, out, sizeof(out));
    meter_put_json_escaped(&writer, (struct meter_str){text, sizeof(text) - 1});
    assert_int_equal(writer.at, strlen("ab\\\"cd\\u0000ef\\n"));
    assert_memory_equal(out, "ab\\\"cd\\u0000ef\\n", writer.at);
}


static void
json_escaped__cut_anywhere__gives_the_same_bytes(void **state)
{
    struct meter_random random = {42};

    (void)state;
    for (int round = 0; round < 2000; round++) {
        char text[40], whole[240], pieces[240];
        struct meter_writer one, two;
        size_t size = random_below(&random, sizeof(text) + 1);
        size_t cut = random_below(&random, size + 1);

        for (size_t i = 0; i < size; i++) {
            text[i] = (char)random_below(&random, 128);
        }
        meter_writer_init(&one, whole, sizeof(whole));
        meter_put_json_escaped(&one, (struct meter_str){text, size});
        meter_writer_init(&two, pieces, sizeof(pieces));
        meter_put_json_escaped(&two, (struct meter_str){text, cut});
        meter_put_json_escaped(&two,
                               (struct meter_str){text + cut, size - cut});
        assert_false(one.failed);
        assert_int_equal(one.at, two.at);
        if (one.at > 0) {
            assert_memory_equal(whole, pieces, one.at);
        }
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(writer__every_size__is_little_endian),
    cmocka_unit_test(reader__what_the_writer_wrote__comes_back),
    cmocka_unit_test(reader__one_byte_short__fails_and_stays_failed),
    cmocka_unit_test(reader__huge_sizes__do_not_wrap),
    cmocka_unit_test(reader__no_bytes_at_all__gives_empty_strings),
    cmocka_unit_test(writer__full__drops_and_stays_failed),
    cmocka_unit_test(put_str__sizes_around_the_room__fits_or_fails),
    cmocka_unit_test(json_escaped__every_byte__has_its_one_form),
    cmocka_unit_test(json_escaped__mixed_text_and_nul__runs_are_kept),
    cmocka_unit_test(json_escaped__cut_anywhere__gives_the_same_bytes),
};

RUN_TAP(tests)
