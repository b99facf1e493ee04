/*
 * meter_event.h - the event, its identity and its fingerprint.
 *
 *   registry key   the UUID itself when the id is a canonical lower-case
 *                  UUID of a version other than 8; else HMAC(salt, id) cut
 *                  to 128 bits with version nibble 8, so that the two kinds
 *                  can never meet
 *   fingerprint    head = HMAC(salt, (tenant, type, customer, resource))
 *                  body = HMAC(salt, (ts, quantity, attributes, source)),
 *                  each cut to 64 bits; body is absent when the server
 *                  supplied the time or the edge captured the event
 *   derived id     base64url(HMAC(salt, ["tenant","type",customer,resource,
 *                  "ts"])), canonical JSON, null where absent
 *   minted id      edge-<32 hex session>-<seq>-<ts in us>
 */

#ifndef METER_EVENT_H
#define METER_EVENT_H

#include "meter_decimal.h"
#include "meter_digest.h"
#include "meter_limits.h"
#include "meter_types.h"

struct meter_event {
    struct meter_str tenant;
    struct meter_str event_id;
    struct meter_str type;
    struct meter_str customer;   /* data NULL: absent */
    struct meter_str resource;   /* data NULL: absent */
    struct meter_str source;     /* data NULL: absent */
    struct meter_str attributes; /* canonical JSON object */
    int64_t ts_us;
    struct meter_decimal quantity;
    int64_t count;
    uint32_t flags; /* enum meter_event_flag */
};

struct meter_fingerprint {
    uint64_t head;
    uint64_t body;
    bool has_body;
};

/* The prepared salts; made once from the database's secret. */
struct meter_salt {
    struct meter_digest_key id;
    struct meter_digest_key fingerprint;
    struct meter_digest_key derive;
};

/* Separate keys are drawn from one secret by HMAC with a label each. */
void meter_salt_init(struct meter_salt *salt, const void *secret, size_t size);

void meter_event_key(const struct meter_salt *salt, struct meter_str event_id,
                     uint8_t key[METER_KEY_SIZE]);
void meter_event_fingerprint(const struct meter_salt *salt,
                             const struct meter_event *event,
                             struct meter_fingerprint *out);

/* DUPLICATE when equal, CONFLICT else; body only when both sides have it. */
enum meter_verdict meter_fingerprint_compare(const struct meter_fingerprint *a,
                                             const struct meter_fingerprint *b);

#define METER_DERIVED_ID_SIZE 43
void meter_event_derive_id(const struct meter_salt *salt,
                           const struct meter_event *event,
                           char out[METER_DERIVED_ID_SIZE + 1]);

#define METER_MINTED_ID_SIZE_MAX 80
size_t
meter_event_mint_id(const uint8_t session[16], uint64_t seq, int64_t ts_us,
                    char out[METER_MINTED_ID_SIZE_MAX + 1]);
/* True when the id has the minted form; the parts are then filled in. */
bool meter_event_minted_parse(struct meter_str event_id, uint8_t session[16],
                              uint64_t *seq, int64_t *ts_us);

/*
 * Size of the well-formed UTF-8 sequence at the front of `left` bytes, at
 * least one; 0 when there is none, or a NUL.
 */
size_t meter_utf8_size(const uint8_t *at, size_t left);

/* Well-formed UTF-8 without NUL, overlong forms or surrogates. */
bool meter_utf8_valid(struct meter_str text);

#endif
