/*
 * checkpoint_import.c - see checkpoint_import.h.
 *
 *   file whole? -> of this database? -> recount with the file as its base
 */

#include "maintain/checkpoint_import.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/process.h"
#include "maintain/checkpoint_file.h"
#include "maintain/checkpoint_store.h"
#include "maintain/recount.h"

#include <stdio.h>

#define TOLD_MAX      1000 /* rows that are named */
#define TEXT_SIZE_MAX ((size_t)1 << 20)

/* A writer whose numbers went back: the file knows events that are lost. */
static bool
is_behind(const struct checkpoint_header *file,
          const struct checkpoint_header *database)
{
    for (size_t i = 0; i < file->writer_count; i++) {
        if (checkpoint_header_last(database, file->writers[i].writer) <
            file->writers[i].last) {
            return true;
        }
    }
    return false;
}

const char *
checkpoint_misfit(const struct checkpoint_header *file,
                  const struct checkpoint_header *database, bool *is_final)
{
    *is_final = false;
    if (memcmp(file->salt_digest, database->salt_digest, METER_DIGEST_SIZE) !=
        0) {
        return "the checkpoint is of another database";
    }
    *is_final = true;
    if (file->schema_version > database->schema_version) {
        return "the checkpoint is of a newer schema: run meterd migrate";
    }
    if (is_behind(file, database)) {
        return "the checkpoint knows events that this database does not have: "
               "it was restored from an older backup";
    }
    *is_final = false;
    if (file->incarnation[0] != '\0' && database->incarnation[0] != '\0' &&
        strcmp(file->incarnation, database->incarnation) != 0) {
        return "the database was restored or failed over since the "
               "checkpoint: events of the checkpoint may be lost there";
    }
    return NULL;
}

/* The rules have what the row belongs to. */
static bool
is_known(const struct catalog *catalog, const struct checkpoint_row *row)
{
    return row->kind == CHECKPOINT_USAGE
               ? catalog->usage
               : catalog_counter(catalog, row->name) != NULL;
}

/*
 * Rows that no rule knows are not restored: false, unless that is wanted.
 * Also false when the file cannot be read.
 */
static bool
rows_are_known(const struct checkpoint_import_wish *wish,
               struct checkpoint_reader *reader)
{
    const struct checkpoint_row *row;
    int64_t unknown = 0;

    while ((row = checkpoint_reader_row(reader)) != NULL) {
        if (!is_known(wish->config->catalog, row) && unknown++ == 0) {
            log_warn(
                "checkpoint",
                "the rules do not know all that the checkpoint has",
                log_str("first", row->kind == CHECKPOINT_USAGE ? "usage rows"
                                                               : "a counter"),
                log_bytes("name", row->name), log_bytes("tenant", row->tenant));
        }
        if (!checkpoint_reader_next(reader)) {
            return false;
        }
    }
    if (unknown > 0 && !wish->is_forced) {
        log_error("checkpoint",
                  "these rows would not be restored: give the rules that they "
                  "were made by, or --force",
                  log_int("rows", unknown));
    }
    return unknown == 0 || wish->is_forced;
}

/* False: told. */
static bool
header_fits(const struct checkpoint_import_wish *wish,
            const struct checkpoint_reader *reader)
{
    struct checkpoint_store *store =
        checkpoint_store_open(wish->config->database);
    const char *why;
    bool is_final;

    if (store == NULL) {
        return false;
    }
    why = checkpoint_misfit(checkpoint_reader_header(reader),
                            checkpoint_store_header(store), &is_final);
    checkpoint_store_close(store);
    if (why == NULL) {
        return true;
    }
    if (wish->is_forced && !is_final) {
        log_warn("checkpoint", why);
        return true;
    }
    log_error("checkpoint", why,
              log_str("way_out", is_final ? "none" : "--force"));
    return false;
}


/* ---- the recount ------------------------------------------------------ */

struct import_output {
    struct buf text;
    int64_t told;
};

static void
import_finding(void *asker, const struct recount_finding *finding)
{
    struct import_output *out = asker;
    const struct recount_difference *one = finding->difference;
    const struct meter_str none = METER_STR("no row");

    if (out->told++ >= TOLD_MAX) {
        return;
    }
    buf_reset(&out->text);
    buf_put_printable(&out->text, finding->tenant);
    buf_printf(&out->text, ": %s ", one->what);
    buf_put_printable(&out->text, one->key);
    buf_put_text(&out->text, ": ");
    buf_put_printable(&out->text, one->found.data == NULL ? none : one->found);
    buf_put_text(&out->text, " -> ");
    buf_put_printable(&out->text,
                      one->expected.data == NULL ? none : one->expected);
    if (!out->text.failed) {
        printf("%.*s\n", (int)out->text.size, out->text.data);
    }
}

static void
import_tell(const struct checkpoint_import_wish *wish,
            const struct recount_outcome *outcome, int64_t told)
{
    if (told > TOLD_MAX) {
        printf("... and %lld more\n", (long long)(told - TOLD_MAX));
    }
    printf("%lld tenants, %lld events behind the checkpoint: %lld rows %s\n",
           (long long)outcome->tenants, (long long)outcome->events,
           (long long)outcome->differences,
           wish->is_dry ? "would change" : "changed");
    if (outcome->unfit > 0) {
        printf("%lld events are not counted: the rules would reject them now\n",
               (long long)outcome->unfit);
    }
}

static int
import_run(const struct checkpoint_import_wish *wish,
           struct checkpoint_reader *reader)
{
    struct import_output out = {.told = 0};
    const struct recount_wish recount = {
        .command = "checkpoint",
        .config = wish->config,
        .is_wanted = {[PROJECTION_COUNTERS] = true, [PROJECTION_USAGE] = true},
        .from_us = RECOUNT_FROM_EVER,
        .base = reader,
        .is_writing = !wish->is_dry,
        .cb = import_finding,
        .asker = &out,
    };
    struct recount_outcome outcome = {.tenants = 0};
    enum recount_end end;

    buf_init(&out.text, TEXT_SIZE_MAX);
    end = recount_run(&recount, &outcome);
    buf_fini(&out.text);
    if (end != RECOUNT_DONE) {
        return PROCESS_FAILED;
    }
    import_tell(wish, &outcome, out.told);
    return outcome.unfit == 0 ? PROCESS_OK : PROCESS_FAILED;
}

int
checkpoint_import(const struct checkpoint_import_wish *wish)
{
    struct checkpoint_reader *reader = checkpoint_reader_open(wish->path);
    int status = PROCESS_FAILED;

    if (reader != NULL && header_fits(wish, reader) &&
        rows_are_known(wish, reader)) {
        status = import_run(wish, reader);
    }
    checkpoint_reader_close(reader);
    return status;
}
