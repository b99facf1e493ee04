/*
 * meter_msg.c - message bodies: what is inside a frame.
 *
 *   frame payload <-> [msg] <-> structs of link, session and api
 *
 * Each message is a list of tagged fields (meter_field.h). The numbers below
 * are frozen: a number is never used again for something else. docs/
 * protocol.md has the same tables. A field marked critical may not be
 * skipped by a reader that does not know it.
 */

#include "meter_msg.h"

#include "meter_field.h"

#define CRITICAL      METER_TAG_CRITICAL
#define VERDICTS_SIZE (METER_VERDICT_COUNT * 8)

enum request_field {
    REQUEST_METHOD = 1,    /* u8, critical, required */
    REQUEST_PATH = 2,      /* bytes, critical, required */
    REQUEST_BODY_SIZE = 3, /* u64, critical, required */
    REQUEST_ARGS = 4,
    REQUEST_AUTHORIZATION = 5,
    REQUEST_CONTENT_TYPE = 6,
    REQUEST_CONTENT_ENCODING = 7,
    REQUEST_ACCEPT = 8,
    REQUEST_IDEMPOTENCY_KEY = 9,
    REQUEST_CLIENT_ADDRESS = 10,
    REQUEST_HEADER = 11 /* pair, repeats */
};

enum response_field {
    RESPONSE_STATUS = 1,    /* u16, critical, required */
    RESPONSE_BODY_SIZE = 2, /* u64, critical, required */
    RESPONSE_CONTENT_TYPE = 3,
    RESPONSE_RETRY_AFTER = 4, /* u32, seconds */
    RESPONSE_ALLOW = 5,
    RESPONSE_HEADER = 6 /* pair, repeats */
};

enum hello_field {
    HELLO_VERSION_MIN = 1, /* u8, critical, required */
    HELLO_VERSION_MAX = 2, /* u8, critical, required */
    HELLO_SESSION = 3,     /* 16 bytes, critical, required */
    HELLO_HEAD = 4,        /* u64, critical, required */
    HELLO_ACKED = 5,       /* u64, critical, required */
    HELLO_DB_EPOCH = 6,    /* u64 */
    HELLO_PID = 7,         /* u32 */
    HELLO_NODE = 8,
    HELLO_BUILD = 9,
    HELLO_OLDEST = 10 /* u64; absent: 0 */
};

enum hello_ack_field {
    ACK_VERSION = 1,        /* u8, critical, required */
    ACK_LAST_SEQ = 2,       /* u64, critical, required */
    ACK_SEQ_LIMIT = 3,      /* u64, critical, required */
    ACK_DB_EPOCH = 4,       /* u64 */
    ACK_CONFIG_VERSION = 5, /* u64 */
    ACK_SERVER_TIME = 6,    /* i64, microseconds since 1970 */
    ACK_INSTANCE = 7,
    ACK_VERDICTS = 8 /* u64 for each verdict; absent: zeros */
};

enum result_field {
    RESULT_DURABLE_UPTO = 1, /* u64, critical, required */
    RESULT_FIRST_SEQ = 2,    /* u64, required beside codes */
    RESULT_CODES = 3         /* one byte each, or METER_CODE_NONE */
};

enum credit_field {
    CREDIT_SEQ_LIMIT = 1 /* u64, critical, required */
};

enum nack_field {
    NACK_CODE = 1, /* u8, critical, required */
    NACK_VALUE = 2 /* u64 */
};


static void
put_headers(struct meter_writer *out, uint16_t tag,
            const struct meter_header *headers, size_t count)
{
    if (count > METER_HEADER_COUNT_MAX) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        meter_put_field_pair(out, tag, headers[i].name, headers[i].value);
    }
}


static void
take_header(struct meter_field_list *list, const struct meter_field *field,
            struct meter_header *headers, size_t *count)
{
    if (*count == METER_HEADER_COUNT_MAX) {
        list->failed = true;
        return;
    }
    meter_field_pair(list, field, &headers[*count].name,
                     &headers[*count].value);
    (*count)++;
}


