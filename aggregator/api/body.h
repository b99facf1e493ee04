/*
 * body.h - JSON bodies of requests that are no events.
 *
 *   body -> [body_read] -> members by name -> [body_text] -> texts
 */

#ifndef API_BODY_H
#define API_BODY_H

#include "api/call.h"
#include "base/json_reader.h"

#define BODY_SIZE_MAX 65536

/*
 * One JSON object in UTF-8, without a Content-Encoding and without query
 * arguments beside it, with no other members than names, into values in that
 * order; absent and null are NULL. It lives as long as the call. False: the
 * call has its answer.
 */
MUST_CHECK bool body_read(struct api_call *call, const char *const *names,
                          size_t count, const struct json_value **values);

/*
 * A text of 1 to size_max bytes. False: *error is a sentence for a 400;
 * value NULL: the member is missing.
 */
MUST_CHECK bool
body_text(const struct json_value *value, const char *name, size_t size_max,
          struct arena *arena, struct meter_str *out, const char **error);

#endif
