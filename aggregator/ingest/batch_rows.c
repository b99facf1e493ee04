/*
 * batch_rows.c - a decided batch as bytes for PostgreSQL, and back.
 *
 *   batch -> [registry, ledger, audit] -> COPY streams or array parameters
 *   batch -> [sessions, dead letters, losses] -> array parameters
 *
 * attempt.c sends what is written here, and ingest_check.c asks with it. The
 * field functions write one field of one item; COPY streams call them row by
 * row, array parameters column by column. Of rings there are few rows per
 * transaction (a session each, and what went wrong), so arrays serve for all
 * of them.
 */

#include "ingest/batch_rows.h"

#include "base/json_writer.h"
#include "meter_bytes.h"

#define REGISTRY_FIELD_COUNT 8
#define EVENT_FIELD_COUNT    20
#define AUDIT_FIELD_COUNT    11
#define AUDIT_PIECE_SIZE     ((size_t)64 << 10)

typedef void (*item_field)(struct buf *out, const struct batch_item *item);
typedef void (*session_field)(struct buf *out,
                              const struct batch_session *session);

static bool
item_is_accepted(const struct batch_item *item)
{
    return item->verdict == METER_VERDICT_ACCEPTED;
}

static bool
item_is_audited(const struct batch_item *item)
{
    return item->verdict == METER_VERDICT_DUPLICATE ||
           item->verdict == METER_VERDICT_CONFLICT;
}

static void
put_scope(struct buf *out, const struct batch_item *item)
{
    struct meter_str scope = batch_item_scope(item);

    pg_put_text(out, scope);
}

static void
put_key(struct buf *out, const struct batch_item *item)
{
    pg_put_uuid(out, batch_item_key(item));
}

static void
put_tenant(struct buf *out, const struct batch_item *item)
{
    pg_put_text(out, item->event->tenant);
}

static void
put_head(struct buf *out, const struct batch_item *item)
{
    pg_put_int8(out, (int64_t)item->fingerprint.head);
}

static void
put_body(struct buf *out, const struct batch_item *item)
{
    if (item->fingerprint.has_body) {
        pg_put_int8(out, (int64_t)item->fingerprint.body);
    } else {
        pg_put_null(out);
    }
}

static void
put_ts(struct buf *out, const struct batch_item *item)
{
    pg_put_time(out, item->event->ts_us);
}

static void
put_part_day(struct buf *out, const struct batch_item *item)
{
    pg_put_date(out, item->part_day);
}

static void
put_event_id(struct buf *out, const struct batch_item *item)
{
    pg_put_text(out, item->event->event_id);
}

static void
put_type(struct buf *out, const struct batch_item *item)
{
    pg_put_text(out, item->event->type);
}

static void
put_customer(struct buf *out, const struct batch_item *item)
{
    pg_put_text(out, item->event->customer);
}

static void
put_resource(struct buf *out, const struct batch_item *item)
{
    pg_put_text(out, item->event->resource);
}

static void
put_quantity(struct buf *out, const struct batch_item *item)
{
    pg_put_numeric(out, item->event->quantity);
}

static void
put_count(struct buf *out, const struct batch_item *item)
{
    pg_put_int8(out, item->event->count);
}

static void
put_attributes(struct buf *out, const struct batch_item *item)
{
    pg_put_text(out, item->event->attributes);
}

static void
put_source(struct buf *out, const struct batch_item *item)
{
    pg_put_text(out, item->event->source);
}

static void
put_flags(struct buf *out, const struct batch_item *item)
{
    pg_put_int4(out, (int32_t)item->event->flags);
}

static void
put_session(struct buf *out, const struct batch_item *item)
{
    if (item->record != NULL) {
        pg_put_uuid(out, item->record->ring->session);
    } else {
        pg_put_null(out);
    }
}

static void
put_seq(struct buf *out, const struct batch_item *item)
{
    if (item->record != NULL) {
        pg_put_int8(out, item->record->seq);
    } else {
        pg_put_null(out);
    }
}

static void
put_writer_seq(struct buf *out, const struct batch_item *item)
{
    pg_put_int8(out, item->writer_seq);
}

/* 0: folded by all meters, 1: adjusted by some of them. */
static void
put_disposition(struct buf *out, const struct batch_item *item)
{
    pg_put_int2(out, item->marks.is_adjusted);
}

