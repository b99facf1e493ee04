/*
 * adopt.c - see adopt.h.
 *
 * Looking at a ring takes its lock for an instant where nobody has it; a
 * worker that tries in that instant tries again a second later. Live words
 * are read from the file, without a map.
 */

#include "edge/adopt.h"

#include "base/clock.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "base/metrics.h"
#include "edge/adoption.h"
#include "edge/list.h"
#include "meter_crash.h"
#include "meter_outbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MS      1000
#define STEP_MS      1
#define RING_PREFIX  "ring-"
#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"

/* A ring without an owner, or one that we drain. */
struct orphan {
    struct adopt *adopt;
    struct list_node node;
    struct adoption *adoption; /* NULL: not ours, or not yet */
    bool is_verifying;         /* its adoption has not started */
    uint64_t since_ms;         /* first seen so */
    uint64_t seen;             /* number of the last look that found it */
    bool is_foreign;           /* left alone; said so */
    bool is_unreadable;        /* foreign because it cannot be opened */
    bool is_removed;           /* from under our adoption; said so */
    dev_t device;
    ino_t inode;
    char name[NAME_MAX + 1];
};

struct adopt {
    const char *directory;
    struct adoption_place place;
    uint64_t wait_ms;
    uv_timer_t timer;
    uv_timer_t step; /* runs while a ring is verified */
    int handles;     /* that libuv still has */
    bool is_stopped;
    bool is_unreadable; /* said so */
    uint64_t look;      /* number of the look under way */
    struct list orphans;
    size_t adoptions;
};

static void adopt_look_cb(uv_timer_t *timer);
static void adopt_step_cb(uv_timer_t *timer);


/* ---- orphans --------------------------------------------------------- */

static struct orphan *
orphan_find(const struct adopt *adopt, const char *name)
{
    for (struct list_node *at = adopt->orphans.first; at != NULL;
         at = at->next) {
        struct orphan *orphan = at->item;

        if (strcmp(orphan->name, name) == 0) {
            return orphan;
        }
    }
    return NULL;
}

static struct orphan *
orphan_add(struct adopt *adopt, const char *name)
{
    struct orphan *orphan;

    if (adopt->orphans.count == ADOPT_RINGS_MAX) {
        return NULL;
    }
    orphan = calloc(1, sizeof(*orphan));
    if (orphan != NULL) {
        orphan->adopt = adopt;
        snprintf(orphan->name, sizeof(orphan->name), "%s", name);
        list_add(&adopt->orphans, &orphan->node, orphan);
    }
    return orphan;
}

static void
orphan_release(struct orphan *orphan)
{
    if (orphan->adoption != NULL) {
        adoption_release(orphan->adoption);
        orphan->adoption = NULL;
        orphan->is_verifying = false;
        orphan->adopt->adoptions--;
    }
}

static void
orphan_end_cb(void *owner, enum adoption_end end)
{
    struct orphan *orphan = owner;

    orphan_release(orphan);
    orphan->is_foreign = end == ADOPTION_REFUSED;
    orphan->since_ms = clock_mono_ms();
}

static void
orphan_free(struct orphan *orphan)
{
    orphan_release(orphan);
    list_remove(&orphan->node);
    free(orphan);
}

static void
orphan_adopt(struct orphan *orphan)
{
    struct adopt *adopt = orphan->adopt;
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", adopt->directory, orphan->name);
    switch (adoption_claim(&adopt->place, path, orphan_end_cb, orphan,
                           &orphan->adoption)) {
    case ADOPTION_CLAIMED:
        adopt->adoptions++;
        orphan->is_verifying = true;
        CHECK(uv_timer_start(&adopt->step, adopt_step_cb, 0, 0) == 0);
        break;
    case ADOPTION_OWNED: break; /* the next look tells */
    case ADOPTION_FOREIGN: orphan->is_foreign = true; break;
    }
}

/* One ring at a time: a large one takes seconds, and others are served. */
static void
adopt_step_cb(uv_timer_t *timer)
{
    struct adopt *adopt = timer->data;
    struct list_node *at = adopt->orphans.first;
    struct orphan *orphan;

    while (at != NULL && !((struct orphan *)at->item)->is_verifying) {
        at = at->next;
    }
    if (at == NULL) {
        return;
    }
    CHECK(uv_timer_start(&adopt->step, adopt_step_cb, STEP_MS, 0) == 0);
    orphan = at->item;
    if (!adoption_verify(orphan->adoption)) {
        orphan->is_verifying = false;
        adoption_start(orphan->adoption);
    }
}


/* ---- looking --------------------------------------------------------- */

