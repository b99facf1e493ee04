/*
 * event.c - one event and its audits.
 *
 *   GET /v1/events/{event_id}
 *   GET /v1/events?event_id=   for ids that a proxy would take for a path
 *
 *   registry (or the time inside a minted id) -> ledger row -> how often
 *   the id was seen again -> the newest observations
 *
 * An id of another tenant is not found by the query, nor by row-level
 * security: the answer is that of an id that never was. A row that
 * retention dropped is 410 with the time the event was first seen.
 */

#include "api/event.h"

#include "api/call.h"
#include "api/url.h"
#include "meter_event.h"
#include "meter_time.h"
#include "meter_types.h"

static const struct {
    enum meter_event_flag flag;
    const char *name;
} flag_names[] = {
    {METER_EVENT_CAPTURED, "captured"},
    {METER_EVENT_RECOVERED, "recovered"},
    {METER_EVENT_TRUNCATED, "truncated"},
    {METER_EVENT_SERVER_TIME, "server_time"},
    {METER_EVENT_DERIVED_ID, "derived_id"},
    {METER_EVENT_MINTED_ID, "minted_id"},
};

static void
put_text(struct json_writer *json, const char *name, const void *result,
         int row, int column)
{
    json_key(json, name);
    if (pg_is_null(result, row, column)) {
        json_null(json);
    } else {
        json_string(json, pg_get_bytes(result, row, column));
    }
}

static void
put_flags(struct json_writer *json, int32_t flags)
{
    json_key(json, "flags");
    json_object_begin(json);
    for (size_t i = 0; i < sizeof(flag_names) / sizeof(flag_names[0]); i++) {
        if ((flags & (int32_t)flag_names[i].flag) != 0) {
            json_key(json, flag_names[i].name);
            json_bool(json, true);
        }
    }
    json_object_end(json);
}

void
event_put(struct json_writer *json, const void *result, int row,
          const struct event_frame *frame)
{
    json_object_begin(json);
    json_key(json, "event_id");
    json_string(json, frame->event_id);
    put_text(json, "type", result, row, EVENT_TYPE);
    json_key(json, "ts");
    json_time(json, pg_get_time(result, row, EVENT_TS));
    json_key(json, "tenant");
    json_string(json, frame->tenant);
    put_text(json, "customer", result, row, EVENT_CUSTOMER);
    put_text(json, "resource", result, row, EVENT_RESOURCE);
    put_text(json, "quantity", result, row, EVENT_QUANTITY);
    json_key(json, "attributes");
    json_raw(json, pg_get_bytes(result, row, EVENT_ATTRIBUTES));
    put_text(json, "source", result, row, EVENT_SOURCE);
    json_key(json, "count");
    json_int_string(json, pg_get_int8(result, row, EVENT_COUNT));
    if (frame->first_seen_at != NULL) {
        json_key(json, "first_seen_at");
        json_time(json, *frame->first_seen_at);
    }
    json_key(json, "recorded_at");
    json_time(json, pg_get_time(result, row, EVENT_RECORDED_AT));
    put_flags(json, pg_get_int4(result, row, EVENT_FLAGS));
}


#define AUDITS_MAX 100

/* Columns of audit_list. */
enum audit_column {
    AUDIT_VERDICT,
    AUDIT_SEEN_AT,
    AUDIT_TYPE,
    AUDIT_TS,
    AUDIT_PAYLOAD,
    AUDIT_DUPLICATES,
    AUDIT_CONFLICTS
};

/* What one look-up carries from read to read. */
struct event_lookup {
    struct meter_str id;
    uint8_t key[METER_KEY_SIZE];
    bool minted;
    int64_t first_seen_at; /* of minted ids, without a registry row: when
                              they were recorded */
};

static void event_look_up(struct api_call *call, struct meter_str id);
static void event_found_cb(void *asker, const struct pg_answer *answer);
static void event_read_cb(void *asker, const struct pg_answer *answer);
static void event_audits_cb(void *asker, const struct pg_answer *answer);

static void
event_not_found(struct api_call *call)
{
    call_answer_error(call, 404, 0, "no such event");
}

static void
event_get(struct api_call *call)
{
    if (call->request->args.size > 0) {
        call_answer_error(call, 400, 0, "the path takes no query arguments");
        return;
    }
    event_look_up(call, call->match.parameter);
}

static void
event_find(struct api_call *call)
{
    struct url_arguments *arguments =
        arena_alloc(&call->arena, sizeof(*arguments));
    const char *error = NULL;

    if (arguments == NULL) {
        call_answer_unavailable(call);
        return;
    }
    if (url_arguments_read(call->request->args, &call->arena, arguments,
                           &error) &&
        (arguments->count != 1 || arguments->items[0].value.size == 0 ||
         !meter_str_equal(arguments->items[0].name, METER_STR("event_id")))) {
        error = "the path takes one query argument, \"event_id\"";
    }
    if (error != NULL) {
        call_answer_error(call, 400, 0, error);
        return;
    }
    event_look_up(call, arguments->items[0].value);
}

