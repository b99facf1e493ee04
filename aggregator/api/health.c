/*
 * health.c - GET /healthz, /readyz, /metrics: no token, no database.
 *
 * healthz: 503 until lane, reader and partitions have been ready once,
 * then 200 for as long as the process lives. readyz: 200 only while an
 * event could be committed now, which edgemeter_database_up says too.
 */

#include "api/call.h"
#include "base/metrics.h"

static void
health_answer(struct api_call *call, bool good, const char *word,
              const char *error)
{
    if (!good) {
        call_answer_error(call, 503, 1, error);
        return;
    }
    json_object_begin(&call->json);
    member_text(&call->json, "status", word);
    json_object_end(&call->json);
    call_answer(call, 200);
}

static void
health_healthz(struct api_call *call)
{
    health_answer(call, call->api->healthy, "ok",
                  "starting: the database has not been reached yet");
}

static bool
health_is_ready(const struct api *api)
{
    return api->healthy && ingest_is_able(api->ingest);
}

static void
health_readyz(struct api_call *call)
{
    health_answer(call, health_is_ready(call->api), "ready",
                  "events cannot be committed now");
}

static void
health_metrics(struct api_call *call)
{
    struct meter_response response = {
        .status = 200,
        .content_type = METER_STR("text/plain; version=0.0.4"),
    };

    metrics.edgemeter_database_up = health_is_ready(call->api);
    metrics_write(&call->out);
    call_answer_full(call, &response);
}


static const struct route health_routes[] = {
    {METER_METHOD_GET, "/healthz", TOKEN_SCOPE_NONE, health_healthz},
    {METER_METHOD_GET, "/readyz", TOKEN_SCOPE_NONE, health_readyz},
    {METER_METHOD_GET, "/metrics", TOKEN_SCOPE_NONE, health_metrics},
};

const struct resource health_resource = {
    RESOURCE_ROUTES(health_routes),
};
