/*
 * adopt.c - rings that nobody owns any more: found, claimed, drained, released.
 *
 *   outbox directory -> [adopt] -> meter_outbox -> intake -> ingest
 *
 * Workers adopt the rings of dead workers within seconds. Where no worker is
 * left to do it, meterd does: once a second it looks at every ring-* file; a
 * ring that holds something and that nobody has locked is an orphan, and after
 * ADOPT_WAIT_MS it is drained, ADOPT_AT_ONCE of them at a time. While the
 * database cannot be reached no ring is taken, so that a worker that comes back
 * finds it. Looking at a ring takes its lock for an instant where nobody has
 * it; a worker that tries in that instant tries again a second later.
 *
 * An adoption holds the file's lock, so that no worker can take it meanwhile.
 * It does as a worker would: say how far the ring is, take over what the
 * database says, send from there, ack what is durable. Slots and cells that
 * the dead owner left become records first. When everything is durable the ring
 * is a spare one; when the adoption is released before that, it is an orphan
 * as before. A ring that is torn, or older than what the database holds, goes
 * on under a new session once nothing of the old one is left to send; its
 * entries and its loss come out there.
 */

#include "edge/edge.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "meter_crash.h"
#include "meter_outbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define ADOPT_WAIT_MS   10000
#define ADOPT_AT_ONCE   4
#define ADOPT_RINGS_MAX 4096 /* orphans known at once; more wait */
#define LOOK_MS         1000
#define STEP_MS         1
#define RETRY_MS        1000
#define RECORDS_AT_ONCE 2000
#define BYTES_AT_ONCE   ((size_t)256 << 10)
#define VERIFY_AT_ONCE  ((size_t)256 << 10)
#define VERIFY_AHEAD    ((size_t)1 << 20)
#define VERIFY_NS       (2 * 1000 * 1000)
#define RING_PREFIX     "ring-"
#define BOOT_ID_PATH    "/proc/sys/kernel/random/boot_id"

struct adopt {
    struct edge *edge;
    const char *directory;
    struct meter_str node;
    uint8_t boot_id[16]; /* of the running kernel */
    uint64_t wait_ms;
    uv_timer_t timer;
    uv_timer_t step;    /* runs while a ring is verified */
    int handles;        /* that libuv still has */
    bool is_unreadable; /* said so */
    uint64_t look;      /* number of the look under way */
    TAILQ_HEAD(orphans, orphan) orphans;
    size_t orphan_count;
    size_t adoption_count;
};

/* A ring without an owner, or one that we drain. */
struct orphan {
    struct adopt *adopt;
    TAILQ_ENTRY(orphan) next;
    struct adoption *adoption; /* NULL: not ours, or not yet */
    uint64_t since_ms;         /* first seen so */
    uint64_t seen;             /* number of the last look that found it */
    bool is_foreign;           /* left alone; said so */
    bool is_unreadable;        /* foreign because it cannot be opened */
    bool is_removed;           /* from under our adoption; said so */
    dev_t device;
    ino_t inode;
    char name[NAME_MAX + 1];
};

/* An orphan that we have locked. */
struct adoption {
    struct adopt *adopt;
    struct orphan *orphan;
    char path[PATH_MAX];
    int fd;
    void *map;
    size_t size;
    void *scratch;
    struct meter_outbox outbox;
    struct meter_outbox_report report; /* while it is verified */
    bool is_recovered;                 /* verified; what was left is settled */
    struct meter_outbox_cursor cursor; /* next record to put */
    struct intake *intake;             /* NULL: waits for retry_ms */
    uint64_t retry_ms;
};

enum adoption_claim {
    ADOPTION_CLAIMED,
    ADOPTION_OWNED,  /* locked by somebody, or not there any more */
    ADOPTION_FOREIGN /* not a ring that we may touch; logged */
};

static void adoption_open(struct adoption *adoption, uint64_t oldest);
static void orphan_release(struct orphan *orphan, bool is_foreign);
static void adopt_step_cb(uv_timer_t *timer);

/* Words that others read while we are the owner; signed ones too. */
#define live_store(word, value) __atomic_store_n(word, value, __ATOMIC_RELEASE)


/* ---- claiming -------------------------------------------------------- */

static enum adoption_claim
adoption_foreign(const struct adoption *adoption, const char *why)
{
    log_warn("adopt", "a ring file is left alone",
             log_str("path", adoption->path), log_str("reason", why));
    return ADOPTION_FOREIGN;
}

