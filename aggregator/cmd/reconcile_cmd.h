/*
 * reconcile_cmd.h - `meterd reconcile`: are counters, usage, meters, series and
 * the index what the ledger says?
 */

#ifndef CMD_RECONCILE_CMD_H
#define CMD_RECONCILE_CMD_H

/*
 * argv[0] is "reconcile". Returns the exit status: 0 no difference, 1 some,
 * 2 usage, 3 it could not be found out, 4 some, and a change of rules may be
 * the reason of each.
 */
int reconcile_cmd_run(int argc, char **argv);

#endif
