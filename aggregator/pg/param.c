/*
 * param.c - binary parameters, arrays, COPY rows and result fields.
 *
 *   ingest, api, lane -> [pg_param] -> pg_conn -> server
 *
 * Everything here is the format of PostgreSQL's send and recv functions:
 * network byte order, instants as microseconds and days since 2000-01-01,
 * a length word (-1: NULL) before each array element and COPY field.
 */

#include "pg/param.h"

#include "meter_limits.h"

#include <libpq-fe.h>

#include <endian.h>
#include <stdlib.h>

/* 2000-01-01 against 1970-01-01. */
#define EPOCH_DAYS INT32_C(10957)
#define EPOCH_US   (INT64_C(86400000000) * EPOCH_DAYS)


/* ---- parameters ------------------------------------------------------- */

void
pg_params_init(struct pg_params *params)
{
    buf_init(&params->bytes, PG_PARAM_SIZE_MAX);
    params->count = 0;
}


void
pg_params_fini(struct pg_params *params)
{
    buf_fini(&params->bytes);
    params->count = 0;
}


void
pg_params_reset(struct pg_params *params)
{
    buf_reset(&params->bytes);
    params->count = 0;
}


static void
put_u16(struct buf *out, uint16_t value)
{
    uint16_t wire = htobe16(value);

    buf_put(out, &wire, sizeof(wire));
}


static void
put_u32(struct buf *out, uint32_t value)
{
    uint32_t wire = htobe32(value);

    buf_put(out, &wire, sizeof(wire));
}


static void
put_u64(struct buf *out, uint64_t value)
{
    uint64_t wire = htobe64(value);

    buf_put(out, &wire, sizeof(wire));
}


static void
param_begin(struct pg_params *params)
{
    CHECK(params->count < PG_PARAM_COUNT_MAX);

    params->offset[params->count] = params->bytes.size;
}


static void
param_end(struct pg_params *params)
{
    size_t begin = params->offset[params->count];

    /* A failed buf is empty; whoever sends the parameters looks at it. */
    params->size[params->count++] =
        params->bytes.failed ? 0 : (int)(params->bytes.size - begin);
}


void
pg_param_null(struct pg_params *params)
{
    param_begin(params);
    params->size[params->count++] = -1;
}


void
pg_param_text(struct pg_params *params, struct meter_str value)
{
    pg_param_bytes(params, value);
}


void
pg_param_bytes(struct pg_params *params, struct meter_str value)
{
    if (value.data == NULL) {
        pg_param_null(params);
        return;
    }
    param_begin(params);
    buf_put_str(&params->bytes, value);
    param_end(params);
}


void
pg_param_int8(struct pg_params *params, int64_t value)
{
    param_begin(params);
    put_u64(&params->bytes, (uint64_t)value);
    param_end(params);
}


void
pg_param_int4(struct pg_params *params, int32_t value)
{
    param_begin(params);
    put_u32(&params->bytes, (uint32_t)value);
    param_end(params);
}


void
pg_param_uuid(struct pg_params *params, const uint8_t uuid[16])
{
    param_begin(params);
    buf_put(&params->bytes, uuid, 16);
    param_end(params);
}


void
pg_param_time(struct pg_params *params, int64_t ts_us)
{
    pg_param_int8(params, ts_us - EPOCH_US);
}


void
pg_param_date(struct pg_params *params, int32_t day)
{
    pg_param_int4(params, day - EPOCH_DAYS);
}


/*
 *   dimensions | may hold NULLs | element type | count | lower bound | ...
 *
 * An empty array has no dimension, so nothing after the element type.
 */
void
pg_param_array_begin(struct pg_params *params, enum pg_type type, size_t count)
{
    CHECK(count <= INT32_MAX);

    param_begin(params);
    put_u32(&params->bytes, count > 0 ? 1 : 0);
    put_u32(&params->bytes, count > 0 ? 1 : 0);
    put_u32(&params->bytes, (uint32_t)type);
    if (count > 0) {
        put_u32(&params->bytes, (uint32_t)count);
        put_u32(&params->bytes, 1);
    }
}