/* NULL: a file that we may write to, as large as a ring can be. */
static const char *
adopt_file_complaint(const struct adopt *adopt, const struct stat *file)
{
    if (!S_ISREG(file->st_mode)) {
        return "no regular file";
    }
    if ((file->st_mode & S_IWOTH) != 0) {
        return "everybody may write to it";
    }
    if (!peers_allow(&adopt->edge->peers, file->st_uid)) {
        return "its owner is no peer";
    }
    if (file->st_size < METER_OUTBOX_SIZE_MIN ||
        file->st_size > METER_OUTBOX_SIZE_MAX) {
        return "not the size of a ring";
    }
    return NULL;
}

/* Opens and locks; the name must still lead to what was locked. */
static enum adoption_claim
adoption_lock(struct adoption *adoption)
{
    struct stat opened, named;
    const char *why;

    adoption->fd = open(adoption->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC |
                                            O_NONBLOCK | O_NOCTTY);
    if (adoption->fd < 0) {
        return errno == ENOENT ? ADOPTION_OWNED
                               : adoption_foreign(adoption, strerror(errno));
    }
    if (fstat(adoption->fd, &opened) != 0) {
        return adoption_foreign(adoption, strerror(errno));
    }
    why = adopt_file_complaint(adoption->adopt, &opened);
    if (why != NULL) {
        return adoption_foreign(adoption, why);
    }
    if (flock(adoption->fd, LOCK_EX | LOCK_NB) != 0 ||
        lstat(adoption->path, &named) != 0 || named.st_dev != opened.st_dev ||
        named.st_ino != opened.st_ino) {
        return ADOPTION_OWNED;
    }
    adoption->size = (size_t)opened.st_size;
    return ADOPTION_CLAIMED;
}

/* A hole in the file would be a signal once the disk is full. */
static enum adoption_claim
adoption_map(struct adoption *adoption)
{
    if (fallocate(adoption->fd, 0, 0, (off_t)adoption->size) != 0 &&
        errno != EOPNOTSUPP) {
        return adoption_foreign(adoption, strerror(errno));
    }
    adoption->map = mmap(NULL, adoption->size, PROT_READ | PROT_WRITE,
                         MAP_SHARED, adoption->fd, 0);
    if (adoption->map == MAP_FAILED) {
        adoption->map = NULL;
        return adoption_foreign(adoption, strerror(errno));
    }
    return ADOPTION_CLAIMED;
}

/* A new session's name. */
static bool
adoption_draw_session(const struct adoption *adoption, uint8_t session[16])
{
    if (getrandom(session, 16, 0) == 16) {
        return true;
    }
    log_error("adopt", "no random bytes", log_str("path", adoption->path));
    return false;
}

/* Opens; where the dead owner was about to begin a session, begins it. */
static enum meter_outbox_open
adoption_open_outbox(struct adoption *adoption)
{
    enum meter_outbox_open found = meter_outbox_open(
        &adoption->outbox, adoption->map, adoption->size, adoption->scratch);
    uint8_t session[16];

    if (found != METER_OUTBOX_UNFINISHED ||
        !adoption_draw_session(adoption, session) ||
        !meter_outbox_format(adoption->map, adoption->size, session,
                             adoption->adopt->boot_id)) {
        return found;
    }
    return meter_outbox_open(&adoption->outbox, adoption->map, adoption->size,
                             adoption->scratch);
}

/* Enough for the ring as it is and as it would be made. */
static size_t
adoption_scratch_size(const struct adoption *adoption)
{
    struct meter_str identity = {adoption->map, METER_RING_IDENTITY_SIZE};
    struct meter_ring_header made, found;
    size_t size, more;

    CHECK(meter_outbox_layout(adoption->size, &made));
    size = meter_outbox_scratch_size(&made);
    if (meter_ring_header_decode(identity, &found) &&
        found.slot_count <= adoption->size / METER_SLOT_SIZE &&
        found.cell_count <= adoption->size / METER_CELL_SIZE) {
        more = meter_outbox_scratch_size(&found);
        size = more > size ? more : size;
    }
    return size;
}

