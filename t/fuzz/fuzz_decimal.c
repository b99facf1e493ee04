/*
 * fuzz_decimal.c - decimals and canonical numbers.
 *
 * Oracle: formatting a parsed decimal gives its only text (idempotent,
 * shortest); the canonical text of a number is a fix-point; spelling a
 * number another way (moved point, zeros, explicit exponent) changes
 * neither; two lexemes are equal as decimals exactly when their canonical
 * texts are.
 *
 * A zero byte splits the input into two lexemes.
 */

#include "fuzz_check.h"

#include "meter_decimal.h"
#include "meter_limits.h"


static bool
canonical(struct meter_str lexeme, char *out, size_t *size)
{
    if (!meter_number_canonical(lexeme, out, size)) {
        return false;
    }
    FUZZ_CHECK(*size <= METER_NUMBER_TEXT_SIZE);
    FUZZ_CHECK(strlen(out) == *size);
    return true;
}


/* The same value: its exponent lower by shift, so many zeros behind. */
static char *
respell(struct meter_str lexeme, size_t shift, size_t *size)
{
    const char *e = memchr(lexeme.data, 'e', lexeme.size);
    const char *big = memchr(lexeme.data, 'E', lexeme.size);
    const char *point = memchr(lexeme.data, '.', lexeme.size);
    const char *at = e != NULL ? e : big;
    size_t mantissa = at == NULL ? lexeme.size : (size_t)(at - lexeme.data);
    long long exponent = 0;
    char *out;

    if (at != NULL && lexeme.size - mantissa > 12) {
        return NULL; /* keep strtoll's range */
    }
    if (point == NULL && lexeme.data[lexeme.data[0] == '-'] == '0') {
        return NULL; /* no JSON number with zeros behind */
    }
    out = malloc(lexeme.size + shift + 40);
    FUZZ_CHECK(out != NULL);
    if (at != NULL) {
        char digits[16] = {0};

        memcpy(digits, at + 1, lexeme.size - mantissa - 1);
        exponent = strtoll(digits, NULL, 10);
    }
    memcpy(out, lexeme.data, mantissa);
    *size = mantissa;
    memset(out + *size, '0', shift);
    *size += shift;
    /* Behind a point zeros change nothing; before it they multiply. */
    if (point == NULL) {
        exponent -= (long long)shift;
    }
    *size += (size_t)sprintf(out + *size, "E%+lld", exponent);
    return out;
}


static void
check_decimal(struct meter_str lexeme, struct meter_decimal value)
{
    char text[METER_DECIMAL_TEXT_SIZE + 1], again[METER_DECIMAL_TEXT_SIZE + 1];
    struct meter_decimal back = {0}, sum = {1};
    size_t size = meter_decimal_format(value, text);
    char *other;

    FUZZ_CHECK(size == strlen(text) && size <= METER_DECIMAL_TEXT_SIZE);
    FUZZ_CHECK(meter_decimal_parse((struct meter_str){text, size}, &back) ==
               METER_DECIMAL_OK);
    FUZZ_CHECK(meter_decimal_compare(value, back) == 0);
    FUZZ_CHECK(meter_decimal_format(back, again) == size);
    FUZZ_CHECK(strcmp(text, again) == 0);
    FUZZ_CHECK(strcmp(text, "-0") != 0);
    if (strchr(text, '.') != NULL) {
        FUZZ_CHECK(text[size - 1] != '0');
    }
    FUZZ_CHECK(meter_decimal_multiply(value, -1, &back));
    FUZZ_CHECK(meter_decimal_add(value, back, &sum));
    FUZZ_CHECK(sum.units == 0);
    other = respell(lexeme, 7, &size);
    if (other != NULL) {
        FUZZ_CHECK(meter_decimal_parse((struct meter_str){other, size},
                                       &back) == METER_DECIMAL_OK);
        FUZZ_CHECK(meter_decimal_compare(value, back) == 0);
        free(other);
    }
}


static void
check_canonical(struct meter_str lexeme, const char *text, size_t size)
{
    char again[METER_NUMBER_TEXT_SIZE + 1];
    size_t again_size;
    char *other;

    FUZZ_CHECK(canonical((struct meter_str){text, size}, again, &again_size));
    FUZZ_CHECK(strcmp(text, again) == 0);
    other = respell(lexeme, 5, &again_size);
    if (other != NULL) {
        FUZZ_CHECK(canonical((struct meter_str){other, again_size}, again,
                             &again_size));
        FUZZ_CHECK(strcmp(text, again) == 0);
        free(other);
    }
}


struct answer {
    bool is_decimal;
    bool is_canonical;
    struct meter_decimal value;
    char text[METER_NUMBER_TEXT_SIZE + 1];
};

static void
check_lexeme(struct meter_str lexeme, struct answer *out)
{
    enum meter_decimal_error error = meter_decimal_parse(lexeme, &out->value);
    size_t size;

    out->is_decimal = error == METER_DECIMAL_OK;
    if (out->is_decimal) {
        check_decimal(lexeme, out->value);
    }
    out->is_canonical = canonical(lexeme, out->text, &size);
    if (out->is_canonical) {
        FUZZ_CHECK(error != METER_DECIMAL_SYNTAX);
        check_canonical(lexeme, out->text, size);
        /* The decimal of the canonical text is the same one. */
        if (out->is_decimal) {
            struct meter_decimal back;

            FUZZ_CHECK(meter_decimal_parse((struct meter_str){out->text, size},
                                           &back) == METER_DECIMAL_OK);
            FUZZ_CHECK(meter_decimal_compare(out->value, back) == 0);
        }
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *split = size == 0 ? NULL : memchr(data, 0, size);
    size_t first = split == NULL ? size : (size_t)(split - data);
    struct answer a, b;

    check_lexeme((struct meter_str){(const char *)data, first}, &a);
    if (split == NULL) {
        return 0;
    }
    check_lexeme((struct meter_str){(const char *)split + 1, size - first - 1},
                 &b);
    if (a.is_decimal && b.is_decimal && a.is_canonical && b.is_canonical) {
        FUZZ_CHECK((meter_decimal_compare(a.value, b.value) == 0) ==
                   (strcmp(a.text, b.text) == 0));
    }
    return 0;
}
