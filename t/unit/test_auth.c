/*
 * test_auth.c - tokens: their text, what is kept of them, for how long.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "api/api.c"

#define ID     "abcdefgh23456777"
#define SECRET "a_b-CdEfGhIjKlMnOpQrStUvWxYz0123456789_-__"

static bool
parse(const char *text, struct token *token)
{
    return token_parse((struct meter_str){text, strlen(text)}, token);
}

static bool
parse_header(const char *text)
{
    struct token token;

    return token_parse_header((struct meter_str){text, strlen(text)}, &token);
}

static void
token__secret_with_underscores__cut_at_the_first_two(void **state)
{
    struct token token;

    (void)state;
    assert_true(parse("em_" ID "_" SECRET, &token));
    assert_true(meter_str_equal(token.id, METER_STR(ID)));
    assert_true(meter_str_equal(token.secret, METER_STR(SECRET)));
    assert_true(parse("em_" ID "__", &token));
    assert_true(meter_str_equal(token.secret, METER_STR("_")));
}

static void
token__malformed__refused(void **state)
{
    static const char *const texts[] = {
        "",
        "em_",
        "em_" ID,
        "em_" ID "_",
        "em__" SECRET,
        "em_short_" SECRET,
        "em_abcdefghijklmnopqrstuvwxyz0123456789_" SECRET,
        "mk_" ID "_" SECRET,
        "EM_" ID "_" SECRET,
        "em_abcdefgh-3456777_" SECRET,
        "em_" ID "_" SECRET " ",
        "em_" ID "_" SECRET "=",
        "em_" ID "_" SECRET "\n",
        "em_" ID "_sec ret",
        " em_" ID "_" SECRET,
    };
    struct token token;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_false(parse(texts[i], &token));
    }
}

static void
token__secret_longer_than_any__refused(void **state)
{
    char text[256] = "em_" ID "_";
    struct token token;
    size_t start = strlen(text);

    (void)state;
    memset(text + start, 'x', TOKEN_SECRET_SIZE_MAX);
    assert_true(parse(text, &token));
    text[start + TOKEN_SECRET_SIZE_MAX] = 'x';
    assert_false(parse(text, &token));
}

static void
token__header__scheme_in_any_case_only_bearer(void **state)
{
    (void)state;
    assert_true(parse_header("Bearer em_" ID "_" SECRET));
    assert_true(parse_header("bearer em_" ID "_" SECRET));
    assert_true(parse_header("BEARER   em_" ID "_" SECRET));
    assert_false(parse_header("Bearerem_" ID "_" SECRET));
    assert_false(parse_header("Bearer\tem_" ID "_" SECRET));
    assert_false(parse_header("Basic em_" ID "_" SECRET));
    assert_false(parse_header("em_" ID "_" SECRET));
    assert_false(parse_header("Bearer"));
    assert_false(parse_header("Bearer "));
    assert_false(parse_header(""));
}

static void
token__every_drawn_one__parses_to_its_parts(void **state)
{
    struct token_random random;
    char text[TOKEN_TEXT_SIZE + 1];
    struct token token;
    uint32_t seed = 1;

    (void)state;
    for (int n = 0; n < 2000; n++) {
        for (size_t i = 0; i < sizeof(random); i++) {
            seed = seed * 1664525u + 1013904223u;
            ((uint8_t *)&random)[i] = (uint8_t)(seed >> 24);
        }
        token_format(&random, text);
        assert_int_equal(strlen(text), TOKEN_TEXT_SIZE);
        assert_true(parse(text, &token));
        assert_int_equal(token.id.size, TOKEN_ID_SIZE);
        assert_int_equal(token.secret.size, TOKEN_SECRET_SIZE);
    }
}

static bool
scopes(const char *text, char separator, unsigned *out)
{
    struct meter_str unknown;

    return token_scopes_parse((struct meter_str){text, strlen(text)}, separator,
                              out, &unknown);
}

static void
scopes__names__parsed_and_written_back(void **state)
{
    struct buf out;
    unsigned found;

    (void)state;
    assert_true(scopes("read", ',', &found));
    assert_int_equal(found, TOKEN_SCOPE_READ);
    assert_true(scopes("admin, ingest,ingest", ',', &found));
    assert_int_equal(found, TOKEN_SCOPE_ADMIN | TOKEN_SCOPE_INGEST);
    buf_init(&out, 64);
    token_scopes_format(found, ' ', &out);
    assert_int_equal(out.size, 12);
    assert_memory_equal(out.data, "ingest admin", 12);
    buf_fini(&out);
    assert_false(scopes("", ',', &found));
    assert_false(scopes("reader", ',', &found));
    assert_false(scopes("read,,write", ',', &found));
    assert_false(scopes("read write", ',', &found));
}


/* ---- the cache ------------------------------------------------------- */

