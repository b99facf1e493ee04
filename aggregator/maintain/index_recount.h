/*
 * index_recount.h - the index of declared attributes, recomputed from the
 * ledger, day by day.
 *
 *   snapshot of a day: ledger row | its entries -> differences
 *                      [-> another connection: delete, insert]
 *
 * Events may arrive all the time. An event and its entries are committed
 * together and never change, so what a snapshot shows of it can be judged and
 * put right without a lock: nobody else writes entries of events that are
 * committed, but another recount, which is refused. Constant memory.
 */

#ifndef MAINTAIN_INDEX_RECOUNT_H
#define MAINTAIN_INDEX_RECOUNT_H

#include "maintain/recount.h"

/*
 * Of wish: command, config, tenant, from_us (days of the ledger), is_writing,
 * cb. Of out: tenants is not counted, rebuilt are days, strangers are entries
 * of types and attributes that the rules do not index.
 */
MUST_CHECK enum recount_end
index_recount_run(const struct recount_wish *wish, struct recount_outcome *out);

#endif
