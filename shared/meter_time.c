/*
 * meter_time.c - instants: RFC 3339 text, epoch numbers, buckets.
 *
 *   ts of an event, query arguments -> [time] -> int64 microseconds
 *
 * No clock, no time zone database, no floating point and no libc time
 * functions. Whatever is not in the closed grammar is refused. Digits below
 * a microsecond are cut toward the past, so that a cut instant never lies
 * in a later bucket than the instant that was sent.
 */

#include "meter_time.h"

#include "meter_decimal.h"

/* Epoch numbers: 0.d * 10^11 is the last magnitude read as seconds. */
#define EPOCH_SECONDS_MAGNITUDE 11
#define EPOCH_DIGITS_MAX        18 /* of METER_TIME_MAX in microseconds */

struct civil {
    int32_t year;
    int32_t month; /* 1..12 */
    int32_t day;   /* 1..31 */
};


/* Reads exactly count digits; -1 when one of them is none. */
static int32_t
take_digits(const char *text, size_t count)
{
    int32_t value = 0;

    for (size_t i = 0; i < count; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }
        value = value * 10 + (text[i] - '0');
    }
    return value;
}


static int32_t
days_in_month(int32_t year, int32_t month)
{
    static const int8_t days[] = {31, 28, 31, 30, 31, 30,
                                  31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return days[month - 1] + (month == 2 && leap);
}


/*
 * Days since 1970-01-01. The year is taken to start in March, which puts
 * the leap day last: an era of 400 years has 146097 days, and a month's
 * first day within the year is (153 * m + 2) / 5 for m = 0 in March.
 */
static int64_t
days_from_civil(struct civil date)
{
    int32_t year = date.year - (date.month <= 2);
    int32_t era = year / 400; /* year >= 0 here */
    int32_t year_of_era = year - era * 400;
    int32_t month = date.month + (date.month > 2 ? -3 : 9);
    int32_t day_of_year = (153 * month + 2) / 5 + date.day - 1;
    int32_t day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;

    return (int64_t)era * 146097 + day_of_era - 719468;
}


/* The inverse, for days of the years 1 to 9999. */
static struct civil
civil_from_days(int64_t days)
{
    struct civil date;
    int32_t shifted = (int32_t)(days + 719468); /* since 0000-03-01 */
    int32_t era = shifted / 146097;
    int32_t day_of_era = shifted - era * 146097;
    int32_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 -
                           day_of_era / 146096) /
                          365;
    int32_t day_of_year =
        day_of_era - (year_of_era * 365 + year_of_era / 4 - year_of_era / 100);
    int32_t month = (5 * day_of_year + 2) / 153;

    date.day = day_of_year - (153 * month + 2) / 5 + 1;
    date.month = month < 10 ? month + 3 : month - 9;
    date.year = year_of_era + era * 400 + (date.month <= 2);
    return date;
}


/* YYYY-MM-DDThh:mm:ss, 19 bytes, as if in UTC; of :60 the :59 before it. */
static bool
parse_local(const char *text, int64_t *ts_us, bool *is_leap)
{
    struct civil date = {take_digits(text, 4), take_digits(text + 5, 2),
                         take_digits(text + 8, 2)};
    int32_t hour = take_digits(text + 11, 2);
    int32_t minute = take_digits(text + 14, 2);
    int32_t second = take_digits(text + 17, 2);

    if (text[4] != '-' || text[7] != '-' ||
        (text[10] != 'T' && text[10] != 't') || text[13] != ':' ||
        text[16] != ':') {
        return false;
    }
    if (date.year < 1 || date.month < 1 || date.month > 12 || date.day < 1 ||
        date.day > days_in_month(date.year, date.month)) {
        return false;
    }
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 ||
        second > 60) {
        return false;
    }
    *is_leap = second == 60;
    second -= *is_leap;
    *ts_us = days_from_civil(date) * METER_TIME_DAY + hour * METER_TIME_HOUR +
             minute * METER_TIME_MINUTE + second * METER_TIME_SECOND;
    return true;
}


/* Z or +-hh:mm, and nothing behind it. */
static bool
parse_offset(const char *text, size_t size, int64_t *offset_us)
{
    int32_t hour, minute;

    if (size == 1 && (text[0] == 'Z' || text[0] == 'z')) {
        *offset_us = 0;
        return true;
    }
    if (size != 6 || (text[0] != '+' && text[0] != '-') || text[3] != ':') {
        return false;
    }
    hour = take_digits(text + 1, 2);
    minute = take_digits(text + 4, 2);
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59) {
        return false;
    }
    *offset_us = hour * METER_TIME_HOUR + minute * METER_TIME_MINUTE;
    if (text[0] == '-') {
        *offset_us = -*offset_us;
    }
    return true;
}


