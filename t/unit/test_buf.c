#include "meter_cmocka.h"

#include "base/buf.h"
#include "meter_random.h"

static void
assert_buf(const struct buf *buf, const char *expected)
{
    assert_false(buf->failed);
    assert_int_equal(buf->size, strlen(expected));
    assert_memory_equal(buf->data, expected, buf->size);
}

static void
put__pieces__come_one_behind_the_other(void **state)
{
    struct buf buf;

    (void)state;
    buf_init(&buf, 1 << 20);
    buf_put(&buf, "ab", 2);
    buf_put(&buf, NULL, 0);
    buf_put_byte(&buf, 'c');
    buf_put_text(&buf, "");
    buf_put_text(&buf, "de");
    buf_put_str(&buf, METER_STR("fg"));
    buf_put_str(&buf, (struct meter_str){NULL, 0});
    buf_printf(&buf, "%d-%s", 12, "x");
    buf_put_int(&buf, -7);
    assert_buf(&buf, "abcdefg12-x-7");
    buf_reset(&buf);
    assert_int_equal(buf.size, 0);
    buf_put_int(&buf, 0);
    assert_buf(&buf, "0");
    buf_fini(&buf);
}

static void
fit__room_beyond_the_bytes__is_given_back(void **state)
{
    struct buf buf;

    (void)state;
    buf_init(&buf, 1 << 20);
    buf_fit(&buf);
    buf_put_text(&buf, "abc");
    assert_true(buf.room > 3);
    buf_fit(&buf);
    assert_int_equal(buf.room, 3);
    buf_put_text(&buf, "de");
    assert_buf(&buf, "abcde");
    buf_reset(&buf);
    buf_fit(&buf);
    assert_int_equal(buf.room, 0);
    buf_put_text(&buf, "f");
    assert_buf(&buf, "f");
    buf_fini(&buf);
}

static void
put_int__ends_of_64_bits__are_exact(void **state)
{
    struct buf buf;

    (void)state;
    buf_init(&buf, 1 << 20);
    buf_put_int(&buf, INT64_MIN);
    buf_put_byte(&buf, ' ');
    buf_put_int(&buf, INT64_MAX);
    assert_buf(&buf, "-9223372036854775808 9223372036854775807");
    buf_fini(&buf);
}

static void
put__past_the_maximum__fails_and_stays_failed(void **state)
{
    struct buf buf;

    (void)state;
    buf_init(&buf, 10);
    buf_put_text(&buf, "1234567890");
    assert_buf(&buf, "1234567890");
    buf_put_text(&buf, "");
    assert_false(buf.failed);
    buf_put_byte(&buf, 'x');
    assert_true(buf.failed);
    assert_null(buf.data);
    assert_int_equal(buf.size, 0);
    buf_put_text(&buf, "a");
    buf_printf(&buf, "%d", 1);
    assert_true(buf.failed);
    assert_null(buf_reserve(&buf, 1));
    buf_reset(&buf);
    buf_put_text(&buf, "a");
    assert_buf(&buf, "a");
    buf_fini(&buf);
}

static void
reserve_commit__writes_of_the_caller__are_kept(void **state)
{
    struct buf buf;
    char *room;

    (void)state;
    buf_init(&buf, 1000);
    buf_put_text(&buf, "head ");
    room = buf_reserve(&buf, 500);
    assert_non_null(room);
    memcpy(room, "tail", 4);
    buf_commit(&buf, 4);
    assert_buf(&buf, "head tail");
    assert_null(buf_reserve(&buf, 992));
    assert_true(buf.failed);
    buf_fini(&buf);
}

static void
consume__front__moves_the_rest(void **state)
{
    struct buf buf;

    (void)state;
    buf_init(&buf, 1000);
    buf_put_text(&buf, "abcdef");
    buf_consume(&buf, 0);
    buf_consume(&buf, 2);
    assert_buf(&buf, "cdef");
    buf_consume(&buf, 4);
    assert_int_equal(buf.size, 0);
    buf_consume(&buf, 0);
    buf_fini(&buf);
}

static void
buf__random_puts_and_consumes__as_a_plain_array(void **state)
{
    struct meter_random random = {3};
    static char model[200000];
    size_t size = 0;
    struct buf buf;

    (void)state;
    buf_init(&buf, sizeof(model));
    for (int turn = 0; turn < 20000; turn++) {
        char piece[300];
        size_t count = random_below(&random, sizeof(piece));

        if (random_below(&random, 3) == 0) {
            count = random_below(&random, size + 1);
            buf_consume(&buf, count);
            memmove(model, model + count, size - count);
            size -= count;
        } else if (size + count <= sizeof(model)) {
            memset(piece, (int)random_below(&random, 256), sizeof(piece));
            buf_put(&buf, piece, count);
            memcpy(model + size, piece, count);
            size += count;
        }
        assert_int_equal(buf.size, size);
        assert_true(buf.room <= sizeof(model));
        assert_true(size == 0 || memcmp(buf.data, model, size) == 0);
    }
    buf_fini(&buf);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(put__pieces__come_one_behind_the_other),
    cmocka_unit_test(fit__room_beyond_the_bytes__is_given_back),
    cmocka_unit_test(put_int__ends_of_64_bits__are_exact),
    cmocka_unit_test(put__past_the_maximum__fails_and_stays_failed),
    cmocka_unit_test(reserve_commit__writes_of_the_caller__are_kept),
    cmocka_unit_test(consume__front__moves_the_rest),
    cmocka_unit_test(buf__random_puts_and_consumes__as_a_plain_array),
};

RUN_TAP(tests)
