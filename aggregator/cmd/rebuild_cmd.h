/*
 * rebuild_cmd.h - `meterd rebuild counters|usage|meters|series|index`: rows
 * that are not what the ledger says are put right, while events arrive.
 */

#ifndef CMD_REBUILD_CMD_H
#define CMD_REBUILD_CMD_H

/*
 * argv[0] is "rebuild". Returns the exit status: 0 all is right now, 1 not
 * (database, or the ledger lacks events), 2 usage.
 */
int rebuild_cmd_run(int argc, char **argv);

#endif
