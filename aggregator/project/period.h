/*
 * period.h - hours, days and months in UTC. Pure.
 *
 *   hour  2026-09-01T12    day  2026-09-01    month  2026-09
 */

#ifndef PROJECT_PERIOD_H
#define PROJECT_PERIOD_H

#include "config/catalog.h"

#define PERIOD_TEXT_SIZE 13

/* Start of the period that holds the instant; of the one behind it. */
int64_t period_start(enum billing_period period, int64_t ts_us);
int64_t period_end(enum billing_period period, int64_t ts_us);

/* Text of exactly this period's form. False: it is none. */
MUST_CHECK bool period_parse(enum billing_period period, struct meter_str text,
                             int64_t *start_us);
/* out gets PERIOD_TEXT_SIZE + 1 bytes; returns the length. */
size_t period_format(enum billing_period period, int64_t start_us, char *out);

#endif
