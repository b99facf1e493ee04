/*
 * replay_resume.c - see replay_resume.h.
 *
 *   edgemeter replay 1
 *   file SIZE NANOSECONDS DIGEST
 *   options HASH
 *   database EPOCH WRITER BATCH
 *   done OFFSET LINE REJECTS
 *   counts ACCEPTED DUPLICATES CONFLICTS REJECTED
 *   sum HASH-OF-ALL-ABOVE
 */

#include "cmd/replay_resume.h"

#include "base/crash_point.h"
#include "meter_hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD_SIZE ((size_t)64 << 10)
#define NAME_SIZE 16 /* bytes of a digest, in hexadecimal */
#define SUM_SEED  0x5245504c4159u


/* ---- the file --------------------------------------------------------- */

bool
replay_file_mark(int file, struct replay_file_mark *out)
{
    static char head[HEAD_SIZE];
    struct stat found;
    size_t size = 0;

    if (fstat(file, &found) != 0) {
        return false;
    }
    while (size < HEAD_SIZE) {
        ssize_t got = pread(file, head + size, HEAD_SIZE - size, (off_t)size);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return false;
        }
        if (got == 0) {
            break;
        }
        size += (size_t)got;
    }
    out->size = found.st_size;
    out->changed_ns =
        found.st_mtim.tv_sec * INT64_C(1000000000) + found.st_mtim.tv_nsec;
    meter_sha256(head, size, out->head);
    return true;
}

bool
replay_resume_path(const char *directory, const char *path, char out[PATH_MAX])
{
    uint8_t digest[METER_DIGEST_SIZE];
    char name[2 * NAME_SIZE + 1];
    int size;

    meter_sha256(path, strlen(path), digest);
    meter_hex(digest, NAME_SIZE, name);
    size = snprintf(out, PATH_MAX, "%s/%s.resume", directory, name);

    /* Another suffix has to fit, too. */
    return size > 0 && size < PATH_MAX - 8;
}


/* ---- text ------------------------------------------------------------- */

size_t
replay_resume_format(const struct replay_resume *resume,
                     char out[REPLAY_RESUME_SIZE])
{
    char head[2 * METER_DIGEST_SIZE + 1];
    char writer[2 * sizeof(resume->writer) + 1];
    const int64_t *counts = resume->counts;
    int size;

    meter_hex(resume->file.head, sizeof(resume->file.head), head);
    meter_hex(resume->writer, sizeof(resume->writer), writer);
    size = snprintf(
        out, REPLAY_RESUME_SIZE,
        "edgemeter replay 1\n"
        "file %" PRId64 " %" PRId64 " %s\n"
        "options %016" PRIx64 "\n"
        "database %016" PRIx64 " %s %" PRId64 "\n"
        "done %" PRId64 " %" PRId64 " %" PRId64 "\n"
        "counts %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n",
        resume->file.size, resume->file.changed_ns, head, resume->options,
        resume->db_epoch, writer, resume->batch, resume->offset,
        resume->line_next, resume->rejects_size, counts[METER_VERDICT_ACCEPTED],
        counts[METER_VERDICT_DUPLICATE], counts[METER_VERDICT_CONFLICT],
        counts[METER_VERDICT_REJECTED]);
    CHECK(size > 0 && size < REPLAY_RESUME_SIZE - 32);
    size += snprintf(out + size, 32, "sum %016" PRIx64 "\n",
                     meter_hash(out, (size_t)size, SUM_SEED));
    return (size_t)size;
}

/* The next word of the text, without the blanks around it; NULL: none. */
static char *
word_next(char **at)
{
    char *word = strsep(at, " \n");

    return word == NULL || *word == '\0' ? NULL : word;
}

/* False: the next word is another one. */
static bool
word_pass(char **at, const char *wanted)
{
    const char *word = word_next(at);

    return word != NULL && strcmp(word, wanted) == 0;
}

