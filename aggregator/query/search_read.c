/*
 * search_read.c - members of the body to a search, see search.h.
 *
 *   {"type", "from", "to", "customer", "resource"} -> [members_read]
 *   {"where", "filter": {attribute: value | {operator: value, ...}}}
 *       -> [terms_read] -> terms
 */

#include "query/search.h"

#include "base/reason.h"
#include "meter_limits.h"
#include "meter_time.h"

static const char *const member_names[SEARCH_MEMBERS] = {
    [SEARCH_MEMBER_TYPE] = "type",
    [SEARCH_MEMBER_FROM] = "from",
    [SEARCH_MEMBER_TO] = "to",
    [SEARCH_MEMBER_CUSTOMER] = "customer",
    [SEARCH_MEMBER_RESOURCE] = "resource",
    [SEARCH_MEMBER_WHERE] = "where",
    [SEARCH_MEMBER_FILTER] = "filter",
};

static const char *const operator_names[SEARCH_OPERATORS] = {
    [SEARCH_EQ] = "eq",         [SEARCH_NE] = "ne",
    [SEARCH_IN] = "in",         [SEARCH_LT] = "lt",
    [SEARCH_LTE] = "lte",       [SEARCH_GT] = "gt",
    [SEARCH_GTE] = "gte",       [SEARCH_EXISTS] = "exists",
    [SEARCH_PREFIX] = "prefix",
};

/* What reading needs at hand. */
struct reading {
    const struct event_type *type; /* NULL: none is asked for */
    struct arena *arena;
    struct search *out;
};

static const char no_memory[] = "the search takes too much memory";

const char *
search_member_name(enum search_member member)
{
    return member_names[member];
}

const char *search_operator_name(enum search_operator operator)
{
    return operator_names[operator];
}


/* ---- values ---------------------------------------------------------- */

static bool
is_scalar(const struct json_value *value)
{
    return value->kind == JSON_FALSE || value->kind == JSON_TRUE ||
           value->kind == JSON_NUMBER || value->kind == JSON_STRING;
}

/* NULL, or what is wrong with the list. */
static const char *
list_wrong(const struct json_value *list)
{
    if (list->kind != JSON_ARRAY) {
        return "takes a list";
    }
    if (list->count == 0 || list->count > SEARCH_IN_MAX) {
        return "takes 1 to 1000 values";
    }
    for (uint32_t i = 0; i < list->count; i++) {
        if (!is_scalar(&list->items[i])) {
            return "takes texts, numbers and booleans";
        }
    }
    return NULL;
}

_Static_assert(SEARCH_IN_MAX == 1000, "the sentence says 1000");

/* NULL, or what is wrong with the value of the operator. */
static const char *
value_wrong(enum search_operator operator, const struct json_value * value)
{
    switch (operator) {
    case SEARCH_EQ:
    case SEARCH_NE:
        return is_scalar(value)
                   ? NULL
                   : "takes a text, a number or a boolean; \"exists\" asks "
                     "for a missing one";
    case SEARCH_IN: return list_wrong(value);
    case SEARCH_LT:
    case SEARCH_LTE:
    case SEARCH_GT:
    case SEARCH_GTE:
        return value->kind == JSON_NUMBER || value->kind == JSON_STRING
                   ? NULL
                   : "takes a number or a text";
    case SEARCH_EXISTS:
        return value->kind == JSON_TRUE || value->kind == JSON_FALSE
                   ? NULL
                   : "takes true or false";
    case SEARCH_PREFIX:
        return value->kind == JSON_STRING ? NULL : "takes a text";
    case SEARCH_OPERATORS: break;
    }
    return "is unknown";
}

static enum search_operator
operator_find(struct meter_str name)
{
    int i = 0;

    while (
        i < SEARCH_OPERATORS &&
        !meter_str_equal(name, (struct meter_str){operator_names[i],
                                                  strlen(operator_names[i])})) {
        i++;
    }
    return (enum search_operator)i;
}


/* ---- terms ----------------------------------------------------------- */

/*
 * As rules name attributes: cut at its dots. A name that is no path, because
 * it begins or ends with a dot or has two in a row, is that of a key.
 */
