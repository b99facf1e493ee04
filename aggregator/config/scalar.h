/*
 * scalar.h - strict values from the text of a scalar.
 *
 * Each function knows one closed grammar and says nothing about places;
 * options.c and the rule readers add file, line and column. `yes`, `NO`,
 * `010`, `0x10`, `1_000` and `1e3` are neither bools nor integers.
 */

#ifndef CONFIG_SCALAR_H
#define CONFIG_SCALAR_H

#include "meter_types.h"

/* An optional '-' and decimal digits without leading zeros, in 64 bits. */
METER_MUST_CHECK bool scalar_integer(struct meter_str text, int64_t *value);

/* Digits and one unit of ms, s, m, h, d, in microseconds: 48h, 730d, 0s. */
METER_MUST_CHECK bool scalar_duration(struct meter_str text, int64_t *value_us);

/* Shortest text of a duration, as scalar_duration reads it. */
#define SCALAR_DURATION_TEXT_SIZE 24
void scalar_duration_format(int64_t value_us,
                            char out[SCALAR_DURATION_TEXT_SIZE + 1]);

/* Letters, digits, '_', '.', '-'; what comes first is a letter, or a digit. */
bool scalar_is_word(struct meter_str text, size_t size_max, bool may_be_digit);

/* ^[A-Za-z][A-Za-z0-9_.-]{0,127}$ */
static inline bool
scalar_is_name(struct meter_str text)
{
    return scalar_is_word(text, 128, false);
}

/* ^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$, as host names are. */
static inline bool
scalar_is_node(struct meter_str text)
{
    return scalar_is_word(text, 64, true);
}

/*
 * Position of the word in a NULL-terminated list; -1: not there.
 */
int scalar_word(struct meter_str text, const char *const *words);

/*
 * The word of a NULL-terminated list that `text` was probably meant to be:
 * nearest by insertions, deletions, replacements and swaps of neighbours,
 * at most 2 of them and less than half of the text. NULL: none is near.
 */
const char *scalar_suggest(struct meter_str text, const char *const *words);

/* That distance, or `limit` + 1 when it is larger; limit is at most 2. */
unsigned
scalar_distance(struct meter_str a, struct meter_str b, unsigned limit);

#endif
