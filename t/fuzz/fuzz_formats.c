/*
 * Any bytes as NDJSON, as CloudEvents in each mode, and as gzip. The first
 * byte chooses. What is accepted keeps every limit; lines are judged as they
 * are alone; gzip never gives more than it may.
 *
 *   first byte  0 lines, 1 structured, 2 batch, 3 binary, 4 gzip (modulo 5)
 *   binary      headers "name: value\n" up to an empty line, then the data
 */

#include "fuzz_check.h"

#include "base/gunzip.h"
#include "base/media_type.h"
#include "ingest/envelope.h"
#include "meter_time.h"

#define NOW_US       INT64_C(1767225600000000) /* 2026-01-01 */
#define UNPACKED_MAX ((size_t)1 << 18)
#define FORMS        5

static const char rules[] = "events:\n"
                            "  - { type: a, required: [r] }\n"
                            "  - { type: c }\n";

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

static void
check_envelope(const struct envelope *one, bool is_cloud)
{
    const struct meter_event *event = &one->event;
    uint32_t flags = is_cloud ? METER_EVENT_SERVER_TIME : 0;

    check_text(one->id_seen, METER_EVENT_ID_SIZE_MAX);
    if (one->error != NULL) {
        FUZZ_CHECK(one->error[0] != '\0' && strlen(one->error) < 512);
        FUZZ_CHECK(meter_utf8_valid(
            (struct meter_str){one->error, strlen(one->error)}));
        return;
    }
    FUZZ_CHECK(event->event_id.data != NULL && event->type.data != NULL);
    FUZZ_CHECK(!is_cloud || event->source.data != NULL);
    check_text(event->event_id, METER_EVENT_ID_SIZE_MAX);
    check_text(event->type, METER_TYPE_SIZE_MAX);
    check_text(event->customer, METER_CUSTOMER_SIZE_MAX);
    check_text(event->resource, METER_RESOURCE_SIZE_MAX);
    check_text(event->source, METER_SOURCE_SIZE_MAX);
    FUZZ_CHECK(meter_str_equal(event->tenant, context.tenant));
    FUZZ_CHECK(meter_str_equal(event->event_id, one->id_seen));
    FUZZ_CHECK((event->flags & ~flags) == 0);
    FUZZ_CHECK((event->flags & METER_EVENT_SERVER_TIME) == 0 ||
               event->ts_us == NOW_US);
    FUZZ_CHECK(event->attributes.size <= METER_EVENT_SIZE_MAX);
    FUZZ_CHECK(one->attributes.kind == JSON_OBJECT);
}

/* The line of each, read by itself, says the same. */
static void
check_alone(const struct envelope *one, struct meter_str body,
            struct arena *arena)
{
    struct envelope_input input = {.form = ENVELOPE_LINES, .body = body};
    struct envelope *list;
    const char *error;
    size_t count;

    for (size_t i = 1; i < one->line; i++) {
        const char *feed = memchr(input.body.data, '\n', input.body.size);

        FUZZ_CHECK(feed != NULL);
        input.body.size -= (size_t)(feed + 1 - input.body.data);
        input.body.data = feed + 1;
    }
    if (memchr(input.body.data, '\n', input.body.size) != NULL) {
        input.body.size = (size_t)((const char *)memchr(input.body.data, '\n',
                                                        input.body.size) -
                                   input.body.data);
    }
    FUZZ_CHECK(envelope_read(&input, &context, arena, &list, &count, &error) ==
               ENVELOPE_LIST);
    FUZZ_CHECK(count == 1 && list[0].line == 1);
    FUZZ_CHECK((list[0].error == NULL) == (one->error == NULL));
    FUZZ_CHECK(meter_str_equal(list[0].id_seen, one->id_seen));
    FUZZ_CHECK(one->error == NULL || strcmp(one->error, list[0].error) == 0);
}

/* Cuts the headers off the body. */
static size_t
take_headers(struct meter_str *body, struct meter_header *headers)
{
    size_t count = 0;
    const char *feed;

    while (count < METER_HEADER_COUNT_MAX && body->size > 0 &&
           (feed = memchr(body->data, '\n', body->size)) != NULL) {
        struct meter_str line = {body->data, (size_t)(feed - body->data)};
        const char *colon =
            line.size == 0 ? NULL : memchr(line.data, ':', line.size);

        body->size -= line.size + 1;
        body->data = feed + 1;
        if (colon == NULL) {
            break;
        }
        headers[count].name =
            (struct meter_str){line.data, (size_t)(colon - line.data)};
        headers[count].value = (struct meter_str){
            colon + 1, line.size - (size_t)(colon + 1 - line.data)};
        count++;
    }
    return count;
}

static void
fuzz_body(enum envelope_form form, struct meter_str body)
{
    struct meter_header headers[METER_HEADER_COUNT_MAX];
    struct envelope_input input = {.form = form, .headers = headers};
    enum envelope_body outcome;
    struct envelope *list;
    struct arena arena;
    const char *error;
    size_t count;

    if (form == ENVELOPE_CLOUD_BINARY) {
        input.header_count = take_headers(&body, headers);
    }
    input.body = body;
    arena_init(&arena, 1 << 16, 512 << 20);
    outcome = envelope_read(&input, &context, &arena, &list, &count, &error);
    FUZZ_CHECK((outcome == ENVELOPE_BAD) == (error != NULL));
    FUZZ_CHECK(outcome != ENVELOPE_SINGLE || count == 1);
    FUZZ_CHECK(outcome != ENVELOPE_BAD || form != ENVELOPE_CLOUD_BINARY);
    FUZZ_CHECK(count <= METER_BATCH_EVENTS_MAX);
    for (size_t i = 0; i < count; i++) {
        check_envelope(&list[i], form != ENVELOPE_LINES);
        if (form == ENVELOPE_LINES && i < 8) {
            check_alone(&list[i], body, &arena);
        }
    }
    arena_fini(&arena);
}

static void
fuzz_gzip(struct meter_str packed)
{
    struct gunzip *gunzip = gunzip_create(packed, UNPACKED_MAX);
    enum gunzip_result result;
    struct media_type type;
    struct buf out;

    FUZZ_CHECK(gunzip != NULL);
    do {
        result = gunzip_step(gunzip);
    } while (result == GUNZIP_MORE);
    FUZZ_CHECK(result != GUNZIP_NO_MEMORY);
    FUZZ_CHECK((result == GUNZIP_BAD) == (gunzip_error(gunzip) != NULL));
    buf_init(&out, UNPACKED_MAX);
    if (result == GUNZIP_DONE) {
        gunzip_take(gunzip, &out);
        FUZZ_CHECK(out.size <= UNPACKED_MAX);
    }
    buf_fini(&out);
    gunzip_destroy(gunzip);
    if (media_type_read(packed, &type)) {
        FUZZ_CHECK(type.name.size >= 3 && type.name.size <= packed.size);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum envelope_form forms[] = {
        ENVELOPE_LINES, ENVELOPE_CLOUD_EVENT, ENVELOPE_CLOUD_BATCH,
        ENVELOPE_CLOUD_BINARY};

    prepare();
    if (size == 0) {
        return 0;
    }
    if (data[0] % FORMS == FORMS - 1) {
        fuzz_gzip((struct meter_str){(const char *)data + 1, size - 1});
    } else {
        fuzz_body(forms[data[0] % FORMS],
                  (struct meter_str){(const char *)data + 1, size - 1});
    }
    return 0;
}