static enum adoption_claim
adoption_identify(struct adoption *adoption)
{
    adoption->scratch = malloc(adoption_scratch_size(adoption));
    if (adoption->scratch == NULL) { /* as large as the file says */
        log_error("adopt", "out of memory");
        return ADOPTION_OWNED;
    }
    switch (adoption_open_outbox(adoption)) {
    case METER_OUTBOX_OK: return ADOPTION_CLAIMED;
    case METER_OUTBOX_UNFINISHED: break;
    case METER_OUTBOX_FOREIGN:
        return adoption_foreign(adoption, "no ring, or a damaged one");
    case METER_OUTBOX_VERSION:
        return adoption_foreign(adoption, "a ring of another version");
    }
    return ADOPTION_OWNED;
}

/* Settles what the dead owner left. */
static void
adoption_recover(struct adoption *adoption)
{
    struct meter_outbox_report *report = &adoption->report;
    struct meter_outbox *outbox = &adoption->outbox;

    meter_outbox_recover(outbox, adoption->adopt->boot_id, clock_wall_us(),
                         report);
    live_store(&outbox->live->busy, METER_OUTBOX_BUSY);
    live_store(&outbox->live->owner_pid, (uint64_t)getpid());
    live_store(&outbox->live->beat_us, clock_wall_us());
    adoption->is_recovered = true;
    log_info("adopt", "an orphaned ring is drained",
             log_str("path", adoption->path),
             log_int("records", (int64_t)(outbox->head - outbox->acked - 1)),
             log_int("answered_slots", report->answered_slots),
             log_int("dropped_slots", report->dropped_slots),
             log_int("open_cells", report->open_cells),
             log_bool("other_boot", report->other_boot));
    if (report->torn_records > 0 || report->lost_requests > 0) {
        log_error("adopt", "an orphaned ring has lost requests",
                  log_str("path", adoption->path),
                  log_int("torn_records", (int64_t)report->torn_records),
                  log_int("lost_requests", (int64_t)report->lost_requests));
    }
    CRASH_POINT("adopt_after_claim");
}

/*
 * Reads the records, for some milliseconds. True: there is more, call again
 * after the loop has served others. False: what the dead owner left is
 * recovered.
 */
static bool
adoption_verify(struct adoption *adoption)
{
    struct meter_outbox *outbox = &adoption->outbox;
    uint64_t end = uv_hrtime() + VERIFY_NS;

    do {
        /* The disk reads what comes next while we do something else. */
        (void)posix_fadvise(adoption->fd,
                            (off_t)(outbox->header.record_offset +
                                    outbox->verified.offset + VERIFY_AHEAD),
                            (off_t)VERIFY_AT_ONCE, POSIX_FADV_WILLNEED);
        if (!meter_outbox_verify(outbox, VERIFY_AT_ONCE, &adoption->report)) {
            adoption_recover(adoption);
            return false;
        }
    } while (uv_hrtime() < end);
    return true;
}

static void
adoption_free(struct adoption *adoption)
{
    if (adoption->map != NULL) {
        munmap(adoption->map, adoption->size);
    }
    if (adoption->fd >= 0) {
        close(adoption->fd);
    }
    free(adoption->scratch);
    free(adoption);
}

/* Claimed: *out is locked; adoption_verify must follow. */
static enum adoption_claim
adoption_claim(struct orphan *orphan, struct adoption **out)
{
    struct adopt *adopt = orphan->adopt;
    struct adoption *adoption = memory_alloc(sizeof(*adoption));
    enum adoption_claim claim;

    snprintf(adoption->path, sizeof(adoption->path), "%s/%s", adopt->directory,
             orphan->name);
    adoption->adopt = adopt;
    adoption->orphan = orphan;
    adoption->fd = -1;
    claim = adoption_lock(adoption);
    if (claim == ADOPTION_CLAIMED) {
        claim = adoption_map(adoption);
    }
    if (claim == ADOPTION_CLAIMED) {
        claim = adoption_identify(adoption);
    }
    if (claim != ADOPTION_CLAIMED) {
        adoption_free(adoption);
        return claim;
    }
    *out = adoption;
    return ADOPTION_CLAIMED;
}


/* ---- draining -------------------------------------------------------- */

/* Nothing can be done now; adoption_tick begins again. */
static void
adoption_wait(struct adoption *adoption)
{
    intake_close(adoption->intake);
    adoption->intake = NULL;
    adoption->retry_ms = clock_mono_ms() + RETRY_MS;
}