static struct token_record
known_record(const char *tenant, uint8_t fill)
{
    struct token_record record = {
        .known = true,
        .scopes = TOKEN_SCOPE_READ,
        .tenant = {tenant, strlen(tenant)},
    };

    memset(record.digest, fill, sizeof(record.digest));
    return record;
}

static void
cache__entry__lives_until_its_time_and_is_a_copy(void **state)
{
    const struct token_record *found;
    struct token_cache cache;
    char tenant[] = "acme";
    char id[] = ID;
    struct token_record record = known_record(tenant, 7);

    (void)state;
    token_cache_init(&cache);
    token_cache_put(&cache, (struct meter_str){id, strlen(id)}, &record, 100);
    memset(tenant, 'x', 4);
    memset(id, 'x', 4);
    found = token_cache_find(&cache, METER_STR(ID), 99);
    assert_non_null(found);
    assert_true(meter_str_equal(found->tenant, METER_STR("acme")));
    assert_null(token_cache_find(&cache, METER_STR("other"), 99));
    assert_null(token_cache_find(&cache, METER_STR(ID), 100));
    assert_null(token_cache_find(&cache, METER_STR(ID), 0));
    token_cache_fini(&cache);
}

static void
cache__revoked_after_known__only_the_newer_answer_stays(void **state)
{
    struct token_record unknown = {.known = false};
    struct token_record record = known_record("acme", 7);
    struct token_cache cache;

    (void)state;
    token_cache_init(&cache);
    token_cache_put(&cache, METER_STR(ID), &record, 100);
    token_cache_put(&cache, METER_STR(ID), &unknown, 100);
    assert_false(token_cache_find(&cache, METER_STR(ID), 0)->known);
    token_cache_put(&cache, METER_STR(ID), &record, 100);
    assert_true(token_cache_find(&cache, METER_STR(ID), 0)->known);
    token_cache_fini(&cache);
}

static void
cache__flood_of_unknown_ids__known_ones_stay_and_memory_is_bounded(void **state)
{
    struct token_record unknown = {.known = false};
    struct token_record record = known_record("acme", 7);
    struct token_cache cache;

    (void)state;
    token_cache_init(&cache);
    token_cache_put(&cache, METER_STR(ID), &record, 100);
    for (int i = 0; i < 3 * TOKEN_CACHE_UNKNOWN_MAX; i++) {
        char id[32];
        int size = snprintf(id, sizeof(id), "flood%d", i);

        token_cache_put(&cache, (struct meter_str){id, (size_t)size}, &unknown,
                        100);
        assert_true(cache.unknown.count <= TOKEN_CACHE_UNKNOWN_MAX);
    }
    assert_non_null(token_cache_find(&cache, METER_STR(ID), 0));
    token_cache_fini(&cache);
}

static void
record__matches__only_known_and_equal(void **state)
{
    struct token_record record = known_record("acme", 7);
    struct token_record unknown = {.known = false};
    uint8_t digest[METER_DIGEST_SIZE];
    static const uint8_t zeros[METER_DIGEST_SIZE];

    (void)state;
    memset(digest, 7, sizeof(digest));
    assert_true(token_record_matches(&record, digest));
    for (size_t i = 0; i < sizeof(digest); i++) {
        digest[i] ^= 1;
        assert_false(token_record_matches(&record, digest));
        digest[i] ^= 1;
    }
    assert_false(token_record_matches(&unknown, digest));
    /* The digest an unknown id is compared with admits nobody either. */
    assert_false(token_record_matches(&unknown, zeros));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(token__secret_with_underscores__cut_at_the_first_two),
        cmocka_unit_test(token__malformed__refused),
        cmocka_unit_test(token__secret_longer_than_any__refused),
        cmocka_unit_test(token__header__scheme_in_any_case_only_bearer),
        cmocka_unit_test(token__every_drawn_one__parses_to_its_parts),
        cmocka_unit_test(scopes__names__parsed_and_written_back),
        cmocka_unit_test(cache__entry__lives_until_its_time_and_is_a_copy),
        cmocka_unit_test(
            cache__revoked_after_known__only_the_newer_answer_stays),
        cmocka_unit_test(
            cache__flood_of_unknown_ids__known_ones_stay_and_memory_is_bounded),
        cmocka_unit_test(record__matches__only_known_and_equal),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
