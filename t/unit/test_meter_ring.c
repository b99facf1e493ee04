#include "meter_cmocka.h"

#include "meter_frame.h"
#include "meter_golden.h"
#include "meter_hash.h"
#include "meter_random.h"
#include "meter_ring.h"

#define TS INT64_C(1788264000123456)


/* ---- ring header -----------------------------------------------------------
 */

static struct meter_ring_header
sample_header(void)
{
    struct meter_ring_header header = {
        .version = METER_RING_VERSION,
        .file_size = 65536,
        .record_offset = 8192,
        .record_size = 57344,
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
        "5245544d52524e47010000007a571d1f"
        "000102030405060708090a0b0c0d0e0f"
        "101112131415161718191a1b1c1d1e1f"
        "0000010000000000002000000000000000e0000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000"
        "000000000000000000000000000000000000000000000000");
    assert_true(meter_ring_header_decode(bytes, &out));
    assert_int_equal(out.version, 1);
    assert_memory_equal(out.session, in.session, 16);
    assert_memory_equal(out.boot_id, in.boot_id, 16);
    assert_int_equal(out.file_size, 65536);
    assert_int_equal(out.record_offset, 8192);
    assert_int_equal(out.record_size, 57344);
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


/* ---- records ----------------------------------------------------------------
 */

static size_t
put_record(uint8_t *data, size_t room, uint64_t seq, uint8_t kind,
           struct meter_str body)
{
    struct meter_record record = {.seq = seq, .kind = kind, .body = body};
    struct meter_writer writer;

    meter_writer_init(&writer, data, room);
    meter_record_encode(&record, &writer);
    assert_false(writer.failed);
    assert_int_equal(writer.at, meter_record_size(body.size));
    return writer.at;
}


static void
record__frozen_bytes__match(void **state)
{
    uint8_t data[64];
    struct meter_writer writer;

    (void)state;
    assert_int_equal(put_record(data, sizeof(data), 901, METER_RECORD_EVENT,
                                METER_STR("hello")),
                     32);
    assert_hex_equal(data, 32,
                     "200000000a0eaa1a8503000000000000"
                     "010000000500000068656c6c6f000000");
    meter_writer_init(&writer, data, sizeof(data));
    meter_record_pad_encode(7, 40, &writer);
    assert_int_equal(writer.at, 40);
    assert_hex_equal(data, 40,
                     "28000000d71e2ace0700000000000000000000001000000000000000"
                     "000000000000000000000000");
}


static void
record__every_body_size__comes_back(void **state)
{
    static uint8_t body[METER_RECORD_BODY_SIZE_MAX];
    static uint8_t data[METER_RECORD_SIZE_MAX];

    (void)state;
    memset(body, 0xee, sizeof(body));
    for (size_t size = 0; size <= sizeof(body); size++) {
        struct meter_str in = {(char *)body, size};
        struct meter_record out;
        size_t whole =
            put_record(data, sizeof(data), 5, METER_RECORD_DELTA, in);
        size_t used = 0;

        assert_int_equal(whole % 8, 0);
        assert_true(whole >= 24 + size && whole < 32 + size);
        assert_int_equal(meter_record_decode(data, sizeof(data), &out, &used),
                         METER_DECODE_OK);
        assert_int_equal(used, whole);
        assert_int_equal(out.seq, 5);
        assert_int_equal(out.kind, METER_RECORD_DELTA);
        assert_true(meter_str_equal(out.body, in));
        /* One byte short it is a beginning. */
        assert_int_equal(meter_record_decode(data, whole - 1, &out, &used),
                         METER_DECODE_MORE);
    }
}


static void
record__what_decode_would_refuse__is_not_encoded(void **state)
{
    static char body[METER_RECORD_BODY_SIZE_MAX + 1];
    static uint8_t data[2 * METER_RECORD_SIZE_MAX];
    const struct {
        uint64_t seq;
        uint8_t kind;
        size_t size;
    } cases[] = {
        {0, METER_RECORD_EVENT, 5},
        {1, METER_RECORD_LOSSNOTE + 1, 5},
        {1, METER_RECORD_EVENT, sizeof(body)},
    };
    static const size_t pads[] = {
        0, 8, 16, 20, 25, 28, METER_RECORD_SIZE_MAX + 8};
    struct meter_writer writer;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct meter_record record = {
            .seq = cases[i].seq,
            .kind = cases[i].kind,
            .body = {body, cases[i].size},
        };

        meter_writer_init(&writer, data, sizeof(data));
        meter_record_encode(&record, &writer);
        assert_true(writer.failed);
    }
    for (size_t i = 0; i < sizeof(pads) / sizeof(pads[0]); i++) {
        meter_writer_init(&writer, data, sizeof(data));
        meter_record_pad_encode(1, pads[i], &writer);
        assert_true(writer.failed);
    }
    meter_writer_init(&writer, data, sizeof(data));
    meter_record_pad_encode(0, 24, &writer);
    assert_true(writer.failed);
    meter_writer_init(&writer, data, 31);
    meter_record_encode(&(struct meter_record){.seq = 1,
                                               .kind = METER_RECORD_EVENT,
                                               .body = METER_STR("hello")},
                        &writer);
    assert_true(writer.failed);
}