/* Records from the cursor on, as many as may go at once. */
static size_t
adoption_gather(struct adoption *adoption, struct buf *records)
{
    uint64_t seq_limit = adoption->intake->seq_limit;
    size_t count = 0;

    while (count < RECORDS_AT_ONCE && adoption->cursor.seq <= seq_limit &&
           records->size + METER_RECORD_SIZE_MAX <= BYTES_AT_ONCE) {
        struct meter_str bytes;

        if (!meter_outbox_next(&adoption->outbox, &adoption->cursor, &bytes)) {
            break;
        }
        buf_put_str(records, bytes);
        count++;
    }
    return count;
}

/* Nothing came from the cursor. Because nothing is there, or may go? */
static bool
adoption_is_readable(struct adoption *adoption)
{
    const struct meter_outbox_cursor *cursor = &adoption->cursor;

    if (cursor->seq >= adoption->outbox.head ||
        cursor->seq > adoption->intake->seq_limit) {
        return true;
    }
    log_error("adopt", "a record of a ring cannot be read any more",
              log_str("path", adoption->path),
              log_int("seq", (int64_t)cursor->seq));
    orphan_release(adoption->orphan, true);
    return false;
}

/* False: nothing can be put any more; that was dealt with. */
static bool
adoption_put(struct adoption *adoption)
{
    for (;;) {
        uint64_t first_seq = adoption->cursor.seq;
        struct buf records;
        size_t count;

        buf_init(&records, BYTES_AT_ONCE);
        count = adoption_gather(adoption, &records);
        if (count == 0) {
            return adoption_is_readable(adoption);
        }
        if (records.failed) {
            log_error("adopt", "out of memory");
            adoption_wait(adoption);
            return false;
        }
        switch (intake_put(adoption->intake, first_seq, count, &records)) {
        case INTAKE_TAKEN: break;
        case INTAKE_ENDED: return false;
        case INTAKE_GAP:
        case INTAKE_PAST_CREDIT: CHECK(false);
        }
    }
}

/*
 * What the session should say is said; what is left of the dead owner's
 * entries, and the loss, go out under a new one.
 */
static void
adoption_renew(struct adoption *adoption)
{
    uint8_t session[16];

    if (!adoption_draw_session(adoption, session)) {
        adoption_wait(adoption);
        return;
    }
    intake_close(adoption->intake);
    meter_outbox_renew(&adoption->outbox, session, adoption->adopt->boot_id);
    log_warn("adopt", "an orphaned ring begins a new session",
             log_str("path", adoption->path));
    adoption_open(adoption, 0);
}

/* Puts what the credit allows; ends when nothing is left at all. */
static void
adoption_go_on(struct adoption *adoption)
{
    struct meter_outbox *outbox = &adoption->outbox;
    bool is_torn = meter_outbox_is_torn(outbox);

    if (!is_torn) {
        meter_outbox_emit(outbox);
        meter_outbox_tell_loss(outbox);
    }
    if (!adoption_put(adoption) || !meter_outbox_is_drained(outbox)) {
        return;
    }
    if (is_torn) {
        adoption_renew(adoption);
        return;
    }
    log_info("adopt", "an orphaned ring is empty",
             log_str("path", adoption->path),
             log_int("acked", (int64_t)outbox->acked));
    metrics.edgemeter_edge_rings_adopted_total++;
    CRASH_POINT("adopt_before_release");
    live_store(&outbox->live->busy, METER_OUTBOX_SPARE);
    orphan_release(adoption->orphan, false);
}

static void
adoption_durable(struct adoption *adoption,
                 const struct ingest_session *session)
{
    struct meter_outbox *outbox = &adoption->outbox;

    for (size_t i = 0; i < METER_VERDICT_COUNT; i++) {
        live_store(&outbox->live->verdicts[i], session->verdicts[i]);
    }
    meter_outbox_ack(outbox, session->last_seq);
}

/*
 * The database went back: what the ring still has is sent again. What it
 * has not must be given up, which only an intake opened anew can do.
 */
static void
adoption_rewind(struct adoption *adoption, uint64_t last_seq)
{
    uint64_t first = meter_outbox_rewind(&adoption->outbox, last_seq);

    if (first > last_seq + 1) {
        intake_close(adoption->intake);
        adoption_open(adoption, first);
        return;
    }
    meter_outbox_cursor(&adoption->outbox, &adoption->cursor);
    adoption_go_on(adoption);
}

