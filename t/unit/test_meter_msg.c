#include "meter_cmocka.h"

#include "meter_golden.h"
#include "meter_msg.h"

#define TAG UINT64_C(0x0706050403020100)

static uint8_t golden[1024];


/* Reads a golden frame and checks its header. */
static struct meter_str
golden_payload(const char *name, uint8_t type, struct meter_frame *frame)
{
    size_t size = golden_read(__FILE__, name, golden, sizeof(golden));
    enum meter_frame_error error;
    size_t used, need;

    assert_int_equal(
        meter_frame_decode(golden, size, frame, &used, &need, &error),
        METER_DECODE_OK);
    assert_int_equal(used, size);
    assert_int_equal(frame->type, type);
    assert_int_equal(frame->version, 1);
    return frame->payload;
}


/* Encodes msg in a frame like the golden one; both must be the same. */
#define assert_encodes_to_golden(encode, msg, frame)                       \
    do {                                                                   \
        uint8_t data_[1024];                                               \
        struct meter_writer writer_;                                       \
        size_t start_;                                                     \
                                                                           \
        meter_writer_init(&writer_, data_, sizeof(data_));                 \
        start_ = meter_frame_begin(&writer_);                              \
        encode((msg), &writer_);                                           \
        meter_frame_seal(&writer_, start_, (frame));                       \
        assert_false(writer_.failed);                                      \
        assert_int_equal(writer_.at,                                       \
                         METER_FRAME_HEADER_SIZE + (frame)->payload.size); \
        assert_memory_equal(data_, golden, writer_.at);                    \
    } while (0)

#define assert_str(str, text) \
    assert_true(meter_str_equal((str), METER_STR(text)))


static void
request__golden_frame__decodes_and_encodes(void **state)
{
    struct meter_frame frame;
    struct meter_request request;

    (void)state;
    assert_true(meter_request_decode(
        golden_payload("request", METER_FRAME_REQUEST, &frame), &request));
    assert_int_equal(frame.flags, METER_FRAME_CRITICAL);
    assert_int_equal(frame.seq, 77);
    assert_int_equal(request.method, METER_METHOD_POST);
    assert_str(request.path, "/v1/events");
    assert_str(request.args, "dry=1");
    assert_str(request.authorization, "Bearer em_1_secret");
    assert_str(request.content_type, "application/json");
    assert_str(request.content_encoding, "gzip");
    assert_str(request.accept, "*/*");
    assert_str(request.idempotency_key, "key-1");
    assert_str(request.client_address, "192.0.2.7");
    assert_int_equal(request.header_count, 2);
    assert_str(request.headers[0].name, "ce-id");
    assert_str(request.headers[0].value, "42");
    assert_str(request.headers[1].name, "ce-source");
    assert_str(request.headers[1].value, "");
    assert_int_equal(request.body_size, 512);
    assert_encodes_to_golden(meter_request_encode, &request, &frame);
}


static void
response__golden_frame__decodes_and_encodes(void **state)
{
    struct meter_frame frame;
    struct meter_response response;

    (void)state;
    assert_true(meter_response_decode(
        golden_payload("response", METER_FRAME_RESPONSE, &frame), &response));
    assert_int_equal(response.status, 503);
    assert_str(response.content_type, "application/json");
    assert_int_equal(response.retry_after_s, 2);
    assert_str(response.allow, "GET, HEAD");
    assert_int_equal(response.header_count, 1);
    assert_str(response.headers[0].name, "x-request-id");
    assert_str(response.headers[0].value, "r-1");
    assert_int_equal(response.body_size, 31);
    assert_encodes_to_golden(meter_response_encode, &response, &frame);
}


static void
hello__golden_frame__decodes_and_encodes(void **state)
{
    struct meter_frame frame;
    struct meter_hello hello;

    (void)state;
    assert_true(meter_hello_decode(
        golden_payload("hello", METER_FRAME_HELLO, &frame), &hello));
    assert_true(frame.session_tag == TAG);
    assert_int_equal(hello.version_min, 1);
    assert_int_equal(hello.version_max, 1);
    assert_hex_equal(hello.session, 16, "000102030405060708090a0b0c0d0e0f");
    assert_int_equal(hello.head, 1001);
    assert_int_equal(hello.acked, 900);
    assert_int_equal(hello.db_epoch, 7);
    assert_int_equal(hello.pid, 4242);
    assert_str(hello.node, "gw-1");
    assert_str(hello.build, "edgemeter/1");
    assert_int_equal(hello.oldest, 850);
    assert_encodes_to_golden(meter_hello_encode, &hello, &frame);
}