/*
 * second_us is the :59 before a second :60. False: the next second does not
 * begin a month of UTC, and leap seconds are nowhere else.
 */
static bool
leap_is_allowed(int64_t second_us)
{
    int64_t next_us = second_us + METER_TIME_SECOND;
    int64_t days = meter_floor_div(next_us, METER_TIME_DAY);

    return next_us == days * METER_TIME_DAY && civil_from_days(days).day == 1;
}


bool
meter_time_parse(struct meter_str text, int64_t *ts_us)
{
    int64_t local_us, offset_us, instant_us;
    int64_t fraction_us = 0;
    size_t at = 19;
    bool is_leap;

    if (text.size < 20 || !parse_local(text.data, &local_us, &is_leap)) {
        return false;
    }
    if (text.data[at] == '.') {
        int64_t unit = METER_TIME_SECOND / 10;
        size_t start = ++at;

        while (at < text.size && text.data[at] >= '0' && text.data[at] <= '9') {
            fraction_us += (text.data[at] - '0') * unit;
            unit /= 10;
            at++;
        }
        if (at == start) {
            return false;
        }
    }
    if (!parse_offset(text.data + at, text.size - at, &offset_us)) {
        return false;
    }
    instant_us = local_us - offset_us;
    if (is_leap) {
        if (!leap_is_allowed(instant_us)) {
            return false;
        }
        fraction_us = METER_TIME_SECOND - 1;
    }
    instant_us += fraction_us;
    if (instant_us < METER_TIME_MIN || instant_us > METER_TIME_MAX) {
        return false;
    }
    *ts_us = instant_us;
    return true;
}


bool
meter_time_parse_epoch(struct meter_str text, int64_t *ts_us)
{
    struct meter_number number;
    const char *at;
    int64_t digits; /* of the whole microseconds */
    int64_t value = 0;

    if (!meter_number_scan(text, METER_NUMBER_LENIENT, &number)) {
        return false;
    }
    digits = number.magnitude +
             (number.magnitude <= EPOCH_SECONDS_MAGNITUDE ? 6 : 3);
    if (number.count > 0 && digits > EPOCH_DIGITS_MAX) {
        return false;
    }
    at = number.digits;
    for (int64_t i = 0; i < digits; i++) {
        bool has_digit = (uint64_t)i < number.count;

        value = value * 10 + (has_digit ? meter_number_digit(&at) : 0);
    }
    if (number.negative) {
        /* Significant digits are left over: cut toward the past. */
        value = -value - ((int64_t)number.count > digits);
    }
    if (value < METER_TIME_MIN || value > METER_TIME_MAX) {
        return false;
    }
    *ts_us = value;
    return true;
}


/* Writes count decimal digits of value. */
static void
put_digits(char *out, int32_t value, size_t count)
{
    while (count > 0) {
        out[--count] = (char)('0' + value % 10);
        value /= 10;
    }
}


void
meter_time_format(int64_t ts_us, char *out)
{
    struct civil date;
    int64_t days, rest;

    if (ts_us < METER_TIME_MIN) {
        ts_us = METER_TIME_MIN;
    } else if (ts_us > METER_TIME_MAX) {
        ts_us = METER_TIME_MAX;
    }
    days = meter_floor_div(ts_us, METER_TIME_DAY);
    rest = ts_us - days * METER_TIME_DAY;
    date = civil_from_days(days);

    memcpy(out, "0000-00-00T00:00:00.000000Z", METER_TIME_TEXT_SIZE + 1);
    put_digits(out, date.year, 4);
    put_digits(out + 5, date.month, 2);
    put_digits(out + 8, date.day, 2);
    put_digits(out + 11, (int32_t)(rest / METER_TIME_HOUR), 2);
    put_digits(out + 14, (int32_t)(rest / METER_TIME_MINUTE % 60), 2);
    put_digits(out + 17, (int32_t)(rest / METER_TIME_SECOND % 60), 2);
    put_digits(out + 20, (int32_t)(rest % METER_TIME_SECOND), 6);
}


int64_t
meter_floor_div(int64_t value, int64_t step)
{
    int64_t quotient = value / step;

    return quotient - (value % step < 0);
}


int64_t
meter_time_bucket(int64_t ts_us, int64_t step_us)
{
    int64_t rest = ts_us % step_us;
    int64_t bucket;

    if (rest < 0) {
        rest += step_us;
    }
    /* Only far outside the grammar's range can there be no such multiple. */
    if (__builtin_sub_overflow(ts_us, rest, &bucket)) {
        return INT64_MIN;
    }
    return bucket;
}


int32_t
meter_time_day(int64_t ts_us)
{
    return (int32_t)meter_floor_div(ts_us, METER_TIME_DAY);
}
