/*
 * validate.c - one event's object against the contract, see validate.h.
 *
 * Each check answers NULL or a reason; the first reason wins. The order is
 * that of the members in the documentation, so equal events get equal
 * answers whatever the order of their keys.
 */

#include "ingest/validate.h"

#include "base/reason.h"
#include "meter_time.h"
#include "project/counter.h"

static const struct meter_str event_names[EVENT_MEMBERS] = {
    [EVENT_ATTRIBUTES] = {"attributes", 10},
    [EVENT_COUNT] = {"count", 5},
    [EVENT_CUSTOMER] = {"customer", 8},
    [EVENT_ID] = {"event_id", 8},
    [EVENT_QUANTITY] = {"quantity", 8},
    [EVENT_RESOURCE] = {"resource", 8},
    [EVENT_SOURCE] = {"source", 6},
    [EVENT_TENANT] = {"tenant", 6},
    [EVENT_TS] = {"ts", 2},
    [EVENT_TYPE] = {"type", 4},
};

/* Of the text; 0: not a text member. */
static const size_t size_limits[EVENT_MEMBERS] = {
    [EVENT_CUSTOMER] = METER_CUSTOMER_SIZE_MAX,
    [EVENT_ID] = METER_EVENT_ID_SIZE_MAX,
    [EVENT_RESOURCE] = METER_RESOURCE_SIZE_MAX,
    [EVENT_SOURCE] = METER_SOURCE_SIZE_MAX,
    [EVENT_TENANT] = METER_TENANT_SIZE_MAX,
    [EVENT_TYPE] = METER_TYPE_SIZE_MAX,
};

struct check {
    struct validate_parts parts;
    const struct envelope_context *context;
    struct arena *arena;
    struct envelope *out;
    bool no_memory;
};

/* Both lists are sorted: one walk finds every member and any stranger. */
static const char *
check_members(struct check *check, const struct json_value *object)
{
    const char *error = NULL;
    size_t known = 0;

    for (uint32_t i = 0; i < object->count; i++) {
        struct meter_str name = object->members[i].name;
        int order = -1;

        while (known < EVENT_MEMBERS &&
               (order = meter_str_compare(event_names[known], name)) < 0) {
            known++;
        }
        if (order == 0) {
            check->parts.values[known++] = &object->members[i].value;
        } else if (error == NULL) {
            error = reason_format(check->arena, "unknown member %s",
                                  reason_quote(name).text);
        }
    }
    return error;
}

/* A text of 1 to size_max bytes. */
static const char *
check_text(struct check *check, enum event_member member, struct meter_str *out)
{
    const struct json_value *value = check->parts.values[member];
    const char *name = check->parts.names[member].data;
    size_t size_max = size_limits[member];

    if (value->kind != JSON_STRING) {
        return reason_format(check->arena, "%s must be a string", name);
    }
    if (value->text.size == 0) {
        return reason_format(check->arena, "%s is empty", name);
    }
    if (value->text.size > size_max) {
        return reason_format(check->arena, "%s is longer than %zu bytes", name,
                             size_max);
    }
    *out = value->text;
    return NULL;
}

/* NULL where the member is absent, or null. */
static const struct json_value *
value_of(const struct check *check, enum event_member member)
{
    const struct json_value *value = check->parts.values[member];

    return value == NULL || value->kind == JSON_NULL ? NULL : value;
}

/* Absent and null: *out stays as it is. */
static const char *
check_optional_text(struct check *check, enum event_member member,
                    struct meter_str *out)
{
    return value_of(check, member) == NULL ? NULL
                                           : check_text(check, member, out);
}

/* An absent id is decided when the type is known. */
static const char *
check_event_id(struct check *check)
{
    struct meter_str *id = &check->out->event.event_id;
    uint8_t session[16];
    uint64_t seq;
    int64_t ts_us;
    const char *error;

    if (check->parts.values[EVENT_ID] == NULL) {
        return NULL;
    }
    error = check_text(check, EVENT_ID, id);
    if (error != NULL) {
        return error;
    }
    check->out->id_seen = *id;
    if (meter_event_minted_parse(*id, session, &seq, &ts_us)) {
        return "event_id has the form of ids that only the edge makes";
    }
    return NULL;
}