static void
record__every_bit_flip__is_detected(void **state)
{
    uint8_t data[64];
    size_t size = put_record(data, sizeof(data), 12, METER_RECORD_EVENT,
                             METER_STR("a body of some bytes"));

    (void)state;
    for (size_t bit = 0; bit < 8 * size; bit++) {
        struct meter_record out;
        size_t used;

        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(meter_record_decode(data, size, &out, &used),
                             METER_DECODE_OK);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}


/* Changes one header field and makes the checksum right again. */
static enum meter_decode
decode_changed(size_t offset, uint32_t value, int bytes)
{
    uint8_t data[64] = {0};
    size_t size = put_record(data, sizeof(data), 12, METER_RECORD_EVENT,
                             METER_STR("hello"));
    struct meter_record out;
    size_t used;
    uint32_t crc;

    for (int i = 0; i < bytes; i++) {
        data[offset + (size_t)i] = (uint8_t)(value >> 8 * i);
    }
    crc = meter_crc32c(0, data, 4);
    crc = meter_crc32c(crc, data + 8, size - 8);
    for (int i = 0; i < 4; i++) {
        data[4 + i] = (uint8_t)(crc >> 8 * i);
    }
    return meter_record_decode(data, sizeof(data), &out, &used);
}


static void
record__right_checksum_on_wrong_fields__is_bad(void **state)
{
    (void)state;
    assert_int_equal(decode_changed(16, 4, 1), METER_DECODE_OK);
    assert_int_equal(decode_changed(16, 5, 1), METER_DECODE_BAD);
    assert_int_equal(decode_changed(17, 1, 1), METER_DECODE_BAD);
    assert_int_equal(decode_changed(19, 1, 1), METER_DECODE_BAD);
    assert_int_equal(decode_changed(8, 0, 4), METER_DECODE_BAD); /* seq 0 */
    assert_int_equal(decode_changed(0, 0, 4), METER_DECODE_BAD);
    assert_int_equal(decode_changed(0, 24, 4), METER_DECODE_BAD);
    assert_int_equal(decode_changed(0, 40, 4), METER_DECODE_BAD);
    assert_int_equal(decode_changed(0, UINT32_MAX, 4), METER_DECODE_BAD);
    assert_int_equal(decode_changed(20, 6, 4), METER_DECODE_OK);
    assert_int_equal(decode_changed(20, 4, 4), METER_DECODE_BAD); /* padding */
    assert_int_equal(decode_changed(20, 9, 4), METER_DECODE_BAD);
    assert_int_equal(decode_changed(20, UINT32_MAX, 4), METER_DECODE_BAD);
    assert_int_equal(decode_changed(20, UINT32_MAX - 23, 4), METER_DECODE_BAD);
    assert_int_equal(decode_changed(29, 1, 1), METER_DECODE_BAD); /* padding */
}


/* ---- event bodies
 * ------------------------------------------------------------ */

static void
event_body__frozen_bytes__decode_and_encode(void **state)
{
    static const char frozen[] =
        "01800400000061636d6502800b0000006170692e726571756573740380080000"
        "0040f27da86a5a06000400070000006f726465722d3105000600000063757374"
        "2d390600050000007265732d31070003000000322e3508000800000003000000"
        "00000000090004000000010000000a000e00000005000000726f7574652f7631"
        "2f780a000d00000006000000737461747573323030";
    static struct meter_record_event in, out;
    uint8_t data[512];
    struct meter_writer writer;

    (void)state;
    in.tenant = METER_STR("acme");
    in.type = METER_STR("api.request");
    in.event_id = METER_STR("order-1");
    in.customer = METER_STR("cust-9");
    in.resource = METER_STR("res-1");
    in.quantity = METER_STR("2.5");
    in.ts_us = TS;
    in.count = 3;
    in.flags = METER_EVENT_CAPTURED;
    in.attributes[0].name = METER_STR("route");
    in.attributes[0].value = METER_STR("/v1/x");
    in.attributes[1].name = METER_STR("status");
    in.attributes[1].value = METER_STR("200");
    in.attribute_count = 2;
    meter_writer_init(&writer, data, sizeof(data));
    meter_record_event_encode(&in, &writer);
    assert_false(writer.failed);
    assert_hex_equal(data, writer.at, frozen);

    assert_true(meter_record_event_decode(
        (struct meter_str){(char *)data, writer.at}, &out));
    assert_true(meter_str_equal(out.tenant, in.tenant));
    assert_true(meter_str_equal(out.type, in.type));
    assert_true(meter_str_equal(out.event_id, in.event_id));
    assert_true(meter_str_equal(out.customer, in.customer));
    assert_true(meter_str_equal(out.resource, in.resource));
    assert_true(meter_str_equal(out.quantity, in.quantity));
    assert_true(out.ts_us == TS);
    assert_int_equal(out.count, 3);
    assert_int_equal(out.flags, METER_EVENT_CAPTURED);
    assert_int_equal(out.attribute_count, 2);
    assert_true(meter_str_equal(out.attributes[1].name, METER_STR("status")));
    assert_true(meter_str_equal(out.attributes[1].value, METER_STR("200")));
}


static void
event_body__least_fields__defaults(void **state)
{
    static struct meter_record_event in, out;
    uint8_t data[128];
    struct meter_writer writer;

    (void)state;
    in.tenant = METER_STR("t");
    in.type = METER_STR("y");
    in.ts_us = -1;
    in.count = 1;
    meter_writer_init(&writer, data, sizeof(data));
    meter_record_event_encode(&in, &writer);
    assert_int_equal(writer.at, 7 + 7 + 14);
    memset(&out, 0xff, sizeof(out));
    assert_true(meter_record_event_decode(
        (struct meter_str){(char *)data, writer.at}, &out));
    assert_null(out.event_id.data);
    assert_null(out.customer.data);
    assert_null(out.resource.data);
    assert_null(out.quantity.data);
    assert_true(out.ts_us == -1);
    assert_int_equal(out.count, 1);
    assert_int_equal(out.flags, 0);
    assert_int_equal(out.attribute_count, 0);
    /* Each of the three is required. */
    assert_false(
        meter_record_event_decode((struct meter_str){(char *)data, 14}, &out));
    assert_false(meter_record_event_decode(
        (struct meter_str){(char *)data + 7, writer.at - 7}, &out));
    assert_false(meter_record_event_decode((struct meter_str){NULL, 0}, &out));
}


static void
event_body__attribute_limit__256_taken_257_refused(void **state)
{
    static struct meter_record_event in, out;
    static uint8_t data[8192];
    struct meter_writer writer;

    (void)state;
    in.tenant = METER_STR("t");
    in.type = METER_STR("y");
    in.count = 1;
    in.attribute_count = METER_ATTRIBUTE_COUNT_MAX;
    for (size_t i = 0; i < METER_ATTRIBUTE_COUNT_MAX; i++) {
        in.attributes[i].name = METER_STR("n");
        in.attributes[i].value = METER_STR("v");
    }
    meter_writer_init(&writer, data, sizeof(data));
    meter_record_event_encode(&in, &writer);
    assert_false(writer.failed);
    assert_true(meter_record_event_decode(
        (struct meter_str){(char *)data, writer.at}, &out));
    assert_int_equal(out.attribute_count, METER_ATTRIBUTE_COUNT_MAX);
    meter_put_bytes(&writer, "\x0a\0\x06\0\0\0\x01\0\0\0nv", 12);
    assert_false(meter_record_event_decode(
        (struct meter_str){(char *)data, writer.at}, &out));
    in.attribute_count++;
    meter_writer_init(&writer, data, sizeof(data));
    meter_record_event_encode(&in, &writer);
    assert_true(writer.failed);
}


static void
data_frame__golden__holds_two_records(void **state)
{
    static struct meter_record_event event;
    uint8_t golden[1024];
    size_t size = golden_read(__FILE__, "data", golden, sizeof(golden));
    struct meter_frame frame;
    struct meter_record record;
    enum meter_frame_error error;
    size_t used, need, at = 0;

    (void)state;
    assert_int_equal(
        meter_frame_decode(golden, size, &frame, &used, &need, &error),
        METER_DECODE_OK);
    assert_int_equal(frame.type, METER_FRAME_DATA);
    assert_int_equal(frame.seq, 901);
    assert_int_equal(frame.count, 2);
    assert_int_equal(meter_record_decode(frame.payload.data, frame.payload.size,
                                         &record, &used),
                     METER_DECODE_OK);
    assert_int_equal(record.seq, 901);
    assert_int_equal(record.kind, METER_RECORD_EVENT);
    assert_true(meter_record_event_decode(record.body, &event));
    assert_true(meter_str_equal(event.quantity, METER_STR("2.5")));
    at += used;
    assert_int_equal(meter_record_decode(frame.payload.data + at,
                                         frame.payload.size - at, &record,
                                         &used),
                     METER_DECODE_OK);
    assert_int_equal(record.seq, 902);
    assert_int_equal(record.kind, METER_RECORD_DUPNOTE);
    assert_true(meter_str_equal(record.body, METER_STR("note!")));
    assert_int_equal(at + used, frame.payload.size);
}


/* ---- recovery scan
 * ------------------------------------------------------------ */

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
    struct visited visited = {ring, 0};
    size_t count = meter_ring_scan(ring->area, area_size, ring->start,
                                   ring->first_seq, check_visit, &visited);

    assert_int_equal(count, visited.count);
    return count;
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
            assert_int_equal(meter_ring_scan(ring.area, size, offset, 1,
                                             check_visit, &visited),
                             0);
        }
    }
    assert_int_equal(
        meter_ring_scan(ring.area, AREA, SIZE_MAX, 1, check_visit, &visited),
        0);
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(header__frozen_bytes__match_and_come_back),
    cmocka_unit_test(header__every_bit_flip_and_cut__is_refused),
    cmocka_unit_test(header__layouts_that_cannot_be__are_refused),
    cmocka_unit_test(header__other_version__is_refused),
    cmocka_unit_test(record__frozen_bytes__match),
    cmocka_unit_test(record__every_body_size__comes_back),
    cmocka_unit_test(record__what_decode_would_refuse__is_not_encoded),
    cmocka_unit_test(record__every_bit_flip__is_detected),
    cmocka_unit_test(record__right_checksum_on_wrong_fields__is_bad),
    cmocka_unit_test(event_body__frozen_bytes__decode_and_encode),
    cmocka_unit_test(event_body__least_fields__defaults),
    cmocka_unit_test(event_body__attribute_limit__256_taken_257_refused),
    cmocka_unit_test(data_frame__golden__holds_two_records),
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