static void
hello_ack__golden_frame__decodes_and_encodes(void **state)
{
    struct meter_frame frame;
    struct meter_hello_ack ack;

    (void)state;
    assert_true(meter_hello_ack_decode(
        golden_payload("hello_ack", METER_FRAME_HELLO_ACK, &frame), &ack));
    assert_int_equal(ack.version, 1);
    assert_int_equal(ack.last_seq, 900);
    assert_int_equal(ack.seq_limit, 5900);
    assert_int_equal(ack.db_epoch, 7);
    assert_int_equal(ack.config_version, 3);
    assert_true(ack.server_time_us == INT64_C(1788264000123456));
    assert_str(ack.instance, "meterd-1");
    assert_int_equal(ack.verdicts[METER_VERDICT_ACCEPTED], 880);
    assert_int_equal(ack.verdicts[METER_VERDICT_DUPLICATE], 17);
    assert_int_equal(ack.verdicts[METER_VERDICT_CONFLICT], 3);
    assert_true(ack.verdicts[METER_VERDICT_REJECTED] ==
                UINT64_C(0x0102030405060708));
    assert_encodes_to_golden(meter_hello_ack_encode, &ack, &frame);
}


static void
result_credit_nack__golden_frames__decode_and_encode(void **state)
{
    struct meter_frame frame;
    struct meter_result result;
    struct meter_credit credit;
    struct meter_nack nack;

    (void)state;
    assert_true(meter_result_decode(
        golden_payload("result", METER_FRAME_RESULT, &frame), &result));
    assert_int_equal(result.durable_upto, 904);
    assert_int_equal(result.first_seq, 901);
    assert_int_equal(result.codes.size, 4);
    assert_memory_equal(result.codes.data, "\0\1\2\xff", 4);
    assert_encodes_to_golden(meter_result_encode, &result, &frame);

    assert_true(meter_credit_decode(
        golden_payload("credit", METER_FRAME_CREDIT, &frame), &credit));
    assert_int_equal(credit.seq_limit, 6000);
    assert_encodes_to_golden(meter_credit_encode, &credit, &frame);

    assert_true(meter_nack_decode(
        golden_payload("nack", METER_FRAME_NACK, &frame), &nack));
    assert_int_equal(nack.code, METER_NACK_GAP);
    assert_int_equal(nack.value, 901);
    assert_encodes_to_golden(meter_nack_encode, &nack, &frame);
}


static void
request__least_fields__others_are_absent(void **state)
{
    uint8_t data[128];
    struct meter_writer writer;
    struct meter_request in = {.method = METER_METHOD_GET,
                               .path = METER_STR("/")};
    struct meter_request out;

    (void)state;
    meter_writer_init(&writer, data, sizeof(data));
    meter_request_encode(&in, &writer);
    assert_false(writer.failed);
    memset(&out, 0xff, sizeof(out));
    assert_true(meter_request_decode(
        (struct meter_str){(char *)data, writer.at}, &out));
    assert_null(out.args.data);
    assert_null(out.authorization.data);
    assert_null(out.content_type.data);
    assert_null(out.content_encoding.data);
    assert_null(out.accept.data);
    assert_null(out.idempotency_key.data);
    assert_null(out.client_address.data);
    assert_int_equal(out.header_count, 0);
    assert_int_equal(out.body_size, 0);
}


static void
request__present_but_empty__is_not_absent(void **state)
{
    uint8_t data[128];
    struct meter_writer writer;
    struct meter_request in = {.method = METER_METHOD_GET,
                               .path = METER_STR(""),
                               .args = METER_STR(""),
                               .authorization = METER_STR("")};
    struct meter_request out;

    (void)state;
    meter_writer_init(&writer, data, sizeof(data));
    meter_request_encode(&in, &writer);
    assert_true(meter_request_decode(
        (struct meter_str){(char *)data, writer.at}, &out));
    assert_non_null(out.path.data);
    assert_non_null(out.args.data);
    assert_non_null(out.authorization.data);
    assert_null(out.accept.data);
}


