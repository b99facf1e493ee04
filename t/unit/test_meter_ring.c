#include "meter_cmocka.h"

#include "meter_random.h"
#include "meter_ring.h"
#include "record_fixture.h"


/* ---- ring header ------------------------------------------------------ */

static struct meter_ring_header
sample_header(void)
{
    struct meter_ring_header header = {
        .version = METER_RING_VERSION,
        .file_size = 65536,
        .record_offset = 8192,
        .record_size = 57344,
        .slot_count = 3,
        .cell_count = 2,
    };

    for (int i = 0; i < 16; i++) {
        header.session[i] = (uint8_t)i;
        header.boot_id[i] = (uint8_t)(16 + i);
    }
    return header;
}


static struct meter_str
put_header(const struct meter_ring_header *header, uint8_t *data)
{
    struct meter_writer writer;

    meter_writer_init(&writer, data, METER_RING_IDENTITY_SIZE);
    meter_ring_header_encode(header, &writer);
    assert_false(writer.failed);
    assert_int_equal(writer.at, METER_RING_IDENTITY_SIZE);
    return (struct meter_str){(char *)data, writer.at};
}


static void
header__frozen_bytes__match_and_come_back(void **state)
{
    struct meter_ring_header in = sample_header(), out;
    uint8_t data[METER_RING_IDENTITY_SIZE];
    struct meter_str bytes = put_header(&in, data);

    (void)state;
    assert_hex_equal(
        data, sizeof(data),
        "5245544d52524e470100000026d81ff5"
        "000102030405060708090a0b0c0d0e0f"
        "101112131415161718191a1b1c1d1e1f"
        "0000010000000000002000000000000000e0000000000000"
        "0300000002000000"
        "0000000000000000000000000000000000000000000000000000000000000000"
        "00000000000000000000000000000000");
    assert_true(meter_ring_header_decode(bytes, &out));
    assert_int_equal(out.version, 1);
    assert_memory_equal(out.session, in.session, 16);
    assert_memory_equal(out.boot_id, in.boot_id, 16);
    assert_int_equal(out.file_size, 65536);
    assert_int_equal(out.record_offset, 8192);
    assert_int_equal(out.record_size, 57344);
    assert_int_equal(out.slot_count, 3);
    assert_int_equal(out.cell_count, 2);
}


static void
header__every_bit_flip_and_cut__is_refused(void **state)
{
    struct meter_ring_header in = sample_header(), out;
    uint8_t data[METER_RING_IDENTITY_SIZE];
    struct meter_str bytes = put_header(&in, data);

    (void)state;
    for (size_t bit = 0; bit < 8 * sizeof(data); bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(meter_ring_header_decode(bytes, &out));
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t size = 0; size < sizeof(data); size++) {
        assert_false(meter_ring_header_decode(
            (struct meter_str){(char *)data, size}, &out));
    }
}


