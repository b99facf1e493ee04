/*
 * billing_recount_compare.c - meters that are not what they should be, see
 * billing_recount.h.
 *
 *   rows, values -> [compare] -> marked -> [differences], [write]
 *
 * Where a value of a row's set is marked, so is the row: until it is mended
 * ingest may count the value once more.
 */

#include "project/billing_recount.h"

#include "base/json_writer.h"

#include <stdlib.h>

#define CHUNK_ROWS 1000 /* of one statement */
#define TEXT_MAX   ((size_t)1 << 20)


/* ---- compare ---------------------------------------------------------- */

static int
key_compare(const void *left, const void *right)
{
    const struct meter_str *a = *(void *const *)left;
    const struct meter_str *b = *(void *const *)right;

    return meter_str_compare(*a, *b);
}

/* Both kinds begin with their key. */
_Static_assert(offsetof(struct billed_row, key) == 0, "sorted by key");
_Static_assert(offsetof(struct billed_value, key) == 0, "sorted by key");

static bool
row_is_marked(const void *item)
{
    return ((const struct billed_row *)item)->is_marked;
}

static bool
value_is_marked(const void *item)
{
    return ((const struct billed_value *)item)->is_marked;
}

/* False: no memory. */
static bool
list_fill(struct billed_list *list, const struct map *map,
          bool (*is_marked)(const void *item))
{
    size_t cursor = 0;
    size_t count = 0;
    void *item;

    while ((item = map_next(map, &cursor)) != NULL) {
        count += is_marked(item);
    }
    free(list->items);
    list->count = 0;
    list->items = calloc(count + 1, sizeof(*list->items));
    if (list->items == NULL) {
        return false;
    }
    cursor = 0;
    while ((item = map_next(map, &cursor)) != NULL) {
        if (is_marked(item)) {
            list->items[list->count++] = item;
        }
    }
    qsort(list->items, list->count, sizeof(*list->items), key_compare);
    return true;
}

/* Which marked rows stay as they are, by the closes that are known now. */
static void
closes_apply(struct billing_recounting *all)
{
    const struct recount_reopen *reopen = all->scope.reopen;
    struct billed_close *close;
    size_t cursor = 0;

    while ((close = map_next(&all->close_map, &cursor)) != NULL) {
        close->left = 0;
    }
    all->reopened = 0;
    for (size_t i = 0; i < all->rows.count; i++) {
        struct billed_row *row = all->rows.items[i];

        close = billed_close_find(all, row->of.meter, row->key.data);
        row->is_left =
            close != NULL &&
            (reopen == NULL || reopen->period_us != close->of.period_us);
        all->reopened += close != NULL && !row->is_left;
        if (row->is_left) {
            close->left += row->is_different;
        }
    }
    for (size_t i = 0; i < all->values.count; i++) {
        const struct billed_row *row =
            ((const struct billed_value *)all->values.items[i])->row;

        if (row->is_left) {
            billed_close_find(all, row->of.meter, row->key.data)->left++;
        }
    }
}

bool
billing_recount_compare(void *recount, size_t *count)
{
    struct billing_recounting *all = recount;
    struct billed_value *value;
    struct billed_row *row;
    size_t cursor = 0;

    *count = 0;
    while ((row = map_next(&all->row_map, &cursor)) != NULL) {
        row->is_different = billed_row_is_expected(row) != row->is_found ||
                            row->found != NULL ||
                            row->found_groups.data != NULL;
        row->is_marked = row->is_different;
        *count += row->is_different;
    }
    cursor = 0;
    while ((value = map_next(&all->value_map, &cursor)) != NULL) {
        value->is_marked =
            billed_value_is_expected(value) != value->is_found ||
            (value->is_found && value->is_folded != value->is_found_folded);
        value->row->is_marked |= value->is_marked;
        *count += value->is_marked;
    }
    if (!list_fill(&all->rows, &all->row_map, row_is_marked) ||
        !list_fill(&all->values, &all->value_map, value_is_marked)) {
        return false;
    }
    closes_apply(all);
    return true;
}

