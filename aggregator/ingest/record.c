/*
 * record.c - see record.h.
 *
 * Each check answers NULL or a reason; the first reason wins. The tenant is
 * looked at first, so that every dead letter that can have one has it.
 */

#include "ingest/record.h"

#include "base/reason.h"
#include "ingest/validate.h"
#include "meter_time.h"

#define REPLACEMENT      "\xef\xbf\xbd" /* U+FFFD */
#define REPLACEMENT_SIZE 3

/* What the edge may say of an event; the rest is ours to know. */
#define FLAGS_OF_THE_EDGE \
    (METER_EVENT_RECOVERED | METER_EVENT_TRUNCATED | METER_EVENT_SERVER_TIME)

static const char no_memory[] = "no memory";

struct check {
    const struct meter_record *record;
    const struct meter_record_event *raw;
    const struct record_context *context;
    struct arena *arena;
    struct record_event *out;
};

bool
record_text(struct meter_str text, struct arena *arena, struct meter_str *out,
            bool *changed)
{
    const uint8_t *from = (const uint8_t *)text.data;
    size_t left = text.size;
    char *to;

    *out = text;
    *changed = false;
    if (meter_utf8_valid(text)) {
        return true;
    }
    to = arena_alloc(arena, text.size * REPLACEMENT_SIZE);
    if (to == NULL) {
        return false;
    }
    *changed = true;
    out->data = to;
    while (left > 0) {
        size_t size = meter_utf8_size(from, left);

        if (size > 0) {
            memcpy(to, from, size);
            to += size;
        } else {
            memcpy(to, REPLACEMENT, REPLACEMENT_SIZE);
            to += REPLACEMENT_SIZE;
            size = 1;
        }
        from += size;
        left -= size;
    }
    out->size = (size_t)(to - out->data);
    return true;
}

/* Cut to at most size_max bytes, never inside a character. */
static void
cut_text(struct check *check, struct meter_str *text, size_t size_max)
{
    if (text->size <= size_max) {
        return;
    }
    text->size = size_max;
    while (text->size > 0 && (text->data[text->size] & 0xc0) == 0x80) {
        text->size--;
    }
    check->out->event.flags |= METER_EVENT_TRUNCATED;
}

/* A text that is kept whatever its bytes. False: no memory. */
static bool
keep_text(struct check *check, struct meter_str raw, struct meter_str *out)
{
    bool changed;

    if (!record_text(raw, check->arena, out, &changed)) {
        return false;
    }
    if (changed) {
        check->out->event.flags |= METER_EVENT_TRUNCATED;
    }
    return true;
}

static const char *
check_tenant(struct check *check)
{
    struct meter_str tenant = check->raw->tenant;

    if (tenant.size == 0) {
        return "tenant is empty";
    }
    if (tenant.size > METER_TENANT_SIZE_MAX) {
        return reason_format(check->arena, "tenant is longer than %d bytes",
                             METER_TENANT_SIZE_MAX);
    }
    if (!meter_utf8_valid(tenant)) {
        return "tenant is not UTF-8";
    }
    check->out->tenant = tenant;
    check->out->event.tenant = tenant;
    return NULL;
}

static const char *
check_type(struct check *check)
{
    struct meter_str name = check->raw->type;
    const struct event_type *type =
        catalog_event_type(check->context->config->catalog, name);

    if (name.size == 0) {
        return "type is empty";
    }
    if (name.size > METER_TYPE_SIZE_MAX) {
        return reason_format(check->arena, "type is longer than %d bytes",
                             METER_TYPE_SIZE_MAX);
    }
    if (type == NULL || meter_str_equal(name, METER_STR("*")) ||
        !meter_utf8_valid(name)) {
        return reason_format(check->arena, "unknown event type %s",
                             reason_quote(name).text);
    }
    if (check->record->kind == METER_RECORD_DELTA && !type->delta) {
        return reason_format(check->arena, "type %s may not come as a delta",
                             reason_quote(name).text);
    }
    check->out->event.type = name;
    check->out->type = type;
    return NULL;
}

