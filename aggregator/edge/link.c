/*
 * link.c - the capture half on a connection: records in, results out.
 *
 *   connection -> [link] -> intake -> ingest
 *        ^           |
 *        +-- frames -+
 *
 *   HELLO -> OPENING --ingest answers--> OPEN --SIGTERM--> DRAINING
 *               |                          |                  |
 *               +--------------------------+------------------+-> LEAVING
 *
 * A connection whose first frame is HELLO. HELLO_ACK follows as soon as the
 * database has said how far the ring's session is, however long that takes;
 * PING is answered meanwhile and always. Then DATA goes to the intake and
 * each committed one comes back as RESULT, on this connection only. A newer
 * HELLO of the same session fences this one. Whatever ends a link with a word
 * to the worker (NACK, BYE) goes through link_leave; bad bytes close without
 * one.
 *
 * Held in memory: one frame, and what the intake's credit allows. A worker
 * that sends past its credit, or half a frame and nothing more, or does not
 * read its answers, is closed; a silent one is not.
 */

#include "edge/connection.h"

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "store/lane.h"

#include <stdlib.h>

#define READ_SIZE       (64u << 10)
#define BYTES_MAX       (METER_FRAME_HEADER_SIZE + METER_FRAME_SIZE_MAX + READ_SIZE)
#define OUT_BYTES_MAX   (8u << 20)   /* bounded by credit; see OUT_HOLD */
#define OUT_HOLD        (256u << 10) /* answers not read: read no more */
#define KEEP_ROOM_MAX   (64u << 10)  /* larger buffers are not kept idle */
#define RETRY_LATER_MS  1000
#define RETRY_REWIND_MS 100
#define REPLY_SIZE      512 /* any frame here; texts and codes aside */

enum link_state {
    LINK_HELLO,    /* the first frame is being looked at */
    LINK_OPENING,  /* waits for the intake to open */
    LINK_OPEN,     /* takes records */
    LINK_DRAINING, /* DRAIN was sent: results go out, no record comes in */
    LINK_LEAVING,  /* the last frames go out; then the connection ends */
    LINK_CLOSED    /* waits for libuv to let go */
};

#define MAY(state) (1u << LINK_##state)

/* What each state may turn into. */
static const unsigned link_next[] = {
    [LINK_HELLO] = MAY(OPENING) | MAY(LEAVING) | MAY(CLOSED),
    [LINK_OPENING] = MAY(OPEN) | MAY(LEAVING) | MAY(CLOSED),
    [LINK_OPEN] = MAY(DRAINING) | MAY(LEAVING) | MAY(CLOSED),
    [LINK_DRAINING] = MAY(LEAVING) | MAY(CLOSED),
    [LINK_LEAVING] = MAY(CLOSED),
    [LINK_CLOSED] = 0,
};

/* What every frame to one ring carries. */
struct link_ring {
    uint64_t tag;
    uint8_t version; /* the one chosen; HELLO_ACK and NACK go in the lowest */
};

struct link {
    enum link_state state;
    struct connection *connection;
    struct intake *intake; /* NULL: before HELLO, or given up */
    struct link_ring ring;
    bool is_gap_logged;
    bool is_refusing; /* DATA while draining was answered once */
    bool is_used;     /* since the last tick */
    struct buf bytes; /* a frame that is not whole yet */
    size_t need;      /* bytes in all that its next step takes */
};

static void
link_enter(struct link *link, enum link_state state)
{
    CHECK((link_next[link->state] & (1u << state)) != 0);
    link->state = state;
}


/* ---- what is said to a ring ------------------------------------------ */

/* The tag of a session's frames: its first eight bytes, little endian. */
static uint64_t
link_tag(const uint8_t session[16])
{
    uint64_t tag = 0;

    for (int i = 7; i >= 0; i--) {
        tag = tag << 8 | session[i];
    }
    return tag;
}

/* PONG with the PING's number, DRAIN, BYE. */
static void
link_put_empty(struct link *link, uint8_t type, uint64_t seq)
{
    struct meter_frame frame = {
        .version = link->ring.version,
        .type = type,
        .seq = seq,
        .session_tag = link->ring.tag,
    };

    frame_put(&link->connection->out, &frame);
}

static void
link_put_hello_ack(struct link *link, const struct meter_hello_ack *ack)
{
    struct buf *out = &link->connection->out;
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MIN, /* by rule, whatever was chosen */
        .type = METER_FRAME_HELLO_ACK,
        .session_tag = link->ring.tag,
    };
    struct meter_writer writer;

    if (frame_begin(out, REPLY_SIZE + ack->instance.size, &writer)) {
        meter_hello_ack_encode(ack, &writer);
        frame_end(out, &writer, &frame);
    }
}

