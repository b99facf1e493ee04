/*
 * command_line.h - what all subcommands share: -c FILE and its loading.
 */

#ifndef CMD_COMMAND_LINE_H
#define CMD_COMMAND_LINE_H

#include "config/config.h"

#define COMMAND_NO_FILE "no configuration; give -c FILE"

struct command_files {
    const char *paths[CONFIG_FILES_MAX];
    size_t count;
};

/* False: too many, said on stderr. */
MUST_CHECK bool command_files_add(struct command_files *files,
                                  const char *command, const char *path);

/*
 * The command line of a command that takes -c FILE and --help only. True: at
 * least one file in *out, which the caller has zeroed. False: all is said,
 * end with *status.
 */
MUST_CHECK bool command_files_read(int argc, char **argv, const char *command,
                                   const char *usage_text,
                                   struct command_files *out, int *status);

/*
 * Loads and demands what the command needs (enum config_need). False: each
 * error is on stderr with file:line:column. True: one reference.
 */
MUST_CHECK bool command_config_load(const struct command_files *files,
                                    unsigned needs, struct config **out);

/* An argument too many or too few, on stderr; returns PROCESS_USAGE. */
int command_usage_error(const char *command, const char *what,
                        const char *argument);

#endif
