/*
 * flush.c - one cut of a buffer into the tables, once.
 *
 *   partitions -> BEGIN; writer FOR SHARE; upto: from -> upto; floors FOR
 *   SHARE -> keys, cells, marks, some thousand rows each -> COMMIT
 *
 *   floors are new or were raised: ROLLBACK -> partitions, and so on
 *   upto is not `from`:            ROLLBACK -> [look] which one it is
 *
 * The engine and orphan call it. One piece is encoded while the server works
 * on the one before. A COMMIT in doubt is an end as any other failure: the
 * same task again finds upto moved, and the look tells that it was committed.
 *
 * Where the database refuses the data itself (not the server, a lock or a
 * missing partition), no later try ends otherwise. After DATA_TRIES of them
 * the flush is careful: rows that are refused alone are left out, all others
 * are written, and it commits. The next ones are careful, too, until one of
 * them has rows and none is refused.
 */

#include "series/flush.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "meter_time.h"
#include "pg/column.h"
#include "pg/tx.h"

#include <stdlib.h>

#define DAYS_MAX     64 /* partitions asked for at a time */
#define PIECES_AHEAD 2
#define DATA_TRIES   3
/* Rows of one statement: some milliseconds of the loop. */
#define FLUSH_ROWS_MAX 2000
/* More than that is no matter of single rows: then nothing is left out. */
#define FLUSH_QUARANTINE_MAX 100

/* From where on the levels are kept; none is less than the one above. */
struct flush_floors {
    int64_t from_us[METER_LEVEL_COUNT];
};

struct flush_row {
    const struct buffer_key *key;
    const struct cell *cell;
    int64_t bucket_us;
    size_t first; /* its first cell */
    int64_t marked_us;
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
};

/* A row that a careful flush has to leave out. */
struct flush_quarantine_row {
    size_t cell; /* its first: the same in all tries of a cut */
    enum flush_stage stage;
    enum meter_level level;
    char sqlstate[6];
};

/* What a failure asks for: tx.failure.remedy. */
enum flush_remedy { FLUSH_AGAIN, FLUSH_LOOK, FLUSH_FENCE };

struct flush {
    struct pg_tx tx;
    struct pg_tx look;
    struct partition *partition;
    flush_cb cb;
    void *owner;
    struct flush_task task;
    uint64_t started_us;
    bool is_partition_due; /* its callback is still to come */
    bool is_closing;

    bool has_floors;
    bool is_moved; /* the floors are others than thought */
    struct flush_floors floors;
    bool is_refresh_due;    /* of what is known of partitions */
    unsigned data_failures; /* in a row: tries that met bad data */
    struct flush_quarantine_row quarantine[FLUSH_QUARANTINE_MAX];
    size_t quarantine_count;

    struct pg_params params;
    int64_t upto_seen; /* of the look */
    struct flush_end end;
    struct flush_rows rows;
};


/* ---- which level ------------------------------------------------------ */

/* The lowest level that has the bucket; METER_LEVEL_COUNT: none. */
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

/* Of the rows (parent, floor). False: one is missing. */
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


/* ---- cells as rows ---------------------------------------------------- */

/*
 *   cells by key -> keys, then rows of 5s 1m 1h 1d 7d, marks
 *
 * A cell goes to the lowest level that still has its bucket, and marks the
 * bucket above it; what no level has is left out. Cells come by key and
 * bucket, so those of one bucket of a level above lie side by side.
 */
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
    rows->row_max = FLUSH_ROWS_MAX;
    rows->row_count = 0;
    rows->merged_count = 0;
    rows->written = 0;
    rows->expired = 0;
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
flush_rows_drop(struct flush_rows *rows)
{
    for (size_t i = 0; i < rows->merged_count; i++) {
        cell_fini(&rows->merged[i]);
    }
    rows->merged_count = 0;
    rows->row_count = 0;
}

/* Which row the cell belongs to. False: to none at this stage. */
static bool
flush_row_of(const struct flush_rows *rows, const struct buffer_cell *cell,
             struct flush_row *row)
{
    int64_t bucket_us = cell->cell.bucket_us;
    enum meter_level level = rows->level + (rows->stage == FLUSH_STAGE_MARKS);

