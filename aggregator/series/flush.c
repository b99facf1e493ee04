/*
 * flush.c - one cut of a buffer into the tables, once.
 *
 *   [floors, the first time] -> partitions -> BEGIN; writer FOR SHARE; upto;
 *   floors FOR SHARE -> keys, cells, marks, some thousand rows each -> COMMIT
 *
 *   upto is not `from`: ROLLBACK -> [look] which one it is
 *
 * One piece is encoded while the server works on the one before. Floors that
 * were raised since the partitions were made start it over.
 */

#include "series/flush.h"

#include "base/clock.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "base/metrics.h"
#include "meter_time.h"

#include <stdlib.h>

#define DAYS_MAX     64 /* partitions asked for at a time */
#define EPOCH_UNSEEN (-1)
#define PIECES_AHEAD 2
#define DATA_TRIES   3

/* From where on the levels are kept; none is less than the one above. */
struct flush_floors {
    int64_t from_us[METER_LEVEL_COUNT];
};

/* Rows of one statement: some milliseconds of the loop. */
#define FLUSH_ROWS_MAX 2000

struct flush_row {
    const struct buffer_key *key;
    const struct cell *cell;
    int64_t bucket_us;
    size_t first; /* its first cell */
};

enum flush_stage {
    FLUSH_STAGE_KEYS,
    FLUSH_STAGE_CELLS,
    FLUSH_STAGE_MARKS,
    FLUSH_STAGE_END
};

struct flush_rows {
    struct buffer_cell *const *cells;
    size_t count;
    struct flush_floors floors;
    int64_t marked_us;
    size_t of_level[METER_LEVEL_COUNT + 1]; /* cells; the last: expired */

    enum flush_stage stage;
    enum meter_level level;
    size_t at;       /* next cell */
    size_t piece_at; /* first cell that the piece looked at */
    size_t row_max;  /* of a piece */
    struct flush_row rows[FLUSH_ROWS_MAX];
    size_t row_count;
    struct cell merged[FLUSH_ROWS_MAX]; /* of levels above 5s */
    size_t merged_count;

    int64_t written; /* rows of levels */
    int64_t expired; /* samples that no level has */
    int64_t marks;
};

enum flush_rows_result {
    FLUSH_ROWS_NEXT, /* statement and params are set */
    FLUSH_ROWS_END,
    FLUSH_ROWS_NO_MEMORY
};

/* More than that is no matter of single rows: then nothing is left out. */
#define FLUSH_ASIDES_MAX 100

struct flush_aside {
    size_t cell; /* its first */
    enum flush_stage stage;
    enum meter_level level;
    char sqlstate[6];
};

struct flush_asides {
    struct flush_aside list[FLUSH_ASIDES_MAX];
    size_t count;
};

enum flush_state {
    FLUSH_IDLE,
    FLUSH_FLOORS,
    FLUSH_PARTITIONS,
    FLUSH_OPEN,
    FLUSH_WRITE,
    FLUSH_COMMIT,
    FLUSH_ROLLBACK,
    FLUSH_LOOK
};

struct flush {
    struct pg_conn *conn;
    struct partition *partition;
    flush_cb cb;
    void *owner;
    struct flush_task task;
    uint64_t started_us;

    enum flush_state state;
    size_t answers_due;
    bool is_partition_due;
    bool is_closing;
    bool is_failed; /* this try; then ROLLBACK */
    bool is_lost;   /* with its connection: nothing to roll back */
    bool is_astray; /* upto was not `from` */
    bool is_moved;  /* the floors are others than thought */
    bool is_refresh_due;
    int64_t epoch_seen;
    unsigned data_failures; /* in a row: tries that met bad data */
    bool is_piece_bad;      /* of a careful flush: refused, */
    char piece_sqlstate[6]; /* with this code */
    bool is_last_piece;     /* there was none */
    struct flush_asides asides;

