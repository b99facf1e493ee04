/*
 * Any bytes as the body of a request, and as an element between two good
 * events. What is accepted keeps every limit and has canonical attributes;
 * a broken element never changes what becomes of its neighbours.
 */

#include "fuzz_check.h"

#include "base/buf.h"
#include "ingest/envelope.h"
#include "meter_time.h"

#define NOW_US INT64_C(1767225600000000) /* 2026-01-01 */

static const char rules[] =
    "idempotency: { futureSkew: 1h }\n"
    "events:\n"
    "  - { type: a, required: [r] }\n"
    "  - { type: b, required: [x.y] }\n"
    "  - { type: c, idempotency: { requireEventId: false } }\n";

static const char good[] = "{\"event_id\":\"good\",\"type\":\"c\",\"ts\":1,"
                           "\"attributes\":{\"k\":[1.50,\"]}\"]}}";

static struct meter_salt salt;
static struct envelope_context context;

static void
prepare(void)
{
    static struct config *config;
    struct config_errors errors;

    if (config != NULL) {
        return;
    }
    FUZZ_CHECK(config_load_text("rules", METER_STR(rules), &config, &errors));
    meter_salt_init(&salt, "secret", 6);
    context = (struct envelope_context){.config = config,
                                        .salt = &salt,
                                        .tenant = METER_STR("acme"),
                                        .now_us = NOW_US};
}

static void
check_text(struct meter_str text, size_t size_max)
{
    if (text.data != NULL) {
        FUZZ_CHECK(text.size >= 1 && text.size <= size_max);
        FUZZ_CHECK(meter_utf8_valid(text));
    }
}

static size_t
count_keys(const struct json_value *value, size_t depth)
{
    size_t count = 0;

    FUZZ_CHECK(depth <= METER_JSON_DEPTH_MAX);
    if (value->kind == JSON_ARRAY) {
        for (uint32_t i = 0; i < value->count; i++) {
            count += count_keys(&value->items[i], depth + 1);
        }
    } else if (value->kind == JSON_OBJECT) {
        for (uint32_t i = 0; i < value->count; i++) {
            count += 1 + count_keys(&value->members[i].value, depth + 1);
        }
    }
    return count;
}

/* The stored text reads back to itself. */
static void
check_attributes(const struct envelope *one, struct arena *arena)
{
    static const struct json_limits limits = {
        METER_JSON_DEPTH_MAX, METER_ATTRIBUTE_COUNT_MAX,
        METER_ATTRIBUTE_NAME_SIZE_MAX, METER_ATTRIBUTE_STRING_SIZE_MAX};
    struct meter_str text = one->event.attributes;
    struct json_error error;
    struct json_value tree;
    struct meter_str again;
    size_t used;

    FUZZ_CHECK(text.size <= METER_EVENT_SIZE_MAX && meter_utf8_valid(text));
    FUZZ_CHECK(one->attributes.kind == JSON_OBJECT);
    FUZZ_CHECK(count_keys(&one->attributes, 1) <= METER_ATTRIBUTE_COUNT_MAX);
    FUZZ_CHECK(json_read(text, &limits, arena, &tree, &used, &error));
    FUZZ_CHECK(used == text.size && tree.kind == JSON_OBJECT);
    FUZZ_CHECK(json_canonical(&tree, arena, &again));
    FUZZ_CHECK(meter_str_equal(text, again));
}

static void
check_accepted(const struct envelope *one, struct arena *arena)
{
    const struct meter_event *event = &one->event;
    uint8_t session[16];
    uint64_t seq;
    int64_t ts_us;

    FUZZ_CHECK(event->event_id.data != NULL && event->type.data != NULL);
    check_text(event->event_id, METER_EVENT_ID_SIZE_MAX);
    check_text(event->type, METER_TYPE_SIZE_MAX);
    check_text(event->customer, METER_CUSTOMER_SIZE_MAX);
    check_text(event->resource, METER_RESOURCE_SIZE_MAX);
    check_text(event->source, METER_SOURCE_SIZE_MAX);
    FUZZ_CHECK(
        !meter_event_minted_parse(event->event_id, session, &seq, &ts_us));
    FUZZ_CHECK(meter_str_equal(event->tenant, context.tenant));
    FUZZ_CHECK(meter_str_equal(one->type->name, event->type));
    FUZZ_CHECK(event->ts_us >= METER_TIME_MIN &&
               event->ts_us <= NOW_US + METER_TIME_HOUR);
    FUZZ_CHECK(event->count == 1);
    FUZZ_CHECK((event->flags & ~(uint32_t)METER_EVENT_DERIVED_ID) == 0);
    FUZZ_CHECK(meter_str_equal(one->id_seen, event->event_id));
    check_attributes(one, arena);
}

