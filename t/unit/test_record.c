/*
 * test_record.c - what a captured record means, and what it cannot mean.
 */

#include "meter_cmocka.h"

#include "ingest/record.h"
#include "meter_time.h"

#define NOW_US INT64_C(1767225600000000) /* 2026-01-01 */
#define SEQ    77

static const char rules[] = "idempotency: { futureSkew: 1h, pastSkew: 7d }\n"
                            "events:\n"
                            "  - { type: api.request, required: [route] }\n"
                            "  - { type: api.delta, delta: true }\n"
                            "  - { type: api.free }\n";
static const char any_rules[] = "events:\n"
                                "  - { type: '*' }\n";

static const uint8_t session[16] = {0xab, 1, 2, 3, 4, 5, 6, 7,
                                    8,    9, 1, 2, 3, 4, 5, 6};

struct fixture {
    struct config *config;
    struct arena arena;
    struct meter_record_event raw; /* what the edge sends */
    uint8_t kind;
    uint8_t body[METER_RECORD_BODY_SIZE_MAX];
    struct record_event out;
};

static struct config *
load(const char *text)
{
    struct config_errors errors;
    struct config *config;

    if (!config_load_text("rules", str_of(text), &config, &errors)) {
        config_errors_print(&errors, stderr);
        abort();
    }
    return config;
}

static int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->config = load(rules);
    arena_init(&f->arena, 1 << 16, 64 << 20);
    f->kind = METER_RECORD_EVENT;
    f->raw = (struct meter_record_event){
        .tenant = METER_STR("acme"),
        .type = METER_STR("api.free"),
        .ts_us = NOW_US - 5,
        .count = 1,
    };
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;

    arena_fini(&f->arena);
    config_unref(f->config);
    free(f);
    return 0;
}

static bool
read_body(struct fixture *f, struct meter_str body)
{
    struct meter_record record = {.seq = SEQ, .kind = f->kind, .body = body};
    struct record_context context = {
        .config = f->config, .session = session, .now_us = NOW_US};

    return record_read_event(&record, &context, &f->arena, &f->out);
}

/* The event as it comes out of a ring. */
static const char *
read_raw(struct fixture *f)
{
    struct meter_writer writer;

    meter_writer_init(&writer, f->body, sizeof(f->body));
    meter_record_event_encode(&f->raw, &writer);
    assert_false(writer.failed);
    assert_true(read_body(f, (struct meter_str){(char *)f->body, writer.at}));
    return f->out.error;
}

static void
assert_reason(struct fixture *f, const char *fragment)
{
    const char *error = read_raw(f);

    if (error == NULL || strstr(error, fragment) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", fragment,
                 error == NULL ? "(valid)" : error);
    }
}

static void
assert_good(struct fixture *f)
{
    if (read_raw(f) != NULL) {
        fail_msg("%s", f->out.error);
    }
}

static void
assert_str(struct meter_str actual, const char *expected)
{
    if (actual.size != strlen(expected) ||
        memcmp(actual.data, expected, actual.size) != 0) {
        fail_msg("\"%.*s\" is not \"%s\"", (int)actual.size, actual.data,
                 expected);
    }
}

static void
add(struct fixture *f, const char *name, const char *value)
{
    f->raw.attributes[f->raw.attribute_count++] =
        (struct meter_record_attribute){str_of(name), str_of(value)};
}

static struct meter_str
letters(char letter, size_t count)
{
    static char text[METER_RECORD_SIZE_MAX];

    memset(text, letter, count);
    return (struct meter_str){text, count};
}

