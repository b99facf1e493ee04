/*
 * meter_event.c - the event's identity and its fingerprint.
 *
 *   validated event -> [key, fingerprint] -> registry: accepted,
 *                                            duplicate or conflict
 *
 * Pure functions of the event and of keys drawn once from the database's
 * secret. The bytes that are hashed (little endian; str = u32 length and
 * bytes; opt = u8 0, or u8 1 and str) are frozen by golden vectors:
 *
 *   head  u8 1  u8 'h'  str tenant  str type  opt customer  opt resource
 *   body  u8 1  u8 'b'  u64 ts_us  u64 low and u64 high half of quantity in
 *         10^-9 units, two's complement  str attributes  opt source
 *
 * A half is the first eight bytes of the digest, read little endian.
 */

#include "meter_event.h"

#include "meter_bytes.h"
#include "meter_time.h"
#include "meter_tuple.h"

#define TUPLE_VERSION     1
#define UUID_TEXT_SIZE    36
#define UUID_VERSION_BYTE 6 /* its high nibble */
#define ESCAPE_CHUNK      128
#define MINTED_PREFIX     "edge-"
#define MINTED_HEX_AT     (sizeof(MINTED_PREFIX) - 1)
#define MINTED_SEQ_AT     (MINTED_HEX_AT + 32 + 1)


static void
derive_key(struct meter_digest_key *key, const struct meter_digest_key *secret,
           struct meter_str label)
{
    uint8_t digest[METER_DIGEST_SIZE];

    meter_hmac(secret, label.data, label.size, digest);
    meter_digest_key_init(key, digest, sizeof(digest));
    explicit_bzero(digest, sizeof(digest));
}


void
meter_salt_init(struct meter_salt *salt, const void *secret, size_t size)
{
    struct meter_digest_key root;

    meter_digest_key_init(&root, secret, size);
    derive_key(&salt->id, &root, METER_STR("edgemeter id 1"));
    derive_key(&salt->fingerprint, &root, METER_STR("edgemeter fingerprint 1"));
    derive_key(&salt->derive, &root, METER_STR("edgemeter derive 1"));
    explicit_bzero(&root, sizeof(root));
}


/* Value of a lower-case hexadecimal digit, -1 for anything else. */
static int
hex_value(char letter)
{
    if (letter >= '0' && letter <= '9') {
        return letter - '0';
    }
    if (letter >= 'a' && letter <= 'f') {
        return letter - 'a' + 10;
    }
    return -1;
}


