/*
 * reconcile_job.h - what `meterd reconcile` has found last, as metrics.
 *
 *   meterd reconcile -> meter.reconcile_result -> [job] -> metrics
 *
 * The command may run on any machine; each meterd of the database reads its
 * result once a minute, apart from any scrape.
 */

#ifndef MAINTAIN_RECONCILE_JOB_H
#define MAINTAIN_RECONCILE_JOB_H

#include "store/reader.h"

struct reconcile_job;

/* Works from now on. writes: borrowed, outlives it. NULL: no memory. */
MUST_CHECK struct reconcile_job *
reconcile_job_create(uv_loop_t *loop, struct reader *writes);
void reconcile_job_destroy(struct reconcile_job *job);

#endif
