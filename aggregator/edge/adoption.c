/*
 * adoption.c - see adoption.h.
 *
 * As a worker would: say how far the ring is, take over what the database
 * says, send from there, ack what is durable. A ring that is torn, or older
 * than what the database holds, goes on under a new session once nothing of
 * the old one is left to send; its entries and its loss come out there.
 */

#include "edge/adoption.h"

#include "base/clock.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "base/metrics.h"
#include "meter_outbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDS_AT_ONCE 2000
#define BYTES_AT_ONCE   ((size_t)256 << 10)
#define RETRY_MS        1000
#define VERIFY_AT_ONCE  ((size_t)256 << 10)
#define VERIFY_AHEAD    ((size_t)1 << 20)
#define VERIFY_NS       (2 * 1000 * 1000)

struct adoption {
    const struct adoption_place *place;
    adoption_end_cb on_end;
    void *owner;
    char *path;
    int fd;
    void *map;
    size_t size;
    void *scratch;
    struct meter_outbox outbox;
    struct meter_outbox_report report; /* while it is verified */
    bool is_recovered;
    struct meter_outbox_cursor cursor; /* next record to put */
    struct intake *intake;             /* NULL: waits for retry_ms */
    uint64_t retry_ms;
};

static void adoption_open(struct adoption *adoption, uint64_t oldest);

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
file_complaint(const struct adoption_place *place, const struct stat *file)
{
    if (!S_ISREG(file->st_mode)) {
        return "no regular file";
    }
    if ((file->st_mode & S_IWOTH) != 0) {
        return "everybody may write to it";
    }
    if (!peers_allow(place->peers, file->st_uid)) {
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
    why = file_complaint(adoption->place, &opened);
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

static void
adoption_log_claim(const struct adoption *adoption,
                   const struct meter_outbox_report *report)
{
    const struct meter_outbox *outbox = &adoption->outbox;

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
}

/* A new session's name. */
static bool
session_draw(const struct adoption *adoption, uint8_t session[16])
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

    if (found != METER_OUTBOX_UNFINISHED || !session_draw(adoption, session) ||
        !meter_outbox_format(adoption->map, adoption->size, session,
                             adoption->place->boot_id)) {
        return found;
    }
    return meter_outbox_open(&adoption->outbox, adoption->map, adoption->size,
                             adoption->scratch);
}

/* Enough for the ring as it is and as it would be made. */
static void *
adoption_scratch(const struct adoption *adoption)
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
    return malloc(size);
}

