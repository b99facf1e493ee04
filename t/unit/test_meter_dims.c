#include "meter_cmocka.h"

#include "meter_dims.h"
#include "meter_random.h"

#define DIM(name, kind, value)                        \
    {                                                 \
        {(name), sizeof(name) - 1}, METER_DIM_##kind, \
        {                                             \
            (value), sizeof(value) - 1                \
        }                                             \
    }


static void
key__frozen_vectors__match(void **state)
{
    struct meter_dim one[] = {DIM("route", STRING, "/v1/x")};
    struct meter_dim three[] = {
        DIM("status", NUMBER, "200"),
        DIM("route", STRING, "/v1/x"),
        DIM("cached", BOOL, "true"),
    };
    struct meter_dim number[] = {DIM("n", NUMBER, "1")};
    struct meter_dim string[] = {DIM("n", STRING, "1")};
    uint8_t key[METER_DIGEST_SIZE];

    (void)state;
    meter_dims_key(NULL, 0, key);
    assert_hex_equal(
        key, 32,
        "4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a");
    meter_dims_key(one, 1, key);
    assert_hex_equal(
        key, 32,
        "64b57e921c80fd89dbd75d118d9e133a92888db72b615006004f0b840bddc92b");
    assert_true(meter_dims_sort(three, 3));
    meter_dims_key(three, 3, key);
    assert_hex_equal(
        key, 32,
        "fe56ff7b1a0ae10471ec0aa8d330cf79183852ea9d37de5bb5786cb2a0219d57");
    meter_dims_key(number, 1, key);
    assert_hex_equal(
        key, 32,
        "09fdc3dde5bc108e8acf2017e3accc3c17296393b9e5bdc3a96b554415f4c1c2");
    meter_dims_key(string, 1, key);
    assert_hex_equal(
        key, 32,
        "0fb14ec2348629649677ddeedc137a6ddba3ae0c798f7ebe7f7114bddfcccbfb");
}


static void
key__most_and_largest_dimensions__match(void **state)
{
    static char names[16][128], values[16][1024];
    struct meter_dim dims[16];
    uint8_t key[METER_DIGEST_SIZE];

    (void)state;
    for (int i = 0; i < 16; i++) {
        int slot = 15 - i; /* in reverse order */

        memset(names[i], 'a' + i, sizeof(names[i]));
        memset(values[i], 'A' + i, sizeof(values[i]));
        dims[slot].name = (struct meter_str){names[i], sizeof(names[i])};
        dims[slot].kind = METER_DIM_STRING;
        dims[slot].value = (struct meter_str){values[i], sizeof(values[i])};
    }
    assert_true(meter_dims_sort(dims, 16));
    meter_dims_key(dims, 16, key);
    assert_hex_equal(
        key, 32,
        "2e73e3838a610b6ddf328c08444b0bb8bd5be3f0bbbcfaddc75c1a0508f41f83");
}


static void
encode__frozen_bytes__match(void **state)
{
    struct meter_dim dims[] = {
        DIM("status", NUMBER, "200"),
        DIM("gone", NULL, ""),
        DIM("route", STRING, "/v1/x"),
        DIM("cached", BOOL, "true"),
    };
    uint8_t data[128];
    struct meter_writer writer;

    (void)state;
    assert_true(meter_dims_sort(dims, 4));
    meter_writer_init(&writer, data, sizeof(data));
    meter_dims_encode(dims, 4, &writer);
    assert_false(writer.failed);
    assert_hex_equal(data, writer.at,
                     "01"
                     "06000000636163686564"
                     "03"
                     "0400000074727565"
                     "05000000726f757465"
                     "01"
                     "050000002f76312f78"
                     "06000000737461747573"
                     "02"
                     "03000000323030");
    meter_writer_init(&writer, data, 10);
    meter_dims_encode(dims, 4, &writer);
    assert_true(writer.failed);
}


static void
key__null_and_missing__are_the_same(void **state)
{
    struct meter_dim with[] = {DIM("a", NULL, ""), DIM("b", STRING, "x"),
                               DIM("c", NULL, "ignored")};
    struct meter_dim without[] = {DIM("b", STRING, "x")};
    struct meter_dim empty[] = {DIM("a", STRING, ""), DIM("b", STRING, "x")};
    uint8_t key_with[32], key_without[32], key_empty[32];

    (void)state;
    meter_dims_key(with, 3, key_with);
    meter_dims_key(without, 1, key_without);
    meter_dims_key(empty, 2, key_empty);
    assert_memory_equal(key_with, key_without, 32);
    assert_memory_not_equal(key_empty, key_without, 32);
}


