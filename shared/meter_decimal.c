/*
 * meter_decimal.c - exact decimals and canonical number text.
 *
 *   JSON number lexeme -> [scan] -> decimal (quantities)
 *                                -> canonical text (attributes)
 *                                -> instant (meter_time.c)
 *
 * No floating point anywhere. The scan only finds where the significant
 * digits are and how large the exponent is; range and precision are decided
 * on these counts before a single digit is converted, so that text of any
 * length costs one pass and nothing can overflow.
 */

#include "meter_decimal.h"

#include "meter_limits.h"

__extension__ typedef unsigned __int128 uint128;

#define INTEGER_DIGITS (METER_DECIMAL_DIGITS - METER_DECIMAL_FRACTION)
#define EXPONENT_CAP   INT64_C(1000000000000000) /* no text is as long */
#define PLAIN_SIZE_MAX 40 /* longer canonical numbers get an exponent */
#define UNITS_OF_ONE   1000000000
#define TEN_TO_19      UINT64_C(10000000000000000000)
#define UNITS_LIMIT    ((uint128)TEN_TO_19 * TEN_TO_19) /* 10^38 */

_Static_assert(METER_DECIMAL_DIGITS == 38, "UNITS_LIMIT is 10^38");
_Static_assert(METER_DECIMAL_FRACTION == 9, "UNITS_OF_ONE is 10^9");
_Static_assert(METER_NUMBER_DIGITS_MAX + 8 <= METER_NUMBER_TEXT_SIZE,
               "sign, digits, point, e+400");


static const char *
skip_digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9') {
        at++;
    }
    return at;
}


/* e+12 and the like, up to the end of the text; nothing there means 0. */
static bool
scan_exponent(const char *at, const char *end, int64_t *exponent)
{
    bool negative = false;

    *exponent = 0;
    if (at == end) {
        return true;
    }
    if (*at != 'e' && *at != 'E') {
        return false;
    }
    at++;
    if (at < end && (*at == '+' || *at == '-')) {
        negative = *at == '-';
        at++;
    }
    if (at == end || skip_digits(at, end) != end) {
        return false;
    }
    for (; at < end; at++) {
        if (*exponent < EXPONENT_CAP) {
            *exponent = *exponent * 10 + (*at - '0');
        }
    }
    if (*exponent > EXPONENT_CAP) {
        *exponent = EXPONENT_CAP;
    }
    if (negative) {
        *exponent = -*exponent;
    }
    return true;
}


/* Finds the significant digits of start..end, whose point is at point. */
static void
scan_significant(const char *start, const char *point, const char *end,
                 int64_t exponent, struct meter_number *out)
{
    const char *first = start;
    const char *last = end;

    while (first < end && (*first == '0' || *first == '.')) {
        first++;
    }
    out->digits = first;
    if (first == end) {
        out->count = 0;
        out->magnitude = 0;
        return;
    }
    while (last[-1] == '0' || last[-1] == '.') {
        last--;
    }
    out->count = (size_t)(last - first) - (first < point && point < last);
    out->magnitude = exponent + (point - first) + (first > point);
    if (out->magnitude > EXPONENT_CAP) {
        out->magnitude = EXPONENT_CAP;
    } else if (out->magnitude < -EXPONENT_CAP) {
        out->magnitude = -EXPONENT_CAP;
    }
}


bool
meter_number_scan(struct meter_str lexeme, enum meter_number_grammar grammar,
                  struct meter_number *out)
{
    const char *at = lexeme.data;
    const char *end, *start, *point;
    int64_t exponent;

    if (lexeme.size == 0) {
        return false;
    }
    end = at + lexeme.size;
    out->negative = *at == '-';
    if (*at == '-' || (*at == '+' && grammar == METER_NUMBER_LENIENT)) {
        at++;
    }
    start = at;
    at = skip_digits(at, end);
    point = at;
    if (point == start) {
        return false;
    }
    if (grammar == METER_NUMBER_JSON && *start == '0' && point - start > 1) {
        return false;
    }
    if (at < end && *at == '.') {
        at = skip_digits(point + 1, end);
        if (at == point + 1) {
            return false;
        }
    }
    if (!scan_exponent(at, end, &exponent)) {
        return false;
    }
    scan_significant(start, point, at, exponent, out);
    return true;
}


