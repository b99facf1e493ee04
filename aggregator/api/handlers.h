/*
 * handlers.h - the handlers of the routing table, one file per resource.
 *
 * A handler runs once the route and the credential are settled and ends in
 * exactly one call_answer..., during the call or later.
 */

#ifndef API_HANDLERS_H
#define API_HANDLERS_H

struct api_call;

void events_api_post(struct api_call *call);
void events_api_find(struct api_call *call);
void events_api_get(struct api_call *call);
void bucket_api_increment(struct api_call *call);
void bucket_api_decrement(struct api_call *call);
void bucket_api_increment_sync(struct api_call *call);
void bucket_api_decrement_sync(struct api_call *call);
void bucket_api_set(struct api_call *call);
void bucket_api_get(struct api_call *call);
void bucket_api_sum_range(struct api_call *call);
void counters_api_get(struct api_call *call);
void counters_api_list(struct api_call *call);
void tenants_api_list(struct api_call *call);
void tenants_api_usage(struct api_call *call);
void usage_api_get(struct api_call *call);
void query_api_get(struct api_call *call);
void query_api_post(struct api_call *call);
void series_api_list(struct api_call *call);
void close_api_post(struct api_call *call);
void closes_api_get(struct api_call *call);
void adjustments_api_post(struct api_call *call);
void adjustments_api_get(struct api_call *call);
void search_api_post(struct api_call *call);
void health_api_healthz(struct api_call *call);
void health_api_readyz(struct api_call *call);
void health_api_metrics(struct api_call *call);

#endif