/* A text field was written in place behind ""; its length word follows. */
static void
text_end(struct buf *out, size_t start)
{
    size_t size = out->size - start - 4;

    for (int i = 0; i < 4 && !out->failed; i++) {
        out->data[start + (size_t)i] = (char)(size >> (24 - 8 * i));
    }
}

/* What counters say, then series, as one object. */
static void
put_from_state(struct buf *out, const struct batch_item *item)
{
    struct meter_str object = item->marks.from_state;
    size_t start = out->size;

    if (item->marks.series_members.data == NULL) {
        pg_put_text(out, object);
        return;
    }
    pg_put_text(out, METER_STR(""));
    buf_put(out, object.data == NULL ? "{" : object.data,
            object.data == NULL ? 1 : object.size - 1);
    buf_put_text(out, object.data == NULL ? "" : ",");
    buf_put_str(out, item->marks.series_members);
    buf_put_byte(out, '}');
    text_end(out, start);
}

static void
put_verdict(struct buf *out, const struct batch_item *item)
{
    pg_put_int2(out, (int16_t)item->verdict);
}

static void
put_first_seen(struct buf *out, const struct batch_item *item)
{
    pg_put_time(out, item->first_seen_us);
}

static void
payload_member(struct json_writer *json, const char *name,
               struct meter_str value)
{
    struct meter_writer text;
    size_t room = METER_JSON_ESCAPED_SIZE(value.size) + 2;
    char *to;

    if (value.data == NULL) {
        return;
    }
    json_key(json, name);
    to = buf_reserve(json->out, room);
    if (to == NULL) {
        return;
    }
    meter_writer_init(&text, to, room);
    meter_put_u8(&text, '"');
    meter_put_json_escaped(&text, value);
    meter_put_u8(&text, '"');
    CHECK(!text.failed);
    buf_commit(json->out, text.at);
    json->comma = true;
}

/* The whole event as canonical JSON: sorted members, absent ones left out. */
static void
payload_write(struct buf *out, const struct meter_event *event)
{
    char quantity[METER_DECIMAL_TEXT_SIZE + 1];
    struct json_writer json;
    size_t size = meter_decimal_format(event->quantity, quantity);

    json_writer_init(&json, out);
    json_object_begin(&json);
    json_key(&json, "attributes");
    json_raw(&json, event->attributes);
    if (event->count != 1) {
        json_key(&json, "count");
        json_int(&json, event->count);
    }
    payload_member(&json, "customer", event->customer);
    payload_member(&json, "event_id", event->event_id);
    payload_member(&json, "quantity", (struct meter_str){quantity, size});
    payload_member(&json, "resource", event->resource);
    payload_member(&json, "source", event->source);
    payload_member(&json, "tenant", event->tenant);
    json_key(&json, "ts");
    json_time(&json, event->ts_us);
    payload_member(&json, "type", event->type);
    json_object_end(&json);
}

/* NULL where what came is the stored event: nothing is repeated. */
static void
put_seen_type(struct buf *out, const struct batch_item *item)
{
    if (item->is_same) {
        pg_put_null(out);
    } else {
        put_type(out, item);
    }
}

static void
put_seen_ts(struct buf *out, const struct batch_item *item)
{
    if (item->is_same) {
        pg_put_null(out);
    } else {
        put_ts(out, item);
    }
}

static void
put_payload(struct buf *out, const struct batch_item *item)
{
    size_t start = out->size;

    if (item->is_same) {
        pg_put_null(out);
        return;
    }
    pg_put_text(out, METER_STR(""));
    payload_write(out, item->event);
    text_end(out, start);
}

