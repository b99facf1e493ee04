/*
 * test_router.c - request targets: which route, which error, decoded once.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "api/api.c"

struct place {
    struct arena arena;
    struct router_match match;
};

static int
setup(void **state)
{
    struct place *place = calloc(1, sizeof(*place));

    arena_init(&place->arena, 4096, 1u << 20);
    *state = place;
    return 0;
}

static int
teardown(void **state)
{
    struct place *place = *state;

    arena_fini(&place->arena);
    free(place);
    return 0;
}

static enum router_result
find(struct place *place, uint8_t method, const char *path)
{
    return router_find(method, (struct meter_str){path, strlen(path)},
                       &place->arena, &place->match);
}

static void
assert_parameter(struct place *place, const char *path, const char *expected)
{
    assert_int_equal(find(place, METER_METHOD_GET, path), ROUTER_FOUND);
    assert_int_equal(place->match.parameter.size, strlen(expected));
    assert_memory_equal(place->match.parameter.data, expected,
                        strlen(expected));
}

static void
router__known_paths__found_with_their_scope(void **state)
{
    struct place *place = *state;
    static const struct {
        uint8_t method;
        const char *path;
        enum token_scope scope;
    } rows[] = {
        {METER_METHOD_POST, "/v1/events", TOKEN_SCOPE_INGEST},
        {METER_METHOD_GET, "/v1/events", TOKEN_SCOPE_READ},
        {METER_METHOD_GET, "/v1/events/e1", TOKEN_SCOPE_READ},
        {METER_METHOD_HEAD, "/v1/events/e1", TOKEN_SCOPE_READ},
        {METER_METHOD_GET, "/v1/counters", TOKEN_SCOPE_READ},
        {METER_METHOD_GET, "/v1/counters/c", TOKEN_SCOPE_READ},
        {METER_METHOD_GET, "/v1/tenants", TOKEN_SCOPE_ADMIN},
        {METER_METHOD_GET, "/v1/tenants/acme/usage", TOKEN_SCOPE_READ},
        {METER_METHOD_HEAD, "/v1/tenants/acme/usage", TOKEN_SCOPE_READ},
        {METER_METHOD_GET, "/v1/usage", TOKEN_SCOPE_READ},
        {METER_METHOD_POST, "/v1/usage/close", TOKEN_SCOPE_WRITE},
        {METER_METHOD_GET, "/v1/usage/closes", TOKEN_SCOPE_READ},
        {METER_METHOD_GET, "/v1/query", TOKEN_SCOPE_READ},
        {METER_METHOD_POST, "/v1/query", TOKEN_SCOPE_READ},
        {METER_METHOD_GET, "/v1/series", TOKEN_SCOPE_READ},
        {METER_METHOD_GET, "/v1/adjustments", TOKEN_SCOPE_READ},
        {METER_METHOD_POST, "/v1/adjustments", TOKEN_SCOPE_WRITE},
        {METER_METHOD_POST, "/api/counters/a/n/increment", TOKEN_SCOPE_WRITE},
        {METER_METHOD_POST, "/api/counters/a/n/decrement", TOKEN_SCOPE_WRITE},
        {METER_METHOD_POST, "/api/counters/a/n/incrementSync",
         TOKEN_SCOPE_WRITE},
        {METER_METHOD_POST, "/api/counters/a/n/decrementSync",
         TOKEN_SCOPE_WRITE},
        {METER_METHOD_PUT, "/api/counters/a/n/set", TOKEN_SCOPE_WRITE},
        {METER_METHOD_GET, "/api/counters/a/n/get", TOKEN_SCOPE_READ},
        {METER_METHOD_HEAD, "/api/counters/a/n/get", TOKEN_SCOPE_READ},
        {METER_METHOD_GET, "/api/counters/a/n/sumRange", TOKEN_SCOPE_READ},
        {METER_METHOD_HEAD, "/api/counters/a/n/sumRange", TOKEN_SCOPE_READ},
        {METER_METHOD_GET, "/healthz", TOKEN_SCOPE_NONE},
        {METER_METHOD_HEAD, "/healthz", TOKEN_SCOPE_NONE},
        {METER_METHOD_GET, "/readyz", TOKEN_SCOPE_NONE},
        {METER_METHOD_GET, "/metrics", TOKEN_SCOPE_NONE},
        {METER_METHOD_POST, "/v1/%65vents", TOKEN_SCOPE_INGEST},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(find(place, rows[i].method, rows[i].path),
                         ROUTER_FOUND);
        assert_int_equal(place->match.route->scope, rows[i].scope);
        assert_non_null(place->match.route->handler);
    }
}

static void
router__unknown_paths__none(void **state)
{
    static const char *const paths[] = {
        "/",
        "/v1",
        "/v1/",
        "/v1/events/",
        "/v1/events/a/b",
        "/v1//events",
        "//v1/events",
        "/V1/events",
        "/v1/events;x",
        "/v1/counters/",
        "/v1/tenants/",
        "/v1/tenants/acme",
        "/v1/tenants/acme/",
        "/v1/tenants//usage",
        "/v1/tenants/usage",
        "/v1/tenants/acme/usage/",
        "/v1/tenants/acme/usage/x",
        "/v1/tenants/acme/other",
        "/v1/tenants/a/b/usage",
        "/api/counters",
        "/api/counters/",
        "/api/counters/a",
        "/api/counters/a/n",
        "/api/counters/a/n/",
        "/api/counters/a/n/other",
        "/api/counters/a/n/Increment",
        "/api/counters/a/n/increment/",
        "/api/counters/a//increment",
        "/api/counters//n/increment",
        "/api/counters/a/n/m/increment",
        "/api//counters/a/n/increment",
        "/API/counters/a/n/increment",
        "/v1/api/counters/a/n/increment",
        "/healthz/",
        "/v1%2Fevents",
        "/a/b/c/d/e/f/g/h/i/j/k",
        "/v1/events/a/b/c/d/e/f/g/h/i",
    };

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        assert_int_equal(find(*state, METER_METHOD_GET, paths[i]), ROUTER_NONE);
        assert_int_equal(find(*state, METER_METHOD_POST, paths[i]),
                         ROUTER_NONE);
    }
}

static void
router__other_method__allow_names_the_right_ones(void **state)
{
    struct place *place = *state;

    for (uint8_t method = METER_METHOD_GET; method <= METER_METHOD_OTHER;
         method++) {
        if (method > METER_METHOD_POST) {
            assert_int_equal(find(place, method, "/v1/events"), ROUTER_METHOD);
            assert_string_equal(place->match.allow, "GET, HEAD, POST");
        }
        if (method != METER_METHOD_GET && method != METER_METHOD_HEAD) {
            assert_int_equal(find(place, method, "/v1/events/x"),
                             ROUTER_METHOD);
            assert_string_equal(place->match.allow, "GET, HEAD");
        }
        if (method > METER_METHOD_POST) {
            assert_int_equal(find(place, method, "/v1/adjustments"),
                             ROUTER_METHOD);
            assert_string_equal(place->match.allow, "GET, HEAD, POST");
        }
        if (method != METER_METHOD_POST) {
            assert_int_equal(find(place, method, "/api/counters/a/n/increment"),
                             ROUTER_METHOD);
            assert_string_equal(place->match.allow, "POST");
        }
        if (method != METER_METHOD_PUT) {
            assert_int_equal(find(place, method, "/api/counters/a/n/set"),
                             ROUTER_METHOD);
            assert_string_equal(place->match.allow, "PUT");
            assert_null(place->match.route);
        }
        if (method != METER_METHOD_GET && method != METER_METHOD_HEAD) {
            assert_int_equal(find(place, method, "/api/counters/a/n/sumRange"),
                             ROUTER_METHOD);
            assert_string_equal(place->match.allow, "GET, HEAD");
        }
    }
}

static void
router__parameter__decoded_exactly_once(void **state)
{
    assert_parameter(*state, "/v1/events/e1", "e1");
    assert_parameter(*state, "/v1/events/a%2Fb", "a/b");
    assert_parameter(*state, "/v1/events/a%252Fb", "a%2Fb");
    assert_parameter(*state, "/v1/events/a+b", "a+b");
    assert_parameter(*state, "/v1/events/%c3%A9", "\xc3\xa9");
    assert_parameter(*state, "/v1/events/..", "..");
    assert_parameter(*state, "/v1/events/%2e%2e", "..");
    assert_parameter(*state, "/v1/events/a?b", "a?b");
}

static void
router__parameter_in_the_middle__is_that_segment(void **state)
{
    assert_parameter(*state, "/v1/tenants/acme/usage", "acme");
    assert_parameter(*state, "/v1/tenants/usage/usage", "usage");
    assert_parameter(*state, "/v1/tenants/a%2Fusage/usage", "a/usage");
    assert_parameter(*state, "/v1/tenants/a%252F/usage", "a%2F");
    assert_parameter(*state, "/v1/tenants/%c3%A9+/%75sage", "\xc3\xa9+");
    assert_parameter(*state, "/v1/tenants", "");
    assert_int_equal(find(*state, METER_METHOD_POST, "/v1/tenants/acme/usage"),
                     ROUTER_METHOD);
    assert_int_equal(find(*state, METER_METHOD_GET, "/v1/tenants/%00/usage"),
                     ROUTER_BAD);
}

static void
assert_two(struct place *place, const char *path, const char *first,
           const char *second)
{
    assert_parameter(place, path, first);
    assert_int_equal(place->match.second.size, strlen(second));
    assert_memory_equal(place->match.second.data, second, strlen(second));
}

static void
router__two_parameters__in_their_order(void **state)
{
    assert_two(*state, "/api/counters/acme/hits/get", "acme", "hits");
    assert_two(*state, "/api/counters/get/get/get", "get", "get");
    assert_two(*state, "/api/counters/a%2Fb/%2e%2E/get", "a/b", "..");
    assert_two(*state, "/api/counters/a/b%252F/get", "a", "b%2F");
    assert_two(*state, "/api/counters/a%20/b+/sumRange", "a ", "b+");
    assert_two(*state, "/api/counters/a;b/c;d/%67et", "a;b", "c;d");
    assert_parameter(*state, "/v1/events/e1", "e1");
    assert_int_equal(((struct place *)*state)->match.second.size, 0);
    assert_int_equal(find(*state, METER_METHOD_GET, "/api/counters/a/%00/get"),
                     ROUTER_BAD);
}

static void
router__bad_escapes_and_bytes__bad(void **state)
{
    static const char *const paths[] = {
        "",
        "v1/events",
        "*",
        "http://x/v1/events",
        "/v1/events/%",
        "/v1/events/%4",
        "/v1/events/%4g",
        "/v1/events/%g4",
        "/v1/events/%00",
        "/v1/events/%c3",
        "/v1/events/%c0%80",
        "/v1/events/%ed%a0%80",
        "/v1/events/\xff",
        "/nothing/%zz",
    };

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        struct place *place = *state;

        assert_int_equal(find(place, METER_METHOD_GET, paths[i]), ROUTER_BAD);
        assert_non_null(place->match.error);
    }
}


/* ---- arguments ------------------------------------------------------- */