static void
event_look_up(struct api_call *call, struct meter_str id)
{
    struct event_lookup *lookup;
    struct pg_params params;
    uint8_t session[16];
    uint64_t seq;
    int64_t ts_us;

    if (id.size > METER_EVENT_ID_SIZE_MAX) {
        event_not_found(call);
        return;
    }
    lookup = arena_zalloc(&call->arena, sizeof(*lookup));
    if (!call->api->healthy || lookup == NULL) {
        call_answer_unavailable(call);
        return;
    }
    call->state = lookup;
    lookup->id = id;
    lookup->minted = meter_event_minted_parse(id, session, &seq, &ts_us);
    meter_event_key(lane_salt(call->api->lane), id, lookup->key);
    pg_params_init(&params);
    if (lookup->minted) {
        pg_param_text(&params, call_tenant(call));
        pg_param_time(&params, ts_us);
        pg_param_text(&params, id);
        call_read(call, STATEMENT_EVENT_READ_MINTED, &params, event_read_cb);
    } else {
        pg_param_text(&params, call->config->idempotency.across_tenants
                                   ? METER_STR("")
                                   : call_tenant(call));
        pg_param_uuid(&params, lookup->key);
        call_read(call, STATEMENT_EVENT_FIND, &params, event_found_cb);
    }
    pg_params_fini(&params);
}

/* The registry row: ts, part_day, first_seen_at, tenant. */
static void
event_found_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct event_lookup *lookup = call->state;
    struct pg_params params;

    if (pg_row_count(answer->result) == 0 ||
        !meter_str_equal(pg_get_bytes(answer->result, 0, 3),
                         call_tenant(call))) {
        event_not_found(call);
        return;
    }
    lookup->first_seen_at = pg_get_time(answer->result, 0, 2);
    pg_params_init(&params);
    pg_param_date(&params, pg_get_date(answer->result, 0, 1));
    pg_param_text(&params, call_tenant(call));
    pg_param_time(&params, pg_get_time(answer->result, 0, 0));
    pg_param_text(&params, lookup->id);
    call_read(call, STATEMENT_EVENT_READ, &params, event_read_cb);
    pg_params_fini(&params);
}

static void
event_gone(struct api_call *call, const struct event_lookup *lookup)
{
    struct json_writer *json = &call->json;

    json_object_begin(json);
    json_key(json, "error");
    json_text(json, "the event was counted and is past retention");
    json_key(json, "event_id");
    json_string(json, lookup->id);
    json_key(json, "first_seen_at");
    json_time(json, lookup->first_seen_at);
    json_object_end(json);
    call_answer(call, 410);
}


static void
event_read_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct event_lookup *lookup = call->state;
    struct pg_params params;

    if (pg_row_count(answer->result) == 0) {
        if (lookup->minted) {
            event_not_found(call);
        } else {
            event_gone(call, lookup);
        }
        return;
    }
    if (lookup->minted) {
        lookup->first_seen_at =
            pg_get_time(answer->result, 0, EVENT_RECORDED_AT);
    }
    event_put(&call->json, answer->result, 0,
              &(struct event_frame){.event_id = lookup->id,
                                    .tenant = call_tenant(call),
                                    .first_seen_at = &lookup->first_seen_at});
    pg_params_init(&params);
    pg_param_text(&params, call_tenant(call));
    pg_param_uuid(&params, lookup->key);
    pg_param_text(&params, lookup->id);
    pg_param_date(&params, meter_time_day(lookup->first_seen_at));
    pg_param_int4(&params, AUDITS_MAX);
    call_read(call, STATEMENT_AUDIT_LIST, &params, event_audits_cb);
    pg_params_fini(&params);
}


/* ---- the audits ------------------------------------------------------ */

/* What came is shown where it is not the stored event itself. */
static void
event_put_audit(struct json_writer *json, const void *rows, int row)
{
    bool conflict =
        pg_get_int4(rows, row, AUDIT_VERDICT) == METER_VERDICT_CONFLICT;

    json_object_begin(json);
    json_key(json, "verdict");
    json_text(json, meter_verdict_name(conflict ? METER_VERDICT_CONFLICT
                                                : METER_VERDICT_DUPLICATE));
    json_key(json, "seen_at");
    json_time(json, pg_get_time(rows, row, AUDIT_SEEN_AT));
    if (!pg_is_null(rows, row, AUDIT_PAYLOAD)) {
        json_key(json, "type");
        json_string(json, pg_get_bytes(rows, row, AUDIT_TYPE));
        json_key(json, "ts");
        json_time(json, pg_get_time(rows, row, AUDIT_TS));
        json_key(json, "payload");
        json_raw(json, pg_get_bytes(rows, row, AUDIT_PAYLOAD));
    }
    json_object_end(json);
}

static void
event_audits_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct json_writer *json = &call->json;
    int count = pg_row_count(answer->result);

    json_key(json, "duplicate_count");
    json_int(json,
             count == 0 ? 0 : pg_get_int8(answer->result, 0, AUDIT_DUPLICATES));
    json_key(json, "conflict_count");
    json_int(json,
             count == 0 ? 0 : pg_get_int8(answer->result, 0, AUDIT_CONFLICTS));
    json_key(json, "duplicates");
    json_array_begin(json);
    for (int row = 0; row < count; row++) {
        event_put_audit(json, answer->result, row);
    }
    json_array_end(json);
    json_object_end(json);
    call_answer(call, 200);
}


static const struct route event_routes[] = {
    {METER_METHOD_GET, "/v1/events", TOKEN_SCOPE_READ, event_find},
    {METER_METHOD_GET, "/v1/events/{event_id}", TOKEN_SCOPE_READ, event_get},
};

const struct resource event_resource = {
    RESOURCE_ROUTES(event_routes),
};