/* One column over the items that `wanted` picks. */
static void
put_column(struct pg_params *out, enum pg_type type, const struct batch *batch,
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

static bool
item_is_fresh(const struct batch_item *item)
{
    return !item->is_known;
}

static bool
item_is_asked(const struct batch_item *item)
{
    return !item->is_known && !item->is_registered;
}

static size_t
key_count(const struct batch *batch, bool (*wanted)(const struct batch_item *))
{
    size_t count = 0;

    for (size_t i = 0; i < batch->key_count; i++) {
        count += wanted(batch->by_key[i]);
    }
    return count;
}

/* One column over the identities that `wanted` picks, in key order. */
static void
put_key_column(struct pg_params *out, enum pg_type type,
               const struct batch *batch,
               bool (*wanted)(const struct batch_item *), size_t count,
               item_field field)
{
    pg_param_array_begin(out, type, count);
    for (size_t i = 0; i < batch->key_count; i++) {
        if (wanted(batch->by_key[i])) {
            field(&out->bytes, batch->by_key[i]);
        }
    }
    pg_param_array_end(out);
}

size_t
batch_fresh_count(const struct batch *batch)
{
    return key_count(batch, item_is_fresh);
}

void
batch_known_scope_params(const struct batch *batch, struct meter_str scope,
                         struct pg_params *out)
{
    bool is_only = batch->scope_count == 1;
    size_t count = 0;

    for (size_t i = 0; i < batch->key_count; i++) {
        const struct batch_item *item = batch->by_key[i];

        count += item_is_asked(item) &&
                 (is_only || meter_str_equal(batch_item_scope(item), scope));
    }
    pg_params_reset(out);
    pg_param_text(out, scope);
    pg_param_array_begin(out, PG_UUID, count);
    for (size_t i = 0; i < batch->key_count; i++) {
        const struct batch_item *item = batch->by_key[i];

        if (item_is_asked(item) &&
            (is_only || meter_str_equal(batch_item_scope(item), scope))) {
            put_key(&out->bytes, item);
        }
    }
    pg_param_array_end(out);
}

size_t
batch_known_params(const struct batch *batch, struct pg_params *out)
{
    size_t count = key_count(batch, item_is_asked);

    pg_params_reset(out);
    put_key_column(out, PG_TEXT, batch, item_is_asked, count, put_scope);
    put_key_column(out, PG_UUID, batch, item_is_asked, count, put_key);
    pg_param_array_begin(out, PG_INT4, count);
    for (size_t i = 0; i < batch->key_count; i++) {
        if (item_is_asked(batch->by_key[i])) {
            pg_put_int4(&out->bytes, (int32_t)i);
        }
    }
    pg_param_array_end(out);
    return count;
}

bool
batch_known_row(struct batch *batch, struct batch_item *item,
                const void *result, int row)
{
    struct batch_known known = {
        .fingerprint.head = (uint64_t)pg_get_int8(result, row, 2),
        .fingerprint.has_body = !pg_is_null(result, row, 3),
        .first_seen_us = pg_get_time(result, row, 4),
    };

    known.tenant = pg_is_null(result, row, 1) ? batch_item_scope(item)
                                              : pg_get_bytes(result, row, 1);
    if (known.fingerprint.has_body) {
        known.fingerprint.body = (uint64_t)pg_get_int8(result, row, 3);
    }
    return batch_item_known(batch, item, &known);
}

void
batch_registry_copy(const struct batch *batch, const struct batch_stamp *stamp,
                    struct buf *out)
{
    buf_reset(out);
    pg_copy_begin(out);
    for (size_t i = 0; i < batch->key_count; i++) {
        const struct batch_item *item = batch->by_key[i];

        if (!item_is_fresh(item)) {
            continue;
        }
        pg_copy_row(out, REGISTRY_FIELD_COUNT);
        put_scope(out, item);
        put_key(out, item);
        put_tenant(out, item);
        put_head(out, item);
        put_body(out, item);
        put_ts(out, item);
        put_part_day(out, item);
        pg_put_time(out, batch_stamp_clock(stamp));
    }
    pg_copy_end(out);
}

void
batch_registry_params(const struct batch *batch,
                      const struct batch_stamp *stamp, struct pg_params *out)
{
    size_t count = batch_fresh_count(batch);

    pg_params_reset(out);
    put_key_column(out, PG_TEXT, batch, item_is_fresh, count, put_scope);
    put_key_column(out, PG_UUID, batch, item_is_fresh, count, put_key);
    put_key_column(out, PG_TEXT, batch, item_is_fresh, count, put_tenant);
    put_key_column(out, PG_INT8, batch, item_is_fresh, count, put_head);
    put_key_column(out, PG_INT8, batch, item_is_fresh, count, put_body);
    put_key_column(out, PG_TIMESTAMPTZ, batch, item_is_fresh, count, put_ts);
    put_key_column(out, PG_DATE, batch, item_is_fresh, count, put_part_day);
    pg_param_array_begin(out, PG_TIMESTAMPTZ, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_time(&out->bytes, batch_stamp_clock(stamp));
    }
    pg_param_array_end(out);
}

static void
event_row(struct buf *out, const struct batch_item *item,
          const struct batch_stamp *stamp)
{
    pg_copy_row(out, EVENT_FIELD_COUNT);
    put_tenant(out, item);
    put_event_id(out, item);
    put_type(out, item);
    put_ts(out, item);
    put_part_day(out, item);
    put_customer(out, item);
    put_resource(out, item);
    put_quantity(out, item);
    put_count(out, item);
    put_attributes(out, item);
    put_source(out, item);
    put_flags(out, item);
    put_session(out, item);
    put_seq(out, item);
    pg_put_uuid(out, stamp->writer);
    put_writer_seq(out, item);
    pg_put_time(out, stamp->recorded_us);
    put_disposition(out, item);
    put_from_state(out, item);
    if (batch_stamp_is_ahead(stamp)) {
        pg_put_time(out, batch_stamp_clock(stamp));
    } else {
        pg_put_null(out);
    }
}

void
batch_event_copy(const struct batch *batch, const struct batch_stamp *stamp,
                 struct buf *out)
{
    buf_reset(out);
    pg_copy_begin(out);
    for (size_t i = 0; i < batch->count; i++) {
        if (item_is_accepted(batch->items[i])) {
            event_row(out, batch->items[i], stamp);
        }
    }
    pg_copy_end(out);
}

void
batch_event_params(const struct batch *batch, const struct batch_stamp *stamp,
                   struct pg_params *out)
{
    static const struct {
        enum pg_type type;
        item_field field;
    } columns[] = {
        {PG_TEXT, put_tenant},     {PG_TEXT, put_event_id},
        {PG_TEXT, put_type},       {PG_TIMESTAMPTZ, put_ts},
        {PG_DATE, put_part_day},   {PG_TEXT, put_customer},
        {PG_TEXT, put_resource},   {PG_NUMERIC, put_quantity},
        {PG_INT8, put_count},      {PG_TEXT, put_attributes},
        {PG_TEXT, put_source},     {PG_INT4, put_flags},
        {PG_UUID, put_session},    {PG_INT8, put_seq},
        {PG_UUID, NULL},           {PG_INT8, put_writer_seq},
        {PG_TIMESTAMPTZ, NULL},    {PG_INT2, put_disposition},
        {PG_TEXT, put_from_state},
    };

    pg_params_reset(out);
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        if (columns[i].field != NULL) {
            put_column(out, columns[i].type, batch, item_is_accepted,
                       batch->accepted_count, columns[i].field);
        } else if (columns[i].type == PG_UUID) {
            pg_param_uuid(out, stamp->writer);
        } else {
            pg_param_time(out, stamp->recorded_us);
        }
    }
    if (batch_stamp_is_ahead(stamp)) {
        pg_param_time(out, batch_stamp_clock(stamp));
    } else {
        pg_param_null(out);
    }
}

