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

static bool lock(PGconn *pg);
static bool compare(PGconn *pg, size_t *applied);
static bool same(const PGresult *rows, int row);
static bool apply(PGconn *pg, const struct migration *migration);
static bool note(PGconn *pg, const struct migration *migration);
static bool functions_create(PGconn *pg);
static bool run_statement(PGconn *pg, enum statement statement);
static bool run_text(PGconn *pg, const struct migration *file);
static bool bytes_equal(struct meter_str bytes, const char *text);


bool
migrate_run(const char *admin_url, int *applied)
{
    PGconn *pg = pg_blocking_connect(admin_url, "migrate", MIGRATE_SETTINGS);
    size_t found = 0;
    bool ok = false;

    *applied = 0;
    if (pg == NULL) {
        return false;
    }
    if (!lock(pg) || !run_statement(pg, STATEMENT_SCHEMA_CREATE) ||
        !compare(pg, &found)) {
        goto done;
    }
    for (size_t i = found; i < migrations_count; i++) {
        if (!apply(pg, &migrations[i])) {
            goto done;
        }
        (*applied)++;
    }
    ok = functions_create(pg);

done:
    PQfinish(pg); /* the lock goes with it */
    return ok;
}


/* lock_timeout holds for this one too: wait as often as it takes. */
static bool
lock(PGconn *pg)
{
    for (;;) {
        PGresult *result = pg_blocking_run(pg, STATEMENT_SCHEMA_LOCK, NULL);
        const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
        bool busy = sqlstate != NULL && strcmp(sqlstate, "55P03") == 0;
        bool ok = busy || pg_blocking_ok(result, "lock the schema");

        PQclear(result);
        if (!busy) {
            return ok;
        }
        log_info("migrate", "waiting: another migration runs");
    }
}


/* What was applied must be what this program would apply. */
static bool
compare(PGconn *pg, size_t *applied)
{
    PGresult *rows = pg_blocking_run(pg, STATEMENT_SCHEMA_LIST, NULL);
    bool ok = pg_blocking_ok(rows, "list the migrations");

    for (int row = 0; ok && row < PQntuples(rows); row++) {
        ok = same(rows, row);
    }
    *applied = ok ? (size_t)PQntuples(rows) : 0;
    PQclear(rows);
    return ok;
}


static bool
same(const PGresult *rows, int row)
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
        !bytes_equal(pg_get_bytes(rows, row, 2), known->sha256)) {
        log_error("migrate", "an applied migration differs from this meterd's",
                  log_int("number", number), log_bytes("migration", name));
        return false;
    }
    return true;
}


static bool
apply(PGconn *pg, const struct migration *migration)
{
    log_info("migrate", "applying", log_str("migration", migration->name));
    return run_statement(pg, STATEMENT_BEGIN) && run_text(pg, migration) &&
           note(pg, migration) && run_statement(pg, STATEMENT_COMMIT);
}


static bool
note(PGconn *pg, const struct migration *migration)
{
    struct pg_params params;

    pg_params_init(&params);
    pg_param_int4(&params, migration->number);
    pg_param_text(&params,
                  (struct meter_str){migration->name, strlen(migration->name)});
    pg_param_text(&params, (struct meter_str){migration->sha256,
                                              strlen(migration->sha256)});

    PGresult *result = pg_blocking_run(pg, STATEMENT_SCHEMA_ADD, &params);
    bool ok = pg_blocking_ok(result, "note a migration");

    PQclear(result);
    pg_params_fini(&params);
    return ok;
}


static bool
functions_create(PGconn *pg)
{
    if (!run_statement(pg, STATEMENT_BEGIN)) {
        return false;
    }
    for (size_t i = 0; i < functions_count; i++) {
        if (!run_text(pg, &functions[i])) {
            return false;
        }
    }
    return run_statement(pg, STATEMENT_COMMIT);
}


static bool
run_statement(PGconn *pg, enum statement statement)
{
    PGresult *result = pg_blocking_run(pg, statement, NULL);
    bool ok = pg_blocking_ok(result, statements[statement].name);

    PQclear(result);
    return ok;
}


/* A file of ours with several statements; nothing is put into it. */
static bool
run_text(PGconn *pg, const struct migration *file)
{
    PGresult *result = PQexec(pg, file->text);
    bool ok = pg_blocking_ok(result, file->name);

    PQclear(result);
    return ok;
}


static bool
bytes_equal(struct meter_str bytes, const char *text)
{
    return meter_str_equal(bytes, (struct meter_str){text, strlen(text)});
}
