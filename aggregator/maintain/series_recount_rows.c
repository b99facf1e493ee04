/*
 * series_recount_rows.c - see series_recount_rows.h.
 *
 *   sets:  (series, key)          kept from slice to slice
 *   rows:  (series, key, bucket)  of one slice
 *
 * A found row that is as expected is only noted; the others are kept.
 */

#include "maintain/series_recount_rows.h"

#include "project/recount.h"

#include <stdlib.h>

#define ID_SET  (4 + METER_DIGEST_SIZE)
#define PUT_MAX ((size_t)64 << 20)

struct series_rows {
    const struct catalog *catalog;
    enum meter_level level;
    size_t rows_max;
    struct map row_map;
    struct map set_map;
    struct series_rows_row *rows;
    struct series_rows_set *sets;
    void **list; /* what differs, asked last */
};


/* ---- life ------------------------------------------------------------- */

struct series_rows *
series_rows_create(const struct catalog *catalog)
{
    struct series_rows *rows = calloc(1, sizeof(*rows));

    if (rows != NULL) {
        rows->catalog = catalog;
        map_init(&rows->row_map, RECOUNT_ROWS_MAX);
        map_init(&rows->set_map, RECOUNT_ROWS_MAX);
    }
    return rows;
}

static void
row_free(struct series_rows_row *row)
{
    cell_fini(&row->expected);
    if (row->found != NULL) {
        cell_fini(&row->found->cell);
        free(row->found);
    }
    free(row);
}

static void
rows_forget(struct series_rows *rows)
{
    struct series_rows_row *row = rows->rows;

    while (row != NULL) {
        struct series_rows_row *next = row->next;

        row_free(row);
        row = next;
    }
    rows->rows = NULL;
    map_clear(&rows->row_map);
}

static void
sets_forget(struct series_rows *rows)
{
    struct series_rows_set *set = rows->sets;

    while (set != NULL) {
        struct series_rows_set *next = set->next;

        free((char *)(uintptr_t)set->json.data);
        free((char *)(uintptr_t)set->stored.data);
        free(set);
        set = next;
    }
    rows->sets = NULL;
    map_clear(&rows->set_map);
}

void
series_rows_destroy(struct series_rows *rows)
{
    if (rows == NULL) {
        return;
    }
    rows_forget(rows);
    sets_forget(rows);
    map_fini(&rows->row_map);
    map_fini(&rows->set_map);
    free(rows->list);
    free(rows);
}

void
series_rows_start(struct series_rows *rows, enum meter_level level,
                  size_t rows_max)
{
    rows_forget(rows);
    if (rows->set_map.count > SERIES_SETS_MAX) {
        sets_forget(rows);
    }
    rows->level = level;
    rows->rows_max = rows_max;
}


/* ---- sets and rows ---------------------------------------------------- */

static bool
copy(struct meter_str from, struct meter_str *to)
{
    char *data = malloc(from.size + 1);

    if (data == NULL) {
        return false;
    }
    memcpy(data, from.data, from.size);
    data[from.size] = '\0';
    to->data = data;
    to->size = from.size;
    return true;
}

/* Series in the order of the file, keys and buckets bytewise. */
static void
put_number(char *out, uint64_t value, size_t size)
{
    for (size_t i = size; i > 0; i--) {
        out[i - 1] = (char)(value & 0xff);
        value >>= 8;
    }
}

/* NULL: no memory. */
static struct series_rows_set *
set_take(struct series_rows *rows, const struct series_rows_at *at)
{
    char id[ID_SET];
    struct series_rows_set *set;

    put_number(id, at->series->index, 4);
    memcpy(id + 4, at->key, METER_DIGEST_SIZE);
    set = map_find(&rows->set_map, (struct meter_str){id, sizeof(id)});
    if (set != NULL) {
        return set;
    }
    set = calloc(1, sizeof(*set));
    if (set == NULL) {
        return NULL;
    }
    memcpy(set->id, id, sizeof(id));
    set->series = at->series;
    set->since_us = INT64_MAX;
    set->key = (const uint8_t *)set->id + 4;
    if (map_add(&rows->set_map, (struct meter_str){set->id, sizeof(id)}, set) ==
        NULL) {
        free(set);
        return NULL;
    }
    set->next = rows->sets;
    rows->sets = set;
    return set;
}

static enum series_rows_end
row_take(struct series_rows *rows, const struct series_rows_at *at,
         struct series_rows_row **out)
{
    int64_t bucket_us = meter_level_bucket(rows->level, at->bucket_us);
    char id[ID_SET + 8];
    struct series_rows_row *row;