/* True: it holds something, and nobody has it. */
static bool
ring_is_orphaned(int fd)
{
    union {
        char bytes[METER_RING_HEADER_SIZE];
        uint64_t words[METER_RING_HEADER_SIZE / sizeof(uint64_t)];
    } page;
    struct meter_outbox_live live;

    if (pread(fd, page.bytes, sizeof(page), 0) != (ssize_t)sizeof(page)) {
        return false;
    }
    /* Not to be had while its owner works, or died at work. */
    if (meter_outbox_snapshot(page.bytes, &live) &&
        live.busy == METER_OUTBOX_SPARE) {
        return false;
    }
    return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* NULL: there are too many. */
static struct orphan *
adopt_found(struct adopt *adopt, const char *name, const struct stat *file)
{
    struct orphan *orphan = orphan_find(adopt, name);

    if (orphan == NULL) {
        orphan = orphan_add(adopt, name);
        if (orphan == NULL) {
            return NULL;
        }
    }
    if (orphan->since_ms == 0 || orphan->device != file->st_dev ||
        orphan->inode != file->st_ino) {
        orphan->since_ms = clock_mono_ms();
        orphan->is_foreign = false;
        orphan->is_unreadable = false;
        orphan->device = file->st_dev;
        orphan->inode = file->st_ino;
    }
    orphan->seen = adopt->look;
    return orphan;
}

/* Whoever sets it up should know: it may be full of records. */
static void
adopt_unreadable(struct adopt *adopt, int directory, const char *name)
{
    const char *reason = strerror(errno);
    struct orphan *orphan;
    struct stat file;

    if (fstatat(directory, name, &file, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(file.st_mode)) {
        return;
    }
    orphan = adopt_found(adopt, name, &file);
    if (orphan != NULL && !orphan->is_unreadable) {
        orphan->is_foreign = true;
        orphan->is_unreadable = true;
        log_error("adopt", "a ring file cannot be opened",
                  log_str("path", adopt->directory), log_str("name", name),
                  log_str("reason", reason));
    }
}

static void
adopt_look_at(struct adopt *adopt, int directory, const char *name)
{
    struct orphan *known = orphan_find(adopt, name);
    struct stat file;
    int fd;

    if (known != NULL && known->adoption != NULL) {
        if (fstatat(directory, name, &file, AT_SYMLINK_NOFOLLOW) == 0 &&
            file.st_dev == known->device && file.st_ino == known->inode) {
            known->seen = adopt->look;
        }
        return;
    }
    fd = openat(directory, name,
                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        adopt_unreadable(adopt, directory, name);
        return;
    }
    if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) &&
        ring_is_orphaned(fd)) {
        struct orphan *orphan = adopt_found(adopt, name, &file);

        if (orphan != NULL && orphan->is_unreadable) {
            orphan->is_unreadable = false;
            orphan->is_foreign = false;
        }
    }
    close(fd);
}

static void
adopt_look(struct adopt *adopt)
{
    DIR *directory = opendir(adopt->directory);
    struct dirent *entry;

    if (directory == NULL) {
        /* nginx makes it at its first start */
        if (errno != ENOENT && !adopt->is_unreadable) {
            adopt->is_unreadable = true;
            log_error("adopt", "the outbox directory cannot be read",
                      log_str("path", adopt->directory),
                      log_str("reason", strerror(errno)));
        }
        return;
    }
    adopt->is_unreadable = false;
    while ((entry = readdir(directory)) != NULL) {
        if (strncmp(entry->d_name, RING_PREFIX, strlen(RING_PREFIX)) == 0) {
            adopt_look_at(adopt, dirfd(directory), entry->d_name);
        }
    }
    closedir(directory);
}

bool
adopt_is_due(uint64_t since_ms, uint64_t wait_ms, uint64_t now_ms)
{
    return now_ms >= since_ms + wait_ms;
}

/* It is drained to its end; nobody could go on with it. */
static void
orphan_removed(struct orphan *orphan)
{
    if (!orphan->is_removed) {
        orphan->is_removed = true;
        log_error(
            "adopt", "a ring file was removed while it is drained",
            log_str("path", orphan->adopt->directory),
            log_str("name", orphan->name),
            log_int("records", (int64_t)adoption_unsent(orphan->adoption)));
    }
}

/* What has an owner again, or is gone, is no orphan; the rest is due. */
static void
adopt_settle(struct adopt *adopt, uint64_t now_ms)
{
    bool is_able = intakes_are_able(adopt->place.intakes);
    struct list_node *next;

    for (struct list_node *at = adopt->orphans.first; at != NULL; at = next) {
        struct orphan *orphan = at->item;

        next = at->next;
        if (orphan->adoption != NULL) {
            if (orphan->seen != adopt->look && !adopt->is_unreadable) {
                orphan_removed(orphan);
            }
            adoption_tick(orphan->adoption, now_ms);
        } else if (orphan->seen != adopt->look) {
            orphan_free(orphan);
        } else if (!orphan->is_foreign && is_able &&
                   adopt_is_due(orphan->since_ms, adopt->wait_ms, now_ms) &&
                   adopt->adoptions < ADOPT_AT_ONCE) {
            orphan_adopt(orphan);
        }
    }
}

