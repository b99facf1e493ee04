/*
 * replay_cmd.h - meterd replay: events of a file, as if they came by HTTP.
 */

#ifndef CMD_REPLAY_CMD_H
#define CMD_REPLAY_CMD_H

/* Returns the exit status, enum replay_exit. */
int replay_cmd_run(int argc, char **argv);

#endif
