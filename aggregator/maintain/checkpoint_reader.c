/*
 * checkpoint_reader.c - a checkpoint is read; see checkpoint_file.h.
 *
 *   file -> lines -> rows, twice: to check all of it, then for the caller
 *
 * The second time goes the same way as the first: also a file that changes
 * meanwhile is noticed, at its end.
 */

#include "base/arena.h"
#include "base/buf.h"
#include "base/log.h"
#include "maintain/checkpoint_file.h"
#include "maintain/checkpoint_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_SIZE       ((size_t)64 << 10)
#define LINE_SIZE_MAX    ((size_t)64 << 20) /* the header's, with its writers */
#define ARENA_BLOCK_SIZE ((size_t)16 << 10)
#define ARENA_SIZE_MAX   ((size_t)512 << 20)

/* A line and what it says; strings of the one point into the other. */
struct checkpoint_slot {
    struct buf line;
    struct arena arena;
    struct checkpoint_found found;
};

struct checkpoint_reader {
    char *path;
    int fd;
    struct buf input;
    size_t input_at; /* taken out of input */

    struct checkpoint_slot header;
    off_t rows_at; /* where the line behind the header starts */

    struct checkpoint_slot slots[2]; /* this row, and the one before */
    int at;
    int64_t rows; /* of the file */
    int64_t rows_seen;
    bool is_end;
    struct meter_sha256_state digest;
};

enum reader_line {
    READER_LINE,
    READER_END, /* of the file */
    READER_CUT, /* a line without its end */
    READER_FAILED
};

static bool
failed(const char *what, const char *path)
{
    log_error("checkpoint", what, log_str("path", path),
              log_str("reason", strerror(errno)));
    return false;
}

/* Why it is refused; always false. */
static bool
reader_refuse(const struct checkpoint_reader *reader, const char *why)
{
    log_error("checkpoint", why, log_str("path", reader->path),
              log_int("rows_before", reader->rows_seen));
    return false;
}

static bool
input_fill(struct checkpoint_reader *reader, bool *is_end)
{
    char *to;
    ssize_t size;

    buf_consume(&reader->input, reader->input_at);
    reader->input_at = 0;
    to = buf_reserve(&reader->input, CHUNK_SIZE);
    if (to == NULL) {
        return reader_refuse(reader, "a line is too long for this program");
    }
    do {
        size = read(reader->fd, to, CHUNK_SIZE);
    } while (size < 0 && errno == EINTR);
    if (size < 0) {
        return failed("the file cannot be read", reader->path);
    }
    buf_commit(&reader->input, (size_t)size);
    *is_end = size == 0;
    return true;
}

/* The next line without its newline, as a copy. */
static enum reader_line
line_next(struct checkpoint_reader *reader, struct buf *line)
{
    size_t looked = 0;
    bool is_end = false;

    for (;;) {
        size_t size = reader->input.size - reader->input_at;
        const char *from =
            size == 0 ? NULL : reader->input.data + reader->input_at;
        const char *newline =
            size == looked ? NULL : memchr(from + looked, '\n', size - looked);

        if (newline != NULL) {
            buf_reset(line);
            buf_put(line, from, (size_t)(newline - from));
            reader->input_at += (size_t)(newline - from) + 1;
            return line->failed ? READER_FAILED : READER_LINE;
        }
        looked = size;
        if (!input_fill(reader, &is_end)) {
            return READER_FAILED;
        }
        if (is_end) {
            return size == 0 ? READER_END : READER_CUT;
        }
    }
}

static void
digest_line(struct checkpoint_reader *reader, const struct buf *line)
{
    meter_sha256_update(&reader->digest, line->data, line->size);
    meter_sha256_update(&reader->digest, "\n", 1);
}

static bool
trailer_check(struct checkpoint_reader *reader,
              const struct checkpoint_trailer *trailer)
{
    uint8_t digest[METER_DIGEST_SIZE];
    struct buf rest;
    enum reader_line found;

    meter_sha256_final(&reader->digest, digest);
    if (trailer->rows != reader->rows_seen ||
        memcmp(digest, trailer->digest, sizeof(digest)) != 0) {
        return reader_refuse(reader, "the checkpoint was changed: its digest "
                                     "is another one");
    }
    buf_init(&rest, LINE_SIZE_MAX);
    found = line_next(reader, &rest);
    buf_fini(&rest);
    if (found != READER_END) {
        return found == READER_FAILED
                   ? false
                   : reader_refuse(reader, "the checkpoint was changed: there "
                                           "is something behind its end");
    }
    reader->rows = trailer->rows;
    reader->is_end = true;
    return true;
}

/* To the next row or the end, whatever is wrong there found and told. */
static bool
reader_step(struct checkpoint_reader *reader)
{
    int next = 1 - reader->at;
    struct checkpoint_slot *slot = &reader->slots[next];

    switch (line_next(reader, &slot->line)) {
    case READER_LINE: break;
    case READER_FAILED: return false;
    default: return reader_refuse(reader, "the checkpoint is cut short");
    }
    arena_reset(&slot->arena);
    switch (checkpoint_line_read(buf_str(&slot->line), &slot->arena,
                                 &slot->found)) {
    case CHECKPOINT_LINE_ROW: break;
    case CHECKPOINT_LINE_TRAILER:
        return trailer_check(reader, &slot->found.trailer);
    default:
        return reader_refuse(reader, "the checkpoint was changed: a line is "
                                     "no row");
    }
    if (reader->rows_seen > 0 &&
        checkpoint_row_compare(&reader->slots[reader->at].found.row,
                               &slot->found.row) >= 0) {
        return reader_refuse(reader, "the rows of the checkpoint are not in "
                                     "order");
    }
    digest_line(reader, &slot->line);
    reader->rows_seen++;
    reader->at = next;
    return true;
}

