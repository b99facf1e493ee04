/*
 * transaction_plan.c - what follows an error.
 *
 *   answer of the server -> [remedy] -> [plan] -> the next try
 *
 * A remedy is chosen when the error comes; the plan changes the top cut
 * (its path, its halves) or sets a pause, before the ROLLBACK is sent. So
 * whatever becomes of the ROLLBACK, the next try knows what to do.
 */

#include "ingest/transaction_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"

#include <sys/random.h>

#define PAUSE_MIN_MS       50
#define PAUSE_MAX_MS       2000
#define RETRY_PAUSE_MAX_MS 20
#define REPARTITION_MAX    3
/* A careful transaction asks once per tenant, in one flush. */
#define CAREFUL_EVENTS_MAX 4096

/* Only SQL_DATA may end in a rejected event. */
enum transaction_remedy
transaction_remedy(struct transaction *tx, const struct pg_answer *answer)
{
    bool is_careful = transaction_is_careful(tx);
    bool is_range = strcmp(answer->sqlstate, "22003") == 0;

    switch (answer->kind) {
    case SQL_UNIQUE:
        if (tx->is_hopeful) {
            hope_dashed(&tx->hope);
            return TRANSACTION_ASK;
        }
        return is_careful ? TRANSACTION_RETRY : TRANSACTION_CAREFUL;
    case SQL_NO_PARTITION: return TRANSACTION_REPARTITION;
    case SQL_DATA:
        return is_range && !is_careful ? TRANSACTION_CAREFUL
                                       : TRANSACTION_BISECT;
    case SQL_RETRY: return TRANSACTION_RETRY;
    case SQL_REDO_CAREFUL:
        return is_careful ? TRANSACTION_WAIT : TRANSACTION_CAREFUL;
    case SQL_AWAY:
    case SQL_BUG: break;
    }
    return TRANSACTION_WAIT;
}

/*
 * Codes that a ROLLBACK does not cure: a broken connection, a server that
 * became read-only, statements prepared for an older schema.
 */
bool
transaction_needs_connection(const struct transaction *tx)
{
    static const char *const classes[] = {"08", "25", "26", "0A"};

    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (strncmp(tx->failure.sqlstate, classes[i], 2) == 0) {
            return true;
        }
    }
    return false;
}

static uint64_t
jitter(uint64_t at_most)
{
    uint32_t random = 0;

    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0) {
        random = (uint32_t)clock_mono_us();
    }
    return random % (at_most + 1);
}

/* Doubles from PAUSE_MIN_MS to PAUSE_MAX_MS, plus up to half of it. */
static uint64_t
back_off(const struct transaction *tx)
{
    unsigned shift = tx->tries < 6 ? tx->tries : 6;
    uint64_t pause_ms = (uint64_t)PAUSE_MIN_MS << shift;

    if (pause_ms > PAUSE_MAX_MS) {
        pause_ms = PAUSE_MAX_MS;
    }
    return pause_ms + jitter(pause_ms / 2);
}

/* The top cut becomes its second half, the first half goes on top of it. */
static void
cut_halve(struct transaction *tx)
{
    struct transaction_cut *cut = transaction_cut(tx);
    size_t half = cut->count / 2;

    CHECK(tx->cut_count < TRANSACTION_CUTS_MAX && half > 0);
    cut[1] = *cut;
    cut[1].count = half;
    cut[0].items += half;
    cut[0].count -= half;
    tx->cut_count++;
}

/* What is left of a lone item that cannot be rejected any more is not data:
   a dead letter or a session's row. It waits for someone to look. */
static void
plan_reject(struct transaction *tx, struct batch_item *item)
{
    if (item->event == NULL || item->error != NULL) {
        log_error("ingest", "the database refuses the books of a ring",
                  log_str("sqlstate", tx->failure.sqlstate));
        transaction_plan_wait(tx);
        return;
    }
    log_error("ingest", "the database refuses an event",
              log_bytes("tenant", item->event->tenant),
              log_bytes("eventId", item->event->event_id),
              log_str("sqlstate", tx->failure.sqlstate));
    batch_item_reject(item,
                      "the database cannot store this event (SQLSTATE %s)",
                      tx->failure.sqlstate);
}

static void
plan_bisect(struct transaction *tx)
{
    struct transaction_cut cut = *transaction_cut(tx);

    if (cut.count == 1) {
        plan_reject(tx, cut.items[0]);
        return;
    }
    metrics.edgemeter_batches_bisected_total++;
    transaction_cut(tx)->path = TRANSACTION_PATH_ASKING;
    cut_halve(tx);
}

void
transaction_plan_wait(struct transaction *tx)
{
    transaction_set_able(tx, false);
    tx->pause_ms = back_off(tx);
    tx->tries++;
}

void
transaction_plan(struct transaction *tx)
{
    tx->pause_ms = 0;
    switch (tx->failure.remedy) {
    case TRANSACTION_AGAIN: break;
    case TRANSACTION_RETRY:
        tx->pause_ms = 1 + jitter(RETRY_PAUSE_MAX_MS);
        break;
    case TRANSACTION_ASK:
        transaction_cut(tx)->path = TRANSACTION_PATH_ASKING;
        break;
    case TRANSACTION_CAREFUL:
        transaction_cut(tx)->path = TRANSACTION_PATH_CAREFUL;
        break;
    case TRANSACTION_BISECT: plan_bisect(tx); break;
    case TRANSACTION_REPARTITION:
        tx->is_refresh_due = true;
        if (tx->tries++ >= REPARTITION_MAX) {
            transaction_plan_wait(tx);
        }
        break;
    case TRANSACTION_WAIT: transaction_plan_wait(tx); break;
    }
}

void
transaction_limit_careful(struct transaction *tx)
{
    while (transaction_is_careful(tx) &&
           transaction_cut(tx)->count > CAREFUL_EVENTS_MAX) {
        cut_halve(tx);
    }
}
