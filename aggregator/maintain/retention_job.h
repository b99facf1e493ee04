/*
 * retention_job.h - the daemon runs retention daily by itself.
 *
 *   timer -> has the clock jumped? -> meterd retention -> timer
 *
 * A process of its own, as checkpoints are: the loop never waits for it. The
 * first one comes some minutes after the start, not at the same time on all
 * nodes; where two meet, one works. What failed is tried again in an hour.
 */

#ifndef MAINTAIN_RETENTION_JOB_H
#define MAINTAIN_RETENTION_JOB_H

#include "base/check.h"

#include <uv.h>

struct retention_job;

/*
 * paths: the files of the configuration, borrowed, read again by each run.
 * Nothing happens before retention_job_start. NULL: no memory.
 */
MUST_CHECK struct retention_job *
retention_job_create(uv_loop_t *loop, const char *const *paths, size_t count);
/* Only the first call counts. */
void retention_job_start(struct retention_job *job);
/* Ends a run under way; no other follows. */
void retention_job_stop(struct retention_job *job);
/* Does not wait; the loop frees it. NULL is allowed. */
void retention_job_destroy(struct retention_job *job);

/*
 * Pure. Whether the wall clock was set between two readings of how far it is
 * ahead of the time since boot: more than slewing would do in a day.
 */
bool retention_job_is_jump(int64_t before_us, int64_t after_us);
/* What a run says at its end: "dropped N skipped M waiting K". */
struct retention_words {
    int64_t dropped;
    int64_t skipped;
    int64_t waiting;
};

/* Pure. False: it is something else. */
MUST_CHECK bool
retention_job_parse(struct meter_str text, struct retention_words *out);

#endif
