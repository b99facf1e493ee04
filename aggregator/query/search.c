/*
 * search.c - whether an event matches, see search.h.
 *
 *   event -> [search_matches] -> type, customer, resource, range left to SQL
 *         -> [search_term_matches] for each term
 */

#include "query/search.h"

#include "meter_decimal.h"
#include "project/attribute.h"

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

int
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


/* ---- values ---------------------------------------------------------- */

static bool
is_equal(const struct json_value *a, const struct json_value *b)
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
is_in(const struct json_value *value, const struct json_value *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (is_equal(value, &list->items[i])) {
            return true;
        }
    }
    return false;
}

/* False: the two have no order. */
static bool
order_of(const struct json_value *a, const struct json_value *b, int *order)
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
is_ordered(const struct json_value *value, const struct search_term *term)
{
    int order;

    if (!order_of(value, term->value, &order)) {
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
has_prefix(const struct json_value *value, struct meter_str prefix)
{
    return value->kind == JSON_STRING && value->text.size >= prefix.size &&
           (prefix.size == 0 ||
            memcmp(value->text.data, prefix.data, prefix.size) == 0);
}

bool
search_term_matches(const struct search_term *term,
                    const struct json_value *attributes)
{
    const struct json_value *value = attribute_find(attributes, &term->path);

    if (value == NULL || value->kind == JSON_NULL) {
        return term->operator== SEARCH_NE ||(term->operator== SEARCH_EXISTS &&
                                             term->value->kind == JSON_FALSE);
    }
    switch (term->operator) {
    case SEARCH_EQ: return is_equal(value, term->value);
    case SEARCH_NE: return !is_equal(value, term->value);
    case SEARCH_IN: return is_in(value, term->value);
    case SEARCH_LT:
    case SEARCH_LTE:
    case SEARCH_GT:
    case SEARCH_GTE: return is_ordered(value, term);
    case SEARCH_EXISTS: return term->value->kind == JSON_TRUE;
    case SEARCH_PREFIX: return has_prefix(value, term->value->text);
    case SEARCH_OPERATORS: break;
    }
    return false;
}

static bool
is_asked(struct meter_str asked, struct meter_str value)
{
    return asked.data == NULL ||
           (value.data != NULL && meter_str_equal(asked, value));
}

bool
search_matches(const struct search *search, const struct search_event *event)
{
    if (!is_asked(search->type, event->type) ||
        !is_asked(search->customer, event->customer) ||
        !is_asked(search->resource, event->resource)) {
        return false;
    }
    for (size_t i = 0; i < search->term_count; i++) {
        if (!search_term_matches(&search->terms[i], event->attributes)) {
            return false;
        }
    }
    return true;
}
