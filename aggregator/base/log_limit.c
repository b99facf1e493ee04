/*
 * log_limit.c - see log_limit.h.
 */

#include "base/log_limit.h"

int64_t
log_limit_turn(struct log_limit *limit, uint64_t now_ms)
{
    int64_t suppressed = limit->suppressed;

    if (now_ms / 1000 == limit->second) {
        return 0;
    }
    *limit = (struct log_limit){.second = now_ms / 1000};
    return suppressed;
}

bool
log_limit_take(struct log_limit *limit, int64_t lines_max)
{
    if (limit->lines >= lines_max) {
        limit->suppressed++;
        return false;
    }
    limit->lines++;
    return true;
}
