/*
 * batch_ring_rows.c - rows of rings as array parameters, see batch_rows.h.
 *
 * Few rows per transaction (a session each, and what went wrong), so arrays
 * serve for all of them.
 */

#include "ingest/batch_rows.h"

typedef void (*session_field)(struct buf *out,
                              const struct batch_session *session);
typedef void (*item_field)(struct buf *out, const struct batch_item *item);

static void
put_key(struct buf *out, const struct batch_session *session)
{
    pg_put_uuid(out, (const uint8_t *)session->key.data);
}

static void
put_node(struct buf *out, const struct batch_session *session)
{
    pg_put_text(out, session->node);
}

static void
put_last_seq(struct buf *out, const struct batch_session *session)
{
    pg_put_int8(out, session->totals.last_seq);
}

static void
put_accepted(struct buf *out, const struct batch_session *session)
{
    pg_put_int8(out, session->totals.verdicts[METER_VERDICT_ACCEPTED]);
}

static void
put_duplicate(struct buf *out, const struct batch_session *session)
{
    pg_put_int8(out, session->totals.verdicts[METER_VERDICT_DUPLICATE]);
}

static void
put_conflict(struct buf *out, const struct batch_session *session)
{
    pg_put_int8(out, session->totals.verdicts[METER_VERDICT_CONFLICT]);
}

static void
put_rejected(struct buf *out, const struct batch_session *session)
{
    pg_put_int8(out, session->totals.verdicts[METER_VERDICT_REJECTED]);
}

static void
put_lost(struct buf *out, const struct batch_session *session)
{
    pg_put_int8(out, session->totals.lost);
}

static bool
session_is_hello(const struct batch_session *session)
{
    return session->is_hello;
}

static bool
session_is_any(const struct batch_session *session)
{
    (void)session;
    return true;
}

static bool
session_is_moved(const struct batch_session *session)
{
    return session->is_moved;
}

static bool
session_is_settled(const struct batch_session *session)
{
    return session->is_settled;
}

/* One column over the sessions that `wanted` picks. */
static void
put_sessions(struct pg_params *out, enum pg_type type,
             const struct batch_rings *rings,
             bool (*wanted)(const struct batch_session *), session_field field)
{
    size_t count = 0;

    for (size_t i = 0; i < rings->session_count; i++) {
        count += wanted(rings->sessions[i]);
    }
    pg_param_array_begin(out, type, count);
    for (size_t i = 0; i < rings->session_count; i++) {
        if (wanted(rings->sessions[i])) {
            field(&out->bytes, rings->sessions[i]);
        }
    }
    pg_param_array_end(out);
}

void
batch_session_ensure_params(const struct batch *batch,
                            const struct batch_stamp *stamp,
                            struct pg_params *out)
{
    pg_params_reset(out);
    put_sessions(out, PG_UUID, &batch->rings, session_is_hello, put_key);
    put_sessions(out, PG_TEXT, &batch->rings, session_is_hello, put_node);
    pg_param_uuid(out, stamp->writer);
}

void
batch_session_lock_params(const struct batch *batch, struct pg_params *out)
{
    pg_params_reset(out);
    put_sessions(out, PG_UUID, &batch->rings, session_is_any, put_key);
}

void
batch_session_advance_params(const struct batch *batch,
                             const struct batch_stamp *stamp,
                             struct pg_params *out)
{
    static const struct {
        enum pg_type type;
        session_field field;
    } columns[] = {
        {PG_UUID, put_key},       {PG_TEXT, put_node},
        {PG_INT8, put_last_seq},  {PG_INT8, put_accepted},
        {PG_INT8, put_duplicate}, {PG_INT8, put_conflict},
        {PG_INT8, put_rejected},  {PG_INT8, put_lost},
    };

    pg_params_reset(out);
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        put_sessions(out, columns[i].type, &batch->rings, session_is_moved,
                     columns[i].field);
    }
    pg_param_uuid(out, stamp->writer);
    pg_param_time(out, batch_stamp_clock(stamp));
}

void
batch_session_settle_params(const struct batch *batch, struct pg_params *out)
{
    static const struct {
        enum pg_type type;
        session_field field;
    } columns[] = {
        {PG_UUID, put_key},       {PG_INT8, put_accepted},
        {PG_INT8, put_duplicate}, {PG_INT8, put_conflict},
        {PG_INT8, put_rejected},  {PG_INT8, put_lost},
    };

    pg_params_reset(out);
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        put_sessions(out, columns[i].type, &batch->rings, session_is_settled,
                     columns[i].field);
    }
}

static void
put_item_session(struct buf *out, const struct batch_item *item)
{
    pg_put_uuid(out, item->record->ring->session);
}

