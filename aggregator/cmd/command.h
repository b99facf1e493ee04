/*
 * command.h - the commands of meterd, and how their command lines are read.
 *
 *   argv -> command_run -> options into the command's struct -> check
 *                       -> configuration -> run -> exit status
 *
 * A command is one `struct command` in a file of its own: its verbs, its
 * options and its help are tables. aggregator/main.c lists the commands;
 * tools/check-man compares the tables with docs/man/meterd.8.
 */

#ifndef CMD_COMMAND_H
#define CMD_COMMAND_H

#include "config/config.h"

#include <stddef.h>

#define COMMAND_NO_FILE   "no configuration; give -c FILE"
#define COMMAND_WORDS_MAX 8
#define COMMAND_LIST_MAX  256

/* Instead of bits of enum config_need: -c FILE may be left out. */
#define COMMAND_NO_CONFIG (1u << 31)

/* -c FILE, in the order given. */
struct command_files {
    const char *paths[CONFIG_FILES_MAX];
    size_t count;
};

/* What an option writes at its offset in the command's struct. */
enum command_kind {
    COMMAND_FLAG,   /* bool: true */
    COMMAND_TEXT,   /* const char *, which lives as long as argv */
    COMMAND_NUMBER, /* int64_t from min to max; fallback when not given */
    COMMAND_TIME,   /* int64_t, microseconds; written 2026-09-01T12:00:00Z */
    COMMAND_LIST    /* struct command_list: may be given again and again */
};

struct command_list {
    const char *items[COMMAND_LIST_MAX];
    size_t count;
};

struct command_option {
    const char *name; /* NULL ends the table */
    char letter;      /* 0: there is no short form */
    enum command_kind kind;
    size_t offset;
    const char *value; /* its name in the help; NULL for a flag */
    const char *help;  /* lines after the first are indented by the help */
    unsigned verbs;    /* bit i: verb i takes it; 0: all do */
    int64_t min;
    int64_t max;
    int64_t fallback;
};

struct command_verb {
    const char *name; /* NULL: the command has no verbs, this is all of it */
    int (*run)(void *line); /* line: the command's struct; the exit status */
    unsigned needs;         /* enum config_need, or COMMAND_NO_CONFIG */
    const char *word;       /* what the words after the verb are */
    size_t words_min;
    size_t words_max;
};

/* For whom log lines are. */
enum command_log {
    COMMAND_LOG_DAEMON, /* JSON lines */
    COMMAND_LOG_PERSON, /* sentences */
    COMMAND_LOG_QUIET   /* sentences, and only of what went wrong */
};

struct command {
    const char *name;
    const char *summary;                  /* its line of `meterd --help` */
    const char *synopsis;                 /* "usage: meterd ..." */
    const char *about;                    /* stands before the options */
    const char *notes;                    /* stands after them; NULL: nothing */
    const struct command_verb *verbs;     /* the last one has no run */
    const struct command_option *options; /* without --config and --help */
    size_t size; /* of its struct, which begins with struct command_line */
    enum command_log log;
    int failed; /* exit status without configuration or stdout; 0 stands for
                   PROCESS_FAILED */
    /* Do the options go together? NULL: yes; else what is wrong. It may
       change line->needs and line->log. NULL: nothing to check. */
    const char *(*check)(void *line);
    /* A command that reads its command line by itself; NULL for all others. */
    int (*start)(int argc, char **argv);
};

/* What is known of every command line. */
struct command_line {
    const struct command *command;
    const struct command_verb *verb;
    struct command_files files;
    const char *words[COMMAND_WORDS_MAX];
    size_t word_count;
    unsigned given; /* bit i: option i of the table */
    unsigned needs; /* the verb's, until check changes it */
    enum command_log log;
    struct config *config; /* NULL with COMMAND_NO_CONFIG */
};

extern const struct command run_command;
extern const struct command check_command;
extern const struct command migrate_command;
extern const struct command token_command;
extern const struct command replay_command;
extern const struct command dead_letter_command;
extern const struct command checkpoint_command;
extern const struct command retention_command;

/*
 * Reads the command line and runs the command; argv[0] is replaced by its
 * name. Returns the exit status: PROCESS_USAGE when the command line is wrong,
 * which is said on stderr.
 */
int command_run(const struct command *command, int argc, char **argv);

/*
 * Loads the files and demands what the command needs (enum config_need).
 * False: each error is on stderr with file:line:column. True: one reference.
 */
MUST_CHECK bool command_config_load(const struct command_files *files,
                                    unsigned needs, struct config **out);

/*
 * Says on stderr what is wrong with the command line, and the argument in
 * quotes when there is one. Returns PROCESS_USAGE.
 */
int command_usage_error(const char *command, const char *what,
                        const char *argument);

/* Takes one more -c FILE. False: too many, said on stderr. */
MUST_CHECK static inline bool
command_files_add(struct command_files *files, const char *command,
                  const char *path)
{
    if (files->count == CONFIG_FILES_MAX) {
        command_usage_error(command, "too many files", path);
        return false;
    }
    files->paths[files->count++] = path;
    return true;
}

#endif
