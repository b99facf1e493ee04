#include "meter_cmocka.h"

#include "meter_field.h"
#include "meter_random.h"
#include "outbox_fixture.h"
#include "record_fixture.h"


/* ---- LOSSNOTE --------------------------------------------------------- */

static struct meter_str
put_loss(const struct meter_loss *loss, uint8_t *data, size_t room)
{
    struct meter_writer out;

    meter_writer_init(&out, data, room);
    meter_loss_encode(loss, &out);
    assert_false(out.failed);
    return (struct meter_str){(char *)data, out.at};
}


static void
loss__frozen_bytes__match_and_come_back(void **state)
{
    struct meter_loss in = {.count = 0x0102030405060708,
                            .first_us = BOX_TS,
                            .last_us = -2,
                            .reasons = METER_LOSS_FULL | METER_LOSS_REBOOT};
    struct meter_loss out;
    uint8_t data[64];
    struct meter_str body = put_loss(&in, data, sizeof(data));

    (void)state;
    assert_hex_equal(data, body.size,
                     "0180080000000807060504030201"
                     "020008000000"
                     "00401e18240a0600"
                     "030008000000feffffffffffffff"
                     "04000400000005000000");
    assert_true(meter_loss_decode(body, &out));
    assert_memory_equal(&in.count, &out.count, sizeof(in.count));
    assert_int_equal(out.first_us, BOX_TS);
    assert_int_equal(out.last_us, -2);
    assert_int_equal(out.reasons, 5);
}


static void
loss__cut_or_without_a_count__is_refused(void **state)
{
    struct meter_loss in = {.count = 3}, out;
    uint8_t data[64];
    struct meter_str body = put_loss(&in, data, sizeof(data));

    (void)state;
    for (size_t size = 0; size < body.size; size++) {
        bool is_field_end = size == 14 || size == 28 || size == 42;

        assert_int_equal(
            meter_loss_decode((struct meter_str){(char *)data, size}, &out),
            is_field_end);
    }
    assert_false(meter_loss_decode(
        (struct meter_str){(char *)data + 14, body.size - 14}, &out));
}


/* ---- DELTA ------------------------------------------------------------ */

static void
delta__body_of_a_cell__sums_and_flags_added(void **state)
{
    static struct meter_record_event event;
    struct meter_decimal quantity;
    uint8_t key[256], data[512];
    struct meter_writer out;
    struct meter_record record;

    (void)state;
    assert_int_equal(meter_decimal_parse(METER_STR("-12.50"), &quantity),
                     METER_DECIMAL_OK);
    meter_writer_init(&out, data, sizeof(data));
    meter_record_delta_encode(box_body(key, sizeof(key), "r", BOX_TS), 77,
                              quantity, METER_EVENT_RECOVERED, &out);
    assert_false(out.failed);
    record =
        (struct meter_record){1, METER_RECORD_DELTA, {(char *)data, out.at}};
    assert_true(meter_record_event_decode(record.body, &event));
    assert_true(meter_str_equal(event.tenant, METER_STR("acme")));
    assert_true(meter_str_equal(event.type, METER_STR("api.call")));
    assert_true(meter_str_equal(event.resource, METER_STR("r")));
    assert_true(meter_str_equal(event.quantity, METER_STR("-12.5")));
    assert_int_equal(event.count, 77);
    assert_int_equal(event.ts_us, BOX_TS);
    assert_int_equal(event.flags, METER_EVENT_CAPTURED | METER_EVENT_RECOVERED);
    assert_int_equal(meter_record_weight(&record), 77);
    assert_int_equal(meter_record_ts(&record), BOX_TS);
}


static void
delta__attributes_and_unknown_fields__are_kept(void **state)
{
    static struct meter_record_event event;
    uint8_t key[256], data[512];
    struct meter_writer out;
    struct meter_str body;

    (void)state;
    memset(&event, 0, sizeof(event));
    event.tenant = METER_STR("t");
    event.type = METER_STR("u");
    event.quantity = METER_STR("9"); /* makes way */
    event.count = 4;
    event.attribute_count = 2;
    event.attributes[0] =
        (struct meter_record_attribute){METER_STR("a"), METER_STR("1")};
    event.attributes[1] =
        (struct meter_record_attribute){METER_STR("b"), METER_STR("")};
    meter_writer_init(&out, key, sizeof(key));
    meter_record_event_encode(&event, &out);
    meter_put_field_u8(&out, 40, 5);
    body = (struct meter_str){(char *)key, out.at};
    meter_writer_init(&out, data, sizeof(data));
    meter_record_delta_encode(body, 1, meter_decimal_from_int(3), 0, &out);
    body = (struct meter_str){(char *)data, out.at};
    assert_true(meter_record_event_decode(body, &event));
    assert_true(meter_str_equal(event.quantity, METER_STR("3")));
    assert_int_equal(event.count, 1);
    assert_int_equal(event.flags, 0);
    assert_int_equal(event.attribute_count, 2);
    assert_true(meter_str_equal(event.attributes[1].name, METER_STR("b")));
    assert_non_null(memmem(data, body.size, "\x28\0\1\0\0\0\5", 7));
}


