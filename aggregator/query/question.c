/*
 * question.c - what to ask the database about a series, and what it means.
 *
 *   [query_windows: with a time zone]
 *     -> query_mark: how far the series is, which dimension sets, floors
 *     -> query_plain, query_rows, query_lasts or query_tallies of a level
 *
 * api/query.c drives it. The mark is read before the buckets: what comes in
 * between is newer than the mark, and its windows are partial. The floor is
 * read again with the buckets, so that a level which is dropped meanwhile is
 * not taken for an empty one. Nothing here waits: rows in, parameters out.
 */

#include "query/question.h"

#include "base/json_writer.h"
#include "base/reason.h"
#include "meter_decimal.h"
#include "meter_dims.h"
#include "meter_time.h"
#include "pg/column.h"

#include <stdlib.h>

#define DIRT_MAX        50000
#define FILTER_KEYS_MAX 1000 /* else they are looked for */
#define FILTER_SIZE_MAX (96u << 20)

#define ERROR_WINDOWS "more than 10000 windows are asked for"
#define ERROR_SETS    "the dimension sets need too much memory"
#define ERROR_RANGE   "\"from\" must be before \"to\""

_Static_assert(WINDOWS_MAX == 10000, "the sentence says 10000");

const char question_error_mixed[] =
    "a value exists both as text and as another type; "
    "put it in quotes to mean the text";

struct filter_keys {
    uint8_t (*items)[METER_DIGEST_SIZE];
    size_t count;
};

enum groups_result {
    GROUPS_OK,
    GROUPS_MIXED, /* a loose value exists as text and as another type */
    GROUPS_MEMORY
};

/* Rows of query_mark. */
enum mark_kind {
    MARK_NOW,
    MARK_FLUSHED,
    MARK_FLOOR,
    MARK_DIRT,
    MARK_MORE_DIRT,
    MARK_KEY
};
enum mark_column {
    COLUMN_KIND,
    COLUMN_LEVEL,
    COLUMN_AT,
    COLUMN_KEY,
    COLUMN_DIMENSIONS
};


/* ---- levels ---------------------------------------------------------- */

/*
 * The level is the largest one whose buckets fill the windows exactly: 90s
 * is built from 5s, 9d from 1d, 14d from 7d.
 */
static enum meter_level
planner_level(int64_t interval_us)
{
    int level = METER_LEVEL_COUNT - 1;

    CHECK(interval_us > 0 && interval_us % QUERY_STEP_US == 0);
    /* Windows start on buckets of any level that divides the interval. */
    while (interval_us % meter_level_size_us((enum meter_level)level) != 0) {
        level--;
    }
    return (enum meter_level)level;
}

/*
 * An instant at which a window starts: multiples of 7d count from Monday
 * 1970-01-05, all others from 1970-01-01.
 */
static int64_t
planner_origin(int64_t interval_us)
{
    return interval_us % (7 * METER_TIME_DAY) == 0 ? METER_LEVEL_MONDAY_US : 0;
}

static bool
planner_level_holds(enum meter_level level, const int64_t *bounds_us,
                    size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (meter_level_bucket(level, bounds_us[i]) != bounds_us[i]) {
            return false;
        }
    }
    return true;
}

/*
 * The largest level on which all bounds lie. False: some bound lies on none,
 * as those of offsets with odd seconds do.
 */
static bool
planner_level_of(const int64_t *bounds_us, size_t count, enum meter_level *out)
{
    for (int level = METER_LEVEL_COUNT - 1; level >= 0; level--) {
        if (planner_level_holds((enum meter_level)level, bounds_us, count)) {
            *out = (enum meter_level)level;
            return true;
        }
    }
    return false;
}

/* The bucket of the level that holds from is kept. */
static bool
planner_is_kept(const int64_t floors_us[METER_LEVEL_COUNT], int64_t from_us,
                enum meter_level level)
{
    return meter_level_bucket(level, from_us) >= floors_us[level];
}

/* The finest level that is kept for all of [from, ...). False: none is. */
static bool
planner_finest_kept(const int64_t floors_us[METER_LEVEL_COUNT], int64_t from_us,
                    enum meter_level *out)
{
    for (int level = 0; level < METER_LEVEL_COUNT; level++) {
        if (planner_is_kept(floors_us, from_us, (enum meter_level)level)) {
            *out = (enum meter_level)level;
            return true;
        }
    }
    return false;
}


/* ---- windows --------------------------------------------------------- */