    *row = (struct flush_row){
        .key = cell->key,
        .cell = &cell->cell,
        .first = rows->at,
        .marked_us = rows->marked_us,
    };
    if (rows->stage == FLUSH_STAGE_KEYS) {
        return !cell->key->is_stored;
    }
    row->bucket_us = meter_level_bucket(level, bucket_us);
    return flush_floors_level(&rows->floors, bucket_us) == rows->level;
}

/* Above 5s the cells of a bucket add up in one of our own. */
static const struct cell *
flush_rows_merge(struct flush_rows *rows, const struct flush_row *row,
                 bool is_new)
{
    struct cell *merged;

    if (is_new) {
        cell_init(&rows->merged[rows->merged_count++], row->cell->kind,
                  row->bucket_us);
    }
    merged = &rows->merged[rows->merged_count - 1];
    CHECK(cell_merge(merged, row->cell));
    return merged;
}

/* The rows of a piece. Cells of one row lie side by side. */
static void
flush_rows_gather(struct flush_rows *rows)
{
    bool is_merging =
        rows->stage == FLUSH_STAGE_CELLS && rows->level > METER_LEVEL_5S;
    const struct flush_row *last = NULL;

    flush_rows_drop(rows);
    rows->piece_at = rows->at;
    for (; rows->at < rows->count; rows->at++) {
        struct flush_row row;
        bool is_new;

        if (!flush_row_of(rows, rows->cells[rows->at], &row)) {
            continue;
        }
        is_new = last == NULL || last->key != row.key ||
                 last->bucket_us != row.bucket_us;
        if (is_new && rows->row_count == rows->row_max) {
            break;
        }
        if (is_merging) {
            row.cell = flush_rows_merge(rows, &row, is_new);
        }
        if (is_new) {
            last = &rows->rows[rows->row_count];
            rows->rows[rows->row_count++] = row;
        }
    }
}


/* ---- rows as statements ----------------------------------------------- */

static const enum statement flush_upserts[METER_LEVEL_COUNT] = {
    STATEMENT_SERIES_UPSERT_5S, STATEMENT_SERIES_UPSERT_1M,
    STATEMENT_SERIES_UPSERT_1H, STATEMENT_SERIES_UPSERT_1D,
    STATEMENT_SERIES_UPSERT_7D,
};

static const struct pg_column key_columns[] = {
    PG_COLUMN(TEXT, struct buffer_key, tenant),
    PG_COLUMN(TEXT, struct buffer_key, series),
    PG_COLUMN(INT8, struct buffer_key, version),
    PG_COLUMN(DIGEST, struct buffer_key, set.key),
    PG_COLUMN(TEXT, struct buffer_key, set.json),
};
enum { KEY_COLUMNS = 4 }; /* without the dimensions themselves */

static const struct pg_column row_columns[] = {
    PG_COLUMN(TIME, struct flush_row, bucket_us),
    PG_COLUMN(TIME, struct flush_row, marked_us),
};

static const void *
flush_rows_key(const void *data, size_t *cursor)
{
    const struct flush_rows *rows = data;

    return *cursor < rows->row_count ? rows->rows[(*cursor)++].key : NULL;
}

static void
flush_rows_put_keys(const struct flush_rows *rows, size_t column_count,
                    struct pg_params *params)
{
    pg_param_columns(params, key_columns, column_count, rows, rows->row_count,
                     flush_rows_key);
}

/* The bucket; and where there are two, since when it is marked. */
static void
flush_rows_put_buckets(const struct flush_rows *rows, size_t column_count,
                       struct pg_params *params)
{
    pg_param_rows(params, row_columns, column_count, rows->rows,
                  rows->row_count, sizeof(*rows->rows));
}

static void
flush_rows_put_cells(const struct flush_rows *rows, struct pg_params *params)
{
    for (int column = 0; column < CELL_COLUMNS; column++) {
        pg_param_array_begin(params, cell_column_type(column), rows->row_count);
        for (size_t i = 0; i < rows->row_count; i++) {
            cell_put(rows->rows[i].cell, column, &params->bytes);
        }
        pg_param_array_end(params);
    }
}

