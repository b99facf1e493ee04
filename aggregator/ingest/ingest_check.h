/*
 * ingest_check.h - a body judged by the gate, without going through it.
 *
 *   body -> [ingest_check] -> verdicts;  registry: only looked at
 *
 * The same validation, the same identities, the same comparison with the
 * registry and inside of the body. What only the transaction finds out is
 * not seen: totals out of range, too many keys of a counter.
 */

#ifndef INGEST_INGEST_CHECK_H
#define INGEST_INGEST_CHECK_H

#include "ingest/ingest.h"

/*
 * The registry, for one who only looks: a blocking connection whose
 * transactions are read only. Only meter_writer may see the salt, so this is
 * its role.
 */
struct registry_store;

/* NULL: logged. */
MUST_CHECK struct registry_store *registry_store_open(const char *url);
void registry_store_close(struct registry_store *store);

/*
 * As ingest_submit, but cb is called at once. Outcome UNAVAILABLE: no
 * database (logged), or not enough memory for the body.
 */
void ingest_check(struct registry_store *registry, struct config *config,
                  const struct ingest_input *input, struct buf *body,
                  ingest_answer_cb cb, void *arg);

#endif
