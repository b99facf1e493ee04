/*
 * search.c - which stored events are asked for, and how to come by them.
 *
 *   {"type", "from", "to", "customer", "resource"}                -+
 *   {"where", "filter": {attribute: value | {operator: value}}}   -+
 *       -> [search_read] -> terms, range, and the part of the index that
 *          holds all that can match, or else the ledger
 *   stored event -> [search_matches] -> yes or no
 *
 * api/event.c calls both. Values of the index are canonical JSON, cut, and
 * ordered by their bytes: texts begin with a quote, numbers with a minus or
 * a digit. The order of numbers is not that of their texts, so a range of
 * numbers goes through all of them, with bounds for the server to look at;
 * texts that begin alike lie together. `ne` and `exists` match events that
 * are not in the index.
 */

#include "query/search.h"

#include "base/reason.h"
#include "meter_decimal.h"
#include "meter_limits.h"
#include "meter_time.h"
#include "project/attribute.h"
#include "project/index.h"

#include <stdlib.h>

const char *const search_member_names[SEARCH_MEMBERS] = {
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

/* ---- numbers --------------------------------------------------------- */

/* Of two numbers above 0. */
static int
magnitude_compare(const struct meter_number *a, const struct meter_number *b)
{
    const char *a_at = a->digits;
    const char *b_at = b->digits;
    size_t common = a->count < b->count ? a->count : b->count;

    if (a->magnitude != b->magnitude) {
        return a->magnitude < b->magnitude ? -1 : 1;
    }
    for (size_t i = 0; i < common; i++) {
        int order = meter_number_digit(&a_at) - meter_number_digit(&b_at);

        if (order != 0) {
            return order;
        }
    }
    /* The last digit of the longer one is not zero. */
    return a->count < b->count ? -1 : a->count > b->count;
}

static int
number_sign(const struct meter_number *number)
{
    if (number->count == 0) {
        return 0;
    }
    return number->negative ? -1 : 1;
}

/* Two JSON numbers by value: below, at or above 0. */
static int
search_number_compare(struct meter_str a, struct meter_str b)
{
    struct meter_number left;
    struct meter_number right;
    int sign;
    bool are_numbers = meter_number_scan(a, METER_NUMBER_JSON, &left) &&
                       meter_number_scan(b, METER_NUMBER_JSON, &right);

    CHECK(are_numbers); /* lexemes of the JSON reader */
    sign = number_sign(&left);
    if (sign != number_sign(&right)) {
        return sign - number_sign(&right);
    }
    return sign * (sign == 0 ? 0 : magnitude_compare(&left, &right));
}


/* ---- whether an event matches ------------------------------------------- */

static bool
value_is_equal(const struct json_value *a, const struct json_value *b)
{
    if (a->kind != b->kind) {
        return false;
    }
    switch (a->kind) {
    case JSON_FALSE:
    case JSON_TRUE: return true;
    case JSON_NUMBER: return search_number_compare(a->text, b->text) == 0;
    case JSON_STRING: return meter_str_equal(a->text, b->text);
    case JSON_NULL:
    case JSON_ARRAY:
    case JSON_OBJECT: break;
    }
    return false;
}

static bool
value_is_in(const struct json_value *value, const struct json_value *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (value_is_equal(value, &list->items[i])) {
            return true;
        }
    }
    return false;
}

/* False: the two have no order. */
static bool
value_order(const struct json_value *a, const struct json_value *b, int *order)
{
    if (a->kind != b->kind) {
        return false;
    }
    if (a->kind == JSON_NUMBER) {
        *order = search_number_compare(a->text, b->text);
        return true;
    }
    if (a->kind == JSON_STRING) {
        *order = meter_str_compare(a->text, b->text);
        return true;
    }
    return false;
}

static bool
value_is_ordered(const struct json_value *value, const struct search_term *term)
{
    int order;

    if (!value_order(value, term->value, &order)) {
        return false;
    }
    switch (term->operator) {
    case SEARCH_LT: return order < 0;
    case SEARCH_LTE: return order <= 0;
    case SEARCH_GT: return order > 0;
    default: return order >= 0;
    }
}

