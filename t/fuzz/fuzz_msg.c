/*
 * fuzz_msg.c - message and record bodies: decode, encode, decode.
 *
 * Oracle: what decodes encodes within a bounded size, what was encoded
 * decodes, and encoding that gives the same bytes: nothing a reader keeps
 * is lost or changed. All strings lie inside the input.
 *
 * The first byte chooses the message.
 */

#include "fuzz_check.h"

#include "meter_msg.h"
#include "meter_ring.h"

enum { KINDS = 8, ROOM = 1 << 17 };

union any_message {
    struct meter_request request;
    struct meter_response response;
    struct meter_hello hello;
    struct meter_hello_ack hello_ack;
    struct meter_result result;
    struct meter_credit credit;
    struct meter_nack nack;
    struct meter_record_event event;
};


static bool
decode(int kind, struct meter_str bytes, union any_message *out)
{
    /* Leftovers of an earlier message must not shine through. */
    memset(out, 0xa5, sizeof(*out));
    switch (kind) {
    case 0: return meter_request_decode(bytes, &out->request);
    case 1: return meter_response_decode(bytes, &out->response);
    case 2: return meter_hello_decode(bytes, &out->hello);
    case 3: return meter_hello_ack_decode(bytes, &out->hello_ack);
    case 4: return meter_result_decode(bytes, &out->result);
    case 5: return meter_credit_decode(bytes, &out->credit);
    case 6: return meter_nack_decode(bytes, &out->nack);
    default: return meter_record_event_decode(bytes, &out->event);
    }
}


static void
encode(int kind, const union any_message *in, struct meter_writer *out)
{
    switch (kind) {
    case 0: meter_request_encode(&in->request, out); break;
    case 1: meter_response_encode(&in->response, out); break;
    case 2: meter_hello_encode(&in->hello, out); break;
    case 3: meter_hello_ack_encode(&in->hello_ack, out); break;
    case 4: meter_result_encode(&in->result, out); break;
    case 5: meter_credit_encode(&in->credit, out); break;
    case 6: meter_nack_encode(&in->nack, out); break;
    default: meter_record_event_encode(&in->event, out); break;
    }
}


static void
check_inside(struct meter_str str, const uint8_t *data, size_t size)
{
    const char *start = (const char *)data;

    if (str.data == NULL) {
        FUZZ_CHECK(str.size == 0);
        return;
    }
    FUZZ_CHECK(str.data >= start && str.data <= start + size);
    FUZZ_CHECK(str.size <= size - (size_t)(str.data - start));
}


static void
check_strings(int kind, const union any_message *msg, const uint8_t *data,
              size_t size)
{
    switch (kind) {
    case 0:
        check_inside(msg->request.path, data, size);
        check_inside(msg->request.args, data, size);
        check_inside(msg->request.authorization, data, size);
        FUZZ_CHECK(msg->request.header_count <= METER_HEADER_COUNT_MAX);
        for (size_t i = 0; i < msg->request.header_count; i++) {
            check_inside(msg->request.headers[i].name, data, size);
            check_inside(msg->request.headers[i].value, data, size);
        }
        break;
    case 1:
        check_inside(msg->response.content_type, data, size);
        FUZZ_CHECK(msg->response.status >= 100);
        FUZZ_CHECK(msg->response.header_count <= METER_HEADER_COUNT_MAX);
        break;
    case 4:
        check_inside(msg->result.codes, data, size);
        for (size_t i = 0; i < msg->result.codes.size; i++) {
            uint8_t code = (uint8_t)msg->result.codes.data[i];

            FUZZ_CHECK(code < METER_VERDICT_COUNT || code == METER_CODE_NONE);
        }
        break;
    case 7:
        check_inside(msg->event.tenant, data, size);
        FUZZ_CHECK(msg->event.attribute_count <= METER_ATTRIBUTE_COUNT_MAX);
        for (size_t i = 0; i < msg->event.attribute_count; i++) {
            check_inside(msg->event.attributes[i].name, data, size);
            check_inside(msg->event.attributes[i].value, data, size);
        }
        break;
    default: break;
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t first[ROOM], second[ROOM];
    static union any_message msg, again;
    struct meter_writer one, two;
    int kind;

    if (size < 1 || size > ROOM / 2) {
        return 0;
    }
    kind = data[0] % KINDS;
    data++;
    size--;
    if (!decode(kind, (struct meter_str){(const char *)data, size}, &msg)) {
        return 0;
    }
    check_strings(kind, &msg, data, size);
    meter_writer_init(&one, first, sizeof(first));
    encode(kind, &msg, &one);
    FUZZ_CHECK(!one.failed);
    FUZZ_CHECK(decode(kind, (struct meter_str){(char *)first, one.at}, &again));
    check_strings(kind, &again, first, one.at);
    meter_writer_init(&two, second, sizeof(second));
    encode(kind, &again, &two);
    FUZZ_CHECK(!two.failed && one.at == two.at);
    FUZZ_CHECK(memcmp(first, second, one.at) == 0);
    return 0;
}
