/*
 * test_operation_read.c - writes of the counters API: members as understood,
 * sentences of what is not.
 */

#include "json_fixture.h"

#include "buckets/operation.h"
#include "meter_time.h"

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))
#define TS          "\"2024-03-15T10:30:45Z\""

#define BAD_DURATION "durationSeconds must be an integer from 0 to 31622400000"
#define BAD_AMOUNT   "amount must be an integer from 1 to 9223372036854775807"
#define BAD_TARGET                                      \
    "targetValue must be an integer or a text of one, " \
    "from 0 to 9223372036854775807"
#define BAD_TIME(name)                                      \
    name " must be RFC 3339, like 2026-09-01T12:00:00Z, or" \
         " an epoch number"
#define BAD_KEY "Idempotency-Key must be 1 to 255 visible ASCII characters"

static int64_t
at(const char *text)
{
    int64_t ts_us = 0;

    assert_true(meter_time_parse(str_of(text), &ts_us));
    return ts_us;
}


/* The members of a JSON object, as the words are. */
static const char *
read_kind(enum bucket_kind kind, const char *json,
          struct operation_request *out)
{
    const char *const *words =
        kind == BUCKET_SET ? operation_set_words : operation_amount_words;
    const struct json_value *values[OPERATION_WORDS];
    struct json_value *body = arena_alloc(&arena, sizeof(*body));

    *body = read_good(json);
    for (size_t i = 0; i < OPERATION_WORDS; i++) {
        values[i] = json_member_find(body, str_of(words[i]));
    }
    *out = (struct operation_request){
        .key = {.tenant = METER_STR("acme"), .name = METER_STR("hits")},
        .write = {.kind = kind},
        .is_sync = kind == BUCKET_SET,
    };
    return operation_read(values, &arena, out);
}


static void
assert_error(const char *actual, const char *expected, const char *what)
{
    if (actual == NULL || expected == NULL ? actual != expected
                                           : strcmp(actual, expected) != 0) {
        fail_msg("%s: \"%s\" is not \"%s\"", what, actual ? actual : "(none)",
                 expected ? expected : "(none)");
    }
}


/* ---- members --------------------------------------------------------- */

static void
words__as_documented(void **state)
{
    static const char *const amount_words[] = {"durationSeconds", "timestamp",
                                               "expiresAt", "amount"};

    (void)state;
    for (size_t i = 0; i < OPERATION_WORDS; i++) {
        assert_string_equal(operation_amount_words[i], amount_words[i]);
        assert_string_equal(operation_set_words[i], i == OPERATION_AMOUNT
                                                        ? "targetValue"
                                                        : amount_words[i]);
    }
}


static void
read__documented_bodies__as_understood(void **state)
{
    struct operation_request request;

    (void)state;
    assert_null(read_kind(BUCKET_INCREMENT,
                          "{\"durationSeconds\": 3600,"
                          "\"timestamp\": \"2024-03-15T10:30:00Z\","
                          "\"amount\": 5,"
                          "\"expiresAt\": \"2024-04-15T10:30:00Z\"}",
                          &request));
    assert_true(request.key.duration_s == 3600);
    assert_true(request.key.start_us == at("2024-03-15T10:00:00Z"));
    assert_true(request.write.amount == 5);
    assert_true(request.write.expires_us == at("2024-04-15T10:30:00Z"));
    assert_str(request.key.tenant, "acme");
    assert_str(request.key.name, "hits");

    assert_null(read_kind(BUCKET_SET,
                          "{\"durationSeconds\": 3600,"
                          "\"timestamp\": \"2024-03-15T10:30:00Z\","
                          "\"targetValue\": \"100\","
                          "\"expiresAt\": \"2024-04-15T10:30:00Z\"}",
                          &request));
    assert_true(request.write.amount == 100);
    assert_true(request.write.expires_us == at("2024-04-15T10:30:00Z"));

    assert_null(read_kind(BUCKET_DECREMENT,
                          "{\"durationSeconds\": 0, \"timestamp\": -1.5}",
                          &request));
    assert_true(request.write.amount == 1);
    assert_true(request.key.start_us == 0);
    assert_true(request.write.expires_us == BUCKET_NEVER);
}


/* A value in place of a member, and what comes of it. */
struct member_row {
    const char *value;
    int64_t understood;
    const char *error; /* NULL: understood */
};

typedef int64_t (*member_of)(const struct operation_request *);

