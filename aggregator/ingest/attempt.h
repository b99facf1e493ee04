/*
 * attempt.h - one try to commit some events: from BEGIN to COMMIT.
 *
 *   transaction -> [attempt] -> pg_tx -> PostgreSQL
 *
 *   lookup -+-> registry -> entities ------------------+
 *           +-> register -> known -> entities -> locks +  (careful path)
 *                                                      v
 *                      COMMIT <- effects <- audit <- ledger
 *
 * Registry, ledger, audit, projections, the sessions of rings and the writer's
 * numbers commit together or not at all. Whoever started the attempt hears how
 * it ended and, where it failed, what the next one should do differently.
 */

#ifndef INGEST_ATTEMPT_H
#define INGEST_ATTEMPT_H

#include "base/memory.h"
#include "ingest/batch_rows.h"
#include "ingest/lookup_skip.h"
#include "pg/tx.h"
#include "store/lane.h"

/* What the next attempt does differently; the remedy of a pg_tx failure. */
enum attempt_remedy {
    ATTEMPT_WAIT,        /* later: trouble that is not the events' */
    ATTEMPT_AGAIN,       /* at once; something has changed */
    ATTEMPT_RETRY,       /* soon: a deadlock, a lost race */
    ATTEMPT_ASK,         /* at once, asking for known keys */
    ATTEMPT_CAREFUL,     /* at once, on the careful path */
    ATTEMPT_BISECT,      /* in halves; a lone event is rejected */
    ATTEMPT_REPARTITION, /* after a look at the partitions */
};

/* A statement of a projection that has no answer yet. */
struct attempt_asked {
    enum projection_id projection;
    enum projection_phase phase;
    size_t at;
};

struct attempt_events {
    /* The next step begins; its name stands in attempt->step. */
    void (*on_step)(void *owner);
    /* The first error; sets the remedy. */
    void (*on_error)(void *owner, const struct pg_answer *answer);
    void (*on_end)(void *owner, enum pg_tx_end end);
};

struct attempt {
    struct lane *lane;
    struct pg_tx tx;
    const struct attempt_events *events;
    void *owner;

    /* Set by the owner, before it begins. */
    bool is_careful;
    bool is_skipping; /* known keys are not asked for */
    bool is_insert;   /* INSERT in place of COPY */
    int64_t clock_margin_us;
    int32_t event_floor_day; /* that the days of the items were made with */

    struct lookup_skip *skip; /* is told what was found */

    const char *step; /* for log lines: "lookup" */
    bool is_copying;  /* the step is a COPY of registry or ledger */
    struct batch batch;
    struct batch_stamp stamp;
    int64_t last;        /* number of the writer's newest row, as locked */
    int64_t looked_us;   /* the clock that projections were told */
    size_t known_scope;  /* scope of the next ingest_known_scope answer */
    size_t known_count;  /* rows of all look-ups */
    size_t audit_at;     /* where the next piece of the audit begins */
    bool has_states;     /* the ledger waits for entities; fast path */
    bool is_ledger_made; /* encoded ahead, while the server was working */
    bool is_folded;      /* likewise */
    VEC(struct attempt_asked) asked; /* in the order of their answers */
    size_t asked_at;                 /* whose answer comes next */

    struct pg_params params;
    struct buf registry_stream;
    struct buf event_stream;
    struct buf audit_stream;
    uv_timer_t timer; /* work while a COPY runs; closed by the owner */
};

void attempt_init(struct attempt *attempt, uv_loop_t *loop, struct lane *lane,
                  const struct attempt_events *events, void *owner);
/* Idle, and the timer is closed. */
void attempt_fini(struct attempt *attempt);
/* Gives back memory kept for reuse; when idle only. */
void attempt_trim(struct attempt *attempt);

/* batch is loaded, its days and those of the stamp are there. */
void attempt_begin(struct attempt *attempt);

#endif
