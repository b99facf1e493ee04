/*
 * flush_aside.h - rows that a careful flush has to leave out. Pure.
 *
 *   flush_write -> [note] -> ... COMMIT -> [tell] -> log, metric
 *
 * A row is told when it is known to be left out for good: once, and not at a
 * try that is rolled back. Cells are named by their place, which is the same
 * in all tries of a cut.
 */

#ifndef SERIES_FLUSH_ASIDE_H
#define SERIES_FLUSH_ASIDE_H

#include "series/flush_rows.h"

/* More than that is no matter of single rows: then nothing is left out. */
#define FLUSH_ASIDES_MAX 100

struct flush_aside {
    size_t cell; /* its first */
    enum flush_stage stage;
    enum meter_level level;
    char sqlstate[6];
};

struct flush_asides {
    struct flush_aside list[FLUSH_ASIDES_MAX];
    size_t count;
};

/* The one row of the piece that came last. False: there are too many. */
MUST_CHECK bool
flush_aside_note(struct flush_asides *asides, const struct flush_rows *rows,
                 const char sqlstate[6]);
/* One log line for each; and forgets them. */
void
flush_asides_tell(struct flush_asides *asides, const struct flush_rows *rows);

#endif