    put_number(id, at->series->index, 4);
    memcpy(id + 4, at->key, METER_DIGEST_SIZE);
    /* The sign bit turned: instants before 1970 come first. */
    put_number(id + ID_SET, (uint64_t)bucket_us ^ ((uint64_t)1 << 63), 8);
    *out = map_find(&rows->row_map, (struct meter_str){id, sizeof(id)});
    if (*out != NULL) {
        return SERIES_ROWS_OK;
    }
    if (rows->row_map.count >= rows->rows_max) {
        return SERIES_ROWS_FULL;
    }
    row = calloc(1, sizeof(*row));
    if (row == NULL) {
        return SERIES_ROWS_FAULT;
    }
    memcpy(row->id, id, sizeof(id));
    row->since_us = INT64_MAX;
    cell_init(&row->expected, at->series->kind, bucket_us);
    row->set = set_take(rows, at);
    if (row->set == NULL ||
        map_add(&rows->row_map, (struct meter_str){row->id, sizeof(id)}, row) ==
            NULL) {
        row_free(row);
        return SERIES_ROWS_FAULT;
    }
    row->next = rows->rows;
    rows->rows = row;
    *out = row;
    return SERIES_ROWS_OK;
}


/* ---- expected --------------------------------------------------------- */

static enum series_rows_end
change_fold(struct series_rows *rows, const struct series_change *change,
            struct meter_str from, const struct cell_place *place)
{
    const struct series_rows_at at = {change->series, change->set.key,
                                      place->ts_us};
    struct series_rows_row *row;
    enum series_rows_end end = row_take(rows, &at, &row);

    if (end != SERIES_ROWS_OK) {
        return end;
    }
    if ((row->set->json.data == NULL &&
         !copy(change->set.json, &row->set->json)) ||
        !cell_fold(&row->expected, change, from, place)) {
        return SERIES_ROWS_FAULT;
    }
    if (place->recorded_us < row->since_us) {
        row->since_us = place->recorded_us;
    }
    if (place->recorded_us < row->set->since_us) {
        row->set->since_us = place->recorded_us;
    }
    return SERIES_ROWS_OK;
}

enum series_rows_end
series_rows_fold(struct series_rows *rows, const struct series_effect *effect,
                 const struct meter_str *from, const struct cell_place *place,
                 const struct series *only)
{
    enum series_rows_end end = SERIES_ROWS_OK;
    size_t entities = 0;

    for (size_t i = 0; i < effect->count && end == SERIES_ROWS_OK; i++) {
        const struct series_change *change = &effect->changes[i];
        struct meter_str before = {NULL, 0};

        if (change->entity.data != NULL) {
            before = from[entities++];
        }
        if (before.data != series_from_unknown &&
            (only == NULL || change->series == only)) {
            end = change_fold(rows, change, before, place);
        }
    }
    return end;
}

enum series_rows_end
series_rows_merge(struct series_rows *rows, const struct series_rows_at *at,
                  const struct series_rows_found *child)
{
    struct series_rows_row *row;
    enum series_rows_end end = row_take(rows, at, &row);

    if (end != SERIES_ROWS_OK) {
        return end;
    }
    return cell_merge(&row->expected, &child->cell) ? SERIES_ROWS_OK
                                                    : SERIES_ROWS_FAULT;
}


/* ---- found ------------------------------------------------------------ */

unsigned
series_rows_nulls(const struct cell *cell)
{
    unsigned nulls = 0;
    struct buf put;

    buf_init(&put, PUT_MAX);
    for (int i = 0; i < CELL_COLUMNS; i++) {
        static const char null[] = {'\xff', '\xff', '\xff', '\xff'};

        buf_reset(&put);
        cell_put(cell, (enum cell_column)i, &put);
        if (put.size == sizeof(null) &&
            memcmp(put.data, null, sizeof(null)) == 0) {
            nulls |= 1u << i;
        }
    }
    buf_fini(&put);
    return nulls;
}

static bool
tallies_equal(const struct cell *a, const struct cell *b, bool is_labels)
{
    if (a->tally_count != b->tally_count) {
        return false;
    }
    for (uint32_t i = 0; i < a->tally_count; i++) {
        if (is_labels
                ? !meter_str_equal(a->tallies[i].label, b->tallies[i].label)
                : a->tallies[i].count != b->tallies[i].count) {
            return false;
        }
    }
    return true;
}

bool
series_rows_column_equal(const struct cell *cell, unsigned nulls,
                         const struct series_rows_found *found,
                         enum cell_column column)
{
    const struct cell *other = &found->cell;

    if (((nulls ^ found->nulls) & (1u << column)) != 0) {
        return false;
    }
    if ((nulls & (1u << column)) != 0) {
        return true;
    }
    switch (column) {
    case CELL_COUNT: return cell->count == other->count;
    case CELL_SUM: return decimal_sum_equal(cell->sum, other->sum);
    case CELL_MIN: return meter_decimal_compare(cell->min, other->min) == 0;
    case CELL_MAX: return meter_decimal_compare(cell->max, other->max) == 0;
    case CELL_LAST: return meter_decimal_compare(cell->last, other->last) == 0;
    case CELL_LAST_AT: return cell->last_place.ts_us == other->last_place.ts_us;
    case CELL_LAST_RECORDED_AT:
        return cell->last_place.recorded_us == other->last_place.recorded_us;
    case CELL_LAST_WRITER:
        return memcmp(cell->last_place.writer, other->last_place.writer,
                      sizeof(cell->last_place.writer)) == 0;
    case CELL_LAST_SEQ: return cell->last_place.seq == other->last_place.seq;
    case CELL_LABELS:
        return (found->nulls & SERIES_ROWS_ODD) == 0 &&
               tallies_equal(cell, other, true);
    case CELL_COUNTS: return tallies_equal(cell, other, false);
    case CELL_COLUMNS: break;
    }
    return true;
}

