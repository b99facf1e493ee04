/*
 * scalar.c - strict values from the text of a scalar. Pure.
 *
 *   yaml_tree, config, catalog_build, api -> [scalar] -> a value, or none
 *
 * Numbers, durations, names and words, and which known word a wrong one was
 * probably meant to be. Places and messages belong to the callers.
 */

#include "config/scalar.h"

#include <stdio.h>

#include "base/check.h"
#include "meter_time.h"

#define DISTANCE_SIZE_MAX 128 /* longer texts are never near anything */

static const struct {
    struct meter_str name;
    int64_t unit_us;
} duration_units[] = {
    {{"d", 1}, METER_TIME_DAY},
    {{"h", 1}, METER_TIME_HOUR},
    {{"m", 1}, METER_TIME_MINUTE},
    {{"s", 1}, METER_TIME_SECOND},
    {{"ms", 2}, 1000},
};

#define DURATION_UNITS (sizeof(duration_units) / sizeof(duration_units[0]))


static bool
scalar_is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* Digits only, at least one, no leading zero unless it is all. */
static bool
scalar_digits(struct meter_str text, uint64_t limit, uint64_t *value)
{
    if (text.size == 0 || (text.size > 1 && text.data[0] == '0')) {
        return false;
    }
    *value = 0;
    for (size_t i = 0; i < text.size; i++) {
        uint64_t digit = (uint64_t)(text.data[i] - '0');

        if (!scalar_is_digit(text.data[i]) || *value > (limit - digit) / 10) {
            return false;
        }
        *value = *value * 10 + digit;
    }
    return true;
}

bool
scalar_integer(struct meter_str text, int64_t *value)
{
    bool negative = text.size > 0 && text.data[0] == '-';
    uint64_t magnitude;

    if (negative) {
        text.data++;
        text.size--;
    }
    if (!scalar_digits(text, (uint64_t)INT64_MAX + negative, &magnitude) ||
        (negative && magnitude == 0)) {
        return false;
    }
    *value = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

bool
scalar_duration(struct meter_str text, int64_t *value_us)
{
    struct meter_str digits = {text.data, 0};
    struct meter_str unit;
    uint64_t number;

    while (digits.size < text.size && scalar_is_digit(text.data[digits.size])) {
        digits.size++;
    }
    unit = (struct meter_str){text.data + digits.size, text.size - digits.size};
    for (size_t i = 0; i < DURATION_UNITS; i++) {
        int64_t unit_us = duration_units[i].unit_us;

        if (!meter_str_equal(unit, duration_units[i].name)) {
            continue;
        }
        if (!scalar_digits(digits, (uint64_t)(INT64_MAX / unit_us), &number)) {
            return false;
        }
        *value_us = (int64_t)number * unit_us;
        return true;
    }
    return false;
}

void
scalar_duration_format(int64_t value_us,
                       char out[SCALAR_DURATION_TEXT_SIZE + 1])
{
    CHECK(value_us >= 0);
    for (size_t i = 0; i < DURATION_UNITS; i++) {
        int64_t unit_us = duration_units[i].unit_us;

        if (value_us != 0 && value_us % unit_us == 0) {
            snprintf(out, SCALAR_DURATION_TEXT_SIZE + 1, "%lld%s",
                     (long long)(value_us / unit_us),
                     duration_units[i].name.data);
            return;
        }
    }
    snprintf(out, SCALAR_DURATION_TEXT_SIZE + 1, "0s");
}

static bool
scalar_is_letter(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

bool
scalar_is_word(struct meter_str text, size_t size_max, bool may_be_digit)
{
    if (text.size == 0 || text.size > size_max ||
        (!scalar_is_letter(text.data[0]) &&
         !(may_be_digit && scalar_is_digit(text.data[0])))) {
        return false;
    }
    for (size_t i = 1; i < text.size; i++) {
        char byte = text.data[i];

        if (!scalar_is_letter(byte) && !scalar_is_digit(byte) && byte != '_' &&
            byte != '.' && byte != '-') {
            return false;
        }
    }
    return true;
}

int
scalar_word(struct meter_str text, const char *const *words)
{
    for (int i = 0; words[i] != NULL; i++) {
        struct meter_str word = {words[i], strlen(words[i])};

        if (meter_str_equal(text, word)) {
            return i;
        }
    }
    return -1;
}

static unsigned
distance_min(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static unsigned
distance_cell(struct meter_str a, struct meter_str b, size_t i, size_t j,
              const unsigned *row, const unsigned *above,
              const unsigned *two_above)
{
    unsigned other = a.data[i - 1] != b.data[j - 1];
    unsigned value = distance_min(above[j - 1] + other,
                                  distance_min(above[j], row[j - 1]) + 1);

    if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] &&
        a.data[i - 2] == b.data[j - 1]) {
        value = distance_min(value, two_above[j - 2] + 1);
    }
    return value;
}

/*
 * The usual table, three rows of it at a time and only the cells within
 * `limit` of the diagonal; the cells beside that band count as too far.
 */
unsigned
scalar_distance(struct meter_str a, struct meter_str b, unsigned limit)
{
    unsigned rows[3][DISTANCE_SIZE_MAX + 2];
    unsigned far = limit + 1;

    if (a.size > DISTANCE_SIZE_MAX || b.size > DISTANCE_SIZE_MAX ||
        a.size > b.size + limit || b.size > a.size + limit) {
        return far;
    }
    for (size_t j = 0; j <= DISTANCE_SIZE_MAX + 1; j++) {
        rows[0][j] = distance_min((unsigned)j, far);
        rows[1][j] = far;
        rows[2][j] = far;
    }
    for (size_t i = 1; i <= a.size; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3];
        size_t from = i > limit ? i - limit : 1;
        size_t to = i + limit < b.size ? i + limit : b.size;

        row[from - 1] = from == 1 ? distance_min((unsigned)i, far) : far;
        for (size_t j = from; j <= to; j++) {
            row[j] = distance_min(
                distance_cell(a, b, i, j, row, above, rows[(i + 1) % 3]), far);
        }
        row[to + 1] = far;
    }
    return rows[a.size % 3][b.size];
}

const char *
scalar_suggest(struct meter_str text, const char *const *words)
{
    const char *nearest = NULL;
    unsigned nearest_distance = 3;

    for (size_t i = 0; words[i] != NULL; i++) {
        struct meter_str word = {words[i], strlen(words[i])};
        unsigned distance = scalar_distance(text, word, 2);

        if (distance < nearest_distance && distance * 2 < text.size) {
            nearest = words[i];
            nearest_distance = distance;
        }
    }
    return nearest;
}
