/*
 * meter_decimal.h - exact decimals: 38 digits, 9 after the point.
 *
 * Never a binary float. The value is units * 10^-9.
 */

#ifndef METER_DECIMAL_H
#define METER_DECIMAL_H

#include "meter_types.h"

__extension__ typedef __int128 meter_int128;

struct meter_decimal {
    meter_int128 units;
};

#define METER_DECIMAL_TEXT_SIZE 41 /* sign, 38 digits, point, spare */

enum meter_decimal_error {
    METER_DECIMAL_OK,
    METER_DECIMAL_SYNTAX,   /* not a decimal number */
    METER_DECIMAL_RANGE,    /* more than 29 digits before the point */
    METER_DECIMAL_PRECISION /* non-zero digits past the ninth decimal */
};

/*
 * A JSON number lexeme; also accepts a leading '+', and digits as "007",
 * since strings are accepted too. 1, 1.0, 1e0 and 10e-1 give equal values.
 */
METER_MUST_CHECK enum meter_decimal_error
meter_decimal_parse(struct meter_str text, struct meter_decimal *out);

/* A sentence for each error, "" for OK. */
const char *meter_decimal_error_text(enum meter_decimal_error error);

/* Shortest form: no exponent, no trailing zeros, no "-0". Returns length. */
size_t meter_decimal_format(struct meter_decimal value,
                            char out[METER_DECIMAL_TEXT_SIZE + 1]);

struct meter_decimal meter_decimal_from_int(int64_t value);
/* False on overflow of 38 digits; *out is then unchanged. */
METER_MUST_CHECK bool
meter_decimal_add(struct meter_decimal a, struct meter_decimal b,
                  struct meter_decimal *out);
METER_MUST_CHECK bool
meter_decimal_subtract(struct meter_decimal a, struct meter_decimal b,
                       struct meter_decimal *out);
METER_MUST_CHECK bool
meter_decimal_multiply(struct meter_decimal a, int64_t factor,
                       struct meter_decimal *out);
/* Rounded half-even to the last decimal; divisor is not 0. */
struct meter_decimal
meter_decimal_divide(struct meter_decimal a, int64_t divisor);
int meter_decimal_compare(struct meter_decimal a, struct meter_decimal b);

/*
 * A number's lexeme taken apart: value = 0.d1d2d3... * 10^magnitude, where
 * d1..dcount are the significant digits, d1 and the last one not zero. The
 * scan is linear and holds for any number of digits and any exponent.
 */
struct meter_number {
    const char *digits; /* at d1; a '.' may lie between two digits */
    size_t count;       /* 0: the value is zero */
    int64_t magnitude;  /* 0 when the value is zero; saturates at 10^15 */
    bool negative;      /* true for "-0" too */
};

enum meter_number_grammar {
    METER_NUMBER_JSON,   /* RFC 8259 */
    METER_NUMBER_LENIENT /* also a leading '+' and leading zeros */
};

METER_MUST_CHECK bool
meter_number_scan(struct meter_str lexeme, enum meter_number_grammar grammar,
                  struct meter_number *out);

/* Next digit, 0..9; *at starts at digits and may be asked count times. */
static inline int
meter_number_digit(const char **at)
{
    if (**at == '.') {
        (*at)++;
    }
    return *(*at)++ - '0';
}

/*
 * The canonical text of any JSON number, for attributes: significant
 * digits without leading or trailing zeros, plain where that takes at most
 * 40 bytes, else d.ddde+N / d.ddde-N; -0 is 0. Equal numbers give equal
 * bytes. False: past METER_NUMBER_DIGITS_MAX or METER_NUMBER_EXPONENT_MAX,
 * or no JSON number. out gets METER_NUMBER_TEXT_SIZE + 1 bytes.
 */
#define METER_NUMBER_TEXT_SIZE 80
METER_MUST_CHECK bool
meter_number_canonical(struct meter_str lexeme, char *out, size_t *size);

#endif
