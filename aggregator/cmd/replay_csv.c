/*
 * replay_csv.c - see replay_csv.h.
 *
 *   cell -> members            {"event_id":"e1","ts":...
 *   cell -> attributes         ,"attributes":{"route":"/a","size":12}}
 *
 * Members and attributes gather side by side and are joined at the end. What
 * is inside of them is judged by the gate like any other event.
 */

#include "cmd/replay_csv.h"

#include "base/csv_reader.h"
#include "base/json_lexeme.h"
#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/reason.h"
#include "meter_event.h"
#include "meter_limits.h"

#include <stdlib.h>

#define COLUMN_COUNT_MAX 1024
#define CELLS_SIZE_MAX   ((size_t)8 * METER_EVENT_SIZE_MAX) /* escaped */

enum column_kind {
    COLUMN_TEXT,      /* a field, text */
    COLUMN_TIME,      /* ts: an epoch number, or text */
    COLUMN_OBJECT,    /* attributes */
    COLUMN_ATTRIBUTE, /* typed by its cells */
    COLUMN_ATTRIBUTE_TEXT
};

struct column {
    enum column_kind kind;
    struct meter_str heading;
    struct meter_str name; /* of the member or attribute */
};

struct replay_csv {
    struct column *columns;
    size_t count;
    struct buf unquoted;
    struct buf members;
    struct buf attributes;
};

