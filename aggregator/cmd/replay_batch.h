/*
 * replay_batch.h - records of a file that go through the gate together.
 *
 *   source -> [replay_batch] -> body of events -> ingest -> verdicts -> lines
 *
 * Holds each record as it stood in the file, for the rejects, and as JSON.
 * A record that is no whole object by its brackets is refused here: between
 * others in one body it would harm them. Where the gate refuses a body as a
 * whole, its records go one by one.
 */

#ifndef CMD_REPLAY_BATCH_H
#define CMD_REPLAY_BATCH_H

#include "base/arena.h"
#include "base/buf.h"
#include "cmd/replay_csv.h"
#include "cmd/replay_source.h"
#include "cmd/replay_tally.h"
#include "ingest/ingest.h"

struct replay_entry {
    int64_t line;
    const char *error; /* refused here; NULL: goes through the gate */
    size_t text_at;    /* in texts */
    size_t text_size;
    size_t event_at; /* in events */
    size_t event_size;
};

struct replay_batch {
    struct replay_entry *entries;
    size_t count;
    size_t count_max;
    int64_t line_next;   /* behind the last one */
    int64_t offset_next; /* likewise */

    size_t from; /* entries [from, to) are at the gate; all before are done */
    size_t to;
    bool is_single; /* one by one */

    struct buf texts;
    struct buf events;
    struct arena reasons;
};

/* At most so many records. False: no memory; fini is due all the same. */
MUST_CHECK bool replay_batch_init(struct replay_batch *batch, size_t count_max);
void replay_batch_fini(struct replay_batch *batch);

/*
 * Empties the batch and fills it from the source; csv NULL: lines of JSON.
 * RECORD: it is full. END, AGAIN, FAILED: what the source said then; there
 * may be entries all the same. ENOMEM is a FAILED of our own.
 */
MUST_CHECK enum replay_next
replay_batch_fill(struct replay_batch *batch, struct replay_source *source,
                  struct replay_csv *csv);

/*
 * The next entries for the gate as a body, which is empty before and may
 * have failed; it may be a list of none. False: all entries are done.
 */
MUST_CHECK bool replay_batch_next(struct replay_batch *batch, struct buf *body);
/*
 * What the gate said of the body, DONE or BAD: the entries are counted, or
 * come again one by one.
 */
void replay_batch_answered(struct replay_batch *batch,
                           const struct ingest_answer *answer,
                           struct replay_tally *tally);

#endif
