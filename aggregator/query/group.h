/*
 * group.h - dimension sets to the groups of an answer. Pure.
 *
 *   rows of query_mark -> [groups_add] -> [groups_sort] -> places
 *
 * A group is what group_by leaves of the dimensions. Groups stand in the
 * bytewise order of their JSON; without dimensions there is one, also where
 * there is no set at all.
 */

#ifndef QUERY_GROUP_H
#define QUERY_GROUP_H

#include "query/query.h"

/* Dimension sets of one question. */
#define GROUP_KEYS_MAX 10000

struct group_key {
    uint8_t key[METER_DIGEST_SIZE];
    struct meter_str json; /* of its group */
    int32_t place;         /* of its group */
};

struct groups {
    const struct query *query;
    struct arena *arena;
    struct group_key *keys;
    size_t key_count;
    struct meter_str *json; /* of each group; by place */
    size_t count;
    /* Which reading of each loose filter was met; -1: none yet. */
    int readings[METER_DIMENSION_COUNT_MAX];
};

enum groups_result {
    GROUPS_OK,
    GROUPS_MIXED, /* a loose value exists as text and as another type */
    GROUPS_MEMORY
};

/* Room for so many keys; lives in the arena. False: no memory. */
MUST_CHECK bool groups_init(struct groups *groups, const struct query *query,
                            size_t key_count, struct arena *arena);
/* dimensions: canonical JSON; nothing of it is kept. */
enum groups_result groups_add(struct groups *groups, struct meter_str key,
                              struct meter_str dimensions);
/* After the last one. */
void groups_sort(struct groups *groups);

#endif
