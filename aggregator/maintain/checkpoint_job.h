/*
 * checkpoint_job.h - the daemon makes checkpoints by itself.
 *
 *   timer -> newest file old enough? -> meterd checkpoint export -> timer
 *
 * The export is a process of its own: the loop never waits for it. One at a
 * time; a failure is logged, counted, and tried again later. Several nodes
 * may share a directory: each looks at what the others have made.
 */

#ifndef MAINTAIN_CHECKPOINT_JOB_H
#define MAINTAIN_CHECKPOINT_JOB_H

#include "config/config.h"

#include <uv.h>

struct checkpoint_job;

/*
 * paths: the files of the configuration, borrowed. Nothing happens before
 * checkpoint_job_start. NULL: no memory.
 */
MUST_CHECK struct checkpoint_job *
checkpoint_job_create(uv_loop_t *loop, const char *const *paths, size_t count,
                      const struct config_checkpoint *options);

/* Other options are in force; path NULL: no more checkpoints. */
void checkpoint_job_options_set(struct checkpoint_job *job,
                                const struct config_checkpoint *options);
/* The first one comes at once when it is due. */
void checkpoint_job_start(struct checkpoint_job *job);
/* Ends an export under way; no other follows. */
void checkpoint_job_stop(struct checkpoint_job *job);
/* Does not wait; the loop frees it. NULL is allowed. */
void checkpoint_job_destroy(struct checkpoint_job *job);

/*
 * Pure. How long to wait with a newest file of that time, INT64_MIN when
 * there is none: 0, it is due.
 */
int64_t checkpoint_due_us(int64_t newest_us, int64_t every_us, int64_t now_us);

#endif
