/*
 * operation.c - one write of the counters API: read, made, listed, finished.
 *
 *   members of a body -> [operation_read] -> request -> [operation_create]
 *     -> queue -> batch -> outcome -> [operation_finish] -> callback
 *
 * Numbers are digits and nothing else: 1.0, 1e3 and -0 are no integers here,
 * and no number passes through a double.
 */

#include "buckets/operation.h"

#include "base/memory.h"
#include "base/reason.h"
#include "meter_time.h"
#include "meter_tuple.h"

#include <stdlib.h>

const char *const operation_amount_words[OPERATION_WORDS] = {
    [OPERATION_DURATION] = "durationSeconds",
    [OPERATION_TIMESTAMP] = "timestamp",
    [OPERATION_EXPIRES] = "expiresAt",
    [OPERATION_AMOUNT] = "amount",
};

const char *const operation_set_words[OPERATION_WORDS] = {
    [OPERATION_DURATION] = "durationSeconds",
    [OPERATION_TIMESTAMP] = "timestamp",
    [OPERATION_EXPIRES] = "expiresAt",
    [OPERATION_AMOUNT] = "targetValue",
};

#define ERROR_DURATION \
    "durationSeconds must be an integer from 0 to 31622400000"
#define ERROR_AMOUNT "amount must be an integer from 1 to 9223372036854775807"
#define ERROR_TARGET                                    \
    "targetValue must be an integer or a text of one, " \
    "from 0 to 9223372036854775807"

_Static_assert(BUCKET_DURATION_MAX == 31622400000, "as ERROR_DURATION says");
_Static_assert(OPERATION_KEY_SIZE_MAX == 255, "as operation_key_check says");

/* What a sentence speaks of, and where it is made. */
struct asked {
    const struct json_value *const *values;
    struct arena *arena;
};


/* ---- buckets ---------------------------------------------------------- */

static bool
is_name_byte(char byte)
{
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
           (byte >= '0' && byte <= '9') || byte == '.' || byte == '_' ||
           byte == '~' || byte == '-';
}

bool
bucket_is_name(struct meter_str name)
{
    if (name.size == 0 || name.size > BUCKET_NAME_SIZE_MAX ||
        meter_str_equal(name, METER_STR(".")) ||
        meter_str_equal(name, METER_STR(".."))) {
        return false;
    }
    for (size_t i = 0; i < name.size; i++) {
        if (!is_name_byte(name.data[i])) {
            return false;
        }
    }
    return true;
}

int64_t
bucket_start_us(int64_t ts_us, int64_t duration_s)
{
    CHECK(duration_s >= 0 && duration_s <= BUCKET_DURATION_MAX);
    if (duration_s == 0) {
        return 0;
    }
    return meter_time_bucket(ts_us, duration_s * METER_TIME_SECOND);
}


/* ---- values ---------------------------------------------------------- */

/* Digits alone, of a number from 0 to max. */
static bool
digits_read(struct meter_str text, int64_t max, int64_t *out)
{
    int64_t value = 0;

    for (size_t i = 0; i < text.size; i++) {
        char byte = text.data[i];

        if (byte < '0' || byte > '9' ||
            __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, byte - '0', &value)) {
            return false;
        }
    }
    if (text.size == 0 || value > max) {
        return false;
    }
    *out = value;
    return true;
}

/* NULL where the member is absent, or null. */
static const struct json_value *
value_of(const struct asked *asked, enum operation_word word)
{
    const struct json_value *value = asked->values[word];

    return value == NULL || value->kind == JSON_NULL ? NULL : value;
}

static bool
instant_read(struct meter_str text, int64_t *out_us)
{
    return meter_time_parse(text, out_us) ||
           meter_time_parse_epoch(text, out_us);
}

static const char *
instant_sentence(struct arena *arena, const char *name)
{
    return reason_format(arena,
                         "%s must be RFC 3339, like 2026-09-01T12:00:00Z, or "
                         "an epoch number",
                         name);
}


/* ---- members of a body ----------------------------------------------- */

static const char *
duration_of(const struct asked *asked, int64_t *out_s)
{
    const struct json_value *value = value_of(asked, OPERATION_DURATION);

    if (value == NULL) {
        return "durationSeconds is missing";
    }
    return value->kind == JSON_NUMBER
               ? operation_duration_read(value->text, out_s)
               : ERROR_DURATION;
}

/* The member is there. */
static const char *
instant_of(const struct asked *asked, enum operation_word word, int64_t *out_us)
{
    const struct json_value *value = value_of(asked, word);
    bool is_right = false;

    if (value->kind == JSON_STRING) {
        is_right = instant_read(value->text, out_us);
    } else if (value->kind == JSON_NUMBER) {
        is_right = meter_time_parse_epoch(value->text, out_us);
    }
    return is_right
               ? NULL
               : instant_sentence(asked->arena, operation_amount_words[word]);
}

static const char *
amount_of(const struct asked *asked, int64_t *out)
{
    const struct json_value *value = value_of(asked, OPERATION_AMOUNT);

    if (value == NULL) {
        *out = 1;
        return NULL;
    }
    return value->kind == JSON_NUMBER &&
                   digits_read(value->text, INT64_MAX, out) && *out > 0
               ? NULL
               : ERROR_AMOUNT;
}

static const char *
target_of(const struct asked *asked, int64_t *out)
{
    const struct json_value *value = value_of(asked, OPERATION_AMOUNT);

    if (value == NULL) {
        return "targetValue is missing";
    }
    return (value->kind == JSON_NUMBER || value->kind == JSON_STRING) &&
                   digits_read(value->text, INT64_MAX, out)
               ? NULL
               : ERROR_TARGET;
}

