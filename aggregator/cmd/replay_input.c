/*
 * replay_input.c - the file of `meterd replay`, from its bytes to batches of
 * events, and verdicts back to its lines.
 *
 *   read -> window -> record -> (CSV: record to JSON) -> batch -> body
 *
 * replay_job.c and the dry run of replay.c fill a batch, hand its bodies to
 * the gate and give the answers back. Nothing in a file is fatal: a line that
 * is too long is skipped to its end and never held whole; a CSV record that
 * breaks the rules of quotes is only its first line, so that a forgotten quote
 * does not swallow what follows. A pipe or a terminal is only read when
 * something is there: the loop that keeps the writer alive never waits for it.
 */

#include "cmd/replay.h"

#include "base/csv.h"
#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "base/reason.h"
#include "meter_event.h"
#include "meter_limits.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* A longer line is rejected; so much of it is kept, for people. */
#define REPLAY_LINE_MAX  METER_EVENT_SIZE_MAX
#define REPLAY_LINE_KEPT 1024

#define READ_SIZE        ((size_t)256 << 10)
#define WINDOW_SIZE      (REPLAY_LINE_MAX + 2 + READ_SIZE)
#define STRING(value)    STRING_OF(value)
#define STRING_OF(text)  #text
#define COLUMN_COUNT_MAX 1024
#define CELLS_SIZE_MAX   ((size_t)8 * METER_EVENT_SIZE_MAX) /* escaped */
#define BYTES_MAX        ((size_t)4 << 20) /* then it is full */
#define BUF_SIZE_MAX     ((size_t)16 << 20)
#define REASON_BLOCK     ((size_t)16 << 10)
#define REASONS_MAX      ((size_t)4 << 20)
#define ARENA_BLOCK      ((size_t)16 << 10)
#define ARENA_MAX        ((size_t)1 << 20)

/* Like read(2); -1 with EAGAIN: nothing is there yet. */
typedef ssize_t (*replay_read_cb)(void *asker, char *out, size_t size);

struct replay_record {
    struct meter_str text; /* without line break; until the next call */
    const char *error;     /* NULL: text may be looked at */
    int64_t line;          /* where it begins, from 1 on */
    int64_t line_next;     /* the one after it */
    int64_t offset_next;   /* byte of the file after it */
};

static bool
is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static struct meter_str
blanks_cut(struct meter_str text)
{
    while (text.size > 0 && is_blank(text.data[0])) {
        text.data++;
        text.size--;
    }
    while (text.size > 0 && is_blank(text.data[text.size - 1])) {
        text.size--;
    }
    return text;
}


/* ======== records ======================================================

   A record of NDJSON is a line, one of CSV goes to a line break outside of
   quotes.

   window  [ done | record | not looked at yet | room for read ]
                  ^at                          ^end              */

static const char source_too_long[] =
    "the line is longer than " STRING(METER_EVENT_SIZE_MAX) " bytes";
static const char source_bad_quotes[] =
    "the quotes of the line are not those of CSV";

struct replay_source {
    bool is_csv;
    replay_read_cb read;
    void *asker;
    char *window;
    size_t at;
    size_t end;
    bool is_last;   /* nothing more can be read */
    int64_t offset; /* of at */
    int64_t line;   /* at `at` */

    bool is_skipping; /* to the end of a line that is too long */
    int64_t skipped_line;
    char kept[REPLAY_LINE_KEPT];
};

static struct replay_source *
replay_source_create(bool is_csv, replay_read_cb read, void *asker)
{
    struct replay_source *source = memory_alloc(sizeof(*source));

    *source = (struct replay_source){
        .is_csv = is_csv, .read = read, .asker = asker, .line = 1};
    source->window = memory_alloc(WINDOW_SIZE);
    return source;
}

static void
replay_source_destroy(struct replay_source *source)
{
    if (source != NULL) {
        free(source->window);
        free(source);
    }
}

static void
replay_source_moved(struct replay_source *source, int64_t offset, int64_t line)
{
    source->end = source->at;
    source->is_last = false;
    source->is_skipping = false;
    source->offset = offset;
    source->line = line;
}

