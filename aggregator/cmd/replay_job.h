/*
 * replay_job.h - events of a file through the gate, to its end.
 *
 *   replay_input -> [replay_job] -> ingest -> lane -> PostgreSQL
 *                        |              \-> series
 *                        +-> tally, resume file, progress
 *
 * One batch at a time. After each commit the resume file says how far it has
 * come; a replay that was killed anywhere goes on from there, and what was
 * committed behind it counts as duplicate, with no effect.
 */

#ifndef CMD_REPLAY_JOB_H
#define CMD_REPLAY_JOB_H

#include "cmd/replay_input.h"

/* Exit statuses of `meterd replay`. */
enum replay_exit {
    REPLAY_EXIT_CLEAN = 0,  /* all events accepted or duplicate */
    REPLAY_EXIT_SOME = 1,   /* some conflict or rejected */
    REPLAY_EXIT_FAILED = 2, /* could not run, or not to the end */
};

/* Writes; the exit status. */
int replay_job_run(const struct replay_wish *wish);
/* replay_dry.c: only looks. */
int replay_dry_run(const struct replay_wish *wish);

#endif
