/*
 * member.h - members of the JSON objects that answers are made of.
 *
 *   name, value                    -> [member_string, member_time, ...]
 *   table of columns, row          -> [members_of_row]
 */

#ifndef API_MEMBER_H
#define API_MEMBER_H

#include "base/json_writer.h"
#include "meter_decimal.h"

/* data NULL: null. */
void member_string(struct json_writer *json, const char *name,
                   struct meter_str value);
void member_text(struct json_writer *json, const char *name, const char *value);
/* Bytes that are JSON already. */
void
member_raw(struct json_writer *json, const char *name, struct meter_str value);
void member_int(struct json_writer *json, const char *name, int64_t value);
/* A 64-bit number as a string. */
void
member_int_string(struct json_writer *json, const char *name, int64_t value);
void member_bool(struct json_writer *json, const char *name, bool value);
void member_time(struct json_writer *json, const char *name, int64_t ts_us);
/* A decimal as a string, or null. */
void member_decimal(struct json_writer *json, const char *name, bool has_value,
                    struct meter_decimal value);

/* What a column holds, and so how it is shown; NULL is null. */
enum member_kind {
    MEMBER_STRING,
    MEMBER_RAW,
    MEMBER_INT,
    MEMBER_INT_STRING,
    MEMBER_TIME,
    MEMBER_NUMERIC /* fits a meter_decimal */
};

struct member {
    const char *name;
    enum member_kind kind;
    int column;
};

void members_of_row(struct json_writer *json, const struct member *members,
                    size_t count, const void *rows, int row);

#define MEMBERS_OF_ROW(json, table, rows, row)                          \
    members_of_row((json), (table), sizeof(table) / sizeof((table)[0]), \
                   (rows), (row))

#endif
