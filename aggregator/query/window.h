/*
 * window.h - the windows of an answer, and which of them are partial. Pure.
 *
 *   interval, from, to -> [windows_make] -+-> windows -> [windows_judge]
 *   midnights of a zone -> [windows_take] +
 *
 *     bounds[0]   bounds[1]   bounds[2]        windows touch each other;
 *     |  window 0 |  window 1 |  ...           from lies in the first, the
 *           from ^                             instant before to in the last
 */

#ifndef QUERY_WINDOW_H
#define QUERY_WINDOW_H

#include "base/arena.h"
#include "meter_level.h"

#define WINDOWS_MAX 10000

struct windows {
    int64_t *bounds_us; /* count + 1 of them, ascending */
    bool *is_partial;   /* of each window */
    size_t count;
};

/* A bucket that has to be computed again. */
struct window_dirt {
    enum meter_level level;
    int64_t bucket_us;
};

/* How many windows [from, to) touches; from < to. */
int64_t windows_count(int64_t interval_us, int64_t from_us, int64_t to_us);

/* In the arena; the range touches WINDOWS_MAX at most. False: no memory. */
MUST_CHECK bool
windows_make(int64_t interval_us, int64_t from_us, int64_t to_us,
             struct arena *arena, struct windows *out);

/*
 * From bounds that may repeat (a day that a zone skipped) and go beyond to.
 * False: no memory, or they leave no window for the range.
 */
MUST_CHECK bool
windows_take(const int64_t *bounds_us, size_t count, int64_t from_us,
             int64_t to_us, struct arena *arena, struct windows *out);

/*
 * Partial is what is not wholly inside [from, to), ends after the mark, or
 * holds a bucket of dirt.
 */
void windows_judge(struct windows *windows, int64_t from_us, int64_t to_us,
                   int64_t mark_us, const struct window_dirt *dirt,
                   size_t dirt_count);

#endif
