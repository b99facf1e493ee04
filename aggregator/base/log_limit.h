/*
 * log_limit.h - so many lines a second, and how many were left out. Pure.
 *
 * For lines that somebody outside can cause at will. The caller writes the
 * line when there is room for it, and the number when a second is over.
 */

#ifndef BASE_LOG_LIMIT_H
#define BASE_LOG_LIMIT_H

#include "base/check.h"

/* All zero: nothing written yet. */
struct log_limit {
    uint64_t second; /* of the monotonic clock */
    int64_t lines;   /* in this second */
    int64_t suppressed;
};

/* Begins the next second when it is time; how many were left out, now told. */
int64_t log_limit_turn(struct log_limit *limit, uint64_t now_ms);
/* After a turn. False: this line is one too many, and counted. */
MUST_CHECK bool log_limit_take(struct log_limit *limit, int64_t lines_max);

#endif
