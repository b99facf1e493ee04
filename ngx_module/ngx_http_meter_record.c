
/*
 * ngx_http_meter_record.c - the decision: once for each metered request.
 *
 *   header_filter, log_phase -> [record] -> ring -> link
 *                                  |
 *                                  +-> zone: is the id durable already?
 *
 *   filtered    meter_if, the status, or we refused the request ourselves
 *   recorded    an EVENT record, or one more in a delta's cell
 *   duplicate   a client's id that the database has: a DUPNOTE record
 *   lost        no room, no ring, no memory: counted, told to meterd
 *
 * With a slot the record is made from it, so that an adopter knows which of
 * the two counts. Where a worker may die between freeing the slot and
 * counting, a filtered request is rather not counted and a lost one rather
 * counted and emitted: neither is ever billed wrong or lost in silence.
 */


#include "ngx_http_meter_ring.h"


static void ngx_http_meter_record_decide(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap, ngx_http_meter_ring_t *ring);
static void ngx_http_meter_record_filtered(ngx_http_meter_capture_t *cap,
    ngx_http_meter_ring_t *ring);
static void ngx_http_meter_record_lost(ngx_http_meter_capture_t *cap,
    ngx_http_meter_ring_t *ring);
static ngx_int_t ngx_http_meter_record_delta(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap, ngx_http_meter_ring_t *ring,
    struct meter_record_event *event);
static ngx_int_t ngx_http_meter_record_add(ngx_http_meter_capture_t *cap,
    ngx_http_meter_ring_t *ring, struct meter_str key, int64_t bucket_us,
    struct meter_decimal quantity);
static void ngx_http_meter_record_event(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap, ngx_http_meter_ring_t *ring,
    struct meter_record_event *event);
static uint64_t ngx_http_meter_record_publish(ngx_http_meter_capture_t *cap,
    ngx_http_meter_ring_t *ring, enum meter_record_kind kind, size_t size);
static void ngx_http_meter_record_remember(ngx_http_request_t *r,
    ngx_http_meter_ring_t *ring, struct meter_zone *zone,
    struct meter_zone_id *id, uint64_t seq);
static void ngx_http_meter_record_slot(ngx_http_meter_capture_t *cap);
static u_char *ngx_http_meter_record_room(ngx_http_meter_capture_t *cap,
    ngx_http_meter_ring_t *ring);
static struct meter_slot *ngx_http_meter_record_entry(
    ngx_http_meter_capture_t *cap);
static void ngx_http_meter_record_free(ngx_http_meter_capture_t *cap);


/* eight kilobytes; requests are handled one after the other */

static struct meter_record_event  ngx_http_meter_record_scratch;


/*
 * The status is the one that the header told, even if a client that went
 * away makes nginx log 499; what is evaluated under it must not be seen by
 * others then.
 */

void
ngx_http_meter_record(ngx_http_request_t *r, ngx_http_meter_capture_t *cap)
{
    ngx_int_t               entered;
    ngx_uint_t              status, err_status, changed;
    ngx_http_meter_ring_t  *ring;

    ring = cap->ring ? cap->ring : ngx_http_meter_outbox_current();

    status = r->headers_out.status;
    err_status = r->err_status;
    changed = (err_status ? err_status : status) != cap->status;

    entered = ngx_http_meter_capture_enter(r, cap, changed);

    if (entered == NGX_ERROR) {
        entered = ngx_http_meter_capture_enter(r, cap, 0);
    }

    r->headers_out.status = cap->status;
    r->err_status = 0;

    ngx_http_meter_record_decide(r, cap, ring);

    r->headers_out.status = status;
    r->err_status = err_status;

    if (entered == NGX_OK) {
        ngx_http_meter_capture_leave(r);
    }

    cap->decided = 1;

    ngx_http_meter_record_release(cap);
}