    bool has_floors;
    struct flush_floors floors;
    struct pg_params params;
    struct flush_end end;
    struct flush_rows rows;
};

static void flush_write(struct flush *flush);
static void flush_write_committed(struct flush *flush);
static void flush_step_done(struct flush *flush);


/* ---- which level -------------------------------------------------------- */

static enum meter_level
flush_floors_level(const struct flush_floors *floors, int64_t bucket_us)
{
    enum meter_level level = METER_LEVEL_1M;

    if (bucket_us >= floors->from_us[METER_LEVEL_5S]) {
        return METER_LEVEL_5S;
    }
    while (level < METER_LEVEL_COUNT &&
           meter_level_bucket(level, bucket_us) < floors->from_us[level]) {
        level++;
    }
    return level;
}

static bool
flush_floors_read(const void *result, struct flush_floors *out)
{
    size_t found = 0;

    for (int row = 0; row < pg_row_count(result); row++) {
        struct meter_str name = pg_get_bytes(result, row, 0);

        for (int level = 0; level < METER_LEVEL_COUNT; level++) {
            const char *parent =
                partition_parent_name(PARTITION_SERIES + level);

            if (meter_str_equal(name,
                                (struct meter_str){parent, strlen(parent)})) {
                out->from_us[level] =
                    (int64_t)pg_get_date(result, row, 1) * METER_TIME_DAY;
                found++;
            }
        }
    }
    return found == METER_LEVEL_COUNT;
}


/* ---- cells as statements ------------------------------------------------ */

static const enum statement upserts[METER_LEVEL_COUNT] = {
    STATEMENT_SERIES_UPSERT_5S, STATEMENT_SERIES_UPSERT_1M,
    STATEMENT_SERIES_UPSERT_1H, STATEMENT_SERIES_UPSERT_1D,
    STATEMENT_SERIES_UPSERT_7D,
};

static void
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

static void
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

static enum flush_rows_result
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

static void
flush_rows_take_back(struct flush_rows *rows)
{
    int64_t count = (int64_t)rows->row_count;

    rows->written -= rows->stage == FLUSH_STAGE_CELLS ? count : 0;
    rows->marks -= rows->stage == FLUSH_STAGE_MARKS ? count : 0;
}

static void
flush_rows_again(struct flush_rows *rows, size_t row_max)
{
    CHECK(row_max > 0 && row_max <= FLUSH_ROWS_MAX);
    flush_rows_take_back(rows);
    rows->at = rows->piece_at;
    rows->row_max = row_max;
}


/* ---- rows set aside ----------------------------------------------------- */

static bool
flush_aside_note(struct flush_asides *asides, const struct flush_rows *rows,
                 const char sqlstate[6])
{
    struct flush_aside *aside = &asides->list[asides->count];

    CHECK(rows->row_count == 1);
    if (asides->count == FLUSH_ASIDES_MAX) {
        return false;
    }
    asides->count++;
    aside->cell = rows->rows[0].first;
    aside->stage = rows->stage;
    aside->level = rows->level;
    memcpy(aside->sqlstate, sqlstate, sizeof(aside->sqlstate));
    return true;
}

/* What is not there: a level of the bucket, or the name of its set. */
static void
aside_tell(const struct flush_aside *aside, const struct buffer_cell *cell)
{
    const struct buffer_key *key = cell->key;
    bool is_key = aside->stage == FLUSH_STAGE_KEYS;
    enum meter_level level =
        aside->stage == FLUSH_STAGE_MARKS ? aside->level + 1 : aside->level;
    char bucket[METER_TIME_TEXT_SIZE + 1];

    meter_time_format(meter_level_bucket(level, cell->cell.bucket_us), bucket);
    log_error("series",
              is_key ? "a dimension set is refused and set aside: meterd "
                       "rebuild series makes it from the ledger"
                     : "a bucket is refused and set aside: meterd rebuild "
                       "series makes it from the ledger",
              log_bytes("tenant", key->tenant),
              log_bytes("series", key->series),
              log_bytes("dimensions", key->set.json),
              log_str("series_level", is_key ? "" : meter_level_name(level)),
              log_str("bucket", is_key ? "" : bucket),
              log_str("sqlstate", aside->sqlstate));
}

