/*
 * test_operation.c - writes of the counters API on their way: the digest that
 * tells a retry from another request, their texts, callbacks and lists.
 */

#include "json_fixture.h"

#include "buckets/operation.h"

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

/* ---- digests --------------------------------------------------------- */

struct asked {
    enum bucket_kind kind;
    bool is_sync;
    const char *name;
    const char *json;
};

static void
digest_of(const struct asked *asked, struct meter_str tenant,
          uint8_t digest[METER_DIGEST_SIZE])
{
    const char *const *words = asked->kind == BUCKET_SET
                                   ? operation_set_words
                                   : operation_amount_words;
    struct operation_request request = {
        .key = {.tenant = tenant, .name = str_of(asked->name)},
        .write = {.kind = asked->kind},
        .is_sync = asked->is_sync,
        .idempotency_key = METER_STR("k"),
    };
    const struct json_value *values[OPERATION_WORDS];
    struct json_value body = read_good(asked->json);

    for (size_t i = 0; i < OPERATION_WORDS; i++) {
        values[i] = json_member_find(&body, str_of(words[i]));
    }
    assert_null(operation_read(values, &arena, &request));
    memcpy(digest, request.digest, METER_DIGEST_SIZE);
}


static void
digest__other_spelling__same_request(void **state)
{
    /* Each row is one request, in two spellings. */
    static const struct {
        enum bucket_kind kind;
        const char *a;
        const char *b;
    } rows[] = {
        {BUCKET_INCREMENT, "{\"durationSeconds\":60,\"timestamp\":1710498645}",
         "{ \"timestamp\" : \"2024-03-15T10:30:45Z\",\"amount\":1,"
         "\"durationSeconds\":60,\"expiresAt\":null}"},
        {BUCKET_INCREMENT,
         "{\"durationSeconds\":60,\"timestamp\":1710498645,"
         "\"expiresAt\":1710498646}",
         "{\"durationSeconds\":60,\"timestamp\":1710498645000,"
         "\"expiresAt\":\"2024-03-15T12:30:46+02:00\"}"},
        {BUCKET_SET,
         "{\"durationSeconds\":0,\"timestamp\":1,\"targetValue\":100}",
         "{\"durationSeconds\":0,\"timestamp\":1.0,\"targetValue\":\"100\"}"},
        {BUCKET_DECREMENT,
         "{\"durationSeconds\":0,\"timestamp\":1,\"amount\":2}",
         "{\"durationSeconds\":0,\"timestamp\":1,\"amount\":2,"
         "\"expiresAt\":\"2024-03-15T10:30:45Z\"}"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct asked a = {rows[i].kind, true, "hits", rows[i].a};
        struct asked b = {rows[i].kind, true, "hits", rows[i].b};
        uint8_t digest_a[METER_DIGEST_SIZE];
        uint8_t digest_b[METER_DIGEST_SIZE];

        digest_of(&a, METER_STR("acme"), digest_a);
        digest_of(&b, METER_STR("acme"), digest_b);
        assert_memory_equal(digest_a, digest_b, METER_DIGEST_SIZE);
    }
}


static void
digest__anything_else__another_request(void **state)
{
    static const char plain[] = "{\"durationSeconds\":60,\"timestamp\":120}";
    static const struct asked rows[] = {
        {BUCKET_INCREMENT, false, "hits", plain},
        {BUCKET_INCREMENT, true, "hits", plain},
        {BUCKET_DECREMENT, false, "hits", plain},
        {BUCKET_DECREMENT, true, "hits", plain},
        {BUCKET_SET, true, "hits",
         "{\"durationSeconds\":60,\"timestamp\":120,\"targetValue\":1}"},
        {BUCKET_SET, true, "hits",
         "{\"durationSeconds\":60,\"timestamp\":120,\"targetValue\":0}"},
        {BUCKET_INCREMENT, false, "hit", plain},
        {BUCKET_INCREMENT, false, "hitss", plain},
        {BUCKET_INCREMENT, false, "Hits", plain},
        {BUCKET_INCREMENT, false, "hits",
         "{\"durationSeconds\":0,\"timestamp\":120}"},
        {BUCKET_INCREMENT, false, "hits",
         "{\"durationSeconds\":1,\"timestamp\":120}"},
        /* other instants of one bucket, to the microsecond */
        {BUCKET_INCREMENT, false, "hits",
         "{\"durationSeconds\":60,\"timestamp\":121}"},
        {BUCKET_INCREMENT, false, "hits",
         "{\"durationSeconds\":60,\"timestamp\":120.000001}"},
        {BUCKET_INCREMENT, false, "hits",
         "{\"durationSeconds\":0,\"timestamp\":121}"},
        {BUCKET_DECREMENT, false, "hits",
         "{\"durationSeconds\":60,\"timestamp\":121}"},
        {BUCKET_SET, true, "hits",
         "{\"durationSeconds\":60,\"timestamp\":121,\"targetValue\":1}"},
        {BUCKET_INCREMENT, false, "hits",
         "{\"durationSeconds\":60,\"timestamp\":120,\"amount\":2}"},
        {BUCKET_INCREMENT, false, "hits",
         "{\"durationSeconds\":60,\"timestamp\":120,"
         "\"amount\":9223372036854775807}"},
        {BUCKET_INCREMENT, false, "hits",
         "{\"durationSeconds\":60,\"timestamp\":120,\"expiresAt\":0}"},
        {BUCKET_INCREMENT, false, "hits",
         "{\"durationSeconds\":60,\"timestamp\":120,\"expiresAt\":1}"},
        {BUCKET_SET, true, "hits",
         "{\"durationSeconds\":60,\"timestamp\":120,\"targetValue\":1,"
         "\"expiresAt\":0}"},
    };
    uint8_t digests[COUNT(rows)][METER_DIGEST_SIZE];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        digest_of(&rows[i], METER_STR("acme"), digests[i]);
        for (size_t j = 0; j < i; j++) {
            if (memcmp(digests[i], digests[j], METER_DIGEST_SIZE) == 0) {
                fail_msg("rows %zu and %zu are one request", j, i);
            }
        }
    }
}