static struct meter_str
source_text(const struct replay_source *source)
{
    return (struct meter_str){source->window + source->at,
                              source->end - source->at};
}

/* Reads more after what is there; RECORD: there is more, or it is last. */
static enum replay_next
source_fill(struct replay_source *source)
{
    ssize_t size;

    if (source->at > 0) {
        memmove(source->window, source->window + source->at,
                source->end - source->at);
        source->end -= source->at;
        source->at = 0;
    }
    CHECK(source->end < WINDOW_SIZE);
    size = source->read(source->asker, source->window + source->end,
                        WINDOW_SIZE - source->end);
    if (size < 0) {
        return errno == EAGAIN ? REPLAY_AGAIN : REPLAY_FAILED;
    }
    source->end += (size_t)size;
    source->is_last = size == 0;
    return REPLAY_RECORD;
}

static void
source_take(struct replay_source *source, size_t size)
{
    source->at += size;
    source->offset += (int64_t)size;
}

/* True: it is known whether the file starts with one, and it is gone. */
static bool
source_mark_pass(struct replay_source *source)
{
    static const char mark[] = "\xef\xbb\xbf";
    struct meter_str text = source_text(source);

    if (source->offset > 0 || (text.size < 3 && !source->is_last)) {
        return source->offset > 0;
    }
    if (text.size >= 3 && memcmp(text.data, mark, 3) == 0) {
        source_take(source, 3);
    }
    return true;
}

enum found { FOUND, FOUND_BROKEN, FOUND_MORE };

/* The first line; false: the window does not reach that far. */
static bool
source_line_find(struct meter_str text, bool is_last, size_t *size)
{
    const char *end =
        text.size == 0 ? NULL : memchr(text.data, '\n', text.size);

    *size = end == NULL ? text.size : (size_t)(end - text.data) + 1;
    return end != NULL || is_last;
}

/* *size: with the line break. Too long is what has no end in the window. */
static enum found
source_record_find(const struct replay_source *source, size_t *size)
{
    struct meter_str text = source_text(source);
    enum csv_end end;

    if (!source->is_csv) {
        return source_line_find(text, source->is_last, size) ? FOUND
                                                             : FOUND_MORE;
    }
    end = csv_record_end(text, source->is_last, size);
    if (end == CSV_END_FOUND && *size <= REPLAY_LINE_MAX + 2) {
        return FOUND;
    }
    if (end == CSV_END_MORE && text.size <= REPLAY_LINE_MAX + 1) {
        return FOUND_MORE;
    }
    /* As its first line only, whatever the quotes say. */
    return source_line_find(text, source->is_last, size) ? FOUND_BROKEN
                                                         : FOUND_MORE;
}

static struct meter_str
line_break_cut(struct meter_str text)
{
    if (text.size > 0 && text.data[text.size - 1] == '\n') {
        text.size--;
    }
    if (text.size > 0 && text.data[text.size - 1] == '\r') {
        text.size--;
    }
    return text;
}

static bool
line_is_blank(struct meter_str text)
{
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] != ' ' && text.data[i] != '\t') {
            return false;
        }
    }
    return true;
}

static int64_t
line_breaks_count(struct meter_str text)
{
    const char *end = text.data + text.size;
    int64_t count = 0;

    for (const char *at = text.data;
         at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL;
         at++) {
        count++;
    }
    return count;
}

/* True: *out is a record; false: it was blank. */
static bool
source_record_take(struct replay_source *source, size_t size, bool is_broken,
                   struct replay_record *out)
{
    struct meter_str whole = {source->window + source->at, size};

    out->text = line_break_cut(whole);
    out->line = source->line;
    out->error = is_broken ? source_bad_quotes : NULL;
    source_take(source, size);
    source->line += line_breaks_count(whole);
    out->line_next = source->line;
    out->offset_next = source->offset;
    if (out->text.size > REPLAY_LINE_MAX) {
        out->error = source_too_long;
        out->text.size = REPLAY_LINE_KEPT;
    }
    return !line_is_blank(out->text);
}

