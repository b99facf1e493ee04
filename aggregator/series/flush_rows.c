/*
 * flush_rows.c - the cells of a flush as parameters of statements.
 *
 *   [gather: up to FLUSH_ROWS_MAX rows] -> [put: column by column]
 *
 * Cells come by key and bucket, so those of one bucket of a level above lie
 * side by side.
 */

#include "series/flush_rows.h"

static const enum statement upserts[METER_LEVEL_COUNT] = {
    STATEMENT_SERIES_UPSERT_5S, STATEMENT_SERIES_UPSERT_1M,
    STATEMENT_SERIES_UPSERT_1H, STATEMENT_SERIES_UPSERT_1D,
    STATEMENT_SERIES_UPSERT_7D,
};

void
flush_rows_init(struct flush_rows *rows, struct buffer_cell *const *cells,
                size_t count, const struct flush_floors *floors,
                int64_t marked_us)
{
    rows->cells = cells;
    rows->count = count;
    rows->floors = *floors;
    rows->marked_us = marked_us;
    rows->stage = FLUSH_STAGE_KEYS;
    rows->level = METER_LEVEL_5S;
    rows->at = 0;
    rows->piece_at = 0;
    rows->row_max = FLUSH_ROWS_MAX;
    rows->row_count = 0;
    rows->merged_count = 0;
    rows->written = 0;
    rows->expired = 0;
    rows->marks = 0;
    memset(rows->of_level, 0, sizeof(rows->of_level));
    for (size_t i = 0; i < count; i++) {
        enum meter_level level =
            flush_floors_level(floors, cells[i]->cell.bucket_us);

        rows->of_level[level]++;
        if (level == METER_LEVEL_COUNT) {
            rows->expired += cells[i]->cell.count;
        }
    }
}

static void
gathered_drop(struct flush_rows *rows)
{
    for (size_t i = 0; i < rows->merged_count; i++) {
        cell_fini(&rows->merged[i]);
    }
    rows->merged_count = 0;
    rows->row_count = 0;
}

void
flush_rows_fini(struct flush_rows *rows)
{
    gathered_drop(rows);
}


/* ---- gathering -------------------------------------------------------- */

static bool
is_of_level(const struct flush_rows *rows, const struct buffer_cell *cell)
{
    return flush_floors_level(&rows->floors, cell->cell.bucket_us) ==
           rows->level;
}

/* The row that was gathered last, if it is this one. */
static struct flush_row *
same_row(struct flush_rows *rows, const struct buffer_key *key,
         int64_t bucket_us)
{
    struct flush_row *last =
        rows->row_count == 0 ? NULL : &rows->rows[rows->row_count - 1];

    return last != NULL && last->key == key && last->bucket_us == bucket_us
               ? last
               : NULL;
}

static void
gather_keys(struct flush_rows *rows)
{
    for (; rows->at < rows->count; rows->at++) {
        const struct buffer_cell *cell = rows->cells[rows->at];

        if (cell->key->is_stored || same_row(rows, cell->key, 0) != NULL) {
            continue;
        }
        if (rows->row_count == rows->row_max) {
            break;
        }
        rows->rows[rows->row_count++] =
            (struct flush_row){cell->key, NULL, 0, rows->at};
    }
}

/* Cells of one bucket of a level above 5s add up. False: no memory. */
static bool
gather_merged(struct flush_rows *rows, const struct buffer_cell *cell,
              int64_t bucket_us)
{
    struct cell *merged;

    if (same_row(rows, cell->key, bucket_us) == NULL) {
        merged = &rows->merged[rows->merged_count++];
        cell_init(merged, cell->cell.kind, bucket_us);
        rows->rows[rows->row_count++] =
            (struct flush_row){cell->key, merged, bucket_us, rows->at};
    }
    merged = &rows->merged[rows->merged_count - 1];
    return cell_merge(merged, &cell->cell);
}

static bool
gather_cells(struct flush_rows *rows)
{
    for (; rows->at < rows->count; rows->at++) {
        const struct buffer_cell *cell = rows->cells[rows->at];
        int64_t bucket_us =
            meter_level_bucket(rows->level, cell->cell.bucket_us);

        if (!is_of_level(rows, cell)) {
            continue;
        }
        if (rows->row_count == rows->row_max &&
            same_row(rows, cell->key, bucket_us) == NULL) {
            break;
        }
        if (rows->level == METER_LEVEL_5S) {
            rows->rows[rows->row_count++] =
                (struct flush_row){cell->key, &cell->cell, bucket_us, rows->at};
        } else if (!gather_merged(rows, cell, bucket_us)) {
            return false;
        }
    }
    return true;
}

static void
gather_marks(struct flush_rows *rows)
{
    for (; rows->at < rows->count; rows->at++) {
        const struct buffer_cell *cell = rows->cells[rows->at];
        int64_t bucket_us =
            meter_level_bucket(rows->level + 1, cell->cell.bucket_us);

        if (!is_of_level(rows, cell) ||
            same_row(rows, cell->key, bucket_us) != NULL) {
            continue;
        }
        if (rows->row_count == rows->row_max) {
            break;
        }
        rows->rows[rows->row_count++] =
            (struct flush_row){cell->key, NULL, bucket_us, rows->at};
    }
}