static bool
value_has_prefix(const struct json_value *value, struct meter_str prefix)
{
    return value->kind == JSON_STRING && value->text.size >= prefix.size &&
           (prefix.size == 0 ||
            memcmp(value->text.data, prefix.data, prefix.size) == 0);
}

static bool
search_term_matches(const struct search_term *term,
                    const struct json_value *attributes)
{
    const struct json_value *value = attribute_find(attributes, &term->path);

    if (value == NULL || value->kind == JSON_NULL) {
        return term->operator== SEARCH_NE ||(term->operator== SEARCH_EXISTS &&
                                             term->value->kind == JSON_FALSE);
    }
    switch (term->operator) {
    case SEARCH_EQ: return value_is_equal(value, term->value);
    case SEARCH_NE: return !value_is_equal(value, term->value);
    case SEARCH_IN: return value_is_in(value, term->value);
    case SEARCH_LT:
    case SEARCH_LTE:
    case SEARCH_GT:
    case SEARCH_GTE: return value_is_ordered(value, term);
    case SEARCH_EXISTS: return term->value->kind == JSON_TRUE;
    case SEARCH_PREFIX: return value_has_prefix(value, term->value->text);
    case SEARCH_OPERATORS: break;
    }
    return false;
}

static bool
search_is_asked(struct meter_str asked, struct meter_str value)
{
    return asked.data == NULL ||
           (value.data != NULL && meter_str_equal(asked, value));
}

bool
search_matches(const struct search *search, const struct search_event *event)
{
    if (!search_is_asked(search->type, event->type) ||
        !search_is_asked(search->customer, event->customer) ||
        !search_is_asked(search->resource, event->resource)) {
        return false;
    }
    for (size_t i = 0; i < search->term_count; i++) {
        if (!search_term_matches(&search->terms[i], event->attributes)) {
            return false;
        }
    }
    return true;
}


/* ---- drives ---------------------------------------------------------- */

/* The smaller the better; the number of ranks: does not drive. */
static int
term_rank(const struct search_term *term)
{
    static const int ranks[SEARCH_OPERATORS] = {
        [SEARCH_EQ] = 0,  [SEARCH_IN] = 1,  [SEARCH_PREFIX] = 2,
        [SEARCH_LT] = 3,  [SEARCH_LTE] = 3, [SEARCH_GT] = 3,
        [SEARCH_GTE] = 3, [SEARCH_NE] = 4,  [SEARCH_EXISTS] = 4,
    };

    return term->is_where ? ranks[term->operator] : 4;
}


/* ---- drives: values ----------------------------------------------------- */

static int
values_compare(const void *left, const void *right)
{
    return meter_str_compare(*(const struct meter_str *)left,
                             *(const struct meter_str *)right);
}

static bool
value_put(struct search_drive *drive, const struct json_value *value,
          struct arena *arena)
{
    struct meter_str json;

    if (!json_canonical(value, arena, &json)) {
        return false;
    }
    drive->values[drive->value_count++] = index_value_cut(json);
    return true;
}

/* Two that are cut to the same would find an event twice. */
static void
values_sort(struct search_drive *drive)
{
    size_t kept = 1;

    qsort(drive->values, drive->value_count, sizeof(*drive->values),
          values_compare);
    for (size_t i = 1; i < drive->value_count; i++) {
        if (!meter_str_equal(drive->values[i], drive->values[kept - 1])) {
            drive->values[kept++] = drive->values[i];
        }
    }
    drive->value_count = kept;
}

static bool
values_fill(struct search_drive *drive, const struct search_term *term,
            struct arena *arena)
{
    size_t count = term->operator== SEARCH_IN ? term->value->count : 1;
    const struct json_value *items =
        term->operator== SEARCH_IN ? term->value->items : term->value;

    drive->kind = SEARCH_DRIVE_VALUES;
    drive->values = arena_alloc(arena, count * sizeof(*drive->values));
    if (drive->values == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!value_put(drive, &items[i], arena)) {
            return false;
        }
    }
    values_sort(drive);
    return true;
}


/* ---- drives: ranges -------------------------------------------------- */

