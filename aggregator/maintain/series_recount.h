/*
 * series_recount.h - series recomputed from the ledger, slice by slice.
 *
 *   for each tenant:
 *     for each slice of time: snapshot -> expected and found -> differences
 *                             [-> lock -> again -> write, mark]
 *     for each level above:   compute what is marked -> snapshot -> the same
 *                             with the level below  [-> mark -> compute]
 *
 * The level that a stretch of time is made from is the lowest one that is
 * kept there. Events may arrive all the time: what a snapshot shows of the
 * series is what the ledger has up to writer_flush.upto. Only slices that
 * have differences are written, in transactions that flushes wait for for
 * some hundred milliseconds; whoever is killed leaves each piece as it was
 * or right, and what is to be computed above it marked.
 *
 * Blocking, for commands. Memory: the rows of one slice, which is made
 * shorter where it has more than SERIES_ROWS_MAX, down to one bucket; and up
 * to SERIES_SETS_MAX dimension sets.
 */

#ifndef MAINTAIN_SERIES_RECOUNT_H
#define MAINTAIN_SERIES_RECOUNT_H

#include "maintain/recount.h"

/*
 * Of wish: command, config, tenant, name (of a series), from_us, is_writing,
 * is_reconciled, cb. to_us: buckets that begin before, INT64_MAX: all.
 * REFUSED: there are rows of a time of which the ledger lacks events; said.
 *
 * Of out: rebuilt are slices, strangers are dimension sets, floor_us: rows of
 * an earlier time were not compared with the ledger, which lacks events of it.
 */
MUST_CHECK enum recount_end
series_recount_run(const struct recount_wish *wish, int64_t to_us,
                   struct recount_outcome *out);

#endif
