/*
 * protocol_log.c - see protocol_log.h.
 */

#include "edge/protocol_log.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/metrics.h"

static struct log_limit limit; /* of the process, as the metrics are */

bool
protocol_log_tick(void)
{
    int64_t suppressed = log_limit_turn(&limit, clock_mono_ms());

    if (suppressed > 0) {
        log_info("listener", "lines about peers suppressed",
                 log_int("count", suppressed));
    }
    return limit.suppressed > 0;
}

bool
protocol_log_take(void)
{
    protocol_log_tick();
    if (!log_limit_take(&limit, PROTOCOL_LOG_LINES_MAX)) {
        metrics.edgemeter_log_suppressed_total++;
        return false;
    }
    return true;
}
