
/*
 * ngx_http_meter_link_recv.c - what meterd says, and what follows from it.
 *
 *   socket -> [in] -> frame -> HELLO_ACK  how far the database is
 *                              RESULT     durable: ack, verdicts, zone
 *                              CREDIT, NACK, PING, DRAIN, BYE
 *
 * An ack is believed only up to what was sent on this connection. meterd
 * that knows more than the ring ever had, or less than it was told, means
 * that the file or the database went back in time: both raise an alarm.
 */


#include "ngx_http_meter_ring.h"


#define NGX_HTTP_METER_RETRY_MAX  60000


static ngx_int_t ngx_http_meter_link_frames(ngx_http_meter_ring_t *ring);
static ngx_int_t ngx_http_meter_link_frame(ngx_http_meter_ring_t *ring,
    struct meter_frame *frame);
static ngx_int_t ngx_http_meter_link_hello_ack(ngx_http_meter_ring_t *ring,
    struct meter_frame *frame);
static ngx_int_t ngx_http_meter_link_rolled_back(ngx_http_meter_ring_t *ring,
    struct meter_hello_ack *ack);
static ngx_int_t ngx_http_meter_link_rewound(ngx_http_meter_ring_t *ring,
    struct meter_hello_ack *ack);
static ngx_int_t ngx_http_meter_link_result(ngx_http_meter_ring_t *ring,
    struct meter_frame *frame);
static void ngx_http_meter_link_settle(ngx_http_meter_ring_t *ring,
    uint64_t upto, struct meter_result *result);
static ngx_int_t ngx_http_meter_link_nack(ngx_http_meter_ring_t *ring,
    struct meter_frame *frame);
static ngx_int_t ngx_http_meter_link_gap(ngx_http_meter_ring_t *ring,
    uint64_t seq);
static ngx_int_t ngx_http_meter_link_bad(ngx_http_meter_ring_t *ring,
    const char *reason);


static ngx_msec_t  ngx_http_meter_link_version_told;
static ngx_msec_t  ngx_http_meter_link_bad_told;


void
ngx_http_meter_link_read_handler(ngx_event_t *rev)
{
    ssize_t                 n;
    ngx_connection_t       *c;
    ngx_http_meter_ring_t  *ring;
    ngx_http_meter_link_t  *link;

    c = rev->data;
    ring = c->data;
    link = &ring->link;

    if (c->close) {

        /* "worker_shutdown_timeout": the successors deliver the rest */

        ngx_http_meter_outbox_give_up();
        ngx_http_meter_link_lost(ring, NULL, 0);
        return;
    }

    for ( ;; ) {

        n = c->recv(c, link->in + link->in_size,
                    NGX_HTTP_METER_IN_SIZE - link->in_size);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR || n == 0) {
            ngx_http_meter_link_lost(ring, "closed the connection", 0);
            return;
        }

        link->in_size += n;
        link->heard = ngx_current_msec;

        if (ngx_http_meter_link_frames(ring) != NGX_OK) {
            return;
        }
    }

    if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        ngx_http_meter_link_lost(ring, "no event", 0);
    }
}


/* NGX_ERROR: the connection is closed */

