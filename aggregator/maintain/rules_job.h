/*
 * rules_job.h - the rules that events are counted by, told to the database.
 *
 *   SIGHUP -> [job] -> rule_note -> may be used -> ... -> the old ones are
 *   used by no one any more -> rule_note
 *
 * meter.rule_use says until when a writer may have counted by another rule,
 * which is why it is told twice: before the first event is counted by the new
 * rules, and behind the last that was counted by the old ones. What a meterd
 * has when it starts is told by its lane (store/lane.h).
 *
 * While the database is away nothing is counted, and nothing waits for it:
 * the rules are used at once and told as soon as it is back.
 */

#ifndef MAINTAIN_RULES_JOB_H
#define MAINTAIN_RULES_JOB_H

#include "config/config.h"
#include "store/lane.h"
#include "store/reader.h"

struct rules_job;

/* All borrowed; they outlive it. */
struct rules_job_options {
    struct reader *writes;
    const struct lane *lane;   /* whose writer counts */
    const struct config *boot; /* held once more, for ever */
    void (*cb)(void *owner);   /* the rules may be used: once for a change */
    void *owner;
};

/* NULL: no memory. */
MUST_CHECK struct rules_job *
rules_job_create(uv_loop_t *loop, const struct rules_job_options *options);
void rules_job_destroy(struct rules_job *job);

/*
 * old is used until cb is called, and by some for longer: they hold it by
 * reference. cb may be called at once.
 */
void rules_job_change(struct rules_job *job, struct config *old,
                      struct config *loaded);
/* A change has been asked for, and cb was not called yet. */
bool rules_job_is_busy(const struct rules_job *job);

#endif
