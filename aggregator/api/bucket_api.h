/*
 * bucket_api.h - what endpoints of the counters API have in common.
 */

#ifndef API_BUCKET_API_H
#define API_BUCKET_API_H

#include "api/call.h"

#define BUCKET_API_ERROR_NONE "Counter doesn't exist for the specified bucket"

/*
 * The tenant of the path is the credential's, and the name is one. False: the
 * call has its answer. A foreign tenant and one that nobody is take the same
 * time and get what a bucket that is not there gets.
 */
MUST_CHECK bool bucket_api_is_own(struct api_call *call);

bool bucket_api_is_route(const struct route *route);

/* Ends the call: 429, there are too many of them. */
void bucket_api_full(struct api_call *call);
/* Ends the call: 200 with the three numbers of a bucket, as strings. */
void bucket_api_answer(struct api_call *call, int64_t added, int64_t subbed);

#endif