static void
put_audit_row(struct buf *out, const struct batch *batch,
              const struct batch_stamp *stamp, size_t place)
{
    const struct batch_item *item = batch->items[place];

    pg_copy_row(out, AUDIT_FIELD_COUNT);
    put_tenant(out, item);
    put_event_id(out, item);
    put_key(out, item);
    put_verdict(out, item);
    put_first_seen(out, item);
    pg_put_time(out, stamp->seen_us);
    pg_put_date(out, stamp->audit_day);
    put_seen_type(out, item);
    put_seen_ts(out, item);
    put_payload(out, item);
    pg_put_int4(out, (int32_t)place);
}

void
batch_audit_copy(const struct batch *batch, const struct batch_stamp *stamp,
                 size_t *at, struct buf *out)
{
    buf_reset(out);
    if (*at > batch->count) {
        return;
    }
    if (*at == 0) {
        pg_copy_begin(out);
    }
    while (*at < batch->count && out->size < AUDIT_PIECE_SIZE && !out->failed) {
        if (item_is_audited(batch->items[*at])) {
            put_audit_row(out, batch, stamp, *at);
        }
        ++*at;
    }
    if (*at == batch->count) {
        pg_copy_end(out);
        ++*at;
    }
}

void
batch_audit_params(const struct batch *batch, const struct batch_stamp *stamp,
                   struct pg_params *out)
{
    size_t count = batch->audited_count;