static void
event__plain__is_captured_with_a_minted_id(void **state)
{
    struct fixture *f = *state;
    uint8_t of_id[16];
    uint64_t seq;
    int64_t ts_us;

    f->raw.customer = METER_STR("c1");
    f->raw.resource = METER_STR("r1");
    f->raw.quantity = METER_STR("2.50");
    add(f, "status", "200");
    add(f, "route", "/a\"b");
    assert_good(f);
    assert_str(f->out.tenant, "acme");
    assert_str(f->out.event.tenant, "acme");
    assert_str(f->out.event.type, "api.free");
    assert_str(f->out.event.customer, "c1");
    assert_str(f->out.event.resource, "r1");
    assert_null(f->out.event.source.data);
    assert_int_equal(f->out.event.ts_us, NOW_US - 5);
    assert_int_equal(f->out.event.count, 1);
    assert_true(f->out.event.quantity.units == 2500000000);
    assert_str(f->out.event.attributes,
               "{\"route\":\"/a\\\"b\",\"status\":\"200\"}");
    assert_int_equal(f->out.attributes.kind, JSON_OBJECT);
    assert_int_equal(f->out.attributes.count, 2);
    assert_int_equal(f->out.attributes.members[1].value.kind, JSON_STRING);
    assert_str(f->out.attributes.members[0].name, "route");
    assert_false(f->out.has_id);
    assert_int_equal(f->out.event.flags,
                     METER_EVENT_CAPTURED | METER_EVENT_MINTED_ID);
    assert_true(meter_event_minted_parse(f->out.event.event_id, of_id, &seq,
                                         &ts_us));
    assert_memory_equal(of_id, session, 16);
    assert_int_equal(seq, SEQ);
    assert_int_equal(ts_us, NOW_US - 5);
}

static void
event__nothing_but_the_least__has_defaults(void **state)
{
    struct fixture *f = *state;

    assert_good(f);
    assert_null(f->out.event.customer.data);
    assert_null(f->out.event.resource.data);
    assert_str(f->out.event.attributes, "{}");
    assert_true(meter_decimal_compare(f->out.event.quantity,
                                      meter_decimal_from_int(1)) == 0);
}

static void
quantity__below_zero__only_where_the_location_allows_it(void **state)
{
    struct fixture *f = *state;

    f->raw.quantity = METER_STR("-0.5");
    assert_reason(f, "quantity is negative: \"-0.5\"");
    f->raw.quantity = METER_STR("-0");
    assert_good(f);
    f->raw.quantity = METER_STR("-0.5");
    f->raw.flags |= METER_EVENT_NEGATIVE;
    assert_good(f);
    assert_true(f->out.event.quantity.units == -500000000);
    assert_int_equal(f->out.event.flags,
                     METER_EVENT_CAPTURED | METER_EVENT_MINTED_ID);
}

