/*
 * token_cmd.h - `meterd token create|list|revoke`: bearer tokens.
 */

#ifndef CMD_TOKEN_CMD_H
#define CMD_TOKEN_CMD_H

/*
 * argv[0] is "token"; then the verb and its options. Returns the exit
 * status: 0 done, 1 not (no such token, database), 2 usage.
 */
int token_cmd_run(int argc, char **argv);

#endif
