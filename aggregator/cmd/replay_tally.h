/*
 * replay_tally.h - what became of the lines of a file: counted and told.
 *
 *   verdict of a line -> [replay_tally] -> counts; rejects file, or stdout
 *
 * The rejects file has a line for each conflict and each rejected record:
 * number of the line, verdict and reason, then the record as it stood in the
 * file, with tabs between; `cut -f4-` gives the records back. Without such a
 * file the first TALLY_TOLD_MAX are told on stdout.
 */

#ifndef CMD_REPLAY_TALLY_H
#define CMD_REPLAY_TALLY_H

#include "base/buf.h"
#include "base/progress.h"
#include "meter_types.h"

#define TALLY_TOLD_MAX 20

struct replay_tally {
    int64_t counts[METER_VERDICT_COUNT];
    int rejects; /* -1: no file */
    const char *rejects_path;
    int64_t rejects_size; /* as written */
    struct buf pending;   /* not written yet */
    int64_t told;
    struct progress *progress; /* a bar to be wiped before; may be NULL */
    bool has_failed;
};

/* path NULL: no rejects file. */
void replay_tally_init(struct replay_tally *tally, const char *path);
void replay_tally_fini(struct replay_tally *tally);

/*
 * Opens the rejects file, if there is one. from 0: anew, else where an
 * interrupted run left it: what lies behind is cut off. False: told on
 * stderr; also when it is `input`, the file that is read.
 */
MUST_CHECK bool
replay_tally_open(struct replay_tally *tally, int64_t from, int input);

/* reason: of conflicts and rejected ones. */
void replay_tally_add(struct replay_tally *tally, enum meter_verdict verdict,
                      int64_t line, const char *reason, struct meter_str text);
/* What is pending is written. False: it cannot be; told on stderr. */
MUST_CHECK bool replay_tally_flush(struct replay_tally *tally);

/* All events were accepted or known before. */
bool replay_tally_is_clean(const struct replay_tally *tally);
/* "replayed: 5 accepted, ..." on stdout; doing is the first word. */
void replay_tally_tell(const struct replay_tally *tally, const char *doing);

#endif
