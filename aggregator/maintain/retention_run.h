/*
 * retention_run.h - one retention, table by table.
 *
 *   floor to be -> raise -> [ledger: writers passed, all flushed] -> drop
 *
 * A table that cannot be done is left for the next run, and its reason told;
 * what an earlier run has left behind its floor is finished. A table whose
 * floor could not be raised holds up the coarser levels of the series only.
 * One whose days were made fewer is kept as long as before until a run is
 * forced; what is in force is in the database.
 */

#ifndef MAINTAIN_RETENTION_RUN_H
#define MAINTAIN_RETENTION_RUN_H

#include "base/progress.h"
#include "maintain/retention_plan.h"

struct retention_run {
    struct retention_store *store;
    int days[PARTITION_PARENTS]; /* to keep; -1: for ever */
    struct retention_clock clock;
    bool is_dry;
    bool is_forced;
    bool is_log;      /* for programs: log lines, and a sum on stdout */
    uint64_t wait_ms; /* for others to be ready, in all */

    /* Set by retention_run. */
    int32_t floors[PARTITION_PARENTS]; /* as they are now, or would be */
    struct progress progress;
    int64_t dropped; /* partitions */
    int64_t skipped; /* tables */
    int64_t waiting; /* tables whose shorter time is to be confirmed */
    uint64_t waited_ms;
};

/* False: something had to be left or went wrong; all is told. */
MUST_CHECK bool retention_run(struct retention_run *run);

#endif
