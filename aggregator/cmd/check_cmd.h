/*
 * check_cmd.h - `meterd check`: is this configuration valid?
 */

#ifndef CMD_CHECK_CMD_H
#define CMD_CHECK_CMD_H

/*
 * argv[0] is "check"; then -c FILE (repeatable), --print, --print-options,
 * --markdown, --help. Returns the exit status: 0 valid, 1 not, 2 usage.
 */
int check_cmd_run(int argc, char **argv);

#endif
