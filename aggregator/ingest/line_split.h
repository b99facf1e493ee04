/*
 * line_split.h - the lines of an NDJSON body. Pure.
 *
 *   body -> [line_split_next] -> line 1, line 2, (blank), line 4 ...
 *
 * Lines end in LF or CRLF, the last one also at the end of the body. They
 * borrow from it: nothing is copied.
 */

#ifndef INGEST_LINE_SPLIT_H
#define INGEST_LINE_SPLIT_H

#include "base/check.h"

struct line_split {
    struct meter_str rest;
    size_t number; /* of the line handed out last, from 1 */
};

/* The next line that is not blank, without blanks around it. False: none. */
MUST_CHECK bool
line_split_next(struct line_split *split, struct meter_str *line);

#endif