static void
flush_asides_tell(struct flush_asides *asides, const struct flush_rows *rows)
{
    for (size_t i = 0; i < asides->count; i++) {
        const struct flush_aside *aside = &asides->list[i];

        if (aside->cell < rows->count) {
            aside_tell(aside, rows->cells[aside->cell]);
        }
    }
    metrics.edgemeter_series_aside_total += (int64_t)asides->count;
    asides->count = 0;
}


/* ---- the beginning and the end ------------------------------------------ */

static void partitions_make(struct flush *flush);

struct flush *
flush_create(struct pg_conn *conn, struct partition *partition, flush_cb cb,
             void *owner)
{
    struct flush *flush = calloc(1, sizeof(*flush));

    if (flush != NULL) {
        flush->conn = conn;
        flush->partition = partition;
        flush->cb = cb;
        flush->owner = owner;
        pg_params_init(&flush->params);
    }
    return flush;
}

static void
free_if_done(struct flush *flush)
{
    if (flush->is_closing && !flush->is_partition_due) {
        flush_rows_fini(&flush->rows);
        pg_params_fini(&flush->params);
        free(flush);
    }
}

void
flush_destroy(struct flush *flush)
{
    if (flush == NULL) {
        return;
    }
    CHECK(flush->answers_due == 0);
    flush->is_closing = true;
    free_if_done(flush);
}

static void
flush_ended(struct flush *flush, enum flush_outcome outcome)
{
    flush->state = FLUSH_IDLE;
    flush->end.outcome = outcome;
    flush_rows_fini(&flush->rows);
    if (outcome != FLUSH_FAILED) {
        flush->asides.count = 0;
    }
    if (!flush->is_closing) {
        flush->cb(flush->owner, &flush->end);
    }
}


/* ---- answers ---------------------------------------------------------- */

static void
flush_fail(struct flush *flush, const char *why, const char *sqlstate)
{
    if (!flush->is_failed) {
        log_warn("series", "a flush failed; it is tried again",
                 log_str("reason", why), log_str("sqlstate", sqlstate));
    }
    flush->is_failed = true;
}

static bool
flush_answer_take(struct flush *flush, const struct pg_answer *answer)
{
    CHECK(flush->answers_due > 0);
    flush->answers_due--;
    if (answer->outcome == PG_OUTCOME_LOST) {
        flush_fail(flush, "the connection was lost", "");
        flush->is_lost = true;
    } else if (answer->outcome == PG_OUTCOME_ERROR) {
        flush->is_refresh_due |= answer->kind == SQL_NO_PARTITION;
        flush->data_failures += answer->kind == SQL_DATA;
        flush_fail(flush, answer->message, answer->sqlstate);
    }
    return answer->outcome == PG_OUTCOME_OK && !flush->is_failed;
}

static void
step_if_done(struct flush *flush)
{
    if (flush->answers_due == 0) {
        flush_step_done(flush);
    }
}

static void
plain_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;

    (void)flush_answer_take(flush, answer);
    step_if_done(flush);
}

static void
flush_ask(struct flush *flush, enum statement statement, pg_answer_cb cb)
{
    flush->answers_due++;
    pg_conn_query(flush->conn, statement, &flush->params, cb, flush);
}

static void
flush_command(struct flush *flush, enum statement statement, pg_answer_cb cb)
{
    flush->answers_due++;
    pg_conn_command(flush->conn, statement, cb, flush);
}

static void
flush_hold(struct flush *flush)
{
    flush->answers_due++;
}

static void
flush_release(struct flush *flush)
{
    flush->answers_due--;
    step_if_done(flush);
}

