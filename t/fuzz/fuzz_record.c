/*
 * Any bytes as the body of a captured record; the first byte is its kind.
 * What becomes an event keeps every limit and is text that the database
 * takes; what does not has a reason and a tenant that it takes too.
 */

#include "fuzz_check.h"

#include "ingest/record.h"
#include "meter_time.h"

#define NOW_US INT64_C(1767225600000000) /* 2026-01-01 */

static const char rules[] = "events:\n"
                            "  - { type: a, required: [r] }\n"
                            "  - { type: d, delta: true }\n"
                            "  - { type: '*' }\n";

static struct config *config;

static void
check_text(struct meter_str text, size_t size_max)
{
    if (text.data != NULL) {
        FUZZ_CHECK(text.size >= 1 && text.size <= size_max);
        FUZZ_CHECK(meter_utf8_valid(text));
    }
}

/* The canonical text is the tree: it reads back with all its members. */
static void
check_attributes(const struct record_event *out, struct arena *arena)
{
    static const struct json_limits limits = {
        .depth_max = 1,
        .key_count_max = METER_ATTRIBUTE_COUNT_MAX,
        .name_size_max = METER_ATTRIBUTE_NAME_SIZE_MAX,
        .string_size_max = METER_ATTRIBUTE_STRING_SIZE_MAX,
    };
    struct json_value tree;
    struct json_error error;
    size_t used;

    FUZZ_CHECK(out->event.attributes.size <= METER_EVENT_SIZE_MAX);
    FUZZ_CHECK(json_read(out->event.attributes, &limits, arena, &tree, &used,
                         &error));
    FUZZ_CHECK(used == out->event.attributes.size);
    FUZZ_CHECK(tree.count == out->attributes.count);
    for (uint32_t i = 0; i < tree.count; i++) {
        FUZZ_CHECK(meter_str_equal(tree.members[i].value.text,
                                   out->attributes.members[i].value.text));
    }
}

static void
check_event(const struct record_event *out, uint8_t kind, struct arena *arena)
{
    const struct meter_event *event = &out->event;

    check_text(out->tenant, METER_TENANT_SIZE_MAX);
    if (out->error != NULL) {
        FUZZ_CHECK(meter_utf8_valid(
            (struct meter_str){out->error, strlen(out->error)}));
        return;
    }
    FUZZ_CHECK(event->event_id.size > 0 && event->type.size > 0);
    check_text(event->tenant, METER_TENANT_SIZE_MAX);
    check_text(event->event_id, METER_EVENT_ID_SIZE_MAX);
    check_text(event->type, METER_TYPE_SIZE_MAX);
    check_text(event->customer, METER_CUSTOMER_SIZE_MAX);
    check_text(event->resource, METER_RESOURCE_SIZE_MAX);
    FUZZ_CHECK(event->ts_us >= METER_TIME_MIN &&
               event->ts_us <= METER_TIME_MAX);
    FUZZ_CHECK(event->count == 1 ||
               (event->count > 1 && kind == METER_RECORD_DELTA));
    FUZZ_CHECK((event->flags & METER_EVENT_CAPTURED) != 0);
    FUZZ_CHECK(out->has_id == ((event->flags & METER_EVENT_MINTED_ID) == 0));
    FUZZ_CHECK(out->type != NULL);
    check_attributes(out, arena);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t session[16] = {1};
    struct config_errors errors;
    struct record_context context = {.session = session, .now_us = NOW_US};
    struct meter_record record = {.seq = 7};
    struct record_event out;
    struct meter_loss loss;
    struct arena arena;

    if (config == NULL) {
        FUZZ_CHECK(
            config_load_text("rules", METER_STR(rules), &config, &errors));
    }
    if (size < 1 || size > METER_RECORD_BODY_SIZE_MAX) {
        return 0;
    }
    context.config = config;
    record.kind = (uint8_t)(METER_RECORD_EVENT + data[0] % 4);
    record.body = (struct meter_str){(const char *)data + 1, size - 1};
    if (record.kind == METER_RECORD_LOSSNOTE) {
        FUZZ_CHECK(record_read_loss(&record, &loss) != NULL ||
                   loss.count <= INT64_MAX);
        return 0;
    }
    arena_init(&arena, 4096, (size_t)16 << 20);
    FUZZ_CHECK(record_read_event(&record, &context, &arena, &out));
    check_event(&out, record.kind, &arena);
    arena_fini(&arena);
    return 0;
}
