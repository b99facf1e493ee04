/*
 * billing_fake.h - the tables of meters in memory.
 *
 *   binary parameters -> [fake] -> rows of plain numbers -> binary results
 *
 * billing_statements.h has the statements on them. A struct fake_database
 * is copied to begin and to roll back; compared as bytes once its rows are
 * sorted.
 */

#ifndef BILLING_FAKE_H
#define BILLING_FAKE_H

#include "json_fixture.h"

#include "meter_time.h"
#include "project/billing.h"

#include <endian.h>
#include <libpq-fe.h>

#define FAKE_ROWS_MAX  40
#define FAKE_TEXT_SIZE 160

/* Columns of meter_counter that the statements share. */
enum fake_column {
    FAKE_SUM,
    FAKE_COUNT,
    FAKE_MIN,
    FAKE_MAX,
    FAKE_LAST,
    FAKE_LAST_TS,
    FAKE_LAST_RECORDED,
    FAKE_LAST_WRITER,
    FAKE_LAST_SEQ,
    FAKE_UNIQUES,
    FAKE_WATERMARK,
    FAKE_LATE, /* ten more, as those above */
    FAKE_MANUAL = FAKE_LATE + 10,
    FAKE_COLUMNS
};

struct fake_cell {
    meter_int128 number; /* units, integer or instant of the server */
    uint8_t uuid[16];
    int64_t is_set;
    int64_t spare; /* no bytes between the members: rows compare as bytes */
};

struct fake_key {
    char tenant[FAKE_TEXT_SIZE];
    char metric[FAKE_TEXT_SIZE];
    int64_t period;
    char customer[FAKE_TEXT_SIZE];
    uint8_t group_key[METER_DIGEST_SIZE];
};

struct fake_row {
    struct fake_key key;
    char groups[FAKE_TEXT_SIZE];
    struct fake_cell cells[FAKE_COLUMNS];
};

struct fake_unique {
    struct fake_key key;
    char value[FAKE_TEXT_SIZE];
    int64_t is_folded;
};

struct fake_adjustment {
    struct fake_key key;
    char groups[FAKE_TEXT_SIZE];
    char id[FAKE_TEXT_SIZE];
    char reason[FAKE_TEXT_SIZE];
    char unique_value[FAKE_TEXT_SIZE];
    struct fake_cell amount;
    struct fake_cell value;
    struct fake_cell sum;
    int64_t ts;
    int64_t count;
    int64_t writer_seq;
    int64_t recorded;
};

struct fake_database {
    struct fake_row rows[FAKE_ROWS_MAX];
    struct fake_unique uniques[FAKE_ROWS_MAX];
    struct fake_adjustment adjustments[FAKE_ROWS_MAX];
    struct fake_key closes[FAKE_ROWS_MAX]; /* tenant, metric, period */
    size_t row_count;
    size_t unique_count;
    size_t adjustment_count;
    size_t close_count;
};

static struct fake_database fake;
static size_t fake_lost; /* rows that meter_lock does not find */
static char fake_affected[24];

/* libpq has no way to set it: the program's own stands before libpq's. */
char *
PQcmdTuples(PGresult *result)
{
    (void)result;
    return fake_affected;
}


/* ---- parameters and results ------------------------------------------ */

struct fake_field {
    const uint8_t *data; /* NULL: null */
    size_t size;
};

static uint32_t
fake_u32(const uint8_t *at)
{
    uint32_t wire;

    memcpy(&wire, at, sizeof(wire));
    return be32toh(wire);
}

static const uint8_t *
fake_param(const struct pg_params *params, int param)
{
    assert_false(params->bytes.failed);
    assert_true(param < params->count);
    return (const uint8_t *)params->bytes.data + params->offset[param];
}

/* Dimensions, nulls, type, count, lower bound, then the elements. */
static size_t
fake_count(const struct pg_params *params, int param)
{
    const uint8_t *at = fake_param(params, param);

    return fake_u32(at) == 0 ? 0 : fake_u32(at + 12);
}

static struct fake_field
fake_field(const struct pg_params *params, int param, size_t number)
{
    const uint8_t *at = fake_param(params, param) + 20;

    assert_true(number < fake_count(params, param));
    for (;; number--) {
        uint32_t size = fake_u32(at);
        struct fake_field field = {at + 4, size};

        if (size == UINT32_MAX) {
            field = (struct fake_field){NULL, 0};
        }
        if (number == 0) {
            return field;
        }
        at += 4 + field.size;
    }
}

static int64_t
fake_int8(struct fake_field field)
{
    uint64_t wire;

    assert_int_equal(field.size, sizeof(wire));
    memcpy(&wire, field.data, sizeof(wire));
    return (int64_t)be64toh(wire);
}

/* Groups of four digits; the first counts 10000^weight. */
static meter_int128
fake_numeric(struct fake_field field)
{
    int count = (field.data[0] << 8) + field.data[1];
    int weight = (int16_t)((field.data[2] << 8) + field.data[3]);
    meter_int128 units = 0;

    for (int i = 0; i < count; i++) {
        const uint8_t *group = field.data + 8 + 2 * i;
        meter_int128 part = (group[0] << 8) + group[1];
        int exponent = 4 * (weight - i) + METER_DECIMAL_FRACTION;

        for (; exponent > 0; exponent--) {
            part *= 10;
        }
        for (; exponent < 0; exponent++) {
            assert_int_equal((int)(part % 10), 0);
            part /= 10;
        }
        units += part;
    }
    return field.data[4] == 0x40 ? -units : units;
}