static void
delta__no_list_of_fields_or_no_room__fails(void **state)
{
    uint8_t key[256], data[512];
    struct meter_str body = box_body(key, sizeof(key), "r", BOX_TS);
    struct meter_decimal one = meter_decimal_from_int(1);
    struct meter_writer out;
    size_t whole;

    (void)state;
    meter_writer_init(&out, data, sizeof(data));
    meter_record_delta_encode(body, 1, one, 0, &out);
    assert_false(out.failed);
    whole = out.at;
    for (size_t room = 0; room < whole; room++) {
        meter_writer_init(&out, data, room);
        meter_record_delta_encode(body, 1, one, 0, &out);
        assert_true(out.failed);
    }
    body.size--;
    meter_writer_init(&out, data, sizeof(data));
    meter_record_delta_encode(body, 1, one, 0, &out);
    assert_true(out.failed);
}


/* ---- of any kind ------------------------------------------------------ */

static void
weight__by_kind__requests(void **state)
{
    uint8_t buffer[256];
    struct meter_record record = {.seq = 1};
    struct meter_loss loss = {.count = 9, .first_us = 44, .last_us = 55};

    (void)state;
    record.body = box_body(buffer, sizeof(buffer), "r", BOX_TS);
    record.kind = METER_RECORD_EVENT;
    assert_int_equal(meter_record_weight(&record), 1);
    assert_int_equal(meter_record_ts(&record), BOX_TS);
    record.kind = METER_RECORD_DUPNOTE;
    assert_int_equal(meter_record_weight(&record), 1);
    assert_int_equal(meter_record_ts(&record), BOX_TS);
    record.kind = METER_RECORD_DELTA; /* of one */
    assert_int_equal(meter_record_weight(&record), 1);
    record.kind = METER_RECORD_PAD;
    assert_int_equal(meter_record_weight(&record), 0);
    assert_int_equal(meter_record_ts(&record), 0);
    record.kind = METER_RECORD_LOSSNOTE;
    record.body = put_loss(&loss, buffer, sizeof(buffer));
    assert_int_equal(meter_record_weight(&record), 0);
    assert_int_equal(meter_record_ts(&record), 44);
    record.body = METER_STR("no fields");
    assert_int_equal(meter_record_ts(&record), 0);
    record.kind = METER_RECORD_DELTA;
    assert_int_equal(meter_record_weight(&record), 1);
}


/* In place it is what the encoder makes, whatever lay there. */
static void
close__any_body__the_same_bytes_as_encoded(void **state)
{
    struct meter_random random = {41};

    (void)state;
    for (size_t size = 0; size <= METER_RECORD_BODY_SIZE_MAX; size += 37) {
        static uint8_t placed[METER_RECORD_SIZE_MAX],
            encoded[METER_RECORD_SIZE_MAX];
        char body[METER_RECORD_BODY_SIZE_MAX];
        size_t whole;

        for (size_t i = 0; i < size; i++) {
            body[i] = (char)random_u64(&random);
        }
        memset(placed, 0xee, sizeof(placed));
        memcpy(placed + 24, body, size);
        whole = put_record(encoded, sizeof(encoded), 900 + size,
                           METER_RECORD_DELTA, (struct meter_str){body, size});
        assert_int_equal(
            meter_record_close(placed, 900 + size, METER_RECORD_DELTA, size),
            whole);
        assert_memory_equal(placed, encoded, whole);
        assert_true(whole == sizeof(placed) || placed[whole] == 0xee);
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(loss__frozen_bytes__match_and_come_back),
    cmocka_unit_test(loss__cut_or_without_a_count__is_refused),
    cmocka_unit_test(delta__body_of_a_cell__sums_and_flags_added),
    cmocka_unit_test(delta__attributes_and_unknown_fields__are_kept),
    cmocka_unit_test(delta__no_list_of_fields_or_no_room__fails),
    cmocka_unit_test(weight__by_kind__requests),
    cmocka_unit_test(close__any_body__the_same_bytes_as_encoded),
};

RUN_TAP(tests)
