/*
 * checkpoint_text.h - the lines of a checkpoint file. Pure.
 *
 *   header, rows, trailer <-> JSON, one object a line
 *
 * Strict: what is read holds every member and no other, and each value is
 * exactly the one that was written.
 */

#ifndef MAINTAIN_CHECKPOINT_TEXT_H
#define MAINTAIN_CHECKPOINT_TEXT_H

#include "base/arena.h"
#include "base/buf.h"
#include "maintain/checkpoint_row.h"

#define CHECKPOINT_VERSION 1

struct checkpoint_trailer {
    int64_t rows;
    uint8_t digest[METER_DIGEST_SIZE]; /* SHA-256 of all bytes before it */
};

/* Each with the newline. */
void
checkpoint_put_header(struct buf *out, const struct checkpoint_header *header);
void checkpoint_put_row(struct buf *out, const struct checkpoint_row *row);
void checkpoint_put_trailer(struct buf *out,
                            const struct checkpoint_trailer *trailer);

enum checkpoint_line {
    CHECKPOINT_LINE_HEADER,
    CHECKPOINT_LINE_ROW,
    CHECKPOINT_LINE_TRAILER,
    CHECKPOINT_LINE_VERSION, /* a header of another version */
    CHECKPOINT_LINE_BAD
};

/* The one that was found. */
struct checkpoint_found {
    struct checkpoint_header header;
    struct checkpoint_row row;
    struct checkpoint_trailer trailer;
    int64_t version; /* of the header */
};

/*
 * A line without its newline. What is found points into the arena and the
 * line. BAD also when memory is out.
 */
enum checkpoint_line
checkpoint_line_read(struct meter_str line, struct arena *arena,
                     struct checkpoint_found *out);

#endif