static void
tenant__that_cannot_be_stored__leaves_a_letter_of_nobody(void **state)
{
    struct fixture *f = *state;
    const struct {
        struct meter_str tenant;
        const char *fragment;
    } table[] = {
        {METER_STR(""), "tenant is empty"},
        {METER_STR("a\xff"), "tenant is not UTF-8"},
        {METER_STR("a\0b"), "tenant is not UTF-8"},
        {letters('t', 256), "longer than 255"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        f->raw.tenant = table[i].tenant;
        assert_reason(f, table[i].fragment);
        assert_str(f->out.tenant, "-");
    }
    f->raw.tenant = letters('t', 255);
    assert_good(f);
    assert_int_equal(f->out.tenant.size, 255);
}

static void
body__that_is_none__is_a_reason(void **state)
{
    struct fixture *f = *state;

    assert_true(read_body(f, METER_STR("nothing")));
    assert_string_equal(f->out.error, "not a captured event");
    assert_str(f->out.tenant, "-");
    assert_true(read_body(f, METER_STR("")));
    assert_string_equal(f->out.error, "not a captured event");
}

static void
type__must_be_declared(void **state)
{
    struct fixture *f = *state;

    f->raw.type = METER_STR("api.fre");
    assert_reason(f, "unknown event type \"api.fre\"");
    assert_str(f->out.tenant, "acme");
    f->raw.type = METER_STR("");
    assert_reason(f, "type is empty");
    f->raw.type = METER_STR("*");
    assert_reason(f, "unknown event type");

    config_unref(f->config);
    f->config = load(any_rules);
    assert_reason(f, "unknown event type");
    f->raw.type = METER_STR("whatever");
    assert_good(f);
    f->raw.type = METER_STR("what\xff");
    assert_reason(f, "unknown event type \"what?\"");
    f->raw.type = letters('t', 129);
    assert_reason(f, "type is longer than 128");
}

static void
delta__needs_its_type_a_sum_and_no_id(void **state)
{
    struct fixture *f = *state;

    f->kind = METER_RECORD_DELTA;
    f->raw.quantity = METER_STR("12.5");
    f->raw.count = 40;
    assert_reason(f, "type \"api.free\" may not come as a delta");
    f->raw.type = METER_STR("api.delta");
    assert_good(f);
    assert_int_equal(f->out.event.count, 40);
    assert_true(f->out.event.quantity.units == 12500000000);
    f->raw.count = 1;
    assert_good(f);
    f->raw.count = 0;
    assert_reason(f, "count is 0");
    f->raw.count = -3;
    assert_reason(f, "count is -3");
    f->raw.count = 2;
    f->raw.quantity = METER_STR("");
    assert_reason(f, "no sum");
    f->raw.quantity = METER_STR("2");
    f->raw.event_id = METER_STR("id");
    assert_reason(f, "a delta has an event_id");
}

static void
count__of_one_request__is_one(void **state)
{
    struct fixture *f = *state;

    f->raw.type = METER_STR("api.delta");
    f->raw.count = 2;
    assert_reason(f, "count is 2");
    f->kind = METER_RECORD_DUPNOTE;
    f->raw.event_id = METER_STR("id");
    assert_reason(f, "count is 2");
    f->raw.count = 0;
    assert_reason(f, "count is 0");
}

static void
quantity__that_is_no_decimal__is_never_guessed(void **state)
{
    static const char *const bad[] = {"-",   "1,5", "1.5, 2", " 1",
                                      "1 ",  "0x1", "nan",    "1e40",
                                      "1e-10"};
    static const char *const good[] = {"0", "-0", "1e3", "007", "+2", "0.5"};
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        f->raw.quantity = str_of(bad[i]);
        assert_reason(f, "quantity ");
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        f->raw.quantity = str_of(good[i]);
        assert_good(f);
    }
}

static void
ts__must_be_believable(void **state)
{
    struct fixture *f = *state;

    f->raw.ts_us = NOW_US + METER_TIME_HOUR;
    assert_good(f);
    f->raw.ts_us++;
    assert_reason(f, "ahead of the server's clock");
    f->raw.ts_us = NOW_US - 7 * METER_TIME_DAY;
    assert_good(f);
    f->raw.ts_us--;
    assert_reason(f, "behind the server's clock");

    config_unref(f->config);
    f->config = load(any_rules);
    f->raw.ts_us = METER_TIME_MIN;
    assert_good(f);
    f->raw.ts_us = METER_TIME_MIN - 1;
    assert_reason(f, "years 0001 to 9999");
    f->raw.ts_us = INT64_MIN;
    assert_reason(f, "years 0001 to 9999");
    f->raw.ts_us = INT64_MAX;
    assert_reason(f, "years 0001 to 9999");
}

static void
customer_and_resource__other_bytes_are_replaced_long_ones_refused(void **state)
{
    struct fixture *f = *state;

    f->raw.customer = METER_STR("a\xff\x00z");
    f->raw.resource = METER_STR("\xe2\x82\xac\xe2\x82");
    assert_good(f);
    assert_str(f->out.event.customer, "a\xef\xbf\xbd\xef\xbf\xbdz");
    assert_str(f->out.event.resource,
               "\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd");
    assert_int_equal(f->out.event.flags,
                     METER_EVENT_CAPTURED | METER_EVENT_MINTED_ID |
                         METER_EVENT_TRUNCATED);
    f->raw.customer = letters('c', 255);
    f->raw.resource = METER_STR("");
    assert_good(f);
    assert_null(f->out.event.resource.data);
    assert_int_equal(f->out.event.flags & METER_EVENT_TRUNCATED, 0);
    f->raw.customer = letters('c', 256);
    assert_reason(f, "customer is longer than 255 bytes");
    f->raw.customer = METER_STR("");
    f->raw.resource = letters('r', 256);
    assert_reason(f, "resource is longer than 255 bytes");
    f->raw.resource = letters('\xff', 86); /* 258 bytes as replaced */
    assert_reason(f, "resource is longer than 255 bytes");
}

