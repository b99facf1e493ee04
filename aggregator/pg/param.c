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

static void param_begin(struct pg_params *params);
static void param_end(struct pg_params *params);
static void put_u16(struct buf *out, uint16_t value);
static void put_u32(struct buf *out, uint32_t value);
static void put_u64(struct buf *out, uint64_t value);
static const char *field(const void *result, int row, int column, size_t size);


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


int64_t
pg_get_int8(const void *result, int row, int column)
{
    uint64_t wire;

    memcpy(&wire, field(result, row, column, sizeof(wire)), sizeof(wire));
    return (int64_t)be64toh(wire);
}


int32_t
pg_get_int4(const void *result, int row, int column)
{
    uint32_t wire;

    memcpy(&wire, field(result, row, column, sizeof(wire)), sizeof(wire));
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
    return *field(result, row, column, 1) != 0;
}


void
pg_get_uuid(const void *result, int row, int column, uint8_t out[16])
{
    memcpy(out, field(result, row, column, 16), 16);
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
static const char *
field(const void *result, int row, int column, size_t size)
{
    CHECK(!pg_is_null(result, row, column));
    CHECK((size_t)PQgetlength(result, row, column) == size);
    return PQgetvalue(result, row, column);
}


static uint32_t
take_u32(struct pg_array *array)
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
    dimensions = take_u32(&array);
    CHECK(dimensions <= 1);
    (void)take_u32(&array);
    (void)take_u32(&array);
    if (dimensions == 1) {
        array.count = take_u32(&array);
        (void)take_u32(&array);
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
    size = (int32_t)take_u32(array);
    if (size < 0) {
        return bytes;
    }
    CHECK(array->end - array->at >= size);
    bytes = (struct meter_str){array->at, (size_t)size};
    array->at += size;
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
pg_time_of(struct meter_str bytes)
{
    return pg_int8_of(bytes) + EPOCH_US;
}
