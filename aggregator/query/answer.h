/*
 * answer.h - cells to what the client reads. Pure.
 *
 *   windows, groups, cells -> [answer_put] -> JSON, rows or series
 *                          -> [answer_csv] -> a table of rows
 *
 * Everything stands in an order of its own: windows by time, groups by the
 * bytes of their JSON. The same question over the same data gives the same
 * bytes.
 */

#ifndef QUERY_ANSWER_H
#define QUERY_ANSWER_H

#include "base/csv.h"
#include "base/json_writer.h"
#include "query/cells.h"
#include "query/group.h"
#include "query/window.h"

struct answer {
    const struct query *query;
    enum meter_level level;
    const struct windows *windows;
    const struct groups *groups;
    struct cells *cells; /* is sorted as it is needed */

    /* Made by answer_init. */
    uint32_t *shown; /* places of groups, ascending */
    size_t shown_count;
    bool *is_window_shown;
    size_t window_count;
};

/*
 * Which groups and windows are shown: groups that have a cell in the range,
 * the one without dimensions always. False: no memory.
 */
MUST_CHECK bool answer_init(struct answer *answer, struct arena *arena);
/* How many values there will be, nulls included. */
size_t answer_size(const struct answer *answer);

/* Scratch memory comes from the arena. */
void answer_put(struct answer *answer, struct json_writer *json,
                struct arena *arena);
void
answer_csv(struct answer *answer, struct csv_writer *csv, struct arena *arena);

/* A row that is shown; cell NULL: there is nothing in it. */
typedef void (*answer_row_cb)(const struct answer *answer, void *writer,
                              size_t place, size_t slot,
                              const struct answer_cell *cell,
                              struct arena *arena);
/* By window, then by group. */
void answer_each_row(struct answer *answer, answer_row_cb cb, void *writer,
                     struct arena *arena);

/* Tallies of a histogram by bound; as many as buckets, and one above. */
void answer_tallies(const struct series *series, const struct answer_cell *cell,
                    int64_t tallies[CATALOG_BUCKETS_MAX + 1]);
/* "from" and "to" of a state's label, canonical JSON. */
MUST_CHECK bool answer_transition(struct meter_str label, struct arena *arena,
                                  struct meter_str *from, struct meter_str *to);

#endif