void
pg_param_array_end(struct pg_params *params)
{
    param_end(params);
}


/* ---- fields ----------------------------------------------------------- */

void
pg_put_null(struct buf *out)
{
    put_u32(out, UINT32_MAX);
}


void
pg_put_text(struct buf *out, struct meter_str value)
{
    pg_put_bytes(out, value);
}


void
pg_put_bytes(struct buf *out, struct meter_str value)
{
    if (value.data == NULL) {
        pg_put_null(out);
        return;
    }
    CHECK(value.size <= INT32_MAX);
    put_u32(out, (uint32_t)value.size);
    buf_put_str(out, value);
}


void
pg_put_int8(struct buf *out, int64_t value)
{
    put_u32(out, 8);
    put_u64(out, (uint64_t)value);
}


void
pg_put_int4(struct buf *out, int32_t value)
{
    put_u32(out, 4);
    put_u32(out, (uint32_t)value);
}


void
pg_put_int2(struct buf *out, int16_t value)
{
    put_u32(out, 2);
    put_u16(out, (uint16_t)value);
}


void
pg_put_bool(struct buf *out, bool value)
{
    put_u32(out, 1);
    buf_put_byte(out, value);
}


void
pg_put_uuid(struct buf *out, const uint8_t uuid[16])
{
    put_u32(out, 16);
    buf_put(out, uuid, 16);
}


void
pg_put_time(struct buf *out, int64_t ts_us)
{
    pg_put_int8(out, ts_us - EPOCH_US);
}


void
pg_put_date(struct buf *out, int32_t day)
{
    pg_put_int4(out, day - EPOCH_DAYS);
}


void
pg_copy_begin(struct buf *out)
{
    static const char header[] = "PGCOPY\n\377\r\n";

    buf_put(out, header, sizeof(header)); /* its NUL belongs to it */
    put_u32(out, 0);                      /* flags */
    put_u32(out, 0);                      /* size of header extension */
}


void
pg_copy_row(struct buf *out, int16_t field_count)
{
    put_u16(out, (uint16_t)field_count);
}


void
pg_copy_end(struct buf *out)
{
    put_u16(out, UINT16_MAX);
}


/* ---- results ---------------------------------------------------------- */

void *
pg_rows_copy(const void *result)
{
    return PQcopyResult(result, PG_COPYRES_ATTRS | PG_COPYRES_TUPLES);
}


void
pg_rows_free(void *rows)
{
    PQclear(rows);
}


int
pg_row_count(const void *result)
{
    return PQntuples(result);
}


int64_t
pg_affected(const void *result)
{
    /* libpq does not write to it; its declaration is older than const. */
    return strtoll(PQcmdTuples((PGresult *)result), NULL, 10);
}


bool
pg_is_null(const void *result, int row, int column)
{
    CHECK(row >= 0 && row < PQntuples(result));
    CHECK(column >= 0 && column < PQnfields(result));
    return PQgetisnull(result, row, column) == 1;
}


struct meter_str
pg_get_bytes(const void *result, int row, int column)
{
    if (pg_is_null(result, row, column)) {
        return (struct meter_str){NULL, 0};
    }
    return (struct meter_str){PQgetvalue(result, row, column),
                              (size_t)PQgetlength(result, row, column)};
}


/* A value of just this size: statements and callers agree on types. */
static struct meter_str
result_field(const void *result, int row, int column, size_t size)
{
    struct meter_str bytes = pg_get_bytes(result, row, column);

    CHECK(bytes.data != NULL && bytes.size == size);
    return bytes;
}


int64_t
pg_int8_of(struct meter_str bytes)
{
    uint64_t wire;

    CHECK(bytes.size == sizeof(wire));
    memcpy(&wire, bytes.data, sizeof(wire));
    return (int64_t)be64toh(wire);
}


int64_t
pg_get_int8(const void *result, int row, int column)
{
    return pg_int8_of(pg_get_bytes(result, row, column));
}