static enum statement
flush_rows_put(struct flush_rows *rows, struct pg_params *params)
{
    pg_params_reset(params);
    if (rows->stage == FLUSH_STAGE_KEYS) {
        flush_rows_put_keys(rows, KEY_COLUMNS + 1, params);
        return STATEMENT_SERIES_KEY_ENSURE;
    }
    if (rows->stage == FLUSH_STAGE_CELLS) {
        flush_rows_put_keys(rows, KEY_COLUMNS, params);
        flush_rows_put_buckets(rows, 1, params);
        flush_rows_put_cells(rows, params);
        rows->written += (int64_t)rows->row_count;
        return flush_upserts[rows->level];
    }
    pg_param_int4(params, (int32_t)rows->level + 1);
    flush_rows_put_keys(rows, KEY_COLUMNS, params);
    flush_rows_put_buckets(rows, 2, params);
    return STATEMENT_SERIES_DIRTY_MARK;
}

/* The last level has nothing above it that could be marked. */
static void
flush_rows_stage_next(struct flush_rows *rows)
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

/* The next piece. False: there is none. */
static bool
flush_rows_next(struct flush_rows *rows, enum statement *statement,
                struct pg_params *params)
{
    for (; rows->stage != FLUSH_STAGE_END; flush_rows_stage_next(rows)) {
        if (rows->stage == FLUSH_STAGE_KEYS ||
            rows->of_level[rows->level] > 0) {
            flush_rows_gather(rows);
        } else {
            flush_rows_drop(rows);
        }
        if (rows->row_count > 0) {
            *statement = flush_rows_put(rows, params);
            return true;
        }
    }
    return false;
}

/* The piece that came last was not written. */
static void
flush_rows_take_back(struct flush_rows *rows)
{
    if (rows->stage == FLUSH_STAGE_CELLS) {
        rows->written -= (int64_t)rows->row_count;
    }
}

/* And comes again, in pieces of so many rows. */
static void
flush_rows_again(struct flush_rows *rows, size_t row_max)
{
    CHECK(row_max > 0 && row_max <= FLUSH_ROWS_MAX);
    flush_rows_take_back(rows);
    rows->at = rows->piece_at;
    rows->row_max = row_max;
}


/* ---- rows left out ---------------------------------------------------- */

/* The one row of the piece that came last. False: there are too many. */
static bool
flush_quarantine_note(struct flush *flush, const char sqlstate[6])
{
    struct flush_quarantine_row *row;

    CHECK(flush->rows.row_count == 1);
    if (flush->quarantine_count == FLUSH_QUARANTINE_MAX) {
        return false;
    }
    row = &flush->quarantine[flush->quarantine_count++];
    row->cell = flush->rows.rows[0].first;
    row->stage = flush->rows.stage;
    row->level = flush->rows.level;
    memcpy(row->sqlstate, sqlstate, sizeof(row->sqlstate));
    return true;
}

/* What is not there: a level of the bucket, or the name of its set. */
static void
flush_quarantine_row_tell(const struct flush_quarantine_row *row,
                          const struct buffer_cell *cell)
{
    const struct buffer_key *key = cell->key;
    bool is_key = row->stage == FLUSH_STAGE_KEYS;
    enum meter_level level =
        row->stage == FLUSH_STAGE_MARKS ? row->level + 1 : row->level;
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
              log_str("sqlstate", row->sqlstate));
}

/*
 * It is known that they are left out for good: one log line for each, and
 * none of a try that was rolled back.
 */
static void
flush_quarantine_tell(struct flush *flush)
{
    if (flush->quarantine_count == 0 && flush->rows.written > 0) {
        flush->data_failures = 0;
    }
    for (size_t i = 0; i < flush->quarantine_count; i++) {
        const struct flush_quarantine_row *row = &flush->quarantine[i];

        if (row->cell < flush->rows.count) {
            flush_quarantine_row_tell(row, flush->rows.cells[row->cell]);
        }
    }
    metrics.edgemeter_series_aside_total += (int64_t)flush->quarantine_count;
}


/* ---- the end of a flush ----------------------------------------------- */

/* A try that failed keeps its quarantine: its COMMIT may be in doubt. */
static void
flush_ended(struct flush *flush, enum flush_outcome outcome)
{
    flush->end.outcome = outcome;
    flush_rows_drop(&flush->rows);
    if (outcome == FLUSH_COMMITTED) {
        flush_quarantine_tell(flush);
    }
    if (outcome != FLUSH_FAILED) {
        flush->quarantine_count = 0;
    }
    flush->cb(flush->owner, &flush->end);
}

static void
flush_failed(struct flush *flush, const char *reason, const char *sqlstate)
{
    log_warn("series", "a flush failed; it is tried again",
             log_str("reason", reason), log_str("sqlstate", sqlstate));
    flush_ended(flush, FLUSH_FAILED);
}

