/*
 * projection.c - the table of projections, see projection.h.
 */

#include "project/projection.h"

const struct projection *const projections[PROJECTION_COUNT] = {
    [PROJECTION_METERS] = &projection_meters,
    [PROJECTION_COUNTERS] = &projection_counters,
    [PROJECTION_USAGE] = &projection_usage,
    [PROJECTION_INDEX] = &projection_index,
    [PROJECTION_SERIES] = &projection_series,
};

bool projection_is_unsorted;

bool
projections_project(const struct event_type *type,
                    const struct meter_event *event,
                    const struct json_value *attributes, struct arena *arena,
                    struct effects *effects, const char **error)
{
    *effects = (struct effects){.is_careful = false};
    for (size_t i = 0; i < PROJECTION_COUNT; i++) {
        if (!projections[i]->project(type, event, attributes, arena,
                                     &effects->of[i], &effects->is_careful,
                                     error)) {
            return false;
        }
    }
    return true;
}