size_t
billing_recount_left(const void *recount, recount_left_cb cb, void *asker)
{
    const struct billing_recounting *all = recount;
    const struct billed_close *close;
    char period[PERIOD_TEXT_SIZE + 1];
    size_t cursor = 0;
    size_t sum = 0;

    while ((close = map_next(&all->close_map, &cursor)) != NULL) {
        sum += close->left;
        if (close->left > 0 && cb != NULL) {
            period_format(close->of.meter->period, close->of.period_us, period);
            cb(asker, close->of.meter->metric, period, close->left);
        }
    }
    return sum;
}


/* ---- differences ------------------------------------------------------ */

/* Texts of one difference, used again for the next. */
struct telling {
    struct buf key;
    struct buf expected;
    struct buf found;
    recount_difference_cb cb;
    void *asker;
};

static void
key_begin(struct telling *telling, struct json_writer *json,
          const struct billed_key *of)
{
    char period[PERIOD_TEXT_SIZE + 1];
    size_t size = period_format(of->meter->period, of->period_us, period);

    buf_reset(&telling->key);
    buf_reset(&telling->expected);
    buf_reset(&telling->found);
    json_writer_init(json, &telling->key);
    json_object_begin(json);
    json_key(json, "metric");
    json_string(json, of->meter->metric);
    json_key(json, "period");
    json_string(json, (struct meter_str){period, size});
    json_key(json, "customer");
    json_string(json, of->customer);
    json_key(json, "groups");
    json_raw(json, of->group.json);
}

/* False: no memory. */
static bool
tell(struct telling *telling, const char *what, const struct billed_row *row)
{
    struct recount_difference one = {
        .origin = {.kind = RULE_METER,
                   .names = {row->of.meter->metric},
                   .name_count = 1,
                   .since_us = row->since_us},
        .what = what,
        .key = buf_str(&telling->key),
        .expected = buf_str(&telling->expected),
        .found = buf_str(&telling->found),
    };

    if (telling->key.failed || telling->expected.failed ||
        telling->found.failed) {
        return false;
    }
    if (one.expected.size == 0) {
        one.expected.data = NULL;
    }
    if (one.found.size == 0) {
        one.found.data = NULL;
    }
    telling->cb(telling->asker, &one);
    return true;
}

/* The columns that differ; all that are not NULL where there is one row. */
static void
put_figures(struct buf *out, const struct figure *figures,
            const struct figure *others)
{
    struct json_writer json;

    json_writer_init(&json, out);
    json_object_begin(&json);
    for (int i = 0; i < FIGURE_COLUMNS; i++) {
        enum figure_column column = (enum figure_column)i;

        if (others != NULL ? !figure_is_equal(column, &figures[i], &others[i])
                           : figures[i].has) {
            figure_json(&json, column, &figures[i]);
        }
    }
    json_object_end(&json);
}

static bool
tell_row(struct telling *telling, const struct billed_row *row)
{
    struct figure expected[FIGURE_COLUMNS];
    bool is_expected = billed_row_is_expected(row);
    struct json_writer json;

    key_begin(telling, &json, &row->of);
    json_object_end(&json);
    figures_of_sums(&row->sums, expected);
    if (row->found == NULL && is_expected && row->is_found) {
        buf_put_str(&telling->expected, row->of.group.json);
        json_writer_init(&json, &telling->found);
        json_string(&json, row->found_groups);
        return tell(telling, "groups", row);
    }
    if (is_expected) {
        put_figures(&telling->expected, expected, row->found);
    }
    if (row->is_found) {
        put_figures(&telling->found, row->found, is_expected ? expected : NULL);
    }
    return tell(telling, "meter", row);
}

static void
put_value(struct buf *out, bool is_folded)
{
    buf_put_text(out, is_folded ? "\"folded\"" : "\"late\"");
}

static bool
tell_value(struct telling *telling, const struct billed_value *value)
{
    struct json_writer json;

    key_begin(telling, &json, &value->row->of);
    json_key(&json, "value");
    json_raw(&json, value->text);
    json_object_end(&json);
    if (billed_value_is_expected(value)) {
        put_value(&telling->expected, value->is_folded);
    }
    if (value->is_found) {
        put_value(&telling->found, value->is_found_folded);
    }
    return tell(telling, "unique", value->row);
}