static void
flush_committed(struct flush *flush)
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
    flush_ended(flush, FLUSH_COMMITTED);
}


/* ---- the transaction -------------------------------------------------- */

static void flush_opened(void *owner);
static void flush_write(struct flush *flush);
static void flush_partitions(struct flush *flush);

static void
flush_put_writer(struct flush *flush)
{
    pg_params_reset(&flush->params);
    pg_param_uuid(&flush->params, flush->task.writer);
}

static void
flush_writer_rows(void *owner, const void *result)
{
    struct flush *flush = owner;

    flush->end.epoch_seen =
        pg_row_count(result) == 0 ? 0 : pg_get_int8(result, 0, 0);
    if (flush->end.epoch_seen != flush->task.epoch) {
        pg_tx_fail(&flush->tx, FLUSH_FENCE, "another epoch");
    }
}

static void
flush_advance_rows(void *owner, const void *result)
{
    struct flush *flush = owner;

    if (pg_row_count(result) == 0) {
        pg_tx_fail(&flush->tx, FLUSH_LOOK, "upto is another one");
    } else if (!pg_is_null(result, 0, 0)) {
        flush->end.flushed_us = pg_get_time(result, 0, 0);
    }
}

static void
flush_floor_rows(void *owner, const void *result)
{
    struct flush *flush = owner;
    struct flush_floors floors;

    if (!flush_floors_read(result, &floors)) {
        pg_tx_fail(&flush->tx, FLUSH_AGAIN, "a floor of the series is missing");
        return;
    }
    flush->is_moved = !flush->has_floors ||
                      memcmp(&floors, &flush->floors, sizeof(floors)) != 0;
    flush->floors = floors;
    flush->has_floors = true;
}

static void
flush_put_time(struct flush *flush, int64_t time_us)
{
    if (time_us == FLUSH_ANY_US) {
        pg_param_null(&flush->params);
    } else {
        pg_param_time(&flush->params, time_us);
    }
}

/* Everything that decides whether this may be written, in one round trip. */
static void
flush_open(struct flush *flush)
{
    const struct flush_task *task = &flush->task;

    flush->is_moved = false;
    flush->end.flushed_us = FLUSH_ANY_US;
    pg_tx_begin(&flush->tx);
    flush_put_writer(flush);
    pg_tx_ask(&flush->tx, STATEMENT_INGEST_LOCK_WRITER, &flush->params,
              flush_writer_rows);
    pg_param_int8(&flush->params, task->from);
    pg_param_int8(&flush->params, task->upto);
    flush_put_time(flush, task->recorded_us);
    flush_put_time(flush, task->clock_us);
    pg_tx_ask(&flush->tx, STATEMENT_WRITER_FLUSH_ADVANCE, &flush->params,
              flush_advance_rows);
    pg_tx_ask(&flush->tx, STATEMENT_ROLLUP_FLOORS, NULL, flush_floor_rows);
    pg_tx_send(&flush->tx, flush_opened);
}

static void
flush_opened(void *owner)
{
    struct flush *flush = owner;

    if (flush->is_moved) {
        pg_tx_rollback(&flush->tx);
    } else {
        flush_write(flush);
    }
}

static void
flush_commit(void *owner)
{
    struct flush *flush = owner;

    if (flush->rows.written > 0) {
        CRASH_POINT("before_flush_commit");
    }
    if (flush->task.is_retiring) {
        flush_put_writer(flush);
        pg_tx_ask(&flush->tx, STATEMENT_ORPHAN_RETIRE, &flush->params, NULL);
    }
    pg_tx_commit(&flush->tx);
}

/* False: there is none any more. */
static bool
flush_piece_ask(struct flush *flush, pg_tx_rows_cb cb)
{
    enum statement statement;

    if (!flush_rows_next(&flush->rows, &statement, &flush->params)) {
        return false;
    }
    pg_tx_ask(&flush->tx, statement, &flush->params, cb);
    return true;
}

/* One is written: the next one goes. */
static void
flush_piece_rows(void *owner, const void *result)
{
    struct flush *flush = owner;

    (void)result;
    CRASH_POINT("inside_flush");
    if (flush_piece_ask(flush, flush_piece_rows)) {
        pg_tx_flush(&flush->tx);
    }
}

static void flush_careful_answered(void *owner);

