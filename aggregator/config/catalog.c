/*
 * catalog.c - look-ups in the compiled rules, see catalog.h.
 */

#include "config/catalog.h"

static const char *const usage_columns[USAGE_COLUMN_COUNT] = {
    [USAGE_ENTRY_COUNT] = "entryCount",
    [USAGE_STORAGE_BYTES] = "storageBytes",
    [USAGE_API_CALL_COUNT] = "apiCallCount",
};


const struct event_type *
catalog_event_type(const struct catalog *catalog, struct meter_str type)
{
    const struct event_type *found = map_find(&catalog->event_type_map, type);

    return found != NULL ? found : catalog->any_type;
}

const struct counter *
catalog_counter(const struct catalog *catalog, struct meter_str name)
{
    return map_find(&catalog->counter_map, name);
}

const struct billing_meter *
catalog_meter(const struct catalog *catalog, struct meter_str metric)
{
    return map_find(&catalog->meter_map, metric);
}

const struct series *
catalog_series(const struct catalog *catalog, struct meter_str name)
{
    return map_find(&catalog->series_map, name);
}

const char *
usage_column_name(enum usage_column column)
{
    return usage_columns[column];
}

void
catalog_fini(struct catalog *catalog)
{
    map_fini(&catalog->event_type_map);
    map_fini(&catalog->counter_map);
    map_fini(&catalog->meter_map);
    map_fini(&catalog->series_map);
}