    pg_params_reset(out);
    put_column(out, PG_TEXT, batch, item_is_audited, count, put_tenant);
    put_column(out, PG_TEXT, batch, item_is_audited, count, put_event_id);
    put_column(out, PG_UUID, batch, item_is_audited, count, put_key);
    put_column(out, PG_INT2, batch, item_is_audited, count, put_verdict);
    put_column(out, PG_TIMESTAMPTZ, batch, item_is_audited, count,
               put_first_seen);
    pg_param_array_begin(out, PG_TIMESTAMPTZ, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_time(&out->bytes, stamp->seen_us);
    }
    pg_param_array_end(out);
    pg_param_array_begin(out, PG_DATE, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_date(&out->bytes, stamp->audit_day);
    }
    pg_param_array_end(out);
    put_column(out, PG_TEXT, batch, item_is_audited, count, put_seen_type);
    put_column(out, PG_TIMESTAMPTZ, batch, item_is_audited, count, put_seen_ts);
    put_column(out, PG_TEXT, batch, item_is_audited, count, put_payload);
    pg_param_array_begin(out, PG_INT4, count);
    for (size_t i = 0; i < batch->count; i++) {
        if (item_is_audited(batch->items[i])) {
            pg_put_int4(&out->bytes, (int32_t)i);
        }
    }
    pg_param_array_end(out);
}


/* Rings. */

static void
put_session_key(struct buf *out, const struct batch_session *session)
{
    pg_put_uuid(out, (const uint8_t *)session->key.data);
}

static void
put_session_node(struct buf *out, const struct batch_session *session)
{
    pg_put_text(out, session->node);
}

static void
put_session_last_seq(struct buf *out, const struct batch_session *session)
{
    pg_put_int8(out, session->totals.last_seq);
}

static void
put_session_accepted(struct buf *out, const struct batch_session *session)
{
    pg_put_int8(out, session->totals.verdicts[METER_VERDICT_ACCEPTED]);
}

static void
put_session_duplicate(struct buf *out, const struct batch_session *session)
{
    pg_put_int8(out, session->totals.verdicts[METER_VERDICT_DUPLICATE]);
}

static void
put_session_conflict(struct buf *out, const struct batch_session *session)
{
    pg_put_int8(out, session->totals.verdicts[METER_VERDICT_CONFLICT]);
}

static void
put_session_rejected(struct buf *out, const struct batch_session *session)
{
    pg_put_int8(out, session->totals.verdicts[METER_VERDICT_REJECTED]);
}

static void
put_session_lost(struct buf *out, const struct batch_session *session)
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
    put_sessions(out, PG_UUID, &batch->rings, session_is_hello,
                 put_session_key);
    put_sessions(out, PG_TEXT, &batch->rings, session_is_hello,
                 put_session_node);
    pg_param_uuid(out, stamp->writer);
}

void
batch_session_lock_params(const struct batch *batch, struct pg_params *out)
{
    pg_params_reset(out);
    put_sessions(out, PG_UUID, &batch->rings, session_is_any, put_session_key);
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
        {PG_UUID, put_session_key},       {PG_TEXT, put_session_node},
        {PG_INT8, put_session_last_seq},  {PG_INT8, put_session_accepted},
        {PG_INT8, put_session_duplicate}, {PG_INT8, put_session_conflict},
        {PG_INT8, put_session_rejected},  {PG_INT8, put_session_lost},
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
        {PG_UUID, put_session_key},       {PG_INT8, put_session_accepted},
        {PG_INT8, put_session_duplicate}, {PG_INT8, put_session_conflict},
        {PG_INT8, put_session_rejected},  {PG_INT8, put_session_lost},
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
        put_column(out, columns[i].type, batch, batch_item_is_dead,
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
        put_column(out, columns[i].type, batch, batch_item_has_loss,
                   batch->rings.loss_count, columns[i].field);
    }
    pg_param_time(out, batch_stamp_clock(stamp));
}
