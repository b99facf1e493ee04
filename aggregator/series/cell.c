/*
 * cell.c - the accumulator of one dimension set and bucket.
 *
 *   change -> [fold] -> cell -> [merge] -> cell -> [put] -> row
 *
 * The buffer folds events into cells, the flush merges and writes them, meterd
 * rebuild does both from the ledger. A tally is one block on the heap: entries
 * in order of their labels, then the bytes of the labels.
 *
 *   tallies -> | entry, entry, ..., room | label bytes ..., room |
 */

#include "series/cell.h"

#include "pg/column.h"

#include <stdlib.h>

#define TALLY_ROOM_MIN 4
#define TEXT_ROOM_MIN  32
#define TALLY_ROOM_MAX (UINT32_MAX / 4) /* labels, and bytes of theirs */

_Static_assert(SERIES_STATE < 4, "a kind has two bits");
#define LABEL_SIZE_MAX (2 * SERIES_STATE_SIZE_MAX + 3) /* brackets, comma */

/* Counts are never negative: to stop at the end is the same in any order. */
static int64_t
cell_count_add(int64_t a, int64_t b)
{
    int64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

void
cell_init(struct cell *cell, enum series_kind kind, int64_t bucket_us)
{
    memset(cell, 0, CELL_SIZE(kind));
    cell->kind = (uint32_t)kind & 3;
    cell->bucket_us = bucket_us;
}

void
cell_fini(struct cell *cell)
{
    free(cell->tallies);
    cell->tallies = NULL;
    cell->tally_count = 0;
    cell->tally_room = 0;
    cell->text_size = 0;
    cell->text_room = 0;
}

static int
cell_place_compare(const struct cell_place *a, const struct cell_place *b)
{
    int order = (a->ts_us > b->ts_us) - (a->ts_us < b->ts_us);

    if (order == 0) {
        order = (a->recorded_us > b->recorded_us) -
                (a->recorded_us < b->recorded_us);
    }
    if (order == 0) {
        order = memcmp(a->writer, b->writer, sizeof(a->writer));
    }
    if (order == 0) {
        order = (a->seq > b->seq) - (a->seq < b->seq);
    }
    return order;
}

/* Before count is raised: 0 says that there are none yet. */
static void
cell_take_values(struct cell *cell, struct meter_decimal min,
                 struct meter_decimal max, struct meter_decimal last,
                 const struct cell_place *place)
{
    bool is_first = cell->count == 0;

    if (is_first || meter_decimal_compare(min, cell->min) < 0) {
        cell->min = min;
    }
    if (is_first || meter_decimal_compare(max, cell->max) > 0) {
        cell->max = max;
    }
    if (is_first || cell_place_compare(place, &cell->last_place) > 0) {
        cell->last = last;
        cell->last_place = *place;
    }
}

/* Where the label is, or where it would go: *is_found. */
static size_t
cell_tally_find(const struct cell *cell, struct meter_str label, bool *is_found)
{
    size_t low = 0;
    size_t high = cell->tally_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = meter_str_compare(cell->tallies[middle].label, label);

        if (order == 0) {
            *is_found = true;
            return middle;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *is_found = false;
    return low;
}

static uint32_t
cell_room_for(uint32_t room, size_t needed, uint32_t room_min)
{
    room = room < room_min ? room_min : room;
    while (room < needed) {
        room *= 2;
    }
    return room;
}

static char *
cell_text(const struct cell *cell)
{
    return (char *)(cell->tallies + cell->tally_room);
}

/* Room for so many labels more, and so many bytes of theirs. */
static bool
cell_tally_reserve(struct cell *cell, size_t labels, size_t text_size)
{
    size_t count = cell->tally_count + labels;
    size_t size = cell->text_size + text_size;
    uint32_t tally_room, text_room;
    struct cell_tally *tallies;
    char *text;

    if (count <= cell->tally_room && size <= cell->text_room) {
        return true;
    }
    if (count > TALLY_ROOM_MAX || size > TALLY_ROOM_MAX) {
        return false;
    }
    tally_room = cell_room_for(cell->tally_room, count, TALLY_ROOM_MIN);
    text_room = cell_room_for(cell->text_room, size, TEXT_ROOM_MIN);
    tallies = malloc(tally_room * sizeof(*tallies) + text_room);
    if (tallies == NULL) {
        return false;
    }
    text = (char *)(tallies + tally_room);
    if (cell->text_size > 0) {
        memcpy(text, cell_text(cell), cell->text_size);
    }
    for (size_t i = 0; i < cell->tally_count; i++) {
        tallies[i] = cell->tallies[i];
        tallies[i].label.data =
            text + (cell->tallies[i].label.data - cell_text(cell));
    }
    free(cell->tallies);
    cell->tallies = tallies;
    cell->tally_room = tally_room;
    cell->text_room = text_room;
    return true;
}

static bool
cell_tally_add(struct cell *cell, struct meter_str label, int64_t count)
{
    bool is_found;
    size_t at = cell_tally_find(cell, label, &is_found);
    char *text;

    if (is_found) {
        cell->tallies[at].count =
            cell_count_add(cell->tallies[at].count, count);
        return true;
    }
    if (!cell_tally_reserve(cell, 1, label.size)) {
        return false;
    }
    text = cell_text(cell) + cell->text_size;
    memcpy(text, label.data, label.size);
    cell->text_size += (uint32_t)label.size;
    memmove(&cell->tallies[at + 1], &cell->tallies[at],
            (cell->tally_count - at) * sizeof(*cell->tallies));
    cell->tallies[at].label = (struct meter_str){text, label.size};
    cell->tallies[at].count = count;
    cell->tally_count++;
    return true;
}

/* Its label: [from,to] as JSON, or [null,to]. */
static bool
cell_fold_transition(struct cell *cell, const struct series_change *change,
                     struct meter_str from)
{
    char text[LABEL_SIZE_MAX];
    struct meter_writer writer;

    meter_writer_init(&writer, text, sizeof(text));
    from = from.data == NULL ? METER_STR("null") : from;
    meter_put_u8(&writer, '[');
    meter_put_bytes(&writer, from.data, from.size);
    meter_put_u8(&writer, ',');
    meter_put_bytes(&writer, change->state.data, change->state.size);
    meter_put_u8(&writer, ']');
    CHECK(!writer.failed);
    return cell_tally_add(cell, (struct meter_str){text, writer.at},
                          change->count);
}

bool
cell_fold(struct cell *cell, const struct series_change *change,
          struct meter_str from, const struct cell_place *place)
{
    switch ((enum series_kind)cell->kind) {
    case SERIES_COUNTER: break;
    case SERIES_GAUGE:
        cell_take_values(cell, change->value, change->value, change->value,
                         place);
        break;
    case SERIES_HISTOGRAM:
        if (!cell_tally_add(cell, change->label, change->count)) {
            return false;
        }
        break;
    case SERIES_STATE:
        if (!cell_fold_transition(cell, change, from)) {
            return false;
        }
        break;
    }
    cell->count = cell_count_add(cell->count, change->count);
    decimal_sum_add(&cell->sum, change->total);
    return true;
}

bool
cell_merge(struct cell *cell, const struct cell *other)
{
    CHECK(cell->kind == other->kind);
    /* All room first: a merge is whole or not at all. */
    if (!cell_tally_reserve(cell, other->tally_count, other->text_size)) {
        return false;
    }
    for (size_t i = 0; i < other->tally_count; i++) {
        CHECK(cell_tally_add(cell, other->tallies[i].label,
                             other->tallies[i].count));
    }
    if (cell->kind == SERIES_GAUGE && other->count > 0) {
        cell_take_values(cell, other->min, other->max, other->last,
                         &other->last_place);
    }
    cell->count = cell_count_add(cell->count, other->count);
    decimal_sum_add(&cell->sum, other->sum);
    return true;
}

enum pg_type
cell_column_type(enum cell_column column)
{
    static const enum pg_type types[CELL_COLUMNS] = {
        [CELL_COUNT] = PG_INT8,
        [CELL_SUM] = PG_NUMERIC,
        [CELL_MIN] = PG_NUMERIC,
        [CELL_MAX] = PG_NUMERIC,
        [CELL_LAST] = PG_NUMERIC,
        [CELL_LAST_AT] = PG_TIMESTAMPTZ,
        [CELL_LAST_RECORDED_AT] = PG_TIMESTAMPTZ,
        [CELL_LAST_WRITER] = PG_UUID,
        [CELL_LAST_SEQ] = PG_INT8,
        [CELL_LABELS] = PG_TEXT,
        [CELL_COUNTS] = PG_TEXT,
    };

    return types[column];
}

/* The length word of a text that is not made yet; then it is known. */
static size_t
cell_text_begin(struct buf *out)
{
    size_t at = out->size;

    pg_put_text(out, METER_STR(""));
    return at;
}

static void
cell_text_end(struct buf *out, size_t at)
{
    size_t size = out->size - at - 4;

    if (out->failed) {
        return;
    }
    for (size_t i = 0; i < 4; i++) {
        out->data[at + i] = (char)(size >> (8 * (3 - i)) & 0xff);
    }
}

/* {"a","b"}: every label in quotes, with \" and \\ inside. */
static void
cell_put_labels(const struct cell *cell, struct buf *out)
{
    size_t begin = cell_text_begin(out);

    for (size_t i = 0; i < cell->tally_count; i++) {
        struct meter_str label = cell->tallies[i].label;

        buf_put_text(out, i == 0 ? "{\"" : ",\"");
        for (size_t at = 0; at < label.size; at++) {
            if (label.data[at] == '"' || label.data[at] == '\\') {
                buf_put_byte(out, '\\');
            }
            buf_put_byte(out, (uint8_t)label.data[at]);
        }
        buf_put_byte(out, '"');
    }
    buf_put_byte(out, '}');
    cell_text_end(out, begin);
}

static void
cell_put_counts(const struct cell *cell, struct buf *out)
{
    size_t begin = cell_text_begin(out);

    for (size_t i = 0; i < cell->tally_count; i++) {
        buf_put_byte(out, i == 0 ? '{' : ',');
        buf_put_int(out, cell->tallies[i].count);
    }
    buf_put_byte(out, '}');
    cell_text_end(out, begin);
}

void
cell_put(const struct cell *cell, enum cell_column column, struct buf *out)
{
    static const struct pg_column columns[CELL_LABELS] = {
        [CELL_COUNT] = PG_COLUMN(INT8, struct cell, count),
        [CELL_SUM] = PG_COLUMN(SUM, struct cell, sum),
        [CELL_MIN] = PG_COLUMN(NUMERIC, struct cell, min),
        [CELL_MAX] = PG_COLUMN(NUMERIC, struct cell, max),
        [CELL_LAST] = PG_COLUMN(NUMERIC, struct cell, last),
        [CELL_LAST_AT] = PG_COLUMN(TIME, struct cell, last_place.ts_us),
        [CELL_LAST_RECORDED_AT] =
            PG_COLUMN(TIME, struct cell, last_place.recorded_us),
        [CELL_LAST_WRITER] = PG_COLUMN(UUID, struct cell, last_place.writer),
        [CELL_LAST_SEQ] = PG_COLUMN(INT8, struct cell, last_place.seq),
    };
    bool has_values = cell->kind == SERIES_GAUGE && cell->count > 0;

    if (column == CELL_LABELS && cell->tally_count > 0) {
        cell_put_labels(cell, out);
    } else if (column == CELL_COUNTS && cell->tally_count > 0) {
        cell_put_counts(cell, out);
    } else if (column <= CELL_SUM || (column < CELL_LABELS && has_values)) {
        pg_put_columns(out, &columns[column], 1, cell);
    } else {
        pg_put_null(out);
    }
}
