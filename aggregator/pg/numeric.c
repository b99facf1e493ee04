/*
 * numeric.c - decimals and their sums as PostgreSQL's numeric.
 *
 *   series, ingest -> [put] -> parameters; result fields -> [get] -> query
 *
 *   groups | weight | sign | scale | groups of four decimal digits ...
 *
 * The first group counts 10000^weight. Zero groups at either end are left
 * out, as the server stores them. What is put has a scale of 9; what is read
 * may have any.
 */

#include "pg/param.h"

#include "meter_limits.h"

#include <endian.h>

#define NUMERIC_BASE       10000
#define NUMERIC_NEGATIVE   0x4000
#define NUMERIC_FRACTION   3 /* groups of four digits after the point */
#define NUMERIC_GROUPS_MAX 19
#define NUMERIC_UNIT       UINT64_C(1000000000) /* 10^METER_DECIMAL_FRACTION */

/* Groups that come out of a sum at once: the most that 64 bits hold. */
#define NUMERIC_GROUPS_OF_PART 4
#define NUMERIC_PART           UINT64_C(10000000000000000)

_Static_assert(4 * (NUMERIC_GROUPS_MAX - NUMERIC_FRACTION) >=
                   DECIMAL_SUM_DIGITS + 1 - METER_DECIMAL_FRACTION +
                       4 * (NUMERIC_GROUPS_OF_PART - 1),
               "191 bits have room");

static void
put_u16(struct buf *out, uint16_t value)
{
    uint16_t wire = htobe16(value);

    buf_put(out, &wire, sizeof(wire));
}


static uint16_t
take_u16(const char *at)
{
    uint16_t wire;

    memcpy(&wire, at, sizeof(wire));
    return be16toh(wire);
}


void
pg_put_sum(struct buf *out, struct decimal_sum sum)
{
    bool negative;
    struct decimal_sum whole = decimal_sum_magnitude(sum, &negative);
    uint64_t part = decimal_sum_cut(&whole, NUMERIC_UNIT) * 1000;
    uint16_t groups[NUMERIC_GROUPS_MAX];
    int first = NUMERIC_GROUPS_MAX;
    int last = NUMERIC_GROUPS_MAX;

    for (int i = 0; i < NUMERIC_FRACTION; i++) {
        groups[--first] = (uint16_t)(part % NUMERIC_BASE);
        part /= NUMERIC_BASE;
    }
    while (!decimal_sum_is_zero(whole)) {
        CHECK(first >= NUMERIC_GROUPS_OF_PART);
        part = decimal_sum_cut(&whole, NUMERIC_PART);
        for (int i = 0; i < NUMERIC_GROUPS_OF_PART; i++) {
            groups[--first] = (uint16_t)(part % NUMERIC_BASE);
            part /= NUMERIC_BASE;
        }
    }
    while (first < last && groups[first] == 0) {
        first++;
    }
    while (last > first && groups[last - 1] == 0) {
        last--;
    }

    bool zero = first == last;
    int weight = NUMERIC_GROUPS_MAX - NUMERIC_FRACTION - 1 - first;

    put_u16(out, 0);
    put_u16(out, (uint16_t)(8 + 2 * (last - first)));
    put_u16(out, (uint16_t)(last - first));
    put_u16(out, (uint16_t)(zero ? 0 : weight));
    put_u16(out, negative ? NUMERIC_NEGATIVE : 0);
    put_u16(out, METER_DECIMAL_FRACTION);
    for (int i = first; i < last; i++) {
        put_u16(out, groups[i]);
    }
}


void
pg_put_numeric(struct buf *out, struct meter_decimal value)
{
    pg_put_sum(out, decimal_sum_of(value));
}


/* Of the last group only the first digit is a decimal that is kept. */
static bool
numeric_group_append(struct decimal_sum *sum, uint16_t group, int weight)
{
    if (weight > -NUMERIC_FRACTION) {
        return decimal_sum_append(sum, NUMERIC_BASE, group);
    }
    if (weight == -NUMERIC_FRACTION) {
        return group % 1000 == 0 && decimal_sum_append(sum, 10, group / 1000);
    }
    return group == 0;
}


/*
 * Groups after the ninth decimal may only hold zeros; NaN and the infinities
 * are other signs.
 */
bool
pg_sum_of(struct meter_str bytes, struct decimal_sum *out)
{
    CHECK(bytes.data != NULL && bytes.size >= 8);

    int count = take_u16(bytes.data);
    int weight = (int16_t)take_u16(bytes.data + 2);
    uint16_t sign = take_u16(bytes.data + 4);
    struct decimal_sum sum = {{0}};

    CHECK(bytes.size == 8 + 2 * (size_t)count);
    if (sign != 0 && sign != NUMERIC_NEGATIVE) {
        return false;
    }
    for (int i = 0; i < count; i++, weight--) {
        uint16_t group = take_u16(bytes.data + 8 + 2 * i);

        CHECK(group < NUMERIC_BASE);
        if (!numeric_group_append(&sum, group, weight)) {
            return false;
        }
    }
    /* Groups that the server leaves out, down to the last decimal. */
    for (; weight >= -NUMERIC_FRACTION && !decimal_sum_is_zero(sum); weight--) {
        if (!numeric_group_append(&sum, 0, weight)) {
            return false;
        }
    }
    *out = sign == NUMERIC_NEGATIVE ? decimal_sum_negate(sum) : sum;
    return true;
}


bool
pg_numeric_of(struct meter_str bytes, struct meter_decimal *out)
{
    struct decimal_sum sum;

    return pg_sum_of(bytes, &sum) && decimal_sum_decimal(sum, out);
}


bool
pg_get_sum(const void *result, int row, int column, struct decimal_sum *out)
{
    return pg_sum_of(pg_get_bytes(result, row, column), out);
}


bool
pg_get_numeric(const void *result, int row, int column,
               struct meter_decimal *out)
{
    return pg_numeric_of(pg_get_bytes(result, row, column), out);
}