/* count bytes from twice as many lower-case digits. */
static bool
parse_hex(const char *text, uint8_t *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int high = hex_value(text[2 * i]);
        int low = hex_value(text[2 * i + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}


/* A canonical lower-case UUID: 8-4-4-4-12. */
static bool
parse_uuid(struct meter_str text, uint8_t uuid[METER_KEY_SIZE])
{
    const char *at = text.data;

    return text.size == UUID_TEXT_SIZE && at[8] == '-' && at[13] == '-' &&
           at[18] == '-' && at[23] == '-' && parse_hex(at, uuid, 4) &&
           parse_hex(at + 9, uuid + 4, 2) && parse_hex(at + 14, uuid + 6, 2) &&
           parse_hex(at + 19, uuid + 8, 2) && parse_hex(at + 24, uuid + 10, 6);
}


void
meter_event_key(const struct meter_salt *salt, struct meter_str event_id,
                uint8_t key[METER_KEY_SIZE])
{
    uint8_t digest[METER_DIGEST_SIZE];

    if (parse_uuid(event_id, key) && key[UUID_VERSION_BYTE] >> 4 != 8) {
        return;
    }
    meter_hmac(&salt->id, event_id.data, event_id.size, digest);
    memcpy(key, digest, METER_KEY_SIZE);
    key[UUID_VERSION_BYTE] = (uint8_t)((key[UUID_VERSION_BYTE] & 0x0f) | 0x80);
}


static uint64_t
cut_to_u64(const uint8_t digest[METER_DIGEST_SIZE])
{
    struct meter_reader reader;

    meter_reader_init(&reader, digest, METER_DIGEST_SIZE);
    return meter_get_u64(&reader);
}


void
meter_event_fingerprint(const struct meter_salt *salt,
                        const struct meter_event *event,
                        struct meter_fingerprint *out)
{
    uint8_t digest[METER_DIGEST_SIZE];
    struct meter_tuple tuple;

    meter_tuple_init(&tuple, &salt->fingerprint);
    meter_tuple_u8(&tuple, TUPLE_VERSION);
    meter_tuple_u8(&tuple, 'h');
    meter_tuple_str(&tuple, event->tenant);
    meter_tuple_str(&tuple, event->type);
    meter_tuple_optional(&tuple, event->customer);
    meter_tuple_optional(&tuple, event->resource);
    meter_tuple_final(&tuple, digest);
    out->head = cut_to_u64(digest);

    out->body = 0;
    out->has_body =
        (event->flags & (METER_EVENT_SERVER_TIME | METER_EVENT_CAPTURED)) == 0;
    if (!out->has_body) {
        return;
    }
    meter_tuple_init(&tuple, &salt->fingerprint);
    meter_tuple_u8(&tuple, TUPLE_VERSION);
    meter_tuple_u8(&tuple, 'b');
    meter_tuple_u64(&tuple, (uint64_t)event->ts_us);
    meter_tuple_u64(&tuple, (uint64_t)event->quantity.units);
    meter_tuple_u64(&tuple, (uint64_t)(event->quantity.units >> 64));
    meter_tuple_str(&tuple, event->attributes);
    meter_tuple_optional(&tuple, event->source);
    meter_tuple_final(&tuple, digest);
    out->body = cut_to_u64(digest);
}


enum meter_verdict
meter_fingerprint_compare(const struct meter_fingerprint *a,
                          const struct meter_fingerprint *b)
{
    if (a->head != b->head) {
        return METER_VERDICT_CONFLICT;
    }
    if (a->has_body && b->has_body && a->body != b->body) {
        return METER_VERDICT_CONFLICT;
    }
    return METER_VERDICT_DUPLICATE;
}


/* A canonical JSON string, or null; escaped piece by piece. */
static void
tuple_json(struct meter_tuple *tuple, struct meter_str str)
{
    uint8_t escaped[METER_JSON_ESCAPED_SIZE(ESCAPE_CHUNK)];

    if (str.data == NULL) {
        meter_tuple_bytes(tuple, "null", 4);
        return;
    }
    meter_tuple_u8(tuple, '"');
    for (size_t at = 0; at < str.size; at += ESCAPE_CHUNK) {
        size_t left = str.size - at;
        struct meter_str piece = {str.data + at,
                                  left < ESCAPE_CHUNK ? left : ESCAPE_CHUNK};
        struct meter_writer writer;

        meter_writer_init(&writer, escaped, sizeof(escaped));
        meter_put_json_escaped(&writer, piece);
        meter_tuple_bytes(tuple, escaped, writer.at);
    }
    meter_tuple_u8(tuple, '"');
}


void
meter_event_derive_id(const struct meter_salt *salt,
                      const struct meter_event *event,
                      char out[METER_DERIVED_ID_SIZE + 1])
{
    uint8_t digest[METER_DIGEST_SIZE];
    char ts[METER_TIME_TEXT_SIZE + 1];
    struct meter_tuple tuple;

    meter_time_format(event->ts_us, ts);
    meter_tuple_init(&tuple, &salt->derive);
    meter_tuple_u8(&tuple, '[');
    tuple_json(&tuple, event->tenant);
    meter_tuple_u8(&tuple, ',');
    tuple_json(&tuple, event->type);
    meter_tuple_u8(&tuple, ',');
    tuple_json(&tuple, event->customer);
    meter_tuple_u8(&tuple, ',');
    tuple_json(&tuple, event->resource);
    meter_tuple_u8(&tuple, ',');
    tuple_json(&tuple, (struct meter_str){ts, METER_TIME_TEXT_SIZE});
    meter_tuple_u8(&tuple, ']');
    meter_tuple_final(&tuple, digest);
    meter_base64url(digest, sizeof(digest), out);
}


/* Decimal digits of value; returns the end. */
static char *
put_u64_text(char *out, uint64_t value)
{
    char reversed[20];
    size_t count = 0;

    do {
        reversed[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (count > 0) {
        *out++ = reversed[--count];
    }
    return out;
}


size_t
meter_event_mint_id(const uint8_t session[16], uint64_t seq, int64_t ts_us,
                    char out[METER_MINTED_ID_SIZE_MAX + 1])
{
    char *at = out;

    memcpy(at, MINTED_PREFIX, MINTED_HEX_AT);
    meter_hex(session, 16, at + MINTED_HEX_AT);
    at += MINTED_SEQ_AT - 1;
    *at++ = '-';
    at = put_u64_text(at, seq);
    *at++ = '-';
    if (ts_us < 0) {
        *at++ = '-';
    }
    at = put_u64_text(at, ts_us < 0 ? -(uint64_t)ts_us : (uint64_t)ts_us);
    *at = '\0';
    return (size_t)(at - out);
}


/* A decimal without sign or leading zeros; moves *at behind it. */
static bool
take_u64_text(const char **at, const char *end, uint64_t *value)
{
    const char *start = *at;

    *value = 0;
    while (*at < end && **at >= '0' && **at <= '9') {
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(**at - '0'), value)) {
            return false;
        }
        (*at)++;
    }
    return *at - start == 1 || (*at - start > 1 && *start != '0');
}


/* Exactly what meter_event_mint_id writes, so that each id has one form. */
bool
meter_event_minted_parse(struct meter_str event_id, uint8_t session[16],
                         uint64_t *seq, int64_t *ts_us)
{
    const char *at = event_id.data;
    const char *end;
    uint64_t magnitude;
    bool negative;

    if (event_id.size <= MINTED_SEQ_AT ||
        memcmp(at, MINTED_PREFIX, MINTED_HEX_AT) != 0 ||
        at[MINTED_SEQ_AT - 1] != '-' ||
        !parse_hex(at + MINTED_HEX_AT, session, 16)) {
        return false;
    }
    end = at + event_id.size;
    at += MINTED_SEQ_AT;
    if (!take_u64_text(&at, end, seq) || at == end || *at != '-') {
        return false;
    }
    at++;
    negative = at < end && *at == '-';
    at += negative;
    if (!take_u64_text(&at, end, &magnitude) || at != end ||
        (negative && magnitude == 0) ||
        magnitude > (uint64_t)INT64_MAX + negative) {
        return false;
    }
    *ts_us = negative ? (int64_t)-magnitude : (int64_t)magnitude;
    return true;
}


size_t
meter_utf8_size(const uint8_t *at, size_t left)
{
    uint8_t low = 0x80, high = 0xbf; /* what the second byte may be */
    size_t size;

    if (at[0] < 0xc2 || at[0] > 0xf4) {
        return at[0] > 0 && at[0] < 0x80;
    }
    size = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    switch (at[0]) {
    case 0xe0: low = 0xa0; break;  /* overlong */
    case 0xed: high = 0x9f; break; /* surrogates */
    case 0xf0: low = 0x90; break;  /* overlong */
    case 0xf4: high = 0x8f; break; /* past U+10FFFF */
    default: break;
    }
    if (left < size || at[1] < low || at[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return size;
}


bool
meter_utf8_valid(struct meter_str text)
{
    const uint64_t ones = 0x0101010101010101u;
    const uint64_t highs = 0x8080808080808080u;
    const uint8_t *at = (const uint8_t *)text.data;
    size_t left = text.size;

    while (left > 0) {
        size_t size;
        uint64_t word;

        if (left >= 8) {
            memcpy(&word, at, 8);
            /* Neither a high bit nor a zero byte: eight ASCII bytes. */
            if (((word | (word - ones)) & highs) == 0) {
                at += 8;
                left -= 8;
                continue;
            }
        }
        size = meter_utf8_size(at, left);
        if (size == 0) {
            return false;
        }
        at += size;
        left -= size;
    }
    return true;
}