/* True: it is over, and *out is what was kept of the line. */
static bool
source_skip_on(struct replay_source *source, struct replay_record *out)
{
    size_t size;
    bool is_over =
        source_line_find(source_text(source), source->is_last, &size);

    source->line += line_breaks_count(
        (struct meter_str){source->window + source->at, size});
    source_take(source, size);
    if (!is_over) {
        return false;
    }
    source->is_skipping = false;
    *out = (struct replay_record){
        .text = {source->kept, sizeof(source->kept)},
        .error = source_too_long,
        .line = source->skipped_line,
        .line_next = source->line,
        .offset_next = source->offset,
    };
    return true;
}

/* True: *out is a record; false: more has to be read, if there is more. */
static bool
source_record_next(struct replay_source *source, struct replay_record *out)
{
    enum found found;
    size_t size;

    while (source->is_skipping || source->at < source->end) {
        if (source->is_skipping) {
            return source_skip_on(source, out);
        }
        found = source_record_find(source, &size);
        if (found != FOUND_MORE) {
            if (source_record_take(source, size, found == FOUND_BROKEN, out)) {
                return true;
            }
        } else if (source->end - source->at > REPLAY_LINE_MAX + 1) {
            memcpy(source->kept, source->window + source->at,
                   sizeof(source->kept));
            source->is_skipping = true;
            source->skipped_line = source->line;
        } else {
            return false;
        }
    }
    return false;
}

static enum replay_next
replay_source_next(struct replay_source *source, struct replay_record *out)
{
    for (;;) {
        enum replay_next filled;

        if (source_mark_pass(source) && source_record_next(source, out)) {
            return REPLAY_RECORD;
        }
        if (source->is_last) {
            return REPLAY_END;
        }
        filled = source_fill(source);
        if (filled != REPLAY_RECORD) {
            return filled;
        }
    }
}


/* ======== CSV ==========================================================

   header -> columns;  record -> {"event_id": ..., "attributes": {...}}

   Columns that are named like fields are these fields; `attributes` holds a
   JSON object. Any other column is the attribute of its name, dots and all,
   which is how rules find it; `attributes.NAME` is the attribute NAME, for
   names that are those of fields. An empty cell is absent. An attribute is a
   number when its cell is one as JSON writes it, true and false are
   themselves, all else is text; a column that is named by --text is always
   text. Quotes say nothing about types. The gate judges what is inside. */

enum csv_column_kind {
    COLUMN_TEXT,      /* a field, text */
    COLUMN_TIME,      /* ts: an epoch number, or text */
    COLUMN_OBJECT,    /* attributes */
    COLUMN_ATTRIBUTE, /* typed by its cells */
    COLUMN_ATTRIBUTE_TEXT
};

struct csv_column {
    enum csv_column_kind kind;
    struct meter_str heading;
    struct meter_str name; /* of the member or attribute */
};

struct replay_csv {
    struct csv_column columns[COLUMN_COUNT_MAX];
    size_t count;
    struct buf unquoted;
    struct buf members;
    struct buf attributes;
};

static const struct {
    struct meter_str name;
    enum csv_column_kind kind;
} csv_fields[] = {
    {{"event_id", 8}, COLUMN_TEXT},
    {{"type", 4}, COLUMN_TEXT},
    {{"ts", 2}, COLUMN_TIME},
    {{"tenant", 6}, COLUMN_TEXT},
    {{"customer", 8}, COLUMN_TEXT},
    {{"resource", 8}, COLUMN_TEXT},
    {{"quantity", 8}, COLUMN_TEXT},
    {{"source", 6}, COLUMN_TEXT},
    {{"attributes", 10}, COLUMN_OBJECT},
};

static const char csv_bad_quotes[] = "a quote stands where CSV has none";