static void
request__header_count_limit__64_taken_65_refused(void **state)
{
    static uint8_t data[4096];
    struct meter_writer writer;
    struct meter_request *in = calloc(1, sizeof(*in));
    struct meter_request *out = calloc(1, sizeof(*out));

    (void)state;
    in->method = METER_METHOD_PUT;
    in->path = METER_STR("/x");
    for (size_t i = 0; i < METER_HEADER_COUNT_MAX; i++) {
        in->headers[i].name = METER_STR("ce-x");
        in->headers[i].value = METER_STR("y");
    }
    in->header_count = METER_HEADER_COUNT_MAX;
    meter_writer_init(&writer, data, sizeof(data));
    meter_request_encode(in, &writer);
    assert_false(writer.failed);
    assert_true(
        meter_request_decode((struct meter_str){(char *)data, writer.at}, out));
    assert_int_equal(out->header_count, METER_HEADER_COUNT_MAX);

    meter_put_field_pair(&writer, 11, METER_STR("ce-x"), METER_STR("y"));
    assert_false(
        meter_request_decode((struct meter_str){(char *)data, writer.at}, out));

    in->header_count = METER_HEADER_COUNT_MAX + 1;
    meter_writer_init(&writer, data, sizeof(data));
    meter_request_encode(in, &writer);
    assert_true(writer.failed);
    free(in);
    free(out);
}


/* ---- values ----------------------------------------------------------- */

static bool
request_with_method(uint8_t method)
{
    uint8_t data[64];
    struct meter_writer writer;
    struct meter_request request = {.method = method, .path = METER_STR("/")};

    meter_writer_init(&writer, data, sizeof(data));
    meter_request_encode(&request, &writer);
    return meter_request_decode((struct meter_str){(char *)data, writer.at},
                                &request);
}


static bool
response_with_status(uint16_t status)
{
    uint8_t data[64];
    struct meter_writer writer;
    struct meter_response response = {.status = status};

    meter_writer_init(&writer, data, sizeof(data));
    meter_response_encode(&response, &writer);
    return meter_response_decode((struct meter_str){(char *)data, writer.at},
                                 &response);
}


static bool
hello_with_versions(uint8_t min, uint8_t max)
{
    uint8_t data[256];
    struct meter_writer writer;
    struct meter_hello hello = {.version_min = min, .version_max = max};

    meter_writer_init(&writer, data, sizeof(data));
    meter_hello_encode(&hello, &writer);
    return meter_hello_decode((struct meter_str){(char *)data, writer.at},
                              &hello);
}


static bool
nack_with_code(uint8_t code)
{
    uint8_t data[64];
    struct meter_writer writer;
    struct meter_nack nack = {.code = code};

    meter_writer_init(&writer, data, sizeof(data));
    meter_nack_encode(&nack, &writer);
    return meter_nack_decode((struct meter_str){(char *)data, writer.at},
                             &nack);
}


static void
values__outside_their_enum__are_bad(void **state)
{
    (void)state;
    for (int i = 0; i < 256; i++) {
        assert_int_equal(request_with_method((uint8_t)i), i >= 1 && i <= 7);
        assert_int_equal(nack_with_code((uint8_t)i), i >= 1 && i <= 4);
    }
    assert_false(response_with_status(99));
    assert_true(response_with_status(100));
    assert_true(response_with_status(599));
    assert_false(response_with_status(600));
    assert_false(hello_with_versions(0, 1));
    assert_false(hello_with_versions(2, 1));
    assert_true(hello_with_versions(1, 1));
    assert_true(hello_with_versions(1, 255));
}


static bool
result_round_trip(uint64_t first_seq, const char *codes, size_t count)
{
    uint8_t data[64];
    struct meter_writer writer;
    struct meter_result result = {
        .durable_upto = 1, .first_seq = first_seq, .codes = {codes, count}};

    meter_writer_init(&writer, data, sizeof(data));
    meter_result_encode(&result, &writer);
    return meter_result_decode((struct meter_str){(char *)data, writer.at},
                               &result);
}