/* Only a delta stands for more than one request. */
static const char *
check_count(struct check *check)
{
    int64_t count = check->raw->count;

    if (count < 1 ||
        (count != 1 && check->record->kind != METER_RECORD_DELTA)) {
        return reason_format(check->arena, "count is %lld", (long long)count);
    }
    check->out->event.count = count;
    return NULL;
}

static const char *
check_ts(struct check *check)
{
    int64_t ts_us = check->raw->ts_us;

    if (ts_us < METER_TIME_MIN || ts_us > METER_TIME_MAX) {
        return "ts is outside the years 0001 to 9999";
    }
    check->out->event.ts_us = ts_us;
    return validate_skew(&check->context->config->idempotency, ts_us,
                         check->context->now_us, check->arena);
}

/* A client must not lower its own bill: only a location may allow it. */
static const char *
check_quantity(struct check *check)
{
    struct meter_str text = check->raw->quantity;
    struct meter_decimal *quantity = &check->out->event.quantity;
    enum meter_decimal_error error;

    if (text.size == 0) {
        if (check->record->kind == METER_RECORD_DELTA) {
            return "a delta has no sum of its quantities";
        }
        *quantity = meter_decimal_from_int(1);
        return NULL;
    }
    error = meter_decimal_parse(text, quantity);
    if (error != METER_DECIMAL_OK) {
        return reason_format(check->arena, "quantity %s: %s",
                             meter_decimal_error_text(error),
                             reason_quote(text).text);
    }
    if (quantity->units < 0 &&
        (check->raw->flags & METER_EVENT_NEGATIVE) == 0) {
        return reason_format(check->arena, "quantity is negative: %s",
                             reason_quote(text).text);
    }
    return NULL;
}

/* Empty is absent. */
static const char *
check_optional(struct check *check, const char *name, struct meter_str raw,
               size_t size_max, struct meter_str *out)
{
    if (raw.size == 0) {
        return NULL;
    }
    if (!keep_text(check, raw, out)) {
        return no_memory;
    }
    if (out->size > size_max) {
        return reason_format(check->arena, "%s is longer than %zu bytes", name,
                             size_max);
    }
    return NULL;
}

static const char *
check_texts(struct check *check)
{
    struct meter_event *event = &check->out->event;
    const char *error =
        check_optional(check, "customer", check->raw->customer,
                       METER_CUSTOMER_SIZE_MAX, &event->customer);

    if (error == NULL) {
        error = check_optional(check, "resource", check->raw->resource,
                               METER_RESOURCE_SIZE_MAX, &event->resource);
    }
    return error;
}

/* An id that no client could have registered is none. */
static bool
id_is_usable(struct meter_str id)
{
    uint8_t session[16];
    uint64_t seq;
    int64_t ts_us;

    return id.size > 0 && id.size <= METER_EVENT_ID_SIZE_MAX &&
           meter_utf8_valid(id) &&
           !meter_event_minted_parse(id, session, &seq, &ts_us);
}

static const char *
check_id(struct check *check)
{
    struct meter_event *event = &check->out->event;
    uint8_t kind = check->record->kind;
    char *id;

    check->out->has_id = id_is_usable(check->raw->event_id);
    if (kind == METER_RECORD_DELTA && check->raw->event_id.size > 0) {
        return "a delta has an event_id";
    }
    if (kind == METER_RECORD_DUPNOTE && !check->out->has_id) {
        return "a note of a duplicate has no usable event_id";
    }
    if (check->out->has_id) {
        event->event_id = check->raw->event_id;
        return NULL;
    }
    id = arena_alloc(check->arena, METER_MINTED_ID_SIZE_MAX + 1);
    if (id == NULL) {
        return no_memory;
    }
    event->event_id.data = id;
    event->event_id.size = meter_event_mint_id(
        check->context->session, check->record->seq, event->ts_us, id);
    event->flags |= METER_EVENT_MINTED_ID;
    return NULL;
}