/* Digests are kept for ever: that of a request is the same in any version. */
static void
digest__golden(void **state)
{
    static const struct {
        struct asked asked;
        const char *hex;
    } rows[] = {
        {{BUCKET_INCREMENT, false, "page_views",
          "{\"durationSeconds\":3600,\"timestamp\":\"2024-03-15T10:30:00Z\","
          "\"amount\":5,\"expiresAt\":\"2024-04-15T10:30:00Z\"}"},
         "51797f9aa8a61ed051c283f7f93e2451fc1135b1d790dc050496deb7c7954f7f"},
        {{BUCKET_DECREMENT, true, "page_views",
          "{\"durationSeconds\":3600,\"timestamp\":\"1969-12-31T23:59:59Z\","
          "\"expiresAt\":\"2024-04-15T10:30:00Z\"}"},
         "1df697abb77dea434c6bd1207af722e4a02d92b1e80ef566faa0ad83b3828de3"},
        {{BUCKET_SET, true, "quota",
          "{\"durationSeconds\":0,\"timestamp\":0,"
          "\"targetValue\":\"9223372036854775807\"}"},
         "3aad9af14ef09b0f5839de887272312c8d95e256f6f86f819088b161fac0d723"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint8_t digest[METER_DIGEST_SIZE];

        digest_of(&rows[i].asked, METER_STR("acme"), digest);
        assert_hex_equal(digest, sizeof(digest), rows[i].hex);
        /* The tenant is in the key. */
        digest_of(&rows[i].asked, METER_STR("other"), digest);
        assert_hex_equal(digest, sizeof(digest), rows[i].hex);
    }
}


/* ---- life ------------------------------------------------------------ */

static struct operation *
make(const char *name, const char *key, operation_cb cb, void *asker)
{
    struct meter_str tenant = exact_copy(METER_STR("acme"));
    struct meter_str name_copy = exact_copy(str_of(name));
    struct meter_str key_copy = {NULL, 0};
    struct operation_request request = {
        .key = {.tenant = tenant, .name = name_copy, .duration_s = 60},
        .write = {BUCKET_INCREMENT, 7, BUCKET_NEVER},
        .digest = {1, 2, 3},
    };
    struct operation *operation;

    if (key != NULL) {
        key_copy = exact_copy(str_of(key));
        request.idempotency_key = key_copy;
    }
    operation = operation_create(&request, cb, asker);
    assert_non_null(operation);
    free((void *)tenant.data);
    free((void *)name_copy.data);
    free((void *)key_copy.data);
    return operation;
}


static void
answered_cb(void *asker, const struct operation_result *result)
{
    *(struct operation_result *)asker = *result;
}


static void
create__owns_its_texts(void **state)
{
    struct operation *operation = make("hits", "key-1", NULL, NULL);
    const struct operation_request *request = &operation->request;

    (void)state;
    assert_str(request->key.tenant, "acme");
    assert_str(request->key.name, "hits");
    assert_str(request->idempotency_key, "key-1");
    assert_true(request->key.duration_s == 60);
    assert_true(request->write.amount == 7);
    assert_int_equal(request->digest[2], 3);
    assert_false(operation->is_queued);
    operation_free(operation);

    operation = make("hits", NULL, NULL, NULL);
    assert_null(operation->request.idempotency_key.data);
    operation_free(operation);
}


static void
finish__tells_the_asker_unless_gone(void **state)
{
    struct operation_result told = {.end = OPERATION_FAILED};
    struct operation *operation = make("hits", NULL, answered_cb, &told);

    (void)state;
    operation->result =
        (struct operation_result){OPERATION_DECIDED, BUCKET_APPLIED, 110, 5};
    operation_finish(operation);
    assert_int_equal(told.end, OPERATION_DECIDED);
    assert_int_equal(told.added, 110);
    assert_int_equal(told.subbed, 5);

    told.end = OPERATION_FAILED;
    operation = make("hits", NULL, answered_cb, &told);
    operation->cb = NULL;
    operation_finish(operation);
    assert_int_equal(told.end, OPERATION_FAILED);
}


/* ---- lists ----------------------------------------------------------- */

/* Both ways; names are single letters. */
static void
assert_list(const struct operation_list *list, const char *names)
{
    const struct operation *at = operation_first(list);
    size_t count = strlen(names);

    assert_int_equal(list->count, count);
    for (size_t i = 0; i < count; i++, at = TAILQ_NEXT(at, entry)) {
        assert_non_null(at);
        assert_int_equal(at->request.key.name.data[0], names[i]);
    }
    assert_null(at);
    at = TAILQ_LAST(&list->queue, operation_queue);
    for (size_t i = count; i > 0;
         i--, at = TAILQ_PREV(at, operation_queue, entry)) {
        assert_non_null(at);
        assert_int_equal(at->request.key.name.data[0], names[i - 1]);
    }
    assert_null(at);
}


static void
list__first_in_first_out__any_may_leave(void **state)
{
    struct operation_list list;
    struct operation_list other;
    struct operation *letters[5];

    (void)state;
    operation_list_init(&list);
    operation_list_init(&other);
    assert_null(operation_pop(&list));
    for (size_t i = 0; i < COUNT(letters); i++) {
        char name[] = {(char)('a' + i), 0};

        letters[i] = make(name, NULL, NULL, NULL);
        operation_push(&list, letters[i]);
    }
    assert_list(&list, "abcde");
    operation_remove(&list, letters[2]);
    assert_list(&list, "abde");
    operation_remove(&list, letters[4]);
    assert_list(&list, "abd");
    operation_remove(&list, letters[0]);
    assert_list(&list, "bd");
    operation_push_front(&list, letters[4]);
    operation_push_front(&list, letters[2]);
    assert_list(&list, "cebd");
    assert_ptr_equal(operation_pop(&list), letters[2]);
    operation_push_front(&other, letters[2]);
    assert_list(&other, "c");
    operation_push(&other, operation_pop(&list));
    assert_list(&other, "ce");
    assert_list(&list, "bd");
    operation_remove(&list, letters[1]);
    operation_remove(&list, letters[3]);
    assert_list(&list, "");
    assert_null(operation_pop(&list));
    operation_push(&list, letters[3]);
    assert_list(&list, "d");
    assert_ptr_equal(operation_pop(&list), letters[3]);
    assert_ptr_equal(operation_pop(&other), letters[2]);
    assert_ptr_equal(operation_pop(&other), letters[4]);
    assert_list(&other, "");
    for (size_t i = 0; i < COUNT(letters); i++) {
        operation_free(letters[i]);
    }
}


static const struct CMUnitTest tests[] = {
    TEST(digest__other_spelling__same_request),
    TEST(digest__anything_else__another_request),
    TEST(digest__golden),
    TEST(create__owns_its_texts),
    TEST(finish__tells_the_asker_unless_gone),
    TEST(list__first_in_first_out__any_may_leave),
};

RUN_TAP(tests)