static int64_t
number_next(char **at)
{
    const char *word = word_next(at);

    return word == NULL ? 0 : strtoll(word, NULL, 10);
}

static uint64_t
hash_next(char **at)
{
    const char *word = word_next(at);

    return word == NULL ? 0 : strtoull(word, NULL, 16);
}

static void
bytes_next(char **at, uint8_t *out, size_t size)
{
    const char *word = word_next(at);

    for (size_t i = 0; i < size && word != NULL && strlen(word) == 2 * size;
         i++) {
        char pair[3] = {word[2 * i], word[2 * i + 1], '\0'};

        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
}

static bool
words_read(char *at, struct replay_resume *out)
{
    bool is_good = word_pass(&at, "edgemeter") && word_pass(&at, "replay") &&
                   word_pass(&at, "1") && word_pass(&at, "file");

    out->file.size = number_next(&at);
    out->file.changed_ns = number_next(&at);
    bytes_next(&at, out->file.head, sizeof(out->file.head));
    is_good = is_good && word_pass(&at, "options");
    out->options = hash_next(&at);
    is_good = is_good && word_pass(&at, "database");
    out->db_epoch = hash_next(&at);
    bytes_next(&at, out->writer, sizeof(out->writer));
    out->batch = number_next(&at);
    is_good = is_good && word_pass(&at, "done");
    out->offset = number_next(&at);
    out->line_next = number_next(&at);
    out->rejects_size = number_next(&at);
    is_good = is_good && word_pass(&at, "counts");
    out->counts[METER_VERDICT_ACCEPTED] = number_next(&at);
    out->counts[METER_VERDICT_DUPLICATE] = number_next(&at);
    out->counts[METER_VERDICT_CONFLICT] = number_next(&at);
    out->counts[METER_VERDICT_REJECTED] = number_next(&at);
    return is_good;
}

/* Whole is what we would write again to the byte, the sum included. */
bool
replay_resume_parse(struct meter_str text, struct replay_resume *out)
{
    char words[REPLAY_RESUME_SIZE];
    char again[REPLAY_RESUME_SIZE];

    *out = (struct replay_resume){.offset = 0};
    if (text.size == 0 || text.size >= sizeof(words)) {
        return false;
    }
    memcpy(words, text.data, text.size);
    words[text.size] = '\0';
    return words_read(words, out) &&
           replay_resume_format(out, again) == text.size &&
           memcmp(again, text.data, text.size) == 0;
}


/* ---- the disk --------------------------------------------------------- */

enum replay_resume_found
replay_resume_read(const char *path, struct replay_resume *out)
{
    char text[REPLAY_RESUME_SIZE];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size;

    if (file < 0) {
        return errno == ENOENT ? REPLAY_RESUME_NONE : REPLAY_RESUME_FAILED;
    }
    size = read(file, text, sizeof(text));
    close(file);
    if (size < 0) {
        return REPLAY_RESUME_FAILED;
    }
    return replay_resume_parse((struct meter_str){text, (size_t)size}, out)
               ? REPLAY_RESUME_FOUND
               : REPLAY_RESUME_DAMAGED;
}

static bool
text_write(int file, const char *text, size_t size)
{
    ssize_t done = write(file, text, size);

    if (done >= 0 && (size_t)done != size) {
        errno = ENOSPC;
        return false;
    }
    return done >= 0 && fdatasync(file) == 0;
}

bool
replay_resume_write(const char *path, const struct replay_resume *resume)
{
    char text[REPLAY_RESUME_SIZE];
    char new_path[PATH_MAX];
    size_t size = replay_resume_format(resume, text);
    bool is_good;
    int file;

    snprintf(new_path, sizeof(new_path), "%s.new", path);
    file = open(new_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) {
        return false;
    }
    is_good = text_write(file, text, size);
    close(file);
    CRASH_POINT("replay_in_resume");
    return is_good && rename(new_path, path) == 0;
}