bool
billing_recount_differences(void *recount, recount_difference_cb cb,
                            void *asker)
{
    struct billing_recounting *all = recount;
    struct telling telling = {.cb = cb, .asker = asker};
    bool is_good = true;

    buf_init(&telling.key, TEXT_MAX);
    buf_init(&telling.expected, TEXT_MAX);
    buf_init(&telling.found, TEXT_MAX);
    for (size_t i = 0; is_good && i < all->rows.count; i++) {
        const struct billed_row *row = all->rows.items[i];

        is_good = !row->is_different || tell_row(&telling, row);
    }
    for (size_t i = 0; is_good && i < all->values.count; i++) {
        is_good = tell_value(&telling, all->values.items[i]);
    }
    buf_fini(&telling.key);
    buf_fini(&telling.expected);
    buf_fini(&telling.found);
    return is_good;
}


/* ---- writes ----------------------------------------------------------- */

/* A stretch of a list; only those that are wanted become rows. */
struct chunk {
    void *const *items;
    size_t count;
    size_t wanted;
    bool (*is_wanted)(const void *item);
    const struct billed_row *(*row_of)(const void *item);
};

static bool
row_is_written(const void *item)
{
    return !((const struct billed_row *)item)->is_left;
}

static bool
row_is_wanted(const void *item)
{
    return row_is_written(item) && billed_row_is_expected(item);
}

static bool
value_is_written(const void *item)
{
    return row_is_written(((const struct billed_value *)item)->row);
}

static bool
value_is_wanted(const void *item)
{
    return value_is_written(item) && billed_value_is_expected(item);
}

static const struct billed_row *
row_of_row(const void *item)
{
    return item;
}

static const struct billed_row *
row_of_value(const void *item)
{
    return ((const struct billed_value *)item)->row;
}

/* What is written, in this order, each in as many statements as chunks. */
static const struct part {
    enum statement statement;
    bool is_values;
    bool is_delete;
    bool (*is_wanted)(const void *item);
} parts[] = {
    {STATEMENT_RECOUNT_METERS_DELETE, false, true, row_is_written},
    {STATEMENT_RECOUNT_METERS_INSERT, false, false, row_is_wanted},
    {STATEMENT_RECOUNT_UNIQUES_DELETE, true, true, value_is_written},
    {STATEMENT_RECOUNT_UNIQUES_INSERT, true, false, value_is_wanted},
};

static void
chunk_init(struct chunk *chunk, const struct billed_list *list, size_t at,
           const struct part *part)
{
    size_t left = list->count - at * CHUNK_ROWS;

    *chunk = (struct chunk){
        .items = list->items + at * CHUNK_ROWS,
        .count = left < CHUNK_ROWS ? left : CHUNK_ROWS,
        .is_wanted = part->is_wanted,
        .row_of = part->is_values ? row_of_value : row_of_row,
    };
    for (size_t i = 0; i < chunk->count; i++) {
        chunk->wanted += chunk->is_wanted(chunk->items[i]);
    }
}

static void
put_column(struct pg_params *out, const struct chunk *chunk, enum pg_type type,
           void (*put)(struct buf *bytes, const struct billed_row *row))
{
    pg_param_array_begin(out, type, chunk->wanted);
    for (size_t i = 0; i < chunk->count; i++) {
        if (chunk->is_wanted(chunk->items[i])) {
            put(&out->bytes, chunk->row_of(chunk->items[i]));
        }
    }
    pg_param_array_end(out);
}

static void
put_metric(struct buf *bytes, const struct billed_row *row)
{
    pg_put_text(bytes, row->of.meter->metric);
}

static void
put_period(struct buf *bytes, const struct billed_row *row)
{
    pg_put_time(bytes, row->of.period_us);
}

static void
put_customer(struct buf *bytes, const struct billed_row *row)
{
    pg_put_text(bytes, row->of.customer);
}