static void
ngx_http_meter_record_decide(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap, ngx_http_meter_ring_t *ring)
{
    ngx_int_t                   rc;
    struct meter_slot          *slot;
    struct meter_record_event  *event;

    rc = ngx_http_meter_event_filtered(r, cap);

    if (rc == 1) {
        ngx_http_meter_record_filtered(cap, ring);
        return;
    }

    event = &ngx_http_meter_record_scratch;

    if (rc == NGX_ERROR
        || ngx_http_meter_event_read(r, cap, event) != NGX_OK)
    {
        slot = ngx_http_meter_record_entry(cap);

        if (slot && slot->state == METER_SLOT_ANSWERED) {
            ngx_http_meter_record_slot(cap);
            return;
        }

        ngx_http_meter_record_lost(cap, ring);
        return;
    }

    if (event->tenant.size == 0) {
        ngx_http_meter_count(r, NGX_HTTP_METER_TENANT_EMPTY, 1);
    }

    if (cap->unusable) {
        ngx_http_meter_count(r, NGX_HTTP_METER_IDS_MINTED, 1);
    }

    if (ring == NULL) {
        ngx_http_meter_record_lost(cap, ring);
        return;
    }

    if (cap->route->capture == NGX_HTTP_METER_CAPTURE_DELTA
        && ngx_http_meter_record_delta(r, cap, ring, event) == NGX_OK)
    {
        return;
    }

    ngx_http_meter_record_event(r, cap, ring, event);
}


static void
ngx_http_meter_record_filtered(ngx_http_meter_capture_t *cap,
    ngx_http_meter_ring_t *ring)
{
    if (!cap->refused) {
        cap->verdict = NGX_HTTP_METER_FILTERED;
    }

    ngx_http_meter_record_free(cap);

    if (ring) {
        meter_outbox_filtered(&ring->outbox);

    } else {
        ngx_http_meter_losses_add(0, 1);
    }
}


static void
ngx_http_meter_record_lost(ngx_http_meter_capture_t *cap,
    ngx_http_meter_ring_t *ring)
{
    cap->verdict = NGX_HTTP_METER_LOST;

    if (ring == NULL) {
        ngx_http_meter_outbox_missed(1);
        return;
    }

    meter_outbox_lost(&ring->outbox, 1, METER_LOSS_FULL,
                      ngx_http_meter_now_us());

    ngx_http_meter_record_free(cap);
}


/*
 * NGX_DECLINED: an event it is, with the time of its bucket when only a cell
 * was missing, as it came when its quantity cannot be added. One below 0 that
 * is not allowed would vanish in the sum: meterd has to see and refuse it.
 */

static ngx_int_t
ngx_http_meter_record_delta(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap, ngx_http_meter_ring_t *ring,
    struct meter_record_event *event)
{
    u_char                buf[METER_CELL_BODY_SIZE];
    struct meter_str      key, text;
    struct meter_writer   out;
    struct meter_decimal  quantity;

    text = event->quantity;

    if (text.size == 0) {
        quantity = meter_decimal_from_int(1);

    } else if (meter_decimal_parse(text, &quantity) != METER_DECIMAL_OK
               || (quantity.units < 0
                   && !(event->flags & METER_EVENT_NEGATIVE)))
    {
        return NGX_DECLINED;
    }

    event->ts_us -= event->ts_us % METER_CELL_BUCKET_US;
    event->quantity.data = NULL;
    event->quantity.size = 0;

    meter_writer_init(&out, buf, sizeof(buf));
    meter_record_event_encode(event, &out);

    key.data = (const char *) buf;
    key.size = out.at;

    if (!out.failed
        && ngx_http_meter_record_add(cap, ring, key, event->ts_us, quantity)
           == NGX_OK)
    {
        return NGX_OK;
    }

    event->quantity = text;

    ngx_http_meter_count(r, NGX_HTTP_METER_CELLS_FULL, 1);

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_meter_record_add(ngx_http_meter_capture_t *cap,
    ngx_http_meter_ring_t *ring, struct meter_str key, int64_t bucket_us,
    struct meter_decimal quantity)
{
    uint64_t            operation;
    struct meter_slot  *slot;

    slot = ngx_http_meter_record_entry(cap);
    operation = 0;