static void
put_writer(struct flush *flush)
{
    pg_params_reset(&flush->params);
    pg_param_uuid(&flush->params, flush->task.writer);
}


/* ---- floors and partitions -------------------------------------------- */

static void
floors_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;
    struct flush_floors floors;

    if (flush_answer_take(flush, answer)) {
        if (!flush_floors_read(answer->result, &floors)) {
            flush_fail(flush, "a floor of the series is missing", "");
        } else {
            flush->is_moved =
                flush->has_floors &&
                memcmp(&floors, &flush->floors, sizeof(floors)) != 0;
            flush->floors = floors;
            flush->has_floors = true;
        }
    }
    step_if_done(flush);
}

static void
floors_ask(struct flush *flush)
{
    flush->state = FLUSH_FLOORS;
    flush_hold(flush);
    pg_params_reset(&flush->params);
    flush_ask(flush, STATEMENT_ROLLUP_FLOORS, floors_cb);
    pg_conn_flush(flush->conn);
    flush_release(flush);
}

/* Days of a level that have no partition yet, DAYS_MAX of them at most. */
static size_t
days_missing(const struct flush *flush, enum meter_level wanted,
             int32_t days[DAYS_MAX])
{
    size_t count = 0;
    size_t cell_count = flush->rows.count;
    int32_t last = INT32_MIN; /* is there */

    for (size_t i = 0; i < cell_count && count < DAYS_MAX; i++) {
        int64_t bucket_us = flush->rows.cells[i]->cell.bucket_us;
        int32_t day = meter_time_day(meter_level_bucket(wanted, bucket_us));
        size_t known = 0;

        if (day == last ||
            flush_floors_level(&flush->floors, bucket_us) != wanted) {
            continue;
        }
        last = day;
        while (known < count && days[known] != day) {
            known++;
        }
        if (known == count &&
            !partition_exists(flush->partition, PARTITION_SERIES + wanted,
                              day)) {
            days[count++] = day;
        }
    }
    return count;
}

static void open_ask(struct flush *flush);

static void
partition_made_cb(void *asker, bool made)
{
    struct flush *flush = asker;

    flush->is_partition_due = false;
    if (flush->is_closing) {
        free_if_done(flush);
        return;
    }
    if (!made) {
        flush_fail(flush, "a partition could not be made", "");
        flush_ended(flush, FLUSH_FAILED);
        return;
    }
    flush->is_refresh_due = false;
    partitions_make(flush);
}

/* Until none is missing; the cells are those of the task. */
static void
partitions_make(struct flush *flush)
{
    int32_t days[DAYS_MAX];

    flush->state = FLUSH_PARTITIONS;
    if (flush->is_refresh_due) {
        flush->is_partition_due = true;
        partition_refresh(flush->partition, partition_made_cb, flush);
        return;
    }
    for (int level = 0; level < METER_LEVEL_COUNT; level++) {
        size_t count = flush->rows.of_level[level] == 0
                           ? 0
                           : days_missing(flush, level, days);

        if (count > 0) {
            flush->is_partition_due = true;
            partition_make(flush->partition, PARTITION_SERIES + level, days,
                           count, partition_made_cb, flush);
            return;
        }
    }
    open_ask(flush);
}


/* ---- the transaction -------------------------------------------------- */

static void
writer_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;

    if (flush_answer_take(flush, answer)) {
        int64_t epoch = pg_row_count(answer->result) == 0
                            ? 0
                            : pg_get_int8(answer->result, 0, 0);

        if (epoch != flush->task.epoch) {
            flush->epoch_seen = epoch;
            flush->is_failed = true;
        }
    }
    step_if_done(flush);
}

static void
advance_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;

    if (flush_answer_take(flush, answer)) {
        if (pg_row_count(answer->result) == 0) {
            flush->is_astray = true;
            flush->is_failed = true;
        } else if (!pg_is_null(answer->result, 0, 0)) {
            flush->end.flushed_us = pg_get_time(answer->result, 0, 0);
        }
    }
    step_if_done(flush);
}

