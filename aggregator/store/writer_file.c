/*
 * writer_file.c - the writer id of a lane: a random UUID in a locked file.
 *
 *   lane -> [writer_file] -> state_dir/writer-0: "xxxxxxxx-xxxx-4...\n"
 *
 * A file whose content is no UUID is left alone and refused: an id that was
 * in use must not silently become another one.
 */

#include "store/writer_file.h"

#include "base/log.h"
#include "meter_digest.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define UUID_TEXT_SIZE 36

static bool lock(int fd, const char *path);
static bool is_ours(int fd, const char *path);
static bool
draw(int fd, const char *state_dir, const char *path, uint8_t writer[16]);
static bool parse(const char *text, ssize_t size, uint8_t writer[16]);
static void format(const uint8_t writer[16], char text[UUID_TEXT_SIZE + 2]);
static bool sync_directory(const char *path);
static int hex_value(char digit);
static bool failed(const char *what, const char *path);


bool
writer_file_open(const char *state_dir, int index, int *fd, uint8_t writer[16])
{
    char path[PATH_MAX];
    char text[UUID_TEXT_SIZE + 8];
    bool ok = false;

    if (snprintf(path, sizeof(path), "%s/writer-%d", state_dir, index) >=
        (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return failed("state directory", state_dir);
    }
    *fd =
        open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
    if (*fd < 0) {
        return failed("writer file cannot be opened", path);
    }
    if (!lock(*fd, path) || !is_ours(*fd, path)) {
        goto done;
    }

    ssize_t size = pread(*fd, text, sizeof(text), 0);

    if (size < 0) {
        failed("writer file cannot be read", path);
    } else if (size == 0) {
        ok = draw(*fd, state_dir, path, writer);
    } else if (parse(text, size, writer)) {
        ok = true;
    } else {
        log_error("lane", "writer file holds no UUID", log_str("path", path));
    }

done:
    if (!ok) {
        close(*fd);
        *fd = -1;
    }
    return ok;
}


static bool
lock(int fd, const char *path)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        return true;
    }
    if (errno == EWOULDBLOCK) {
        log_error("lane", "another meterd uses this state directory",
                  log_str("path", path));
        return false;
    }
    return failed("writer file cannot be locked", path);
}


/* A plain file of this user, and still the one under that name. */
static bool
is_ours(int fd, const char *path)
{
    struct stat held;
    struct stat named;

    if (fstat(fd, &held) != 0 || lstat(path, &named) != 0) {
        return failed("writer file cannot be looked at", path);
    }
    if (!S_ISREG(held.st_mode) || held.st_uid != geteuid() ||
        held.st_dev != named.st_dev || held.st_ino != named.st_ino) {
        log_error("lane", "writer file is not a plain file of this user",
                  log_str("path", path));
        return false;
    }
    return true;
}


/* A new id, on disk before it is used. */
static bool
draw(int fd, const char *state_dir, const char *path, uint8_t writer[16])
{
    char text[UUID_TEXT_SIZE + 2];

    if (getrandom(writer, 16, 0) != 16) {
        return failed("no random bytes for a writer id", path);
    }
    writer[6] = (uint8_t)((writer[6] & 0x0f) | 0x40); /* version 4 */
    writer[8] = (uint8_t)((writer[8] & 0x3f) | 0x80); /* RFC 4122 */
    format(writer, text);
    if (pwrite(fd, text, UUID_TEXT_SIZE + 1, 0) != UUID_TEXT_SIZE + 1 ||
        fsync(fd) != 0 || !sync_directory(state_dir)) {
        return failed("writer file cannot be written", path);
    }
    log_info("lane", "new writer",
             log_bytes("writer", (struct meter_str){text, UUID_TEXT_SIZE}));
    return true;
}


static bool
parse(const char *text, ssize_t size, uint8_t writer[16])
{
    size_t at = 0;

    if (size != UUID_TEXT_SIZE + 1 || text[UUID_TEXT_SIZE] != '\n') {
        return false;
    }
    for (int i = 0; i < 16; i++) {
        if (at == 8 || at == 13 || at == 18 || at == 23) {
            if (text[at++] != '-') {
                return false;
            }
        }

        int high = hex_value(text[at]);
        int low = hex_value(text[at + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        writer[i] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    return true;
}


static void
format(const uint8_t writer[16], char text[UUID_TEXT_SIZE + 2])
{
    char hex[33];

    meter_hex(writer, 16, hex);
    snprintf(text, UUID_TEXT_SIZE + 2, "%.8s-%.4s-%.4s-%.4s-%.12s\n", hex,
             hex + 8, hex + 12, hex + 16, hex + 20);
}


static bool
sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        return false;
    }

    bool ok = fsync(fd) == 0;

    close(fd);
    return ok;
}


static int
hex_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}


static bool
failed(const char *what, const char *path)
{
    log_error("lane", what, log_str("path", path),
              log_str("error", strerror(errno)));
    return false;
}