static ngx_int_t
ngx_http_meter_link_frames(ngx_http_meter_ring_t *ring)
{
    size_t                   at, used, need;
    enum meter_decode        rc;
    struct meter_frame       frame;
    ngx_http_meter_link_t   *link;
    enum meter_frame_error   error;

    link = &ring->link;

    for (at = 0; /* void */ ; at += used) {

        rc = meter_frame_decode(link->in + at, link->in_size - at, &frame,
                                &used, &need, &error);

        if (rc == METER_DECODE_MORE) {
            break;
        }

        if (rc == METER_DECODE_BAD) {
            return ngx_http_meter_link_bad(ring,
                                           meter_frame_error_text(error));
        }

        if (frame.session_tag != ngx_http_meter_link_tag(ring)) {
            return ngx_http_meter_link_bad(ring, "frame of another session");
        }

        if (ngx_http_meter_link_frame(ring, &frame) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (need > NGX_HTTP_METER_IN_SIZE) {
        return ngx_http_meter_link_bad(ring, "frame too large");
    }

    link->in_size -= at;
    ngx_memmove(link->in, link->in + at, link->in_size);

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_link_frame(ngx_http_meter_ring_t *ring,
    struct meter_frame *frame)
{
    struct meter_credit     credit;
    ngx_http_meter_link_t  *link;

    link = &ring->link;

    switch (frame->type) {

    case METER_FRAME_HELLO_ACK:
        return ngx_http_meter_link_hello_ack(ring, frame);

    case METER_FRAME_RESULT:
        return ngx_http_meter_link_result(ring, frame);

    case METER_FRAME_CREDIT:
        if (!meter_credit_decode(frame->payload, &credit)) {
            return ngx_http_meter_link_bad(ring, "bad CREDIT");
        }

        link->limit = ngx_max(link->limit, credit.seq_limit);
        ngx_http_meter_link_push(ring);
        break;

    case METER_FRAME_NACK:
        return ngx_http_meter_link_nack(ring, frame);

    case METER_FRAME_PING:
        ngx_http_meter_link_ping(ring, METER_FRAME_PONG, frame->seq);
        break;

    case METER_FRAME_PONG:
        break;

    case METER_FRAME_DRAIN:
        link->paused = 1;
        break;

    case METER_FRAME_BYE:
        ngx_http_meter_link_lost(ring, "said good-bye", 0);
        return NGX_ERROR;

    default:
        if (frame->flags & METER_FRAME_CRITICAL) {
            return ngx_http_meter_link_bad(ring, "unknown critical frame");
        }
    }

    /* sending may have found out that meterd is gone */

    return link->state == NGX_HTTP_METER_LINK_DOWN ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_http_meter_link_hello_ack(ngx_http_meter_ring_t *ring,
    struct meter_frame *frame)
{
    struct meter_zone         *zone;
    struct meter_outbox       *outbox;
    ngx_http_meter_link_t     *link;
    struct meter_hello_ack     ack;
    struct meter_outbox_live  *live;

    link = &ring->link;
    outbox = &ring->outbox;
    live = outbox->live;

    if (link->state != NGX_HTTP_METER_LINK_HELLO
        || !meter_hello_ack_decode(frame->payload, &ack)
        || ack.version < METER_PROTOCOL_MIN
        || ack.version > METER_PROTOCOL_MAX)
    {
        return ngx_http_meter_link_bad(ring, "bad HELLO_ACK");
    }

    link->version = ack.version;

    /* not the head of now: what was written since is not known to anybody */

    if (ack.last_seq >= link->head) {
        return ngx_http_meter_link_rolled_back(ring, &ack);
    }

    zone = ngx_http_meter_zone_get();

    if (zone) {
        meter_zone_epoch(zone, ack.db_epoch);
    }

    live->db_epoch = ack.db_epoch;

    if (ack.last_seq < outbox->acked) {

        if (ngx_http_meter_link_rewound(ring, &ack) != NGX_OK) {
            return NGX_ERROR;
        }

    } else {
        ngx_http_meter_link_settle(ring, ack.last_seq, NULL);

        METER_CRASH_POINT("link_before_ack");

        meter_outbox_ack(outbox, ack.last_seq);

        METER_CRASH_POINT("link_after_ack");
    }

    ngx_memcpy(live->verdicts, ack.verdicts, sizeof(live->verdicts));

    if (link->oldest) {
        ngx_http_meter_ring_missing(ring);
        link->oldest = 0;
    }

    meter_outbox_cursor(outbox, &link->cursor);
    link->limit = ack.seq_limit;
    ring->ask = 0;

    ngx_http_meter_link_opened(ring);
    ngx_http_meter_link_push(ring);

    if (!ngx_http_meter_ring_unsent(ring)) {
        ngx_http_meter_outbox_drained(ring);
    }

    return link->state == NGX_HTTP_METER_LINK_DOWN ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_http_meter_link_rolled_back(ngx_http_meter_ring_t *ring,
    struct meter_hello_ack *ack)
{
    uint64_t                lost;
    ngx_http_meter_link_t  *link;

    link = &ring->link;

    if (ring->renew) {

        /* it took no records since: all that it has is in the database */

        ngx_http_meter_ring_known(ring, ack->verdicts);
        lost = 0;

    } else {
        lost = ngx_http_meter_ring_abandon(ring);
        (void) meter_outbox_tell_loss(&ring->outbox);
    }

    ngx_http_meter_count_here(NGX_HTTP_METER_ROLLBACKS, 1);

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                  "ring \"%s\" went back in time: it had %uL records, the "
                  "database has %uL; it goes on under a new session, %uL "
                  "requests that wait in it are noted as lost",
                  ring->path, link->head - 1, ack->last_seq, lost);

    link->pending_tail = link->pending_head;
    link->oldest = 0;
    ring->ask = 0;

    ngx_http_meter_link_lost(ring, NULL, 1);
    ngx_http_meter_outbox_drained(ring);

    return NGX_ERROR;
}


/* NGX_ERROR: meterd must first be told that records are missing */

static ngx_int_t
ngx_http_meter_link_rewound(ngx_http_meter_ring_t *ring,
    struct meter_hello_ack *ack)
{
    uint64_t                acked, first;
    struct meter_zone      *zone;
    ngx_http_meter_link_t  *link;

    link = &ring->link;
    acked = ring->outbox.acked;

    if (link->oldest) {
        return ngx_http_meter_link_bad(ring, "does not go on behind missing "
                                             "records");
    }

    zone = ngx_http_meter_zone_get();

    if (zone) {
        meter_zone_forget(zone);
    }

    link->pending_tail = link->pending_head;

    first = meter_outbox_rewind(&ring->outbox, ack->last_seq);

    ngx_http_meter_count_here(NGX_HTTP_METER_REWINDS, 1);

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                  "the database went back in time: it has %uL records of ring "
                  "\"%s\" and had told %uL; %uL are sent again, %uL are gone",
                  ack->last_seq, ring->path, acked, acked + 1 - first,
                  first - ack->last_seq - 1);

    if (first == ack->last_seq + 1) {
        return NGX_OK;
    }

    link->oldest = first;

    ngx_http_meter_link_lost(ring, NULL, 1);

    return NGX_ERROR;
}


static ngx_int_t
ngx_http_meter_link_result(ngx_http_meter_ring_t *ring,
    struct meter_frame *frame)
{
    ngx_http_meter_link_t  *link;
    struct meter_result     result;

    link = &ring->link;

    if (link->state != NGX_HTTP_METER_LINK_STREAM
        || !meter_result_decode(frame->payload, &result)
        || result.durable_upto >= link->cursor.seq)
    {
        return ngx_http_meter_link_bad(ring, "bad RESULT");
    }

    if (result.durable_upto <= ring->outbox.acked) {
        return NGX_OK;
    }

    ngx_http_meter_link_settle(ring, result.durable_upto, &result);

    METER_CRASH_POINT("link_before_ack");

    meter_outbox_ack(&ring->outbox, result.durable_upto);

    METER_CRASH_POINT("link_after_ack");

    if (!ngx_http_meter_ring_unsent(ring)) {
        ngx_http_meter_outbox_drained(ring);
    }

    return NGX_OK;
}


/*
 * Verdicts on all records up to here, before their room is given away. With
 * no result they are not known one by one: the zone forgets the ids, and the
 * totals come with HELLO_ACK.
 */

static void
ngx_http_meter_link_settle(ngx_http_meter_ring_t *ring, uint64_t upto,
    struct meter_result *result)
{
    size_t                       used;
    uint8_t                      code;
    uint64_t                     seq, tag;
    struct meter_str             bytes;
    struct meter_zone           *zone;
    struct meter_record          record;
    ngx_http_meter_link_t       *link;
    struct meter_outbox_live    *live;
    ngx_http_meter_pending_t    *pending;
    struct meter_outbox_cursor   cursor;

    link = &ring->link;
    live = ring->outbox.live;
    zone = ngx_http_meter_zone_get();
    tag = ngx_http_meter_link_tag(ring);

    meter_outbox_cursor(&ring->outbox, &cursor);

    while (cursor.seq <= upto) {

        seq = cursor.seq;

        if (!meter_outbox_next(&ring->outbox, &cursor, &bytes)) {
            break;
        }

        code = METER_CODE_NONE;

        if (result && seq >= result->first_seq
            && seq - result->first_seq < result->codes.size)
        {
            code = (uint8_t) result->codes.data[seq - result->first_seq];
        }

        if (code < METER_VERDICT_COUNT
            && meter_record_decode(bytes.data, bytes.size, &record, &used)
               == METER_DECODE_OK)
        {
            live->verdicts[code] += (uint64_t) meter_record_weight(&record);
        }

        while (link->pending_tail != link->pending_head) {

            pending = &link->pending[link->pending_tail
                                     & (NGX_HTTP_METER_PENDING - 1)];

            if (pending->seq > seq) {
                break;
            }

            link->pending_tail++;

            /* a verdict counts only for the database that gave it */

            if (zone && pending->seq == seq
                && zone->epoch == live->db_epoch)
            {
                meter_zone_settle(zone, pending->index, tag, seq,
                                  code == METER_VERDICT_ACCEPTED
                                  || code == METER_VERDICT_DUPLICATE);
            }
        }
    }
}


static ngx_int_t
ngx_http_meter_link_nack(ngx_http_meter_ring_t *ring,
    struct meter_frame *frame)
{
    ngx_msec_t         after;
    struct meter_nack  nack;

    if (!meter_nack_decode(frame->payload, &nack)) {
        return ngx_http_meter_link_bad(ring, "bad NACK");
    }

    switch (nack.code) {

    case METER_NACK_GAP:
        return ngx_http_meter_link_gap(ring, nack.value);

    case METER_NACK_VERSION:
        if (ngx_http_meter_rarely(&ngx_http_meter_link_version_told)) {
            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                          "meterd speaks no protocol version from %d to %d, "
                          "records wait in the outbox",
                          METER_PROTOCOL_MIN, METER_PROTOCOL_MAX);
        }

        ngx_http_meter_link_lost(ring, "speaks another version", 0);
        return NGX_ERROR;

    case METER_NACK_RETRY_AFTER:
        after = (ngx_msec_t) ngx_min(nack.value, NGX_HTTP_METER_RETRY_MAX);
        ngx_http_meter_link_lost(ring, "asks to come back later",
                                 ngx_max(after, 1));
        return NGX_ERROR;

    default: /* METER_NACK_FENCED */
        ngx_http_meter_link_lost(ring, "has a newer connection", 0);
        return NGX_ERROR;
    }
}


/* once on a connection; meterd that misses records again gets a new HELLO */

static ngx_int_t
ngx_http_meter_link_gap(ngx_http_meter_ring_t *ring, uint64_t seq)
{
    struct meter_str             bytes;
    ngx_http_meter_link_t       *link;
    struct meter_outbox_cursor   cursor;

    link = &ring->link;

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                  "meterd expects record %uL of ring \"%s\", %uL is the next "
                  "to be sent", seq, ring->path, link->cursor.seq);

    if (link->gap || link->state != NGX_HTTP_METER_LINK_STREAM
        || seq <= ring->outbox.acked || seq > ring->outbox.head)
    {
        return ngx_http_meter_link_bad(ring, "gap");
    }

    link->gap = 1;

    meter_outbox_cursor(&ring->outbox, &cursor);

    while (cursor.seq < seq
           && meter_outbox_next(&ring->outbox, &cursor, &bytes))
    {
        /* void */
    }

    link->cursor = cursor;

    ngx_http_meter_link_push(ring);

    return link->state == NGX_HTTP_METER_LINK_DOWN ? NGX_ERROR : NGX_OK;
}


/* it is there, but does not speak as it should */

static ngx_int_t
ngx_http_meter_link_bad(ngx_http_meter_ring_t *ring, const char *reason)
{
    if (ngx_http_meter_rarely(&ngx_http_meter_link_bad_told)) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "meterd on the link of ring \"%s\": %s",
                      ring->path, reason);
    }

    ngx_http_meter_link_lost(ring, reason, 0);

    return NGX_ERROR;
}