void
meter_request_encode(const struct meter_request *request,
                     struct meter_writer *out)
{
    meter_put_field_u8(out, REQUEST_METHOD | CRITICAL, request->method);
    meter_put_field_str(out, REQUEST_PATH | CRITICAL, request->path);
    meter_put_field_u64(out, REQUEST_BODY_SIZE | CRITICAL, request->body_size);
    meter_put_field_optional(out, REQUEST_ARGS, request->args);
    meter_put_field_optional(out, REQUEST_AUTHORIZATION,
                             request->authorization);
    meter_put_field_optional(out, REQUEST_CONTENT_TYPE, request->content_type);
    meter_put_field_optional(out, REQUEST_CONTENT_ENCODING,
                             request->content_encoding);
    meter_put_field_optional(out, REQUEST_ACCEPT, request->accept);
    meter_put_field_optional(out, REQUEST_IDEMPOTENCY_KEY,
                             request->idempotency_key);
    meter_put_field_optional(out, REQUEST_CLIENT_ADDRESS,
                             request->client_address);
    put_headers(out, REQUEST_HEADER, request->headers, request->header_count);
}


/* The fields that are one string each; NULL for any other number. */
static struct meter_str *
request_string(struct meter_request *request, uint16_t number)
{
    switch (number) {
    case REQUEST_PATH: return &request->path;
    case REQUEST_ARGS: return &request->args;
    case REQUEST_AUTHORIZATION: return &request->authorization;
    case REQUEST_CONTENT_TYPE: return &request->content_type;
    case REQUEST_CONTENT_ENCODING: return &request->content_encoding;
    case REQUEST_ACCEPT: return &request->accept;
    case REQUEST_IDEMPOTENCY_KEY: return &request->idempotency_key;
    case REQUEST_CLIENT_ADDRESS: return &request->client_address;
    default: return NULL;
    }
}


bool
meter_request_decode(struct meter_str bytes, struct meter_request *request)
{
    struct meter_field_list list;
    struct meter_field field;

    memset(request, 0, sizeof(*request));
    meter_field_list_init(&list, bytes);
    while (meter_field_next(&list, &field)) {
        struct meter_str *string = request_string(request, field.number);

        if (string != NULL) {
            *string = meter_field_str(&list, &field);
            continue;
        }
        switch (field.number) {
        case REQUEST_METHOD:
            request->method = meter_field_u8(&list, &field);
            break;
        case REQUEST_BODY_SIZE:
            request->body_size = meter_field_u64(&list, &field);
            break;
        case REQUEST_HEADER:
            take_header(&list, &field, request->headers,
                        &request->header_count);
            break;
        default: meter_field_unknown(&list, &field);
        }
    }
    return meter_field_list_end(&list,
                                METER_FIELD_BIT(REQUEST_METHOD) |
                                    METER_FIELD_BIT(REQUEST_PATH) |
                                    METER_FIELD_BIT(REQUEST_BODY_SIZE)) &&
           request->method >= METER_METHOD_GET &&
           request->method <= METER_METHOD_OTHER;
}


void
meter_response_encode(const struct meter_response *response,
                      struct meter_writer *out)
{
    meter_put_field_u16(out, RESPONSE_STATUS | CRITICAL, response->status);
    meter_put_field_u64(out, RESPONSE_BODY_SIZE | CRITICAL,
                        response->body_size);
    meter_put_field_optional(out, RESPONSE_CONTENT_TYPE,
                             response->content_type);
    if (response->retry_after_s != 0) {
        meter_put_field_u32(out, RESPONSE_RETRY_AFTER, response->retry_after_s);
    }
    meter_put_field_optional(out, RESPONSE_ALLOW, response->allow);
    put_headers(out, RESPONSE_HEADER, response->headers,
                response->header_count);
}


