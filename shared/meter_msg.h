/*
 * meter_msg.h - message bodies: what is inside a frame.
 *
 * A body is a list of fields: tag u16, size u32, bytes. The high bit of a
 * tag marks it critical: a reader that does not know a critical field calls
 * the message bad, an unknown other field is skipped. So either side may be
 * one version ahead. Integers are little endian of the size given here.
 * Every struct below borrows its strings from the decoded bytes.
 */

#ifndef METER_MSG_H
#define METER_MSG_H

#include "meter_event.h"
#include "meter_field.h"
#include "meter_frame.h"

/* ---- the API half ---------------------------------------------------- */

enum meter_method {
    METER_METHOD_GET = 1,
    METER_METHOD_HEAD = 2,
    METER_METHOD_POST = 3,
    METER_METHOD_PUT = 4,
    METER_METHOD_PATCH = 5,
    METER_METHOD_DELETE = 6,
    METER_METHOD_OTHER = 7
};

struct meter_header {
    struct meter_str name; /* lower case */
    struct meter_str value;
};

/* REQUEST: an HTTP request without its body, which follows the frame. */
struct meter_request {
    uint8_t method;        /* enum meter_method */
    struct meter_str path; /* raw, still percent-encoded, no arguments */
    struct meter_str args; /* raw, without '?' */
    struct meter_str authorization; /* data NULL: absent, as all below */
    struct meter_str content_type;
    struct meter_str content_encoding;
    struct meter_str accept;
    struct meter_str idempotency_key;
    struct meter_str client_address;
    struct meter_header headers[METER_HEADER_COUNT_MAX]; /* ce-*, others */
    size_t header_count;
    uint64_t body_size;
};

/* RESPONSE: status and headers; the body follows the frame. */
struct meter_response {
    uint16_t status;
    struct meter_str content_type;
    uint32_t retry_after_s; /* 0: no Retry-After header */
    struct meter_str allow; /* for 405 */
    struct meter_header headers[METER_HEADER_COUNT_MAX];
    size_t header_count;
    uint64_t body_size;
};

/* ---- the capture half ------------------------------------------------ */

struct meter_hello {
    uint8_t version_min;
    uint8_t version_max;
    uint8_t session[16];
    uint64_t head;   /* sequence number of the next record */
    uint64_t acked;  /* all up to here were called durable before */
    uint64_t oldest; /* first record that can be sent, when some behind
                        last_seq are known to be gone; else 0 */
    uint64_t db_epoch;
    uint32_t pid;
    struct meter_str node;
    struct meter_str build;
};

struct meter_hello_ack {
    uint8_t version;
    uint64_t last_seq;
    uint64_t seq_limit; /* cumulative credit */
    uint64_t db_epoch;
    uint64_t config_version;
    int64_t server_time_us;
    /* Requests of the session by verdict up to last_seq; all or none. */
    uint64_t verdicts[METER_VERDICT_COUNT];
    struct meter_str instance;
};

/* A code of RESULT beside the verdicts: known before, or no event. */
#define METER_CODE_NONE 0xff

struct meter_result {
    uint64_t durable_upto;  /* cumulative */
    uint64_t first_seq;     /* codes[0] belongs to it */
    struct meter_str codes; /* per entry: enum meter_verdict or CODE_NONE */
};

struct meter_credit {
    uint64_t seq_limit; /* cumulative: use the maximum seen */
};

enum meter_nack_code {
    METER_NACK_GAP = 1,
    METER_NACK_FENCED = 2,
    METER_NACK_VERSION = 3,
    METER_NACK_RETRY_AFTER = 4
};

struct meter_nack {
    uint8_t code;   /* enum meter_nack_code */
    uint64_t value; /* GAP: expected seq; RETRY_AFTER: ms */
};

/* Encoders: into a writer that stands behind meter_frame_begin. */
void meter_request_encode(const struct meter_request *, struct meter_writer *);
void
meter_response_encode(const struct meter_response *, struct meter_writer *);
void meter_hello_encode(const struct meter_hello *, struct meter_writer *);
void
meter_hello_ack_encode(const struct meter_hello_ack *, struct meter_writer *);
void meter_result_encode(const struct meter_result *, struct meter_writer *);
void meter_credit_encode(const struct meter_credit *, struct meter_writer *);
void meter_nack_encode(const struct meter_nack *, struct meter_writer *);

/* Decoders: false = bad bytes, a required field missing or twice. */
METER_MUST_CHECK bool
meter_request_decode(struct meter_str, struct meter_request *);
METER_MUST_CHECK bool
meter_response_decode(struct meter_str, struct meter_response *);
METER_MUST_CHECK bool
meter_hello_decode(struct meter_str, struct meter_hello *);
METER_MUST_CHECK bool
meter_hello_ack_decode(struct meter_str, struct meter_hello_ack *);
METER_MUST_CHECK bool
meter_result_decode(struct meter_str, struct meter_result *);
METER_MUST_CHECK bool
meter_credit_decode(struct meter_str, struct meter_credit *);
METER_MUST_CHECK bool meter_nack_decode(struct meter_str, struct meter_nack *);

/* Highest version both ranges hold; 0 when there is none. */
uint8_t meter_version_common(uint8_t min_a, uint8_t max_a, uint8_t min_b,
                             uint8_t max_b);

#endif
