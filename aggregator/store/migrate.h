/*
 * migrate.h - brings a database to this program's schema.
 *
 * Blocking; runs before the loop or as a command. Takes an advisory lock,
 * applies the numbered migrations that are missing, one transaction each,
 * compares the checksums of the applied ones (a changed file is refused),
 * then re-creates the functions of sql/functions. Connects as meter_owner.
 */

#ifndef STORE_MIGRATE_H
#define STORE_MIGRATE_H

#include "base/check.h"

/* False: logged. *applied counts the migrations that were run. */
MUST_CHECK bool migrate_run(const char *admin_url, int *applied);

#endif