static const struct {
    struct meter_str name;
    enum column_kind kind;
} fields[] = {
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

static const char no_memory[] = "out of memory";
static const char bad_quotes[] = "a quote stands where CSV has none";


/* ---- the header ------------------------------------------------------- */

static struct column
column_of(struct meter_str heading)
{
    static const struct meter_str prefix = {"attributes.", 11};
    struct column column = {COLUMN_ATTRIBUTE, heading, heading};

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (meter_str_equal(heading, fields[i].name)) {
            column.kind = fields[i].kind;
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
is_attribute(const struct column *column)
{
    return column->kind == COLUMN_ATTRIBUTE ||
           column->kind == COLUMN_ATTRIBUTE_TEXT;
}

/* NULL, or why this cannot be one more column. */
static const char *
column_add(struct replay_csv *csv, struct meter_str cell, struct arena *arena)
{
    struct meter_str heading;
    struct column column;

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
        return no_memory;
    }
    column = column_of(heading);
    for (size_t i = 0; i < csv->count; i++) {
        if (is_attribute(&csv->columns[i]) == is_attribute(&column) &&
            meter_str_equal(csv->columns[i].name, column.name)) {
            return reason_format(arena, "the header has %s twice",
                                 reason_quote(column.name).text);
        }
    }
    csv->columns[csv->count++] = column;
    return NULL;
}

static struct column *
column_find(struct replay_csv *csv, const char *heading)
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
texts_mark(struct replay_csv *csv, const char *const *texts, size_t count,
           struct arena *arena)
{
    for (size_t i = 0; i < count; i++) {
        struct column *column = column_find(csv, texts[i]);

        if (column == NULL) {
            return reason_format(
                arena, "--text: the header has no column %s",
                reason_quote((struct meter_str){texts[i], strlen(texts[i])})
                    .text);
        }
        if (is_attribute(column)) {
            column->kind = COLUMN_ATTRIBUTE_TEXT;
        }
    }
    return NULL;
}

/* A file without a header must not lose its first event for one. */
static const char *
header_read(struct replay_csv *csv, struct meter_str header,
            struct arena *arena)
{
    struct csv_reader reader;
    struct meter_str cell;
    enum csv_next next;

    csv_reader_init(&reader, header);
    while ((next = csv_cell_next(&reader, &csv->unquoted, &cell)) == CSV_CELL) {
        const char *error = column_add(csv, cell, arena);

        if (error != NULL) {
            return error;
        }
    }
    if (next == CSV_CELL_BROKEN) {
        return bad_quotes;
    }
    if (column_find(csv, "type") == NULL || column_find(csv, "ts") == NULL) {
        return "the first line is no header: it has to name the columns "
               "\"type\" and \"ts\"";
    }
    return NULL;
}

struct replay_csv *
replay_csv_create(struct meter_str header, const char *const *texts,
                  size_t text_count, struct arena *arena, const char **error)
{
    struct replay_csv *csv = calloc(1, sizeof(*csv));

    *error = no_memory;
    if (csv == NULL) {
        return NULL;
    }
    buf_init(&csv->unquoted, CELLS_SIZE_MAX);
    buf_init(&csv->members, CELLS_SIZE_MAX);
    buf_init(&csv->attributes, CELLS_SIZE_MAX);
    csv->columns = calloc(COLUMN_COUNT_MAX, sizeof(*csv->columns));
    if (csv->columns != NULL) {
        *error = header_read(csv, header, arena);
    }
    if (*error == NULL) {
        *error = texts_mark(csv, texts, text_count, arena);
    }
    if (*error != NULL) {
        replay_csv_destroy(csv);
        return NULL;
    }
    return csv;
}

void
replay_csv_destroy(struct replay_csv *csv)
{
    if (csv == NULL) {
        return;
    }
    buf_fini(&csv->unquoted);
    buf_fini(&csv->members);
    buf_fini(&csv->attributes);
    free(csv->columns);
    free(csv);
}


/* ---- a record --------------------------------------------------------- */

static bool
is_number(struct meter_str cell)
{
    const char *end = cell.data + cell.size;
    struct json_lexeme_error error;

    return (cell.data[0] == '-' ||
            (cell.data[0] >= '0' && cell.data[0] <= '9')) &&
           json_lexeme_number(cell.data, end, &error) == end;
}

static bool
is_word(struct meter_str cell)
{
    return meter_str_equal(cell, METER_STR("true")) ||
           meter_str_equal(cell, METER_STR("false"));
}

static void
value_put(struct json_writer *json, struct meter_str name,
          struct meter_str value, bool is_raw)
{
    json_key_str(json, name);
    if (is_raw) {
        json_raw(json, value);
    } else {
        json_string(json, value);
    }
}

static struct meter_str
blanks_cut(struct meter_str text)
{
    static const char blanks[] = " \t\r\n";

    while (text.size > 0 && strchr(blanks, text.data[0]) != NULL) {
        text.data++;
        text.size--;
    }
    while (text.size > 0 && strchr(blanks, text.data[text.size - 1]) != NULL) {
        text.size--;
    }
    return text;
}

/* What is between the braces joins the other attributes. */
static const char *
object_put(struct json_writer *json, struct meter_str cell)
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
cell_put(const struct column *column, struct meter_str cell,
         struct json_writer *members, struct json_writer *attributes)
{
    if (!meter_utf8_valid(cell)) {
        return "the line is not UTF-8 text";
    }
    switch (column->kind) {
    case COLUMN_TEXT: value_put(members, column->name, cell, false); break;
    case COLUMN_TIME:
        value_put(members, column->name, cell, is_number(cell));
        break;
    case COLUMN_OBJECT: return object_put(attributes, cell);
    case COLUMN_ATTRIBUTE:
        value_put(attributes, column->name, cell,
                  is_number(cell) || is_word(cell));
        break;
    case COLUMN_ATTRIBUTE_TEXT:
        value_put(attributes, column->name, cell, false);
        break;
    }
    return NULL;
}

static const char *
cells_read(struct replay_csv *csv, struct meter_str record, struct arena *arena)
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
            error = cell_put(&csv->columns[count], cell, &members, &attributes);
        }
        count++;
    }
    if (next == CSV_CELL_BROKEN) {
        return bad_quotes;
    }
    if (count != csv->count) {
        return reason_format(arena, "%zu cells, where the header has %zu",
                             count, csv->count);
    }
    return error;
}

const char *
replay_csv_convert(struct replay_csv *csv, struct meter_str record,
                   struct arena *arena, struct buf *out)
{
    const char *error;

    buf_reset(&csv->members);
    buf_reset(&csv->attributes);
    error = cells_read(csv, record, arena);
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