static struct fake_cell
fake_cell_numeric(struct fake_field field)
{
    struct fake_cell cell;

    memset(&cell, 0, sizeof(cell));
    if (field.data != NULL) {
        cell.is_set = true;
        cell.number = fake_numeric(field);
    }
    return cell;
}

static struct fake_cell
fake_cell_int(struct fake_field field)
{
    struct fake_cell cell;

    memset(&cell, 0, sizeof(cell));
    if (field.data != NULL) {
        cell.is_set = true;
        cell.number = fake_int8(field);
    }
    return cell;
}

static struct fake_cell
fake_cell_uuid(struct fake_field field)
{
    struct fake_cell cell;

    memset(&cell, 0, sizeof(cell));
    if (field.data != NULL) {
        assert_int_equal(field.size, sizeof(cell.uuid));
        cell.is_set = true;
        memcpy(cell.uuid, field.data, sizeof(cell.uuid));
    }
    return cell;
}

static void
fake_text(struct fake_field field, char out[FAKE_TEXT_SIZE])
{
    assert_true(field.size < FAKE_TEXT_SIZE);
    memset(out, 0, FAKE_TEXT_SIZE);
    if (field.data != NULL) {
        memcpy(out, field.data, field.size);
    }
}

/* The five columns of a key from param on; NULL tenant: it is a column. */
static struct fake_key
fake_key(const struct pg_params *params, int param, const char *tenant,
         size_t number)
{
    struct fake_key key;
    struct fake_field digest;

    memset(&key, 0, sizeof(key));
    if (tenant != NULL) {
        memcpy(key.tenant, tenant, strlen(tenant));
    } else {
        fake_text(fake_field(params, param++, number), key.tenant);
    }
    fake_text(fake_field(params, param, number), key.metric);
    key.period = fake_int8(fake_field(params, param + 1, number));
    fake_text(fake_field(params, param + 2, number), key.customer);
    digest = fake_field(params, param + 3, number);
    assert_int_equal(digest.size, sizeof(key.group_key));
    memcpy(key.group_key, digest.data, digest.size);
    return key;
}

/* Keys come sorted, each once. */
static void
fake_check_order(const struct fake_key *before, const struct fake_key *key)
{
    int order = strcmp(before->tenant, key->tenant);

    if (order == 0) {
        order = strcmp(before->metric, key->metric);
    }
    if (order == 0) {
        order = (before->period > key->period) - (before->period < key->period);
    }
    if (order == 0) {
        order = strcmp(before->customer, key->customer);
    }
    if (order == 0) {
        order = memcmp(before->group_key, key->group_key, METER_DIGEST_SIZE);
    }
    assert_true(order < 0 || projection_is_unsorted);
}

static struct fake_row *
fake_find(const struct fake_key *key)
{
    for (size_t i = 0; i < fake.row_count; i++) {
        if (memcmp(&fake.rows[i].key, key, sizeof(*key)) == 0) {
            return &fake.rows[i];
        }
    }
    return NULL;
}

static struct fake_row *
fake_add(const struct fake_key *key, const char *groups)
{
    struct fake_row *row = &fake.rows[fake.row_count++];

    assert_true(fake.row_count <= FAKE_ROWS_MAX);
    memset(row, 0, sizeof(*row));
    row->key = *key;
    memcpy(row->groups, groups, FAKE_TEXT_SIZE);
    row->cells[FAKE_SUM].is_set = true;
    row->cells[FAKE_COUNT].is_set = true;
    row->cells[FAKE_UNIQUES].is_set = true;
    return row;
}

static struct fake_unique *
fake_unique_find(const struct fake_key *key, const char *value)
{
    for (size_t i = 0; i < fake.unique_count; i++) {
        struct fake_unique *unique = &fake.uniques[i];

        if (memcmp(&unique->key, key, sizeof(*key)) == 0 &&
            strcmp(unique->value, value) == 0) {
            return unique;
        }
    }
    return NULL;
}

static struct fake_unique *
fake_unique_add(const struct fake_key *key, const char *value)
{
    struct fake_unique *unique = &fake.uniques[fake.unique_count++];

    assert_true(fake.unique_count <= FAKE_ROWS_MAX);
    memset(unique, 0, sizeof(*unique));
    unique->key = *key;
    memcpy(unique->value, value, FAKE_TEXT_SIZE);
    return unique;
}

static PGresult *
fake_result(int columns)
{
    static char name[] = "a";
    PGresAttDesc attributes[32];
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);

    memset(attributes, 0, sizeof(attributes));
    for (int i = 0; i < columns; i++) {
        attributes[i].name = name;
        attributes[i].format = 1;
    }
    assert_int_equal(PQsetResultAttrs(result, columns, attributes), 1);
    return result;
}

/* What a put function wrote, as a field of the result. */
static void
fake_set(PGresult *result, int row, int column, struct buf *field)
{
    int size = (int)fake_u32((const uint8_t *)field->data);

    assert_false(field->failed);
    assert_int_equal(PQsetvalue(result, row, column,
                                size < 0 ? NULL : field->data + 4, size),
                     1);
    buf_reset(field);
}

#endif
