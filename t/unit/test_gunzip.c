/*
 * gzip bodies: whole ones of any kind, and everything that is none.
 */

#include "gzip_fixture.h"

#define SIZE_MAX_HERE ((size_t)1 << 20)

static struct buf packed;
static const char *error;
static size_t steps;

static int
setup(void **state)
{
    (void)state;
    buf_init(&packed, 64 << 20);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    buf_fini(&packed);
    return 0;
}

/* The bytes are in heap memory of their exact size: ASan sees any step. */
static enum gunzip_result
unpack(struct meter_str bytes, size_t size_max, struct buf *out)
{
    char *copy = malloc(bytes.size + (bytes.size == 0));
    enum gunzip_result result;
    struct gunzip *gunzip;

    memcpy(copy, bytes.data, bytes.size);
    gunzip = gunzip_create((struct meter_str){copy, bytes.size}, size_max);
    assert_non_null(gunzip);
    steps = 0;
    do {
        result = gunzip_step(gunzip);
        steps++;
    } while (result == GUNZIP_MORE);
    error = result == GUNZIP_BAD ? gunzip_error(gunzip) : NULL;
    buf_init(out, size_max);
    if (result == GUNZIP_DONE) {
        gunzip_take(gunzip, out);
        assert_int_equal(out->size_max, size_max);
        assert_int_equal(out->room, out->size);
    }
    gunzip_destroy(gunzip);
    free(copy);
    return result;
}

static void
assert_unpacks(const void *data, size_t size)
{
    struct buf out;

    assert_int_equal(unpack(buf_str(&packed), SIZE_MAX_HERE, &out),
                     GUNZIP_DONE);
    assert_int_equal(out.size, size);
    assert_true(size == 0 || memcmp(out.data, data, size) == 0);
    buf_fini(&out);
}

static void
assert_bad(struct meter_str bytes, const char *fragment)
{
    struct buf out;

    assert_int_equal(unpack(bytes, SIZE_MAX_HERE, &out), GUNZIP_BAD);
    assert_non_null(error);
    if (strstr(error, fragment) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", fragment, error);
    }
    buf_fini(&out);
}

static void
step__bodies_of_every_size__come_out_again(void **state)
{
    static const size_t sizes[] = {0,
                                   1,
                                   100,
                                   GUNZIP_STEP_IN,
                                   GUNZIP_STEP_OUT - 1,
                                   GUNZIP_STEP_OUT,
                                   GUNZIP_STEP_OUT + 1,
                                   4 * GUNZIP_STEP_OUT,
                                   SIZE_MAX_HERE - 1,
                                   SIZE_MAX_HERE};
    char *bytes = noise(SIZE_MAX_HERE);

    (void)state;
    for (int level = 0; level <= 9; level += 3) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            buf_reset(&packed);
            gzip_put(&packed, bytes, sizes[i], level);
            assert_unpacks(bytes, sizes[i]);
        }
    }
    memset(bytes, ' ', SIZE_MAX_HERE);
    buf_reset(&packed);
    gzip_put(&packed, bytes, SIZE_MAX_HERE, 9);
    assert_unpacks(bytes, SIZE_MAX_HERE);
    free(bytes);
}

static void
step__one_byte_more_than_allowed__is_large(void **state)
{
    char *bytes = noise(SIZE_MAX_HERE + 1);
    struct buf out;

    (void)state;
    gzip_put(&packed, bytes, SIZE_MAX_HERE + 1, 6);
    assert_int_equal(unpack(buf_str(&packed), SIZE_MAX_HERE, &out),
                     GUNZIP_LARGE);
    buf_reset(&packed);
    gzip_put(&packed, "ab", 2, 6);
    assert_int_equal(unpack(buf_str(&packed), 1, &out), GUNZIP_LARGE);
    assert_int_equal(unpack(buf_str(&packed), 2, &out), GUNZIP_DONE);
    buf_fini(&out);
    free(bytes);
}

/* 32 MiB of zeros in 32 KiB: it stops at the bound, not at the end. */
static void
step__bomb__stops_at_the_bound(void **state)
{
    size_t size = (size_t)32 << 20;
    char *zeros = calloc(1, size);
    struct buf out;

    (void)state;
    gzip_put(&packed, zeros, size, 9);
    assert_true(packed.size < 64 << 10);
    assert_int_equal(unpack(buf_str(&packed), SIZE_MAX_HERE, &out),
                     GUNZIP_LARGE);
    assert_true(steps <= SIZE_MAX_HERE / GUNZIP_STEP_OUT + 1);
    free(zeros);
}

/* No step does more than its share, also where nothing comes out. */
static void
step__many_empty_members__take_many_steps(void **state)
{
    struct buf out;

    (void)state;
    while (packed.size < 8 * GUNZIP_STEP_IN) {
        gzip_put(&packed, "", 0, 6);
    }
    assert_int_equal(unpack(buf_str(&packed), SIZE_MAX_HERE, &out),
                     GUNZIP_DONE);
    assert_int_equal(out.size, 0);
    assert_true(steps >= 8);
    buf_fini(&out);
}

