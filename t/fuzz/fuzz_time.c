/*
 * fuzz_time.c - instants: parse, format, parse is a fix-point.
 *
 * Oracle: an accepted text is in range; its canonical form parses to the
 * same instant and formats to itself; the calendar is checked against a
 * year-by-year count; an epoch number spelled in microseconds with the
 * exponent e-6 or e-3 gives the instant back; a second :60 is the last
 * microsecond of a month, and one second after its :59; an answer does not
 * depend on bytes behind the text.
 */

#include "fuzz_check.h"

#include "meter_time.h"


/* Days since 1970 by counting years and months. */
static int64_t
days_counted(int year, int month, int day)
{
    static const int before[] = {0,   31,  59,  90,  120, 151,
                                 181, 212, 243, 273, 304, 334};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    int64_t days = before[month - 1] + day - 1 + (leap && month > 2);
    int64_t past = year - 1;

    return days + past * 365 + past / 4 - past / 100 + past / 400 - 719162;
}


static void
check_instant(int64_t ts_us)
{
    char text[METER_TIME_TEXT_SIZE + 1], again[METER_TIME_TEXT_SIZE + 1];
    char number[48];
    int year, month, day, hour, minute, second, fraction;
    int64_t back = 0;

    FUZZ_CHECK(ts_us >= METER_TIME_MIN && ts_us <= METER_TIME_MAX);
    meter_time_format(ts_us, text);
    FUZZ_CHECK(strlen(text) == METER_TIME_TEXT_SIZE);
    FUZZ_CHECK(meter_time_parse((struct meter_str){text, METER_TIME_TEXT_SIZE},
                                &back));
    FUZZ_CHECK(back == ts_us);
    meter_time_format(back, again);
    FUZZ_CHECK(strcmp(text, again) == 0);

    FUZZ_CHECK(sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d.%6dZ", &year, &month, &day,
                      &hour, &minute, &second, &fraction) == 7);
    FUZZ_CHECK(days_counted(year, month, day) * METER_TIME_DAY +
                   hour * METER_TIME_HOUR + minute * METER_TIME_MINUTE +
                   second * METER_TIME_SECOND + fraction ==
               ts_us);
    FUZZ_CHECK(meter_time_day(ts_us) == days_counted(year, month, day));

    if (ts_us > -INT64_C(100000000000000000) &&
        ts_us < INT64_C(100000000000000000)) {
        snprintf(number, sizeof(number), "%llde-6", (long long)ts_us);
        FUZZ_CHECK(meter_time_parse_epoch(
            (struct meter_str){number, strlen(number)}, &back));
        FUZZ_CHECK(back == ts_us);
    }
    if (ts_us <= -INT64_C(100000000000000) ||
        ts_us >= INT64_C(100000000000000)) {
        snprintf(number, sizeof(number), "%llde-3", (long long)ts_us);
        FUZZ_CHECK(meter_time_parse_epoch(
            (struct meter_str){number, strlen(number)}, &back));
        FUZZ_CHECK(back == ts_us);
    }
}


/* text has a second :60 and was read as ts_us. */
static void
check_leap(struct meter_str text, int64_t ts_us)
{
    char *plain = malloc(text.size);
    char next[METER_TIME_TEXT_SIZE + 1];
    int64_t plain_us = 0;

    FUZZ_CHECK(plain != NULL);
    memcpy(plain, text.data, text.size);
    memcpy(plain + 17, "59", 2);
    FUZZ_CHECK(
        meter_time_parse((struct meter_str){plain, text.size}, &plain_us));
    free(plain);
    FUZZ_CHECK(plain_us <= ts_us && ts_us - plain_us < METER_TIME_SECOND);
    if (ts_us < METER_TIME_MAX) {
        meter_time_format(ts_us + 1, next);
        FUZZ_CHECK(strcmp(next + 7, "-01T00:00:00.000000Z") == 0);
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct meter_str text = {(const char *)data, size};
    int64_t ts_us = 0, other = 0;
    char *longer;

    if (meter_time_parse(text, &ts_us)) {
        check_instant(ts_us);
        if (data[17] == '6') {
            check_leap(text, ts_us);
        }
        /* The grammar is closed: one more byte is never an instant. */
        longer = malloc(size + 1);
        FUZZ_CHECK(longer != NULL);
        memcpy(longer, data, size);
        longer[size] = '0';
        FUZZ_CHECK(
            !meter_time_parse((struct meter_str){longer, size + 1}, &other));
        free(longer);
        FUZZ_CHECK(!meter_time_parse_epoch(text, &other));
    }
    if (meter_time_parse_epoch(text, &ts_us)) {
        check_instant(ts_us);
    }
    if (size >= 8) {
        uint64_t span = (uint64_t)(METER_TIME_MAX - METER_TIME_MIN) + 1;
        uint64_t pick;

        memcpy(&pick, data, 8);
        check_instant(METER_TIME_MIN + (int64_t)(pick % span));
    }
    return 0;
}
