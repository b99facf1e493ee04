/*
 * replay_resume.h - how far a replay has come, on disk.
 *
 *   after each commit -> [replay_resume] -> stateDir/backfill/NAME.resume
 *
 * NAME is drawn from the path of the file that is replayed. What it says is
 * always true: it is written, as a whole, only once everything up to its
 * offset is committed. Lost or damaged, it costs time and no event: the ids
 * of the file make a second run harmless.
 */

#ifndef CMD_REPLAY_RESUME_H
#define CMD_REPLAY_RESUME_H

#include "base/check.h"
#include "meter_digest.h"
#include "meter_types.h"

#include <limits.h>
#include <sys/stat.h>

/* The file as it was at the start. */
struct replay_file_mark {
    int64_t size;
    int64_t changed_ns;
    uint8_t head[METER_DIGEST_SIZE]; /* of its first bytes */
};

struct replay_resume {
    struct replay_file_mark file;
    uint64_t options; /* that decide how the file is read */

    /* What was committed to: its incarnation, our writer, its batches. */
    uint64_t db_epoch;
    uint8_t writer[16];
    int64_t batch;

    int64_t offset;    /* everything before this byte is done */
    int64_t line_next; /* that begins there */
    int64_t counts[METER_VERDICT_COUNT];
    int64_t rejects_size;
};

/* The mark of an open file. False: errno. */
MUST_CHECK bool replay_file_mark(int file, struct replay_file_mark *out);

/* Where the resume of this file lies; path is absolute. False: too long. */
MUST_CHECK bool
replay_resume_path(const char *directory, const char *path, char out[PATH_MAX]);

enum replay_resume_found {
    REPLAY_RESUME_NONE,
    REPLAY_RESUME_FOUND,
    REPLAY_RESUME_DAMAGED, /* or of another version */
    REPLAY_RESUME_FAILED   /* errno */
};

MUST_CHECK enum replay_resume_found
replay_resume_read(const char *path, struct replay_resume *out);
/* In place of the one before, or not at all. False: errno. */
MUST_CHECK bool
replay_resume_write(const char *path, const struct replay_resume *resume);

#define REPLAY_RESUME_SIZE 1024 /* as text, with the NUL */

/* Pure: the text of a resume, and back. */
size_t replay_resume_format(const struct replay_resume *resume,
                            char out[REPLAY_RESUME_SIZE]);
MUST_CHECK bool
replay_resume_parse(struct meter_str text, struct replay_resume *out);

#endif
