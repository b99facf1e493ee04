#include "meter_cmocka.h"

#include "meter_frame.h"
#include "meter_golden.h"
#include "meter_hash.h"
#include "meter_random.h"

#define H METER_FRAME_HEADER_SIZE


static size_t
put_frame(uint8_t *data, size_t room, struct meter_frame frame)
{
    struct meter_writer writer;

    meter_writer_init(&writer, data, room);
    meter_frame_encode(&frame, &writer);
    assert_false(writer.failed);
    return writer.at;
}


/* Makes the checksum right again after a header byte was changed. */
static void
reseal(uint8_t *data, size_t size)
{
    uint32_t crc;

    memset(data + 12, 0, 4);
    crc = meter_crc32c(0, data, size);
    for (int i = 0; i < 4; i++) {
        data[12 + i] = (uint8_t)(crc >> 8 * i);
    }
}


static enum meter_decode
decode(const void *data, size_t size, struct meter_frame *frame, size_t *used,
       enum meter_frame_error *error)
{
    size_t need = 0;
    enum meter_decode answer =
        meter_frame_decode(data, size, frame, used, &need, error);

    if (answer == METER_DECODE_MORE) {
        assert_true(need > size);
    }
    assert_int_equal(answer == METER_DECODE_BAD, *error != METER_FRAME_OK);
    return answer;
}


static enum meter_frame_error
error_of(const void *data, size_t size)
{
    struct meter_frame frame;
    enum meter_frame_error error;
    size_t used;

    (void)decode(data, size, &frame, &used, &error);
    return error;
}


static void
encode__frozen_header__matches(void **state)
{
    uint8_t data[64];
    size_t size = put_frame(data, sizeof(data),
                            (struct meter_frame){
                                .version = 1,
                                .type = METER_FRAME_PING,
                                .seq = 5,
                            });
    uint8_t golden[64];

    (void)state;
    assert_int_equal(size, H);
    assert_int_equal(golden_read(__FILE__, "ping", golden, sizeof(golden)), H);
    assert_memory_equal(data, golden, H);
    assert_memory_equal(data, "MTR1", 4);
}


static void
decode__encoded_frame__comes_back(void **state)
{
    struct meter_frame in = {
        .version = 1,
        .type = METER_FRAME_DATA,
        .flags = METER_FRAME_CRITICAL,
        .seq = UINT64_MAX,
        .count = METER_BATCH_EVENTS_MAX,
        .session_tag = UINT64_C(0x1122334455667788),
        .payload = METER_STR("payload"),
    };
    struct meter_frame out;
    uint8_t data[64];
    size_t size = put_frame(data, sizeof(data), in), used;
    enum meter_frame_error error;

    (void)state;
    assert_int_equal(decode(data, sizeof(data), &out, &used, &error),
                     METER_DECODE_OK);
    assert_int_equal(used, size);
    assert_int_equal(out.version, in.version);
    assert_int_equal(out.type, in.type);
    assert_int_equal(out.flags, in.flags);
    assert_true(out.seq == in.seq);
    assert_int_equal(out.count, in.count);
    assert_true(out.session_tag == in.session_tag);
    assert_true(meter_str_equal(out.payload, in.payload));
    assert_ptr_equal(out.payload.data, data + H);
}


static void
decode__every_prefix__asks_for_what_is_missing(void **state)
{
    uint8_t data[64];
    size_t size = put_frame(data, sizeof(data),
                            (struct meter_frame){
                                .version = 1,
                                .type = METER_FRAME_DATA,
                                .payload = METER_STR("payload"),
                            });

    (void)state;
    for (size_t cut = 0; cut < size; cut++) {
        struct meter_frame frame;
        enum meter_frame_error error;
        size_t used, need = 0;

        assert_int_equal(
            meter_frame_decode(data, cut, &frame, &used, &need, &error),
            METER_DECODE_MORE);
        assert_int_equal(need, cut < H ? H : size);
    }
}


static void
decode__wrong_magic__is_bad_at_the_first_byte(void **state)
{
    static const uint8_t start[] = "MTR1";

    (void)state;
    assert_int_equal(error_of("GET / HTTP/1.1\r\n", 16), METER_FRAME_BAD_MAGIC);
    for (size_t i = 0; i < 4; i++) {
        uint8_t data[4];

        memcpy(data, start, 4);
        data[i] ^= 0x20;
        assert_int_equal(error_of(data, i + 1), METER_FRAME_BAD_MAGIC);
        assert_int_equal(error_of(data, i), METER_FRAME_OK);
    }
}


