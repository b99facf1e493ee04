
/*
 * ngx_http_meter_ring_time.c - a ring or its database went back in time.
 *
 *   database ahead of the file    abandon, or known when nothing was added
 *   file ahead of the database    resent; missing, as far as overwritten
 *
 * Each brings the counts of the ring in line with what can still become of
 * its records, so that what was seen stays the sum of all fates.
 */


#include "ngx_http_meter_ring.h"

#include "meter_live.h"


static uint64_t ngx_http_meter_ring_told(struct meter_outbox_live *live);


uint64_t
ngx_http_meter_ring_abandon(ngx_http_meter_ring_t *ring)
{
    uint64_t                  lost, told;
    struct meter_outbox_live  after;

    after = *ring->outbox.live;
    told = ngx_http_meter_ring_told(&after);

    /* renewing counts them as lost; this is what meterd will be told */

    lost = (after.counts.recorded > told) ? after.counts.recorded - told : 0;

    if (lost) {
        meter_live_lose(&after, lost, METER_LOSS_TORN,
                        ngx_http_meter_now_us());
        meter_live_change(ring->outbox.live, &after);
    }

    /* slots and cells stay for the next session */

    meter_outbox_ack(&ring->outbox, ring->outbox.head - 1);

    /* without randomness it is found again at the next HELLO */

    (void) ngx_http_meter_ring_renew(ring);

    return lost;
}


/* the totals are of more records than the file has: as many as fit */

void
ngx_http_meter_ring_known(ngx_http_meter_ring_t *ring, uint64_t *verdicts)
{
    uint64_t                  left;
    ngx_uint_t                i;
    struct meter_outbox_live  after;

    after = *ring->outbox.live;
    left = after.counts.recorded;

    for (i = 0; i < METER_VERDICT_COUNT; i++) {
        after.verdicts[i] = ngx_min(verdicts[i], left);
        left -= after.verdicts[i];
    }

    meter_live_change(ring->outbox.live, &after);

    meter_outbox_ack(&ring->outbox, ring->outbox.head - 1);
}


void
ngx_http_meter_ring_missing(ngx_http_meter_ring_t *ring)
{
    size_t                       used;
    uint64_t                     fates;
    struct meter_str             bytes;
    struct meter_record          record;
    struct meter_outbox_live     after;
    struct meter_outbox_cursor   cursor;

    after = *ring->outbox.live;
    fates = ngx_http_meter_ring_told(&after);

    meter_outbox_cursor(&ring->outbox, &cursor);

    while (meter_outbox_next(&ring->outbox, &cursor, &bytes)) {

        if (meter_record_decode(bytes.data, bytes.size, &record, &used)
            == METER_DECODE_OK)
        {
            fates += (uint64_t) meter_record_weight(&record);
        }
    }

    if (fates >= after.counts.recorded) {
        return;
    }

    /* meterd keeps its own count of these: no LOSSNOTE */

    after.counts.lost += after.counts.recorded - fates;
    after.counts.recorded = fates;

    meter_live_change(ring->outbox.live, &after);
}


static uint64_t
ngx_http_meter_ring_told(struct meter_outbox_live *live)
{
    uint64_t    told;
    ngx_uint_t  i;

    told = 0;

    for (i = 0; i < METER_VERDICT_COUNT; i++) {
        told += live->verdicts[i];
    }

    return told;
}