static const char *
check_type(struct check *check)
{
    struct meter_event *event = &check->out->event;
    const char *error;

    if (check->parts.values[EVENT_TYPE] == NULL) {
        return "type is missing";
    }
    error = check_text(check, EVENT_TYPE, &event->type);
    if (error != NULL) {
        return error;
    }
    check->out->type =
        catalog_event_type(check->context->config->catalog, event->type);
    if (check->out->type == NULL ||
        meter_str_equal(event->type, METER_STR("*"))) {
        return reason_format(check->arena, "unknown event type %s",
                             reason_quote(event->type).text);
    }
    if (event->event_id.data == NULL && check->out->type->require_event_id) {
        return reason_format(check->arena, "%s is missing",
                             check->parts.names[EVENT_ID].data);
    }
    return NULL;
}

const char *
validate_skew(const struct config_idempotency *rules, int64_t ts_us,
              int64_t now_us, struct arena *arena)
{
    if (rules->future_skew_us >= 0 && ts_us > now_us &&
        ts_us - now_us > rules->future_skew_us) {
        return reason_format(
            arena, "ts is more than %lld s ahead of the server's clock",
            (long long)(rules->future_skew_us / METER_TIME_SECOND));
    }
    if (rules->past_skew_us >= 0 && ts_us < now_us &&
        now_us - ts_us > rules->past_skew_us) {
        return reason_format(
            arena, "ts is more than %lld s behind the server's clock",
            (long long)(rules->past_skew_us / METER_TIME_SECOND));
    }
    return NULL;
}

static const char *
check_ts(struct check *check)
{
    const struct json_value *value = check->parts.values[EVENT_TS];
    int64_t *ts_us = &check->out->event.ts_us;

    if (value == NULL && check->parts.may_lack_time) {
        *ts_us = check->context->now_us;
        check->out->event.flags |= METER_EVENT_SERVER_TIME;
        return NULL;
    }
    if (value == NULL) {
        return "ts is missing";
    }
    if (value->kind == JSON_STRING) {
        if (!meter_time_parse(value->text, ts_us)) {
            return reason_format(check->arena,
                                 "%s is not an RFC 3339 instant: %s",
                                 check->parts.names[EVENT_TS].data,
                                 reason_quote(value->text).text);
        }
    } else if (value->kind == JSON_NUMBER) {
        if (!meter_time_parse_epoch(value->text, ts_us)) {
            return reason_format(check->arena,
                                 "ts is outside the years 0001 to 9999: %s",
                                 reason_quote(value->text).text);
        }
    } else {
        return "ts must be an RFC 3339 string or an epoch number";
    }
    return validate_skew(&check->context->config->idempotency, *ts_us,
                         check->context->now_us, check->arena);
}

/* An operator may write for any tenant, a client for its own only. */
static const char *
check_tenant(struct check *check)
{
    const struct envelope_context *context = check->context;
    struct meter_str tenant = context->tenant;
    const char *error = check_optional_text(check, EVENT_TENANT, &tenant);

    if (error != NULL) {
        return error;
    }
    if (context->is_backfill && tenant.size == 0) {
        return "tenant is missing";
    }
    if (context->is_backfill && context->tenant.size == 0) {
        check->out->event.tenant = tenant;
        return NULL;
    }
    if (!meter_str_equal(tenant, context->tenant)) {
        return context->is_backfill ? "tenant is not the one of --tenant"
                                    : "tenant is not the one of the credential";
    }
    check->out->event.tenant = context->tenant;
    return NULL;
}

static const char *
check_quantity(struct check *check)
{
    const struct json_value *value = value_of(check, EVENT_QUANTITY);
    struct meter_decimal *quantity = &check->out->event.quantity;
    enum meter_decimal_error error;

    if (value == NULL) {
        *quantity = meter_decimal_from_int(1);
        return NULL;
    }
    if (value->kind != JSON_NUMBER && value->kind != JSON_STRING) {
        return "quantity must be a number or a string";
    }
    error = meter_decimal_parse(value->text, quantity);
    if (error != METER_DECIMAL_OK) {
        return reason_format(check->arena, "quantity %s",
                             meter_decimal_error_text(error));
    }
    return NULL;
}

static size_t
count_keys(const struct json_value *value)
{
    size_t count = 0;

    if (value->kind == JSON_ARRAY) {
        for (uint32_t i = 0; i < value->count; i++) {
            count += count_keys(&value->items[i]);
        }
    } else if (value->kind == JSON_OBJECT) {
        count = value->count;
        for (uint32_t i = 0; i < value->count; i++) {
            count += count_keys(&value->members[i].value);
        }
    }
    return count;
}