static uint128
power_of_ten(int64_t exponent)
{
    uint128 power = 1;

    while (exponent > 0) {
        power *= 10;
        exponent--;
    }
    return power;
}


enum meter_decimal_error
meter_decimal_parse(struct meter_str text, struct meter_decimal *out)
{
    struct meter_number number;
    const char *at;
    int64_t fraction; /* digits behind the point, may be negative */
    uint128 units = 0;

    if (!meter_number_scan(text, METER_NUMBER_LENIENT, &number)) {
        return METER_DECIMAL_SYNTAX;
    }
    if (number.count == 0) {
        out->units = 0;
        return METER_DECIMAL_OK;
    }
    if (number.magnitude > INTEGER_DIGITS) {
        return METER_DECIMAL_RANGE;
    }
    fraction = (int64_t)number.count - number.magnitude;
    if (fraction > METER_DECIMAL_FRACTION) {
        return METER_DECIMAL_PRECISION;
    }
    /* At most 38 digits are left, so that 128 bits hold them. */
    at = number.digits;
    for (size_t i = 0; i < number.count; i++) {
        units = units * 10 + (unsigned)meter_number_digit(&at);
    }
    units *= power_of_ten(METER_DECIMAL_FRACTION - fraction);
    out->units = number.negative ? -(meter_int128)units : (meter_int128)units;
    return METER_DECIMAL_OK;
}


const char *
meter_decimal_error_text(enum meter_decimal_error error)
{
    switch (error) {
    case METER_DECIMAL_OK: return "";
    case METER_DECIMAL_SYNTAX: return "is not a decimal number";
    case METER_DECIMAL_RANGE: return "has more than 29 digits before the point";
    case METER_DECIMAL_PRECISION:
        return "has more than 9 digits after the point";
    }
    return "is not a decimal number";
}


/* Digits from the right, at least `least` of them; where they begin. */
static char *
digits_put(char *end, uint64_t value, int least)
{
    while (value > 0 || least > 0) {
        *--end = (char)('0' + (int)(value % 10));
        value /= 10;
        least--;
    }
    return end;
}


/* Division by constants of 64 bits: that of 128 bits is many times slower. */
size_t
meter_decimal_format(struct meter_decimal value,
                     char out[METER_DECIMAL_TEXT_SIZE + 1])
{
    char digits[METER_DECIMAL_TEXT_SIZE];
    char *end = digits + sizeof(digits);
    char *at = end;
    bool negative = value.units < 0;
    uint128 units = negative ? -(uint128)value.units : (uint128)value.units;
    uint128 whole = units <= UINT64_MAX ? (uint64_t)units / UNITS_OF_ONE
                                        : units / UNITS_OF_ONE;
    uint64_t fraction = (uint64_t)(units - whole * UNITS_OF_ONE);
    int places = METER_DECIMAL_FRACTION;
    size_t size;

    if (fraction > 0) {
        while (fraction % 10 == 0) {
            fraction /= 10;
            places--;
        }
        at = digits_put(at, fraction, places);
        *--at = '.';
    }
    while (whole > UINT64_MAX) {
        at = digits_put(at, (uint64_t)(whole % TEN_TO_19), 19);
        whole /= TEN_TO_19;
    }
    at = digits_put(at, (uint64_t)whole, 1);
    if (negative) {
        *--at = '-';
    }
    size = (size_t)(end - at);
    memcpy(out, at, size);
    out[size] = '\0';
    return size;
}


struct meter_decimal
meter_decimal_from_int(int64_t value)
{
    return (struct meter_decimal){(meter_int128)value * UNITS_OF_ONE};
}


static uint128
magnitude_of(meter_int128 units)
{
    return units < 0 ? -(uint128)units : (uint128)units;
}


bool
meter_decimal_add(struct meter_decimal a, struct meter_decimal b,
                  struct meter_decimal *out)
{
    meter_int128 sum;

    if (__builtin_add_overflow(a.units, b.units, &sum) ||
        magnitude_of(sum) >= UNITS_LIMIT) {
        return false;
    }
    out->units = sum;
    return true;
}


