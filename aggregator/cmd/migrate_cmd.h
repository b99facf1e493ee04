/*
 * migrate_cmd.h - `meterd migrate`: brings the database to this schema.
 */

#ifndef CMD_MIGRATE_CMD_H
#define CMD_MIGRATE_CMD_H

/*
 * argv[0] is "migrate"; then -c FILE (repeatable), --help. Returns the
 * exit status: 0 up to date, 1 not, 2 usage.
 */
int migrate_cmd_run(int argc, char **argv);

#endif