/* Several frames where one cannot hold all codes. */
static void
link_put_result(struct buf *out, const struct link_ring *to,
                const struct meter_result *result)
{
    struct meter_result part = *result;
    struct meter_frame frame = {
        .version = to->version,
        .type = METER_FRAME_RESULT,
        .session_tag = to->tag,
    };
    struct meter_writer writer;
    size_t at = 0;

    do {
        size_t left = result->codes.size - at;

        part.first_seq = result->first_seq + at;
        part.codes.size =
            left < METER_BATCH_EVENTS_MAX ? left : METER_BATCH_EVENTS_MAX;
        part.codes.data = left == 0 ? NULL : result->codes.data + at;
        frame.seq = part.first_seq;
        frame.count = (uint32_t)part.codes.size;
        if (!frame_begin(out, REPLY_SIZE + part.codes.size, &writer)) {
            return;
        }
        meter_result_encode(&part, &writer);
        frame_end(out, &writer, &frame);
        at += part.codes.size;
    } while (at < result->codes.size);
}

static void
link_put_credit(struct link *link, uint64_t seq_limit)
{
    struct buf *out = &link->connection->out;
    struct meter_frame frame = {
        .version = link->ring.version,
        .type = METER_FRAME_CREDIT,
        .session_tag = link->ring.tag,
    };
    struct meter_credit credit = {seq_limit};
    struct meter_writer writer;

    if (frame_begin(out, REPLY_SIZE, &writer)) {
        meter_credit_encode(&credit, &writer);
        frame_end(out, &writer, &frame);
    }
}

static void
link_put_nack(struct link *link, enum meter_nack_code code, uint64_t value)
{
    struct buf *out = &link->connection->out;
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MIN, /* VERSION comes before any choice */
        .type = METER_FRAME_NACK,
        .session_tag = link->ring.tag,
    };
    struct meter_nack nack = {(uint8_t)code, value};
    struct meter_writer writer;

    if (frame_begin(out, REPLY_SIZE, &writer)) {
        meter_nack_encode(&nack, &writer);
        frame_end(out, &writer, &frame);
    }
}

/* Stops reading while there is no room for what would be read. */
static void
link_reading(struct link *link)
{
    struct connection *connection = link->connection;

    if (link->state == LINK_CLOSED) {
        return;
    }
    if (link->state == LINK_LEAVING || connection->out.size > OUT_HOLD ||
        intakes_are_full(&connection->edge->intakes)) {
        connection_half_set(connection, false); /* we make it wait */
        connection_read_stop(connection);
        return;
    }
    connection_half_set(connection, link->bytes.size > 0);
    connection_read_start(connection);
}

/* Sends what was said since the last write; nothing more: may end it. */
static void
link_flush(struct link *link)
{
    struct connection *connection = link->connection;

    connection_send(connection, NULL);
    if (link->state == LINK_LEAVING && connection->out.size == 0 &&
        connection->sending.size == 0) {
        connection_close(connection, "said good-bye");
    }
}

static void
link_written_cb(void *speaker)
{
    link_flush(speaker);
    link_reading(speaker);
}


/* ---- the end --------------------------------------------------------- */

/* What was said goes out; nothing else does. */
static void
link_leave(struct link *link)
{
    link_enter(link, LINK_LEAVING);
    intake_close(link->intake);
    link->intake = NULL;
    link_reading(link);
    link_flush(link);
}

static void
link_refuse(struct link *link, enum meter_nack_code code, uint64_t value)
{
    link_put_nack(link, code, value);
    link_leave(link);
}

static void
link_bye(struct link *link)
{
    link_put_empty(link, METER_FRAME_BYE, 0);
    link_leave(link);
}

static void
link_close_cb(void *speaker)
{
    struct link *link = speaker;

    link_enter(link, LINK_CLOSED);
    intake_close(link->intake);
    link->intake = NULL;
}

static void
link_free_cb(void *speaker)
{
    struct link *link = speaker;

    buf_fini(&link->bytes);
    free(link);
}

static void
link_drain_cb(void *speaker)
{
    struct link *link = speaker;

    if (link->state == LINK_OPENING) {
        link_put_nack(link, METER_NACK_RETRY_AFTER, RETRY_LATER_MS);
        link_bye(link);
        return;
    }
    if (link->state != LINK_OPEN) {
        return;
    }
    link_enter(link, LINK_DRAINING);
    link_put_empty(link, METER_FRAME_DRAIN, 0);
    if (TAILQ_EMPTY(&link->intake->parts)) {
        link_bye(link);
        return;
    }
    link_flush(link);
}