static void
check_envelope(const struct envelope *one, struct arena *arena)
{
    if (one->error == NULL) {
        check_accepted(one, arena);
        return;
    }
    check_text(one->id_seen, METER_EVENT_ID_SIZE_MAX);
    FUZZ_CHECK(one->error[0] != '\0' && strlen(one->error) < 512);
    FUZZ_CHECK(
        meter_utf8_valid((struct meter_str){one->error, strlen(one->error)}));
}

static void
check_good(const struct envelope *one)
{
    FUZZ_CHECK(one->error == NULL);
    FUZZ_CHECK(meter_str_equal(one->event.event_id, METER_STR("good")));
    FUZZ_CHECK(meter_str_equal(one->event.attributes,
                               METER_STR("{\"k\":[1.5,\"]}\"]}")));
}

/* One element as it is alone must be the same between others. */
static void
check_same(const struct envelope *alone, const struct envelope *among)
{
    FUZZ_CHECK((alone->error == NULL) == (among->error == NULL));
    FUZZ_CHECK(meter_str_equal(alone->id_seen, among->id_seen));
    if (alone->error != NULL) {
        FUZZ_CHECK(strcmp(alone->error, among->error) == 0);
        return;
    }
    FUZZ_CHECK(meter_str_equal(alone->event.event_id, among->event.event_id));
    FUZZ_CHECK(
        meter_str_equal(alone->event.attributes, among->event.attributes));
    FUZZ_CHECK(alone->event.ts_us == among->event.ts_us);
    FUZZ_CHECK(alone->event.quantity.units == among->event.quantity.units);
}

/*
 * [good, bytes, good]. Bytes that are one element by their outline are
 * judged as they are alone, and the neighbours are accepted. Others may
 * refuse the body, or be several elements; the first neighbour is then
 * still the first.
 */
static void
check_between(struct meter_str element, const struct envelope *alone,
              struct arena *arena)
{
    struct envelope *list;
    const char *error;
    size_t count;
    struct buf body;

    buf_init(&body, 1 << 24);
    buf_printf(&body, "[%s,", good);
    buf_put_str(&body, element);
    buf_printf(&body, ",%s]", good);
    FUZZ_CHECK(!body.failed);
    switch (envelope_read(&(struct envelope_input){.body = buf_str(&body)},
                          &context, arena, &list, &count, &error)) {
    case ENVELOPE_SINGLE: FUZZ_CHECK(!"a list is no single object"); break;
    case ENVELOPE_BAD:
        FUZZ_CHECK(error != NULL && count == 0 && alone == NULL);
        break;
    case ENVELOPE_LIST:
        FUZZ_CHECK(count >= 2);
        check_good(&list[0]);
        for (size_t i = 1; i < count; i++) {
            check_envelope(&list[i], arena);
        }
        if (alone != NULL) {
            FUZZ_CHECK(count == 3);
            check_same(alone, &list[1]);
            check_good(&list[2]);
        }
        break;
    }
    buf_fini(&body);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct meter_str body = {(const char *)data, size};
    const struct envelope *alone = NULL;
    struct envelope *list;
    enum envelope_body form;
    struct arena arena;
    const char *error;
    size_t count;

    prepare();
    arena_init(&arena, 1 << 16, 512 << 20);
    form = envelope_read(&(struct envelope_input){.body = body}, &context,
                         &arena, &list, &count, &error);
    if (form == ENVELOPE_BAD) {
        FUZZ_CHECK(error != NULL && count == 0 && list == NULL);
    } else {
        FUZZ_CHECK(error == NULL && count <= METER_BATCH_EVENTS_MAX);
        FUZZ_CHECK(form == ENVELOPE_LIST || count == 1);
        for (size_t i = 0; i < count; i++) {
            check_envelope(&list[i], &arena);
        }
    }
    if (form == ENVELOPE_SINGLE) {
        alone = &list[0];
    }
    check_between(body, alone, &arena);
    arena_fini(&arena);
    return 0;
}
