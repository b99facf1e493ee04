/*
 * checkpoint_cmd.h - `meterd checkpoint`: what cannot be recomputed, saved
 * and restored.
 */

#ifndef CMD_CHECKPOINT_CMD_H
#define CMD_CHECKPOINT_CMD_H

/*
 * argv[0] is "checkpoint"; then export, import or show, their words, -c FILE
 * (repeatable), --help. Returns the exit status: 0 done, 1 not, 2 usage.
 */
int checkpoint_cmd_run(int argc, char **argv);

#endif
