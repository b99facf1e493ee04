/*
 * search.h - which stored events are asked for, and how to come by them. Pure.
 *
 *   body of POST /v1/search -> [search_read] -> terms, range, drive
 *   stored event -> [search_matches] -> yes or no
 *
 * Terms under `where` name attributes that are indexed for the type, those
 * under `filter` any. One term of `where` drives: it says which rows of the
 * index, or else of the ledger, hold all events that can match. That only
 * prunes, values of the index are cut: every term decides on the event.
 *
 * A value is a text, a number or a boolean. Numbers are compared as exact
 * decimals, texts by their bytes; values of two kinds are never equal and
 * never ordered. An attribute that is missing or null matches `exists: false`
 * and `ne` alone; so does an object or an array `ne`, but it exists.
 */

#ifndef QUERY_SEARCH_H
#define QUERY_SEARCH_H

#include "base/arena.h"
#include "base/json_reader.h"
#include "config/catalog.h"

#define SEARCH_TERMS_MAX 32
#define SEARCH_IN_MAX    1000

/* Members of the body that say what is asked for. */
enum search_member {
    SEARCH_MEMBER_TYPE,
    SEARCH_MEMBER_FROM,
    SEARCH_MEMBER_TO,
    SEARCH_MEMBER_CUSTOMER,
    SEARCH_MEMBER_RESOURCE,
    SEARCH_MEMBER_WHERE,
    SEARCH_MEMBER_FILTER,
    SEARCH_MEMBERS
};

enum search_operator {
    SEARCH_EQ,
    SEARCH_NE,
    SEARCH_IN,
    SEARCH_LT,
    SEARCH_LTE,
    SEARCH_GT,
    SEARCH_GTE,
    SEARCH_EXISTS,
    SEARCH_PREFIX,
    SEARCH_OPERATORS
};

struct search_term {
    struct attribute_path path;
    enum search_operator operator;
    const struct json_value *value; /* of IN: an array */
    bool is_where;
};

enum search_drive_kind {
    SEARCH_DRIVE_LEDGER, /* all events of the range */
    SEARCH_DRIVE_VALUES, /* index entries with one of the values */
    SEARCH_DRIVE_RANGE   /* index entries from low on, below high */
};

struct search_drive {
    enum search_drive_kind kind;
    struct meter_str attribute;
    struct meter_str *values; /* as in the index, ascending, each once */
    size_t value_count;
    struct meter_str low; /* as in the index */
    struct meter_str high;
    struct meter_str number_low; /* lexemes, inclusive; data NULL: none */
    struct meter_str number_high;
};

struct search {
    struct meter_str type; /* as the next two: data NULL: any */
    struct meter_str customer;
    struct meter_str resource;
    int64_t from_us; /* [from, to) */
    int64_t to_us;
    struct search_term terms[SEARCH_TERMS_MAX];
    size_t term_count;
    struct search_drive drive;
};

/* What is looked at of a stored event. */
struct search_event {
    struct meter_str type;
    struct meter_str customer; /* data NULL: none; resource likewise */
    struct meter_str resource;
    const struct json_value *attributes; /* an object */
};

/* "type", "from", ...: by search_member. */
extern const char *const search_member_names[SEARCH_MEMBERS];

/*
 * values are by enum search_member, NULL: absent; they must outlive out, as
 * must the arena. False: *error is a sentence for a 400.
 */
MUST_CHECK bool
search_read(const struct catalog *catalog,
            const struct json_value *const *values, struct arena *arena,
            struct search *out, const char **error);

bool
search_matches(const struct search *search, const struct search_event *event);

#endif