static void
adoption_opened_cb(void *owner, const struct ingest_session *session,
                   uint64_t seq_limit)
{
    struct adoption *adoption = owner;
    struct meter_outbox *outbox = &adoption->outbox;

    (void)seq_limit; /* the intake knows it */
    live_store(&outbox->live->db_epoch,
               intakes_db_epoch(&adoption->adopt->edge->intakes));
    if (session->last_seq < outbox->acked) {
        adoption_rewind(adoption, session->last_seq);
        return;
    }
    adoption_durable(adoption, session);
    if (session->last_seq >= outbox->live->head) {
        adoption_renew(adoption); /* the file was rolled back */
        return;
    }
    meter_outbox_cursor(outbox, &adoption->cursor);
    adoption_go_on(adoption);
}

static void
adoption_result_cb(void *owner, const struct intake_result *result)
{
    struct adoption *adoption = owner;

    adoption_durable(adoption, result->session);
    adoption_go_on(adoption);
}

static void
adoption_fenced_cb(void *owner)
{
    struct adoption *adoption = owner;

    log_warn("adopt", "somebody else brings the records of an orphaned ring",
             log_str("path", adoption->path));
    orphan_release(adoption->orphan, false);
}

static void
adoption_restart_cb(void *owner, enum ingest_outcome why)
{
    struct adoption *adoption = owner;

    if (why != INGEST_BAD) {
        adoption_wait(adoption);
        return;
    }
    log_error("adopt", "records of a ring are no records",
              log_str("path", adoption->path),
              log_int("acked", (int64_t)adoption->outbox.acked));
    orphan_release(adoption->orphan, true);
}

static const struct intake_events adoption_intake_events = {
    .on_open = adoption_opened_cb,
    .on_result = adoption_result_cb,
    .on_fenced = adoption_fenced_cb,
    .on_restart = adoption_restart_cb,
};

/* oldest: see struct meter_hello. */
static void
adoption_open(struct adoption *adoption, uint64_t oldest)
{
    const struct meter_outbox *outbox = &adoption->outbox;
    struct intake_ring ring = {
        .node = adoption->adopt->node,
        .head = outbox->live->head,
        .acked = outbox->acked,
        .oldest = oldest,
    };

    memcpy(ring.session, outbox->header.session, sizeof(ring.session));
    adoption->intake = intake_create(&adoption->adopt->edge->intakes, &ring,
                                     &adoption_intake_events, adoption);
    intake_open(adoption->intake);
}

/* About once a second: shows that the ring has an owner, tries again. */
static void
adoption_tick(struct adoption *adoption, uint64_t now_ms)
{
    if (!adoption->is_recovered) {
        return;
    }
    live_store(&adoption->outbox.live->beat_us, clock_wall_us());
    if (adoption->intake == NULL && now_ms >= adoption->retry_ms) {
        adoption_open(adoption, 0);
    }
}

/* Records that are not known to be committed. */
static uint64_t
adoption_unsent(const struct adoption *adoption)
{
    return adoption->outbox.head - 1 - adoption->outbox.acked;
}


/* ---- orphans --------------------------------------------------------- */

static struct orphan *
orphan_find(const struct adopt *adopt, const char *name)
{
    struct orphan *orphan;

    TAILQ_FOREACH(orphan, &adopt->orphans, next) {
        if (strcmp(orphan->name, name) == 0) {
            return orphan;
        }
    }
    return NULL;
}

/*
 * Withdraws what is under way, unlocks and frees the adoption. The ring is
 * looked at again; is_foreign: it is left alone.
 */
static void
orphan_release(struct orphan *orphan, bool is_foreign)
{
    struct adoption *adoption = orphan->adoption;

    if (adoption == NULL) {
        return;
    }
    orphan->adoption = NULL;
    orphan->adopt->adoption_count--;
    orphan->is_foreign = is_foreign;
    orphan->since_ms = clock_mono_ms();
    intake_close(adoption->intake);
    if (adoption->is_recovered) {
        live_store(&adoption->outbox.live->owner_pid, 0);
    }
    adoption_free(adoption);
}

static void
orphan_free(struct orphan *orphan)
{
    orphan_release(orphan, false);
    TAILQ_REMOVE(&orphan->adopt->orphans, orphan, next);
    orphan->adopt->orphan_count--;
    free(orphan);
}