/* What an older side says: the fields added since are not there. */
static void
hello__without_added_fields__they_are_zero(void **state)
{
    uint8_t data[256];
    struct meter_writer writer;
    struct meter_hello hello = {.version_min = 1, .version_max = 1};
    struct meter_hello_ack ack = {.version = 1};
    size_t least;

    (void)state;
    meter_writer_init(&writer, data, sizeof(data));
    meter_hello_encode(&hello, &writer);
    least = writer.at;
    memset(&hello, 0xff, sizeof(hello));
    assert_true(meter_hello_decode((struct meter_str){(char *)data, least},
                                   &hello));
    assert_int_equal(hello.oldest, 0);
    hello.oldest = 1;
    meter_writer_init(&writer, data, sizeof(data));
    meter_hello_encode(&hello, &writer);
    assert_int_equal(writer.at, least + METER_FIELD_HEADER_SIZE + 8);

    meter_writer_init(&writer, data, sizeof(data));
    meter_hello_ack_encode(&ack, &writer);
    least = writer.at;
    memset(&ack, 0xff, sizeof(ack));
    assert_true(meter_hello_ack_decode((struct meter_str){(char *)data, least},
                                       &ack));
    for (int i = 0; i < METER_VERDICT_COUNT; i++) {
        assert_int_equal(ack.verdicts[i], 0);
    }
    ack.verdicts[METER_VERDICT_REJECTED] = 1;
    meter_writer_init(&writer, data, sizeof(data));
    meter_hello_ack_encode(&ack, &writer);
    assert_int_equal(writer.at, least + METER_FIELD_HEADER_SIZE + 32);
}


static void
hello_ack__verdicts__all_or_none(void **state)
{
    struct meter_hello_ack ack = {.version = 1};
    const char zeros[41] = {0};

    (void)state;
    for (size_t size = 0; size <= 40; size++) {
        uint8_t data[256];
        struct meter_writer writer;

        memset(&ack, 0, sizeof(ack));
        ack.version = 1;
        meter_writer_init(&writer, data, sizeof(data));
        meter_hello_ack_encode(&ack, &writer);
        meter_put_field_str(&writer, 8, (struct meter_str){zeros, size});
        assert_int_equal(meter_hello_ack_decode(
                             (struct meter_str){(char *)data, writer.at}, &ack),
                         size == 32);
    }
}


static void
result__codes__are_verdicts_and_do_not_wrap(void **state)
{
    (void)state;
    assert_true(result_round_trip(1, "\0\1\2\3", 4));
    assert_false(result_round_trip(1, "\0\1\2\4", 4));
    assert_true(result_round_trip(1, "\xff\0\xff", 3));
    for (int code = 0; code < 256; code++) {
        char byte = (char)code;

        assert_int_equal(result_round_trip(1, &byte, 1),
                         code < METER_VERDICT_COUNT || code == METER_CODE_NONE);
    }
    assert_true(result_round_trip(UINT64_MAX - 3, "\0\0\0", 3));
    assert_false(result_round_trip(UINT64_MAX - 3, "\0\0\0\0", 4));
    assert_true(result_round_trip(9, NULL, 0));
}


static void
version_common__ranges__highest_of_both_or_zero(void **state)
{
    (void)state;
    assert_int_equal(meter_version_common(1, 1, 1, 1), 1);
    assert_int_equal(meter_version_common(1, 3, 2, 5), 3);
    assert_int_equal(meter_version_common(2, 5, 1, 3), 3);
    assert_int_equal(meter_version_common(1, 9, 4, 4), 4);
    assert_int_equal(meter_version_common(1, 2, 3, 4), 0);
    assert_int_equal(meter_version_common(3, 4, 1, 2), 0);
    assert_int_equal(meter_version_common(1, 255, 255, 255), 255);
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(request__golden_frame__decodes_and_encodes),
    cmocka_unit_test(response__golden_frame__decodes_and_encodes),
    cmocka_unit_test(hello__golden_frame__decodes_and_encodes),
    cmocka_unit_test(hello_ack__golden_frame__decodes_and_encodes),
    cmocka_unit_test(result_credit_nack__golden_frames__decode_and_encode),
    cmocka_unit_test(request__least_fields__others_are_absent),
    cmocka_unit_test(request__present_but_empty__is_not_absent),
    cmocka_unit_test(request__header_count_limit__64_taken_65_refused),
    cmocka_unit_test(values__outside_their_enum__are_bad),
    cmocka_unit_test(hello__without_added_fields__they_are_zero),
    cmocka_unit_test(hello_ack__verdicts__all_or_none),
    cmocka_unit_test(result__codes__are_verdicts_and_do_not_wrap),
    cmocka_unit_test(version_common__ranges__highest_of_both_or_zero),
};

RUN_TAP(tests)