static bool
path_make(struct meter_str name, struct arena *arena,
          struct attribute_path *out)
{
    struct meter_str *segments;
    size_t count = 1;
    size_t start = 0;

    for (size_t i = 0; i < name.size; i++) {
        count += name.data[i] == '.';
    }
    segments = arena_alloc(arena, count * sizeof(*segments));
    if (segments == NULL) {
        return false;
    }
    *out = (struct attribute_path){name, segments, 1};
    count = 0;
    for (size_t i = 0; i <= name.size; i++) {
        if (i < name.size && name.data[i] != '.') {
            continue;
        }
        if (i == start) {
            segments[0] = name;
            return true;
        }
        segments[count++] = (struct meter_str){name.data + start, i - start};
        start = i + 1;
    }
    out->segment_count = count;
    return true;
}

/* The path as the rules have it, which is the one that was indexed. */
static const struct attribute_path *
indexed_find(const struct event_type *type, struct meter_str name)
{
    for (size_t i = 0; type != NULL && i < type->indexed.count; i++) {
        if (meter_str_equal(type->indexed.items[i].name, name)) {
            return &type->indexed.items[i];
        }
    }
    return NULL;
}

static const char *
term_add(struct reading *reading, const struct search_term *term)
{
    struct search *out = reading->out;
    const char *wrong = value_wrong(term->operator, term->value);

    if (wrong != NULL) {
        return reason_format(reading->arena, "attribute %s: \"%s\" %s",
                             reason_quote(term->path.name).text,
                             operator_names[term->operator], wrong);
    }
    if (out->term_count == SEARCH_TERMS_MAX) {
        return "where and filter have more than 32 conditions";
    }
    out->terms[out->term_count++] = *term;
    return NULL;
}

_Static_assert(SEARCH_TERMS_MAX == 32, "the sentence says 32");

/* {operator: value, ...}: each is a term. */
static const char *
operators_read(struct reading *reading, struct search_term *term,
               const struct json_value *object)
{
    const char *error = NULL;

    if (object->count == 0) {
        return reason_format(reading->arena, "attribute %s has no operator",
                             reason_quote(term->path.name).text);
    }
    for (uint32_t i = 0; i < object->count && error == NULL; i++) {
        term->operator= operator_find(object->members[i].name);
        term->value = &object->members[i].value;
        if (term->operator== SEARCH_OPERATORS) {
            return reason_format(reading->arena,
                                 "attribute %s: unknown operator %s",
                                 reason_quote(term->path.name).text,
                                 reason_quote(object->members[i].name).text);
        }
        error = term_add(reading, term);
    }
    return error;
}

static const char *
term_read(struct reading *reading, const struct json_member *member,
          bool is_where)
{
    struct search_term term = {.operator= SEARCH_EQ, .is_where = is_where};
    const struct attribute_path *indexed;

    if (is_where) {
        indexed = indexed_find(reading->type, member->name);
        if (indexed == NULL) {
            return reason_format(reading->arena,
                                 "attribute %s is not indexed for type %s; "
                                 "\"filter\" takes any attribute",
                                 reason_quote(member->name).text,
                                 reason_quote(reading->out->type).text);
        }
        term.path = *indexed;
    } else if (!path_make(member->name, reading->arena, &term.path)) {
        return no_memory;
    }
    if (member->value.kind == JSON_OBJECT) {
        return operators_read(reading, &term, &member->value);
    }
    term.value = &member->value;
    return term_add(reading, &term);
}

static const char *
terms_read(struct reading *reading, const struct json_value *object,
           enum search_member member)
{
    const char *error = NULL;

    if (object == NULL) {
        return NULL;
    }
    if (object->kind != JSON_OBJECT) {
        return reason_format(reading->arena, "%s must be an object",
                             member_names[member]);
    }
    if (member == SEARCH_MEMBER_WHERE && object->count > 0 &&
        reading->out->type.data == NULL) {
        return "where needs a type: attributes are indexed by type";
    }
    for (uint32_t i = 0; i < object->count && error == NULL; i++) {
        error = term_read(reading, &object->members[i],
                          member == SEARCH_MEMBER_WHERE);
    }
    return error;
}


/* ---- members --------------------------------------------------------- */

