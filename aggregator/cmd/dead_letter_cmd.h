/*
 * dead_letter_cmd.h - `meterd dead-letter list|show|replay`: records of the
 * edge that had to be rejected.
 */

#ifndef CMD_DEAD_LETTER_CMD_H
#define CMD_DEAD_LETTER_CMD_H

/*
 * argv[0] is "dead-letter"; then the verb and its options. Returns the exit
 * status: 0 done, 1 not or not all (no such letter, still rejected,
 * database), 2 usage.
 */
int dead_letter_cmd_run(int argc, char **argv);

#endif