static void
event_id__of_a_client__goes_to_the_registry(void **state)
{
    struct fixture *f = *state;
    const struct meter_str good[] = {
        METER_STR("x"),
        METER_STR("0190b0a1-0000-7000-8000-000000000001"),
        METER_STR("edge-no"),
        letters('i', 255),
    };

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        f->raw.event_id = good[i];
        assert_good(f);
        assert_true(f->out.has_id);
        assert_true(meter_str_equal(f->out.event.event_id, good[i]));
        assert_int_equal(f->out.event.flags, METER_EVENT_CAPTURED);
    }
}

static void
event_id__that_no_client_can_have__is_minted(void **state)
{
    struct fixture *f = *state;
    const struct meter_str bad[] = {
        METER_STR("\xff"),
        METER_STR("a\0b"),
        METER_STR("edge-00000000000000000000000000000000-1-1"),
        letters('i', 256),
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        f->kind = METER_RECORD_EVENT;
        f->raw.event_id = bad[i];
        assert_good(f);
        assert_false(f->out.has_id);
        assert_int_equal(f->out.event.flags,
                         METER_EVENT_CAPTURED | METER_EVENT_MINTED_ID);
        assert_memory_equal(f->out.event.event_id.data, "edge-ab01", 9);
        f->kind = METER_RECORD_DUPNOTE;
        assert_reason(f, "no usable event_id");
    }
}

static void
flags__only_what_the_edge_can_know(void **state)
{
    struct fixture *f = *state;

    f->raw.flags = UINT32_MAX;
    f->raw.event_id = METER_STR("id");
    assert_good(f);
    assert_int_equal(f->out.event.flags,
                     METER_EVENT_CAPTURED | METER_EVENT_RECOVERED |
                         METER_EVENT_TRUNCATED | METER_EVENT_SERVER_TIME);
}

static void
attributes__any_bytes__are_kept_as_text(void **state)
{
    struct fixture *f = *state;

    add(f, "empty", "");
    add(f, "b\xff", "1");
    add(f, "a", "\xc3(");
    add(f, "a", "second");
    assert_good(f);
    assert_str(f->out.event.attributes,
               "{\"a\":\"\xef\xbf\xbd(\",\"b\xef\xbf\xbd\":\"1\","
               "\"empty\":\"\"}");
    assert_int_not_equal(f->out.event.flags & METER_EVENT_TRUNCATED, 0);
}

static void
attributes__long_ones__are_cut_at_a_character(void **state)
{
    struct fixture *f = *state;
    char name[131];

    memset(name, 'n', sizeof(name));
    memcpy(name + 127, "\xe2\x82\xac", 3);
    name[130] = '\0';
    add(f, name, "v");
    /* Three bytes for each: 8,192 are 2,730 characters and two bytes. */
    f->raw.attributes[f->raw.attribute_count++] =
        (struct meter_record_attribute){METER_STR("v"), letters('\xff', 3000)};
    assert_good(f);
    assert_int_equal(f->out.attributes.count, 2);
    assert_int_equal(f->out.attributes.members[0].name.size, 127);
    assert_int_equal(f->out.attributes.members[1].value.text.size, 8190);
    assert_true(meter_utf8_valid(f->out.event.attributes));
    assert_int_not_equal(f->out.event.flags & METER_EVENT_TRUNCATED, 0);
}