static const char *
check_attributes(struct check *check)
{
    const struct json_value *value = value_of(check, EVENT_ATTRIBUTES);
    struct envelope *out = check->out;

    if (value == NULL) {
        out->attributes = (struct json_value){.kind = JSON_OBJECT};
        out->event.attributes = METER_STR("{}");
        return NULL;
    }
    if (value->kind != JSON_OBJECT) {
        return reason_format(check->arena, "%s must be an object",
                             check->parts.names[EVENT_ATTRIBUTES].data);
    }
    if (count_keys(value) > METER_ATTRIBUTE_COUNT_MAX) {
        return reason_format(check->arena, "attributes have more than %d keys",
                             METER_ATTRIBUTE_COUNT_MAX);
    }
    out->attributes = *value;
    if (!json_canonical(value, check->arena, &out->event.attributes)) {
        check->no_memory = true;
        return "no memory";
    }
    /* 1e39 is four bytes as sent and forty as stored. */
    if (out->event.attributes.size > METER_EVENT_SIZE_MAX) {
        return reason_format(check->arena,
                             "attributes take more than %d bytes with their "
                             "numbers written out",
                             METER_EVENT_SIZE_MAX);
    }
    return NULL;
}

const char *
validate_required(const struct event_type *type, struct meter_str name,
                  const struct json_value *attributes, struct arena *arena)
{
    for (size_t i = 0; i < type->required.count; i++) {
        const struct attribute_path *path = &type->required.items[i];
        const struct json_value *value = attribute_find(attributes, path);

        if (value == NULL || value->kind == JSON_NULL) {
            return reason_format(arena, "attribute %s is required for type %s",
                                 reason_quote(path->name).text,
                                 reason_quote(name).text);
        }
    }
    return NULL;
}

static const char *
check_required(struct check *check)
{
    return validate_required(check->out->type, check->out->event.type,
                             &check->out->attributes, check->arena);
}

/* Optional texts and what else stands for itself. */
static const char *
check_others(struct check *check)
{
    struct meter_event *event = &check->out->event;
    const char *error;

    event->count = 1;
    if (check->parts.values[EVENT_COUNT] != NULL) {
        return "count may only be set by the edge";
    }
    error = check_optional_text(check, EVENT_CUSTOMER, &event->customer);
    if (error == NULL) {
        error = check_optional_text(check, EVENT_RESOURCE, &event->resource);
    }
    if (error == NULL) {
        error = check_optional_text(check, EVENT_SOURCE, &event->source);
    }
    return error;
}

/* The type allows it: same content, same id. */
static const char *
derive_id(struct check *check)
{
    struct meter_event *event = &check->out->event;
    char *id;

    if (event->event_id.data != NULL) {
        return NULL;
    }
    id = arena_alloc(check->arena, METER_DERIVED_ID_SIZE + 1);
    if (id == NULL) {
        check->no_memory = true;
        return "no memory";
    }
    meter_event_derive_id(check->context->salt, event, id);
    event->event_id = (struct meter_str){id, METER_DERIVED_ID_SIZE};
    event->flags |= METER_EVENT_DERIVED_ID;
    check->out->id_seen = event->event_id;
    return NULL;
}

static bool
check_run(struct check *check)
{
    static const char *(*const steps[])(struct check *) = {
        check_type,     check_ts,         check_tenant,   check_others,
        check_quantity, check_attributes, check_required, derive_id,
    };
    struct envelope *out = check->out;

    /* The id first: an answer names the event even if it is a bad one. */
    out->error = check_event_id(check);
    if (check->parts.error != NULL) {
        out->error = check->parts.error;
    }
    for (size_t i = 0;
         i < sizeof(steps) / sizeof(steps[0]) && out->error == NULL; i++) {
        out->error = steps[i](check);
    }
    return !check->no_memory;
}

bool
validate_event(const struct json_value *object,
               const struct envelope_context *context, struct arena *arena,
               struct envelope *out)
{
    struct check check = {.parts = {.names = event_names},
                          .context = context,
                          .arena = arena,
                          .out = out};

    check.parts.error = check_members(&check, object);
    return check_run(&check);
}

bool
validate_parts(const struct validate_parts *parts,
               const struct envelope_context *context, struct arena *arena,
               struct envelope *out)
{
    struct check check = {
        .parts = *parts, .context = context, .arena = arena, .out = out};

    return check_run(&check);
}