int32_t
pg_get_int4(const void *result, int row, int column)
{
    uint32_t wire;

    memcpy(&wire, result_field(result, row, column, sizeof(wire)).data,
           sizeof(wire));
    return (int32_t)be32toh(wire);
}


int64_t
pg_get_time(const void *result, int row, int column)
{
    return pg_get_int8(result, row, column) + EPOCH_US;
}


int32_t
pg_get_date(const void *result, int row, int column)
{
    return pg_get_int4(result, row, column) + EPOCH_DAYS;
}


bool
pg_get_bool(const void *result, int row, int column)
{
    return *result_field(result, row, column, 1).data != 0;
}


void
pg_get_uuid(const void *result, int row, int column, uint8_t out[16])
{
    memcpy(out, result_field(result, row, column, 16).data, 16);
}


/* ---- arrays in results ------------------------------------------------ */

static uint32_t
array_take(struct pg_array *array)
{
    uint32_t wire;

    CHECK((size_t)(array->end - array->at) >= sizeof(wire));
    memcpy(&wire, array->at, sizeof(wire));
    array->at += sizeof(wire);
    return be32toh(wire);
}


/* Dimensions, whether there are NULLs, the type; of each: length and base. */
struct pg_array
pg_get_array(const void *result, int row, int column)
{
    struct meter_str bytes = pg_get_bytes(result, row, column);
    struct pg_array array = {NULL, NULL, 0};
    uint32_t dimensions;

    if (bytes.data == NULL) {
        return array;
    }
    array.at = bytes.data;
    array.end = bytes.data + bytes.size;
    dimensions = array_take(&array);
    (void)array_take(&array);
    (void)array_take(&array);
    if (dimensions == 1) {
        array.count = array_take(&array);
        (void)array_take(&array);
    }
    return array;
}


struct meter_str
pg_array_next(struct pg_array *array)
{
    struct meter_str bytes = {NULL, 0};
    int32_t size;

    CHECK(array->count > 0);
    array->count--;
    size = (int32_t)array_take(array);
    if (size < 0) {
        return bytes;
    }
    CHECK(array->end - array->at >= size);
    bytes = (struct meter_str){array->at, (size_t)size};
    array->at += size;
    return bytes;
}


int64_t
pg_time_of(struct meter_str bytes)
{
    return pg_int8_of(bytes) + EPOCH_US;
}


/* ---- numeric ---------------------------------------------------------- */

/*
 *   groups | weight | sign | scale | groups of four decimal digits ...
 *
 * The first group counts 10000^weight. Zero groups at either end are left
 * out, as the server stores them. What is put has a scale of 9; what is read
 * may have any.
 */
#define NUMERIC_BASE       10000
#define NUMERIC_NEGATIVE   0x4000
#define NUMERIC_FRACTION   3 /* groups of four digits after the point */
#define NUMERIC_GROUPS_MAX 19
#define NUMERIC_UNIT       UINT64_C(1000000000) /* 10^METER_DECIMAL_FRACTION */

/* Groups that come out of a sum at once: the most that 64 bits hold. */
#define NUMERIC_GROUPS_OF_PART 4
#define NUMERIC_PART           UINT64_C(10000000000000000)

_Static_assert(4 * (NUMERIC_GROUPS_MAX - NUMERIC_FRACTION) >=
                   DECIMAL_SUM_DIGITS + 1 - METER_DECIMAL_FRACTION +
                       4 * (NUMERIC_GROUPS_OF_PART - 1),
               "191 bits have room");


static uint16_t
numeric_word(const char *at)
{
    uint16_t wire;

    memcpy(&wire, at, sizeof(wire));
    return be16toh(wire);
}