/* A decrement does not look at it. */
static const char *
end_of(const struct asked *asked, enum bucket_kind kind, int64_t *out_us)
{
    *out_us = BUCKET_NEVER;
    if (kind == BUCKET_DECREMENT ||
        value_of(asked, OPERATION_EXPIRES) == NULL) {
        return NULL;
    }
    return instant_of(asked, OPERATION_EXPIRES, out_us);
}


/* ---- digest ---------------------------------------------------------- */

/*
 * Kept for ever with an idempotency key: what goes in here, and how, is never
 * changed. ts_us is the instant as given: the same bucket at another time is
 * another request.
 */
static void
digest_make(struct operation_request *request, int64_t ts_us)
{
    static const char *const endpoints[][2] = {
        [BUCKET_INCREMENT] = {"increment", "incrementSync"},
        [BUCKET_DECREMENT] = {"decrement", "decrementSync"},
        [BUCKET_SET] = {"set", "set"},
    };
    const struct bucket_write *write = &request->write;
    const char *endpoint = endpoints[write->kind][request->is_sync];
    bool has_end = write->expires_us != BUCKET_NEVER;
    struct meter_tuple tuple;

    meter_tuple_init(&tuple, NULL);
    meter_tuple_str(&tuple, (struct meter_str){endpoint, strlen(endpoint)});
    meter_tuple_str(&tuple, request->key.name);
    meter_tuple_u64(&tuple, (uint64_t)request->key.duration_s);
    meter_tuple_u64(&tuple, (uint64_t)ts_us);
    meter_tuple_u64(&tuple, (uint64_t)write->amount);
    meter_tuple_u8(&tuple, has_end);
    if (has_end) {
        meter_tuple_u64(&tuple, (uint64_t)write->expires_us);
    }
    meter_tuple_final(&tuple, request->digest);
}

const char *
operation_read(const struct json_value *const values[OPERATION_WORDS],
               struct arena *arena, struct operation_request *out)
{
    struct asked asked = {.values = values, .arena = arena};
    struct bucket_write *write = &out->write;
    const char *error = duration_of(&asked, &out->key.duration_s);
    int64_t ts_us = 0;

    if (error == NULL) {
        error = value_of(&asked, OPERATION_TIMESTAMP) == NULL
                    ? "timestamp is missing"
                    : instant_of(&asked, OPERATION_TIMESTAMP, &ts_us);
    }
    if (error == NULL) {
        error = write->kind == BUCKET_SET ? target_of(&asked, &write->amount)
                                          : amount_of(&asked, &write->amount);
    }
    if (error == NULL) {
        error = end_of(&asked, write->kind, &write->expires_us);
    }
    if (error == NULL) {
        out->key.start_us = bucket_start_us(ts_us, out->key.duration_s);
        digest_make(out, ts_us);
    }
    return error;
}


/* ---- words of a query string, and the header ------------------------- */

const char *
operation_duration_read(struct meter_str text, int64_t *out_s)
{
    if (text.data == NULL) {
        return "durationSeconds is missing";
    }
    return digits_read(text, BUCKET_DURATION_MAX, out_s) ? NULL
                                                         : ERROR_DURATION;
}

const char *
operation_time_read(struct meter_str text, const char *name,
                    struct arena *arena, int64_t *out_us)
{
    char *plain;

    if (text.data == NULL) {
        return reason_format(arena, "%s is missing", name);
    }
    plain = arena_alloc(arena, text.size);
    if (plain == NULL) {
        return instant_sentence(arena, name);
    }
    /* No instant has a space in it: each was a '+'. */
    for (size_t i = 0; i < text.size; i++) {
        plain[i] = (char)(text.data[i] == ' ' ? '+' : text.data[i]);
    }
    return instant_read((struct meter_str){plain, text.size}, out_us)
               ? NULL
               : instant_sentence(arena, name);
}

const char *
operation_key_check(struct meter_str key)
{
    bool is_right = key.size > 0 && key.size <= OPERATION_KEY_SIZE_MAX;

    for (size_t i = 0; is_right && i < key.size; i++) {
        is_right = key.data[i] > ' ' && key.data[i] < 0x7f;
    }
    return is_right
               ? NULL
               : "Idempotency-Key must be 1 to 255 visible ASCII characters";
}


/* ---- its life ---------------------------------------------------------- */

/* Moves the text to *at, which goes on after it. */
static void
text_take(struct meter_str *text, char **at)
{
    if (text->size > 0) {
        memcpy(*at, text->data, text->size);
    }
    if (text->data != NULL) {
        text->data = *at;
    }
    *at += text->size;
}

struct operation *
operation_create(const struct operation_request *request, operation_cb cb,
                 void *asker)
{
    size_t size = request->key.tenant.size + request->key.name.size +
                  request->idempotency_key.size;
    struct operation *operation = memory_alloc(sizeof(*operation) + size);
    char *at = operation->bytes;

    *operation = (struct operation){
        .request = *request,
        .cb = cb,
        .asker = asker,
    };
    text_take(&operation->request.key.tenant, &at);
    text_take(&operation->request.key.name, &at);
    text_take(&operation->request.idempotency_key, &at);
    return operation;
}

void
operation_finish(struct operation *operation)
{
    if (operation->cb != NULL) {
        operation->cb(operation->asker, &operation->result);
    }
    operation_free(operation);
}

void
operation_free(struct operation *operation)
{
    CHECK(!operation->is_listed);
    free(operation);
}
