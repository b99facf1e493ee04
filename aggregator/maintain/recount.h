/*
 * recount.h - projections recomputed from the ledger, tenant by tenant.
 *
 *   whole? -> for each tenant: snapshot -> expected and live -> differences
 *                              [-> lock -> what came since -> write]
 *
 * Events may arrive all the time. Comparing pauses no one: ledger and
 * projections of one snapshot belong together. Only a tenant that has
 * differences is written, in a transaction of its own that ingest waits
 * for; whoever is killed leaves each tenant as it was or right.
 *
 * Blocking, for commands. Memory: that of the largest tenant, see
 * project/recount.h.
 */

#ifndef MAINTAIN_RECOUNT_H
#define MAINTAIN_RECOUNT_H

#include "config/config.h"
#include "maintain/checkpoint_file.h"
#include "project/recount.h"

/* One difference, and where it is. */
struct recount_finding {
    const char *projection;  /* "counters"; "ledger", "registry": neither */
    struct meter_str tenant; /* data NULL: of none */
    const struct recount_difference *difference;
    int64_t rule_changed_us; /* what explains it; INT64_MIN: nothing */
    bool is_rule_mixed;      /* someone counts by another rule now */
};

typedef void (*recount_finding_cb)(void *asker,
                                   const struct recount_finding *finding);

struct recount_wish {
    const char *command; /* for messages and the connection: "rebuild" */
    const struct config *config;
    bool is_wanted[PROJECTION_COUNT];
    const char *tenant; /* NULL: all */
    const char *name;   /* one counter or metric; NULL: all */
    int64_t from_us;    /* meters: periods that start then or later */
    bool is_reopened;   /* meters: a closed period of the metric */
    struct recount_reopen reopen;

    /*
     * Counters and usage start at the file's rows, and the ledger is read
     * behind its numbers; NULL: at nothing. No meters then. That the file
     * belongs to this database is for the caller to know.
     */
    struct checkpoint_reader *base;

    bool is_writing;       /* puts right what differs */
    bool is_reconciled;    /* also what is no projection: registry, audit log;
                              and what cannot be compared is left out */
    recount_finding_cb cb; /* every difference */
    /* Rows of a meter were left: their period is closed. NULL: not told. */
    void (*left_cb)(void *asker, struct meter_str metric);
    void *asker;
};

/* Filled in as far as it went. */
struct recount_outcome {
    int64_t tenants;
    int64_t rebuilt; /* tenants that were written */
    int64_t events;
    int64_t differences;
    int64_t unfit;     /* events the rules would reject now */
    int64_t strangers; /* rows of names that the rules do not have */
    int64_t lacking;   /* events that the ledger does not have any more */
    int64_t floor_us;  /* meters: earlier periods were left out; INT64_MIN */
    int64_t left;      /* differences of closed periods, which stay */
    int64_t whole_us;  /* the ledger has all events of this time and later */
    bool is_left_out[PROJECTION_COUNT]; /* some of it could not be compared */
};

enum recount_end {
    RECOUNT_DONE,
    RECOUNT_REFUSED, /* the ledger is not whole; said on stderr */
    RECOUNT_TROUBLE  /* database, file or memory; said on stderr */
};

MUST_CHECK enum recount_end
recount_run(const struct recount_wish *wish, struct recount_outcome *out);

#endif