    if (slot) {
        operation = meter_outbox_operation(&ring->outbox);
        slot->operation = operation;
    }

    if (!meter_cell_add(&ring->outbox, key, bucket_us, quantity, operation)) {

        if (slot) {
            slot->operation = 0;
        }

        return NGX_DECLINED;
    }

    cap->verdict = NGX_HTTP_METER_RECORDED;

    ngx_http_meter_record_free(cap);
    ngx_http_meter_link_wake(ring);

    return NGX_OK;
}


static void
ngx_http_meter_record_event(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap, ngx_http_meter_ring_t *ring,
    struct meter_record_event *event)
{
    bool                     is_other;
    u_char                  *buf;
    size_t                   size;
    uint64_t                 seq;
    struct meter_zone       *zone;
    struct meter_zone_id     id;
    enum meter_record_kind   kind;

    kind = METER_RECORD_EVENT;
    zone = event->event_id.size ? ngx_http_meter_zone_get() : NULL;

    if (zone) {
        meter_zone_id(zone, event->tenant, event->event_id, event->type,
                      event->customer, event->resource, &id);

        if (meter_zone_find(zone, &id, ngx_current_msec, &is_other)
            == METER_ZONE_DURABLE)
        {
            kind = METER_RECORD_DUPNOTE;
        }
    }

    buf = ngx_http_meter_record_room(cap, ring);

    if (buf == NULL) {
        ngx_http_meter_record_lost(cap, ring);
        return;
    }

    size = ngx_http_meter_event_encode(event, buf, METER_RECORD_BODY_SIZE_MAX);

    if (event->flags & METER_EVENT_TRUNCATED) {
        ngx_http_meter_count(r, NGX_HTTP_METER_TRUNCATED, 1);
    }

    seq = ngx_http_meter_record_publish(cap, ring, kind, size);

    if (kind == METER_RECORD_DUPNOTE) {
        cap->verdict = NGX_HTTP_METER_DUPLICATE;
        return;
    }

    cap->verdict = NGX_HTTP_METER_RECORDED;

    if (event->event_id.size == 0) {
        ngx_memcpy(cap->session, ring->outbox.header.session,
                   sizeof(cap->session));
        cap->seq = seq;
        cap->ts_us = event->ts_us;

    } else if (zone) {
        ngx_http_meter_record_remember(r, ring, zone, &id, seq);
    }
}


/* the body lies where reserve said */

static uint64_t
ngx_http_meter_record_publish(ngx_http_meter_capture_t *cap,
    ngx_http_meter_ring_t *ring, enum meter_record_kind kind, size_t size)
{
    uint64_t            seq;
    struct meter_slot  *slot;

    slot = ngx_http_meter_record_entry(cap);

    seq = meter_outbox_commit(&ring->outbox, kind, size, 1, true,
                              slot ? &slot->seq : NULL);

    ngx_http_meter_record_free(cap);
    ngx_http_meter_link_wake(ring);

    return seq;
}


static void
ngx_http_meter_record_remember(ngx_http_request_t *r,
    ngx_http_meter_ring_t *ring, struct meter_zone *zone,
    struct meter_zone_id *id, uint64_t seq)
{
    bool    is_evicted;
    size_t  index;

    index = meter_zone_pending(zone, id, ngx_http_meter_link_tag(ring), seq,
                               ngx_current_msec, &is_evicted);

    if (is_evicted) {
        ngx_http_meter_count(r, NGX_HTTP_METER_EVICTIONS, 1);
    }