/* SAVEPOINT; piece; RELEASE; and where there is no piece any more, COMMIT. */
static void
flush_careful(struct flush *flush)
{
    enum statement statement;

    if (!flush_rows_next(&flush->rows, &statement, &flush->params)) {
        flush_commit(flush);
        return;
    }
    pg_tx_allow_data(&flush->tx);
    pg_tx_command(&flush->tx, STATEMENT_SAVEPOINT);
    pg_tx_ask(&flush->tx, statement, &flush->params, NULL);
    pg_tx_command(&flush->tx, STATEMENT_SAVEPOINT_RELEASE);
    pg_tx_send(&flush->tx, flush_careful_answered);
}

/* What was refused is undone: a part of it comes again, or it is left out. */
static void
flush_careful_refused(struct flush *flush)
{
    char sqlstate[sizeof(flush->tx.failure.sqlstate)];
    size_t row_count = flush->rows.row_count;

    memcpy(sqlstate, flush->tx.failure.sqlstate, sizeof(sqlstate));
    pg_tx_command(&flush->tx, STATEMENT_SAVEPOINT_ROLLBACK);
    pg_tx_command(&flush->tx, STATEMENT_SAVEPOINT_RELEASE);
    if (row_count > 1) {
        flush_rows_again(&flush->rows, row_count / 2);
        return;
    }
    flush_rows_take_back(&flush->rows);
    if (!flush_quarantine_note(flush, sqlstate)) {
        pg_tx_fail(&flush->tx, FLUSH_AGAIN,
                   "too many rows are refused; none is set aside");
        memcpy(flush->tx.failure.sqlstate, sqlstate, sizeof(sqlstate));
    }
}

static void
flush_careful_answered(void *owner)
{
    struct flush *flush = owner;
    size_t row_max = 2 * flush->rows.row_max;

    if (flush->tx.is_refused) {
        flush_careful_refused(flush);
    } else {
        flush->rows.row_max =
            row_max < FLUSH_ROWS_MAX ? row_max : FLUSH_ROWS_MAX;
    }
    flush_careful(flush);
}

static void
flush_write(struct flush *flush)
{
    flush->quarantine_count = 0;
    if (flush->data_failures >= DATA_TRIES) {
        flush_careful(flush);
        return;
    }
    for (int i = 0; i < PIECES_AHEAD; i++) {
        if (flush_piece_ask(flush, flush_piece_rows)) {
            pg_tx_flush(&flush->tx);
        }
    }
    pg_tx_send(&flush->tx, flush_commit);
}


/* ---- how it ended ----------------------------------------------------- */

static void
flush_upto_rows(void *owner, const void *result)
{
    struct flush *flush = owner;

    if (pg_row_count(result) == 1) {
        flush->upto_seen = pg_get_int8(result, 0, 0);
        flush->end.flushed_us =
            pg_is_null(result, 0, 2) ? FLUSH_ANY_US : pg_get_time(result, 0, 2);
    }
}

/* Which one upto is. */
static void
flush_look(struct flush *flush)
{
    flush->upto_seen = -1; /* no row */
    pg_tx_begin(&flush->look);
    flush_put_writer(flush);
    pg_tx_ask(&flush->look, STATEMENT_WRITER_FLUSH_READ, &flush->params,
              flush_upto_rows);
    pg_tx_commit(&flush->look);
}

static void
flush_looked(void *owner, enum pg_tx_end end)
{
    struct flush *flush = owner;
    const struct flush_task *task = &flush->task;

    if (end != PG_TX_COMMITTED) {
        flush_failed(flush, pg_tx_reason(&flush->look), "");
    } else if (flush->upto_seen == task->upto && task->upto != task->from) {
        log_info("series", "the flush had been committed",
                 log_int("upto", task->upto));
        flush_ended(flush, FLUSH_COMMITTED);
    } else {
        log_warn("series", "the flush went astray", log_int("from", task->from),
                 log_int("upto", task->upto),
                 log_int("found", flush->upto_seen));
        flush_ended(flush, FLUSH_ASTRAY);
    }
}

