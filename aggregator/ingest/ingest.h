/*
 * ingest.h - events of all connections through one gate into the database.
 *
 *   api -> [ingest] -> batch -> transaction -> lane -> PostgreSQL
 *
 * ingest_submit parses and queues; when the lane is idle everything queued
 * (to batchEvents) becomes one transaction; a lone event waits for nobody.
 * A request is answered only after the clean COMMIT of its events. The
 * queue holds at most queueEvents; beyond that: BUSY.
 *
 *   edge -> ingest_open_ring, ingest_submit_records -> the same gate
 *
 * Records of a ring carry session and sequence number. The session's row is
 * locked in the transaction that counts them and says how far it had come:
 * what lies at or below is a replay and has no effect, what lies past the
 * next number is a gap and is not taken. A record that must be rejected
 * becomes a dead letter in the same transaction. Records wait for ever:
 * there is nobody to tell, and the ring has them until they are durable.
 *
 *   operator -> ingest_replay_letter -> the same gate
 *
 * A dead letter is judged again by the rules as they are now. What deletes
 * its row in the transaction that counts it is the one that books it.
 */

#ifndef INGEST_INGEST_H
#define INGEST_INGEST_H

#include "base/buf.h"
#include "config/config.h"
#include "ingest/envelope.h"
#include "meter_types.h"
#include "store/lane.h"
#include "store/partition.h"

struct ingest;
struct ingest_request;

enum ingest_outcome {
    INGEST_DONE,        /* results are final and durable */
    INGEST_BAD,         /* the body as a whole is no list of events: 400 */
    INGEST_BUSY,        /* queue full, nothing taken: 429, Retry-After */
    INGEST_UNAVAILABLE, /* no durable answer in time: 503, Retry-After; a
                           retry with the same ids is safe */
    INGEST_GAP          /* records only: the database holds less than was
                           answered before; nothing taken, start over */
};

/* Whose records come in. The node's text is borrowed until the answer. */
struct ingest_ring {
    uint8_t session[16];
    struct meter_str node;
};

/* A ring's session as the transaction left it. */
struct ingest_session {
    uint64_t last_seq;                      /* durable up to here */
    uint64_t verdicts[METER_VERDICT_COUNT]; /* in requests, from seq 1 on */
    uint64_t missing; /* open_ring: records that no ring has any more */
};

/* A dead letter without its record. The node's text is borrowed as above. */
struct ingest_letter {
    uint8_t session[16];
    uint64_t seq;
    struct meter_str node; /* of the session; empty: not known */
    int64_t recorded_us;   /* when it was rejected: it gets no older */
};

/* A body of the API, beside its bytes; all is copied. */
struct ingest_input {
    struct meter_str tenant; /* of the credential */
    bool is_backfill;        /* of an operator's file, see envelope.h */
    enum envelope_form form;
    const struct meter_header *headers; /* of a CloudEvent in binary mode */
    size_t header_count;
};

struct ingest_result {
    enum meter_verdict verdict;
    struct meter_str event_id; /* data NULL: none */
    const char *error;         /* REJECTED (and CONFLICT): the reason */
    size_t line;               /* of NDJSON, from 1; else 0 */
};

struct ingest_answer {
    enum ingest_outcome outcome;
    const char *error; /* BAD */
    bool single;       /* the body was one object */
    size_t counts[METER_VERDICT_COUNT];
    const struct ingest_result *results; /* request order */
    size_t count;
    const struct ingest_session *session; /* of a ring; DONE only */
    const uint8_t *codes; /* of records: verdict or METER_CODE_NONE each */
    const char *reason;   /* of a dead letter that is rejected again */
};

/* Called once per request; the answer is valid during the call. */
typedef void (*ingest_answer_cb)(void *asker,
                                 const struct ingest_answer *answer);

struct series_engine;

struct ingest_options {
    uint64_t answer_timeout_ms;   /* then UNAVAILABLE; 20 s */
    const char *state_dir;        /* NULL: the configuration's */
    struct series_engine *series; /* must outlive it; NULL: no series */
};

MUST_CHECK struct ingest *
ingest_create(uv_loop_t *loop, struct config *config, struct lane *lane,
              struct partition *partition,
              const struct ingest_options *options);
/* Not from inside an answer. Requests still kept get UNAVAILABLE. */
void ingest_destroy(struct ingest *ingest);

/* The lane's events, wired by the aggregator. */
void ingest_lane_ready(struct ingest *ingest, int64_t last, int64_t batch);
void ingest_lane_lost(struct ingest *ingest);
void ingest_not_replicated(struct ingest *ingest);

/* The series' buffer has room again: batches may go on. */
void ingest_room(struct ingest *ingest);

/* New rules for requests submitted from now on. */
void ingest_config_set(struct ingest *ingest, struct config *config);

/*
 * body's bytes move in (the buf is emptied). The callback comes later, or
 * during this call when the database is not needed (BAD, BUSY, all events
 * rejected) or was never reached (UNAVAILABLE). Returns a handle for
 * ingest_cancel while the callback is outstanding, else NULL.
 */
struct ingest_request *
ingest_submit(struct ingest *ingest, const struct ingest_input *input,
              struct buf *body, ingest_answer_cb cb, void *asker);
/* The asker is gone: no callback any more; the events go their way. */
void ingest_cancel(struct ingest_request *request);

/*
 * A ring says hello: its session's row is made or locked in a transaction
 * behind everything submitted for it before; the answer tells how far it has
 * come. oldest: first record that the ring can send, 0 when it can send
 * everything past the row's last_seq. Where it cannot, the numbers between
 * are given up: the row moves to oldest - 1, a loss is recorded, and the
 * answer's session says how many are missing.
 */
struct ingest_request *
ingest_open_ring(struct ingest *ingest, const struct ingest_ring *ring,
                 uint64_t oldest, ingest_answer_cb cb, void *asker);
/*
 * count whole ring records without PADs, numbered from first_seq on, as they
 * stand in a DATA frame; the buf's bytes move in. BAD: not such records.
 */
struct ingest_request *
ingest_submit_records(struct ingest *ingest, const struct ingest_ring *ring,
                      uint64_t first_seq, size_t count, struct buf *records,
                      ingest_answer_cb cb, void *asker);
/*
 * The connection that brought these records is fenced: no callback. Records
 * that no transaction has taken are dropped, the ring still has them.
 */
void ingest_withdraw(struct ingest_request *request);

/*
 * A dead letter to be booked, if it is acceptable now; the buf's bytes, one
 * whole record, move in. DONE, and one code: accepted, duplicate or conflict,
 * and the letter is gone; rejected with a reason, and it stays; none: it was
 * gone, someone else has booked it. BAD: not the record that it should be.
 */
struct ingest_request *
ingest_replay_letter(struct ingest *ingest, const struct ingest_letter *letter,
                     struct buf *record, ingest_answer_cb cb, void *asker);
/*
 * The same without any effect, and without a database. DONE with an empty
 * reason: it is acceptable; whether its id is known is not asked.
 */
MUST_CHECK enum ingest_outcome
ingest_check_letter(struct config *config, const struct ingest_letter *letter,
                    struct buf *record, char *reason, size_t reason_size);

/* Number of the database's incarnation: another one may have gone back. */
uint64_t ingest_db_epoch(const struct ingest *ingest);

/* Nothing queued and nothing in flight: SIGTERM may go on. */
bool ingest_is_idle(const struct ingest *ingest);
/* Able to commit: the lane is up and the last transaction went through. */
bool ingest_is_able(const struct ingest *ingest);

#endif