static void
key__moved_boundaries__differ(void **state)
{
    struct meter_dim a[] = {DIM("ab", STRING, "c")};
    struct meter_dim b[] = {DIM("a", STRING, "bc")};
    struct meter_dim c[] = {DIM("a", STRING, "x"), DIM("b", STRING, "y")};
    struct meter_dim d[] = {DIM("a", STRING, "x\x01\0\0\0b\x01\x01\0\0\0y")};
    uint8_t keys[4][32];

    (void)state;
    meter_dims_key(a, 1, keys[0]);
    meter_dims_key(b, 1, keys[1]);
    meter_dims_key(c, 2, keys[2]);
    meter_dims_key(d, 1, keys[3]);
    for (int i = 0; i < 4; i++) {
        for (int j = i + 1; j < 4; j++) {
            assert_memory_not_equal(keys[i], keys[j], 32);
        }
    }
}


static void
sort__equal_names__is_refused_and_keeps_all(void **state)
{
    struct meter_dim dims[] = {DIM("b", STRING, "1"), DIM("a", STRING, "2"),
                               DIM("c", STRING, "3"), DIM("a", NUMBER, "4")};
    int seen = 0;

    (void)state;
    assert_false(meter_dims_sort(dims, 4));
    for (int i = 0; i < 4; i++) {
        seen |= 1 << (dims[i].value.data[0] - '1');
    }
    assert_int_equal(seen, 15);
    assert_true(meter_dims_sort(dims, 0));
    assert_true(meter_dims_sort(dims, 1));
}


static void
sort__prefixes_and_high_bytes__bytewise(void **state)
{
    struct meter_dim dims[] = {DIM("\xc3\xa4", STRING, ""),
                               DIM("b", STRING, ""), DIM("aa", STRING, ""),
                               DIM("a", STRING, ""), DIM("B", STRING, "")};
    static const char *const order[] = {"B", "a", "aa", "b", "\xc3\xa4"};

    (void)state;
    assert_true(meter_dims_sort(dims, 5));
    for (int i = 0; i < 5; i++) {
        assert_true(meter_str_equal(dims[i].name, str_of(order[i])));
    }
}


static void
json__all_kinds__is_canonical(void **state)
{
    struct meter_dim dims[] = {
        DIM("a\"", STRING, "x\n\x01\\"),
        DIM("b", NUMBER, "1.5"),
        DIM("c", NULL, ""),
        DIM("d", BOOL, "false"),
        DIM("\xc3\xa4", STRING, ""),
    };
    char text[128];
    struct meter_writer writer;

    (void)state;
    meter_writer_init(&writer, text, sizeof(text));
    meter_dims_json(dims, 5, &writer);
    assert_false(writer.failed);
    text[writer.at] = '\0';
    assert_string_equal(text, "{\"a\\\"\":\"x\\n\\u0001\\\\\",\"b\":1.5,"
                              "\"c\":null,\"d\":false,\"\xc3\xa4\":\"\"}");
    meter_writer_init(&writer, text, sizeof(text));
    meter_dims_json(NULL, 0, &writer);
    assert_int_equal(writer.at, 2);
    assert_memory_equal(text, "{}", 2);
}


/* ---- properties over random sets --------------------------------------- */

enum { SETS = 100000, DIMS_MAX = 4, TEXT_MAX = 3 };

struct random_set {
    struct meter_dim dims[DIMS_MAX];
    char names[DIMS_MAX][TEXT_MAX];
    char values[DIMS_MAX][TEXT_MAX];
    size_t count;
};

/* A tiny alphabet, so that equal and nearly equal sets are common. */
static void
random_set_make(struct meter_random *random, struct random_set *set)
{
    do {
        set->count = random_below(random, DIMS_MAX + 1);
        for (size_t i = 0; i < set->count; i++) {
            struct meter_dim *dim = &set->dims[i];
            size_t name_size = random_below(random, TEXT_MAX + 1);
            size_t value_size = random_below(random, TEXT_MAX + 1);

            for (size_t j = 0; j < TEXT_MAX; j++) {
                set->names[i][j] = (char)random_below(random, 3);
                set->values[i][j] = (char)random_below(random, 3);
            }
            dim->name = (struct meter_str){set->names[i], name_size};
            dim->value = (struct meter_str){set->values[i], value_size};
            dim->kind = (enum meter_dim_kind)random_below(random, 4);
        }
    } while (!meter_dims_sort(set->dims, set->count));
}