/* before and behind: the rest of the body. */
static void
assert_rows(enum bucket_kind kind, const char *before, const char *behind,
            const struct member_row *rows, size_t count, member_of member)
{
    for (size_t i = 0; i < count; i++) {
        struct operation_request request;
        char json[512];

        snprintf(json, sizeof(json), "{%s%s%s}", before, rows[i].value, behind);
        assert_error(read_kind(kind, json, &request), rows[i].error, json);
        if (rows[i].error == NULL && member(&request) != rows[i].understood) {
            fail_msg("%s: %lld", json, (long long)member(&request));
        }
    }
}


static int64_t
duration_member(const struct operation_request *request)
{
    return request->key.duration_s;
}


static int64_t
amount_member(const struct operation_request *request)
{
    return request->write.amount;
}


static int64_t
start_member(const struct operation_request *request)
{
    return request->key.start_us;
}


static int64_t
end_member(const struct operation_request *request)
{
    return request->write.expires_us;
}


static void
read__duration__integers_alone(void **state)
{
    static const struct member_row rows[] = {
        {"0", 0, NULL},
        {"1", 1, NULL},
        {"60", 60, NULL},
        {"2592000", 2592000, NULL},
        {"31622400000", INT64_C(31622400000), NULL},
        {"31622400001", 0, BAD_DURATION},
        {"9007199254740992", 0, BAD_DURATION},
        {"9223372036854775807", 0, BAD_DURATION},
        {"9223372036854775808", 0, BAD_DURATION},
        {"18446744073709551676", 0, BAD_DURATION}, /* 60 in 64 bits */
        {"-1", 0, BAD_DURATION},
        {"-0", 0, BAD_DURATION},
        {"1.0", 0, BAD_DURATION},
        {"0.0", 0, BAD_DURATION},
        {"60.5", 0, BAD_DURATION},
        {"1e3", 0, BAD_DURATION},
        {"0e0", 0, BAD_DURATION},
        {"\"5\"", 0, BAD_DURATION},
        {"\"\"", 0, BAD_DURATION},
        {"null", 0, "durationSeconds is missing"},
        {"true", 0, BAD_DURATION},
        {"false", 0, BAD_DURATION},
        {"[]", 0, BAD_DURATION},
        {"[60]", 0, BAD_DURATION},
        {"{}", 0, BAD_DURATION},
    };

    (void)state;
    for (int kind = BUCKET_INCREMENT; kind <= BUCKET_SET; kind++) {
        assert_rows((enum bucket_kind)kind, "\"durationSeconds\":",
                    ",\"targetValue\":1,\"timestamp\":" TS, rows, COUNT(rows),
                    duration_member);
    }
}


static void
read__amount__integers_from_1(void **state)
{
    static const struct member_row rows[] = {
        {"1", 1, NULL},
        {"5", 5, NULL},
        {"9007199254740992", INT64_C(9007199254740992), NULL},
        {"9007199254740993", INT64_C(9007199254740993), NULL},
        {"9223372036854775806", INT64_MAX - 1, NULL},
        {"9223372036854775807", INT64_MAX, NULL},
        {"9223372036854775808", 0, BAD_AMOUNT},
        {"9223372036854775810", 0, BAD_AMOUNT},
        {"18446744073709551617", 0, BAD_AMOUNT}, /* 1 in 64 bits */
        {"100000000000000000000000", 0, BAD_AMOUNT},
        {"0", 0, BAD_AMOUNT},
        {"-0", 0, BAD_AMOUNT},
        {"-1", 0, BAD_AMOUNT},
        {"1.0", 0, BAD_AMOUNT},
        {"1.5", 0, BAD_AMOUNT},
        {"1e3", 0, BAD_AMOUNT},
        {"1E0", 0, BAD_AMOUNT},
        {"\"5\"", 0, BAD_AMOUNT},
        {"\"\"", 0, BAD_AMOUNT},
        {"null", 1, NULL},
        {"true", 0, BAD_AMOUNT},
        {"[]", 0, BAD_AMOUNT},
        {"[1]", 0, BAD_AMOUNT},
        {"{}", 0, BAD_AMOUNT},
    };

    (void)state;
    for (int kind = BUCKET_INCREMENT; kind <= BUCKET_DECREMENT; kind++) {
        assert_rows((enum bucket_kind)kind,
                    "\"durationSeconds\":60,\"timestamp\":" TS ",\"amount\":",
                    "", rows, COUNT(rows), amount_member);
    }
}


