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
#include "api/member.h"

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
event_put_flags(struct json_writer *json, int32_t flags)
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
    static const struct member type[] = {
        {"type", MEMBER_STRING, EVENT_TYPE},
        {"ts", MEMBER_TIME, EVENT_TS},
    };
    static const struct member payload[] = {
        {"customer", MEMBER_STRING, EVENT_CUSTOMER},
        {"resource", MEMBER_STRING, EVENT_RESOURCE},
        {"quantity", MEMBER_STRING, EVENT_QUANTITY},
        {"attributes", MEMBER_RAW, EVENT_ATTRIBUTES},
        {"source", MEMBER_STRING, EVENT_SOURCE},
        {"count", MEMBER_INT_STRING, EVENT_COUNT},
    };

    json_object_begin(json);
    member_string(json, "event_id", frame->event_id);
    MEMBERS_OF_ROW(json, type, result, row);
    member_string(json, "tenant", frame->tenant);
    MEMBERS_OF_ROW(json, payload, result, row);
    if (frame->first_seen_at != NULL) {
        member_time(json, "first_seen_at", *frame->first_seen_at);
    }
    member_time(json, "recorded_at",
                pg_get_time(result, row, EVENT_RECORDED_AT));
    event_put_flags(json, pg_get_int4(result, row, EVENT_FLAGS));
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
    if (call_has_no_arguments(call, "path")) {
        event_look_up(call, call->match.parameter);
    }
}

static void
event_find(struct api_call *call)
{
    const struct url_arguments *arguments = call_arguments(call);

    if (arguments == NULL) {
        return;
    }
    if (arguments->count != 1 || arguments->items[0].value.size == 0 ||
        !meter_str_equal(arguments->items[0].name, METER_STR("event_id"))) {
        call_answer_error(call, 400, 0,
                          "the path takes one query argument, \"event_id\"");
        return;
    }
    event_look_up(call, arguments->items[0].value);
}

static void
event_look_up(struct api_call *call, struct meter_str id)
{
    struct event_lookup *lookup;
    struct pg_params *params = call_params(call);
    uint8_t session[16];
    uint64_t seq;
    int64_t ts_us;

    if (id.size > METER_EVENT_ID_SIZE_MAX) {
        event_not_found(call);
        return;
    }
    lookup = call_state(call, sizeof(*lookup));
    if (lookup == NULL) {
        return;
    }
    lookup->id = id;
    lookup->minted = meter_event_minted_parse(id, session, &seq, &ts_us);
    meter_event_key(lane_salt(call->api->lane), id, lookup->key);
    if (lookup->minted) {
        pg_param_text(params, call_tenant(call));
        pg_param_time(params, ts_us);
        pg_param_text(params, id);
        call_read(call, STATEMENT_EVENT_READ_MINTED, event_read_cb);
    } else {
        pg_param_text(params, call->config->idempotency.across_tenants
                                  ? METER_STR("")
                                  : call_tenant(call));
        pg_param_uuid(params, lookup->key);
        call_read(call, STATEMENT_EVENT_FIND, event_found_cb);
    }
}

/* The registry row: ts, part_day, first_seen_at, tenant. */
static void
event_found_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct event_lookup *lookup = call->state;
    struct pg_params *params = call_params(call);

    if (pg_row_count(answer->result) == 0 ||
        !meter_str_equal(pg_get_bytes(answer->result, 0, 3),
                         call_tenant(call))) {
        event_not_found(call);
        return;
    }
    lookup->first_seen_at = pg_get_time(answer->result, 0, 2);
    pg_param_date(params, pg_get_date(answer->result, 0, 1));
    pg_param_text(params, call_tenant(call));
    pg_param_time(params, pg_get_time(answer->result, 0, 0));
    pg_param_text(params, lookup->id);
    call_read(call, STATEMENT_EVENT_READ, event_read_cb);
}

static void
event_gone(struct api_call *call, const struct event_lookup *lookup)
{
    struct json_writer *json = &call->json;

    json_object_begin(json);
    member_text(json, "error", "the event was counted and is past retention");
    member_string(json, "event_id", lookup->id);
    member_time(json, "first_seen_at", lookup->first_seen_at);
    json_object_end(json);
    call_answer(call, 410);
}


static void
event_read_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct event_lookup *lookup = call->state;
    struct pg_params *params = call_params(call);

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
    pg_param_text(params, call_tenant(call));
    pg_param_uuid(params, lookup->key);
    pg_param_text(params, lookup->id);
    pg_param_date(params, meter_time_day(lookup->first_seen_at));
    pg_param_int4(params, AUDITS_MAX);
    call_read(call, STATEMENT_AUDIT_LIST, event_audits_cb);
}


/* ---- the audits ------------------------------------------------------ */

/* What came is shown where it is not the stored event itself. */
static void
event_put_audit(struct json_writer *json, const void *rows, int row)
{
    static const struct member payload[] = {
        {"type", MEMBER_STRING, AUDIT_TYPE},
        {"ts", MEMBER_TIME, AUDIT_TS},
        {"payload", MEMBER_RAW, AUDIT_PAYLOAD},
    };
    bool conflict =
        pg_get_int4(rows, row, AUDIT_VERDICT) == METER_VERDICT_CONFLICT;

    json_object_begin(json);
    member_text(json, "verdict",
                meter_verdict_name(conflict ? METER_VERDICT_CONFLICT
                                            : METER_VERDICT_DUPLICATE));
    member_time(json, "seen_at", pg_get_time(rows, row, AUDIT_SEEN_AT));
    if (!pg_is_null(rows, row, AUDIT_PAYLOAD)) {
        MEMBERS_OF_ROW(json, payload, rows, row);
    }
    json_object_end(json);
}

static void
event_audits_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct json_writer *json = &call->json;
    int count = pg_row_count(answer->result);

    member_int(json, "duplicate_count",
               count == 0 ? 0
                          : pg_get_int8(answer->result, 0, AUDIT_DUPLICATES));
    member_int(json, "conflict_count",
               count == 0 ? 0
                          : pg_get_int8(answer->result, 0, AUDIT_CONFLICTS));
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
