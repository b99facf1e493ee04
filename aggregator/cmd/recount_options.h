/*
 * recount_options.h - the command lines of `meterd rebuild` and `meterd
 * reconcile`.
 */

#ifndef CMD_RECOUNT_OPTIONS_H
#define CMD_RECOUNT_OPTIONS_H

#include "cmd/command.h"
#include "maintain/recount.h"

#define RECOUNT_LIMIT_DEFAULT 1000
#define RECOUNT_ACTOR_SIZE    64
#define RECOUNT_REASON_MAX    1000

struct recount_options {
    struct command_files files;
    bool is_wanted[PROJECTION_COUNT];
    size_t word_count; /* projections named */
    const char *tenant;
    const char *counter;
    const char *metric;
    const char *series;
    const char *checkpoint;
    const char *reopen; /* a period of the metric; NULL: none */
    const char *reason;
    char actor[RECOUNT_ACTOR_SIZE];
    int64_t from_us; /* RECOUNT_FROM_EVER: not given */
    int64_t to_us;   /* INT64_MAX: not given */
    int64_t limit;
    bool is_dry;
    bool is_json;
};

enum recount_read { RECOUNT_READ_OK, RECOUNT_READ_HELP, RECOUNT_READ_BAD };

/*
 * BAD: said on stderr. At least one file is in it, and what was given goes
 * together.
 */
MUST_CHECK enum recount_read
recount_options_read(int argc, char **argv, const char *command,
                     const char *usage_text, struct recount_options *out);

/* The rules have the counter, metric or series that is named. False: said. */
MUST_CHECK bool
recount_options_known(const struct recount_options *options,
                      const struct config *config, const char *command);

/*
 * The file of --checkpoint; *out is NULL when there is none. False: it is
 * not whole or not of this database; said.
 */
MUST_CHECK bool recount_options_base(const struct recount_options *options,
                                     const struct config *config,
                                     struct checkpoint_reader **out);

/*
 * What is asked for; cb and asker are the caller's. is_wanted is of what a
 * recount of whole tenants can do: not the index, and of series the states.
 */
struct recount_wish
recount_options_wish(const struct recount_options *options,
                     const struct config *config,
                     struct checkpoint_reader *base, const char *command);

#endif
