/*
 * billing_statements.h - what sql/statements/meter_*.sql say, in C, on the
 * tables of billing_fake.h.
 */

#ifndef BILLING_STATEMENTS_H
#define BILLING_STATEMENTS_H

#include "billing_fake.h"

static void
fake_closed(const struct pg_params *params, PGresult *result)
{
    struct buf field;
    int found = 0;

    buf_init(&field, 64);
    for (size_t i = 0; i < fake_count(params, 0); i++) {
        struct fake_field number = fake_field(params, 3, i);
        char tenant[FAKE_TEXT_SIZE];
        char metric[FAKE_TEXT_SIZE];

        fake_text(fake_field(params, 0, i), tenant);
        fake_text(fake_field(params, 1, i), metric);
        for (size_t j = 0; j < fake.close_count; j++) {
            if (strcmp(fake.closes[j].tenant, tenant) == 0 &&
                strcmp(fake.closes[j].metric, metric) == 0 &&
                fake.closes[j].period == fake_int8(fake_field(params, 2, i))) {
                pg_put_int4(&field, (int32_t)fake_u32(number.data));
                fake_set(result, found++, 0, &field);
            }
        }
    }
    buf_fini(&field);
}

static bool
fake_is_small(const struct fake_cell *cells)
{
    meter_int128 most = (meter_int128)INT64_C(1000000000000000000) *
                        1000000000 * 1000000000 * 10;
    const struct fake_cell *sum = &cells[FAKE_SUM];

    return sum->number <= most && sum->number >= -most &&
           cells[FAKE_MIN].number >= -most && cells[FAKE_MAX].number <= most &&
           cells[FAKE_COUNT].number <= INT64_C(1) << 61;
}

static int
fake_last_compare(const struct fake_cell *a, const struct fake_cell *b)
{
    static const int columns[] = {FAKE_LAST_TS, FAKE_LAST_RECORDED,
                                  FAKE_LAST_WRITER, FAKE_LAST_SEQ};

    for (int i = 0; i < 4; i++) {
        const struct fake_cell *left = &a[columns[i]];
        const struct fake_cell *right = &b[columns[i]];
        int order = memcmp(left->uuid, right->uuid, sizeof(left->uuid));

        if (left->number != right->number) {
            return left->number > right->number ? 1 : -1;
        }
        if (order != 0) {
            return order;
        }
    }
    return 0;
}

/* Adds what a fold says to a row that is there. */
static void
fake_merge(struct fake_cell *into, const struct fake_cell *from)
{
    into[FAKE_SUM].number += from[FAKE_SUM].number;
    into[FAKE_COUNT].number += from[FAKE_COUNT].number;
    if (from[FAKE_MIN].is_set &&
        (!into[FAKE_MIN].is_set ||
         from[FAKE_MIN].number < into[FAKE_MIN].number)) {
        into[FAKE_MIN] = from[FAKE_MIN];
    }
    if (from[FAKE_MAX].is_set &&
        (!into[FAKE_MAX].is_set ||
         from[FAKE_MAX].number > into[FAKE_MAX].number)) {
        into[FAKE_MAX] = from[FAKE_MAX];
    }
    if (from[FAKE_LAST].is_set &&
        (!into[FAKE_LAST].is_set || fake_last_compare(from, into) > 0)) {
        memcpy(&into[FAKE_LAST], &from[FAKE_LAST], 5 * sizeof(*into));
    }
    if (!into[FAKE_WATERMARK].is_set ||
        from[FAKE_WATERMARK].number > into[FAKE_WATERMARK].number) {
        into[FAKE_WATERMARK] = from[FAKE_WATERMARK];
    }
}

/* $7 to $17 of meter_upsert, as the cells of a row. */
static void
fake_upsert_cells(const struct pg_params *params, size_t i,
                  struct fake_cell *cells)
{
    struct fake_field writer = {fake_param(params, 15), 16};
    struct fake_field recorded = {fake_param(params, 16), 8};

    memset(cells, 0, FAKE_COLUMNS * sizeof(*cells));
    cells[FAKE_SUM] = fake_cell_numeric(fake_field(params, 6, i));
    cells[FAKE_COUNT] = fake_cell_int(fake_field(params, 7, i));
    cells[FAKE_MIN] = fake_cell_numeric(fake_field(params, 8, i));
    cells[FAKE_MAX] = fake_cell_numeric(fake_field(params, 9, i));
    cells[FAKE_LAST] = fake_cell_numeric(fake_field(params, 10, i));
    cells[FAKE_LAST_TS] = fake_cell_int(fake_field(params, 11, i));
    if (cells[FAKE_LAST_TS].is_set) {
        cells[FAKE_LAST_RECORDED] = fake_cell_int(recorded);
        cells[FAKE_LAST_WRITER] = fake_cell_uuid(writer);
    }
    cells[FAKE_LAST_SEQ] = fake_cell_int(fake_field(params, 12, i));
    cells[FAKE_WATERMARK] = fake_cell_int(fake_field(params, 13, i));
}