static void
header__layouts_that_cannot_be__are_refused(void **state)
{
    static const struct {
        uint64_t file_size, record_offset, record_size;
        bool valid;
    } cases[] = {
        {8192, 4096, 4096, true},
        {8191, 4096, 4096, false},
        {8192, 4088, 4096, false},
        {8192, 4096, 4088, false}, /* less than one record */
        {8200, 4104, 4096, true},
        {8200, 4100, 4096, false},
        {8200, 4096, 4100, false},
        {8192, UINT64_MAX - 7, 4096, false},
        {8192, 4096, UINT64_MAX - 7, false},
        {UINT64_MAX, UINT64_MAX - 4095 - 4096 + 4095, 4096, false},
        {0, 4096, 4096, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct meter_ring_header header = sample_header(), out;
        uint8_t data[METER_RING_IDENTITY_SIZE];

        header.file_size = cases[i].file_size;
        header.record_offset = cases[i].record_offset;
        header.record_size = cases[i].record_size;
        assert_int_equal(
            meter_ring_header_decode(put_header(&header, data), &out),
            cases[i].valid);
    }
}


static void
header__other_version__is_refused(void **state)
{
    struct meter_ring_header header = sample_header(), out;
    uint8_t data[METER_RING_IDENTITY_SIZE];

    (void)state;
    header.version = METER_RING_VERSION + 1;
    assert_false(meter_ring_header_decode(put_header(&header, data), &out));
    header.version = 0;
    assert_false(meter_ring_header_decode(put_header(&header, data), &out));
}


/* ---- recovery scan ---------------------------------------------------- */

enum { AREA = 4096, RECORDS_MAX = AREA / 24 + 1 };

struct laid_record {
    size_t offset;
    size_t size;
    uint64_t seq;
    struct meter_str body;
};

struct laid_ring {
    _Alignas(8) uint8_t area[AREA];
    size_t start; /* offset of the first live record */
    uint64_t first_seq;
    struct laid_record records[RECORDS_MAX];
    size_t count;
};

/* Appends as the worker does; false when the area has no room. */
static bool
lay(struct laid_ring *ring, size_t area_size, size_t *at, size_t *walked,
    struct meter_str body)
{
    size_t size = meter_record_size(body.size);
    size_t left = area_size - *at;
    uint64_t seq = ring->first_seq + ring->count;
    struct laid_record *record = &ring->records[ring->count];
    size_t skipped = size > left ? left : 0;

    if (*walked + skipped + size > area_size) {
        return false;
    }
    if (skipped >= METER_RING_RECORD_HEADER_SIZE) {
        struct meter_writer writer;

        meter_writer_init(&writer, ring->area + *at, skipped);
        meter_record_pad_encode(seq, skipped, &writer);
        assert_false(writer.failed);
    }
    if (skipped > 0) {
        *at = 0;
        *walked += skipped;
    }
    put_record(ring->area + *at, area_size - *at, seq, METER_RECORD_EVENT,
               body);
    *record = (struct laid_record){
        *at, size, seq, {(char *)ring->area + *at + 24, body.size}};
    *at += size;
    *walked += size;
    if (*at == area_size) {
        *at = 0;
    }
    ring->count++;
    return true;
}


/* A ring over the remains of an earlier lap, starting anywhere. */
static void
lay_random(struct meter_random *random, struct laid_ring *ring,
           size_t area_size)
{
    static char body[300];
    size_t at, walked = 0, wanted = random_below(random, 60);

    /* The earlier lap: whole records with older numbers everywhere. */
    at = 0;
    memset(ring->area, 0, area_size);
    for (uint64_t seq = 1; area_size - at >= 64; seq++) {
        at +=
            put_record(ring->area + at, area_size - at, seq, METER_RECORD_EVENT,
                       (struct meter_str){body, random_below(random, 40)});
    }
    for (size_t i = 0; i < sizeof(body); i++) {
        body[i] = (char)random_u64(random);
    }
    ring->count = 0;
    ring->first_seq = 1000 + random_below(random, 1000);
    ring->start = at = random_below(random, area_size / 8) * 8;
    while (
        ring->count < wanted &&
        lay(ring, area_size, &at, &walked,
            (struct meter_str){
                body, random_below(random,
                                   random_below(random, 4) == 0 ? 300 : 40)})) {
    }
}


struct visited {
    const struct laid_ring *ring;
    size_t count;
};

static void
check_visit(void *asker, const struct meter_record *record, size_t offset)
{
    struct visited *visited = asker;
    const struct laid_record *expected =
        &visited->ring->records[visited->count];

    assert_true(visited->count < visited->ring->count);
    assert_true(record->seq == expected->seq);
    assert_int_equal(offset, expected->offset);
    assert_ptr_equal(record->body.data, expected->body.data);
    assert_int_equal(record->body.size, expected->body.size);
    visited->count++;
}


static size_t
scan(const struct laid_ring *ring, size_t area_size)
{
    struct meter_ring_place place = {.offset = ring->start,
                                     .next_seq = ring->first_seq};
    struct visited visited = {ring, 0};

    assert_false(meter_ring_scan(ring->area, area_size, &place, SIZE_MAX,
                                 check_visit, &visited));
    assert_int_equal(place.next_seq - ring->first_seq, visited.count);
    return visited.count;
}


static size_t
random_area(struct meter_random *random)
{
    return 512 + random_below(random, (AREA - 512) / 8 + 1) * 8;
}


static void
scan__undamaged_random_rings__every_record_across_the_wrap(void **state)
{
    struct meter_random random = {15};
    static struct laid_ring ring;
    int wrapped = 0, full = 0;

    (void)state;
    for (int round = 0; round < 5000; round++) {
        size_t area_size = random_area(&random);

        lay_random(&random, &ring, area_size);
        assert_int_equal(scan(&ring, area_size), ring.count);
        for (size_t i = 1; i < ring.count; i++) {
            wrapped += ring.records[i].offset < ring.records[i - 1].offset;
        }
        full += ring.count > 0 && ring.count < 60;
    }
    assert_true(wrapped > 1000 && full > 1000);
}


static void
scan__one_bit_flipped__stops_at_that_record(void **state)
{
    struct meter_random random = {16};
    static struct laid_ring ring;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        size_t area_size = random_area(&random);
        size_t victim, bit;
        struct laid_record *record;

        lay_random(&random, &ring, area_size);
        if (ring.count == 0) {
            continue;
        }
        victim = random_below(&random, ring.count);
        record = &ring.records[victim];
        bit = random_below(&random, 8 * record->size);
        ring.area[record->offset + bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(scan(&ring, area_size), victim);
    }
}


static void
scan__record_torn_at_any_byte__stops_at_that_record(void **state)
{
    struct meter_random random = {17};
    static struct laid_ring ring;

    (void)state;
    for (int round = 0; round < 5000; round++) {
        size_t area_size = random_area(&random);
        size_t victim, cut;
        struct laid_record *record;
        uint8_t before[512];

        lay_random(&random, &ring, area_size);
        if (ring.count == 0) {
            continue;
        }
        victim = random_below(&random, ring.count);
        record = &ring.records[victim];
        memcpy(before, ring.area + record->offset, record->size);
        cut = random_below(&random, record->size);
        /* What was there before the write: zeros or an old body. */
        memset(ring.area + record->offset + cut,
               random_below(&random, 2) == 0 ? 0 : 0x5a, record->size - cut);
        if (memcmp(before, ring.area + record->offset, record->size) == 0) {
            victim = ring.count; /* only padding was cut */
        }
        assert_int_equal(scan(&ring, area_size), victim);
    }
}


static void
scan__damaged_pad__stops_before_the_wrap(void **state)
{
    struct meter_random random = {18};
    static struct laid_ring ring;
    int seen = 0;

    (void)state;
    for (int round = 0; round < 5000; round++) {
        size_t area_size = random_area(&random);

        lay_random(&random, &ring, area_size);
        for (size_t i = 1; i < ring.count; i++) {
            size_t pad = ring.records[i - 1].offset + ring.records[i - 1].size;
            size_t bit;

            if (ring.records[i].offset != 0 || area_size - pad < 24) {
                continue;
            }
            bit = random_below(&random, 8 * (area_size - pad));
            ring.area[pad + bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_int_equal(scan(&ring, area_size), i);
            seen++;
        }
    }
    assert_true(seen > 500);
}


static void
scan__pad_of_an_earlier_lap__is_not_followed(void **state)
{
    static struct laid_ring ring;
    struct meter_writer writer;

    (void)state;
    memset(&ring, 0, sizeof(ring));
    ring.first_seq = 50;
    ring.start = AREA - 64;
    put_record(ring.area, AREA, 50, METER_RECORD_EVENT, METER_STR("x"));
    meter_writer_init(&writer, ring.area + ring.start, 64);
    meter_record_pad_encode(49, 64, &writer);
    assert_false(writer.failed);
    assert_int_equal(scan(&ring, AREA), 0);
    /* With the right number it leads to the record at 0. */
    meter_writer_init(&writer, ring.area + ring.start, 64);
    meter_record_pad_encode(50, 64, &writer);
    ring.records[0] =
        (struct laid_record){0, 32, 50, {(char *)ring.area + 24, 1}};
    ring.count = 1;
    assert_int_equal(scan(&ring, AREA), 1);
    /* A PAD that ends before the area does is none. */
    meter_writer_init(&writer, ring.area + ring.start, 64);
    meter_record_pad_encode(50, 56, &writer);
    assert_int_equal(scan(&ring, AREA), 0);
}


static void
scan__tails_too_short_for_a_pad__wrap_by_themselves(void **state)
{
    static struct laid_ring ring;

    (void)state;
    for (size_t tail = 8; tail < 24; tail += 8) {
        size_t at, walked = 0;
        char body[24] = {0};

        memset(&ring, 0, sizeof(ring));
        memset(ring.area, 0xff, AREA);
        ring.first_seq = 9;
        ring.start = at = AREA - tail - 48;
        assert_true(lay(&ring, AREA, &at, &walked,
                        (struct meter_str){body, sizeof(body)}));
        assert_true(lay(&ring, AREA, &at, &walked, METER_STR("second")));
        assert_int_equal(ring.records[1].offset, 0);
        assert_int_equal(scan(&ring, AREA), 2);
    }
}


static void
scan__full_lap__ends_after_the_area_once(void **state)
{
    static struct laid_ring ring;
    size_t at = 32, walked = 0;

    (void)state;
    memset(&ring, 0, sizeof(ring));
    ring.first_seq = 1;
    ring.start = 32;
    while (lay(&ring, AREA, &at, &walked, METER_STR("12345678"))) {
    }
    assert_int_equal(ring.count, AREA / 32);
    assert_int_equal(scan(&ring, AREA), AREA / 32);
}


/* A record whose body holds the bytes of the first one lies over it. */
static void
scan__record_reaching_over_the_start__is_past_the_lap(void **state)
{
    enum { SIZE = 160, START = 64 };
    static struct laid_ring ring;
    size_t at = START, walked = 0;
    char body[40] = {0};

    (void)state;
    memset(&ring, 0, sizeof(ring));
    ring.first_seq = 1;
    ring.start = START;
    for (int i = 0; i < 4; i++) {
        assert_true(lay(&ring, SIZE, &at, &walked, METER_STR("12345678")));
    }
    assert_int_equal(at, 32);
    memcpy(body + 8, ring.area + START, 32);
    assert_int_equal(put_record(ring.area + 32, 64, 5, METER_RECORD_EVENT,
                                (struct meter_str){body, sizeof(body)}),
                     64);
    assert_int_equal(scan(&ring, SIZE), 4);
}


static void
scan__offsets_and_areas_that_cannot_be__find_nothing(void **state)
{
    static struct laid_ring ring;
    struct visited visited = {&ring, 0};

    (void)state;
    memset(&ring, 0, sizeof(ring));
    for (size_t size = 0; size <= 64; size += 8) {
        for (size_t offset = 0; offset <= size + 8; offset++) {
            struct meter_ring_place place = {.offset = offset, .next_seq = 1};

            assert_false(meter_ring_scan(ring.area, size, &place, SIZE_MAX,
                                         check_visit, &visited));
            assert_int_equal(place.next_seq, 1);
        }
    }
    assert_false(meter_ring_scan(
        ring.area, AREA,
        &(struct meter_ring_place){.offset = SIZE_MAX, .next_seq = 1}, SIZE_MAX,
        check_visit, &visited));
}


static void
scan__in_steps_of_any_size__the_same_and_never_much_more(void **state)
{
    struct meter_random random = {16};
    static struct laid_ring ring;

    (void)state;
    for (int round = 0; round < 2000; round++) {
        size_t area_size = random_area(&random);
        size_t bytes = 1 + random_below(&random, 1000);
        struct meter_ring_place place = {0};
        struct visited visited = {&ring, 0};
        size_t walked = 0;

        lay_random(&random, &ring, area_size);
        place.offset = ring.start;
        place.next_seq = ring.first_seq;
        while (meter_ring_scan(ring.area, area_size, &place, bytes, check_visit,
                               &visited)) {
            assert_in_range(place.walked - walked, bytes,
                            bytes + METER_RECORD_SIZE_MAX - 1);
            walked = place.walked;
        }
        assert_in_range(place.walked - walked, 0,
                        bytes + METER_RECORD_SIZE_MAX - 1);
        assert_int_equal(visited.count, ring.count);
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(header__frozen_bytes__match_and_come_back),
    cmocka_unit_test(header__every_bit_flip_and_cut__is_refused),
    cmocka_unit_test(header__layouts_that_cannot_be__are_refused),
    cmocka_unit_test(header__other_version__is_refused),
    cmocka_unit_test(scan__in_steps_of_any_size__the_same_and_never_much_more),
    cmocka_unit_test(
        scan__undamaged_random_rings__every_record_across_the_wrap),
    cmocka_unit_test(scan__one_bit_flipped__stops_at_that_record),
    cmocka_unit_test(scan__record_torn_at_any_byte__stops_at_that_record),
    cmocka_unit_test(scan__damaged_pad__stops_before_the_wrap),
    cmocka_unit_test(scan__pad_of_an_earlier_lap__is_not_followed),
    cmocka_unit_test(scan__tails_too_short_for_a_pad__wrap_by_themselves),
    cmocka_unit_test(scan__full_lap__ends_after_the_area_once),
    cmocka_unit_test(scan__record_reaching_over_the_start__is_past_the_lap),
    cmocka_unit_test(scan__offsets_and_areas_that_cannot_be__find_nothing),
};

RUN_TAP(tests)