static void
decode__each_header_bound__is_checked_before_the_payload(void **state)
{
    static const struct {
        size_t offset;
        uint32_t value; /* u32 but for the version */
        enum meter_frame_error error;
    } cases[] = {
        {4, 0, METER_FRAME_BAD_VERSION},
        {4, 2, METER_FRAME_BAD_VERSION},
        {4, 255, METER_FRAME_BAD_VERSION},
        {8, METER_FRAME_SIZE_MAX, METER_FRAME_OK},
        {8, METER_FRAME_SIZE_MAX + 1, METER_FRAME_TOO_LARGE},
        {8, UINT32_MAX, METER_FRAME_TOO_LARGE},
        {8, UINT32_MAX - H + 1, METER_FRAME_TOO_LARGE},
        {24, METER_BATCH_EVENTS_MAX, METER_FRAME_OK},
        {24, METER_BATCH_EVENTS_MAX + 1, METER_FRAME_BAD_COUNT},
        {24, UINT32_MAX, METER_FRAME_BAD_COUNT},
        {28, 1, METER_FRAME_BAD_ZERO},
        {28, 0x80000000u, METER_FRAME_BAD_ZERO},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t data[64];
        size_t size =
            put_frame(data, sizeof(data), (struct meter_frame){.version = 1});

        for (int j = 0; j < (cases[i].offset == 4 ? 1 : 4); j++) {
            data[cases[i].offset + (size_t)j] =
                (uint8_t)(cases[i].value >> 8 * j);
        }
        reseal(data, size);
        assert_int_equal(error_of(data, size), cases[i].error);
    }
}


static void
decode__largest_payload__is_taken_one_more_is_not(void **state)
{
    size_t room = H + METER_FRAME_SIZE_MAX + 1;
    uint8_t *data = malloc(room);
    char *payload = calloc(1, METER_FRAME_SIZE_MAX + 1);
    struct meter_frame frame = {.version = 1,
                                .payload = {payload, METER_FRAME_SIZE_MAX}};
    struct meter_writer writer;
    enum meter_frame_error error;
    size_t used;

    (void)state;
    put_frame(data, room, frame);
    assert_int_equal(decode(data, room, &frame, &used, &error),
                     METER_DECODE_OK);
    assert_int_equal(used, room - 1);

    frame.payload = (struct meter_str){payload, METER_FRAME_SIZE_MAX + 1};
    meter_writer_init(&writer, data, room);
    meter_frame_encode(&frame, &writer);
    assert_true(writer.failed);
    free(payload);
    free(data);
}


static void
encode__what_decode_would_refuse__fails(void **state)
{
    uint8_t data[64];
    struct meter_writer writer;

    (void)state;
    meter_writer_init(&writer, data, sizeof(data));
    meter_frame_encode(&(struct meter_frame){.version = 0}, &writer);
    assert_true(writer.failed);
    meter_writer_init(&writer, data, sizeof(data));
    meter_frame_encode(&(struct meter_frame){.version = METER_PROTOCOL_MAX + 1},
                       &writer);
    assert_true(writer.failed);
    meter_writer_init(&writer, data, sizeof(data));
    meter_frame_encode(
        &(struct meter_frame){.version = 1,
                              .count = METER_BATCH_EVENTS_MAX + 1},
        &writer);
    assert_true(writer.failed);
    for (size_t room = 0; room < H + 3; room++) {
        meter_writer_init(&writer, data, room);
        meter_frame_encode(
            &(struct meter_frame){.version = 1, .payload = METER_STR("abc")},
            &writer);
        assert_true(writer.failed);
    }
}


static void
seal__behind_other_frames__writes_the_same_bytes(void **state)
{
    struct meter_frame frame = {
        .version = 1,
        .type = METER_FRAME_CREDIT,
        .payload = METER_STR("abc"),
    };
    uint8_t whole[64], stream[128];
    size_t size = put_frame(whole, sizeof(whole), frame);
    struct meter_writer writer;

    (void)state;
    meter_writer_init(&writer, stream, sizeof(stream));
    for (int i = 0; i < 2; i++) {
        size_t start = meter_frame_begin(&writer);

        meter_put_bytes(&writer, "abc", 3);
        meter_frame_seal(&writer, start, &frame);
    }
    assert_false(writer.failed);
    assert_int_equal(writer.at, 2 * size);
    assert_memory_equal(stream, whole, size);
    assert_memory_equal(stream + size, whole, size);
}


