/*
 * dead_letter_text.c - see dead_letter_text.h.
 *
 * A letter may be one because nobody could read it: whatever does not decode
 * is shown as hexadecimal digits.
 */

#include "cmd/dead_letter_text.h"

#include "meter_digest.h"
#include "meter_ring.h"
#include "meter_time.h"

#include <stdio.h>

#define SESSION_SIZE  16
#define FIELD_FORMAT  "%-12s"
#define HEX_SIZE_STEP 256

static const char *const kind_names[] = {
    [METER_RECORD_PAD] = "pad",           [METER_RECORD_EVENT] = "event",
    [METER_RECORD_DELTA] = "delta",       [METER_RECORD_DUPNOTE] = "dupnote",
    [METER_RECORD_LOSSNOTE] = "lossnote",
};

/* A record as far as it can be read. */
struct reading {
    const char *kind; /* NULL: not a record at all */
    bool has_event;
    bool has_loss;
    struct meter_record_event event;
    struct meter_loss loss;
};

static void
record_decode(struct meter_str bytes, struct reading *out)
{
    struct meter_record record;
    size_t used;

    out->kind = NULL;
    out->has_event = false;
    out->has_loss = false;
    if (meter_record_decode(bytes.data, bytes.size, &record, &used) !=
            METER_DECODE_OK ||
        record.kind >= sizeof(kind_names) / sizeof(kind_names[0])) {
        return;
    }
    out->kind = kind_names[record.kind];
    if (record.kind == METER_RECORD_LOSSNOTE) {
        out->has_loss = meter_loss_decode(record.body, &out->loss);
    } else {
        out->has_event = meter_record_event_decode(record.body, &out->event);
    }
}


/* ---- identities ------------------------------------------------------- */

void
dead_letter_identity_format(const struct letter_identity *identity,
                            char out[DEAD_LETTER_IDENTITY_SIZE])
{
    meter_hex(identity->session, SESSION_SIZE, out);
    snprintf(out + 2 * SESSION_SIZE,
             DEAD_LETTER_IDENTITY_SIZE - 2 * SESSION_SIZE, "-%lld",
             (long long)identity->seq);
}

static int
hex_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    if (digit >= 'a' && digit <= 'f') {
        return digit - 'a' + 10;
    }
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

/* The session's digits; NULL: not there. A UUID has its dashes at the even
   places 4, 6, 8 and 10, all of them or none. */