bool
meter_decimal_subtract(struct meter_decimal a, struct meter_decimal b,
                       struct meter_decimal *out)
{
    return meter_decimal_add(a, (struct meter_decimal){-b.units}, out);
}


bool
meter_decimal_multiply(struct meter_decimal a, int64_t factor,
                       struct meter_decimal *out)
{
    uint128 units = magnitude_of(a.units);
    uint128 times = magnitude_of(factor);
    bool negative = (a.units < 0) != (factor < 0);

    /* By division: clang's overflow builtin needs a library for 128 bits. */
    if (times != 0 && units > (UNITS_LIMIT - 1) / times) {
        return false;
    }
    units *= times;
    out->units = negative ? -(meter_int128)units : (meter_int128)units;
    return true;
}


struct meter_decimal
meter_decimal_divide(struct meter_decimal a, int64_t divisor)
{
    uint128 units = magnitude_of(a.units);
    uint128 parts = magnitude_of(divisor);
    bool negative = (a.units < 0) != (divisor < 0);
    uint128 whole = units / parts;
    uint128 rest = units % parts;

    if (2 * rest > parts || (2 * rest == parts && whole % 2 == 1)) {
        whole++;
    }
    return (struct meter_decimal){negative ? -(meter_int128)whole
                                           : (meter_int128)whole};
}


int
meter_decimal_compare(struct meter_decimal a, struct meter_decimal b)
{
    return (a.units > b.units) - (a.units < b.units);
}


/* Bytes of the plain form: 120, 1.2, 0.0012; at most about 470. */
static int64_t
plain_size(const struct meter_number *number)
{
    int64_t count = (int64_t)number->count;

    if (number->magnitude >= count) {
        return number->negative + number->magnitude;
    }
    if (number->magnitude > 0) {
        return number->negative + count + 1;
    }
    return number->negative + 2 - number->magnitude + count;
}


static char *
put_plain(const struct meter_number *number, char *out)
{
    const char *at = number->digits;
    int64_t count = (int64_t)number->count;

    if (number->magnitude <= 0) {
        *out++ = '0';
        *out++ = '.';
        for (int64_t i = number->magnitude; i < 0; i++) {
            *out++ = '0';
        }
    }
    for (int64_t i = 0; i < count; i++) {
        if (i > 0 && i == number->magnitude) {
            *out++ = '.';
        }
        *out++ = (char)('0' + meter_number_digit(&at));
    }
    for (int64_t i = count; i < number->magnitude; i++) {
        *out++ = '0';
    }
    return out;
}


/* d.ddde+N; N has at most three digits. */
static char *
put_scientific(const struct meter_number *number, char *out)
{
    const char *at = number->digits;
    int64_t exponent = number->magnitude - 1;

    for (size_t i = 0; i < number->count; i++) {
        if (i == 1) {
            *out++ = '.';
        }
        *out++ = (char)('0' + meter_number_digit(&at));
    }
    *out++ = 'e';
    *out++ = exponent < 0 ? '-' : '+';
    if (exponent < 0) {
        exponent = -exponent;
    }
    if (exponent >= 100) {
        *out++ = (char)('0' + exponent / 100);
    }
    if (exponent >= 10) {
        *out++ = (char)('0' + exponent / 10 % 10);
    }
    *out++ = (char)('0' + exponent % 10);
    return out;
}


bool
meter_number_canonical(struct meter_str lexeme, char *out, size_t *size)
{
    struct meter_number number;
    char *at = out;

    if (!meter_number_scan(lexeme, METER_NUMBER_JSON, &number)) {
        return false;
    }
    if (number.count == 0) {
        memcpy(out, "0", 2);
        *size = 1;
        return true;
    }
    if (number.count > METER_NUMBER_DIGITS_MAX ||
        number.magnitude > METER_NUMBER_EXPONENT_MAX ||
        number.magnitude < -METER_NUMBER_EXPONENT_MAX) {
        return false;
    }
    if (number.negative) {
        *at++ = '-';
    }
    if (plain_size(&number) <= PLAIN_SIZE_MAX) {
        at = put_plain(&number, at);
    } else {
        at = put_scientific(&number, at);
    }
    *at = '\0';
    *size = (size_t)(at - out);
    return true;
}