/* Everything that decides whether this may be written, in one round trip. */
static void
open_ask(struct flush *flush)
{
    const struct flush_task *task = &flush->task;

    flush->state = FLUSH_OPEN;
    flush->is_moved = false;
    flush_hold(flush);
    flush_command(flush, STATEMENT_BEGIN, plain_cb);
    put_writer(flush);
    flush_ask(flush, STATEMENT_INGEST_LOCK_WRITER, writer_cb);
    pg_param_int8(&flush->params, task->from);
    pg_param_int8(&flush->params, task->upto);
    if (task->recorded_us == FLUSH_ANY_US) {
        pg_param_null(&flush->params);
    } else {
        pg_param_time(&flush->params, task->recorded_us);
    }
    flush_ask(flush, STATEMENT_WRITER_FLUSH_ADVANCE, advance_cb);
    pg_params_reset(&flush->params);
    flush_ask(flush, STATEMENT_ROLLUP_FLOORS, floors_cb);
    pg_conn_flush(flush->conn);
    flush_release(flush);
}

static void
commit_ask(struct flush *flush)
{
    if (flush->rows.written > 0) {
        CRASH_POINT("before_flush_commit");
    }
    flush->state = FLUSH_COMMIT;
    flush_hold(flush);
    if (flush->task.is_retiring) {
        put_writer(flush);
        flush_ask(flush, STATEMENT_ORPHAN_RETIRE, plain_cb);
    }
    flush_command(flush, STATEMENT_COMMIT, plain_cb);
    pg_conn_flush(flush->conn);
    flush_release(flush);
}

static void
rollback_ask(struct flush *flush)
{
    flush->state = FLUSH_ROLLBACK;
    flush_hold(flush);
    flush_command(flush, STATEMENT_ROLLBACK, plain_cb);
    pg_conn_flush(flush->conn);
    flush_release(flush);
}


/* ---- which one it is -------------------------------------------------- */

static void
look_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;
    int64_t upto = -1; /* no row */

    if (!flush_answer_take(flush, answer)) {
        flush_ended(flush, FLUSH_FAILED);
        return;
    }
    if (pg_row_count(answer->result) == 1) {
        upto = pg_get_int8(answer->result, 0, 0);
        flush->end.flushed_us = pg_is_null(answer->result, 0, 2)
                                    ? FLUSH_ANY_US
                                    : pg_get_time(answer->result, 0, 2);
    }
    if (upto == flush->task.upto && upto != flush->task.from) {
        log_info("series", "the flush had been committed",
                 log_int("upto", upto));
        flush_write_committed(flush);
        flush_ended(flush, FLUSH_COMMITTED);
        return;
    }
    log_warn("series", "the flush went astray",
             log_int("from", flush->task.from),
             log_int("upto", flush->task.upto), log_int("found", upto));
    flush_ended(flush, FLUSH_ASTRAY);
}

static void
look_ask(struct flush *flush)
{
    flush->state = FLUSH_LOOK;
    flush->is_failed = false;
    put_writer(flush);
    flush_ask(flush, STATEMENT_WRITER_FLUSH_READ, look_cb);
    pg_conn_flush(flush->conn);
}


/* ---- one step after the other ----------------------------------------- */

static void
committed(struct flush *flush)
{
    if (flush->rows.written > 0) {
        CRASH_POINT("after_flush_commit");
    }
    flush->end.rows = (size_t)flush->rows.written;
    metrics.edgemeter_series_flushes_total++;
    metrics.edgemeter_series_flush_microseconds_total +=
        (int64_t)(clock_mono_us() - flush->started_us);
    metrics.edgemeter_series_flushed_rows_total += flush->rows.written;
    metrics.edgemeter_series_expired_total += flush->rows.expired;
    flush_write_committed(flush);
    flush_ended(flush, FLUSH_COMMITTED);
}

