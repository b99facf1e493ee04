/*
 * checkpoint_dir.c - see checkpoint_dir.h.
 */

#include "maintain/checkpoint_dir.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "maintain/checkpoint_file.h"
#include "meter_time.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_HEAD      "checkpoint-"
#define NAME_TAIL      ".ndjson"
#define RANDOM_SIZE    6  /* behind CHECKPOINT_TEMPORARY */
#define LEFT_SECONDS   60 /* a file is made, then locked */
#define TIMES_SIZE_MAX ((size_t)64 << 20)


/* 2026-09-01T12:00:00.000000Z without its signs and its fraction. */
void
checkpoint_name_format(int64_t created_us, char out[CHECKPOINT_NAME_SIZE])
{
    char text[METER_TIME_TEXT_SIZE + 1];

    meter_time_format(created_us, text);
    snprintf(out, CHECKPOINT_NAME_SIZE,
             NAME_HEAD "%.4s%.2s%.2sT%.2s%.2s%.2sZ" NAME_TAIL, text, text + 5,
             text + 8, text + 11, text + 14, text + 17);
}

bool
checkpoint_name_parse(const char *name, int64_t *created_us)
{
    char text[METER_TIME_TEXT_SIZE + 1];
    char again[CHECKPOINT_NAME_SIZE];
    const char *digits = name + sizeof(NAME_HEAD) - 1;

    if (strlen(name) != CHECKPOINT_NAME_SIZE - 1) {
        return false;
    }
    snprintf(text, sizeof(text), "%.4s-%.2s-%.2sT%.2s:%.2s:%.2sZ", digits,
             digits + 4, digits + 6, digits + 9, digits + 11, digits + 13);
    if (!meter_time_parse((struct meter_str){text, strlen(text)}, created_us)) {
        return false;
    }
    checkpoint_name_format(*created_us, again);
    return strcmp(name, again) == 0;
}

bool
checkpoint_name_is_temporary(const char *name)
{
    const char *mark = name + CHECKPOINT_NAME_SIZE - 1;
    const char *end = mark + sizeof(CHECKPOINT_TEMPORARY) - 1;
    char front[CHECKPOINT_NAME_SIZE];
    int64_t created_us;

    if (strlen(name) != CHECKPOINT_NAME_SIZE - 1 +
                            sizeof(CHECKPOINT_TEMPORARY) - 1 + RANDOM_SIZE) {
        return false;
    }
    memcpy(front, name, sizeof(front) - 1);
    front[sizeof(front) - 1] = '\0';
    if (!checkpoint_name_parse(front, &created_us) ||
        strncmp(mark, CHECKPOINT_TEMPORARY, sizeof(CHECKPOINT_TEMPORARY) - 1) !=
            0) {
        return false;
    }
    while (isalnum((unsigned char)*end)) {
        end++;
    }
    return *end == '\0';
}


/* ---- removing --------------------------------------------------------- */

/* Gone already is as good: another node looks after the same directory. */
static bool
file_remove(int directory, const char *name)
{
    if (unlinkat(directory, name, 0) == 0 || errno == ENOENT) {
        return true;
    }
    log_error("checkpoint", "an old file cannot be removed",
              log_str("file", name), log_str("reason", strerror(errno)));
    return false;
}

/* Whoever writes it holds its lock. */
static bool
temporary_remove(int directory, const char *name)
{
    int fd =
        openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
    struct stat status;
    bool is_good = true;

    if (fd < 0) {
        return true;
    }
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
        clock_wall_us() / METER_TIME_SECOND - status.st_mtime >= LEFT_SECONDS &&
        flock(fd, LOCK_EX | LOCK_NB) == 0) {
        is_good = file_remove(directory, name);
    }
    close(fd);
    return is_good;
}

static int
newest_first(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;

    return left < right ? 1 : left > right ? -1 : 0;
}

/* Times of all checkpoints into `times`; temporaries go on the way. */
static bool
directory_read(DIR *directory, struct buf *times)
{
    const struct dirent *entry;
    int64_t created_us;
    bool is_good = true;

    while ((entry = readdir(directory)) != NULL) {
        if (checkpoint_name_parse(entry->d_name, &created_us)) {
            buf_put(times, &created_us, sizeof(created_us));
        } else if (checkpoint_name_is_temporary(entry->d_name) &&
                   !temporary_remove(dirfd(directory), entry->d_name)) {
            is_good = false;
        }
    }
    if (times->failed) {
        log_error("checkpoint", "out of memory");
    }
    return is_good && !times->failed;
}

bool
checkpoint_dir_keep(const char *path, size_t keep)
{
    DIR *directory = opendir(path);
    char name[CHECKPOINT_NAME_SIZE];
    struct buf times;
    bool is_good;
    size_t count;

    if (directory == NULL) {
        log_error("checkpoint", "the directory cannot be read",
                  log_str("path", path), log_str("reason", strerror(errno)));
        return false;
    }
    buf_init(&times, TIMES_SIZE_MAX);
    is_good = directory_read(directory, &times);
    count = times.size / sizeof(int64_t);
    if (count > keep) {
        int64_t *all = (int64_t *)(void *)times.data;

        qsort(all, count, sizeof(*all), newest_first);
        for (size_t i = keep; i < count; i++) {
            checkpoint_name_format(all[i], name);
            is_good = file_remove(dirfd(directory), name) && is_good;
        }
    }
    buf_fini(&times);
    closedir(directory);
    return is_good;
}