static void
read__target__integers_and_texts_of_them(void **state)
{
    static const struct member_row rows[] = {
        {"0", 0, NULL},
        {"1", 1, NULL},
        {"9007199254740992", INT64_C(9007199254740992), NULL},
        {"9007199254740993", INT64_C(9007199254740993), NULL},
        {"9223372036854775807", INT64_MAX, NULL},
        {"9223372036854775808", 0, BAD_TARGET},
        {"-0", 0, BAD_TARGET},
        {"-1", 0, BAD_TARGET},
        {"1.0", 0, BAD_TARGET},
        {"1e3", 0, BAD_TARGET},
        {"\"0\"", 0, NULL},
        {"\"5\"", 5, NULL},
        {"\"007\"", 7, NULL},
        {"\"9007199254740993\"", INT64_C(9007199254740993), NULL},
        {"\"9223372036854775807\"", INT64_MAX, NULL},
        {"\"9223372036854775808\"", 0, BAD_TARGET},
        {"\"18446744073709551616\"", 0, BAD_TARGET},
        {"\"-0\"", 0, BAD_TARGET},
        {"\"-1\"", 0, BAD_TARGET},
        {"\"+1\"", 0, BAD_TARGET},
        {"\" 1\"", 0, BAD_TARGET},
        {"\"1 \"", 0, BAD_TARGET},
        {"\"1.0\"", 0, BAD_TARGET},
        {"\"1e3\"", 0, BAD_TARGET},
        {"\"0x10\"", 0, BAD_TARGET},
        {"\"1n\"", 0, BAD_TARGET},
        {"\"\"", 0, BAD_TARGET},
        {"null", 0, "targetValue is missing"},
        {"true", 0, BAD_TARGET},
        {"[]", 0, BAD_TARGET},
        {"{}", 0, BAD_TARGET},
    };

    (void)state;
    assert_rows(BUCKET_SET,
                "\"durationSeconds\":60,\"timestamp\":" TS ",\"targetValue\":",
                "", rows, COUNT(rows), amount_member);
}


/* Instants in seconds; INT64_MIN: refused. */
static const struct {
    const char *value;
    int64_t second;
} instants[] = {
    {"\"2024-03-15T10:30:45Z\"", 1710498645},
    {"\"2024-03-15T12:30:45+02:00\"", 1710498645},
    {"\"2024-03-15T00:00:45-10:30\"", 1710498645},
    {"\"2024-03-15t10:30:45.000000000z\"", 1710498645},
    {"1710498645", 1710498645},
    {"1710498645000", 1710498645},
    {"\"1710498645\"", 1710498645},
    {"\"1710498645000\"", 1710498645},
    {"1.710498645e9", 1710498645},
    {"0", 0},
    {"-0", 0},
    {"-1", -1},
    {"1.0", 1},
    {"1e3", 1000},
    {"\"5\"", 5},
    {"\"1969-12-31T23:59:59Z\"", -1},
    {"\"0001-01-01T00:00:00Z\"", METER_TIME_MIN / METER_TIME_SECOND},
    {"\"9999-12-31T23:59:59Z\"", METER_TIME_MAX / METER_TIME_SECOND},
    {"\"0000-12-31T23:59:59Z\"", INT64_MIN},
    {"\"0001-01-01T00:00:00+00:01\"", INT64_MIN},
    {"\"9999-12-31T23:59:59-00:01\"", INT64_MIN},
    {"9007199254740992", INT64_MIN},
    {"9007199254740993", INT64_MIN},
    {"9223372036854775807", INT64_MIN},
    {"9223372036854775808", INT64_MIN},
    {"1e300", INT64_MIN},
    {"\"2024-03-15\"", INT64_MIN},
    {"\"2024-03-15T10:30:45\"", INT64_MIN},
    {"\"2024-03-15 10:30:45Z\"", INT64_MIN},
    {"\"2024-03-15T10:30:45 02:00\"", INT64_MIN}, /* no query string */
    {"\"2024-02-30T10:30:45Z\"", INT64_MIN},
    {"\"now\"", INT64_MIN},
    {"\"\"", INT64_MIN},
    {"true", INT64_MIN},
    {"false", INT64_MIN},
    {"[]", INT64_MIN},
    {"{}", INT64_MIN},
};