static void
put_group_key(struct buf *bytes, const struct billed_row *row)
{
    pg_put_bytes(bytes, (struct meter_str){(const char *)row->of.group.key,
                                           sizeof(row->of.group.key)});
}

static void
put_groups(struct buf *bytes, const struct billed_row *row)
{
    pg_put_text(bytes, row->of.group.json);
}

static void
put_updated(struct buf *bytes, const struct billed_row *row)
{
    pg_put_time(bytes, row->found_us > row->updated_us ? row->found_us
                                                       : row->updated_us);
}

static void
write_key(struct pg_params *out, const struct chunk *chunk)
{
    put_column(out, chunk, PG_TEXT, put_metric);
    put_column(out, chunk, PG_TIMESTAMPTZ, put_period);
    put_column(out, chunk, PG_TEXT, put_customer);
    put_column(out, chunk, PG_BYTEA, put_group_key);
}

static void
write_figures(struct pg_params *out, const struct chunk *chunk)
{
    struct figure figures[FIGURE_COLUMNS];

    put_column(out, chunk, PG_TEXT, put_groups);
    for (int i = 0; i < FIGURE_COLUMNS; i++) {
        enum figure_column column = (enum figure_column)i;

        pg_param_array_begin(out, figure_type(column), chunk->wanted);
        for (size_t j = 0; j < chunk->count; j++) {
            const struct billed_row *row = chunk->items[j];

            if (chunk->is_wanted(row)) {
                figures_of_sums(&row->sums, figures);
                figure_put(&out->bytes, column, &figures[i]);
            }
        }
        pg_param_array_end(out);
    }
    put_column(out, chunk, PG_TIMESTAMPTZ, put_updated);
}

static void
write_values(struct pg_params *out, const struct chunk *chunk, bool is_delete)
{
    pg_param_array_begin(out, PG_TEXT, chunk->wanted);
    for (size_t i = 0; i < chunk->count; i++) {
        const struct billed_value *value = chunk->items[i];

        if (chunk->is_wanted(value)) {
            pg_put_text(&out->bytes, value->text);
        }
    }
    pg_param_array_end(out);
    if (is_delete) {
        return;
    }
    pg_param_array_begin(out, PG_INT2, chunk->wanted);
    for (size_t i = 0; i < chunk->count; i++) {
        const struct billed_value *value = chunk->items[i];

        if (chunk->is_wanted(value)) {
            pg_put_int2(&out->bytes, value->is_folded ? 1 : 0);
        }
    }
    pg_param_array_end(out);
}

static void
write_reopen(const struct billing_recounting *all, struct pg_params *out)
{
    const struct recount_reopen *reopen = all->scope.reopen;

    pg_param_text(out, all->scope.tenant);
    pg_param_text(out, all->scope.name);
    pg_param_time(out, reopen->period_us);
    pg_param_text(out, reopen->actor);
    pg_param_text(out, reopen->reason);
    pg_param_int8(out, (int64_t)all->reopened);
}

bool
billing_recount_write(void *recount, size_t *at, struct projection_query *out)
{
    struct billing_recounting *all = recount;
    size_t left = *at;

    if (*at == 0) {
        closes_apply(all); /* some may have come since the comparison */
    }
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const struct part *part = &parts[i];
        const struct billed_list *list =
            part->is_values ? &all->values : &all->rows;
        size_t count = (list->count + CHUNK_ROWS - 1) / CHUNK_ROWS;
        struct chunk chunk;

        if (left >= count) {
            left -= count;
            continue;
        }
        (*at)++;
        out->statement = part->statement;
        chunk_init(&chunk, list, left, part);
        pg_param_text(out->params, all->scope.tenant);
        write_key(out->params, &chunk);
        if (part->is_values) {
            write_values(out->params, &chunk, part->is_delete);
        } else if (!part->is_delete) {
            write_figures(out->params, &chunk);
        }
        return true;
    }
    if (left == 0 && all->reopened > 0) {
        (*at)++;
        out->statement = STATEMENT_RECOUNT_REOPEN;
        write_reopen(all, out->params);
        return true;
    }
    return false;
}