/* Nothing of this try is left open on the connection. */
static void
failed(struct flush *flush)
{
    if (flush->epoch_seen != EPOCH_UNSEEN) {
        flush->end.epoch_seen = flush->epoch_seen;
        flush_ended(flush, FLUSH_FENCED);
    } else if (flush->is_astray && !flush->is_lost) {
        look_ask(flush);
    } else {
        flush_ended(flush, FLUSH_FAILED);
    }
}

/* Since when the buckets are behind, at the latest: for the lag. */
static int64_t
marked_us(const struct flush_task *task)
{
    if (task->flushed_us != FLUSH_ANY_US) {
        return task->flushed_us;
    }
    return task->recorded_us != FLUSH_ANY_US ? task->recorded_us
                                             : clock_wall_us();
}

static void
partitions_begin(struct flush *flush)
{
    flush_rows_fini(&flush->rows);
    flush_rows_init(&flush->rows, flush->rows.cells, flush->rows.count,
                    &flush->floors, marked_us(&flush->task));
    partitions_make(flush);
}

static void
opened(struct flush *flush)
{
    if (flush->is_moved) {
        rollback_ask(flush);
        return;
    }
    flush->state = FLUSH_WRITE;
    flush_write(flush);
}

static void
rolled_back(struct flush *flush)
{
    if (flush->is_moved && !flush->is_failed) {
        partitions_begin(flush);
    } else {
        failed(flush);
    }
}

static void
flush_step_done(struct flush *flush)
{
    bool is_open = flush->state == FLUSH_OPEN || flush->state == FLUSH_WRITE;

    if (flush->is_failed && flush->state != FLUSH_ROLLBACK) {
        if (is_open && !flush->is_lost && pg_conn_is_ready(flush->conn)) {
            rollback_ask(flush);
        } else {
            failed(flush);
        }
        return;
    }
    switch (flush->state) {
    case FLUSH_FLOORS: partitions_begin(flush); return;
    case FLUSH_OPEN: opened(flush); return;
    case FLUSH_WRITE: commit_ask(flush); return;
    case FLUSH_COMMIT: committed(flush); return;
    case FLUSH_ROLLBACK: rolled_back(flush); return;
    case FLUSH_IDLE:
    case FLUSH_PARTITIONS:
    case FLUSH_LOOK: break;
    }
    CHECK(false);
}

void
flush_start(struct flush *flush, const struct flush_task *task)
{
    CHECK(flush->state == FLUSH_IDLE && flush->answers_due == 0);
    flush->task = *task;
    flush->started_us = clock_mono_us();
    flush->is_failed = false;
    flush->is_lost = false;
    flush->is_astray = false;
    flush->is_moved = false;
    flush->epoch_seen = EPOCH_UNSEEN;
    flush->end = (struct flush_end){.flushed_us = FLUSH_ANY_US};
    flush->rows.cells = buffer_flushing(task->buffer, &flush->rows.count);
    if (flush->rows.cells == NULL) {
        flush_fail(flush, "out of memory", "");
        flush_ended(flush, FLUSH_FAILED);
    } else if (!flush->has_floors) {
        floors_ask(flush);
    } else {
        partitions_begin(flush);
    }
}


/* ---- writing ------------------------------------------------------------ */

static void write_fast(struct flush *flush);
static void piece_next(struct flush *flush);
static void piece_done(struct flush *flush);

static void
flush_write(struct flush *flush)
{
    flush->asides.count = 0;
    if (flush->data_failures < DATA_TRIES) {
        write_fast(flush);
    } else {
        piece_next(flush);
    }
}

static void
flush_write_committed(struct flush *flush)
{
    if (flush->asides.count == 0 && flush->rows.written > 0) {
        flush->data_failures = 0;
    }
    flush_asides_tell(&flush->asides, &flush->rows);
}


/* ---- fast ------------------------------------------------------------- */

