/*
 * series_recount_text.h - differences of series as JSON. Pure.
 *
 *   {"series":"calls","level":"5s","dimensions":{},"bucket":"2026-..."}
 *   expected {"count":"5"}, found {"count":"7"}
 */

#ifndef MAINTAIN_SERIES_RECOUNT_TEXT_H
#define MAINTAIN_SERIES_RECOUNT_TEXT_H

#include "maintain/series_recount_rows.h"

/* Which row. Dimensions that nobody knows are told by their key. */
void series_recount_put_key(struct buf *out, const struct series_rows_row *row,
                            enum meter_level level);
/* Columns that differ; all that are not NULL where there is no other side. */
void
series_recount_put_expected(struct buf *out, const struct series_rows_row *row);
void
series_recount_put_found(struct buf *out, const struct series_rows_row *row);
/* Which dimension set. */
void series_recount_put_set(struct buf *out, const struct series_rows_set *set);

#endif