static void
orphan_adopt(struct orphan *orphan)
{
    struct adopt *adopt = orphan->adopt;

    switch (adoption_claim(orphan, &orphan->adoption)) {
    case ADOPTION_CLAIMED:
        adopt->adoption_count++;
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
    struct orphan *orphan;

    TAILQ_FOREACH(orphan, &adopt->orphans, next) {
        if (orphan->adoption != NULL && !orphan->adoption->is_recovered) {
            break;
        }
    }
    if (orphan == NULL) {
        return;
    }
    CHECK(uv_timer_start(&adopt->step, adopt_step_cb, STEP_MS, 0) == 0);
    if (!adoption_verify(orphan->adoption)) {
        adoption_open(orphan->adoption, 0);
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

    if (orphan == NULL && adopt->orphan_count == ADOPT_RINGS_MAX) {
        return NULL;
    }
    if (orphan == NULL) {
        orphan = memory_alloc(sizeof(*orphan));
        orphan->adopt = adopt;
        snprintf(orphan->name, sizeof(orphan->name), "%s", name);
        TAILQ_INSERT_TAIL(&adopt->orphans, orphan, next);
        adopt->orphan_count++;
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

/*
 * Whether an orphan that was first seen then has waited long enough. It may
 * have been seen later than now, the time at which the look began. Pure.
 */
static bool
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
    bool is_able = ingest_is_able(adopt->edge->intakes.ingest);
    struct orphan *next;

    for (struct orphan *orphan = TAILQ_FIRST(&adopt->orphans); orphan != NULL;
         orphan = next) {
        next = TAILQ_NEXT(orphan, next);
        if (orphan->adoption != NULL) {
            if (orphan->seen != adopt->look && !adopt->is_unreadable) {
                orphan_removed(orphan);
            }
            adoption_tick(orphan->adoption, now_ms);
        } else if (orphan->seen != adopt->look) {
            orphan_free(orphan);
        } else if (!orphan->is_foreign && is_able &&
                   adopt_is_due(orphan->since_ms, adopt->wait_ms, now_ms) &&
                   adopt->adoption_count < ADOPT_AT_ONCE) {
            orphan_adopt(orphan);
        }
    }
}

static void
adopt_measure(const struct adopt *adopt, uint64_t now_ms)
{
    const struct orphan *orphan;
    uint64_t oldest_ms = now_ms;
    int64_t removed = 0;
    int64_t count = 0;

    TAILQ_FOREACH(orphan, &adopt->orphans, next) {
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

/* 32 hexadecimal digits, with dashes between some. */
static bool
boot_id_read(uint8_t boot_id[16])
{
    FILE *file = fopen(BOOT_ID_PATH, "re");
    size_t count = 0;

    if (file == NULL) {
        return false;
    }
    while (count < 16 && fscanf(file, "%2hhx", &boot_id[count]) == 1) {
        (void)!fscanf(file, "-");
        count++;
    }
    fclose(file);
    return count == 16;
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
adopt_create(struct edge *edge, const char *directory, const char *node)
{
    struct adopt *adopt = memory_alloc(sizeof(*adopt));

    if (!boot_id_read(adopt->boot_id)) {
        log_error("adopt", "the kernel's boot id cannot be read",
                  log_str("path", BOOT_ID_PATH));
        free(adopt);
        return NULL;
    }
    if (crash_point_armed) {
        meter_crash_hook = crash_point_reached; /* those of the outbox too */
    }
    adopt->edge = edge;
    adopt->directory = directory;
    adopt->node = (struct meter_str){node, strlen(node)};
    adopt->wait_ms = adopt_wait_ms();
    TAILQ_INIT(&adopt->orphans);
    CHECK(uv_timer_init(edge->loop, &adopt->timer) == 0);
    adopt->timer.data = adopt;
    CHECK(uv_timer_start(&adopt->timer, adopt_look_cb, LOOK_MS, LOOK_MS) == 0);
    CHECK(uv_timer_init(edge->loop, &adopt->step) == 0);
    adopt->step.data = adopt;
    adopt->handles = 2;
    return adopt;
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
    struct orphan *orphan;

    if (adopt == NULL) {
        return;
    }
    while ((orphan = TAILQ_FIRST(&adopt->orphans)) != NULL) {
        orphan_free(orphan);
    }
    uv_close((uv_handle_t *)&adopt->timer, adopt_closed_cb);
    uv_close((uv_handle_t *)&adopt->step, adopt_closed_cb);
}
