/*
 * bucket_api.h - what endpoints of the counters API have in common.
 */

#ifndef API_BUCKET_API_H
#define API_BUCKET_API_H

#include "api/call.h"

bool bucket_api_is_route(const struct route *route);

/* Ends the call: 429, there are too many of them. */
void bucket_api_full(struct api_call *call);

#endif