static void
fake_upsert(const struct pg_params *params)
{
    struct fake_key before;
    size_t touched = 0;

    for (size_t i = 0; i < fake_count(params, 0); i++) {
        struct fake_key key = fake_key(params, 0, NULL, i);
        int64_t limit = fake_int8(fake_field(params, 14, i));
        struct fake_field clock = {fake_param(params, 17), 8};
        struct fake_row *row = fake_find(&key);
        struct fake_cell cells[FAKE_COLUMNS];
        char groups[FAKE_TEXT_SIZE];

        if (i > 0) {
            fake_check_order(&before, &key);
        }
        before = key;
        fake_text(fake_field(params, 5, i), groups);
        fake_upsert_cells(params, i, cells);
        if (row == NULL) {
            row = fake_add(&key, groups);
        } else if ((row->cells[FAKE_WATERMARK].is_set &&
                    row->cells[FAKE_WATERMARK].number > limit &&
                    fake_int8(clock) > limit) ||
                   strcmp(row->groups, groups) != 0 ||
                   !fake_is_small(row->cells) ||
                   !fake_is_small(row->cells + FAKE_LATE)) {
            continue;
        }
        fake_merge(row->cells, cells);
        touched++;
    }
    snprintf(fake_affected, sizeof(fake_affected), "%zu", touched);
}

static void
fake_unique_fold(const struct pg_params *params)
{
    for (size_t i = 0; i < fake_count(params, 0); i++) {
        struct fake_key key = fake_key(params, 0, NULL, i);
        char value[FAKE_TEXT_SIZE];
        struct fake_unique *unique;
        struct fake_row *row = fake_find(&key);

        fake_text(fake_field(params, 5, i), value);
        unique = fake_unique_find(&key, value);
        if (unique != NULL && unique->is_folded) {
            continue;
        }
        assert_non_null(row);
        row->cells[FAKE_UNIQUES].number++;
        if (unique != NULL) {
            row->cells[FAKE_LATE + FAKE_UNIQUES].number--;
        } else {
            unique = fake_unique_add(&key, value);
        }
        unique->is_folded = true;
    }
}

static void
fake_ensure(const struct pg_params *params)
{
    for (size_t i = 0; i < fake_count(params, 0); i++) {
        struct fake_key key = fake_key(params, 0, NULL, i);
        char groups[FAKE_TEXT_SIZE];

        fake_text(fake_field(params, 5, i), groups);
        if (fake_find(&key) == NULL) {
            fake_add(&key, groups);
        }
    }
}

static void
fake_put_cell(struct buf *out, int column, const struct fake_cell *cell)
{
    bool is_numeric = column <= FAKE_LAST && column != FAKE_COUNT;

    if (!cell->is_set) {
        pg_put_null(out);
    } else if (column == FAKE_LAST_WRITER) {
        pg_put_uuid(out, cell->uuid);
    } else if (is_numeric) {
        pg_put_numeric(out, (struct meter_decimal){cell->number});
    } else {
        pg_put_int8(out, (int64_t)cell->number);
    }
}

static void
fake_lock(const struct pg_params *params, PGresult *result)
{
    char tenant[FAKE_TEXT_SIZE] = {0};
    struct fake_key before;
    struct buf field;
    int found = 0;

    buf_init(&field, 1024);
    memcpy(tenant, fake_param(params, 0), (size_t)params->size[0]);
    for (size_t i = 0; i < fake_count(params, 1); i++) {
        struct fake_key key = fake_key(params, 1, tenant, i);
        const struct fake_row *row = fake_find(&key);

        if (i > 0) {
            fake_check_order(&before, &key);
        }
        before = key;
        assert_non_null(row);
        if (fake_lost > 0 && i + 1 == fake_count(params, 1)) {
            fake_lost--;
            continue;
        }
        pg_put_int4(&field, (int32_t)fake_u32(fake_field(params, 5, i).data));
        fake_set(result, found, 0, &field);
        pg_put_text(&field, str_of(row->groups));
        fake_set(result, found, 1, &field);
        for (int j = 0; j < FAKE_COLUMNS; j++) {
            int like = j == FAKE_MANUAL     ? FAKE_SUM
                       : j > FAKE_WATERMARK ? j - FAKE_LATE
                                            : j;

            fake_put_cell(&field, like, &row->cells[j]);
            fake_set(result, found, 2 + j, &field);
        }
        found++;
    }
    buf_fini(&field);
}