bool
meter_response_decode(struct meter_str bytes, struct meter_response *response)
{
    struct meter_field_list list;
    struct meter_field field;

    memset(response, 0, sizeof(*response));
    meter_field_list_init(&list, bytes);
    while (meter_field_next(&list, &field)) {
        switch (field.number) {
        case RESPONSE_STATUS:
            response->status = meter_field_u16(&list, &field);
            break;
        case RESPONSE_BODY_SIZE:
            response->body_size = meter_field_u64(&list, &field);
            break;
        case RESPONSE_CONTENT_TYPE:
            response->content_type = meter_field_str(&list, &field);
            break;
        case RESPONSE_RETRY_AFTER:
            response->retry_after_s = meter_field_u32(&list, &field);
            break;
        case RESPONSE_ALLOW:
            response->allow = meter_field_str(&list, &field);
            break;
        case RESPONSE_HEADER:
            take_header(&list, &field, response->headers,
                        &response->header_count);
            break;
        default: meter_field_unknown(&list, &field);
        }
    }
    return meter_field_list_end(&list,
                                METER_FIELD_BIT(RESPONSE_STATUS) |
                                    METER_FIELD_BIT(RESPONSE_BODY_SIZE)) &&
           response->status >= 100 && response->status <= 599;
}


void
meter_hello_encode(const struct meter_hello *hello, struct meter_writer *out)
{
    struct meter_str session = {(const char *)hello->session,
                                sizeof(hello->session)};

    meter_put_field_u8(out, HELLO_VERSION_MIN | CRITICAL, hello->version_min);
    meter_put_field_u8(out, HELLO_VERSION_MAX | CRITICAL, hello->version_max);
    meter_put_field_str(out, HELLO_SESSION | CRITICAL, session);
    meter_put_field_u64(out, HELLO_HEAD | CRITICAL, hello->head);
    meter_put_field_u64(out, HELLO_ACKED | CRITICAL, hello->acked);
    meter_put_field_u64(out, HELLO_DB_EPOCH, hello->db_epoch);
    meter_put_field_u32(out, HELLO_PID, hello->pid);
    meter_put_field_optional(out, HELLO_NODE, hello->node);
    meter_put_field_optional(out, HELLO_BUILD, hello->build);
    if (hello->oldest != 0) {
        meter_put_field_u64(out, HELLO_OLDEST, hello->oldest);
    }
}


bool
meter_hello_decode(struct meter_str bytes, struct meter_hello *hello)
{
    const uint64_t required =
        METER_FIELD_BIT(HELLO_VERSION_MIN) |
        METER_FIELD_BIT(HELLO_VERSION_MAX) | METER_FIELD_BIT(HELLO_SESSION) |
        METER_FIELD_BIT(HELLO_HEAD) | METER_FIELD_BIT(HELLO_ACKED);
    struct meter_field_list list;
    struct meter_field field;

    memset(hello, 0, sizeof(*hello));
    meter_field_list_init(&list, bytes);
    while (meter_field_next(&list, &field)) {
        switch (field.number) {
        case HELLO_VERSION_MIN:
            hello->version_min = meter_field_u8(&list, &field);
            break;
        case HELLO_VERSION_MAX:
            hello->version_max = meter_field_u8(&list, &field);
            break;
        case HELLO_SESSION:
            meter_field_fixed(&list, &field, hello->session,
                              sizeof(hello->session));
            break;
        case HELLO_HEAD: hello->head = meter_field_u64(&list, &field); break;
        case HELLO_ACKED: hello->acked = meter_field_u64(&list, &field); break;
        case HELLO_DB_EPOCH:
            hello->db_epoch = meter_field_u64(&list, &field);
            break;
        case HELLO_PID: hello->pid = meter_field_u32(&list, &field); break;
        case HELLO_NODE: hello->node = meter_field_str(&list, &field); break;
        case HELLO_BUILD: hello->build = meter_field_str(&list, &field); break;
        case HELLO_OLDEST:
            hello->oldest = meter_field_u64(&list, &field);
            break;
        default: meter_field_unknown(&list, &field);
        }
    }
    return meter_field_list_end(&list, required) && hello->version_min >= 1 &&
           hello->version_min <= hello->version_max;
}