static bool
arguments(struct place *place, const char *raw, struct url_arguments *out)
{
    const char *error;

    return url_arguments_read((struct meter_str){raw, strlen(raw)},
                              &place->arena, out, &error);
}

static void
arguments__pairs__decoded_in_order(void **state)
{
    struct url_arguments args;

    assert_true(arguments(*state, "a=1&b=x+y%2B%26&&c&d==&%61a=", &args));
    assert_int_equal(args.count, 5);
    assert_true(meter_str_equal(args.items[0].value, METER_STR("1")));
    assert_true(meter_str_equal(args.items[1].value, METER_STR("x y+&")));
    assert_true(meter_str_equal(args.items[2].name, METER_STR("c")));
    assert_int_equal(args.items[2].value.size, 0);
    assert_true(meter_str_equal(args.items[3].value, METER_STR("=")));
    assert_true(meter_str_equal(args.items[4].name, METER_STR("aa")));
    assert_true(arguments(*state, "", &args));
    assert_int_equal(args.count, 0);
}

static void
arguments__twice_bad_escape_or_too_many__refused(void **state)
{
    struct url_arguments args;
    char many[URL_ARGUMENTS_MAX * 8 + 16];
    size_t at = 0;

    assert_false(arguments(*state, "a=1&a=2", &args));
    assert_false(arguments(*state, "a=1&%61=2", &args));
    assert_false(arguments(*state, "a=%", &args));
    assert_false(arguments(*state, "a=%00", &args));
    assert_false(arguments(*state, "%ff=1", &args));
    for (int i = 0; i <= URL_ARGUMENTS_MAX; i++) {
        at += (size_t)snprintf(many + at, sizeof(many) - at, "&a%d=1", i);
    }
    assert_false(arguments(*state, many, &args));
}

int
main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(router__known_paths__found_with_their_scope),
        T(router__unknown_paths__none),
        T(router__other_method__allow_names_the_right_ones),
        T(router__parameter__decoded_exactly_once),
        T(router__parameter_in_the_middle__is_that_segment),
        T(router__two_parameters__in_their_order),
        T(router__bad_escapes_and_bytes__bad),
        T(arguments__pairs__decoded_in_order),
        T(arguments__twice_bad_escape_or_too_many__refused),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