/* ---- putting ---------------------------------------------------------- */

/* Columns that name a bucket, before the others of their statements. */
static void
put_keys(const struct flush_rows *rows, bool with_bucket,
         struct pg_params *params)
{
    size_t count = rows->row_count;
    const struct flush_row *row = rows->rows;

    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&params->bytes, row[i].key->tenant);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&params->bytes, row[i].key->series);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT8, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_int8(&params->bytes, row[i].key->version);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++) {
        const struct dimension_set *set = &row[i].key->set;

        pg_put_bytes(&params->bytes, (struct meter_str){(const char *)set->key,
                                                        sizeof(set->key)});
    }
    pg_param_array_end(params);
    if (!with_bucket) {
        return;
    }
    pg_param_array_begin(params, PG_TIMESTAMPTZ, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_time(&params->bytes, row[i].bucket_us);
    }
    pg_param_array_end(params);
}

static void
put_dimensions(const struct flush_rows *rows, struct pg_params *params)
{
    pg_param_array_begin(params, PG_TEXT, rows->row_count);
    for (size_t i = 0; i < rows->row_count; i++) {
        pg_put_text(&params->bytes, rows->rows[i].key->set.json);
    }
    pg_param_array_end(params);
}

static void
put_cells(const struct flush_rows *rows, struct pg_params *params)
{
    for (int column = 0; column < CELL_COLUMNS; column++) {
        pg_param_array_begin(params, cell_column_type(column), rows->row_count);
        for (size_t i = 0; i < rows->row_count; i++) {
            cell_put(rows->rows[i].cell, column, &params->bytes);
        }
        pg_param_array_end(params);
    }
}

static void
put_marked(const struct flush_rows *rows, struct pg_params *params)
{
    pg_param_array_begin(params, PG_TIMESTAMPTZ, rows->row_count);
    for (size_t i = 0; i < rows->row_count; i++) {
        pg_put_time(&params->bytes, rows->marked_us);
    }
    pg_param_array_end(params);
}

static void
put_statement(struct flush_rows *rows, enum statement *statement,
              struct pg_params *params)
{
    switch (rows->stage) {
    case FLUSH_STAGE_KEYS:
        *statement = STATEMENT_SERIES_KEY_ENSURE;
        put_keys(rows, false, params);
        put_dimensions(rows, params);
        return;
    case FLUSH_STAGE_CELLS:
        *statement = upserts[rows->level];
        put_keys(rows, true, params);
        put_cells(rows, params);
        rows->written += (int64_t)rows->row_count;
        return;
    case FLUSH_STAGE_MARKS:
        *statement = STATEMENT_SERIES_DIRTY_MARK;
        pg_param_int4(params, (int32_t)rows->level + 1);
        put_keys(rows, true, params);
        put_marked(rows, params);
        rows->marks += (int64_t)rows->row_count;
        return;
    case FLUSH_STAGE_END: break;
    }
    CHECK(false);
}

/* The last level has nothing above it that could be marked. */
static void
stage_next(struct flush_rows *rows)
{
    enum meter_level last = rows->stage == FLUSH_STAGE_KEYS    ? METER_LEVEL_5S
                            : rows->stage == FLUSH_STAGE_CELLS ? METER_LEVEL_7D
                                                               : METER_LEVEL_1D;

    rows->at = 0;
    if (rows->level < last) {
        rows->level++;
        return;
    }
    rows->level = METER_LEVEL_5S;
    rows->stage++;
}

static bool
gather(struct flush_rows *rows)
{
    gathered_drop(rows);
    rows->piece_at = rows->at;
    if (rows->stage != FLUSH_STAGE_KEYS && rows->of_level[rows->level] == 0) {
        return true;
    }
    switch (rows->stage) {
    case FLUSH_STAGE_KEYS: gather_keys(rows); return true;
    case FLUSH_STAGE_CELLS: return gather_cells(rows);
    case FLUSH_STAGE_MARKS: gather_marks(rows); return true;
    case FLUSH_STAGE_END: break;
    }
    return true;
}

enum flush_rows_result
flush_rows_next(struct flush_rows *rows, enum statement *statement,
                struct pg_params *params)
{
    for (; rows->stage != FLUSH_STAGE_END; stage_next(rows)) {
        if (!gather(rows)) {
            return FLUSH_ROWS_NO_MEMORY;
        }
        if (rows->row_count > 0) {
            put_statement(rows, statement, params);
            return params->bytes.failed ? FLUSH_ROWS_NO_MEMORY
                                        : FLUSH_ROWS_NEXT;
        }
    }
    return FLUSH_ROWS_END;
}

void
flush_rows_take_back(struct flush_rows *rows)
{
    int64_t count = (int64_t)rows->row_count;

    rows->written -= rows->stage == FLUSH_STAGE_CELLS ? count : 0;
    rows->marks -= rows->stage == FLUSH_STAGE_MARKS ? count : 0;
}

void
flush_rows_again(struct flush_rows *rows, size_t row_max)
{
    CHECK(row_max > 0 && row_max <= FLUSH_ROWS_MAX);
    flush_rows_take_back(rows);
    rows->at = rows->piece_at;
    rows->row_max = row_max;
}