static void
adopt_measure(const struct adopt *adopt, uint64_t now_ms)
{
    uint64_t oldest_ms = now_ms;
    int64_t removed = 0;
    int64_t count = 0;

    for (struct list_node *at = adopt->orphans.first; at != NULL;
         at = at->next) {
        const struct orphan *orphan = at->item;

        if (orphan->is_removed && orphan->adoption != NULL) {
            removed += (int64_t)adoption_unsent(orphan->adoption);
        }
        if (!orphan->is_foreign) {
            count++;
            oldest_ms =
                orphan->since_ms < oldest_ms ? orphan->since_ms : oldest_ms;
        }
    }
    metrics.edgemeter_edge_orphans_removed = removed;
    metrics.edgemeter_edge_orphans = count;
    metrics.edgemeter_edge_orphan_oldest_seconds =
        (int64_t)((now_ms - oldest_ms) / 1000);
}

static void
adopt_look_cb(uv_timer_t *timer)
{
    struct adopt *adopt = timer->data;
    uint64_t now_ms = clock_mono_ms();

    adopt->look++;
    adopt_look(adopt);
    adopt_settle(adopt, now_ms);
    adopt_measure(adopt, now_ms);
}


/* ---- life ------------------------------------------------------------ */

static bool
boot_id_read(uint8_t boot_id[16])
{
    char text[37] = {0};
    int fd = open(BOOT_ID_PATH, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    size_t digits = 0;

    if (fd >= 0) {
        close(fd);
    }
    memset(boot_id, 0, 16);
    for (ssize_t i = 0; i < size && digits < 32; i++) {
        static const char hex[] = "0123456789abcdef";
        const char *digit = strchr(hex, text[i]);

        if (digit == NULL || *digit == '\0') {
            continue; /* dashes */
        }
        boot_id[digits / 2] =
            (uint8_t)(boot_id[digits / 2] << 4 | (digit - hex));
        digits++;
    }
    return digits == 32;
}

/* Tests do not wait that long. */
static uint64_t
adopt_wait_ms(void)
{
    const char *text = getenv("METERD_TEST_ADOPT_MS");

    return text == NULL || *text == '\0' ? ADOPT_WAIT_MS
                                         : strtoul(text, NULL, 10);
}

struct adopt *
adopt_create(uv_loop_t *loop, const char *directory, const char *node,
             const struct peers *peers, struct intakes *intakes)
{
    struct adopt *adopt = calloc(1, sizeof(*adopt));

    if (adopt == NULL) {
        log_error("adopt", "out of memory");
        return NULL;
    }
    if (!boot_id_read(adopt->place.boot_id)) {
        log_error("adopt", "the kernel's boot id cannot be read",
                  log_str("path", BOOT_ID_PATH));
        free(adopt);
        return NULL;
    }
    if (crash_point_armed) {
        meter_crash_hook = crash_point_reached; /* those of the outbox too */
    }
    adopt->directory = directory;
    adopt->wait_ms = adopt_wait_ms();
    adopt->place.intakes = intakes;
    adopt->place.node = (struct meter_str){node, strlen(node)};
    adopt->place.peers = peers;
    CHECK(uv_timer_init(loop, &adopt->timer) == 0);
    adopt->timer.data = adopt;
    CHECK(uv_timer_start(&adopt->timer, adopt_look_cb, LOOK_MS, LOOK_MS) == 0);
    CHECK(uv_timer_init(loop, &adopt->step) == 0);
    adopt->step.data = adopt;
    adopt->handles = 2;
    return adopt;
}

void
adopt_stop(struct adopt *adopt)
{
    if (adopt == NULL || adopt->is_stopped) {
        return;
    }
    adopt->is_stopped = true;
    uv_timer_stop(&adopt->timer);
    uv_timer_stop(&adopt->step);
    while (adopt->orphans.count > 0) {
        orphan_free(list_first(&adopt->orphans));
    }
}

static void
adopt_closed_cb(uv_handle_t *handle)
{
    struct adopt *adopt = handle->data;

    if (--adopt->handles == 0) {
        free(adopt);
    }
}

void
adopt_destroy(struct adopt *adopt)
{
    if (adopt == NULL) {
        return;
    }
    adopt_stop(adopt);
    uv_close((uv_handle_t *)&adopt->timer, adopt_closed_cb);
    uv_close((uv_handle_t *)&adopt->step, adopt_closed_cb);
}
