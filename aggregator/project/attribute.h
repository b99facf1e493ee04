/*
 * attribute.h - attributes of an event as rules read them. Pure.
 *
 *   rule's path, attribute tree -> value | dimensions | decimal
 *
 * What counters, meters and series share: finding an attribute, making the
 * key of a dimension set, reading an amount.
 */

#ifndef PROJECT_ATTRIBUTE_H
#define PROJECT_ATTRIBUTE_H

#include "base/arena.h"
#include "base/json_reader.h"
#include "config/catalog.h"
#include "meter_dims.h"
#include "meter_event.h"

/* A set of dimensions: its key and its canonical JSON, in an arena. */
struct dimension_set {
    uint8_t key[METER_DIGEST_SIZE];
    struct meter_str json;
};

/* Exact key first, then the dotted path; NULL when absent. */
const struct json_value *attribute_find(const struct json_value *attributes,
                                        const struct attribute_path *path);

/*
 * The dimensions at paths, which are sorted by name; a missing one is null.
 * of says whose they are, for the reason: "counter", name. False: *error is
 * the reason for which the event is rejected.
 */
MUST_CHECK bool
attribute_dimensions(const struct json_value *attributes,
                     const struct attribute_path *paths, size_t count,
                     const char *of, struct meter_str name, struct arena *arena,
                     struct dimension_set *out, const char **error);

enum attribute_reading {
    ATTRIBUTE_OK,
    ATTRIBUTE_ABSENT, /* missing or null */
    ATTRIBUTE_BAD     /* there, but no such value */
};

/*
 * By value, not by spelling: 5, 5.0 and 5e0 are one number. A number; of a
 * captured event, whose attributes are all text, also a number's text.
 */
enum attribute_reading
attribute_decimal(const struct json_value *attributes,
                  const struct attribute_path *path,
                  const struct meter_event *event, struct meter_decimal *out);

/*
 * A scalar as canonical JSON ("a", 1, true), which tells 1 from "1"; in the
 * arena. BAD: an object, an array, or more than size_max bytes; no memory.
 */
enum attribute_reading
attribute_scalar(const struct json_value *attributes,
                 const struct attribute_path *path, size_t size_max,
                 struct arena *arena, struct meter_str *out);

#endif