static void
read__timestamp__instants_and_epochs(void **state)
{
    static const struct member_row missing = {"null", 0,
                                              "timestamp is missing"};
    struct member_row rows[COUNT(instants)];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool is_bad = instants[i].second == INT64_MIN;

        rows[i] = (struct member_row){instants[i].value,
                                      is_bad ? 0 : instants[i].second * 1000000,
                                      is_bad ? BAD_TIME("timestamp") : NULL};
    }
    for (int kind = BUCKET_INCREMENT; kind <= BUCKET_SET; kind++) {
        const char *before =
            "\"durationSeconds\":1,\"targetValue\":1,\"timestamp\":";

        assert_rows((enum bucket_kind)kind, before, "", rows, COUNT(rows),
                    start_member);
        assert_rows((enum bucket_kind)kind, before, "", &missing, 1, NULL);
    }
}


static void
read__end__instants_and_epochs__no_matter_to_a_decrement(void **state)
{
    static const struct member_row missing = {"null", BUCKET_NEVER, NULL};
    const char *before =
        "\"durationSeconds\":1,\"targetValue\":1,\"timestamp\":1,"
        "\"expiresAt\":";
    struct member_row rows[COUNT(instants)];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool is_bad = instants[i].second == INT64_MIN;

        rows[i] = (struct member_row){instants[i].value,
                                      is_bad ? 0 : instants[i].second * 1000000,
                                      is_bad ? BAD_TIME("expiresAt") : NULL};
    }
    assert_rows(BUCKET_INCREMENT, before, "", rows, COUNT(rows), end_member);
    assert_rows(BUCKET_SET, before, "", rows, COUNT(rows), end_member);
    for (int kind = BUCKET_INCREMENT; kind <= BUCKET_SET; kind++) {
        assert_rows((enum bucket_kind)kind, before, "", &missing, 1,
                    end_member);
    }
    for (size_t i = 0; i < COUNT(rows); i++) {
        rows[i].understood = BUCKET_NEVER;
        rows[i].error = NULL;
    }
    assert_rows(BUCKET_DECREMENT, before, "", rows, COUNT(rows), end_member);
}


static void
read__several_wrong__the_first_is_named(void **state)
{
    static const struct {
        enum bucket_kind kind;
        const char *json;
        const char *error;
    } rows[] = {
        {BUCKET_INCREMENT, "{}", "durationSeconds is missing"},
        {BUCKET_SET, "{}", "durationSeconds is missing"},
        {BUCKET_INCREMENT, "{\"durationSeconds\":1}", "timestamp is missing"},
        {BUCKET_SET, "{\"durationSeconds\":1}", "timestamp is missing"},
        {BUCKET_SET, "{\"durationSeconds\":1,\"timestamp\":1}",
         "targetValue is missing"},
        {BUCKET_INCREMENT,
         "{\"durationSeconds\":1,\"timestamp\":1,\"amount\":0,"
         "\"expiresAt\":\"x\"}",
         BAD_AMOUNT},
        {BUCKET_INCREMENT,
         "{\"durationSeconds\":-1,\"timestamp\":\"x\",\"amount\":0}",
         BAD_DURATION},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct operation_request request;

        assert_error(read_kind(rows[i].kind, rows[i].json, &request),
                     rows[i].error, rows[i].json);
    }
}


static void
read__memory_full__still_a_sentence(void **state)
{
    const struct json_value wrong = {.kind = JSON_TRUE};
    const struct json_value one = {.kind = JSON_NUMBER, .text = METER_STR("1")};
    const struct json_value *values[OPERATION_WORDS] = {&one, &wrong};
    struct operation_request request = {.write.kind = BUCKET_INCREMENT};
    struct arena tiny;
    int64_t ts_us;

    (void)state;
    arena_init(&tiny, 1, 1);
    assert_non_null(operation_read(values, &tiny, &request));
    assert_non_null(
        operation_time_read(METER_STR("1710498645"), "x", &tiny, &ts_us));
    arena_fini(&tiny);
}


/* ---- words of a query string ----------------------------------------- */

