/*
 * recount.c - see recount.h.
 *
 *   ledger counted -> tenants, one after the other -> registry
 */

#include "maintain/recount.h"

#include "base/log.h"
#include "maintain/recount_run.h"
#include "meter_time.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define EVENT_ARENA_BLOCK ((size_t)1 << 16)
#define EVENT_ARENA_MAX   ((size_t)1 << 26)
#define SAY_SIZE          2048
#define UUID_TEXT_SIZE    33

void
recount_say(struct recount_run *run, const char *format, ...)
{
    char text[SAY_SIZE];
    struct buf line;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    progress_end(&run->progress);
    buf_init(&line, SAY_SIZE * 8);
    buf_put_printable(&line, (struct meter_str){text, strlen(text)});
    fprintf(stderr, "meterd %s: %.*s\n", run->wish->command, (int)line.size,
            line.data);
    buf_fini(&line);
}

void
recount_find(struct recount_run *run, const struct recount_finding *finding)
{
    run->out->differences++;
    progress_end(&run->progress);
    run->wish->cb(run->wish->asker, finding);
}


/* ---- is the ledger whole? --------------------------------------------- */

struct writers_reading {
    struct recount_run *run;
    bool is_found; /* a writer whose rows are not just those it wrote */
    bool is_told;  /* each one is a difference */
};

static void
tell_writer(struct recount_run *run, const void *result, int row)
{
    char key[UUID_TEXT_SIZE + 16];
    char writer[UUID_TEXT_SIZE];
    char expected[32];
    char found[32];
    struct recount_difference difference = {.what = "events"};
    struct recount_finding finding = {.projection = "ledger",
                                      .difference = &difference,
                                      .rule_changed_us = INT64_MIN};

    meter_hex(pg_get_bytes(result, row, 0).data, 16, writer);
    snprintf(key, sizeof(key), "{\"writer\":\"%s\"}", writer);
    snprintf(expected, sizeof(expected), "\"%lld\"",
             (long long)pg_get_int8(result, row, 1));
    snprintf(found, sizeof(found), "\"%lld\"",
             (long long)pg_get_int8(result, row, 2));
    difference.key = (struct meter_str){key, strlen(key)};
    difference.expected = (struct meter_str){expected, strlen(expected)};
    difference.found = (struct meter_str){found, strlen(found)};
    recount_find(run, &finding);
}

static bool
writer_row(void *asker, const void *result, int row)
{
    struct writers_reading *reading = asker;
    struct recount_run *run = reading->run;
    int64_t wanted = pg_get_int8(result, row, 1);
    int64_t found = pg_get_int8(result, row, 2);

    run->progress.total += found;
    if (pg_get_bool(result, row, 3)) {
        return true;
    }
    reading->is_found = true;
    run->out->lacking += wanted > found ? wanted - found : 0;
    if (reading->is_told) {
        tell_writer(run, result, row);
    }
    return true;
}

static void
put_seqs(struct pg_params *params, const struct ledger_seqs *seqs)
{
    pg_param_array_begin(params, PG_UUID, seqs->count);
    for (size_t i = 0; i < seqs->count; i++) {
        pg_put_uuid(&params->bytes, seqs->items[i].writer);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT8, seqs->count);
    for (size_t i = 0; i < seqs->count; i++) {
        pg_put_int8(&params->bytes, seqs->items[i].last);
    }
    pg_param_array_end(params);
}

/*
 * Days below the floor count as gone, though they may still be there: they
 * may go at any moment. False: the database.
 */
static bool
ledger_count(struct recount_run *run, bool *is_whole)
{
    struct writers_reading reading = {.run = run};
    bool is_good;

    if (!ledger_store_snapshot(run->store, &run->floor_us)) {
        return false;
    }
    pg_params_reset(&run->params);
    if (run->floor_us == INT64_MIN) {
        pg_param_null(&run->params);
    } else {
        pg_param_date(&run->params, meter_time_day(run->floor_us));
    }
    put_seqs(&run->params, &run->base);
    reading.is_told = run->wish->is_reconciled && run->floor_us == INT64_MIN;
    is_good = ledger_store_rows(run->store, STATEMENT_RECOUNT_WRITERS,
                                &run->params, writer_row, &reading);
    ledger_store_rollback(run->store);
    *is_whole = !reading.is_found;
    return is_good;
}

static bool
wants_totals(const struct recount_run *run)
{
    return run->is_wanted[PROJECTION_COUNTERS] ||
           run->is_wanted[PROJECTION_USAGE];
}

static bool
wants_any(const struct recount_run *run)
{
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        if (run->is_wanted[i]) {
            return true;
        }
    }
    return false;
}