/*
 * Where the name belongs among the members, which are sorted. False: it is
 * there already.
 */
static bool
member_place(const struct json_value *object, struct meter_str name,
             size_t *place)
{
    size_t low = 0;
    size_t high = object->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = meter_str_compare(object->members[middle].name, name);

        if (order == 0) {
            return false;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *place = low;
    return true;
}

/* Of two attributes with one name (as cut and replaced) the first is kept. */
static bool
add_attribute(struct check *check, const struct meter_record_attribute *raw)
{
    struct json_value *object = &check->out->attributes;
    struct json_member member = {.value.kind = JSON_STRING};
    size_t place;

    if (!keep_text(check, raw->name, &member.name) ||
        !keep_text(check, raw->value, &member.value.text)) {
        return false;
    }
    cut_text(check, &member.name, METER_ATTRIBUTE_NAME_SIZE_MAX);
    cut_text(check, &member.value.text, METER_ATTRIBUTE_STRING_SIZE_MAX);
    if (!member_place(object, member.name, &place)) {
        check->out->event.flags |= METER_EVENT_TRUNCATED;
        return true;
    }
    memmove(&object->members[place + 1], &object->members[place],
            (object->count - place) * sizeof(member));
    object->members[place] = member;
    object->count++;
    return true;
}

static const char *
check_attributes(struct check *check)
{
    struct record_event *out = check->out;
    size_t count = check->raw->attribute_count;

    out->attributes = (struct json_value){.kind = JSON_OBJECT};
    out->event.attributes = METER_STR("{}");
    if (count == 0) {
        return NULL;
    }
    out->attributes.members =
        arena_alloc(check->arena, count * sizeof(*out->attributes.members));
    if (out->attributes.members == NULL) {
        return no_memory;
    }
    for (size_t i = 0; i < count; i++) {
        if (!add_attribute(check, &check->raw->attributes[i])) {
            return no_memory;
        }
    }
    if (!json_canonical(&out->attributes, check->arena,
                        &out->event.attributes)) {
        return no_memory;
    }
    return NULL;
}

static const char *
check_required(struct check *check)
{
    return validate_required(check->out->type, check->out->event.type,
                             &check->out->attributes, check->arena);
}

bool
record_read_event(const struct meter_record *record,
                  const struct record_context *context, struct arena *arena,
                  struct record_event *out)
{
    static const char *(*const steps[])(struct check *) = {
        check_tenant, check_type,       check_count,
        check_ts,     check_quantity,   check_texts,
        check_id,     check_attributes, check_required,
    };
    struct meter_record_event raw;
    struct check check = {.record = record,
                          .raw = &raw,
                          .context = context,
                          .arena = arena,
                          .out = out};

    memset(out, 0, sizeof(*out));
    out->tenant = RECORD_NO_TENANT;
    if (!meter_record_event_decode(record->body, &raw)) {
        out->error = "not a captured event";
        return true;
    }
    out->event.flags = METER_EVENT_CAPTURED | (raw.flags & FLAGS_OF_THE_EDGE);
    for (size_t i = 0;
         i < sizeof(steps) / sizeof(steps[0]) && out->error == NULL; i++) {
        out->error = steps[i](&check);
    }
    return out->error != no_memory;
}

const char *
record_read_loss(const struct meter_record *record, struct meter_loss *out)
{
    if (!meter_loss_decode(record->body, out)) {
        return "not a note of a loss";
    }
    if (out->count > INT64_MAX || out->reasons > INT32_MAX ||
        out->first_us < METER_TIME_MIN || out->first_us > METER_TIME_MAX ||
        out->last_us < METER_TIME_MIN || out->last_us > METER_TIME_MAX) {
        return "a note of a loss is out of range";
    }
    return NULL;
}