/* ---- what the intake says -------------------------------------------- */

static void
link_open_cb(void *owner, const struct ingest_session *session,
             uint64_t seq_limit)
{
    struct link *link = owner;
    const struct edge *edge = link->connection->edge;
    struct meter_hello_ack ack = {
        .version = link->ring.version,
        .last_seq = session->last_seq,
        .seq_limit = seq_limit,
        .db_epoch = intakes_db_epoch(&edge->intakes),
        .config_version = edge->config_version,
        .server_time_us = lane_now_us(edge->lane),
        .instance = edge->instance,
    };

    memcpy(ack.verdicts, session->verdicts, sizeof(ack.verdicts));
    link_enter(link, LINK_OPEN);
    link_put_hello_ack(link, &ack);
    link_flush(link);
}

static void
link_result_cb(void *owner, const struct intake_result *from)
{
    struct link *link = owner;
    struct meter_result result = {
        .durable_upto = from->session->last_seq,
        .first_seq = from->first_seq,
        .codes = {(const char *)from->codes, from->count},
    };

    CRASH_POINT("link_before_result");
    link_put_result(&link->connection->out, &link->ring, &result);
    if (from->seq_limit != 0) {
        link_put_credit(link, from->seq_limit);
    }
    if (link->state == LINK_DRAINING && TAILQ_EMPTY(&link->intake->parts)) {
        link_bye(link);
        return;
    }
    link_flush(link);
    CRASH_POINT("link_after_result");
    link_reading(link);
}

static void
link_fenced_cb(void *owner)
{
    struct link *link = owner;

    log_info("link", "a newer connection has the ring");
    link_refuse(link, METER_NACK_FENCED, 0);
}

static void
link_restart_cb(void *owner, enum ingest_outcome why)
{
    struct link *link = owner;

    if (why == INGEST_BAD) {
        connection_bad(link->connection,
                       "DATA holds no whole, numbered records");
        return;
    }
    link_refuse(link, METER_NACK_RETRY_AFTER,
                why == INGEST_GAP ? RETRY_REWIND_MS : RETRY_LATER_MS);
}

static const struct intake_events link_intake_events = {
    .on_open = link_open_cb,
    .on_result = link_result_cb,
    .on_fenced = link_fenced_cb,
    .on_restart = link_restart_cb,
};


/* ---- frames ---------------------------------------------------------- */

static void
link_hello(struct link *link, const struct meter_frame *frame)
{
    struct meter_hello hello;
    struct intake_ring ring;

    if (!meter_hello_decode(frame->payload, &hello)) {
        connection_bad(link->connection, "HELLO cannot be decoded");
        return;
    }
    if (hello.acked >= hello.head || hello.oldest > hello.head) {
        connection_bad(link->connection, "HELLO with numbers that no ring has");
        return;
    }
    link->ring.tag = link_tag(hello.session);
    if (frame->session_tag != link->ring.tag) {
        connection_bad(link->connection, "session tag of another ring");
        return;
    }
    link->ring.version =
        meter_version_common(METER_PROTOCOL_MIN, METER_PROTOCOL_MAX,
                             hello.version_min, hello.version_max);
    if (link->ring.version == 0) {
        if (connection_may_log(link->connection)) {
            log_warn("link", "no common version",
                     log_int("min", hello.version_min),
                     log_int("max", hello.version_max));
        }
        link_refuse(link, METER_NACK_VERSION, 0);
        return;
    }
    log_debug("link", "a ring says hello", log_bytes("node", hello.node),
              log_int("pid", hello.pid), log_int("head", (int64_t)hello.head),
              log_int("acked", (int64_t)hello.acked));
    ring = (struct intake_ring){
        .node = hello.node,
        .head = hello.head,
        .acked = hello.acked,
        .oldest = hello.oldest,
    };
    memcpy(ring.session, hello.session, sizeof(ring.session));
    link->intake = intake_create(&link->connection->edge->intakes, &ring,
                                 &link_intake_events, link);
    link_enter(link, LINK_OPENING);
    intake_open(link->intake);
}

static void
link_gap(struct link *link, uint64_t seq)
{
    uint64_t expected = link->intake->expected;

    if (!link->is_gap_logged) {
        link->is_gap_logged = true;
        log_error("link", "records are not the next ones",
                  log_int("seq", (int64_t)seq),
                  log_int("expected", (int64_t)expected));
    }
    link_put_nack(link, METER_NACK_GAP, expected);
}

