/*
 * orphan.h - what writers that are gone have not flushed.
 *
 *   writers with a tail -> [orphan: heartbeat stands still] -> fence ->
 *   recovery -> flush -> retired
 *
 * Gone is a writer whose heartbeat is a minute old and has not moved between
 * two looks. Its epoch is raised first: if it only slept, it ends instead of
 * writing; when it starts again it takes over from wherever we are. Of
 * several that adopt at once one gets the row, and upto decides the rest.
 */

#ifndef SERIES_ORPHAN_H
#define SERIES_ORPHAN_H

#include "config/config.h"
#include "store/lane.h"
#include "store/partition.h"

struct orphan;

struct orphan_options {
    const char *url; /* database; borrowed */
    struct lane *lane;
    struct partition *partition;
    struct config *config;
    void (*on_flushed)(void *owner);
    void *owner;
};

/* NULL: no memory. */
MUST_CHECK struct orphan *
orphan_create(uv_loop_t *loop, const struct orphan_options *options);
void orphan_destroy(struct orphan *orphan);
void orphan_config_set(struct orphan *orphan, struct config *config);

/* From now on looks now and then; the lane has been ready. */
void orphan_start(struct orphan *orphan);
/* Looks no more; what runs may end. */
void orphan_stop(struct orphan *orphan);

#endif
