/*
 * outbox_fixture.h - a ring file in plain memory, and bodies to put into it.
 */

#ifndef UNIT_OUTBOX_FIXTURE_H
#define UNIT_OUTBOX_FIXTURE_H

#include "meter_cmocka.h"
#include "meter_live.h"
#include "meter_outbox.h"

#define BOX_TS   INT64_C(1700000000000000)
#define BOX_STEP 300 /* verified at once */

static const uint8_t box_boot[16] = "this boot";
static const uint8_t box_other_boot[16] = "an earlier boot";

struct box {
    uint8_t *map;
    size_t size;
    void *scratch;
    struct meter_outbox outbox;
    struct meter_outbox_report report;
};

static inline void
box_session(uint64_t number, uint8_t session[16])
{
    memset(session, 0x5e, 16);
    memcpy(session, &number, sizeof(number));
}

static inline void
box_format(struct box *box, uint64_t session_number)
{
    uint8_t session[16];

    box_session(session_number, session);
    assert_true(meter_outbox_format(box->map, box->size, session, box_boot));
}

/* A claimer may die between two steps of verifying as well. */
static inline enum meter_outbox_open
box_open(struct box *box)
{
    enum meter_outbox_open found = meter_outbox_open(
        &box->outbox, box->map, box->size, box->scratch);

    if (found == METER_OUTBOX_OK) {
        while (meter_outbox_verify(&box->outbox, BOX_STEP, &box->report)) {
            METER_STORE_POINT();
        }
    }
    return found;
}

/* As a worker claims it. */
static inline void
box_claim(struct box *box, const uint8_t boot_id[16])
{
    assert_int_equal(box_open(box), METER_OUTBOX_OK);
    meter_outbox_recover(&box->outbox, boot_id, BOX_TS, &box->report);
}

/* Memory of zeros; box_format comes next. */
static inline void
box_make(struct box *box, size_t size)
{
    struct meter_ring_header header;

    memset(box, 0, sizeof(*box));
    assert_true(meter_outbox_layout(size, &header));
    box->size = size;
    box->map = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    box->scratch = aligned_alloc(16, meter_outbox_scratch_size(&header));
    assert_non_null(box->map);
    assert_non_null(box->scratch);
    memset(box->map, 0, size);
}

/* Formatted, opened, ready. */
static inline void
box_init(struct box *box, size_t size)
{
    box_make(box, size);
    box_format(box, 1);
    box_claim(box, box_boot);
    assert_int_equal(meter_outbox_emit(&box->outbox), 0);
}

static inline void
box_free(struct box *box)
{
    free(box->map);
    free(box->scratch);
}

/* An event's body; resource names it. Returns a str over buffer. */
static inline struct meter_str
box_body(uint8_t *buffer, size_t room, const char *resource, int64_t ts_us)
{
    static struct meter_record_event event;
    struct meter_writer out;

    memset(&event, 0, offsetof(struct meter_record_event, attributes));
    event.tenant = METER_STR("acme");
    event.type = METER_STR("api.call");
    event.resource = str_of(resource);
    event.ts_us = ts_us;
    event.count = 1;
    event.flags = METER_EVENT_CAPTURED;
    event.attribute_count = 0;
    meter_writer_init(&out, buffer, room);
    meter_record_event_encode(&event, &out);
    assert_false(out.failed);
    return (struct meter_str){(char *)buffer, out.at};
}

/* Sequence number, or 0: no room. */
static inline uint64_t
box_append(struct box *box, struct meter_str body, uint64_t *entry)
{
    uint8_t *at = meter_outbox_reserve(&box->outbox, body.size);

    if (at == NULL) {
        return 0;
    }
    memcpy(at, body.data, body.size);
    return meter_outbox_commit(&box->outbox, METER_RECORD_EVENT, body.size, 1,
                               true, entry);
}

static inline uint64_t
box_append_named(struct box *box, const char *resource)
{
    uint8_t buffer[512];

    return box_append(box, box_body(buffer, sizeof(buffer), resource, BOX_TS),
                      NULL);
}

/* The next record, decoded and verified. */
static inline bool
box_next(struct box *box, struct meter_outbox_cursor *cursor,
         struct meter_record *record)
{
    struct meter_str bytes;
    size_t used;

    if (!meter_outbox_next(&box->outbox, cursor, &bytes)) {
        return false;
    }
    assert_int_equal(meter_record_decode(bytes.data, bytes.size, record, &used),
                     METER_DECODE_OK);
    assert_int_equal(used, bytes.size);
    return true;
}

#define assert_counts_hold(counts)                                      \
    assert_true((counts)->seen == (counts)->filtered + (counts)->lost + \
                                      (counts)->recorded + (counts)->open)

#endif