static void
query__duration__digits(void **state)
{
    static const struct {
        const char *text;
        int64_t duration_s;
        const char *error;
    } rows[] = {
        {"0", 0, NULL},
        {"3600", 3600, NULL},
        {"31622400000", INT64_C(31622400000), NULL},
        {"31622400001", 0, BAD_DURATION},
        {"9223372036854775808", 0, BAD_DURATION},
        {"18446744073709551676", 0, BAD_DURATION},
        {"", 0, BAD_DURATION},
        {" ", 0, BAD_DURATION},
        {" 60", 0, BAD_DURATION},
        {"+60", 0, BAD_DURATION},
        {"-0", 0, BAD_DURATION},
        {"-1", 0, BAD_DURATION},
        {"1.0", 0, BAD_DURATION},
        {"1e3", 0, BAD_DURATION},
        {"0x3c", 0, BAD_DURATION},
        {"60s", 0, BAD_DURATION},
    };
    int64_t duration_s;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct meter_str exact = exact_copy(str_of(rows[i].text));

        assert_error(operation_duration_read(exact, &duration_s), rows[i].error,
                     rows[i].text);
        if (rows[i].error == NULL) {
            assert_true(duration_s == rows[i].duration_s);
        }
        free((void *)exact.data);
    }
    assert_string_equal(
        operation_duration_read((struct meter_str){NULL, 0}, &duration_s),
        "durationSeconds is missing");
}


static void
query__time__a_space_was_a_plus(void **state)
{
    static const struct {
        const char *text;
        int64_t second;
    } rows[] = {
        {"2024-03-15T10:30:45Z", 1710498645},
        {"2024-03-15T10:30:45.000Z", 1710498645},
        {"2024-03-15T12:30:45+02:00", 1710498645},
        {"2024-03-15T12:30:45 02:00", 1710498645},
        {"2024-03-15T12:30:45.000 02:00", 1710498645},
        {"2024-03-15T00:00:45-10:30", 1710498645},
        {"1710498645", 1710498645},
        {"1710498645000", 1710498645},
        {" 1710498645", 1710498645},
        {"1.710498645e 9", 1710498645},
        {"-1", -1},
        {"2024-03-15 10:30:45Z", INT64_MIN},
        {"2024-03-15T10:30:45  02:00", INT64_MIN},
        {"2024-03-15T10:30:45Z ", INT64_MIN},
        {"1710498645 ", INT64_MIN},
        {"  1710498645", INT64_MIN},
        {"9007199254740992", INT64_MIN},
        {"", INT64_MIN},
        {" ", INT64_MIN},
        {"now", INT64_MIN},
    };
    int64_t ts_us;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct meter_str exact = exact_copy(str_of(rows[i].text));
        bool is_bad = rows[i].second == INT64_MIN;

        assert_error(operation_time_read(exact, "startTime", &arena, &ts_us),
                     is_bad ? BAD_TIME("startTime") : NULL, rows[i].text);
        assert_true(is_bad || ts_us == rows[i].second * 1000000);
        free((void *)exact.data);
    }
    assert_string_equal(operation_time_read((struct meter_str){NULL, 0},
                                            "endTime", &arena, &ts_us),
                        "endTime is missing");
}


static void
key__check__visible_ascii(void **state)
{
    char text[OPERATION_KEY_SIZE_MAX + 1];

    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        char one = (char)byte;
        bool is_visible = byte > 0x20 && byte < 0x7f;

        assert_error(operation_key_check((struct meter_str){&one, 1}),
                     is_visible ? NULL : BAD_KEY, "byte");
    }
    memset(text, '~', sizeof(text));
    assert_null(operation_key_check((struct meter_str){text, 255}));
    assert_error(operation_key_check((struct meter_str){text, 256}), BAD_KEY,
                 "256");
    assert_error(operation_key_check(METER_STR("")), BAD_KEY, "empty");
    assert_error(operation_key_check(METER_STR("a b")), BAD_KEY, "blank");
    assert_null(
        operation_key_check(METER_STR("9c1f7c1e-4f0b-4e0e-8f5b-0d7f6a1c2b3d")));
}


static const struct CMUnitTest tests[] = {
    TEST(words__as_documented),
    TEST(read__documented_bodies__as_understood),
    TEST(read__duration__integers_alone),
    TEST(read__amount__integers_from_1),
    TEST(read__target__integers_and_texts_of_them),
    TEST(read__timestamp__instants_and_epochs),
    TEST(read__end__instants_and_epochs__no_matter_to_a_decrement),
    TEST(read__several_wrong__the_first_is_named),
    TEST(read__memory_full__still_a_sentence),
    TEST(query__duration__digits),
    TEST(query__time__a_space_was_a_plus),
    TEST(key__check__visible_ascii),
};

RUN_TAP(tests)
