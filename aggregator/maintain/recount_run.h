/*
 * recount_run.h - a recount at work, between recount.c and recount_tenant.c.
 */

#ifndef MAINTAIN_RECOUNT_RUN_H
#define MAINTAIN_RECOUNT_RUN_H

#include "base/progress.h"
#include "maintain/recount.h"

struct recount_run {
    const struct recount_wish *wish;
    struct recount_outcome *out;
    struct ledger_store *store;
    struct ledger_seqs base; /* numbers of the checkpoint; none without it */
    bool is_wanted[PROJECTION_COUNT];
    int64_t floor_us; /* oldest day of the ledger when it was counted */
    bool is_whole;    /* it lacked nothing then */
    int64_t told;     /* unfit events that were told */
    struct progress progress;
    struct arena arena; /* of one event */
    struct pg_params params;
};

/* One tenant, all of it. */
MUST_CHECK enum recount_end
recount_tenant(struct recount_run *run, struct meter_str tenant);

/* A line on stderr, "meterd COMMAND: ...", beside the progress. */
void recount_say(struct recount_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Meters of periods that start before the floor are left out. */
void recount_meters_from(struct recount_run *run, int64_t floor_us);

void
recount_find(struct recount_run *run, const struct recount_finding *finding);

#endif