static void
flush_tx_ended(void *owner, enum pg_tx_end end)
{
    struct flush *flush = owner;
    const struct pg_tx_failure *failure = &flush->tx.failure;
    bool is_failed = flush->tx.is_failed;

    if (end == PG_TX_COMMITTED) {
        flush_committed(flush);
    } else if (end == PG_TX_ROLLED_BACK) {
        flush_partitions(flush); /* the floors are others */
    } else if (is_failed && failure->remedy == FLUSH_FENCE) {
        flush_ended(flush, FLUSH_FENCED);
    } else if (end == PG_TX_FAILED && failure->remedy == FLUSH_LOOK) {
        flush_look(flush);
    } else {
        flush->is_refresh_due |= is_failed && failure->kind == SQL_NO_PARTITION;
        flush->data_failures += is_failed && failure->kind == SQL_DATA;
        flush_failed(flush, pg_tx_reason(&flush->tx),
                     is_failed ? failure->sqlstate : "");
    }
}


/* ---- partitions ------------------------------------------------------- */

/* Days of a level that have no partition yet, DAYS_MAX of them at most. */
static size_t
flush_days_missing(const struct flush *flush, enum meter_level wanted,
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

static void
flush_free_if_done(struct flush *flush)
{
    if (flush->is_closing && !flush->is_partition_due) {
        flush_rows_drop(&flush->rows);
        pg_params_fini(&flush->params);
        pg_tx_fini(&flush->tx);
        pg_tx_fini(&flush->look);
        free(flush);
    }
}

static void flush_partitions_make(struct flush *flush);

static void
flush_partitions_cb(void *asker, bool made)
{
    struct flush *flush = asker;

    flush->is_partition_due = false;
    if (flush->is_closing) {
        flush_free_if_done(flush);
    } else if (!made) {
        flush_failed(flush, "a partition could not be made", "");
    } else {
        flush->is_refresh_due = false;
        flush_partitions_make(flush);
    }
}

/* Until none is missing; the cells are those of the task. */
static void
flush_partitions_make(struct flush *flush)
{
    int32_t days[DAYS_MAX];

    if (flush->is_refresh_due) {
        flush->is_partition_due = true;
        partition_refresh(flush->partition, flush_partitions_cb, flush);
        return;
    }
    for (int level = 0; level < METER_LEVEL_COUNT; level++) {
        size_t count = flush->rows.of_level[level] == 0
                           ? 0
                           : flush_days_missing(flush, level, days);

        if (count > 0) {
            flush->is_partition_due = true;
            partition_make(flush->partition, PARTITION_SERIES + level, days,
                           count, flush_partitions_cb, flush);
            return;
        }
    }
    flush_open(flush);
}

/* Since when the buckets are behind, at the latest: for the lag. */
static int64_t
flush_marked_us(const struct flush_task *task)
{
    if (task->flushed_us != FLUSH_ANY_US) {
        return task->flushed_us;
    }
    return task->clock_us != FLUSH_ANY_US ? task->clock_us : clock_wall_us();
}

/* By the floors as they are known. */
static void
flush_partitions(struct flush *flush)
{
    flush_rows_drop(&flush->rows);
    flush_rows_init(&flush->rows, flush->rows.cells, flush->rows.count,
                    &flush->floors, flush_marked_us(&flush->task));
    flush_partitions_make(flush);
}


/* ---- the beginning and the end ---------------------------------------- */

/* Without floors the transaction is opened for them alone. */
void
flush_start(struct flush *flush, const struct flush_task *task)
{
    CHECK(pg_tx_is_idle(&flush->tx) && pg_tx_is_idle(&flush->look));
    flush->task = *task;
    flush->started_us = clock_mono_us();
    flush->end = (struct flush_end){.flushed_us = FLUSH_ANY_US};
    flush->rows.cells = buffer_flushing(task->buffer, &flush->rows.count);
    flush->rows.written = 0;
    if (flush->has_floors) {
        flush_partitions(flush);
    } else {
        flush_open(flush);
    }
}

struct flush *
flush_create(struct pg_conn *conn, struct partition *partition, flush_cb cb,
             void *owner)
{
    static const struct pg_tx_events write = {.on_end = flush_tx_ended};
    static const struct pg_tx_events look = {.on_end = flush_looked};
    struct flush *flush = memory_alloc(sizeof(*flush));

    flush->partition = partition;
    flush->cb = cb;
    flush->owner = owner;
    pg_tx_init(&flush->tx, conn, &write, flush);
    pg_tx_init(&flush->look, conn, &look, flush);
    pg_params_init(&flush->params);
    return flush;
}

void
flush_destroy(struct flush *flush)
{
    flush->is_closing = true;
    flush_free_if_done(flush);
}
