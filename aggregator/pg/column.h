/*
 * column.h - rows of a struct as array parameters and COPY rows.
 *
 *   static const struct pg_column key_columns[] = {
 *       PG_COLUMN(TEXT, struct row, tenant),
 *       PG_COLUMN(TIME, struct row, start_us, .null_if = ROW_NEVER),
 *   };
 *
 * A table says which members become which columns; the order of the table is
 * the order of the parameters. One array for each column, all of one length.
 */

#ifndef PG_COLUMN_H
#define PG_COLUMN_H

#include "pg/param.h"

#include <stddef.h>

/* What a member is in C, and so what its column is. */
enum pg_field {
    PG_FIELD_TEXT,    /* struct meter_str; NULL data: NULL */
    PG_FIELD_BYTES,   /* struct meter_str; likewise */
    PG_FIELD_DIGEST,  /* an array of bytes, .size of them */
    PG_FIELD_UUID,    /* uint8_t[16] */
    PG_FIELD_INT8,    /* int64_t */
    PG_FIELD_INT4,    /* int32_t, or an enum */
    PG_FIELD_INT2,    /* int16_t */
    PG_FIELD_BOOL,    /* bool */
    PG_FIELD_TIME,    /* int64_t, microseconds since 1970 */
    PG_FIELD_DATE,    /* int32_t, days since 1970 */
    PG_FIELD_NUMERIC, /* struct meter_decimal */
    PG_FIELD_SUM      /* struct decimal_sum */
};

struct pg_column {
    enum pg_field field;
    uint16_t size;     /* of a DIGEST */
    bool is_nullable;  /* null_if counts */
    bool is_optional;  /* has_offset counts */
    size_t offset;     /* of the member */
    size_t has_offset; /* of a bool of the row: false is NULL */
    int64_t null_if;   /* INT8, INT4, TIME, DATE: this value is NULL */
};

#define PG_COLUMN(kind, type, member)                                        \
    {                                                                        \
        .field = PG_FIELD_##kind, .size = sizeof(((const type *)0)->member), \
        .offset = offsetof(type, member),                                    \
    }
/* NULL where the member has this value. */
#define PG_COLUMN_NULL_IF(kind, type, member, value)                         \
    {                                                                        \
        .field = PG_FIELD_##kind, .size = sizeof(((const type *)0)->member), \
        .offset = offsetof(type, member), .is_nullable = true,               \
        .null_if = (value),                                                  \
    }
/* NULL where the bool `has` of the row is false. */
#define PG_COLUMN_IF(kind, type, member, has)                                \
    {                                                                        \
        .field = PG_FIELD_##kind, .size = sizeof(((const type *)0)->member), \
        .offset = offsetof(type, member), .is_optional = true,               \
        .has_offset = offsetof(type, has),                                   \
    }

#define PG_COLUMN_COUNT(columns) (sizeof(columns) / sizeof((columns)[0]))

/*
 * Gives the rows one by one: *cursor starts at 0, NULL is the end. For rows
 * that are chosen from others, or lie behind pointers.
 */
typedef const void *(*pg_row_next)(const void *rows, size_t *cursor);

/* One array parameter for each column; next is called anew for each. */
void pg_param_columns(struct pg_params *params, const struct pg_column *columns,
                      size_t column_count, const void *rows, size_t row_count,
                      pg_row_next next);
/* The same for rows that lie one after the other. */
void pg_param_rows(struct pg_params *params, const struct pg_column *columns,
                   size_t column_count, const void *rows, size_t row_count,
                   size_t row_size);
/* The same for pointers to rows. */
void pg_param_pointers(struct pg_params *params,
                       const struct pg_column *columns, size_t column_count,
                       const void *const *rows, size_t row_count);

/* The fields of one row, for a COPY row that pg_copy_row has begun. */
void pg_put_columns(struct buf *out, const struct pg_column *columns,
                    size_t column_count, const void *row);

#endif