/* Start of the window that holds the instant. */
static int64_t
window_start(int64_t interval_us, int64_t ts_us)
{
    int64_t origin_us = planner_origin(interval_us);

    return meter_time_bucket(ts_us - origin_us, interval_us) + origin_us;
}

/* How many windows [from, to) touches; from < to. */
static int64_t
windows_count(int64_t interval_us, int64_t from_us, int64_t to_us)
{
    CHECK(from_us < to_us);
    return (window_start(interval_us, to_us - 1) -
            window_start(interval_us, from_us)) /
               interval_us +
           1;
}

static bool
windows_alloc(size_t count, struct arena *arena, struct windows *out)
{
    out->count = 0;
    out->bounds_us =
        arena_alloc(arena, (count + 1) * sizeof(out->bounds_us[0]));
    out->is_partial =
        arena_zalloc(arena, (count + 1) * sizeof(out->is_partial[0]));
    return out->bounds_us != NULL && out->is_partial != NULL;
}

static bool
windows_make(int64_t interval_us, int64_t from_us, int64_t to_us,
             struct arena *arena, struct windows *out)
{
    int64_t count = windows_count(interval_us, from_us, to_us);
    int64_t start_us = window_start(interval_us, from_us);

    CHECK(count <= WINDOWS_MAX);
    if (!windows_alloc((size_t)count, arena, out)) {
        return false;
    }
    out->count = (size_t)count;
    for (int64_t i = 0; i <= count; i++) {
        out->bounds_us[i] = start_us + i * interval_us;
    }
    return true;
}

/*
 * From bounds that may repeat (a day that a zone skipped) and go beyond to.
 * False: no memory, or they leave no window for the range.
 */
static bool
windows_take(const int64_t *bounds_us, size_t count, int64_t from_us,
             int64_t to_us, struct arena *arena, struct windows *out)
{
    size_t kept = 0;

    if (!windows_alloc(count, arena, out)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && (bounds_us[i] <= out->bounds_us[kept - 1] ||
                         out->bounds_us[kept - 1] >= to_us)) {
            continue;
        }
        if (kept == 1 && bounds_us[i] <= from_us) {
            kept = 0; /* that window ends before the range */
        }
        out->bounds_us[kept++] = bounds_us[i];
    }
    if (kept < 2 || out->bounds_us[0] > from_us ||
        out->bounds_us[kept - 1] < to_us) {
        return false;
    }
    out->count = kept - 1;
    return true;
}