static struct csv_column
csv_column_of(struct meter_str heading)
{
    static const struct meter_str prefix = {"attributes.", 11};
    struct csv_column column = {COLUMN_ATTRIBUTE, heading, heading};

    for (size_t i = 0; i < sizeof(csv_fields) / sizeof(csv_fields[0]); i++) {
        if (meter_str_equal(heading, csv_fields[i].name)) {
            column.kind = csv_fields[i].kind;
            return column;
        }
    }
    if (heading.size > prefix.size &&
        memcmp(heading.data, prefix.data, prefix.size) == 0) {
        column.name.data += prefix.size;
        column.name.size -= prefix.size;
    }
    return column;
}

static bool
csv_is_attribute(const struct csv_column *column)
{
    return column->kind == COLUMN_ATTRIBUTE ||
           column->kind == COLUMN_ATTRIBUTE_TEXT;
}

/* NULL, or why this cannot be one more column. */
static const char *
csv_column_add(struct replay_csv *csv, struct meter_str cell,
               struct arena *arena)
{
    struct meter_str heading;
    struct csv_column column;

    if (csv->count == COLUMN_COUNT_MAX) {
        return reason_format(arena, "the header has more than %d columns",
                             COLUMN_COUNT_MAX);
    }
    if (cell.size == 0) {
        return reason_format(arena, "column %zu of the header has no name",
                             csv->count + 1);
    }
    if (!meter_utf8_valid(cell)) {
        return "the header is not UTF-8";
    }
    if (!arena_copy(arena, cell, &heading)) {
        return "out of memory";
    }
    column = csv_column_of(heading);
    for (size_t i = 0; i < csv->count; i++) {
        if (csv_is_attribute(&csv->columns[i]) == csv_is_attribute(&column) &&
            meter_str_equal(csv->columns[i].name, column.name)) {
            return reason_format(arena, "the header has %s twice",
                                 reason_quote(column.name).text);
        }
    }
    csv->columns[csv->count++] = column;
    return NULL;
}

static struct csv_column *
csv_column_find(struct replay_csv *csv, const char *heading)
{
    struct meter_str wanted = {heading, strlen(heading)};

    for (size_t i = 0; i < csv->count; i++) {
        if (meter_str_equal(csv->columns[i].heading, wanted)) {
            return &csv->columns[i];
        }
    }
    return NULL;
}

static const char *
csv_texts_mark(struct replay_csv *csv, const char *const *texts, size_t count,
               struct arena *arena)
{
    for (size_t i = 0; i < count; i++) {
        struct csv_column *column = csv_column_find(csv, texts[i]);

        if (column == NULL) {
            return reason_format(
                arena, "--text: the header has no column %s",
                reason_quote((struct meter_str){texts[i], strlen(texts[i])})
                    .text);
        }
        if (csv_is_attribute(column)) {
            column->kind = COLUMN_ATTRIBUTE_TEXT;
        }
    }
    return NULL;
}

/* A file without a header must not lose its first event for one. */
static const char *
csv_header_read(struct replay_csv *csv, struct meter_str header,
                struct arena *arena)
{
    struct csv_reader reader;
    struct meter_str cell;
    enum csv_next next;

    csv_reader_init(&reader, header);
    while ((next = csv_cell_next(&reader, &csv->unquoted, &cell)) == CSV_CELL) {
        const char *error = csv_column_add(csv, cell, arena);

        if (error != NULL) {
            return error;
        }
    }
    if (next == CSV_CELL_BROKEN) {
        return csv_bad_quotes;
    }
    if (csv_column_find(csv, "type") == NULL ||
        csv_column_find(csv, "ts") == NULL) {
        return "the first line is no header: it has to name the columns "
               "\"type\" and \"ts\"";
    }
    return NULL;
}

static void
replay_csv_destroy(struct replay_csv *csv)
{
    if (csv == NULL) {
        return;
    }
    buf_fini(&csv->unquoted);
    buf_fini(&csv->members);
    buf_fini(&csv->attributes);
    free(csv);
}

