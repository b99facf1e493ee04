/*
 * migrate.c - brings a database to this program's schema.
 *
 *   meterd migrate, meterd run -> [migrate] -> PostgreSQL as meter_owner
 *
 *   lock; list; compare checksums; BEGIN, migration, note, COMMIT for each
 *   missing one; all functions in one more transaction
 *
 * Two meterd at once: the second waits for the lock and finds everything
 * applied. DDL waits at most lock_timeout for running transactions, so a
 * migration cannot stop ingest by queueing behind a long reader.
 */

#include "store/migrate.h"

#include "base/log.h"
#include "pg/blocking.h"

/* No statement_timeout: an index over a large table may take its time. */
#define MIGRATE_SETTINGS                            \
    "statement_timeout=0 client_min_messages=error" \
    " idle_in_transaction_session_timeout=0"


/* lock_timeout holds for this one too: wait as often as it takes. */
static bool
migrate_lock(struct pg_blocking *pg)
{
    while (pg_blocking_try(pg, STATEMENT_SCHEMA_LOCK, NULL) == NULL) {
        if (!pg_blocking_is_busy(pg)) {
            pg_blocking_tell(pg, "lock the schema");
            return false;
        }
        log_info("migrate", "waiting: another migration runs");
    }
    return true;
}


static bool
migrate_row_fits(const void *rows, int row)
{
    int32_t number = pg_get_int4(rows, row, 0);
    struct meter_str name = pg_get_bytes(rows, row, 1);

    if ((size_t)row >= migrations_count) {
        log_error("migrate", "the database's schema is newer than this meterd",
                  log_int("number", number), log_bytes("migration", name));
        return false;
    }

    const struct migration *known = &migrations[row];

    if (number != known->number ||
        !meter_str_equal(
            pg_get_bytes(rows, row, 2),
            (struct meter_str){known->sha256, strlen(known->sha256)})) {
        log_error("migrate", "an applied migration differs from this meterd's",
                  log_int("number", number), log_bytes("migration", name));
        return false;
    }
    return true;
}


/* What was applied must be what this program would apply. */
static bool
migrate_compare(struct pg_blocking *pg, size_t *applied)
{
    const void *rows =
        pg_blocking_run(pg, STATEMENT_SCHEMA_LIST, NULL, "list the migrations");
    bool fits = rows != NULL;

    for (int row = 0; fits && row < pg_row_count(rows); row++) {
        fits = migrate_row_fits(rows, row);
    }
    *applied = fits ? (size_t)pg_row_count(rows) : 0;
    return fits;
}


static bool
migrate_note(struct pg_blocking *pg, const struct migration *migration)
{
    struct pg_params *params = pg_blocking_params(pg);

    pg_param_int4(params, migration->number);
    pg_param_text(params,
                  (struct meter_str){migration->name, strlen(migration->name)});
    pg_param_text(params, (struct meter_str){migration->sha256,
                                             strlen(migration->sha256)});
    return pg_blocking_run(pg, STATEMENT_SCHEMA_ADD, params,
                           "note a migration") != NULL;
}


static bool
migrate_apply(struct pg_blocking *pg, const struct migration *migration)
{
    log_info("migrate", "applying", log_str("migration", migration->name));
    return pg_blocking_run(pg, STATEMENT_BEGIN, NULL, NULL) != NULL &&
           pg_blocking_text(pg, migration->text, migration->name) &&
           migrate_note(pg, migration) && pg_blocking_commit(pg);
}


static bool
migrate_functions(struct pg_blocking *pg)
{
    bool is_good = pg_blocking_run(pg, STATEMENT_BEGIN, NULL, NULL) != NULL;

    for (size_t i = 0; is_good && i < functions_count; i++) {
        is_good = pg_blocking_text(pg, functions[i].text, functions[i].name);
    }
    return is_good && pg_blocking_commit(pg);
}


bool
migrate_run(const char *admin_url, int *applied)
{
    struct pg_blocking *pg =
        pg_blocking_connect(admin_url, "migrate", MIGRATE_SETTINGS);
    size_t found = 0;

    *applied = 0;
    if (pg == NULL) {
        return false;
    }

    bool is_good =
        migrate_lock(pg) &&
        pg_blocking_run(pg, STATEMENT_SCHEMA_CREATE, NULL, NULL) != NULL &&
        migrate_compare(pg, &found);

    for (size_t i = found; is_good && i < migrations_count; i++) {
        is_good = migrate_apply(pg, &migrations[i]);
        *applied += is_good;
    }
    is_good = is_good && migrate_functions(pg);
    pg_blocking_close(pg); /* the lock goes with it */
    return is_good;
}
