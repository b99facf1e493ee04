/*
 * replay_source.h - bytes of a file to records, piece by piece.
 *
 *   read -> window -> [replay_source] -> record, record, ...
 *
 * A record of NDJSON is a line, one of CSV goes to a line break outside of
 * quotes. Blank lines and a byte order mark are passed over. Nothing is ever
 * fatal: a line that is too long is skipped to its end and never held whole;
 * a CSV record that breaks the rules of quotes is only its first line, so
 * that a forgotten quote does not swallow what follows.
 */

#ifndef CMD_REPLAY_SOURCE_H
#define CMD_REPLAY_SOURCE_H

#include "base/check.h"
#include "meter_limits.h"

#include <sys/types.h>

/* A longer line is rejected. */
#define REPLAY_LINE_MAX METER_EVENT_SIZE_MAX
/* What is kept of one, for people. */
#define REPLAY_LINE_KEPT 1024

/* Like read(2); -1 with EAGAIN: nothing is there yet. */
typedef ssize_t (*replay_read_cb)(void *asker, char *out, size_t size);

struct replay_record {
    struct meter_str text; /* without line break; until the next call */
    const char *error;     /* NULL: text may be looked at */
    int64_t line;          /* where it begins, from 1 on */
    int64_t line_next;     /* the one behind it */
    int64_t offset_next;   /* byte of the file behind it */
};

enum replay_next {
    REPLAY_RECORD,
    REPLAY_END,
    REPLAY_AGAIN, /* nothing is there yet */
    REPLAY_FAILED /* read said no: errno */
};

struct replay_source;

/* NULL: no memory. */
MUST_CHECK struct replay_source *
replay_source_create(bool is_csv, replay_read_cb read, void *asker);
void replay_source_destroy(struct replay_source *source);

MUST_CHECK enum replay_next
replay_source_next(struct replay_source *source, struct replay_record *out);
/*
 * The asker has moved its file to this byte, where a line begins: goes on
 * from there.
 */
void
replay_source_moved(struct replay_source *source, int64_t offset, int64_t line);

#endif
