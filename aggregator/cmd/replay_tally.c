/*
 * replay_tally.c - what became of the lines of a file: counted and told.
 *
 *   verdict of a line -> [replay_tally] -> counts; rejects file, or stdout
 *
 * The replay and its dry run count with it. The rejects file has a line for
 * each conflict and each rejected record: number of the line, verdict and
 * reason, then the record as it stood in the file, with tabs between;
 * `cut -f4-` gives the records back. Without such a file the first
 * TALLY_TOLD_MAX are told on stdout.
 */

#include "cmd/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define PENDING_MAX ((size_t)64 << 20)

void
replay_tally_init(struct replay_tally *tally, const char *path)
{
    *tally = (struct replay_tally){.rejects = -1, .rejects_path = path};
    buf_init(&tally->pending, PENDING_MAX);
}

void
replay_tally_fini(struct replay_tally *tally)
{
    if (tally->rejects >= 0) {
        close(tally->rejects);
    }
    buf_fini(&tally->pending);
}

static bool
tally_fail(struct replay_tally *tally, const char *why)
{
    fprintf(stderr, "meterd replay: %s: %s\n", tally->rejects_path, why);
    tally->has_failed = true;
    return false;
}

static bool
tally_is_same_file(const struct stat *one, int input)
{
    struct stat other;

    return fstat(input, &other) == 0 && one->st_dev == other.st_dev &&
           one->st_ino == other.st_ino;
}

/* A pipe or a terminal takes what comes and cannot go back. */
static bool
tally_rejects_place(struct replay_tally *tally, int64_t from, int input)
{
    struct stat found;

    if (fstat(tally->rejects, &found) != 0) {
        return tally_fail(tally, strerror(errno));
    }
    if (!S_ISREG(found.st_mode)) {
        return true;
    }
    if (tally_is_same_file(&found, input)) {
        return tally_fail(tally, "this is the file to be replayed");
    }
    if (found.st_size < from) {
        return tally_fail(tally,
                          "not the rejects of the interrupted replay; name "
                          "that file, or start over with --restart");
    }
    if (ftruncate(tally->rejects, from) != 0 ||
        lseek(tally->rejects, 0, SEEK_END) < 0) {
        return tally_fail(tally, strerror(errno));
    }
    return true;
}

bool
replay_tally_open(struct replay_tally *tally, int64_t from, int input)
{
    if (tally->rejects_path == NULL) {
        return true;
    }
    tally->rejects =
        open(tally->rejects_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    if (tally->rejects < 0) {
        return tally_fail(tally, strerror(errno));
    }
    tally->rejects_size = from;
    return tally_rejects_place(tally, from, input);
}

bool
replay_tally_flush(struct replay_tally *tally)
{
    size_t done = 0;

    if (tally->pending.failed) {
        return tally_fail(tally, "out of memory");
    }
    while (done < tally->pending.size) {
        ssize_t size = write(tally->rejects, tally->pending.data + done,
                             tally->pending.size - done);

        if (size < 0 && errno != EINTR) {
            return tally_fail(tally, strerror(errno));
        }
        done += size < 0 ? 0 : (size_t)size;
    }
    if (done > 0 && fdatasync(tally->rejects) != 0 && errno != EINVAL &&
        errno != EROFS) {
        return tally_fail(tally, strerror(errno)); /* a pipe needs none */
    }
    tally->rejects_size += (int64_t)done;
    buf_reset(&tally->pending);
    return true;
}

static void
tally_rejects_put(struct replay_tally *tally, enum meter_verdict verdict,
                  int64_t line, const char *reason, struct meter_str text)
{
    buf_printf(&tally->pending, "%lld\t%s\t", (long long)line,
               meter_verdict_name(verdict));
    buf_put_printable(&tally->pending,
                      (struct meter_str){reason, strlen(reason)});
    buf_put_byte(&tally->pending, '\t');
    buf_put_str(&tally->pending, text);
    buf_put_byte(&tally->pending, '\n');
}

static void
tally_line_tell(struct replay_tally *tally, enum meter_verdict verdict,
                int64_t line, const char *reason)
{
    struct buf words;

    if (++tally->told > TALLY_TOLD_MAX) {
        if (tally->told == TALLY_TOLD_MAX + 1) {
            puts("more such lines are not shown; --rejects FILE keeps them");
        }
        return;
    }
    if (tally->progress != NULL) {
        progress_end(tally->progress);
    }
    buf_init(&words, PENDING_MAX);
    buf_put_printable(&words, (struct meter_str){reason, strlen(reason)});
    buf_put_byte(&words, 0);
    printf("line %lld: %s: %s\n", (long long)line, meter_verdict_name(verdict),
           words.failed ? "" : words.data);
    buf_fini(&words);
    fflush(stdout);
}

void
replay_tally_add(struct replay_tally *tally, enum meter_verdict verdict,
                 int64_t line, const char *reason, struct meter_str text)
{
    tally->counts[verdict]++;
    if (verdict != METER_VERDICT_CONFLICT &&
        verdict != METER_VERDICT_REJECTED) {
        return;
    }
    reason = reason == NULL ? "" : reason;
    if (tally->rejects >= 0) {
        tally_rejects_put(tally, verdict, line, reason, text);
    } else {
        tally_line_tell(tally, verdict, line, reason);
    }
}

bool
replay_tally_is_clean(const struct replay_tally *tally)
{
    return tally->counts[METER_VERDICT_CONFLICT] == 0 &&
           tally->counts[METER_VERDICT_REJECTED] == 0;
}

void
replay_tally_tell(const struct replay_tally *tally, const char *doing)
{
    const int64_t *counts = tally->counts;

    printf("%s: %lld accepted, %lld duplicates, %lld conflicts, %lld "
           "rejected\n",
           doing, (long long)counts[METER_VERDICT_ACCEPTED],
           (long long)counts[METER_VERDICT_DUPLICATE],
           (long long)counts[METER_VERDICT_CONFLICT],
           (long long)counts[METER_VERDICT_REJECTED]);
}