static void
rows_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;

    if (flush_answer_take(flush, answer)) {
        CRASH_POINT("inside_flush");
    }
    write_fast(flush);
}

/* Asks for the next piece. False: there is none, or no memory for it. */
static bool
rows_ask(struct flush *flush, pg_answer_cb cb)
{
    enum statement statement;

    pg_params_reset(&flush->params);
    switch (flush_rows_next(&flush->rows, &statement, &flush->params)) {
    case FLUSH_ROWS_NEXT: flush_ask(flush, statement, cb); return true;
    case FLUSH_ROWS_NO_MEMORY: flush_fail(flush, "out of memory", ""); break;
    case FLUSH_ROWS_END: break;
    }
    return false;
}

/* Keeps two pieces on their way. */
static void
write_fast(struct flush *flush)
{
    flush_hold(flush);
    while (!flush->is_failed && flush->answers_due <= PIECES_AHEAD &&
           rows_ask(flush, rows_cb)) {
        pg_conn_flush(flush->conn);
    }
    flush_release(flush);
}


/* ---- careful ---------------------------------------------------------- */

static void
piece_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;

    if (answer->outcome == PG_OUTCOME_ERROR && answer->kind == SQL_DATA) {
        flush->answers_due--;
        flush->is_piece_bad = true;
        memcpy(flush->piece_sqlstate, answer->sqlstate,
               sizeof(flush->piece_sqlstate));
    } else {
        (void)flush_answer_take(flush, answer);
    }
    if (flush->answers_due == 0) {
        piece_done(flush);
    }
}

static void
piece_next(struct flush *flush)
{
    bool is_asked;

    flush->is_piece_bad = false;
    flush_hold(flush);
    flush_command(flush, STATEMENT_SAVEPOINT, piece_cb);
    is_asked = rows_ask(flush, piece_cb);
    flush_command(flush, STATEMENT_SAVEPOINT_RELEASE, piece_cb);
    flush->is_last_piece = !is_asked;
    pg_conn_flush(flush->conn);
    flush->answers_due--;
    if (flush->answers_due == 0) {
        piece_done(flush);
    }
}

/* What was refused is undone: a part of it comes again, or it is left out. */
static void
piece_undone(struct flush *flush)
{
    struct flush_rows *rows = &flush->rows;

    if (!flush->is_failed && rows->row_count > 1) {
        flush_rows_again(rows, rows->row_count / 2);
    } else if (!flush->is_failed) {
        flush_rows_take_back(rows);
        if (!flush_aside_note(&flush->asides, rows, flush->piece_sqlstate)) {
            flush_fail(flush, "too many rows are refused; none is set aside",
                       flush->piece_sqlstate);
        }
    }
    if (flush->is_failed) {
        flush_step_done(flush);
    } else {
        piece_next(flush);
    }
}

static void
piece_undone_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;

    (void)flush_answer_take(flush, answer);
    if (flush->answers_due == 0) {
        piece_undone(flush);
    }
}

static void
piece_undo(struct flush *flush)
{
    flush_hold(flush);
    flush_command(flush, STATEMENT_SAVEPOINT_ROLLBACK, piece_undone_cb);
    flush_command(flush, STATEMENT_SAVEPOINT_RELEASE, piece_undone_cb);
    pg_conn_flush(flush->conn);
    flush->answers_due--;
    if (flush->answers_due == 0) {
        piece_undone(flush);
    }
}

static void
piece_done(struct flush *flush)
{
    size_t row_max = 2 * flush->rows.row_max;

    if (flush->is_failed || (flush->is_last_piece && !flush->is_piece_bad)) {
        flush_step_done(flush);
    } else if (flush->is_piece_bad) {
        piece_undo(flush);
    } else {
        flush->rows.row_max =
            row_max < FLUSH_ROWS_MAX ? row_max : FLUSH_ROWS_MAX;
        piece_next(flush);
    }
}
