/*
 * accept.c - see accept.h.
 */

#include "api/accept.h"

#include <strings.h>

/* How closely a range names a form, and how much it is wanted. */
struct accept_wish {
    int specific; /* 0: not named; then *, type/ * and type/subtype */
    int weight;   /* thousandths */
};

static struct meter_str
trim(struct meter_str text)
{
    while (text.size > 0 && (text.data[0] == ' ' || text.data[0] == '\t')) {
        text.data++;
        text.size--;
    }
    while (text.size > 0 && (text.data[text.size - 1] == ' ' ||
                             text.data[text.size - 1] == '\t')) {
        text.size--;
    }
    return text;
}

/* What stands before the separator; *rest is what stands behind it. */
static struct meter_str
cut(struct meter_str text, char separator, struct meter_str *rest)
{
    const char *at =
        text.size == 0 ? NULL : memchr(text.data, separator, text.size);
    size_t size = at == NULL ? text.size : (size_t)(at - text.data);

    *rest = at == NULL ? (struct meter_str){NULL, 0}
                       : (struct meter_str){at + 1, text.size - size - 1};
    return trim((struct meter_str){text.data, size});
}

static bool
is(struct meter_str text, const char *word)
{
    return text.size == strlen(word) &&
           strncasecmp(text.data, word, text.size) == 0;
}

/* "0.5" and the like in thousandths; -1: no weight. */
static int
weight_read(struct meter_str text)
{
    static const int digit_weight[] = {100, 10, 1};
    int weight;

    if (text.size == 0 || text.size > 5 ||
        (text.data[0] != '0' && text.data[0] != '1') ||
        (text.size > 1 && text.data[1] != '.')) {
        return -1;
    }
    weight = 1000 * (text.data[0] - '0');
    for (size_t i = 2; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') {
            return -1;
        }
        weight += digit_weight[i - 2] * (text.data[i] - '0');
    }
    return weight > 1000 ? -1 : weight;
}

/* The weight among a range's parameters. */
static int
parameters_read(struct meter_str parameters)
{
    int weight = 1000;

    while (parameters.data != NULL) {
        struct meter_str value;
        struct meter_str parameter = cut(parameters, ';', &parameters);
        struct meter_str name = cut(parameter, '=', &value);

        if (is(name, "q")) {
            weight = weight_read(trim(value));
        }
    }
    return weight;
}

static void
wish_note(struct accept_wish *wish, int specific, int weight)
{
    if (specific > wish->specific) {
        *wish = (struct accept_wish){specific, weight};
    }
}

enum accept_form
accept_choose(struct meter_str header)
{
    struct accept_wish json = {0, 0};
    struct accept_wish csv = {0, 0};
    bool is_said = false;

    while (header.data != NULL) {
        struct meter_str parameters;
        struct meter_str item = cut(header, ',', &header);
        struct meter_str range = cut(item, ';', &parameters);
        int weight = parameters_read(parameters);

        if (range.size == 0 || weight < 0) {
            continue;
        }
        is_said = true;
        if (is(range, "application/json")) {
            wish_note(&json, 3, weight);
        } else if (is(range, "text/csv")) {
            wish_note(&csv, 3, weight);
        } else if (is(range, "application/*")) {
            wish_note(&json, 2, weight);
        } else if (is(range, "text/*")) {
            wish_note(&csv, 2, weight);
        } else if (is(range, "*/*")) {
            wish_note(&json, 1, weight);
            wish_note(&csv, 1, weight);
        }
    }
    if (!is_said) {
        return ACCEPT_JSON;
    }
    if (json.weight == 0 && csv.weight == 0) {
        return ACCEPT_NEITHER;
    }
    return csv.weight > json.weight ? ACCEPT_CSV : ACCEPT_JSON;
}
