/*
 * retention_cmd.h - `meterd retention`: drops partitions that the
 * configuration does not keep any longer.
 */

#ifndef CMD_RETENTION_CMD_H
#define CMD_RETENTION_CMD_H

/*
 * argv[0] is "retention". Returns the exit status: 0 nothing is left to
 * drop, 1 something had to be left or went wrong, 2 usage.
 */
int retention_cmd_run(int argc, char **argv);

#endif