static void
attributes__many_in_any_order__are_sorted(void **state)
{
    static char names[METER_ATTRIBUTE_COUNT_MAX][4];
    struct fixture *f = *state;

    for (unsigned i = 0; i < METER_ATTRIBUTE_COUNT_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "%02x", (i * 167 + 11) & 0xff);
        add(f, names[i], "");
    }
    assert_good(f);
    assert_int_equal(f->out.attributes.count, METER_ATTRIBUTE_COUNT_MAX);
    for (uint32_t i = 1; i < f->out.attributes.count; i++) {
        assert_true(meter_str_compare(f->out.attributes.members[i - 1].name,
                                      f->out.attributes.members[i].name) < 0);
    }
}

static void
required__an_empty_value_is_there(void **state)
{
    struct fixture *f = *state;

    f->raw.type = METER_STR("api.request");
    assert_reason(f, "attribute \"route\" is required");
    add(f, "route", "");
    assert_good(f);
}

static void
loss__in_range__is_read(void **state)
{
    struct meter_loss wished = {
        .count = 7, .first_us = NOW_US, .last_us = NOW_US + 1, .reasons = 5};
    struct meter_record record = {.seq = 1, .kind = METER_RECORD_LOSSNOTE};
    uint8_t body[128];
    struct meter_loss loss;

    (void)state;
    record.body.data = (char *)body;
    for (int i = 0; i < 6; i++) {
        struct meter_writer writer;

        switch (i) {
        case 1: wished.count = (uint64_t)INT64_MAX + 1; break;
        case 2: wished.count = INT64_MAX; break;
        case 3: wished.first_us = INT64_MIN; break;
        case 4: wished.first_us = 0; wished.last_us = INT64_MAX; break;
        case 5: wished.last_us = 0; wished.reasons = UINT32_MAX; break;
        default: break;
        }
        meter_writer_init(&writer, body, sizeof(body));
        meter_loss_encode(&wished, &writer);
        record.body.size = writer.at;
        assert_int_equal(record_read_loss(&record, &loss) == NULL,
                         i == 0 || i == 2);
    }
    record.body = METER_STR("x");
    assert_non_null(record_read_loss(&record, &loss));
}

static void
event__without_memory__nothing_is_said(void **state)
{
    struct fixture *f = *state;
    struct meter_record record = {.seq = SEQ, .kind = METER_RECORD_EVENT};
    struct record_context context = {
        .config = f->config, .session = session, .now_us = NOW_US};
    struct meter_writer writer;
    struct arena small;

    add(f, "a", "\xff");
    meter_writer_init(&writer, f->body, sizeof(f->body));
    meter_record_event_encode(&f->raw, &writer);
    record.body = (struct meter_str){(char *)f->body, writer.at};
    for (size_t size = 16; size <= 1 << 12; size += 16) {
        arena_init(&small, 16, size);
        if (record_read_event(&record, &context, &small, &f->out)) {
            assert_null(f->out.error);
        }
        arena_fini(&small);
    }
    assert_null(f->out.error); /* the last ones had enough */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(event__plain__is_captured_with_a_minted_id),
    TEST(event__nothing_but_the_least__has_defaults),
    TEST(quantity__below_zero__only_where_the_location_allows_it),
    TEST(tenant__that_cannot_be_stored__leaves_a_letter_of_nobody),
    TEST(body__that_is_none__is_a_reason),
    TEST(type__must_be_declared),
    TEST(delta__needs_its_type_a_sum_and_no_id),
    TEST(count__of_one_request__is_one),
    TEST(quantity__that_is_no_decimal__is_never_guessed),
    TEST(ts__must_be_believable),
    TEST(customer_and_resource__other_bytes_are_replaced_long_ones_refused),
    TEST(event_id__of_a_client__goes_to_the_registry),
    TEST(event_id__that_no_client_can_have__is_minted),
    TEST(flags__only_what_the_edge_can_know),
    TEST(attributes__any_bytes__are_kept_as_text),
    TEST(attributes__long_ones__are_cut_at_a_character),
    TEST(attributes__many_in_any_order__are_sorted),
    TEST(required__an_empty_value_is_there),
    TEST(loss__in_range__is_read),
    TEST(event__without_memory__nothing_is_said),
};

RUN_TAP(tests)