static struct replay_csv *
replay_csv_create(struct meter_str header, const char *const *texts,
                  size_t text_count, struct arena *arena, const char **error)
{
    struct replay_csv *csv = memory_alloc(sizeof(*csv));

    buf_init(&csv->unquoted, CELLS_SIZE_MAX);
    buf_init(&csv->members, CELLS_SIZE_MAX);
    buf_init(&csv->attributes, CELLS_SIZE_MAX);
    *error = csv_header_read(csv, header, arena);
    if (*error == NULL) {
        *error = csv_texts_mark(csv, texts, text_count, arena);
    }
    if (*error != NULL) {
        replay_csv_destroy(csv);
        return NULL;
    }
    return csv;
}

static bool
csv_is_number(struct meter_str cell)
{
    const char *end = cell.data + cell.size;
    struct json_lexeme_error error;

    return (cell.data[0] == '-' ||
            (cell.data[0] >= '0' && cell.data[0] <= '9')) &&
           json_lexeme_number(cell.data, end, &error) == end;
}

/* Does the cell stand in JSON as it is, without quotes? */
static bool
csv_is_raw(enum csv_column_kind kind, struct meter_str cell)
{
    return ((kind == COLUMN_TIME || kind == COLUMN_ATTRIBUTE) &&
            csv_is_number(cell)) ||
           (kind == COLUMN_ATTRIBUTE &&
            (meter_str_equal(cell, METER_STR("true")) ||
             meter_str_equal(cell, METER_STR("false"))));
}

/* What is between the braces joins the other attributes. */
static const char *
csv_object_put(struct json_writer *json, struct meter_str cell)
{
    struct meter_str object = blanks_cut(cell);
    struct meter_str inside;

    if (object.size < 2 || object.data[0] != '{' ||
        json_skip(object) != object.size) {
        return "attributes is not a JSON object";
    }
    inside = blanks_cut((struct meter_str){object.data + 1, object.size - 2});
    if (inside.size > 0) {
        json_raw(json, inside);
    }
    return NULL;
}

static const char *
csv_cell_put(const struct csv_column *column, struct meter_str cell,
             struct json_writer *members, struct json_writer *attributes)
{
    struct json_writer *json = csv_is_attribute(column) ? attributes : members;

    if (!meter_utf8_valid(cell)) {
        return "the line is not UTF-8 text";
    }
    if (column->kind == COLUMN_OBJECT) {
        return csv_object_put(attributes, cell);
    }
    json_key_str(json, column->name);
    if (csv_is_raw(column->kind, cell)) {
        json_raw(json, cell);
    } else {
        json_string(json, cell);
    }
    return NULL;
}

static const char *
csv_cells_read(struct replay_csv *csv, struct meter_str record,
               struct arena *arena)
{
    struct json_writer members;
    struct json_writer attributes;
    struct csv_reader reader;
    struct meter_str cell;
    const char *error = NULL;
    enum csv_next next;
    size_t count = 0;

    json_writer_init(&members, &csv->members);
    json_writer_init(&attributes, &csv->attributes);
    csv_reader_init(&reader, record);
    while ((next = csv_cell_next(&reader, &csv->unquoted, &cell)) == CSV_CELL) {
        if (count < csv->count && cell.size > 0 && error == NULL) {
            error =
                csv_cell_put(&csv->columns[count], cell, &members, &attributes);
        }
        count++;
    }
    if (next == CSV_CELL_BROKEN) {
        return csv_bad_quotes;
    }
    if (count != csv->count) {
        return reason_format(arena, "%zu cells, where the header has %zu",
                             count, csv->count);
    }
    return error;
}

static const char *
replay_csv_convert(struct replay_csv *csv, struct meter_str record,
                   struct arena *arena, struct buf *out)
{
    const char *error;

    buf_reset(&csv->members);
    buf_reset(&csv->attributes);
    error = csv_cells_read(csv, record, arena);
    if (error != NULL) {
        return error;
    }
    if (csv->members.failed || csv->attributes.failed) {
        return "the event is too large";
    }
    buf_put_byte(out, '{');
    buf_put_str(out, buf_str(&csv->members));
    buf_put_text(out, csv->members.size > 0 ? ",\"attributes\":{"
                                            : "\"attributes\":{");
    buf_put_str(out, buf_str(&csv->attributes));
    buf_put_text(out, "}}");
    return NULL;
}


