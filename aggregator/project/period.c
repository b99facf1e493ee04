/*
 * period.c - hours, days and months in UTC, see period.h.
 *
 *   ts of an event -> [start, end) of its period -> key of a meter row
 *   text of a query -> [parse] -> start -> [format] -> text of an answer
 */

#include "project/period.h"

#include "meter_time.h"

/*
 * First day of the month that holds the day. Years are taken to start in
 * March, see meter_time.c: month m, 0 in March, starts (153 * m + 2) / 5
 * days into its year, and an era of 400 years has 146097 days.
 */
static int64_t
month_start(int64_t day)
{
    int32_t shifted = (int32_t)(day + 719468); /* since 0000-03-01 */
    int32_t day_of_era = shifted % 146097;
    int32_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 -
                           day_of_era / 146096) /
                          365;
    int32_t day_of_year =
        day_of_era - (year_of_era * 365 + year_of_era / 4 - year_of_era / 100);
    int32_t month = (5 * day_of_year + 2) / 153;

    return day - (day_of_year - (153 * month + 2) / 5);
}

int64_t
period_start(enum billing_period period, int64_t ts_us)
{
    switch (period) {
    case BILLING_HOUR: return meter_time_bucket(ts_us, METER_TIME_HOUR);
    case BILLING_DAY: return meter_time_bucket(ts_us, METER_TIME_DAY);
    case BILLING_MONTH: break;
    }
    return month_start(meter_time_day(ts_us)) * METER_TIME_DAY;
}

int64_t
period_end(enum billing_period period, int64_t ts_us)
{
    int64_t start_us = period_start(period, ts_us);

    switch (period) {
    case BILLING_HOUR: return start_us + METER_TIME_HOUR;
    case BILLING_DAY: return start_us + METER_TIME_DAY;
    case BILLING_MONTH: break;
    }
    /* No month is longer than 31 days, nor two of them that short. */
    return month_start(meter_time_day(start_us) + 31) * METER_TIME_DAY;
}

/* Bytes of 2026-09-01T12 that a period's form has. */
static size_t
text_size(enum billing_period period)
{
    switch (period) {
    case BILLING_HOUR: return 13;
    case BILLING_DAY: return 10;
    case BILLING_MONTH: break;
    }
    return 7;
}

bool
period_parse(enum billing_period period, struct meter_str text,
             int64_t *start_us)
{
    char whole[] = "0000-01-01T00:00:00Z";

    if (text.size != text_size(period)) {
        return false;
    }
    memcpy(whole, text.data, text.size);
    return whole[10] == 'T' && meter_time_parse(METER_STR(whole), start_us);
}

size_t
period_format(enum billing_period period, int64_t start_us, char *out)
{
    char whole[METER_TIME_TEXT_SIZE + 1];
    size_t size = text_size(period);

    meter_time_format(start_us, whole);
    memcpy(out, whole, size);
    out[size] = '\0';
    return size;
}