static const char *
session_parse(const char *text, uint8_t session[SESSION_SIZE])
{
    bool is_uuid = strlen(text) > 8 && text[8] == '-';

    for (int i = 0; i < SESSION_SIZE; i++) {
        int high;
        int low;

        if (is_uuid && (i == 4 || i == 6 || i == 8 || i == 10)) {
            if (*text++ != '-') {
                return NULL;
            }
        }
        high = hex_value(text[0]);
        low = high < 0 ? -1 : hex_value(text[1]);
        if (low < 0) {
            return NULL;
        }
        session[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    return text;
}

bool
dead_letter_identity_parse(const char *text, struct letter_identity *out)
{
    int64_t seq = 0;

    text = session_parse(text, out->session);
    if (text == NULL || *text++ != '-' || *text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' ||
            __builtin_mul_overflow(seq, 10, &seq) ||
            __builtin_add_overflow(seq, *text - '0', &seq)) {
            return false;
        }
    }
    out->seq = seq;
    return true;
}


/* ---- for people ------------------------------------------------------- */

/* A column of at least this width, and two spaces. */
static void
put_column(struct buf *out, struct meter_str text, size_t width)
{
    size_t end = out->size + width;

    buf_put_printable(out, text);
    while (!out->failed && out->size < end) {
        buf_put_byte(out, ' ');
    }
    buf_put_text(out, "  ");
}

static struct meter_str
row_identity(const struct letter_row *row, char text[DEAD_LETTER_IDENTITY_SIZE])
{
    if (!row->has_identity) {
        return METER_STR("-");
    }
    dead_letter_identity_format(&row->identity, text);
    return (struct meter_str){text, strlen(text)};
}

void
dead_letter_put_head(struct buf *out)
{
    buf_printf(out, "%-27s  %-16s  %-38s  %-16s  %s\n", "RECORDED", "TENANT",
               "IDENTITY", "TYPE", "REASON");
}

void
dead_letter_put_line(struct buf *out, const struct letter_row *row)
{
    char recorded[METER_TIME_TEXT_SIZE + 1];
    char identity[DEAD_LETTER_IDENTITY_SIZE];
    struct meter_str type = METER_STR("-");
    struct reading reading;

    record_decode(row->record, &reading);
    if (reading.has_event) {
        type = reading.event.type;
    }
    meter_time_format(row->recorded_us, recorded);
    put_column(out, (struct meter_str){recorded, METER_TIME_TEXT_SIZE}, 27);
    put_column(out, row->tenant, 16);
    put_column(out, row_identity(row, identity), 38);
    put_column(out, type, 16);
    buf_put_printable(out, row->reason);
    buf_put_byte(out, '\n');
}


/* ---- JSON ------------------------------------------------------------- */

static void
json_field(struct json_writer *json, const char *key, struct meter_str value)
{
    if (value.size > 0) {
        json_key(json, key);
        json_string(json, value);
    }
}

/* As the edge sent it: fields that are empty are absent. */
static void
json_event(struct json_writer *json, const struct meter_record_event *event)
{
    json_object_begin(json);
    json_field(json, "tenant", event->tenant);
    json_field(json, "type", event->type);
    json_field(json, "event_id", event->event_id);
    json_key(json, "ts");
    json_time(json, event->ts_us);
    json_field(json, "customer", event->customer);
    json_field(json, "resource", event->resource);
    json_field(json, "quantity", event->quantity);
    json_key(json, "count");
    json_int(json, event->count);
    json_key(json, "flags");
    json_int(json, event->flags);
    json_key(json, "attributes");
    json_object_begin(json);
    for (size_t i = 0; i < event->attribute_count; i++) {
        json_key_str(json, event->attributes[i].name);
        json_string(json, event->attributes[i].value);
    }
    json_object_end(json);
    json_object_end(json);
}

static void
json_loss(struct json_writer *json, const struct meter_loss *loss)
{
    json_object_begin(json);
    json_key(json, "count");
    json_int_string(json, (int64_t)loss->count);
    json_key(json, "first");
    json_time(json, loss->first_us);
    json_key(json, "last");
    json_time(json, loss->last_us);
    json_key(json, "reasons");
    json_int(json, loss->reasons);
    json_object_end(json);
}

/* Bytes that nobody can read, as digits. */
static void
json_hex(struct json_writer *json, struct meter_str bytes)
{
    char digits[2 * HEX_SIZE_STEP + 1];

    json_raw(json, METER_STR("\""));
    while (bytes.size > 0) {
        size_t size = bytes.size < HEX_SIZE_STEP ? bytes.size : HEX_SIZE_STEP;

        meter_hex((const uint8_t *)bytes.data, size, digits);
        buf_put_text(json->out, digits);
        bytes.data += size;
        bytes.size -= size;
    }
    buf_put_byte(json->out, '"');
}

static const char *
content_name(const struct reading *reading)
{
    if (reading->has_event) {
        return "event";
    }
    return reading->has_loss ? "loss" : "bytes";
}

static void
json_content(struct json_writer *json, struct meter_str record,
             const struct reading *reading)
{
    if (reading->has_event) {
        json_event(json, &reading->event);
    } else if (reading->has_loss) {
        json_loss(json, &reading->loss);
    } else {
        json_hex(json, record);
    }
}

static void
json_row(struct json_writer *json, const struct letter_row *row,
         const struct reading *reading)
{
    char identity[DEAD_LETTER_IDENTITY_SIZE];

    json_key(json, "recorded_at");
    json_time(json, row->recorded_us);
    json_key(json, "tenant");
    json_string(json, row->tenant);
    json_key(json, "identity");
    json_string(json, row_identity(row, identity));
    json_key(json, "kind");
    json_text(json, reading->kind == NULL ? "?" : reading->kind);
    json_key(json, "type");
    json_string(json, reading->has_event ? reading->event.type : METER_STR(""));
    json_key(json, "reason");
    json_string(json, row->reason);
}

void
dead_letter_json(struct json_writer *json, const struct letter_row *row,
                 bool is_whole)
{
    struct reading reading;

    record_decode(row->record, &reading);
    json_object_begin(json);
    json_row(json, row, &reading);
    if (is_whole) {
        json_key(json, "node");
        json_string(json, row->node);
        json_key(json, "size");
        json_int(json, (int64_t)row->record.size);
        json_key(json, content_name(&reading));
        json_content(json, row->record, &reading);
    }
    json_object_end(json);
}

static void
put_field(struct buf *out, const char *name, struct meter_str value)
{
    buf_printf(out, FIELD_FORMAT, name);
    buf_put_printable(out, value);
    buf_put_byte(out, '\n');
}

void
dead_letter_put_fields(struct buf *out, const struct letter_row *row)
{
    char recorded[METER_TIME_TEXT_SIZE + 1];
    char identity[DEAD_LETTER_IDENTITY_SIZE];
    struct json_writer json;
    struct reading reading;

    record_decode(row->record, &reading);
    meter_time_format(row->recorded_us, recorded);
    put_field(out, "identity", row_identity(row, identity));
    put_field(out, "recorded at",
              (struct meter_str){recorded, METER_TIME_TEXT_SIZE});
    put_field(out, "tenant", row->tenant);
    put_field(out, "reason", row->reason);
    put_field(out, "node", row->node.data == NULL ? METER_STR("-") : row->node);
    buf_printf(out, FIELD_FORMAT "%s, %zu bytes\n", "record",
               reading.kind == NULL ? "damaged" : reading.kind,
               row->record.size);
    buf_printf(out, FIELD_FORMAT, content_name(&reading));
    json_writer_init(&json, out);
    json_content(&json, row->record, &reading);
    buf_put_byte(out, '\n');
}
