/*
 * audit_log.c - see audit_log.h.
 */

#include "ingest/audit_log.h"

#include "base/log.h"
#include "base/metrics.h"
#include "project/counter.h"

static void
audit_log_line(enum log_level level, const struct batch_item *item,
               const struct counter_change *change, const uint8_t *key,
               const char *result)
{
    char dimension_key[2 * METER_DIGEST_SIZE + 1] = "";
    struct meter_str counter = METER_STR("");
    const char *op = "";

    if (change != NULL) {
        meter_hex(key, METER_DIGEST_SIZE, dimension_key);
        counter = change->counter->name;
        op = change->delta < 0 ? "DEC" : "INC";
    }
    LOG_LINE(level, "ingest", "counter update",
             log_bytes("counterName", counter),
             log_str("dimensionKey", dimension_key),
             log_bytes("eventId", item->event->event_id), log_str("op", op),
             log_str("result", result));
}

void
audit_log_tick(struct audit_log *log, uint64_t now_ms)
{
    int64_t suppressed = log_limit_turn(&log->limit, now_ms);

    if (suppressed > 0) {
        log_info("ingest", "duplicate and conflict lines suppressed",
                 log_int("count", suppressed));
    }
}

static void
audit_log_applied(const struct batch_item *item)
{
    const struct counter_effect *effect = item->effects.of[PROJECTION_COUNTERS];

    if (!log_enabled(LOG_DEBUG) || effect == NULL) {
        return;
    }
    for (size_t i = 0; i < effect->count; i++) {
        const struct counter_change *change = &effect->changes[i];
        const struct counter_counted *counted =
            item->marks.counted != NULL ? &item->marks.counted[i] : NULL;
        bool is_ignored = counted != NULL && counted->is_ignored;
        bool is_elsewhere = counted != NULL && !is_ignored;

        audit_log_line(LOG_DEBUG, item, change,
                       is_elsewhere ? counted->key : change->set.key,
                       is_ignored ? "IGNORED" : "APPLIED");
    }
}

void
audit_log_item(struct audit_log *log, const struct batch_item *item,
               uint64_t now_ms)
{
    bool is_duplicate = item->verdict == METER_VERDICT_DUPLICATE;
    const struct counter_effect *effect = item->effects.of[PROJECTION_COUNTERS];

    if (item->verdict == METER_VERDICT_ACCEPTED) {
        audit_log_applied(item);
        return;
    }
    if (!is_duplicate && item->verdict != METER_VERDICT_CONFLICT) {
        return;
    }
    audit_log_tick(log, now_ms);
    if (!log_limit_take(&log->limit, AUDIT_LOG_LINES_MAX)) {
        metrics.edgemeter_log_suppressed_total++;
        return;
    }
    audit_log_line(LOG_INFO, item, effect != NULL ? effect->changes : NULL,
                   effect != NULL ? effect->changes->set.key : NULL,
                   is_duplicate ? "DROPPED_DUPLICATE" : "DROPPED_CONFLICT");
}