static enum adoption_claim
adoption_identify(struct adoption *adoption)
{
    adoption->scratch = adoption_scratch(adoption);
    if (adoption->scratch == NULL) {
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
    struct meter_outbox *outbox = &adoption->outbox;

    meter_outbox_recover(outbox, adoption->place->boot_id, clock_wall_us(),
                         &adoption->report);
    live_store(&outbox->live->busy, METER_OUTBOX_BUSY);
    live_store(&outbox->live->owner_pid, (uint64_t)getpid());
    live_store(&outbox->live->beat_us, clock_wall_us());
    adoption->is_recovered = true;
    adoption_log_claim(adoption, &adoption->report);
    CRASH_POINT("adopt_after_claim");
}

/* The disk reads what comes next while we do something else. */
static void
adoption_read_ahead(const struct adoption *adoption)
{
    const struct meter_outbox *outbox = &adoption->outbox;
    off_t at = (off_t)(outbox->header.record_offset + outbox->verified.offset +
                       VERIFY_AHEAD);

    (void)posix_fadvise(adoption->fd, at, (off_t)VERIFY_AT_ONCE,
                        POSIX_FADV_WILLNEED);
}

bool
adoption_verify(struct adoption *adoption)
{
    uint64_t end = uv_hrtime() + VERIFY_NS;

    do {
        adoption_read_ahead(adoption);
        if (!meter_outbox_verify(&adoption->outbox, VERIFY_AT_ONCE,
                                 &adoption->report)) {
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
    free(adoption->path);
    free(adoption);
}

enum adoption_claim
adoption_claim(const struct adoption_place *place, const char *path,
               adoption_end_cb on_end, void *owner, struct adoption **out)
{
    struct adoption *adoption = calloc(1, sizeof(*adoption));
    enum adoption_claim claim;

    if (adoption == NULL || (adoption->path = strdup(path)) == NULL) {
        log_error("adopt", "out of memory");
        free(adoption);
        return ADOPTION_OWNED;
    }
    adoption->place = place;
    adoption->on_end = on_end;
    adoption->owner = owner;
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


/* ---- the end --------------------------------------------------------- */

void
adoption_release(struct adoption *adoption)
{
    intake_close(adoption->intake);
    if (adoption->is_recovered) {
        live_store(&adoption->outbox.live->owner_pid, 0);
    }
    adoption_free(adoption);
}

static void
adoption_drained(struct adoption *adoption)
{
    struct meter_outbox_live *live = adoption->outbox.live;

    log_info("adopt", "an orphaned ring is empty",
             log_str("path", adoption->path),
             log_int("acked", (int64_t)adoption->outbox.acked));
    metrics.edgemeter_edge_rings_adopted_total++;
    CRASH_POINT("adopt_before_release");
    live_store(&live->busy, METER_OUTBOX_SPARE);
    adoption->on_end(adoption->owner, ADOPTION_DRAINED);
}


/* ---- draining -------------------------------------------------------- */

/* Nothing can be done now; adoption_tick begins again. */
static void
adoption_wait(struct adoption *adoption)
{
    struct intake *intake = adoption->intake;

    adoption->intake = NULL;
    adoption->retry_ms = clock_mono_ms() + RETRY_MS;
    intake_close(intake);
}

/* Records from the cursor on, as many as may go at once. */
static size_t
adoption_gather(struct adoption *adoption, struct buf *records)
{
    uint64_t seq_limit = intake_seq_limit(adoption->intake);
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
        cursor->seq > intake_seq_limit(adoption->intake)) {
        return true;
    }
    log_error("adopt", "a record of a ring cannot be read any more",
              log_str("path", adoption->path),
              log_int("seq", (int64_t)cursor->seq));
    adoption->on_end(adoption->owner, ADOPTION_REFUSED);
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
    struct intake *intake = adoption->intake;
    uint8_t session[16];

    if (!session_draw(adoption, session)) {
        adoption_wait(adoption);
        return;
    }
    adoption->intake = NULL;
    intake_close(intake);
    meter_outbox_renew(&adoption->outbox, session, adoption->place->boot_id);
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
    if (!adoption_put(adoption)) {
        return;
    }
    if (!meter_outbox_is_drained(outbox)) {
        return;
    }
    if (is_torn) {
        adoption_renew(adoption);
    } else {
        adoption_drained(adoption);
    }
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
        struct intake *intake = adoption->intake;

        adoption->intake = NULL;
        intake_close(intake);
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
               intakes_db_epoch(adoption->place->intakes));
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
    adoption->on_end(adoption->owner, ADOPTION_FENCED);
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
    adoption->on_end(adoption->owner, ADOPTION_REFUSED);
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
        .node = adoption->place->node,
        .head = outbox->live->head,
        .acked = outbox->acked,
        .oldest = oldest,
    };

    memcpy(ring.session, outbox->header.session, sizeof(ring.session));
    adoption->intake = intake_create(adoption->place->intakes, &ring,
                                     &adoption_intake_events, adoption);
    if (adoption->intake == NULL) {
        adoption_wait(adoption);
        return;
    }
    intake_open(adoption->intake);
}

void
adoption_start(struct adoption *adoption)
{
    adoption_open(adoption, 0);
}

void
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

uint64_t
adoption_unsent(const struct adoption *adoption)
{
    return adoption->outbox.head - 1 - adoption->outbox.acked;
}
