/*
 * intake.h - the records of one ring on their way in.
 *
 *   link, adopt -> [intake] -> ingest
 *                      +-----> codes, credit, or "start over"
 *
 * A ring is a session; whoever brings its records opens an intake. Opening
 * fences an older intake of the same session: what it queued is withdrawn
 * and its owner told. Records come in order without a gap. How many may be
 * under way is bounded by credit: a sequence number, at most the ring's
 * window past what is durable. The window is the ring's share: together the
 * rings hold INTAKE_RECORDS_MAX records and INTAKE_BYTES_MAX bytes, as large
 * as their records were lately; it is never below INTAKE_WINDOW_MIN. Credit
 * that was given is not taken back when more rings open; past twice the
 * bytes nobody should read on.
 */

#ifndef EDGE_INTAKE_H
#define EDGE_INTAKE_H

#include "base/buf.h"
#include "base/map.h"
#include "ingest/ingest.h"

#include <sys/queue.h>

#define INTAKE_RECORDS_MAX   131072
#define INTAKE_BYTES_MAX     ((size_t)128 << 20)
#define INTAKE_WINDOW_MAX    16384
#define INTAKE_WINDOW_MIN    256
#define INTAKE_COUNT_MAX     8192 /* rings at once */
#define INTAKE_NODE_SIZE_MAX 255

struct intake;

/* What a ring says of itself; see struct meter_hello. */
struct intake_ring {
    uint8_t session[16];
    struct meter_str node; /* copied, cut to INTAKE_NODE_SIZE_MAX */
    uint64_t head;
    uint64_t acked;
    uint64_t oldest;
};

struct intake_result {
    uint64_t first_seq;   /* of codes */
    const uint8_t *codes; /* verdict or METER_CODE_NONE, one per record */
    size_t count;
    const struct ingest_session *session;
    uint64_t seq_limit; /* worth telling; 0: as before */
};

/* In each of these the owner may close the intake. */
struct intake_events {
    /* Records past session->last_seq may come, up to seq_limit. */
    void (*on_open)(void *owner, const struct ingest_session *session,
                    uint64_t seq_limit);
    /* Records are durable. */
    void (*on_result)(void *owner, const struct intake_result *result);
    /* A newer intake has the session: nothing comes any more. */
    void (*on_fenced)(void *owner);
    /*
     * Nothing comes any more, what was put may be lost; the ring has it.
     * GAP: the database went back. UNAVAILABLE, BUSY: not now. BAD: what was
     * put last were no records.
     */
    void (*on_restart)(void *owner, enum ingest_outcome why);
};

/* All intakes of the process. */
struct intakes {
    struct ingest *ingest;
    struct map table; /* session -> intake */
    size_t bytes;     /* put and without a result */
};

static inline void
intakes_init(struct intakes *intakes, struct ingest *ingest)
{
    *intakes = (struct intakes){.ingest = ingest};
    map_init(&intakes->table, INTAKE_COUNT_MAX);
}

/* Every intake is closed. Also for one that is all zero. */
static inline void
intakes_fini(struct intakes *intakes)
{
    CHECK(intakes->table.count == 0 && intakes->bytes == 0);
    map_fini(&intakes->table);
}

/* More bytes under way than windows should let happen: stop reading. */
static inline bool
intakes_are_full(const struct intakes *intakes)
{
    return intakes->bytes > 2 * INTAKE_BYTES_MAX;
}

/*
 * The database can be reached again. Where it is another one than an intake
 * was opened on, it may hold less: those intakes must start over, so that
 * their rings learn of it without a record to send.
 */
void intakes_database_ready(struct intakes *intakes);
uint64_t intakes_db_epoch(const struct intakes *intakes);

enum intake_state {
    INTAKE_NEW,     /* waits for intake_open */
    INTAKE_OPENING, /* waits for ingest to say how far the session is */
    INTAKE_OPEN,    /* takes records */
    INTAKE_OVER     /* fenced or failed: waits for intake_close */
};

/* Its owner reads expected, seq_limit and whether parts is empty. */
struct intake {
    enum intake_state state;
    struct intakes *intakes;
    const struct intake_events *events;
    void *owner;
    struct ingest_ring ring;
    char node[INTAKE_NODE_SIZE_MAX];
    uint64_t head; /* as the ring said */
    uint64_t acked;
    uint64_t oldest;

    uint64_t db_epoch; /* of the database that it was opened on */
    uint64_t expected; /* next sequence number */
    uint64_t durable;
    uint64_t seq_limit; /* as told to the owner */
    size_t record_size; /* of those seen lately, on average */
    struct ingest_request *opening;
    TAILQ_HEAD(intake_parts, intake_part) parts; /* without a result */
};

/* Nothing happens before intake_open. */
MUST_CHECK struct intake *
intake_create(struct intakes *intakes, const struct intake_ring *ring,
              const struct intake_events *events, void *owner);
/* Once. An event may come during the call. */
void intake_open(struct intake *intake);

enum intake_put {
    INTAKE_TAKEN,
    INTAKE_GAP,         /* not the expected one: nothing taken */
    INTAKE_PAST_CREDIT, /* past seq_limit: nothing taken */
    INTAKE_ENDED        /* on_restart came during the call */
};
/*
 * After on_open. count whole records without PADs, numbered from first_seq
 * on. TAKEN and ENDED empty the buf.
 */
MUST_CHECK enum intake_put intake_put(struct intake *intake, uint64_t first_seq,
                                      size_t count, struct buf *records);

/* Withdraws what is under way and frees. No event comes any more. */
void intake_close(struct intake *intake);

#endif