/* The code point that ends before size; *start is where it begins. */
static uint32_t
character_before(const char *text, size_t size, size_t *start)
{
    uint32_t code;
    size_t at = size - 1;

    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) {
        at--;
    }
    *start = at;
    code = (unsigned char)text[at];
    if (size - at > 1) {
        code &= 0x7fu >> (size - at);
        for (size_t i = at + 1; i < size; i++) {
            code = code << 6 | ((unsigned char)text[i] & 0x3f);
        }
    }
    return code;
}

static size_t
character_write(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/*
 * The first text after all that begin with low: its last character becomes
 * the next one, as bytes are ordered like code points. low begins with a
 * quote, so there is always one that has a next.
 */
static bool
range_end(struct meter_str low, struct arena *arena, struct meter_str *out)
{
    char *text = arena_alloc(arena, low.size + 4);
    size_t size = low.size;
    size_t start;
    uint32_t code;

    if (text == NULL) {
        return false;
    }
    memcpy(text, low.data, low.size);
    code = character_before(text, size, &start);
    while (code == 0x10ffff) {
        size = start;
        CHECK(size > 0);
        code = character_before(text, size, &start);
    }
    code = code == 0xd7ff ? 0xe000 : code + 1; /* surrogates are none */
    *out =
        (struct meter_str){text, start + character_write(code, text + start)};
    return true;
}

static bool
prefix_fill(struct search_drive *drive, const struct search_term *term,
            struct arena *arena)
{
    struct meter_str json;

    drive->kind = SEARCH_DRIVE_RANGE;
    if (!json_canonical(term->value, arena, &json)) {
        return false;
    }
    json.size--; /* without the closing quote */
    drive->low = index_value_cut(json);
    return range_end(drive->low, arena, &drive->high);
}

/* Bounds of all terms on the attribute, the closest ones. */
static void
bound_add(struct search_drive *drive, const struct search_term *term)
{
    bool is_low = term->operator== SEARCH_GT || term->operator== SEARCH_GTE;
    struct meter_str *bound = is_low ? &drive->number_low : &drive->number_high;
    struct meter_str number = term->value->text;
    int order = bound->data == NULL ? 0 : search_number_compare(number, *bound);

    if (bound->data == NULL || (is_low ? order > 0 : order < 0)) {
        *bound = number;
    }
}

static void
order_fill(struct search *search, const struct search_term *chosen)
{
    struct search_drive *drive = &search->drive;

    drive->kind = SEARCH_DRIVE_RANGE;
    if (chosen->value->kind == JSON_STRING) {
        drive->low = METER_STR("\"");
        drive->high = METER_STR("#");
        return;
    }
    drive->low = METER_STR("-");
    drive->high = METER_STR(":");
    for (size_t i = 0; i < search->term_count; i++) {
        const struct search_term *term = &search->terms[i];

        if (term_rank(term) == term_rank(chosen) &&
            term->value->kind == JSON_NUMBER &&
            meter_str_equal(term->path.name, chosen->path.name)) {
            bound_add(drive, term);
        }
    }
}

static bool
search_drive_choose(struct search *search, struct arena *arena)
{
    const struct search_term *best = NULL;

    search->drive = (struct search_drive){.kind = SEARCH_DRIVE_LEDGER};
    for (size_t i = 0; i < search->term_count; i++) {
        const struct search_term *term = &search->terms[i];

        if (term_rank(term) < (best == NULL ? 4 : term_rank(best))) {
            best = term;
        }
    }
    if (best == NULL) {
        return true;
    }
    search->drive.attribute = best->path.name;
    switch (best->operator) {
    case SEARCH_EQ:
    case SEARCH_IN: return values_fill(&search->drive, best, arena);
    case SEARCH_PREFIX: return prefix_fill(&search->drive, best, arena);
    default: order_fill(search, best); return true;
    }
}


/* ---- reading ------------------------------------------------------------ */

/* What reading needs at hand. */
struct reading {
    const struct event_type *type; /* NULL: none is asked for */
    struct arena *arena;
    struct search *out;
};

static const char no_memory[] = "the search takes too much memory";


/* ---- reading: values ---------------------------------------------------- */

static bool
value_is_scalar(const struct json_value *value)
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
        if (!value_is_scalar(&list->items[i])) {
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
        return value_is_scalar(value)
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
                             search_member_names[member]);
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
    const char *name = search_member_names[member];

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
    const char *name = search_member_names[member];

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
