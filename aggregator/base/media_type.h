/*
 * media_type.h - what a Content-Type says. Pure.
 *
 *   "Application/JSON ; charset=\"UTF-8\"" -> [media_type_read]
 *      -> name "Application/JSON", charset "UTF-8"
 */

#ifndef BASE_MEDIA_TYPE_H
#define BASE_MEDIA_TYPE_H

#include "base/check.h"

struct media_type {
    struct meter_str name;    /* type/subtype, as it was sent */
    struct meter_str charset; /* without quotes; data NULL: not said */
};

/*
 * Parameters in any case and spacing, quoted or not; only charset is kept.
 * False: not a media type, or two charsets. The strings borrow from text.
 */
MUST_CHECK bool media_type_read(struct meter_str text, struct media_type *out);

/* In any case. */
bool media_type_is(const struct media_type *type, const char *name);
/* The subtype is json, or ends in +json. */
bool media_type_is_json(const struct media_type *type);
/* utf-8 in any case (utf8 too), or not said. */
bool media_type_is_utf8(const struct media_type *type);

#endif