/* Nothing at all when every one is zero. */
static void
put_verdicts(struct meter_writer *out, const uint64_t *verdicts)
{
    uint8_t bytes[VERDICTS_SIZE];
    struct meter_writer field;
    uint64_t any = 0;

    meter_writer_init(&field, bytes, sizeof(bytes));
    for (size_t i = 0; i < METER_VERDICT_COUNT; i++) {
        meter_put_u64(&field, verdicts[i]);
        any |= verdicts[i];
    }
    if (any != 0) {
        meter_put_field_str(
            out, ACK_VERDICTS,
            (struct meter_str){(const char *)bytes, sizeof(bytes)});
    }
}


static void
take_verdicts(struct meter_field_list *list, const struct meter_field *field,
              uint64_t *verdicts)
{
    uint8_t bytes[VERDICTS_SIZE] = {0};
    struct meter_reader reader;

    meter_field_fixed(list, field, bytes, sizeof(bytes));
    meter_reader_init(&reader, bytes, sizeof(bytes));
    for (size_t i = 0; i < METER_VERDICT_COUNT; i++) {
        verdicts[i] = meter_get_u64(&reader);
    }
}


void
meter_hello_ack_encode(const struct meter_hello_ack *ack,
                       struct meter_writer *out)
{
    meter_put_field_u8(out, ACK_VERSION | CRITICAL, ack->version);
    meter_put_field_u64(out, ACK_LAST_SEQ | CRITICAL, ack->last_seq);
    meter_put_field_u64(out, ACK_SEQ_LIMIT | CRITICAL, ack->seq_limit);
    meter_put_field_u64(out, ACK_DB_EPOCH, ack->db_epoch);
    meter_put_field_u64(out, ACK_CONFIG_VERSION, ack->config_version);
    meter_put_field_u64(out, ACK_SERVER_TIME, (uint64_t)ack->server_time_us);
    meter_put_field_optional(out, ACK_INSTANCE, ack->instance);
    put_verdicts(out, ack->verdicts);
}


bool
meter_hello_ack_decode(struct meter_str bytes, struct meter_hello_ack *ack)
{
    struct meter_field_list list;
    struct meter_field field;

    memset(ack, 0, sizeof(*ack));
    meter_field_list_init(&list, bytes);
    while (meter_field_next(&list, &field)) {
        switch (field.number) {
        case ACK_VERSION: ack->version = meter_field_u8(&list, &field); break;
        case ACK_LAST_SEQ:
            ack->last_seq = meter_field_u64(&list, &field);
            break;
        case ACK_SEQ_LIMIT:
            ack->seq_limit = meter_field_u64(&list, &field);
            break;
        case ACK_DB_EPOCH:
            ack->db_epoch = meter_field_u64(&list, &field);
            break;
        case ACK_CONFIG_VERSION:
            ack->config_version = meter_field_u64(&list, &field);
            break;
        case ACK_SERVER_TIME:
            ack->server_time_us = (int64_t)meter_field_u64(&list, &field);
            break;
        case ACK_INSTANCE:
            ack->instance = meter_field_str(&list, &field);
            break;
        case ACK_VERDICTS: take_verdicts(&list, &field, ack->verdicts); break;
        default: meter_field_unknown(&list, &field);
        }
    }
    return meter_field_list_end(&list, METER_FIELD_BIT(ACK_VERSION) |
                                           METER_FIELD_BIT(ACK_LAST_SEQ) |
                                           METER_FIELD_BIT(ACK_SEQ_LIMIT)) &&
           ack->version >= 1;
}


