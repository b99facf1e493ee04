/*
 * meter_time.h - instants as int64 microseconds since 1970, UTC.
 *
 * The grammar is closed: RFC 3339 with any offset to +-23:59 and any number
 * of fraction digits (cut to microseconds), upper or lower case T and Z; or an
 * epoch number, seconds below 10^11 in magnitude (a fraction is allowed),
 * milliseconds from there on. A leap second, 23:59:60 UTC at the end of a
 * month, is the microsecond before the next month whatever its fraction: so
 * it stays in the period that it ends. Any other :60, 24:00, dates that do not
 * exist and years outside 0001..9999 are refused.
 */

#ifndef METER_TIME_H
#define METER_TIME_H

#include "meter_types.h"

#define METER_TIME_SECOND    INT64_C(1000000)
#define METER_TIME_MINUTE    (60 * METER_TIME_SECOND)
#define METER_TIME_HOUR      (60 * METER_TIME_MINUTE)
#define METER_TIME_DAY       (24 * METER_TIME_HOUR)
#define METER_TIME_MIN       INT64_C(-62135596800000000) /* 0001-01-01 */
#define METER_TIME_MAX       INT64_C(253402300799999999) /* 9999-12-31 */
#define METER_TIME_TEXT_SIZE 27 /* 2026-09-01T12:00:00.000000Z */

/* RFC 3339 text. False: not an instant of the grammar. */
METER_MUST_CHECK bool meter_time_parse(struct meter_str text, int64_t *ts_us);

/* A JSON number or a string of digits (sign, fraction, exponent). */
METER_MUST_CHECK bool
meter_time_parse_epoch(struct meter_str text, int64_t *ts_us);

/*
 * Always six fraction digits and Z; out gets METER_TIME_TEXT_SIZE + 1. An
 * instant outside METER_TIME_MIN..METER_TIME_MAX is written as the nearer.
 */
void meter_time_format(int64_t ts_us, char *out);

/* value / step, rounded toward minus infinity; step > 0. */
int64_t meter_floor_div(int64_t value, int64_t step);
/* Largest multiple of step not above the instant; step > 0. */
int64_t meter_time_bucket(int64_t ts_us, int64_t step_us);

/* Days since 1970-01-01, floor. */
int32_t meter_time_day(int64_t ts_us);

#endif
