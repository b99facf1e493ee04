/*
 * checkpoint_import.h - counters, entity states and usage rows are restored.
 *
 *   file's rows + ledger behind the file's numbers -> [recount] -> tables
 *
 * So the totals are exact also when the days that the file stands for are
 * gone. Running it again changes nothing.
 */

#ifndef MAINTAIN_CHECKPOINT_IMPORT_H
#define MAINTAIN_CHECKPOINT_IMPORT_H

#include "config/config.h"
#include "maintain/checkpoint_row.h"

struct checkpoint_import_wish {
    const struct config *config;
    const char *path;
    bool is_dry;    /* only tell the differences */
    bool is_forced; /* also when the databases seem to be two */
};

/* Returns the exit status; all is told. */
int checkpoint_import(const struct checkpoint_import_wish *wish);

/*
 * Pure. Whether the file's rows belong into the database. *is_final: not
 * even by force. NULL: they do; else why not.
 */
const char *
checkpoint_misfit(const struct checkpoint_header *file,
                  const struct checkpoint_header *database, bool *is_final);

#endif
