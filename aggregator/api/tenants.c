/*
 * tenants.c - usage rows of tenants.
 *
 *   GET /v1/tenants/{tenant}/usage          own row, one probe
 *   GET /v1/tenants?status=&limit=&cursor=  rows of all tenants, in pages
 *
 * For a foreign tenant, one that is not known and one without a row the same
 * row is looked up and the same answer given: nothing tells them apart. The
 * list is for administrators of the installation: by the scope that the route
 * asks for, and again by the database, which is shown the credential.
 */

#include "api/call.h"
#include "api/page.h"
#include "meter_event.h"
#include "project/usage.h"

/* Columns of tenant_read and tenant_list. */
enum tenant_column {
    TENANT_ID,
    TENANT_ENTRY_COUNT,
    TENANT_STORAGE_BYTES,
    TENANT_API_CALL_COUNT,
    TENANT_STATUS,
    TENANT_LAST_UPDATED_AT
};

static void tenants_usage_cb(void *asker, const struct pg_answer *answer);
static void tenants_list_cb(void *asker, const struct pg_answer *answer);

/* False: the call has its answer. */
static bool
tenants_are_served(struct api_call *call)
{
    if (!call->config->catalog->usage) {
        call_answer_error(call, 404, 0, "the rules declare no usage");
        return false;
    }
    if (!call->api->healthy) {
        call_answer_unavailable(call);
        return false;
    }
    return true;
}

static void
tenant_put(struct json_writer *json, const void *rows, int row)
{
    static const struct member members[] = {
        {"tenant_id", MEMBER_STRING, TENANT_ID},
        {"entry_count", MEMBER_INT_STRING, TENANT_ENTRY_COUNT},
        {"storage_bytes", MEMBER_INT_STRING, TENANT_STORAGE_BYTES},
        {"api_call_count", MEMBER_INT_STRING, TENANT_API_CALL_COUNT},
        {"status", MEMBER_STRING, TENANT_STATUS},
        {"last_updated_at", MEMBER_TIME, TENANT_LAST_UPDATED_AT},
    };

    json_object_begin(json);
    MEMBERS_OF_ROW(json, members, rows, row);
    json_object_end(json);
}


/* ---- one tenant ------------------------------------------------------ */

/* The row asked for is the credential's, whatever the path says. */
static void
tenants_usage(struct api_call *call)
{
    struct pg_params *params = call_params(call);

    if (!call_has_no_arguments(call, "path") || !tenants_are_served(call)) {
        return;
    }
    pg_param_text(params, call_tenant(call));
    call_read(call, STATEMENT_TENANT_READ, tenants_usage_cb);
}

static void
tenants_usage_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;

    if (!meter_str_equal(call->match.parameter, call_tenant(call)) ||
        pg_row_count(answer->result) == 0) {
        call_answer_error(call, 404, 0, "no usage of such a tenant");
        return;
    }
    tenant_put(&call->json, answer->result, 0);
    call_answer(call, 200);
}


/* ---- all tenants ----------------------------------------------------- */

/* *status is empty when it does not matter. False: *error. */
static bool
tenants_arguments(const struct url_arguments *arguments, struct arena *arena,
                  struct meter_str *status, const char **error)
{
    enum usage_status parsed;

    *status = (struct meter_str){NULL, 0};
    for (size_t i = 0; i < arguments->count; i++) {
        const struct url_argument *argument = &arguments->items[i];

        if (meter_str_equal(argument->name, METER_STR("status"))) {
            if (!usage_status_parse(argument->value, &parsed)) {
                *error = "\"status\" must be active or decommissioned";
                return false;
            }
            *status = argument->value;
        } else if (!page_is_argument(argument->name)) {
            *error = reason_format(arena, "unknown argument %s",
                                   reason_quote(argument->name).text);
            return false;
        }
    }
    return true;
}

/* A cursor is no signature: its key is an argument like any other. */
static bool
tenants_page(struct page *page, const struct url_arguments *arguments,
             struct meter_str status, struct arena *arena, const char **error)
{
    page_init(page);
    page_ask(page, METER_STR("/v1/tenants"));
    page_ask(page, status);
    if (!page_read(page, arguments, arena, error)) {
        return false;
    }
    if (page->after.size > METER_TENANT_SIZE_MAX ||
        (page->after.size > 0 && !meter_utf8_valid(page->after))) {
        *error = "the cursor is of no tenant";
        return false;
    }
    return true;
}

static void
tenants_list(struct api_call *call)
{
    const struct url_arguments *arguments;
    struct pg_params *params = call_params(call);
    struct page *page;
    struct meter_str status;
    const char *error = NULL;

    if (!tenants_are_served(call) ||
        (page = call_state(call, sizeof(*page))) == NULL ||
        (arguments = call_arguments(call)) == NULL) {
        return;
    }
    if (!tenants_arguments(arguments, &call->arena, &status, &error) ||
        !tenants_page(page, arguments, status, &call->arena, &error)) {
        call_answer_error(call, 400, 0, error);
        return;
    }
    pg_param_text(params, call_token_id(call));
    pg_param_bytes(params, (struct meter_str){(char *)call->ticket.digest,
                                              METER_DIGEST_SIZE});
    pg_param_text(params, status);
    pg_param_text(params,
                  page->after.data != NULL ? page->after : METER_STR(""));
    pg_param_int4(params, (int32_t)page_row_limit(page));
    call_read(call, STATEMENT_TENANT_LIST, tenants_list_cb);
}

static void
tenants_list_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct page *page = call->state;
    int rows = pg_row_count(answer->result);
    int count = page_row_count(page, rows);

    json_object_begin(&call->json);
    json_key(&call->json, "tenants");
    json_array_begin(&call->json);
    for (int row = 0; row < count; row++) {
        tenant_put(&call->json, answer->result, row);
    }
    json_array_end(&call->json);
    if (count > 0) {
        page_end(page, rows, pg_get_bytes(answer->result, count - 1, TENANT_ID),
                 &call->json);
    }
    json_object_end(&call->json);
    call_answer(call, 200);
}


static const struct route tenants_routes[] = {
    {METER_METHOD_GET, "/v1/tenants", TOKEN_SCOPE_ADMIN, tenants_list},
    {METER_METHOD_GET, "/v1/tenants/{tenant}/usage", TOKEN_SCOPE_READ,
     tenants_usage},
};

const struct resource tenants_resource = {
    RESOURCE_ROUTES(tenants_routes),
};
