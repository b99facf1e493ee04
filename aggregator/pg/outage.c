/*
 * outage.c - see pg_outage.h.
 *
 * One state for the process, as there is one log. An outage lasts from the
 * first connection that is out until none has been out for OVER_MS: one that
 * is made and dropped at once, again and again, does not end it.
 */

#include "pg/outage.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/said.h"

#define OVER_MS 1000

static struct {
    bool is_on;
    uint64_t since_ms;
    uint64_t whole_ms; /* since when no connection is out */
    struct said said;
} outage;


void
pg_outage_failed(bool *is_out, const char *name, bool was_ready,
                 const char *why)
{
    uint64_t now_ms = clock_mono_ms();

    if (!*is_out) {
        *is_out = true;
        metrics.edgemeter_database_connections_out++;
    }
    if (!outage.is_on) {
        outage.is_on = true;
        outage.since_ms = now_ms;
    }
    if (!said_is_due(&outage.said, why, now_ms)) {
        log_debug("store", "database connection is away",
                  log_str("connection", name), log_str("reason", why));
        return;
    }
    log_warn("store",
             was_ready ? "database connection lost"
                       : "database connection cannot be made; retrying",
             log_str("connection", name), log_str("reason", why),
             log_int("out", metrics.edgemeter_database_connections_out));
}


void
pg_outage_ended(bool *is_out)
{
    if (*is_out) {
        *is_out = false;
        metrics.edgemeter_database_connections_out--;
        outage.whole_ms = clock_mono_ms();
    }
}


void
pg_outage_look(void)
{
    uint64_t now_ms = clock_mono_ms();

    if (!outage.is_on || metrics.edgemeter_database_connections_out > 0 ||
        now_ms - outage.whole_ms < OVER_MS) {
        return;
    }
    outage.is_on = false;
    said_forget(&outage.said);
    log_info("store", "all database connections are up again",
             log_int("seconds", (int64_t)(now_ms - outage.since_ms) / 1000));
}