static void
say_lacking(struct recount_run *run)
{
    const char *reason =
        run->wish->base != NULL
            ? "behind the numbers of the checkpoint the ledger lacks"
        : run->floor_us == INT64_MIN ? "the ledger lacks"
                                     : "retention has removed";

    recount_say(run, "%s %lld events%s", reason, (long long)run->out->lacking,
                run->wish->base == NULL && run->floor_us != INT64_MIN
                    ? ": counters and usage cannot be recomputed without a "
                      "checkpoint"
                    : "");
}

static void
leave_out(struct recount_run *run, enum projection_id id)
{
    run->out->is_left_out[id] = run->is_wanted[id];
    run->is_wanted[id] = false;
}

void
recount_meters_from(struct recount_run *run, int64_t floor_us)
{
    const struct recount_wish *wish = run->wish;

    if (floor_us > run->out->floor_us) {
        run->out->floor_us = floor_us;
    }
    run->out->is_left_out[PROJECTION_METERS] =
        run->out->is_left_out[PROJECTION_METERS] ||
        (floor_us > wish->from_us && wish->config->catalog->meter_count > 0);
}

/*
 * What may be recomputed. Days that retention took are no fault, and meters
 * know from which period on they are whole; events that are lost are one.
 */
static enum recount_end
ledger_judge(struct recount_run *run)
{
    bool is_whole = run->is_whole;
    bool is_lost = !is_whole && run->floor_us == INT64_MIN;
    const struct recount_wish *wish = run->wish;

    run->out->whole_us = is_whole ? INT64_MIN : run->floor_us;
    if (run->is_wanted[PROJECTION_METERS] && !is_whole) {
        recount_meters_from(run, run->floor_us);
    }
    if (!is_whole && run->is_wanted[PROJECTION_SERIES]) {
        leave_out(run, PROJECTION_SERIES);
        recount_say(run, "states of entities are left out: the ledger lacks "
                         "events");
    }
    if (is_whole || (is_lost && wish->is_reconciled)) {
        return RECOUNT_DONE;
    }
    if (is_lost || (wants_totals(run) && !wish->is_reconciled)) {
        say_lacking(run);
        return RECOUNT_REFUSED;
    }
    if (wants_totals(run)) {
        say_lacking(run);
        leave_out(run, PROJECTION_COUNTERS);
        leave_out(run, PROJECTION_USAGE);
    }
    return RECOUNT_DONE;
}


/* ---- tenants ---------------------------------------------------------- */

static bool
next_row(void *asker, const void *result, int row)
{
    struct buf *tenant = asker;

    if (pg_is_null(result, row, 0)) {
        buf_reset(tenant);
        return true;
    }
    buf_reset(tenant);
    buf_put_str(tenant, pg_get_bytes(result, row, 0));
    return !tenant->failed;
}

/* The one behind `tenant`, of database or file; empty: none. */
static bool
tenant_next(struct recount_run *run, struct buf *tenant)
{
    const struct checkpoint_row *row = NULL;

    pg_params_reset(&run->params);
    pg_param_text(&run->params,
                  tenant->data == NULL ? METER_STR("") : buf_str(tenant));
    if (!ledger_store_rows(run->store, STATEMENT_RECOUNT_TENANT_NEXT,
                           &run->params, next_row, tenant)) {
        return false;
    }
    /* The reader stands behind the rows of the tenant that was last. */
    if (run->wish->base != NULL && wants_totals(run)) {
        row = checkpoint_reader_row(run->wish->base);
    }
    if (row != NULL && (tenant->size == 0 ||
                        meter_str_compare(row->tenant, buf_str(tenant)) < 0)) {
        buf_reset(tenant);
        buf_put_str(tenant, row->tenant);
    }
    return !tenant->failed;
}

static enum recount_end
tenants_all(struct recount_run *run)
{
    enum recount_end end = RECOUNT_DONE;
    struct buf tenant;

    if (run->wish->base != NULL &&
        !checkpoint_reader_seek(run->wish->base, METER_STR(""))) {
        return RECOUNT_TROUBLE;
    }
    buf_init(&tenant, METER_TENANT_SIZE_MAX * 4);
    while (end == RECOUNT_DONE) {
        if (!tenant_next(run, &tenant)) {
            end = RECOUNT_TROUBLE;
        } else if (tenant.size == 0) {
            break;
        } else {
            end = recount_tenant(run, buf_str(&tenant));
        }
    }
    buf_fini(&tenant);
    return end;
}

