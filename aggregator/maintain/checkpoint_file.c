/*
 * checkpoint_file.c - a checkpoint is written; see checkpoint_file.h.
 *
 *   rows -> text -> temporary file -> sync -> read back -> rename -> sync
 */

#include "maintain/checkpoint_file.h"

#include "base/check.h"
#include "base/log.h"
#include "maintain/checkpoint_text.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_SIZE    ((size_t)64 << 10)
#define LINE_SIZE_MAX ((size_t)64 << 20) /* the header's, with its writers */

static bool
failed(const char *what, const char *path)
{
    log_error("checkpoint", what, log_str("path", path),
              log_str("reason", strerror(errno)));
    return false;
}

int
checkpoint_row_compare(const struct checkpoint_row *a,
                       const struct checkpoint_row *b)
{
    int order = meter_str_compare(a->tenant, b->tenant);

    if (order != 0 || a->kind != b->kind) {
        return order != 0 ? order : (int)a->kind - (int)b->kind;
    }
    order = meter_str_compare(a->name, b->name);
    if (order != 0) {
        return order;
    }
    if (a->kind == CHECKPOINT_COUNTER) {
        return memcmp(a->dimension_key, b->dimension_key, METER_DIGEST_SIZE);
    }
    return meter_str_compare(a->entity, b->entity);
}

static int
seq_compare(const void *writer, const void *seq)
{
    return memcmp(writer, ((const struct checkpoint_seq *)seq)->writer, 16);
}

int64_t
checkpoint_header_last(const struct checkpoint_header *header,
                       const uint8_t writer[16])
{
    const struct checkpoint_seq *seq =
        header->writer_count == 0
            ? NULL
            : bsearch(writer, header->writers, header->writer_count,
                      sizeof(*header->writers), seq_compare);

    return seq == NULL ? 0 : seq->last;
}


struct checkpoint_writer {
    char *path;
    char *temporary;
    int fd;
    struct buf out;
    struct meter_sha256_state digest;
    int64_t rows;
    bool ended; /* the temporary name is gone */
};

static bool
writer_flush(struct checkpoint_writer *writer)
{
    size_t at = 0;

    if (writer->out.failed) {
        log_error("checkpoint", "out of memory");
        return false;
    }
    while (at < writer->out.size) {
        ssize_t size =
            write(writer->fd, writer->out.data + at, writer->out.size - at);

        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size < 0) {
            return failed("the file cannot be written", writer->temporary);
        }
        at += (size_t)size;
    }
    buf_reset(&writer->out);
    return true;
}

/* Takes over what was put behind `from` into the digest. */
static bool
writer_took(struct checkpoint_writer *writer, size_t from)
{
    if (!writer->out.failed) {
        meter_sha256_update(&writer->digest, writer->out.data + from,
                            writer->out.size - from);
    }
    return (!writer->out.failed && writer->out.size < CHUNK_SIZE) ||
           writer_flush(writer);
}

/* The lock tells a file that is being written from one that was left. */
static bool
writer_open(struct checkpoint_writer *writer)
{
    writer->fd = mkostemp(writer->temporary, O_CLOEXEC);
    if (writer->fd < 0) {
        return failed("the file cannot be made", writer->temporary);
    }
    if (flock(writer->fd, LOCK_EX | LOCK_NB) != 0 ||
        fchmod(writer->fd, 0640) != 0) {
        return failed("the file cannot be locked", writer->temporary);
    }
    return true;
}

struct checkpoint_writer *
checkpoint_writer_create(const char *path,
                         const struct checkpoint_header *header)
{
    struct checkpoint_writer *writer = calloc(1, sizeof(*writer));

    if (writer == NULL) {
        log_error("checkpoint", "out of memory");
        return NULL;
    }
    writer->fd = -1;
    buf_init(&writer->out, LINE_SIZE_MAX);
    writer->path = strdup(path);
    if (writer->path == NULL ||
        asprintf(&writer->temporary, "%s" CHECKPOINT_TEMPORARY "XXXXXX", path) <
            0) {
        writer->temporary = NULL;
        log_error("checkpoint", "out of memory");
        checkpoint_writer_destroy(writer);
        return NULL;
    }
    meter_sha256_init(&writer->digest);
    checkpoint_put_header(&writer->out, header);
    if (!writer_open(writer) || !writer_took(writer, 0)) {
        checkpoint_writer_destroy(writer);
        return NULL;
    }
    return writer;
}

bool
checkpoint_writer_put(struct checkpoint_writer *writer,
                      const struct checkpoint_row *row)
{
    size_t from = writer->out.size;

    CRASH_POINT("checkpoint_row");
    checkpoint_put_row(&writer->out, row);
    writer->rows++;
    return writer_took(writer, from);
}

int64_t
checkpoint_writer_rows(const struct checkpoint_writer *writer)
{
    return writer->rows;
}

/* The name is on disk only when the directory is. */
static bool
directory_sync(const char *path)
{
    char *copy = strdup(path);
    int fd = copy == NULL
                 ? -1
                 : open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_good = fd >= 0 && fsync(fd) == 0;

    if (!is_good) {
        failed("the directory cannot be synced", path);
    }
    if (fd >= 0) {
        close(fd);
    }
    free(copy);
    return is_good;
}

/* What is on disk is what a reader will accept. */
static bool
writer_verify(const struct checkpoint_writer *writer)
{
    struct checkpoint_reader *reader =
        checkpoint_reader_open(writer->temporary);
    bool is_good = reader != NULL;

    checkpoint_reader_close(reader);
    return is_good;
}

bool
checkpoint_writer_end(struct checkpoint_writer *writer)
{
    struct checkpoint_trailer trailer = {.rows = writer->rows};

    meter_sha256_final(&writer->digest, trailer.digest);
    checkpoint_put_trailer(&writer->out, &trailer);
    if (!writer_flush(writer)) {
        return false;
    }
    CRASH_POINT("checkpoint_written");
    if (fsync(writer->fd) != 0) {
        return failed("the file cannot be synced", writer->temporary);
    }
    if (!writer_verify(writer)) {
        return false;
    }
    CRASH_POINT("checkpoint_synced");
    if (rename(writer->temporary, writer->path) != 0) {
        return failed("the file cannot get its name", writer->path);
    }
    writer->ended = true;
    return directory_sync(writer->path);
}

void
checkpoint_writer_destroy(struct checkpoint_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    if (writer->fd >= 0) {
        if (!writer->ended) {
            unlink(writer->temporary);
        }
        close(writer->fd);
    }
    buf_fini(&writer->out);
    free(writer->temporary);
    free(writer->path);
    free(writer);
}
