/*
 * command_line.c - see command_line.h.
 */

#include "ops/command_line.h"

#include "ops/process.h"

#include <stdio.h>

bool
command_files_add(struct command_files *files, const char *command,
                  const char *path)
{
    if (files->count == CONFIG_FILES_MAX) {
        fprintf(stderr, "meterd %s: more than %d files\n", command,
                CONFIG_FILES_MAX);
        return false;
    }
    files->paths[files->count++] = path;
    return true;
}

bool
command_config_load(const struct command_files *files, unsigned needs,
                    struct config **out)
{
    struct config_errors errors;

    if (!config_load(files->paths, files->count, out, &errors)) {
        config_errors_print(&errors, stderr);
        return false;
    }
    if (!config_require(*out, needs, &errors)) {
        config_errors_print(&errors, stderr);
        config_unref(*out);
        *out = NULL;
        return false;
    }
    return true;
}

int
command_usage_error(const char *command, const char *what, const char *argument)
{
    fprintf(stderr, "meterd %s: %s%s%s%s\n", command, what,
            argument == NULL ? "" : " \"", argument == NULL ? "" : argument,
            argument == NULL ? "" : "\"");
    fprintf(stderr, "try: meterd %s --help\n", command);
    return PROCESS_USAGE;
}
