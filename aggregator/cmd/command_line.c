/*
 * command_line.c - see command_line.h.
 */

#include "cmd/command_line.h"

#include "base/process.h"

#include <getopt.h>
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
command_files_read(int argc, char **argv, const char *command,
                   const char *usage_text, struct command_files *out,
                   int *status)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int found;

    *status = PROCESS_USAGE;
    optind = 0; /* someone may have read options before us */
    while ((found = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        switch (found) {
        case 'c':
            if (!command_files_add(out, command, optarg)) {
                return false;
            }
            break;
        case 'h':
            fputs(usage_text, stdout);
            *status = PROCESS_OK;
            return false;
        default: fputs(usage_text, stderr); return false;
        }
    }
    if (optind < argc) {
        command_usage_error(command, "unexpected argument", argv[optind]);
        return false;
    }
    if (out->count == 0) {
        command_usage_error(command, COMMAND_NO_FILE, NULL);
        return false;
    }
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
