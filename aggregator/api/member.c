/*
 * member.c - members of the JSON objects that answers are made of.
 *
 * Handlers of all resources call this between json_object_begin and
 * json_object_end. A table of members says which columns of a row an object
 * shows, in its order.
 */

#include "api/member.h"

#include "base/check.h"
#include "pg/param.h"

void
member_string(struct json_writer *json, const char *name,
              struct meter_str value)
{
    json_key(json, name);
    if (value.data == NULL) {
        json_null(json);
    } else {
        json_string(json, value);
    }
}

void
member_text(struct json_writer *json, const char *name, const char *value)
{
    json_key(json, name);
    json_text(json, value);
}

void
member_raw(struct json_writer *json, const char *name, struct meter_str value)
{
    json_key(json, name);
    json_raw(json, value);
}

void
member_int(struct json_writer *json, const char *name, int64_t value)
{
    json_key(json, name);
    json_int(json, value);
}

void
member_int_string(struct json_writer *json, const char *name, int64_t value)
{
    json_key(json, name);
    json_int_string(json, value);
}

void
member_bool(struct json_writer *json, const char *name, bool value)
{
    json_key(json, name);
    json_bool(json, value);
}

void
member_time(struct json_writer *json, const char *name, int64_t ts_us)
{
    json_key(json, name);
    json_time(json, ts_us);
}

void
member_decimal(struct json_writer *json, const char *name, bool has_value,
               struct meter_decimal value)
{
    char text[METER_DECIMAL_TEXT_SIZE + 1];

    json_key(json, name);
    if (!has_value) {
        json_null(json);
        return;
    }
    meter_decimal_format(value, text);
    json_text(json, text);
}

static void
member_of_row(struct json_writer *json, const struct member *member,
              const void *rows, int row)
{
    struct meter_decimal value;
    bool fits;

    switch (member->kind) {
    case MEMBER_STRING:
        member_string(json, member->name,
                      pg_get_bytes(rows, row, member->column));
        break;
    case MEMBER_RAW:
        member_raw(json, member->name, pg_get_bytes(rows, row, member->column));
        break;
    case MEMBER_INT:
        member_int(json, member->name, pg_get_int8(rows, row, member->column));
        break;
    case MEMBER_INT_STRING:
        member_int_string(json, member->name,
                          pg_get_int8(rows, row, member->column));
        break;
    case MEMBER_TIME:
        member_time(json, member->name, pg_get_time(rows, row, member->column));
        break;
    case MEMBER_NUMERIC:
        fits = pg_get_numeric(rows, row, member->column, &value);
        CHECK(fits);
        member_decimal(json, member->name, true, value);
        break;
    }
}

void
members_of_row(struct json_writer *json, const struct member *members,
               size_t count, const void *rows, int row)
{
    for (size_t i = 0; i < count; i++) {
        if (pg_is_null(rows, row, members[i].column)) {
            json_key(json, members[i].name);
            json_null(json);
        } else {
            member_of_row(json, &members[i], rows, row);
        }
    }
}