/* An injective text of the set, made without the encoder: for the oracle. */
static size_t
random_set_text(const struct random_set *set, char *out)
{
    char *at = out;

    for (size_t i = 0; i < set->count; i++) {
        const struct meter_dim *dim = &set->dims[i];

        if (dim->kind == METER_DIM_NULL) {
            continue;
        }
        for (size_t j = 0; j < dim->name.size; j++) {
            *at++ = (char)('a' + dim->name.data[j]);
        }
        *at++ = "?=#!"[dim->kind];
        for (size_t j = 0; j < dim->value.size; j++) {
            *at++ = (char)('a' + dim->value.data[j]);
        }
        *at++ = ';';
    }
    *at = '\0';
    return (size_t)(at - out);
}


struct keyed {
    uint8_t key[METER_DIGEST_SIZE];
    char text[DIMS_MAX * (2 * TEXT_MAX + 2) + 1];
};

static int
by_key(const void *a, const void *b)
{
    return memcmp(a, b, METER_DIGEST_SIZE);
}

static int
by_text(const void *a, const void *b)
{
    return strcmp(((const struct keyed *)a)->text,
                  ((const struct keyed *)b)->text);
}


static void
key__random_sets__injective_and_equal_to_the_encoding_digest(void **state)
{
    struct meter_random random = {9};
    struct keyed *all = malloc(SETS * sizeof(*all));
    int equal = 0;

    (void)state;
    for (int i = 0; i < SETS; i++) {
        struct random_set set;
        struct meter_writer writer;
        uint8_t encoding[128], digest[METER_DIGEST_SIZE];

        random_set_make(&random, &set);
        meter_dims_key(set.dims, set.count, all[i].key);
        random_set_text(&set, all[i].text);
        meter_writer_init(&writer, encoding, sizeof(encoding));
        meter_dims_encode(set.dims, set.count, &writer);
        assert_false(writer.failed);
        meter_sha256(encoding, writer.at, digest);
        assert_memory_equal(digest, all[i].key, sizeof(digest));
    }
    /* Equal keys only for equal sets ... */
    qsort(all, SETS, sizeof(*all), by_key);
    for (int i = 1; i < SETS; i++) {
        if (by_key(&all[i - 1], &all[i]) == 0) {
            assert_string_equal(all[i - 1].text, all[i].text);
            equal++;
        }
    }
    /* ... and for all of them. */
    qsort(all, SETS, sizeof(*all), by_text);
    for (int i = 1; i < SETS; i++) {
        if (by_text(&all[i - 1], &all[i]) == 0) {
            assert_memory_equal(all[i - 1].key, all[i].key, 32);
            equal--;
        }
    }
    assert_int_equal(equal, 0);
    free(all);
}


static void
key__random_order__is_the_same(void **state)
{
    struct meter_random random = {10};

    (void)state;
    for (int i = 0; i < SETS; i++) {
        struct random_set set;
        uint8_t before[32], after[32];

        random_set_make(&random, &set);
        meter_dims_key(set.dims, set.count, before);
        for (size_t j = set.count; j > 1; j--) {
            size_t k = random_below(&random, j);
            struct meter_dim swapped = set.dims[j - 1];

            set.dims[j - 1] = set.dims[k];
            set.dims[k] = swapped;
        }
        assert_true(meter_dims_sort(set.dims, set.count));
        meter_dims_key(set.dims, set.count, after);
        assert_memory_equal(before, after, 32);
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(key__frozen_vectors__match),
    cmocka_unit_test(key__most_and_largest_dimensions__match),
    cmocka_unit_test(encode__frozen_bytes__match),
    cmocka_unit_test(key__null_and_missing__are_the_same),
    cmocka_unit_test(key__moved_boundaries__differ),
    cmocka_unit_test(sort__equal_names__is_refused_and_keeps_all),
    cmocka_unit_test(sort__prefixes_and_high_bytes__bytewise),
    cmocka_unit_test(json__all_kinds__is_canonical),
    cmocka_unit_test(
        key__random_sets__injective_and_equal_to_the_encoding_digest),
    cmocka_unit_test(key__random_order__is_the_same),
};

RUN_TAP(tests)