static void
link_data(struct link *link, const struct meter_frame *frame)
{
    struct buf records;

    if (link->state == LINK_DRAINING) {
        if (!link->is_refusing) {
            link->is_refusing = true;
            link_put_nack(link, METER_NACK_RETRY_AFTER, RETRY_LATER_MS);
        }
        return;
    }
    if (link->state != LINK_OPEN) {
        connection_bad(link->connection, "DATA before HELLO_ACK");
        return;
    }
    if (frame->count == 0) {
        connection_bad(link->connection, "DATA without records");
        return;
    }
    buf_init(&records, frame->payload.size);
    buf_put_str(&records, frame->payload);
    if (records.failed) {
        connection_no_memory(link->connection);
        return;
    }
    switch (intake_put(link->intake, frame->seq, frame->count, &records)) {
    case INTAKE_TAKEN: CRASH_POINT("link_after_data"); break;
    case INTAKE_ENDED: break;
    case INTAKE_GAP: link_gap(link, frame->seq); break;
    case INTAKE_PAST_CREDIT:
        connection_bad(link->connection, "records past the credit");
        break;
    }
    buf_fini(&records);
}

static void
link_frame(struct link *link, const struct meter_frame *frame)
{
    if (link->state == LINK_HELLO) {
        CHECK(frame->type == METER_FRAME_HELLO);
        link_hello(link, frame);
        return;
    }
    if (frame->session_tag != link->ring.tag) {
        connection_bad(link->connection, "session tag of another ring");
        return;
    }
    switch (frame->type) {
    case METER_FRAME_DATA: link_data(link, frame); break;
    case METER_FRAME_PING:
        link_put_empty(link, METER_FRAME_PONG, frame->seq);
        break;
    case METER_FRAME_PONG:
    case METER_FRAME_DRAIN: break; /* nothing hangs on them */
    case METER_FRAME_BYE: connection_close(link->connection, "BYE"); break;
    default:
        if (frame->type >= METER_FRAME_HELLO &&
            frame->type <= METER_FRAME_CANCEL) {
            connection_bad(link->connection, "a type that has no place here");
        } else if ((frame->flags & METER_FRAME_CRITICAL) != 0) {
            connection_bad(link->connection, "unknown critical frame type");
        }
    }
}

/* Every whole frame that was read. */
static void
link_run(struct link *link)
{
    size_t at = 0;

    while (link->state < LINK_LEAVING) {
        enum meter_frame_error error = METER_FRAME_OK;
        struct meter_frame frame;
        size_t used = 0;
        enum meter_decode decode =
            meter_frame_decode(link->bytes.data + at, link->bytes.size - at,
                               &frame, &used, &link->need, &error);

        if (decode == METER_DECODE_BAD) {
            connection_bad(link->connection, meter_frame_error_text(error));
            break;
        }
        if (decode == METER_DECODE_MORE) {
            break;
        }
        link_frame(link, &frame);
        at += used;
        connection_half_set(link->connection, false);
    }
    buf_consume(&link->bytes, at);
    link_flush(link);
    link_reading(link);
}


/* ---- bytes and time -------------------------------------------------- */

static void
link_room_cb(void *speaker, char **data, size_t *size)
{
    struct link *link = speaker;

    *size = READ_SIZE;
    if (link->need > link->bytes.size + READ_SIZE) {
        *size = link->need - link->bytes.size;
    }
    *data = buf_reserve(&link->bytes, *size);
}

static void
link_bytes_cb(void *speaker, size_t size)
{
    struct link *link = speaker;

    link->is_used = true;
    buf_commit(&link->bytes, size);
    link_run(link);
}

static void
link_tick_cb(void *speaker, uint64_t now_ms)
{
    struct link *link = speaker;

    if (connection_is_late(link->connection, now_ms)) {
        return;
    }
    if (!link->is_used) {
        buf_trim(&link->bytes, KEEP_ROOM_MAX);
        buf_trim(&link->connection->out, KEEP_ROOM_MAX);
        buf_trim(&link->connection->sending, KEEP_ROOM_MAX);
    }
    link->is_used = false;
    link_reading(link); /* other rings' results make room too */
}

static void
link_begin_cb(struct connection *connection, struct buf *bytes)
{
    struct link *link = memory_alloc(sizeof(*link));

    link->connection = connection;
    link->bytes = *bytes;
    link->bytes.size_max = BYTES_MAX;
    buf_init(bytes, 0);
    connection->speaker = link;
    link_run(link);
}

const struct connection_protocol link_protocol = {
    .log_name = "link",
    .out_max = OUT_BYTES_MAX,
    .on_begin = link_begin_cb,
    .on_room = link_room_cb,
    .on_bytes = link_bytes_cb,
    .on_written = link_written_cb,
    .on_drain = link_drain_cb,
    .on_tick = link_tick_cb,
    .on_close = link_close_cb,
    .on_free = link_free_cb,
};