static void
fake_unique_read(const struct pg_params *params, PGresult *result)
{
    struct buf field;
    int found = 0;

    buf_init(&field, 64);
    for (size_t i = 0; i < fake_count(params, 0); i++) {
        struct fake_key key = fake_key(params, 0, NULL, i);
        char value[FAKE_TEXT_SIZE];
        const struct fake_unique *unique;

        fake_text(fake_field(params, 5, i), value);
        unique = fake_unique_find(&key, value);
        if (unique != NULL) {
            pg_put_int4(&field,
                        (int32_t)fake_u32(fake_field(params, 6, i).data));
            fake_set(result, found, 0, &field);
            pg_put_bool(&field, unique->is_folded);
            fake_set(result, found++, 1, &field);
        }
    }
    buf_fini(&field);
}

/* Ten parameters from `param` on, as cells from `cells` on. */
static void
fake_write_sums(const struct pg_params *params, int param, size_t i,
                struct fake_cell *cells)
{
    for (int j = 0; j <= FAKE_UNIQUES; j++) {
        struct fake_field field = fake_field(params, param + j, i);

        cells[j] = j == FAKE_LAST_WRITER ? fake_cell_uuid(field)
                   : j <= FAKE_LAST && j != FAKE_COUNT
                       ? fake_cell_numeric(field)
                       : fake_cell_int(field);
    }
}

static void
fake_write(const struct pg_params *params)
{
    for (size_t i = 0; i < fake_count(params, 0); i++) {
        struct fake_key key = fake_key(params, 0, NULL, i);
        struct fake_row *row = fake_find(&key);

        assert_non_null(row);
        fake_write_sums(params, 5, i, row->cells);
        row->cells[FAKE_WATERMARK] = fake_cell_int(fake_field(params, 15, i));
        fake_write_sums(params, 16, i, row->cells + FAKE_LATE);
    }
    snprintf(fake_affected, sizeof(fake_affected), "%zu",
             fake_count(params, 0));
}

static void
fake_unique_write(const struct pg_params *params)
{
    for (size_t i = 0; i < fake_count(params, 0); i++) {
        struct fake_key key = fake_key(params, 0, NULL, i);
        char value[FAKE_TEXT_SIZE];
        struct fake_unique *unique;

        fake_text(fake_field(params, 5, i), value);
        unique = fake_unique_find(&key, value);
        if (unique == NULL) {
            unique = fake_unique_add(&key, value);
        }
        unique->is_folded = fake_field(params, 6, i).data[0] != 0;
    }
    snprintf(fake_affected, sizeof(fake_affected), "%zu",
             fake_count(params, 0));
}

static void
fake_adjust(const struct pg_params *params)
{
    struct fake_field recorded = {fake_param(params, 16), 8};

    for (size_t i = 0; i < fake_count(params, 0); i++) {
        struct fake_adjustment *row =
            &fake.adjustments[fake.adjustment_count++];

        assert_true(fake.adjustment_count <= FAKE_ROWS_MAX);
        memset(row, 0, sizeof(*row));
        row->key = fake_key(params, 0, NULL, i);
        fake_text(fake_field(params, 5, i), row->groups);
        fake_text(fake_field(params, 6, i), row->id);
        row->amount = fake_cell_numeric(fake_field(params, 7, i));
        fake_text(fake_field(params, 8, i), row->reason);
        row->ts = fake_int8(fake_field(params, 9, i));
        row->value = fake_cell_numeric(fake_field(params, 10, i));
        row->sum = fake_cell_numeric(fake_field(params, 11, i));
        row->count = fake_int8(fake_field(params, 12, i));
        fake_text(fake_field(params, 13, i), row->unique_value);
        row->writer_seq = fake_int8(fake_field(params, 14, i));
        row->recorded = fake_int8(recorded);
    }
    snprintf(fake_affected, sizeof(fake_affected), "%zu",
             fake_count(params, 0));
}

/* Runs a statement; the result is the caller's. */
static PGresult *
fake_run(const struct projection_query *query)
{
    const struct pg_params *params = query->params;
    PGresult *result = fake_result(2 + FAKE_COLUMNS);

    fake_affected[0] = '\0';
    switch (query->statement) {
    case STATEMENT_METER_CLOSED: fake_closed(params, result); break;
    case STATEMENT_METER_UPSERT: fake_upsert(params); break;
    case STATEMENT_METER_UNIQUE_FOLD: fake_unique_fold(params); break;
    case STATEMENT_METER_ENSURE: fake_ensure(params); break;
    case STATEMENT_METER_LOCK: fake_lock(params, result); break;
    case STATEMENT_METER_UNIQUE_READ: fake_unique_read(params, result); break;
    case STATEMENT_METER_WRITE: fake_write(params); break;
    case STATEMENT_METER_UNIQUE_WRITE: fake_unique_write(params); break;
    case STATEMENT_METER_ADJUSTMENT_INSERT: fake_adjust(params); break;
    default: fail_msg("no meter statement: %d", (int)query->statement);
    }
    return result;
}

#endif