void
meter_result_encode(const struct meter_result *result, struct meter_writer *out)
{
    meter_put_field_u64(out, RESULT_DURABLE_UPTO | CRITICAL,
                        result->durable_upto);
    if (result->codes.size > 0) {
        meter_put_field_u64(out, RESULT_FIRST_SEQ, result->first_seq);
        meter_put_field_str(out, RESULT_CODES, result->codes);
    }
}


/* Every code a verdict or none; the sequence of the last one a number. */
static bool
codes_hold(const struct meter_result *result)
{
    if (result->codes.size > UINT64_MAX - result->first_seq) {
        return false;
    }
    for (size_t i = 0; i < result->codes.size; i++) {
        uint8_t code = (uint8_t)result->codes.data[i];

        if (code >= METER_VERDICT_COUNT && code != METER_CODE_NONE) {
            return false;
        }
    }
    return true;
}


bool
meter_result_decode(struct meter_str bytes, struct meter_result *result)
{
    uint64_t required = METER_FIELD_BIT(RESULT_DURABLE_UPTO);
    struct meter_field_list list;
    struct meter_field field;

    memset(result, 0, sizeof(*result));
    meter_field_list_init(&list, bytes);
    while (meter_field_next(&list, &field)) {
        switch (field.number) {
        case RESULT_DURABLE_UPTO:
            result->durable_upto = meter_field_u64(&list, &field);
            break;
        case RESULT_FIRST_SEQ:
            result->first_seq = meter_field_u64(&list, &field);
            break;
        case RESULT_CODES:
            result->codes = meter_field_str(&list, &field);
            required |= METER_FIELD_BIT(RESULT_FIRST_SEQ);
            break;
        default: meter_field_unknown(&list, &field);
        }
    }
    return meter_field_list_end(&list, required) && codes_hold(result);
}


void
meter_credit_encode(const struct meter_credit *credit, struct meter_writer *out)
{
    meter_put_field_u64(out, CREDIT_SEQ_LIMIT | CRITICAL, credit->seq_limit);
}


bool
meter_credit_decode(struct meter_str bytes, struct meter_credit *credit)
{
    struct meter_field_list list;
    struct meter_field field;

    memset(credit, 0, sizeof(*credit));
    meter_field_list_init(&list, bytes);
    while (meter_field_next(&list, &field)) {
        switch (field.number) {
        case CREDIT_SEQ_LIMIT:
            credit->seq_limit = meter_field_u64(&list, &field);
            break;
        default: meter_field_unknown(&list, &field);
        }
    }
    return meter_field_list_end(&list, METER_FIELD_BIT(CREDIT_SEQ_LIMIT));
}


void
meter_nack_encode(const struct meter_nack *nack, struct meter_writer *out)
{
    meter_put_field_u8(out, NACK_CODE | CRITICAL, nack->code);
    meter_put_field_u64(out, NACK_VALUE, nack->value);
}


bool
meter_nack_decode(struct meter_str bytes, struct meter_nack *nack)
{
    struct meter_field_list list;
    struct meter_field field;

    memset(nack, 0, sizeof(*nack));
    meter_field_list_init(&list, bytes);
    while (meter_field_next(&list, &field)) {
        switch (field.number) {
        case NACK_CODE: nack->code = meter_field_u8(&list, &field); break;
        case NACK_VALUE: nack->value = meter_field_u64(&list, &field); break;
        default: meter_field_unknown(&list, &field);
        }
    }
    return meter_field_list_end(&list, METER_FIELD_BIT(NACK_CODE)) &&
           nack->code >= METER_NACK_GAP && nack->code <= METER_NACK_RETRY_AFTER;
}


uint8_t
meter_version_common(uint8_t min_a, uint8_t max_a, uint8_t min_b, uint8_t max_b)
{
    uint8_t lowest = min_a > min_b ? min_a : min_b;
    uint8_t highest = max_a < max_b ? max_a : max_b;

    return highest >= lowest ? highest : 0;
}
