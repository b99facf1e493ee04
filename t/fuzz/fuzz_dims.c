/*
 * fuzz_dims.c - dimension sets: order-free, injective.
 *
 * The input describes two sets. Oracle: the key is the digest of the
 * encoding; reversing or rotating a set before sorting changes nothing;
 * null dimensions change nothing; two sets have equal encodings and keys
 * exactly when they hold the same named, typed values; the JSON form ends
 * inside its bound.
 *
 *   repeated: u8 (bit 7: second set; bits 0-1: kind; bits 2-4: name size;
 *   bits 5-6: value size), name, value
 */

#include "fuzz_check.h"

#include "meter_dims.h"

enum { COUNT_MAX = METER_DIMENSION_COUNT_MAX, ROOM = 4096 };

struct set {
    struct meter_dim dims[COUNT_MAX];
    size_t count;
};


static void
read_sets(const uint8_t *data, size_t size, struct set sets[2])
{
    struct meter_reader reader;

    sets[0].count = sets[1].count = 0;
    meter_reader_init(&reader, data, size);
    while (meter_reader_left(&reader) > 0) {
        uint8_t head = meter_get_u8(&reader);
        struct set *set = &sets[head >> 7];
        struct meter_dim dim;

        dim.kind = (enum meter_dim_kind)(head & 3);
        dim.name = meter_get_bytes(&reader, head >> 2 & 7);
        dim.value = meter_get_bytes(&reader, head >> 5 & 3);
        if (reader.failed || set->count == COUNT_MAX) {
            return;
        }
        set->dims[set->count++] = dim;
    }
}


static size_t
encode(const struct set *set, uint8_t *out)
{
    uint8_t key[METER_DIGEST_SIZE], digest[METER_DIGEST_SIZE];
    struct meter_writer writer;

    meter_writer_init(&writer, out, ROOM);
    meter_dims_encode(set->dims, set->count, &writer);
    FUZZ_CHECK(!writer.failed);
    meter_sha256(out, writer.at, digest);
    meter_dims_key(set->dims, set->count, key);
    FUZZ_CHECK(memcmp(key, digest, sizeof(key)) == 0);
    return writer.at;
}


static void
check_order_free(const struct set *sorted, const uint8_t *encoding, size_t size)
{
    struct set other = *sorted;
    uint8_t again[ROOM];

    for (size_t i = 0; i < sorted->count; i++) {
        other.dims[i] = sorted->dims[sorted->count - 1 - i];
    }
    FUZZ_CHECK(meter_dims_sort(other.dims, other.count));
    FUZZ_CHECK(encode(&other, again) == size);
    FUZZ_CHECK(memcmp(again, encoding, size) == 0);
    for (size_t i = 0; i < sorted->count; i++) {
        other.dims[i] = sorted->dims[(i + sorted->count / 2) % sorted->count];
    }
    FUZZ_CHECK(meter_dims_sort(other.dims, other.count));
    FUZZ_CHECK(encode(&other, again) == size);
    FUZZ_CHECK(memcmp(again, encoding, size) == 0);
}


static void
drop_nulls(struct set *set)
{
    size_t kept = 0;

    for (size_t i = 0; i < set->count; i++) {
        if (set->dims[i].kind != METER_DIM_NULL) {
            set->dims[kept++] = set->dims[i];
        }
    }
    set->count = kept;
}


/* Field by field; both sets sorted and without nulls. */
static bool
same(const struct set *a, const struct set *b)
{
    if (a->count != b->count) {
        return false;
    }
    for (size_t i = 0; i < a->count; i++) {
        if (a->dims[i].kind != b->dims[i].kind ||
            !meter_str_equal(a->dims[i].name, b->dims[i].name) ||
            !meter_str_equal(a->dims[i].value, b->dims[i].value)) {
            return false;
        }
    }
    return true;
}


static void
check_json(const struct set *set)
{
    char text[ROOM];
    struct meter_writer writer;

    meter_writer_init(&writer, text, sizeof(text));
    meter_dims_json(set->dims, set->count, &writer);
    FUZZ_CHECK(!writer.failed && writer.at >= 2);
    FUZZ_CHECK(text[0] == '{' && text[writer.at - 1] == '}');
    for (size_t i = 0; i < writer.at; i++) {
        bool raw = false; /* numbers and booleans are not escaped */

        for (size_t j = 0; j < set->count; j++) {
            raw |= set->dims[j].kind == METER_DIM_NUMBER ||
                   set->dims[j].kind == METER_DIM_BOOL;
        }
        FUZZ_CHECK(raw || (uint8_t)text[i] >= 0x20);
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t encodings[2][ROOM], again[ROOM];
    size_t sizes[2];
    struct set sets[2];

    read_sets(data, size, sets);
    for (int i = 0; i < 2; i++) {
        struct set *set = &sets[i];
        bool distinct = true;

        for (size_t j = 0; j < set->count; j++) {
            for (size_t k = j + 1; k < set->count; k++) {
                distinct &=
                    !meter_str_equal(set->dims[j].name, set->dims[k].name);
            }
        }
        FUZZ_CHECK(meter_dims_sort(set->dims, set->count) == distinct);
        if (!distinct) {
            return 0;
        }
        for (size_t j = 1; j < set->count; j++) {
            FUZZ_CHECK(meter_str_compare(set->dims[j - 1].name,
                                         set->dims[j].name) < 0);
        }
        sizes[i] = encode(set, encodings[i]);
        check_order_free(set, encodings[i], sizes[i]);
        check_json(set);
        drop_nulls(set);
        FUZZ_CHECK(encode(set, again) == sizes[i]);
        FUZZ_CHECK(memcmp(again, encodings[i], sizes[i]) == 0);
    }
    FUZZ_CHECK(same(&sets[0], &sets[1]) ==
               (sizes[0] == sizes[1] &&
                memcmp(encodings[0], encodings[1], sizes[0]) == 0));
    return 0;
}
