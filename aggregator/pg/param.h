/*
 * param.h - binary parameters, arrays and COPY rows for PostgreSQL.
 *
 * One set of put functions per type writes the binary send format; the
 * same bytes serve as parameter, array element and COPY field.
 */

#ifndef PG_PARAM_H
#define PG_PARAM_H

#include "base/buf.h"
#include "base/decimal_sum.h"

#define PG_PARAM_COUNT_MAX 32
#define PG_PARAM_SIZE_MAX  (512u << 20) /* then bytes.failed */

/* Parameters of one statement: values lie in one buf, by offset. */
struct pg_params {
    struct buf bytes;
    size_t offset[PG_PARAM_COUNT_MAX];
    int size[PG_PARAM_COUNT_MAX]; /* -1: NULL */
    int count;
};

void pg_params_init(struct pg_params *params);
void pg_params_fini(struct pg_params *params);
void pg_params_reset(struct pg_params *params);

/* Text and bytes: NULL data is SQL NULL, as with the puts below. */
void pg_param_null(struct pg_params *params);
void pg_param_text(struct pg_params *params, struct meter_str value);
void pg_param_bytes(struct pg_params *params, struct meter_str value);
void pg_param_int8(struct pg_params *params, int64_t value);
void pg_param_int4(struct pg_params *params, int32_t value);
void pg_param_uuid(struct pg_params *params, const uint8_t uuid[16]);
void pg_param_time(struct pg_params *params, int64_t ts_us);
void pg_param_date(struct pg_params *params, int32_t day);

/* An array parameter: begin, put the elements, end. */
enum pg_type { /* OIDs of element types */
               PG_BOOL = 16,
               PG_BYTEA = 17,
               PG_INT8 = 20,
               PG_INT2 = 21,
               PG_INT4 = 23,
               PG_TEXT = 25,
               PG_DATE = 1082,
               PG_TIMESTAMPTZ = 1184,
               PG_NUMERIC = 1700,
               PG_UUID = 2950
};
void
pg_param_array_begin(struct pg_params *params, enum pg_type type, size_t count);
void pg_param_array_end(struct pg_params *params);

/* Fields with their length word, into an array or a COPY row. */
void pg_put_null(struct buf *out);
void pg_put_text(struct buf *out, struct meter_str value); /* NULL data: null */
void pg_put_bytes(struct buf *out, struct meter_str value);
void pg_put_int8(struct buf *out, int64_t value);
void pg_put_int4(struct buf *out, int32_t value);
void pg_put_int2(struct buf *out, int16_t value);
void pg_put_bool(struct buf *out, bool value);
void pg_put_uuid(struct buf *out, const uint8_t uuid[16]);
void pg_put_time(struct buf *out, int64_t ts_us);
void pg_put_date(struct buf *out, int32_t day);
void pg_put_numeric(struct buf *out, struct meter_decimal value);
void pg_put_sum(struct buf *out, struct decimal_sum sum);

/* A binary COPY stream: begin, rows of fields, end. */
void pg_copy_begin(struct buf *out);
void pg_copy_row(struct buf *out, int16_t field_count);
void pg_copy_end(struct buf *out);

/* A copy that outlives its answer; NULL: no memory. pg_rows_free takes NULL. */
MUST_CHECK void *pg_rows_copy(const void *result);
void pg_rows_free(void *rows);

/* Reading binary result fields (network order); row and column checked. */
int pg_row_count(const void *result);
/* Rows that an INSERT, UPDATE or DELETE touched. */
int64_t pg_affected(const void *result);
int64_t pg_get_int8(const void *result, int row, int column);
int32_t pg_get_int4(const void *result, int row, int column);
int64_t pg_get_time(const void *result, int row, int column);
int32_t pg_get_date(const void *result, int row, int column);
bool pg_get_bool(const void *result, int row, int column);
void pg_get_uuid(const void *result, int row, int column, uint8_t out[16]);
/* False: no finite number of 38 digits, 9 after the point; *out is as it was.
 */
MUST_CHECK bool pg_get_numeric(const void *result, int row, int column,
                               struct meter_decimal *out);
/* The same with as many digits as a sum may have. */
MUST_CHECK bool
pg_get_sum(const void *result, int row, int column, struct decimal_sum *out);
bool pg_is_null(const void *result, int row, int column);

/*
 * An array of one dimension, element by element. NULL is an empty one, and so
 * is one of more dimensions, which is none of ours.
 */
struct pg_array {
    const char *at;
    const char *end;
    size_t count; /* elements to come */
};
struct pg_array pg_get_array(const void *result, int row, int column);
/* count > 0. Bytes of the element; data NULL: it is NULL. */
struct meter_str pg_array_next(struct pg_array *array);
/* What elements hold. */
int64_t pg_int8_of(struct meter_str bytes);
int64_t pg_time_of(struct meter_str bytes);
MUST_CHECK bool pg_sum_of(struct meter_str bytes, struct decimal_sum *out);
struct meter_str pg_get_bytes(const void *result, int row, int column);

#endif