static bool
header_take(struct checkpoint_reader *reader)
{
    struct checkpoint_slot *slot = &reader->header;
    enum reader_line line = line_next(reader, &slot->line);

    if (line != READER_LINE) {
        return line == READER_FAILED
                   ? false
                   : reader_refuse(reader, "the checkpoint is cut short");
    }
    switch (checkpoint_line_read(buf_str(&slot->line), &slot->arena,
                                 &slot->found)) {
    case CHECKPOINT_LINE_HEADER: break;
    case CHECKPOINT_LINE_VERSION:
        log_error("checkpoint", "the checkpoint is of another version",
                  log_str("path", reader->path),
                  log_int("version", slot->found.version),
                  log_int("version_known", CHECKPOINT_VERSION));
        return false;
    default: return reader_refuse(reader, "this is no checkpoint");
    }
    reader->rows_at = (off_t)slot->line.size + 1;
    return true;
}

/* In front of the first row. */
static bool
reader_rewind(struct checkpoint_reader *reader)
{
    buf_reset(&reader->input);
    reader->input_at = 0;
    reader->rows_seen = 0;
    reader->is_end = false;
    if (lseek(reader->fd, reader->rows_at, SEEK_SET) != reader->rows_at) {
        return failed("the file cannot be read", reader->path);
    }
    meter_sha256_init(&reader->digest);
    digest_line(reader, &reader->header.line);
    return true;
}

static void
slot_init(struct checkpoint_slot *slot)
{
    buf_init(&slot->line, LINE_SIZE_MAX);
    arena_init(&slot->arena, ARENA_BLOCK_SIZE, ARENA_SIZE_MAX);
}

static void
slot_fini(struct checkpoint_slot *slot)
{
    buf_fini(&slot->line);
    arena_fini(&slot->arena);
}

static bool
reader_open_file(struct checkpoint_reader *reader)
{
    struct stat status;

    reader->fd = open(reader->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (reader->fd < 0 || fstat(reader->fd, &status) != 0) {
        return failed("the checkpoint cannot be opened", reader->path);
    }
    if (!S_ISREG(status.st_mode)) {
        return reader_refuse(reader, "this is no checkpoint: not a file");
    }
    return true;
}

/* All of it, then back to the first row. */
static bool
reader_check(struct checkpoint_reader *reader)
{
    if (!header_take(reader) || !reader_rewind(reader)) {
        return false;
    }
    while (!reader->is_end) {
        if (!reader_step(reader)) {
            return false;
        }
    }
    return reader_rewind(reader) && reader_step(reader);
}

struct checkpoint_reader *
checkpoint_reader_open(const char *path)
{
    struct checkpoint_reader *reader = calloc(1, sizeof(*reader));

    if (reader == NULL) {
        log_error("checkpoint", "out of memory");
        return NULL;
    }
    reader->fd = -1;
    buf_init(&reader->input, LINE_SIZE_MAX + CHUNK_SIZE);
    slot_init(&reader->header);
    slot_init(&reader->slots[0]);
    slot_init(&reader->slots[1]);
    reader->path = strdup(path);
    if (reader->path == NULL) {
        log_error("checkpoint", "out of memory");
    } else if (reader_open_file(reader) && reader_check(reader)) {
        return reader;
    }
    checkpoint_reader_close(reader);
    return NULL;
}

void
checkpoint_reader_close(struct checkpoint_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    if (reader->fd >= 0) {
        close(reader->fd);
    }
    slot_fini(&reader->slots[1]);
    slot_fini(&reader->slots[0]);
    slot_fini(&reader->header);
    buf_fini(&reader->input);
    free(reader->path);
    free(reader);
}

const struct checkpoint_header *
checkpoint_reader_header(const struct checkpoint_reader *reader)
{
    return &reader->header.found.header;
}

int64_t
checkpoint_reader_rows(const struct checkpoint_reader *reader)
{
    return reader->rows;
}

const struct checkpoint_row *
checkpoint_reader_row(const struct checkpoint_reader *reader)
{
    return reader->is_end ? NULL : &reader->slots[reader->at].found.row;
}

bool
checkpoint_reader_next(struct checkpoint_reader *reader)
{
    return reader->is_end || reader_step(reader);
}

/* NULL: the reader stands on the first one. */
static const struct checkpoint_row *
row_behind(const struct checkpoint_reader *reader)
{
    if (reader->is_end) { /* the trailer has the other slot */
        return reader->rows_seen == 0 ? NULL
                                      : &reader->slots[reader->at].found.row;
    }
    return reader->rows_seen < 2 ? NULL
                                 : &reader->slots[1 - reader->at].found.row;
}

bool
checkpoint_reader_seek(struct checkpoint_reader *reader,
                       struct meter_str tenant)
{
    const struct checkpoint_row *row = row_behind(reader);

    if (row != NULL && meter_str_compare(row->tenant, tenant) >= 0 &&
        (!reader_rewind(reader) || !reader_step(reader))) {
        return false;
    }
    while ((row = checkpoint_reader_row(reader)) != NULL &&
           meter_str_compare(row->tenant, tenant) < 0) {
        if (!reader_step(reader)) {
            return false;
        }
    }
    return true;
}
