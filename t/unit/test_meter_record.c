/* The records of a ring: their frame, their event bodies, and two of them in
 * a DATA frame. */

#include "meter_cmocka.h"

#include "meter_frame.h"
#include "meter_golden.h"
#include "meter_hash.h"
#include "meter_ring.h"
#include "record_fixture.h"

#define TS INT64_C(1788264000123456)


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


/* ---- event bodies ----------------------------------------------------- */

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


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(record__frozen_bytes__match),
    cmocka_unit_test(record__every_body_size__comes_back),
    cmocka_unit_test(record__what_decode_would_refuse__is_not_encoded),
    cmocka_unit_test(record__every_bit_flip__is_detected),
    cmocka_unit_test(record__right_checksum_on_wrong_fields__is_bad),
    cmocka_unit_test(event_body__frozen_bytes__decode_and_encode),
    cmocka_unit_test(event_body__least_fields__defaults),
    cmocka_unit_test(event_body__attribute_limit__256_taken_257_refused),
    cmocka_unit_test(data_frame__golden__holds_two_records),
};

RUN_TAP(tests)
