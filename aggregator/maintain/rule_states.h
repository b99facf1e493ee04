/*
 * rule_states.h - which differences a change of rules explains.
 *
 *   read -> explain, each difference -> read again -> how many after all
 *   read -> rebuild -> rebuilt
 *
 * A difference is explained where events can have gone into its row, or
 * should have, before the last meterd began to count by the rule given.
 */

#ifndef MAINTAIN_RULE_STATES_H
#define MAINTAIN_RULE_STATES_H

#include "maintain/recount.h"

struct rule_states;

/* Before any row is read. NULL: said. */
MUST_CHECK struct rule_states *
rule_states_read(const struct config *config, const char *command);
void rule_states_free(struct rule_states *states);

/* Sets what of the finding tells of rules; true: they explain it. */
bool
rule_states_explain(struct rule_states *states, struct recount_finding *out);

/*
 * Behind all rows: differences of each kind that were not explained and are,
 * since their rule changed meanwhile. False: said.
 */
MUST_CHECK bool
rule_states_again(struct rule_states *states, int64_t more[RULE_KINDS]);

/* Rows of the rule were left as they are; none of the name: nothing. */
void rule_states_leave(struct rule_states *states, enum rule_kind kind,
                       struct meter_str name);
/*
 * All rows of the kind were made again, or those of one name (NULL: all); of
 * rules that were left they were not, which is said. False: said.
 */
MUST_CHECK bool rule_states_rebuilt(struct rule_states *states,
                                    enum rule_kind kind, const char *name);

#endif
