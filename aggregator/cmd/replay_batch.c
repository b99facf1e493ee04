/*
 * replay_batch.c - see replay_batch.h.
 */

#include "cmd/replay_batch.h"

#include "base/json_reader.h"

#include <errno.h>
#include <stdlib.h>

#define BYTES_MAX    ((size_t)4 << 20) /* then it is full */
#define BUF_SIZE_MAX ((size_t)16 << 20)
#define REASON_BLOCK ((size_t)16 << 10)
#define REASONS_MAX  ((size_t)4 << 20)

bool
replay_batch_init(struct replay_batch *batch, size_t count_max)
{
    *batch = (struct replay_batch){.count_max = count_max};
    buf_init(&batch->texts, BUF_SIZE_MAX);
    buf_init(&batch->events, BUF_SIZE_MAX);
    arena_init(&batch->reasons, REASON_BLOCK, REASONS_MAX);
    batch->entries = calloc(count_max, sizeof(*batch->entries));
    return batch->entries != NULL;
}

void
replay_batch_fini(struct replay_batch *batch)
{
    free(batch->entries);
    buf_fini(&batch->texts);
    buf_fini(&batch->events);
    arena_fini(&batch->reasons);
}

static bool
is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static const char *
line_take(struct replay_batch *batch, struct meter_str text)
{
    while (text.size > 0 && is_blank(text.data[0])) {
        text.data++;
        text.size--;
    }
    while (text.size > 0 && is_blank(text.data[text.size - 1])) {
        text.size--;
    }
    if (text.size == 0 || text.data[0] != '{') {
        return "an event must be a JSON object";
    }
    buf_put_str(&batch->events, text);
    return NULL;
}

/* By its brackets it is one object from its first byte to its last. */
static const char *
event_check(const struct replay_batch *batch, const struct replay_entry *entry)
{
    struct meter_str event = {batch->events.data + entry->event_at,
                              entry->event_size};
    size_t size = json_skip(event);

    if (size == 0) {
        return "invalid JSON: the object has no end";
    }
    return size == event.size ? NULL : "invalid JSON: text behind the object";
}

static bool
entry_add(struct replay_batch *batch, const struct replay_record *record,
          struct replay_csv *csv)
{
    struct replay_entry *entry = &batch->entries[batch->count++];

    *entry = (struct replay_entry){
        .line = record->line,
        .error = record->error,
        .text_at = batch->texts.size,
        .text_size = record->text.size,
        .event_at = batch->events.size,
    };
    buf_put_str(&batch->texts, record->text);
    if (entry->error == NULL) {
        entry->error =
            csv == NULL ? line_take(batch, record->text)
                        : replay_csv_convert(csv, record->text, &batch->reasons,
                                             &batch->events);
        if (batch->events.failed || batch->texts.failed) {
            return false;
        }
        entry->event_size = batch->events.size - entry->event_at;
    }
    if (entry->error == NULL) {
        entry->error = event_check(batch, entry);
    }
    batch->line_next = record->line_next;
    batch->offset_next = record->offset_next;
    return !batch->texts.failed;
}

enum replay_next
replay_batch_fill(struct replay_batch *batch, struct replay_source *source,
                  struct replay_csv *csv)
{
    batch->count = 0;
    batch->from = 0;
    batch->is_single = false;
    buf_reset(&batch->texts);
    buf_reset(&batch->events);
    arena_reset(&batch->reasons);
    while (batch->count < batch->count_max && batch->events.size < BYTES_MAX &&
           batch->texts.size < BYTES_MAX) {
        struct replay_record record;
        enum replay_next next = replay_source_next(source, &record);

        if (next != REPLAY_RECORD) {
            return next;
        }
        if (!entry_add(batch, &record, csv)) {
            errno = ENOMEM;
            return REPLAY_FAILED;
        }
    }
    return REPLAY_RECORD;
}


/* ---- the gate --------------------------------------------------------- */

static void
body_put(const struct replay_batch *batch, struct buf *body)
{
    const char *separator = "";

    buf_put_byte(body, '[');
    for (size_t i = batch->from; i < batch->to; i++) {
        const struct replay_entry *entry = &batch->entries[i];

        if (entry->error == NULL) {
            buf_put_text(body, separator);
            buf_put(body, batch->events.data + entry->event_at,
                    entry->event_size);
            separator = ",";
        }
    }
    buf_put_byte(body, ']');
}

bool
replay_batch_next(struct replay_batch *batch, struct buf *body)
{
    if (batch->from == batch->count) {
        return false;
    }
    batch->to = batch->is_single ? batch->from + 1 : batch->count;
    body_put(batch, body);
    return true;
}

static void
entry_count(const struct replay_batch *batch, const struct replay_entry *entry,
            enum meter_verdict verdict, const char *reason,
            struct replay_tally *tally)
{
    struct meter_str text = {batch->texts.data + entry->text_at,
                             entry->text_size};

    replay_tally_add(tally, verdict, entry->line, reason, text);
}

void
replay_batch_answered(struct replay_batch *batch,
                      const struct ingest_answer *answer,
                      struct replay_tally *tally)
{
    size_t result = 0;

    CHECK(answer->outcome == INGEST_DONE || answer->outcome == INGEST_BAD);
    if (answer->outcome == INGEST_BAD && !batch->is_single) {
        batch->is_single = true;
        return;
    }
    for (size_t i = batch->from; i < batch->to; i++) {
        const struct replay_entry *entry = &batch->entries[i];

        if (entry->error != NULL) {
            entry_count(batch, entry, METER_VERDICT_REJECTED, entry->error,
                        tally);
        } else if (answer->outcome == INGEST_BAD) {
            entry_count(batch, entry, METER_VERDICT_REJECTED, answer->error,
                        tally);
        } else {
            CHECK(result < answer->count);
            entry_count(batch, entry, answer->results[result].verdict,
                        answer->results[result].error, tally);
            result++;
        }
    }
    CHECK(result == (answer->outcome == INGEST_DONE ? answer->count : 0));
    batch->from = batch->to;
}