/* ======== batches ======================================================

   A batch holds each record as it stood in the file, for the rejects, and as
   JSON. A record that is no whole object by its brackets is refused here:
   between others in one body it would harm them. Where the gate refuses a
   body as a whole, its records go one by one. */

static void
replay_batch_init(struct replay_batch *batch, size_t count_max)
{
    *batch = (struct replay_batch){.count_max = count_max};
    buf_init(&batch->texts, BUF_SIZE_MAX);
    buf_init(&batch->events, BUF_SIZE_MAX);
    arena_init(&batch->reasons, REASON_BLOCK, REASONS_MAX);
    batch->entries = memory_array(count_max, sizeof(*batch->entries));
}

static void
replay_batch_fini(struct replay_batch *batch)
{
    free(batch->entries);
    buf_fini(&batch->texts);
    buf_fini(&batch->events);
    arena_fini(&batch->reasons);
}

static const char *
batch_line_take(struct replay_batch *batch, struct meter_str text)
{
    text = blanks_cut(text);
    if (text.size == 0 || text.data[0] != '{') {
        return "an event must be a JSON object";
    }
    buf_put_str(&batch->events, text);
    return NULL;
}

/* By its brackets it is one object from its first byte to its last. */
static const char *
batch_event_check(const struct replay_batch *batch,
                  const struct replay_entry *entry)
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
batch_entry_add(struct replay_batch *batch, const struct replay_record *record,
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
            csv == NULL ? batch_line_take(batch, record->text)
                        : replay_csv_convert(csv, record->text, &batch->reasons,
                                             &batch->events);
        if (batch->events.failed || batch->texts.failed) {
            return false;
        }
        entry->event_size = batch->events.size - entry->event_at;
    }
    if (entry->error == NULL) {
        entry->error = batch_event_check(batch, entry);
    }
    batch->line_next = record->line_next;
    batch->offset_next = record->offset_next;
    return !batch->texts.failed;
}

/*
 * Empties the batch and fills it from the source; csv NULL: lines of JSON.
 * RECORD: it is full. END, AGAIN, FAILED: what the source said then; there
 * may be entries all the same. ENOMEM is a FAILED of our own.
 */
static enum replay_next
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
        if (!batch_entry_add(batch, &record, csv)) {
            errno = ENOMEM;
            return REPLAY_FAILED;
        }
    }
    return REPLAY_RECORD;
}

bool
replay_batch_next(struct replay_batch *batch, struct buf *body)
{
    const char *separator = "[";

    if (batch->from == batch->count) {
        return false;
    }
    batch->to = batch->is_single ? batch->from + 1 : batch->count;
    for (size_t i = batch->from; i < batch->to; i++) {
        const struct replay_entry *entry = &batch->entries[i];

        if (entry->error == NULL) {
            buf_put_text(body, separator);
            buf_put(body, batch->events.data + entry->event_at,
                    entry->event_size);
            separator = ",";
        }
    }
    buf_put_text(body, separator[0] == '[' ? "[]" : "]");
    return true;
}

void
replay_batch_answered(struct replay_batch *batch,
                      const struct ingest_answer *answer,
                      struct replay_tally *tally)
{
    bool is_done = answer->outcome == INGEST_DONE;
    size_t count = 0; /* of results */

    CHECK(is_done || answer->outcome == INGEST_BAD);
    if (!is_done && !batch->is_single) {
        batch->is_single = true;
        return;
    }
    for (; batch->from < batch->to; batch->from++) {
        const struct replay_entry *entry = &batch->entries[batch->from];
        enum meter_verdict verdict = METER_VERDICT_REJECTED;
        const char *reason =
            entry->error != NULL ? entry->error : answer->error;

        if (is_done && entry->error == NULL) {
            CHECK(count < answer->count);
            verdict = answer->results[count].verdict;
            reason = answer->results[count++].error;
        }
        replay_tally_add(tally, verdict, entry->line, reason,
                         (struct meter_str){batch->texts.data + entry->text_at,
                                            entry->text_size});
    }
    CHECK(count == (is_done ? answer->count : 0));
}


