/*
 * audit_log.h - one log line for each duplicate and conflict, within reason.
 *
 *   committed batch -> [audit_log] -> log
 *
 * At most AUDIT_LOG_LINES_MAX lines a second; what was left out is counted
 * and told in one line when the second is over. Applied changes, and
 * transitions that change nothing, are logged at debug level only, without a
 * limit.
 */

#ifndef INGEST_AUDIT_LOG_H
#define INGEST_AUDIT_LOG_H

#include "base/log_limit.h"
#include "ingest/batch.h"

#define AUDIT_LOG_LINES_MAX 100

struct audit_log {
    struct log_limit limit;
};

/* What the verdict of a committed item is worth in the log. */
void audit_log_item(struct audit_log *log, const struct batch_item *item,
                    uint64_t now_ms);
/* Call now and then, so that a count of the past does not stay untold. */
void audit_log_tick(struct audit_log *log, uint64_t now_ms);

#endif