/* The first window that ends after the instant. */
static size_t
window_after(const struct windows *windows, int64_t ts_us)
{
    size_t low = 0;
    size_t high = windows->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (windows->bounds_us[middle + 1] > ts_us) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/*
 * Partial is what is not wholly inside [from, to), ends after the mark, or
 * holds a bucket of dirt.
 */
static void
windows_judge(struct windows *windows, int64_t from_us, int64_t to_us,
              int64_t mark_us, const struct window_dirt *dirt,
              size_t dirt_count)
{
    for (size_t i = 0; i < windows->count; i++) {
        int64_t end_us = windows->bounds_us[i + 1];

        windows->is_partial[i] = windows->bounds_us[i] < from_us ||
                                 end_us > to_us || end_us > mark_us;
    }
    for (size_t d = 0; d < dirt_count; d++) {
        int64_t start_us = dirt[d].bucket_us;
        int64_t end_us = start_us + meter_level_size_us(dirt[d].level);

        for (size_t i = window_after(windows, start_us);
             i < windows->count && windows->bounds_us[i] < end_us; i++) {
            windows->is_partial[i] = true;
        }
    }
}


/* ---- filters --------------------------------------------------------- */

/* {"name":[values]}, as canonical JSON. False: no memory. */
static bool
filters_json(const struct query_filters *filters, struct arena *arena,
             struct buf *out)
{
    struct json_writer json;

    json_writer_init(&json, out);
    json_object_begin(&json);
    for (size_t f = 0; f < filters->count; f++) {
        const struct query_filter *filter = &filters->items[f];

        json_key_str(&json, filter->name);
        json_array_begin(&json);
        for (size_t i = 0; i < filter->count; i++) {
            struct meter_str text;

            if (!json_canonical(&filter->values[i], arena, &text)) {
                return false;
            }
            json_raw(&json, text);
        }
        json_array_end(&json);
    }
    json_object_end(&json);
    return !out->failed;
}

static bool
filter_dim(const struct query_filter *filter, const struct json_value *value,
           struct arena *arena, struct meter_dim *out)
{
    char number[METER_NUMBER_TEXT_SIZE + 1];
    struct meter_str canonical = {number, 0};

    *out = (struct meter_dim){filter->name, METER_DIM_NULL, METER_STR("")};
    switch (value->kind) {
    case JSON_STRING:
        out->kind = METER_DIM_STRING;
        out->value = value->text;
        return true;
    case JSON_NUMBER:
        out->kind = METER_DIM_NUMBER;
        return meter_number_canonical(value->text, number, &canonical.size) &&
               arena_copy(arena, canonical, &out->value);
    case JSON_TRUE:
    case JSON_FALSE:
        out->kind = METER_DIM_BOOL;
        out->value =
            value->kind == JSON_TRUE ? METER_STR("true") : METER_STR("false");
        return true;
    default: return value->kind == JSON_NULL;
    }
}

/*
 * Where every dimension has its filter: the keys of all combinations. False:
 * a dimension has none, there are too many, or no memory; keys have to be
 * looked for.
 */
static bool
filters_keys(const struct query_filters *filters, const struct series *series,
             struct arena *arena, struct filter_keys *out)
{
    struct meter_dim dims[METER_DIMENSION_COUNT_MAX];
    size_t total = 1;

    if (filters->count < series->dimension_count) {
        return false;
    }
    for (size_t f = 0; f < filters->count; f++) {
        total *= filters->items[f].count;
        if (total > FILTER_KEYS_MAX) {
            return false;
        }
    }
    out->items = arena_alloc(arena, total * sizeof(out->items[0]));
    if (out->items == NULL) {
        return false;
    }
    for (size_t i = 0; i < total; i++) {
        size_t rest = i;

        for (size_t f = 0; f < filters->count; f++) {
            const struct query_filter *filter = &filters->items[f];

            if (!filter_dim(filter, &filter->values[rest % filter->count],
                            arena, &dims[f])) {
                return false;
            }
            rest /= filter->count;
        }
        meter_dims_key(dims, filters->count, out->items[i]);
    }
    out->count = total;
    return true;
}


/* ---- groups ---------------------------------------------------------- */

static bool
groups_init(struct groups *groups, const struct query *query, size_t key_count,
            struct arena *arena)
{
    *groups = (struct groups){.query = query, .arena = arena};
    for (size_t i = 0; i < METER_DIMENSION_COUNT_MAX; i++) {
        groups->readings[i] = -1;
    }
    groups->keys = arena_alloc(arena, (key_count + 1) * sizeof(*groups->keys));
    groups->json = arena_alloc(arena, (key_count + 1) * sizeof(*groups->json));
    return groups->keys != NULL && groups->json != NULL;
}

/* False: another set had another reading of the same text. */
static bool
group_reading_note(struct groups *groups, size_t f,
                   const struct json_value *held)
{
    const struct query_filter *filter = &groups->query->filters.items[f];
    int reading = 0;

    if (!filter->is_loose || filter->count < 2) {
        return true;
    }
    /* Readings of one text differ in their kind. */
    while ((size_t)reading + 1 < filter->count &&
           filter->values[reading].kind != held->kind) {
        reading++;
    }
    if (groups->readings[f] < 0) {
        groups->readings[f] = reading;
    }
    return groups->readings[f] == reading;
}

/* What group_by leaves, as canonical JSON. */
static bool
group_write(const struct groups *groups, const struct json_value *object,
            struct arena *scratch, struct buf *out)
{
    const struct series *series = groups->query->series;
    struct json_writer json;

    json_writer_init(&json, out);
    json_object_begin(&json);
    for (size_t d = 0; d < series->dimension_count; d++) {
        const struct json_value *held;
        struct meter_str text = METER_STR("null");

        if (!groups->query->is_grouped[d]) {
            continue;
        }
        held = json_member_find(object, series->dimensions[d].name);
        if (held != NULL && !json_canonical(held, scratch, &text)) {
            return false;
        }
        json_key_str(&json, series->dimensions[d].name);
        json_raw(&json, text);
    }
    json_object_end(&json);
    return !out->failed;
}

static enum groups_result
group_read(struct groups *groups, struct meter_str dimensions,
           struct arena *scratch, struct buf *out)
{
    static const struct json_limits limits = {
        .depth_max = 1,
        .key_count_max = METER_DIMENSION_COUNT_MAX,
        .name_size_max = METER_ATTRIBUTE_NAME_SIZE_MAX,
        .string_size_max = METER_DIMENSION_SIZE_MAX,
    };
    static const struct json_value none = {.kind = JSON_NULL};
    const struct query_filters *filters = &groups->query->filters;
    struct json_value object;
    struct json_error error;
    size_t used;

    if (!json_read(dimensions, &limits, scratch, &object, &used, &error) ||
        object.kind != JSON_OBJECT) {
        return GROUPS_MEMORY;
    }
    for (size_t f = 0; f < filters->count; f++) {
        const struct json_value *held =
            json_member_find(&object, filters->items[f].name);

        if (!group_reading_note(groups, f, held == NULL ? &none : held)) {
            return GROUPS_MIXED;
        }
    }
    return group_write(groups, &object, scratch, out) ? GROUPS_OK
                                                      : GROUPS_MEMORY;
}

static enum groups_result
groups_add(struct groups *groups, struct meter_str key,
           struct meter_str dimensions)
{
    struct group_key *one = &groups->keys[groups->key_count];
    enum groups_result result;
    struct arena scratch;
    struct buf text;

    CHECK(key.size == METER_DIGEST_SIZE);
    memcpy(one->key, key.data, METER_DIGEST_SIZE);
    arena_init(&scratch, 4096, 1u << 20);
    buf_init(&text, 1u << 20);
    result = group_read(groups, dimensions, &scratch, &text);
    if (result == GROUPS_OK &&
        !arena_copy(groups->arena, buf_str(&text), &one->json)) {
        result = GROUPS_MEMORY;
    }
    buf_fini(&text);
    arena_fini(&scratch);
    groups->key_count += result == GROUPS_OK;
    return result;
}

static int
group_key_compare(const void *a, const void *b)
{
    const struct group_key *one = a;
    const struct group_key *other = b;
    int order = meter_str_compare(one->json, other->json);

    return order != 0 ? order : memcmp(one->key, other->key, METER_DIGEST_SIZE);
}

static void
groups_sort(struct groups *groups)
{
    qsort(groups->keys, groups->key_count, sizeof(groups->keys[0]),
          group_key_compare);
    for (size_t i = 0; i < groups->key_count; i++) {
        struct group_key *key = &groups->keys[i];

        if (i == 0 || !meter_str_equal(key->json, key[-1].json)) {
            groups->json[groups->count++] = key->json;
        }
        key->place = (int32_t)groups->count - 1;
    }
    if (groups->count == 0 && groups->query->grouped_count == 0) {
        groups->json[groups->count++] = METER_STR("{}");
    }
}


/* ---- windows of a time zone ------------------------------------------ */

static bool
question_windows_ask(struct question *question, struct pg_params *params,
                     enum statement *statement)
{
    const struct query *query = &question->query;

    *statement = STATEMENT_QUERY_WINDOWS;
    pg_param_text(params, query->zone);
    pg_param_time(params, query->from_us);
    if (query->has_to) {
        pg_param_time(params, query->to_us);
    } else {
        pg_param_null(params);
    }
    pg_param_int4(params, (int32_t)(query->interval_us / METER_TIME_DAY));
    pg_param_date(params, meter_time_day(planner_origin(query->interval_us)));
    pg_param_int8(params, WINDOWS_MAX + 4);
    return true;
}

/* Columns: at, until. */
static unsigned
question_windows_take(struct question *question, const void *rows,
                      const char **error)
{
    struct query *query = &question->query;
    struct windows *windows = &question->windows;
    int count = pg_row_count(rows);
    int64_t *bounds_us =
        arena_alloc(question->arena, ((size_t)count + 1) * sizeof(*bounds_us));

    if (count == 0 || pg_is_null(rows, 0, 0)) {
        *error = "\"tz\" is no time zone that the database knows";
        return 400;
    }
    query->to_us = pg_get_time(rows, 0, 1);
    if (query->from_us >= query->to_us) {
        *error = ERROR_RANGE;
        return 400;
    }
    for (int row = 0; bounds_us != NULL && row < count; row++) {
        bounds_us[row] = pg_get_time(rows, row, 0);
    }
    if (bounds_us == NULL ||
        !windows_take(bounds_us, (size_t)count, query->from_us, query->to_us,
                      question->arena, windows) ||
        windows->count > WINDOWS_MAX) {
        *error = ERROR_WINDOWS;
        return 400;
    }
    if (!planner_level_of(windows->bounds_us, windows->count + 1,
                          &question->level)) {
        *error = "midnights of this time zone do not lie on multiples of 5s "
                 "in this range";
        return 422;
    }
    question->step = QUESTION_MARK;
    return 0;
}


/* ---- the mark -------------------------------------------------------- */

static bool
question_mark_ask(struct question *question, struct pg_params *params,
                  enum statement *statement)
{
    static const struct pg_column digest[] = {
        {.field = PG_FIELD_DIGEST, .size = METER_DIGEST_SIZE},
    };
    const struct query *query = &question->query;
    struct filter_keys keys;
    struct buf where;

    *statement = STATEMENT_QUERY_MARK;
    buf_init(&where, FILTER_SIZE_MAX);
    if (!filters_json(&query->filters, question->arena, &where)) {
        buf_fini(&where);
        return false;
    }
    pg_param_text(params, question->tenant);
    pg_param_text(params, query->series->name);
    pg_param_int8(params, query->series->version);
    pg_param_text(params, buf_str(&where));
    buf_fini(&where);
    if (filters_keys(&query->filters, query->series, question->arena, &keys)) {
        pg_param_rows(params, digest, 1, keys.items, keys.count,
                      METER_DIGEST_SIZE);
    } else {
        pg_param_null(params);
    }
    pg_param_int8(params, GROUP_KEYS_MAX + 1);
    pg_param_int4(params, question->level);
    pg_param_time(params, meter_level_bucket(question->level, query->from_us));
    if (query->has_to) {
        pg_param_time(params, query->to_us);
    } else {
        pg_param_null(params);
    }
    pg_param_int8(params, DIRT_MAX);
    return true;
}

/* How many rows are of a kind. */
static size_t
mark_count(const void *result, enum mark_kind kind)
{
    size_t count = 0;

    for (int row = 0; row < pg_row_count(result); row++) {
        count += pg_get_int4(result, row, COLUMN_KIND) == (int32_t)kind;
    }
    return count;
}

/* Everything but the keys. */
static void
mark_row(struct question *question, const void *result, int row)
{
    struct query *query = &question->query;
    int32_t level = 0;

    if (!pg_is_null(result, row, COLUMN_LEVEL)) {
        level = pg_get_int4(result, row, COLUMN_LEVEL);
        CHECK(level >= 0 && level < METER_LEVEL_COUNT);
    }
    switch ((enum mark_kind)pg_get_int4(result, row, COLUMN_KIND)) {
    case MARK_NOW:
        /* With a time zone, windows were made up to a now before. */
        if (!query->has_to && query->zone.data == NULL) {
            query->to_us = pg_get_time(result, row, COLUMN_AT);
        }
        break;
    case MARK_FLUSHED:
        question->mark_us = pg_get_time(result, row, COLUMN_AT);
        break;
    case MARK_FLOOR:
        question->floors_us[level] = pg_get_time(result, row, COLUMN_AT);
        break;
    case MARK_DIRT:
        question->dirt[question->dirt_count++] = (struct window_dirt){
            (enum meter_level)level,
            pg_get_time(result, row, COLUMN_AT),
        };
        break;
    case MARK_MORE_DIRT: question->is_dirt_cut = true; break;
    case MARK_KEY: break;
    }
}

/* 0, or the status of *error. */
static unsigned
mark_groups(struct question *question, const void *rows, const char **error)
{
    struct groups *groups = &question->groups;
    size_t count = mark_count(rows, MARK_KEY);
    enum groups_result added = GROUPS_OK;

    if (count > GROUP_KEYS_MAX) {
        *error = "more than 10000 dimension sets fit; ask for fewer by "
                 "\"where\"";
        return 422;
    }
    if (!groups_init(groups, &question->query, count, question->arena)) {
        added = GROUPS_MEMORY;
    }
    for (int row = 0; row < pg_row_count(rows) && added == GROUPS_OK; row++) {
        if (pg_get_int4(rows, row, COLUMN_KIND) == MARK_KEY) {
            added = groups_add(groups, pg_get_bytes(rows, row, COLUMN_KEY),
                               pg_get_bytes(rows, row, COLUMN_DIMENSIONS));
        }
    }
    switch (added) {
    case GROUPS_OK: break;
    case GROUPS_MIXED: *error = question_error_mixed; return 400;
    case GROUPS_MEMORY: *error = ERROR_SETS; return 422;
    }
    groups_sort(groups);
    return 0;
}

_Static_assert(GROUP_KEYS_MAX == 10000, "the sentence says 10000");

/* NULL, or the sentence of a 422: the level is not kept so far back. */
static const char *
question_floor_check(const struct question *question)
{
    int64_t from_us = question->query.from_us;
    char since[METER_TIME_TEXT_SIZE + 1];
    enum meter_level finest;

    if (planner_is_kept(question->floors_us, from_us, question->level)) {
        return NULL;
    }
    if (planner_finest_kept(question->floors_us, from_us, &finest)) {
        meter_time_format(question->floors_us[question->level], since);
        return reason_format(question->arena,
                             "level %s is kept from %s on; the finest level "
                             "that is kept for this range is %s",
                             meter_level_name(question->level), since,
                             meter_level_name(finest));
    }
    meter_time_format(question->floors_us[METER_LEVEL_COUNT - 1], since);
    return reason_format(question->arena,
                         "no level is kept for this range; the longest kept "
                         "is %s, from %s on",
                         meter_level_name(METER_LEVEL_COUNT - 1), since);
}

/* Windows up to now. 0, or the status of *error. */
static unsigned
mark_windows(struct question *question, const char **error)
{
    struct query *query = &question->query;

    if (query->zone.data != NULL) {
        return 0;
    }
    if (query->from_us >= query->to_us) {
        *error = ERROR_RANGE;
        return 400;
    }
    if (windows_count(query->interval_us, query->from_us, query->to_us) >
        WINDOWS_MAX) {
        *error = ERROR_WINDOWS;
        return 400;
    }
    if (!windows_make(query->interval_us, query->from_us, query->to_us,
                      question->arena, &question->windows)) {
        *error = "the windows need too much memory";
        return 422;
    }
    return 0;
}

static unsigned
question_mark_take(struct question *question, const void *rows,
                   const char **error)
{
    static struct answer_cell no_cells[1];
    const struct query *query = &question->query;
    struct windows *windows = &question->windows;
    unsigned status;

    question->dirt =
        arena_alloc(question->arena, (mark_count(rows, MARK_DIRT) + 1) *
                                         sizeof(question->dirt[0]));
    if (question->dirt == NULL) {
        return 503;
    }
    for (int row = 0; row < pg_row_count(rows); row++) {
        mark_row(question, rows, row);
    }
    status = mark_windows(question, error);
    if (status == 0) {
        *error = question_floor_check(question);
        status = *error == NULL ? mark_groups(question, rows, error) : 422;
    }
    if (status != 0) {
        return status;
    }
    windows_judge(windows, query->from_us, query->to_us, question->mark_us,
                  question->dirt, question->dirt_count);
    for (size_t i = 0; question->is_dirt_cut && i < windows->count; i++) {
        windows->is_partial[i] = true;
    }
    question->cells = (struct cells){.items = no_cells};
    question->step =
        question->groups.key_count == 0 ? QUESTION_DONE : QUESTION_CELLS;
    return 0;
}


/* ---- the buckets ----------------------------------------------------- */

static bool
question_cells_ask(struct question *question, struct pg_params *params,
                   enum statement *statement)
{
    *statement = cells_ask(question, params);
    return true;
}

static unsigned
question_cells_take(struct question *question, const void *rows,
                    const char **error)
{
    unsigned status = cells_take(question, rows, error);

    if (status != 0) {
        return status;
    }
    question->floors_us[question->level] = question->cells.floor_us;
    *error = question_floor_check(question);
    question->step = QUESTION_DONE;
    return *error == NULL ? 0 : 422;
}


/* ---- from step to step ----------------------------------------------- */

static const struct {
    bool (*ask)(struct question *question, struct pg_params *params,
                enum statement *statement);
    unsigned (*take)(struct question *question, const void *rows,
                     const char **error);
} question_steps[] = {
    [QUESTION_WINDOWS] = {question_windows_ask, question_windows_take},
    [QUESTION_MARK] = {question_mark_ask, question_mark_take},
    [QUESTION_CELLS] = {question_cells_ask, question_cells_take},
};

/* With a zone days may be shorter: the rows say how many windows there are. */
const char *
question_start(struct question *question)
{
    const struct query *query = &question->query;

    if (query->has_to && windows_count(query->interval_us, query->from_us,
                                       query->to_us) > WINDOWS_MAX) {
        return ERROR_WINDOWS;
    }
    if (query->zone.data != NULL) {
        question->step = QUESTION_WINDOWS;
        return NULL;
    }
    question->step = QUESTION_MARK;
    question->level = planner_level(query->interval_us);
    return NULL;
}

bool
question_ask(struct question *question, struct pg_params *params,
             enum statement *statement)
{
    return question_steps[question->step].ask(question, params, statement);
}

unsigned
question_take(struct question *question, const void *rows, const char **error)
{
    return question_steps[question->step].take(question, rows, error);
}
