/*
 * token_cmd.h - `meterd token create|list|revoke`: bearer tokens.
 */

#ifndef OPS_TOKEN_CMD_H
#define OPS_TOKEN_CMD_H

/*
 * argv[0] is "token"; then the verb and its options. Returns the exit
 * status: 0 done, 1 not (no such token, database), 2 usage.
 */
int token_cmd_run(int argc, char **argv);

#endif