static enum recount_end
tenants_run(struct recount_run *run)
{
    const char *tenant = run->wish->tenant;
    enum recount_end end;

    progress_start(&run->progress, run->wish->command, "events",
                   tenant == NULL ? run->progress.total : 0);
    end = tenant == NULL
              ? tenants_all(run)
              : recount_tenant(run, (struct meter_str){tenant, strlen(tenant)});
    progress_end(&run->progress);
    if (tenant != NULL && end == RECOUNT_DONE && run->out->events == 0 &&
        run->wish->base == NULL) {
        recount_say(run, "no events of tenant \"%s\" were found", tenant);
    }
    return end;
}


/* ---- registry --------------------------------------------------------- */

static bool
registry_row(void *asker, const void *result, int row)
{
    struct recount_run *run = asker;
    char expected[32];
    char found[32];
    struct recount_difference difference = {.what = "events",
                                            .key = METER_STR("{}")};
    struct recount_finding finding = {.projection = "registry",
                                      .tenant = pg_get_bytes(result, row, 0),
                                      .difference = &difference,
                                      .rule_changed_us = INT64_MIN};

    snprintf(expected, sizeof(expected), "\"%lld\"",
             (long long)pg_get_int8(result, row, 1));
    snprintf(found, sizeof(found), "\"%lld\"",
             (long long)pg_get_int8(result, row, 2));
    difference.expected = (struct meter_str){expected, strlen(expected)};
    difference.found = (struct meter_str){found, strlen(found)};
    recount_find(run, &finding);
    return true;
}

/* Every event that came with an id or got one has its registry row. */
static bool
registry_compare(struct recount_run *run)
{
    const char *tenant = run->wish->tenant;
    int64_t floor_us;
    bool is_good;

    if (!ledger_store_snapshot(run->store, &floor_us)) {
        return false;
    }
    pg_params_reset(&run->params);
    pg_param_text(
        &run->params,
        (struct meter_str){tenant, tenant == NULL ? 0 : strlen(tenant)});
    pg_param_int4(&run->params, METER_EVENT_MINTED_ID);
    is_good = floor_us != INT64_MIN ||
              ledger_store_rows(run->store, STATEMENT_RECOUNT_REGISTRY,
                                &run->params, registry_row, run);
    ledger_store_rollback(run->store);
    return is_good;
}


/* ---- all of it -------------------------------------------------------- */

/* The file's numbers, as the store wants them. */
static bool
base_numbers(struct recount_run *run)
{
    const struct checkpoint_header *header;

    if (run->wish->base == NULL) {
        return true;
    }
    header = checkpoint_reader_header(run->wish->base);
    run->base.items =
        calloc(header->writer_count + 1, sizeof(*run->base.items));
    if (run->base.items == NULL) {
        recount_say(run, "out of memory");
        return false;
    }
    run->base.count = header->writer_count;
    for (size_t i = 0; i < header->writer_count; i++) {
        memcpy(run->base.items[i].writer, header->writers[i].writer, 16);
        run->base.items[i].last = header->writers[i].last;
    }
    return true;
}

static enum recount_end
run_all(struct recount_run *run)
{
    enum recount_end end;

    run->store =
        ledger_store_open(run->wish->config->database, run->wish->command);
    if (run->store == NULL || !base_numbers(run) ||
        !ledger_count(run, &run->is_whole)) {
        return RECOUNT_TROUBLE;
    }
    end = ledger_judge(run);
    if (end == RECOUNT_DONE && wants_any(run)) {
        end = tenants_run(run);
    }
    if (end == RECOUNT_DONE && run->wish->is_reconciled && run->is_whole &&
        run->wish->base == NULL && !registry_compare(run)) {
        end = RECOUNT_TROUBLE;
    }
    return end;
}

enum recount_end
recount_run(const struct recount_wish *wish, struct recount_outcome *out)
{
    struct recount_run run = {.wish = wish, .out = out};
    enum recount_end end;

    /* A file has no meters, and only the events behind it are read. */
    CHECK(wish->base == NULL || !wish->is_wanted[PROJECTION_METERS]);
    *out =
        (struct recount_outcome){.floor_us = INT64_MIN, .whole_us = INT64_MIN};
    memcpy(run.is_wanted, wish->is_wanted, sizeof(run.is_wanted));
    arena_init(&run.arena, EVENT_ARENA_BLOCK, EVENT_ARENA_MAX);
    pg_params_init(&run.params);
    end = run_all(&run);
    ledger_seqs_fini(&run.base);
    ledger_store_close(run.store);
    pg_params_fini(&run.params);
    arena_fini(&run.arena);
    return end;
}