static const char *
time_read(struct reading *reading, const struct json_value *value,
          enum search_member member, int64_t *ts_us)
{
    const char *name = member_names[member];

    if (value == NULL) {
        return NULL;
    }
    if (value->kind == JSON_STRING) {
        return meter_time_parse(value->text, ts_us)
                   ? NULL
                   : reason_format(reading->arena,
                                   "%s is not an RFC 3339 instant: %s", name,
                                   reason_quote(value->text).text);
    }
    if (value->kind == JSON_NUMBER) {
        return meter_time_parse_epoch(value->text, ts_us)
                   ? NULL
                   : reason_format(reading->arena,
                                   "%s is outside the years 0001 to 9999: %s",
                                   name, reason_quote(value->text).text);
    }
    return reason_format(reading->arena,
                         "%s must be an RFC 3339 string or an epoch number",
                         name);
}

static const char *
text_read(struct reading *reading, const struct json_value *value,
          enum search_member member, size_t size_max, struct meter_str *out)
{
    const char *name = member_names[member];

    if (value == NULL) {
        return NULL;
    }
    if (value->kind != JSON_STRING || value->text.size == 0) {
        return reason_format(reading->arena, "%s must be a text", name);
    }
    if (value->text.size > size_max) {
        return reason_format(reading->arena, "%s is longer than %zu bytes",
                             name, size_max);
    }
    *out = value->text;
    return NULL;
}

static const char *
range_read(struct reading *reading, const struct json_value *const *values)
{
    struct search *out = reading->out;
    const char *error;

    out->from_us = METER_TIME_MIN;
    out->to_us = METER_TIME_MAX + 1;
    error = time_read(reading, values[SEARCH_MEMBER_FROM], SEARCH_MEMBER_FROM,
                      &out->from_us);
    if (error == NULL) {
        error = time_read(reading, values[SEARCH_MEMBER_TO], SEARCH_MEMBER_TO,
                          &out->to_us);
    }
    if (error == NULL && out->from_us >= out->to_us) {
        error = "from must be before to";
    }
    return error;
}

static const char *
members_read(struct reading *reading, const struct json_value *const *values)
{
    static const struct {
        enum search_member member;
        size_t size_max;
    } texts[] = {
        {SEARCH_MEMBER_TYPE, METER_TYPE_SIZE_MAX},
        {SEARCH_MEMBER_CUSTOMER, METER_CUSTOMER_SIZE_MAX},
        {SEARCH_MEMBER_RESOURCE, METER_RESOURCE_SIZE_MAX},
    };
    struct meter_str *outs[] = {&reading->out->type, &reading->out->customer,
                                &reading->out->resource};
    const char *error = range_read(reading, values);

    for (size_t i = 0; i < 3 && error == NULL; i++) {
        error = text_read(reading, values[texts[i].member], texts[i].member,
                          texts[i].size_max, outs[i]);
    }
    return error;
}

/* As for an event: a type that would be rejected has no events to find. */
static const char *
type_find(struct reading *reading, const struct catalog *catalog)
{
    struct meter_str name = reading->out->type;

    if (name.data == NULL) {
        return NULL;
    }
    reading->type = catalog_event_type(catalog, name);
    if (reading->type == NULL || meter_str_equal(name, METER_STR("*"))) {
        return reason_format(reading->arena, "unknown event type %s",
                             reason_quote(name).text);
    }
    return NULL;
}

bool
search_read(const struct catalog *catalog,
            const struct json_value *const *values, struct arena *arena,
            struct search *out, const char **error)
{
    struct reading reading = {.arena = arena, .out = out};

    *out = (struct search){.term_count = 0};
    *error = members_read(&reading, values);
    if (*error == NULL) {
        *error = type_find(&reading, catalog);
    }
    if (*error == NULL) {
        *error = terms_read(&reading, values[SEARCH_MEMBER_WHERE],
                            SEARCH_MEMBER_WHERE);
    }
    if (*error == NULL) {
        *error = terms_read(&reading, values[SEARCH_MEMBER_FILTER],
                            SEARCH_MEMBER_FILTER);
    }
    if (*error == NULL && !search_drive_choose(out, arena)) {
        *error = no_memory;
    }
    return *error == NULL;
}