    ngx_http_meter_link_pending(ring, seq, index);
}


void
ngx_http_meter_record_answer(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap)
{
    u_char                      buf[METER_SLOT_BODY_SIZE];
    ngx_int_t                   rc;
    struct meter_str            body;
    ngx_http_meter_ring_t      *ring;
    struct meter_record_event  *event;

    /* what is not billed by its status needs no slot */

    if (cap->route->filter == NULL
        && ngx_http_meter_event_filtered(r, cap) == 1)
    {
        ngx_http_meter_record(r, cap);
        return;
    }

    ring = ngx_http_meter_outbox_current();

    if (cap->slot == METER_SLOT_NONE
        && (ring == NULL
            || ngx_http_meter_record_reserve(cap, ring) != NGX_OK))
    {
        ngx_http_meter_count(r, NGX_HTTP_METER_SLOTS_FULL, 1);
        return;
    }

    if (ngx_http_meter_capture_enter(r, cap, 1) != NGX_OK) {
        return;
    }

    event = &ngx_http_meter_record_scratch;

    rc = ngx_http_meter_event_read(r, cap, event);

    ngx_http_meter_capture_leave(r);

    if (rc != NGX_OK) {
        return;
    }

    body.data = (const char *) buf;
    body.size = ngx_http_meter_event_encode(event, buf, sizeof(buf));

    (void) meter_slot_answer(&cap->ring->outbox.slots, cap->slot, body);
}


/* a request stays with the ring that holds its room or its slot */

ngx_int_t
ngx_http_meter_record_reserve(ngx_http_meter_capture_t *cap,
    ngx_http_meter_ring_t *ring)
{
    if (cap->ring) {
        ring = cap->ring;
    }

    cap->slot = meter_slot_take(&ring->outbox.slots);

    if (cap->slot == METER_SLOT_NONE) {
        return NGX_DECLINED;
    }

    cap->ring = ring;

    return NGX_OK;
}


void
ngx_http_meter_record_release(ngx_http_meter_capture_t *cap)
{
    struct meter_slot  *slot;

    slot = ngx_http_meter_record_entry(cap);

    if (slot && slot->state == METER_SLOT_ANSWERED) {
        ngx_http_meter_record_slot(cap);
    }

    ngx_http_meter_record_free(cap);

    if (cap->room) {
        cap->room = 0;
        ngx_http_meter_record_promise(cap->ring, -1);
    }

    cap->ring = NULL;
}


/* as it was known when the header left: what an adopter would do */

static void
ngx_http_meter_record_slot(ngx_http_meter_capture_t *cap)
{
    u_char            *buf;
    struct meter_str   body;

    buf = ngx_http_meter_record_room(cap, cap->ring);

    if (buf == NULL) {
        ngx_http_meter_record_lost(cap, cap->ring);
        return;
    }

    body = meter_slot_body(ngx_http_meter_record_entry(cap));

    ngx_memcpy(buf, body.data, body.size);

    (void) ngx_http_meter_record_publish(cap, cap->ring, METER_RECORD_EVENT,
                                         body.size);

    cap->verdict = NGX_HTTP_METER_RECORDED;
}


/*
 * Nobody takes room that was promised, neither records nor cells that are
 * sealed. One record more is kept, which may be skipped where the ring wraps.
 */

void
ngx_http_meter_record_promise(ngx_http_meter_ring_t *ring, ngx_int_t change)
{
    ring->promised += change;

    ring->outbox.kept = ring->promised
                        ? (ring->promised + 1) * METER_RECORD_SIZE_MAX : 0;
}


static u_char *
ngx_http_meter_record_room(ngx_http_meter_capture_t *cap,
    ngx_http_meter_ring_t *ring)
{
    u_char  *buf;
    size_t   kept;

    kept = ring->outbox.kept;

    if (cap->room) {
        ring->outbox.kept = (ring->promised - 1) * METER_RECORD_SIZE_MAX;
    }

    buf = meter_outbox_reserve(&ring->outbox, METER_RECORD_BODY_SIZE_MAX);

    ring->outbox.kept = kept;

    return buf;
}


static struct meter_slot *
ngx_http_meter_record_entry(ngx_http_meter_capture_t *cap)
{
    if (cap->slot == METER_SLOT_NONE) {
        return NULL;
    }

    return &cap->ring->outbox.slots.items[cap->slot];
}


static void
ngx_http_meter_record_free(ngx_http_meter_capture_t *cap)
{
    if (cap->slot == METER_SLOT_NONE) {
        return;
    }

    meter_slot_free(&cap->ring->outbox.slots, cap->slot);

    cap->slot = METER_SLOT_NONE;
}