void
pg_put_sum(struct buf *out, struct decimal_sum sum)
{
    bool negative;
    struct decimal_sum whole = decimal_sum_magnitude(sum, &negative);
    uint64_t part = decimal_sum_cut(&whole, NUMERIC_UNIT) * 1000;
    uint16_t groups[NUMERIC_GROUPS_MAX];
    int first = NUMERIC_GROUPS_MAX;
    int last = NUMERIC_GROUPS_MAX;

    for (int i = 0; i < NUMERIC_FRACTION; i++) {
        groups[--first] = (uint16_t)(part % NUMERIC_BASE);
        part /= NUMERIC_BASE;
    }
    while (!decimal_sum_is_zero(whole)) {
        CHECK(first >= NUMERIC_GROUPS_OF_PART);
        part = decimal_sum_cut(&whole, NUMERIC_PART);
        for (int i = 0; i < NUMERIC_GROUPS_OF_PART; i++) {
            groups[--first] = (uint16_t)(part % NUMERIC_BASE);
            part /= NUMERIC_BASE;
        }
    }
    while (first < last && groups[first] == 0) {
        first++;
    }
    while (last > first && groups[last - 1] == 0) {
        last--;
    }

    bool zero = first == last;
    int weight = NUMERIC_GROUPS_MAX - NUMERIC_FRACTION - 1 - first;

    put_u16(out, 0);
    put_u16(out, (uint16_t)(8 + 2 * (last - first)));
    put_u16(out, (uint16_t)(last - first));
    put_u16(out, (uint16_t)(zero ? 0 : weight));
    put_u16(out, negative ? NUMERIC_NEGATIVE : 0);
    put_u16(out, METER_DECIMAL_FRACTION);
    for (int i = first; i < last; i++) {
        put_u16(out, groups[i]);
    }
}


void
pg_put_numeric(struct buf *out, struct meter_decimal value)
{
    pg_put_sum(out, decimal_sum_of(value));
}


/* Of the last group only the first digit is a decimal that is kept. */
static bool
numeric_group_append(struct decimal_sum *sum, uint16_t group, int weight)
{
    if (weight > -NUMERIC_FRACTION) {
        return decimal_sum_append(sum, NUMERIC_BASE, group);
    }
    if (weight == -NUMERIC_FRACTION) {
        return group % 1000 == 0 && decimal_sum_append(sum, 10, group / 1000);
    }
    return group == 0;
}


/*
 * Groups after the ninth decimal may only hold zeros; NaN and the infinities
 * are other signs.
 */
bool
pg_sum_of(struct meter_str bytes, struct decimal_sum *out)
{
    CHECK(bytes.data != NULL && bytes.size >= 8);

    int count = numeric_word(bytes.data);
    int weight = (int16_t)numeric_word(bytes.data + 2);
    uint16_t sign = numeric_word(bytes.data + 4);
    struct decimal_sum sum = {{0}};

    CHECK(bytes.size == 8 + 2 * (size_t)count);
    if (sign != 0 && sign != NUMERIC_NEGATIVE) {
        return false;
    }
    for (int i = 0; i < count; i++, weight--) {
        uint16_t group = numeric_word(bytes.data + 8 + 2 * i);

        CHECK(group < NUMERIC_BASE);
        if (!numeric_group_append(&sum, group, weight)) {
            return false;
        }
    }
    /* Groups that the server leaves out, down to the last decimal. */
    for (; weight >= -NUMERIC_FRACTION && !decimal_sum_is_zero(sum); weight--) {
        if (!numeric_group_append(&sum, 0, weight)) {
            return false;
        }
    }
    *out = sign == NUMERIC_NEGATIVE ? decimal_sum_negate(sum) : sum;
    return true;
}


static bool
numeric_of(struct meter_str bytes, struct meter_decimal *out)
{
    struct decimal_sum sum;

    return pg_sum_of(bytes, &sum) && decimal_sum_decimal(sum, out);
}


bool
pg_get_sum(const void *result, int row, int column, struct decimal_sum *out)
{
    return pg_sum_of(pg_get_bytes(result, row, column), out);
}


bool
pg_get_numeric(const void *result, int row, int column,
               struct meter_decimal *out)
{
    return numeric_of(pg_get_bytes(result, row, column), out);
}
