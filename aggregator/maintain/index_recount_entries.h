/*
 * index_recount_entries.h - entries of one event: what they should be and
 * what they are. Pure.
 */

#ifndef MAINTAIN_INDEX_RECOUNT_ENTRIES_H
#define MAINTAIN_INDEX_RECOUNT_ENTRIES_H

#include "base/buf.h"
#include "project/index.h"

struct index_recount_entry {
    struct meter_str type;
    struct meter_str attribute;
    struct meter_str value;
    int64_t ts_us;
};

struct index_recount_list {
    struct index_recount_entry *items;
    size_t count;
};

/* In the arena that was given. */
struct index_recount_entries {
    struct index_recount_list expected; /* all */
    struct index_recount_list found;    /* of those that the rules know */
    struct index_recount_list missing;
    struct index_recount_list extra; /* wrong ones, or there twice */
    size_t strangers;
};

/* The event of the ledger row; type data NULL: there is none. */
struct index_recount_event {
    struct meter_str type;
    struct meter_str attributes;
    int64_t ts_us;
};

/*
 * text: JSON as index_recount_rows gives it, data NULL: none. False: *error;
 * no memory is left when the arena says so.
 */
MUST_CHECK bool
index_recount_compare(const struct catalog *catalog,
                      const struct index_recount_event *event,
                      struct meter_str text, struct arena *arena,
                      struct index_recount_entries *out, const char **error);

/* {"attribute":"value",...} */
void index_recount_put_entries(struct buf *out,
                               const struct index_recount_list *list);

#endif