static void
step__much_comes_out__takes_many_steps(void **state)
{
    char *zeros = calloc(1, SIZE_MAX_HERE);
    struct buf out;

    (void)state;
    gzip_put(&packed, zeros, SIZE_MAX_HERE, 9);
    assert_int_equal(unpack(buf_str(&packed), SIZE_MAX_HERE, &out),
                     GUNZIP_DONE);
    assert_true(steps >= SIZE_MAX_HERE / GUNZIP_STEP_OUT);
    buf_fini(&out);
    free(zeros);
}

static void
step__members_one_behind_the_other__are_one_body(void **state)
{
    char *bytes = noise(SIZE_MAX_HERE);
    size_t at = 0;

    (void)state;
    for (size_t size = 1; at + size <= SIZE_MAX_HERE; size *= 3) {
        gzip_put(&packed, bytes + at, size, 6);
        gzip_put(&packed, "", 0, 6);
        at += size;
    }
    assert_unpacks(bytes, at);
    free(bytes);
}

/* Every length but the last. */
static void
step__cut_off__is_bad(void **state)
{
    static const char text[] = "{\"event_id\":\"a\",\"type\":\"b\"}";

    (void)state;
    gzip_put(&packed, text, sizeof(text), 6);
    for (size_t size = 0; size < packed.size; size++) {
        assert_bad((struct meter_str){packed.data, size}, "is cut off");
    }
    assert_unpacks(text, sizeof(text));
}

/* Cut behind a whole member, inside of the next one. */
static void
step__second_member_cut_off__is_bad(void **state)
{
    size_t first;

    (void)state;
    gzip_put(&packed, "abc", 3, 6);
    first = packed.size;
    gzip_put(&packed, "def", 3, 6);
    for (size_t size = first + 1; size < packed.size; size++) {
        assert_bad((struct meter_str){packed.data, size}, "is cut off");
    }
}

/* Any bit of data, checksum or size. The head has bits that mean nothing. */
static void
step__damaged__is_bad(void **state)
{
    static const char text[] = "{\"event_id\":\"a\",\"type\":\"b\"}";
    struct buf out;

    (void)state;
    gzip_put(&packed, text, sizeof(text), 6);
    for (size_t bit = 10 * 8; bit < packed.size * 8; bit++) {
        packed.data[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(unpack(buf_str(&packed), SIZE_MAX_HERE, &out),
                         GUNZIP_BAD);
        packed.data[bit / 8] ^= (char)(1 << bit % 8);
    }
}

static void
step__bytes_behind_the_body__are_bad(void **state)
{
    static const char *const tails[] = {
        "x", "\n", "{}", "\x1f", "\x1f\x8b", "\x1f\x8bxxxxxxxxxxxxxxxxxxxxxx"};

    (void)state;
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        buf_reset(&packed);
        gzip_put(&packed, "abc", 3, 6);
        buf_put_text(&packed, tails[i]);
        assert_bad(buf_str(&packed), tails[i][0] != 0x1f ? "behind" : "gzip");
    }
    buf_reset(&packed);
    gzip_put(&packed, "abc", 3, 6);
    buf_put_byte(&packed, 0);
    assert_bad(buf_str(&packed), "behind");
}

/* The tail comes in a piece of its own. */
static void
step__bytes_behind_a_whole_piece__are_bad(void **state)
{
    char *bytes = noise(2 * GUNZIP_STEP_IN);

    (void)state;
    for (size_t size = GUNZIP_STEP_IN - 64; size < GUNZIP_STEP_IN; size++) {
        buf_reset(&packed);
        gzip_put(&packed, bytes, size, 0);
        assert_unpacks(bytes, size);
        buf_put_byte(&packed, 'x');
        assert_bad(buf_str(&packed), "behind");
    }
    free(bytes);
}

static void
step__no_gzip__is_bad(void **state)
{
    static const char zlib_form[] = "\x78\x9c\x4b\x4c\x4a\x06\x00\x02\x4d\x01"
                                    "\x27";

    (void)state;
    assert_bad(METER_STR(""), "cut off");
    assert_bad(METER_STR("[]"), "not gzip");
    assert_bad(METER_STR("{\"event_id\":\"a\"}"), "not gzip");
    assert_bad((struct meter_str){zlib_form, sizeof(zlib_form) - 1},
               "not gzip");
    assert_bad(METER_STR("PK\x03\x04"), "not gzip");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(step__bodies_of_every_size__come_out_again),
    TEST(step__one_byte_more_than_allowed__is_large),
    TEST(step__bomb__stops_at_the_bound),
    TEST(step__many_empty_members__take_many_steps),
    TEST(step__much_comes_out__takes_many_steps),
    TEST(step__members_one_behind_the_other__are_one_body),
    TEST(step__cut_off__is_bad),
    TEST(step__second_member_cut_off__is_bad),
    TEST(step__damaged__is_bad),
    TEST(step__bytes_behind_the_body__are_bad),
    TEST(step__bytes_behind_a_whole_piece__are_bad),
    TEST(step__no_gzip__is_bad),
};

RUN_TAP(tests)