static void
put_item_node(struct buf *out, const struct batch_item *item)
{
    pg_put_text(out, item->record->ring->node);
}

static void
put_item_seq(struct buf *out, const struct batch_item *item)
{
    pg_put_int8(out, item->record->seq);
}

static void
put_dead_tenant(struct buf *out, const struct batch_item *item)
{
    pg_put_text(out, item->record->tenant);
}

static void
put_dead_reason(struct buf *out, const struct batch_item *item)
{
    pg_put_text(out, (struct meter_str){item->error, strlen(item->error)});
}

static void
put_dead_record(struct buf *out, const struct batch_item *item)
{
    pg_put_bytes(out, item->record->bytes);
}

/* Where the ring's oldest record lies, the last one given up is before it. */
static void
put_loss_seq(struct buf *out, const struct batch_item *item)
{
    const struct batch_record *record = item->record;

    pg_put_int8(out,
                record->kind == BATCH_LOSS ? record->seq : record->seq - 1);
}

static void
put_loss_count(struct buf *out, const struct batch_item *item)
{
    const struct batch_record *record = item->record;

    pg_put_int8(out, record->kind == BATCH_LOSS ? (int64_t)record->loss.count
                                                : record->ring->missing);
}

static void
put_loss_reasons(struct buf *out, const struct batch_item *item)
{
    const struct batch_record *record = item->record;

    pg_put_int4(out, record->kind == BATCH_LOSS ? (int32_t)record->loss.reasons
                                                : BATCH_LOSS_REWOUND);
}

/* When what is given up came to pass is not known: NULL. */
static void
put_loss_first(struct buf *out, const struct batch_item *item)
{
    if (item->record->kind == BATCH_LOSS) {
        pg_put_time(out, item->record->loss.first_us);
    } else {
        pg_put_null(out);
    }
}

static void
put_loss_last(struct buf *out, const struct batch_item *item)
{
    if (item->record->kind == BATCH_LOSS) {
        pg_put_time(out, item->record->loss.last_us);
    } else {
        pg_put_null(out);
    }
}

/* One column over the items that `wanted` picks. */
static void
put_items(struct pg_params *out, enum pg_type type, const struct batch *batch,
          bool (*wanted)(const struct batch_item *), size_t count,
          item_field field)
{
    pg_param_array_begin(out, type, count);
    for (size_t i = 0; i < batch->count; i++) {
        if (wanted(batch->items[i])) {
            field(&out->bytes, batch->items[i]);
        }
    }
    pg_param_array_end(out);
}

void
batch_dead_letter_params(const struct batch *batch,
                         const struct batch_stamp *stamp, struct pg_params *out)
{
    static const struct {
        enum pg_type type;
        item_field field;
    } columns[] = {
        {PG_TEXT, put_dead_tenant},  {PG_UUID, put_item_session},
        {PG_INT8, put_item_seq},     {PG_TEXT, put_dead_reason},
        {PG_BYTEA, put_dead_record},
    };

    pg_params_reset(out);
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        put_items(out, columns[i].type, batch, batch_item_is_dead,
                  batch->rings.dead_count, columns[i].field);
    }
    pg_param_time(out, batch_stamp_clock(stamp));
}

void
batch_letter_params(const struct batch *batch, struct pg_params *out)
{
    const struct batch_rings *rings = &batch->rings;

    pg_params_reset(out);
    pg_param_array_begin(out, PG_UUID, rings->letter_count);
    for (size_t i = 0; i < rings->letter_count; i++) {
        put_item_session(&out->bytes, rings->letters[i]);
    }
    pg_param_array_end(out);
    pg_param_array_begin(out, PG_INT8, rings->letter_count);
    for (size_t i = 0; i < rings->letter_count; i++) {
        put_item_seq(&out->bytes, rings->letters[i]);
    }
    pg_param_array_end(out);
}

void
batch_loss_params(const struct batch *batch, const struct batch_stamp *stamp,
                  struct pg_params *out)
{
    static const struct {
        enum pg_type type;
        item_field field;
    } columns[] = {
        {PG_UUID, put_item_session},     {PG_INT8, put_loss_seq},
        {PG_TEXT, put_item_node},        {PG_INT8, put_loss_count},
        {PG_INT4, put_loss_reasons},     {PG_TIMESTAMPTZ, put_loss_first},
        {PG_TIMESTAMPTZ, put_loss_last},
    };

    pg_params_reset(out);
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        put_items(out, columns[i].type, batch, batch_item_has_loss,
                  batch->rings.loss_count, columns[i].field);
    }
    pg_param_time(out, batch_stamp_clock(stamp));
}