static bool
is_equal(const struct cell *cell, const struct series_rows_found *found)
{
    unsigned nulls = series_rows_nulls(cell);

    for (int i = 0; i < CELL_COLUMNS; i++) {
        if (!series_rows_column_equal(cell, nulls, found,
                                      (enum cell_column)i)) {
            return false;
        }
    }
    return true;
}

enum series_rows_end
series_rows_found(struct series_rows *rows, const struct series_rows_at *at,
                  struct series_rows_found *found)
{
    struct series_rows_row *row;
    enum series_rows_end end = row_take(rows, at, &row);

    if (end != SERIES_ROWS_OK) {
        return end;
    }
    row->is_found = true;
    if (row->expected.count > 0 && is_equal(&row->expected, found)) {
        return SERIES_ROWS_OK;
    }
    row->found = malloc(sizeof(*row->found));
    if (row->found == NULL) {
        return SERIES_ROWS_FAULT;
    }
    *row->found = *found;
    cell_init(&found->cell, at->series->kind, at->bucket_us);
    return SERIES_ROWS_OK;
}

enum series_rows_end
series_rows_mark(struct series_rows *rows, const struct series_rows_at *at)
{
    struct series_rows_row *row;
    enum series_rows_end end = row_take(rows, at, &row);

    if (end == SERIES_ROWS_OK) {
        row->is_marked = true;
    }
    return end;
}


/* ---- dictionary ------------------------------------------------------- */

struct series_rows_set *
series_rows_unasked(struct series_rows *rows, struct series_rows_set *at)
{
    struct series_rows_set *set = at == NULL ? rows->sets : at->next;

    while (set != NULL && set->is_asked) {
        set = set->next;
    }
    return set;
}

enum series_rows_end
series_rows_dictionary(struct series_rows *rows,
                       const struct series_rows_at *at, struct meter_str json)
{
    struct series_rows_set *set = set_take(rows, at);

    if (set == NULL) {
        return SERIES_ROWS_FAULT;
    }
    free((char *)(uintptr_t)set->stored.data);
    set->stored = (struct meter_str){NULL, 0};
    return copy(json, &set->stored) ? SERIES_ROWS_OK : SERIES_ROWS_FAULT;
}


/* ---- differences ------------------------------------------------------ */

bool
series_rows_differs(const struct series_rows_row *row)
{
    return !row->is_marked &&
           (row->found != NULL || (row->expected.count > 0 && !row->is_found));
}

static int
order_rows(const void *a, const void *b)
{
    const struct series_rows_row *const *one = a;
    const struct series_rows_row *const *two = b;

    return memcmp((*one)->id, (*two)->id, sizeof((*one)->id));
}

static int
order_sets(const void *a, const void *b)
{
    const struct series_rows_set *const *one = a;
    const struct series_rows_set *const *two = b;

    return memcmp((*one)->id, (*two)->id, sizeof((*one)->id));
}

/* False: no memory. */
static bool
list_make(struct series_rows *rows, size_t count)
{
    free(rows->list);
    rows->list = calloc(count + 1, sizeof(*rows->list));
    return rows->list != NULL;
}

struct series_rows_row *const *
series_rows_differing(struct series_rows *rows, size_t *count)
{
    *count = 0;
    for (struct series_rows_row *row = rows->rows; row != NULL;
         row = row->next) {
        *count += series_rows_differs(row);
    }
    if (!list_make(rows, *count)) {
        return NULL;
    }
    *count = 0;
    for (struct series_rows_row *row = rows->rows; row != NULL;
         row = row->next) {
        if (series_rows_differs(row)) {
            rows->list[(*count)++] = row;
        }
    }
    qsort(rows->list, *count, sizeof(*rows->list), order_rows);
    return (struct series_rows_row *const *)rows->list;
}

static bool
set_differs(const struct series_rows_set *set)
{
    return set->is_asked && set->json.data != NULL &&
           (set->stored.data == NULL ||
            !meter_str_equal(set->json, set->stored));
}

struct series_rows_set *const *
series_rows_sets_differing(struct series_rows *rows, size_t *count)
{
    *count = 0;
    if (!list_make(rows, rows->set_map.count)) {
        return NULL;
    }
    for (struct series_rows_set *set = rows->sets; set != NULL;
         set = set->next) {
        if (set_differs(set)) {
            rows->list[(*count)++] = set;
        }
    }
    qsort(rows->list, *count, sizeof(*rows->list), order_sets);
    return (struct series_rows_set *const *)rows->list;
}
