/*
 * index.h - declared attributes of accepted events, as rows of event_index.
 *
 *   event, attributes -> [index_project] -> effect -> rows of a transaction
 *
 * A row for each attribute under `indexed` of the event's type that holds a
 * scalar; missing, null, objects and arrays have none. The value is canonical
 * JSON, so 1 and 1.0 are one value and 1 and "1" are two, and is cut: the
 * index prunes, the event decides.
 */

#ifndef PROJECT_INDEX_H
#define PROJECT_INDEX_H

#include "project/projection.h"

#define INDEX_VALUE_SIZE_MAX 256

struct index_entry {
    struct meter_str attribute; /* as the rules name it */
    struct meter_str value;     /* canonical JSON, cut */
};

/* What one event leaves in the index. */
struct index_effect {
    size_t count; /* at least 1 */
    struct index_entry entries[];
};

/* The front of canonical JSON that the index keeps: whole characters. */
struct meter_str index_value_cut(struct meter_str json);

/* As projection.project; *effect is a struct index_effect. Rejected: no
   memory. */
MUST_CHECK bool
index_project(const struct event_type *type, const struct meter_event *event,
              const struct json_value *attributes, struct arena *arena,
              const void **effect, bool *is_careful, const char **error);

#endif
