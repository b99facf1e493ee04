/*
 * Content-Type headers: names, parameters in every spelling, charsets.
 */

#include "meter_cmocka.h"

#include "base/media_type.h"

static void
read__good_types__name_and_charset(void **state)
{
    static const char *const table[][3] = {
        {"application/json", "application/json", NULL},
        {" application/json ", "application/json", NULL},
        {"Application/JSON;charset=UTF-8", "Application/JSON", "UTF-8"},
        {"a/b ; CharSet = x", NULL, NULL}, /* no blanks around = */
        {"a/b ; CharSet=x", "a/b", "x"},
        {"a/b;charset=\"utf-8\"", "a/b", "utf-8"},
        {"a/b\t;\tq=1 ;\tcharset=utf-8\t", "a/b", "utf-8"},
        {"a/b;x=\"; charset=latin1\";charset=utf-8", "a/b", "utf-8"},
        {"a/b;x=\"\\\";\"; charset=utf-8", "a/b", "utf-8"},
        {"a/b;", "a/b", NULL},
        {"a/b; ; charset=utf-8;", "a/b", "utf-8"},
        {"a/b;charset=utf-8;charset=UTF-8", "a/b", "UTF-8"},
        {"application/cloudevents+json", "application/cloudevents+json", NULL},
        {"", NULL, NULL},
        {" ", NULL, NULL},
        {"a", NULL, NULL},
        {"a/", NULL, NULL},
        {"/b", NULL, NULL},
        {"a/b/c", NULL, NULL},
        {"a/b c", NULL, NULL},
        {"a/b, c/d", NULL, NULL},
        {"a/b;charset", NULL, NULL},
        {"a/b;charset=", NULL, NULL},
        {"a/b;charset=\"utf-8", NULL, NULL},
        {"a/b;charset=utf-8;charset=latin1", NULL, NULL},
        {"a/b;charset=utf-8;charset=utf-16", NULL, NULL},
        {"a/b;charset=utf-8 x", NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct media_type type;
        bool good = media_type_read(str_of(table[i][0]), &type);

        if (good != (table[i][1] != NULL)) {
            fail_msg("\"%s\" is %s", table[i][0], good ? "read" : "refused");
        }
        if (!good) {
            continue;
        }
        assert_true(meter_str_equal(type.name, str_of(table[i][1])));
        if (table[i][2] == NULL) {
            assert_null(type.charset.data);
        } else {
            assert_true(meter_str_equal(type.charset, str_of(table[i][2])));
        }
    }
}

static void
is_json__subtype_or_suffix(void **state)
{
    static const struct {
        const char *text;
        bool is;
    } table[] = {
        {"application/json", true},       {"TEXT/Json;charset=x", true},
        {"application/vnd.a+JSON", true}, {"application/jsonx", false},
        {"application/xjson", false},     {"json/plain", false},
        {"application/x-ndjson", false},  {"text/plain", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct media_type type;

        assert_true(media_type_read(str_of(table[i].text), &type));
        if (media_type_is_json(&type) != table[i].is) {
            fail_msg("%s", table[i].text);
        }
    }
}

static void
is_utf8__other_charsets__are_not(void **state)
{
    static const struct {
        const char *text;
        bool is;
    } table[] = {
        {"a/b", true},
        {"a/b;charset=utf-8", true},
        {"a/b;charset=\"UTF-8\"", true},
        {"a/b;charset=Utf8", true},
        {"a/b;charset=utf-16", false},
        {"a/b;charset=iso-8859-1", false},
        {"a/b;charset=\"\"", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct media_type type;

        assert_true(media_type_read(str_of(table[i].text), &type));
        if (media_type_is_utf8(&type) != table[i].is) {
            fail_msg("%s", table[i].text);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(read__good_types__name_and_charset),
    cmocka_unit_test(is_json__subtype_or_suffix),
    cmocka_unit_test(is_utf8__other_charsets__are_not),
};

RUN_TAP(tests)