/* ======== the file ===================================================== */

static bool
input_fail(const struct replay_input *input, const char *why)
{
    fprintf(stderr, "meterd replay: %s: %s\n", input->name, why);
    return false;
}

/* Waits until there is something to read. False: not in time. */
static bool
input_wait(const struct replay_input *input, int timeout_ms)
{
    struct pollfd wanted = {.fd = input->file, .events = POLLIN};

    return poll(&wanted, 1, timeout_ms) != 0;
}

static ssize_t
input_read_cb(void *asker, char *out, size_t size)
{
    const struct replay_input *input = asker;
    ssize_t got;

    if (!input->is_regular && !input_wait(input, 0)) {
        errno = EAGAIN;
        return -1;
    }
    do {
        got = read(input->file, out, size);
    } while (got < 0 && errno == EINTR);
    return got;
}

static bool
input_file_open(struct replay_input *input)
{
    struct stat found;

    if (strcmp(input->options->path, "-") == 0) {
        input->name = "standard input";
        input->file = STDIN_FILENO;
    } else {
        input->file = open(input->options->path, O_RDONLY | O_CLOEXEC);
    }
    if (input->file < 0 || fstat(input->file, &found) != 0) {
        return input_fail(input, strerror(errno));
    }
    if (S_ISDIR(found.st_mode)) {
        return input_fail(input, strerror(EISDIR));
    }
    input->is_regular = S_ISREG(found.st_mode);
    input->size = input->is_regular ? found.st_size : 0;
    return true;
}

/* The first record of CSV. */
static bool
input_header_read(struct replay_input *input)
{
    const struct replay_options *options = input->options;
    struct replay_record record;
    const char *error = NULL;
    enum replay_next next;

    while ((next = replay_source_next(input->source, &record)) ==
           REPLAY_AGAIN) {
        (void)input_wait(input, -1);
    }
    if (next == REPLAY_FAILED) {
        return input_fail(input, strerror(errno));
    }
    if (next == REPLAY_END || record.error != NULL) {
        return input_fail(input, next == REPLAY_END ? "there is no header line"
                                                    : record.error);
    }
    input->csv = replay_csv_create(record.text, options->texts,
                                   options->text_count, &input->arena, &error);
    return input->csv != NULL || input_fail(input, error);
}

/* No more than the gate takes at once. */
static size_t
input_batch_max(const struct config *config)
{
    return (size_t)MIN(
        METER_BATCH_EVENTS_MAX,
        MIN(config->limits.batch_events, config->limits.queue_events));
}

bool
replay_input_open(struct replay_input *input,
                  const struct replay_options *options)
{
    *input = (struct replay_input){
        .options = options, .name = options->path, .file = -1};
    arena_init(&input->arena, ARENA_BLOCK, ARENA_MAX);
    replay_batch_init(&input->batch, input_batch_max(options->config));
    if (!input_file_open(input)) {
        return false;
    }
    input->source = replay_source_create(options->is_csv, input_read_cb, input);
    return !options->is_csv || input_header_read(input);
}

void
replay_input_close(struct replay_input *input)
{
    replay_csv_destroy(input->csv);
    replay_source_destroy(input->source);
    replay_batch_fini(&input->batch);
    arena_fini(&input->arena);
    if (input->file > STDIN_FILENO) {
        close(input->file);
    }
}

bool
replay_input_move(struct replay_input *input, int64_t offset, int64_t line)
{
    if (lseek(input->file, offset, SEEK_SET) != offset) {
        return input_fail(input, strerror(errno));
    }
    replay_source_moved(input->source, offset, line);
    return true;
}

enum replay_next
replay_input_fill(struct replay_input *input)
{
    enum replay_next next;

    while ((next = replay_batch_fill(&input->batch, input->source,
                                     input->csv)) == REPLAY_AGAIN &&
           input->batch.count == 0 && input->options->is_dry) {
        (void)input_wait(input, -1);
    }
    if (next == REPLAY_FAILED) {
        (void)input_fail(input, strerror(errno));
    }
    return next;
}