static void
decode__every_bit_flip__is_detected(void **state)
{
    uint8_t data[128];
    size_t size = put_frame(data, sizeof(data),
                            (struct meter_frame){
                                .version = 1,
                                .type = METER_FRAME_RESULT,
                                .seq = 77,
                                .count = 3,
                                .session_tag = 99,
                                .payload = METER_STR("some payload bytes"),
                            });

    (void)state;
    for (size_t bit = 0; bit < 8 * size; bit++) {
        struct meter_frame frame;
        enum meter_frame_error error;
        size_t used, need;

        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        /* A larger size may ask for more, but never gives a frame. */
        assert_int_not_equal(
            meter_frame_decode(data, size, &frame, &used, &need, &error),
            METER_DECODE_OK);
        for (size_t other = bit + 1; other < bit + 40 && other < 8 * size;
             other++) {
            data[other / 8] ^= (uint8_t)(1 << other % 8);
            assert_int_not_equal(
                meter_frame_decode(data, size, &frame, &used, &need, &error),
                METER_DECODE_OK);
            data[other / 8] ^= (uint8_t)(1 << other % 8);
        }
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}


/* ---- any segmentation gives the same frames ----------------------------- */

static size_t
random_stream(struct meter_random *random, uint8_t *data, size_t room)
{
    char payload[300];
    struct meter_writer writer;
    size_t count = 1 + random_below(random, 6);

    meter_writer_init(&writer, data, room);
    for (size_t i = 0; i < sizeof(payload); i++) {
        payload[i] = (char)random_u64(random);
    }
    for (size_t i = 0; i < count; i++) {
        struct meter_frame frame = {
            .version = 1,
            .type = (uint8_t)random_u64(random),
            .flags = (uint16_t)random_u64(random),
            .seq = random_u64(random),
            .count = (uint32_t)random_below(random, METER_BATCH_EVENTS_MAX),
            .session_tag = random_u64(random),
            .payload = {payload, random_below(random, sizeof(payload) + 1)},
        };

        meter_frame_encode(&frame, &writer);
    }
    assert_false(writer.failed);
    return writer.at;
}


/* Feeds pieces into a buffer as a reader of a socket does. */
static size_t
decode_in_pieces(struct meter_random *random, const uint8_t *stream,
                 size_t size, uint8_t *again)
{
    uint8_t *buffer = malloc(size);
    size_t held = 0, fed = 0, written = 0, need = H;

    while (fed < size) {
        size_t piece = 1 + random_below(random, 1 + size / 3);

        if (piece > size - fed) {
            piece = size - fed;
        }
        memcpy(buffer + held, stream + fed, piece);
        held += piece;
        fed += piece;
        for (;;) {
            struct meter_frame frame;
            struct meter_writer writer;
            enum meter_frame_error error;
            size_t used;
            enum meter_decode answer =
                meter_frame_decode(buffer, held, &frame, &used, &need, &error);

            if (answer == METER_DECODE_MORE) {
                assert_true(need > held);
                break;
            }
            assert_int_equal(answer, METER_DECODE_OK);
            meter_writer_init(&writer, again + written, size - written);
            meter_frame_encode(&frame, &writer);
            assert_false(writer.failed);
            assert_int_equal(writer.at, used);
            written += used;
            memmove(buffer, buffer + used, held - used);
            held -= used;
        }
    }
    assert_int_equal(held, 0);
    free(buffer);
    return written;
}


static void
decode__random_streams_in_random_pieces__same_bytes_again(void **state)
{
    struct meter_random random = {13};
    static uint8_t stream[4096], again[4096];

    (void)state;
    for (int round = 0; round < 3000; round++) {
        size_t size = random_stream(&random, stream, sizeof(stream));

        assert_int_equal(decode_in_pieces(&random, stream, size, again), size);
        assert_memory_equal(stream, again, size);
    }
}


static void
names__every_type_and_error__has_one(void **state)
{
    (void)state;
    assert_string_equal(meter_frame_type_name(METER_FRAME_HELLO), "HELLO");
    assert_string_equal(meter_frame_type_name(METER_FRAME_REQUEST), "REQUEST");
    assert_string_equal(meter_frame_type_name(METER_FRAME_RESPONSE),
                        "RESPONSE");
    assert_string_equal(meter_frame_type_name(METER_FRAME_MUX), "MUX");
    assert_string_equal(meter_frame_type_name(METER_FRAME_CANCEL), "CANCEL");
    assert_int_equal(METER_FRAME_MUX, 14);
    assert_int_equal(METER_FRAME_CANCEL, 15);
    assert_string_equal(meter_frame_type_name(0), "?");
    assert_string_equal(meter_frame_type_name(16), "?");
    assert_string_equal(meter_frame_type_name(255), "?");
    for (int i = METER_FRAME_HELLO; i <= METER_FRAME_CANCEL; i++) {
        assert_string_not_equal(meter_frame_type_name((uint8_t)i), "?");
    }
    for (int i = METER_FRAME_OK; i <= METER_FRAME_BAD_CRC; i++) {
        for (int j = i + 1; j <= METER_FRAME_BAD_CRC; j++) {
            assert_string_not_equal(meter_frame_error_text(i),
                                    meter_frame_error_text(j));
        }
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(encode__frozen_header__matches),
    cmocka_unit_test(decode__encoded_frame__comes_back),
    cmocka_unit_test(decode__every_prefix__asks_for_what_is_missing),
    cmocka_unit_test(decode__wrong_magic__is_bad_at_the_first_byte),
    cmocka_unit_test(decode__each_header_bound__is_checked_before_the_payload),
    cmocka_unit_test(decode__largest_payload__is_taken_one_more_is_not),
    cmocka_unit_test(encode__what_decode_would_refuse__fails),
    cmocka_unit_test(seal__behind_other_frames__writes_the_same_bytes),
    cmocka_unit_test(decode__every_bit_flip__is_detected),
    cmocka_unit_test(decode__random_streams_in_random_pieces__same_bytes_again),
    cmocka_unit_test(names__every_type_and_error__has_one),
};

RUN_TAP(tests)
