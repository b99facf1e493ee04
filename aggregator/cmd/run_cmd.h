/*
 * run_cmd.h - `meterd run`: the daemon.
 */

#ifndef CMD_RUN_CMD_H
#define CMD_RUN_CMD_H

/*
 * argv[0] is the command's name; then -c FILE (repeatable), --help.
 * Returns the exit status: 0 after SIGTERM or SIGINT, 1 when it could not
 * start or go on, 2 usage.
 */
int run_cmd_run(int argc, char **argv);

#endif
