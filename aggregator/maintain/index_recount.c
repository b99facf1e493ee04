/*
 * index_recount.c - see index_recount.h.
 *
 *   one connection reads the days, another one writes what was wrong
 */

#include "maintain/index_recount.h"

#include "base/check.h"
#include "base/clock.h"
#include "maintain/index_recount_entries.h"
#include "maintain/recount_run.h"
#include "meter_time.h"
#include "store/ledger_store.h"

#include <stdio.h>
#include <stdlib.h>

#define EVENT_ARENA_BLOCK ((size_t)1 << 16)
#define EVENT_ARENA_MAX   ((size_t)1 << 26)
#define BATCH_BLOCK       ((size_t)1 << 20)
#define BATCH_MAX         ((size_t)1 << 28)
#define BATCH_ENTRIES     4000
#define TEXT_MAX          ((size_t)16 << 20)
#define UNFIT_TOLD_MAX    10

enum row_column {
    ROW_TENANT,
    ROW_WRITER,
    ROW_WRITER_SEQ,
    ROW_EVENT_ID,
    ROW_TYPE,
    ROW_TS,
    ROW_ATTRIBUTES,
    ROW_ENTRIES,
    ROW_RECORDED
};

/* An entry that goes or comes, in the arena of the batch. */
struct change {
    struct index_recount_entry entry;
    struct meter_str tenant;
    uint8_t writer[16];
    int64_t writer_seq;
};

struct changes {
    struct change *items;
    size_t count;
    size_t room;
};

struct index_run {
    struct recount_run *run;
    struct ledger_store *writer; /* NULL: only compares */
    struct series_days *days;
    struct pg_params params; /* of the writer */
    struct arena batch;
    struct changes gone;
    struct changes made;
    int32_t *list; /* days */
    size_t list_count;
    int32_t day;
    bool is_written; /* something of the day */
    struct buf key;
    struct buf expected;
    struct buf found;
};


/* ---- writing ---------------------------------------------------------- */

static void
put_changes(struct index_run *index, const struct changes *changes)
{
    struct pg_params *params = &index->params;
    const struct change *items = changes->items;

    pg_params_reset(params);
    pg_param_date(params, index->day);
    for (int column = 0; column < 4; column++) {
        pg_param_array_begin(params, PG_TEXT, changes->count);
        for (size_t i = 0; i < changes->count; i++) {
            pg_put_text(&params->bytes, column == 0   ? items[i].tenant
                                        : column == 1 ? items[i].entry.type
                                        : column == 2 ? items[i].entry.attribute
                                                      : items[i].entry.value);
        }
        pg_param_array_end(params);
    }
    pg_param_array_begin(params, PG_TIMESTAMPTZ, changes->count);
    for (size_t i = 0; i < changes->count; i++) {
        pg_put_time(&params->bytes, items[i].entry.ts_us);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_UUID, changes->count);
    for (size_t i = 0; i < changes->count; i++) {
        pg_put_uuid(&params->bytes, items[i].writer);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT8, changes->count);
    for (size_t i = 0; i < changes->count; i++) {
        pg_put_int8(&params->bytes, items[i].writer_seq);
    }
    pg_param_array_end(params);
}

static bool
changes_write(struct index_run *index, enum statement statement,
              const struct changes *changes)
{
    if (changes->count == 0) {
        return true;
    }
    put_changes(index, changes);
    return ledger_store_rows(index->writer, statement, &index->params, NULL,
                             NULL);
}

/* All that was collected, whole events only, in one transaction. */
static bool
batch_write(struct index_run *index)
{
    bool is_good;

    if (index->gone.count == 0 && index->made.count == 0) {
        return true;
    }
    is_good =
        (index->made.count == 0 ||
         series_days_make(index->days, PARTITION_INDEX, index->day)) &&
        ledger_store_rows(index->writer, STATEMENT_BEGIN, NULL, NULL, NULL) &&
        changes_write(index, STATEMENT_INDEX_RECOUNT_DELETE, &index->gone);
    CRASH_POINT("rebuild_in_write");
    is_good =
        is_good &&
        changes_write(index, STATEMENT_INDEX_RECOUNT_INSERT, &index->made) &&
        ledger_store_commit(index->writer);
    ledger_store_rollback(index->writer);
    CRASH_POINT("rebuild_after_commit");
    index->gone.count = 0;
    index->made.count = 0;
    index->is_written = true;
    arena_reset(&index->batch);
    return is_good;
}

/* False: no memory. */
static bool
changes_add(struct index_run *index, struct changes *changes,
            const struct index_recount_list *list, const void *result, int row)
{
    for (size_t i = 0; i < list->count; i++) {
        struct change *one;

        if (changes->count == changes->room) {
            size_t room = changes->room == 0 ? 1024 : changes->room * 2;
            struct change *items =
                realloc(changes->items, room * sizeof(*items));

            if (items == NULL) {
                return false;
            }
            changes->items = items;
            changes->room = room;
        }
        one = &changes->items[changes->count];
        one->entry.ts_us = list->items[i].ts_us;
        one->writer_seq = pg_get_int8(result, row, ROW_WRITER_SEQ);
        memcpy(one->writer, pg_get_bytes(result, row, ROW_WRITER).data, 16);
        if (!arena_copy(&index->batch, pg_get_bytes(result, row, ROW_TENANT),
                        &one->tenant) ||
            !arena_copy(&index->batch, list->items[i].type, &one->entry.type) ||
            !arena_copy(&index->batch, list->items[i].attribute,
                        &one->entry.attribute) ||
            !arena_copy(&index->batch, list->items[i].value,
                        &one->entry.value)) {
            return false;
        }
        changes->count++;
    }
    return true;
}


/* ---- comparing -------------------------------------------------------- */

/* An entry without its event has no rule. */
static struct recount_origin
origin_of(const struct index_run *index, const void *result, int row)
{
    struct recount_origin origin = {.kind = RULE_INDEX,
                                    .since_us = RECOUNT_SINCE_NEVER};
    const struct event_type *type = NULL;

    if (!pg_is_null(result, row, ROW_TYPE)) {
        type = catalog_event_type(index->run->wish->config->catalog,
                                  pg_get_bytes(result, row, ROW_TYPE));
    }
    if (type != NULL) {
        origin.names[origin.name_count++] = type->name;
        origin.since_us = pg_get_time(result, row, ROW_RECORDED);
    }
    return origin;
}

static bool
tell(struct index_run *index, const struct index_recount_entries *entries,
     const void *result, int row)
{
    struct recount_difference one = {.origin = origin_of(index, result, row),
                                     .what = "event"};
    char writer[33];
    const struct recount_finding finding = {
        .projection = "index",
        .tenant = pg_get_bytes(result, row, ROW_TENANT),
        .difference = &one,
        .rule_changed_us = INT64_MIN};

    buf_reset(&index->key);
    buf_reset(&index->expected);
    buf_reset(&index->found);
    meter_hex(pg_get_bytes(result, row, ROW_WRITER).data, 16, writer);
    buf_printf(&index->key, "{\"writer\":\"%s\",\"writerSeq\":\"%lld\"}",
               writer, (long long)pg_get_int8(result, row, ROW_WRITER_SEQ));
    one.key = buf_str(&index->key);
    if (entries->missing.count > 0) {
        index_recount_put_entries(&index->expected, &entries->missing);
        one.expected = buf_str(&index->expected);
    }
    if (entries->extra.count > 0) {
        index_recount_put_entries(&index->found, &entries->extra);
        one.found = buf_str(&index->found);
    }
    if (index->key.failed || index->expected.failed || index->found.failed) {
        return false;
    }
    recount_find(index->run, &finding);
    return true;
}

static void
tell_unfit(struct index_run *index, const void *result, int row,
           const char *error)
{
    struct meter_str id = pg_get_bytes(result, row, ROW_EVENT_ID);
    struct meter_str tenant = pg_get_bytes(result, row, ROW_TENANT);

    index->run->out->unfit++;
    if (index->run->told++ < UNFIT_TOLD_MAX) {
        recount_say(index->run, "event \"%.*s\" of tenant \"%.*s\": index: %s",
                    (int)id.size, id.data == NULL ? "" : id.data,
                    (int)tenant.size, tenant.data, error);
    }
}

static bool
no_memory(struct index_run *index)
{
    recount_say(index->run, "out of memory");
    return false;
}

/* What is wrong of one event is put right as a whole. */
static bool
event_row(void *asker, const void *result, int row)
{
    struct index_run *index = asker;
    struct arena *arena = &index->run->arena;
    struct index_recount_event event = {
        .type = pg_get_bytes(result, row, ROW_TYPE),
        .attributes = pg_get_bytes(result, row, ROW_ATTRIBUTES),
    };
    struct index_recount_entries entries;
    const char *error;

    index->run->out->events += event.type.data != NULL;
    progress_add(&index->run->progress, 1);
    if (event.type.data != NULL) {
        event.ts_us = pg_get_time(result, row, ROW_TS);
    }
    arena_reset(arena);
    if (!index_recount_compare(index->run->wish->config->catalog, &event,
                               pg_get_bytes(result, row, ROW_ENTRIES), arena,
                               &entries, &error)) {
        if (arena->no_memory) {
            return no_memory(index);
        }
        tell_unfit(index, result, row, error);
        return true;
    }
    index->run->out->strangers += (int64_t)entries.strangers;
    if (entries.missing.count == 0 && entries.extra.count == 0) {
        return true;
    }
    if (!tell(index, &entries, result, row)) {
        return no_memory(index);
    }
    if (index->writer == NULL) {
        return true;
    }
    /* A row that is there twice goes twice: all come again. */
    if (!changes_add(index, &index->gone, &entries.found, result, row) ||
        !changes_add(index, &index->made, &entries.expected, result, row)) {
        return no_memory(index);
    }
    return index->gone.count + index->made.count < BATCH_ENTRIES ||
           batch_write(index);
}


/* ---- days ------------------------------------------------------------- */

/* Types with indexed attributes; NULL where any type may have some. */
static void
put_types(const struct catalog *catalog, struct pg_params *params)
{
    size_t count = 0;

    if (catalog->any_type != NULL && catalog->any_type->indexed.count > 0) {
        pg_param_null(params);
        return;
    }
    for (size_t i = 0; i < catalog->event_type_count; i++) {
        count += catalog->event_types[i].indexed.count > 0;
    }
    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < catalog->event_type_count; i++) {
        if (catalog->event_types[i].indexed.count > 0) {
            pg_put_text(&params->bytes, catalog->event_types[i].name);
        }
    }
    pg_param_array_end(params);
}

/*
 * The first day that is kept in the index by the clock: ingest leaves out
 * earlier ones. A day less, for another clock that is ahead.
 */
static int64_t
kept_from(const struct config *config)
{
    int days = config->retention.event_index_days;

    return days < 0
               ? INT64_MIN
               : (meter_time_day(clock_wall_us()) - days + 1) * METER_TIME_DAY;
}

/* Days below a floor are left out: they may go at any moment. */
static bool
is_below_floor(struct index_run *index, const struct series_floors *floors)
{
    int64_t day_us = index->day * METER_TIME_DAY;

    index->run->out->whole_us = floors->event_us;
    if (day_us < floors->event_us) {
        index->run->out->floor_us = floors->event_us;
    }
    return day_us < floors->event_us || day_us < floors->index_us ||
           day_us < kept_from(index->run->wish->config);
}

static bool
day_run(struct index_run *index)
{
    struct recount_run *run = index->run;
    const char *tenant = run->wish->tenant;
    struct series_view view;
    bool is_good = true;

    if (!series_store_snapshot(run->store, &view)) {
        return false;
    }
    index->is_written = false;
    if (!is_below_floor(index, &view.floors)) {
        pg_params_reset(&run->params);
        pg_param_date(&run->params, index->day);
        pg_param_text(
            &run->params,
            (struct meter_str){tenant, tenant == NULL ? 0 : strlen(tenant)});
        put_types(run->wish->config->catalog, &run->params);
        is_good = ledger_store_rows(run->store, STATEMENT_INDEX_RECOUNT_ROWS,
                                    &run->params, event_row, index) &&
                  batch_write(index);
    }
    ledger_store_rollback(run->store);
    series_view_fini(&view);
    run->out->rebuilt += index->is_written;
    return is_good;
}

static bool
day_row(void *asker, const void *result, int row)
{
    struct index_run *index = asker;
    int32_t *list =
        realloc(index->list, (index->list_count + 1) * sizeof(*list));

    if (list == NULL) {
        return no_memory(index);
    }
    index->list = list;
    list[index->list_count++] = pg_get_date(result, row, 0);
    return true;
}

static bool
days_run(struct index_run *index)
{
    struct recount_run *run = index->run;

    pg_params_reset(&run->params);
    if (run->wish->from_us == RECOUNT_FROM_EVER) {
        pg_param_null(&run->params);
    } else {
        pg_param_date(&run->params, meter_time_day(run->wish->from_us));
    }
    if (!ledger_store_rows(run->store, STATEMENT_INDEX_RECOUNT_DAYS,
                           &run->params, day_row, index)) {
        return false;
    }
    for (size_t i = 0; i < index->list_count; i++) {
        index->day = index->list[i];
        if (!day_run(index)) {
            return false;
        }
    }
    return true;
}


/* ---- all of it -------------------------------------------------------- */

static bool
alone_row(void *asker, const void *result, int row)
{
    *(bool *)asker = pg_get_bool(result, row, 0);
    return true;
}

static enum recount_end
run_all(struct index_run *index)
{
    struct recount_run *run = index->run;
    const struct config *config = run->wish->config;
    bool is_alone = true;
    bool is_good;

    run->store = ledger_store_open(config->database, run->wish->command);
    index->days =
        series_days_create(config->admin_database, run->wish->command);
    if (run->store == NULL || index->days == NULL) {
        return RECOUNT_TROUBLE;
    }
    if (run->wish->is_writing) {
        index->writer = ledger_store_open(config->database, run->wish->command);
        if (index->writer == NULL ||
            !ledger_store_rows(index->writer, STATEMENT_INDEX_RECOUNT_ALONE,
                               NULL, alone_row, &is_alone)) {
            return RECOUNT_TROUBLE;
        }
    }
    if (!is_alone) {
        recount_say(run, "the index is being rebuilt by someone else");
        return RECOUNT_REFUSED;
    }
    progress_start(&run->progress, run->wish->command, "events", 0);
    is_good = days_run(index);
    progress_end(&run->progress);
    return is_good ? RECOUNT_DONE : RECOUNT_TROUBLE;
}

enum recount_end
index_recount_run(const struct recount_wish *wish, struct recount_outcome *out)
{
    struct recount_run run = {.wish = wish, .out = out};
    struct index_run index = {.run = &run};
    enum recount_end end;

    *out =
        (struct recount_outcome){.floor_us = INT64_MIN, .whole_us = INT64_MIN};
    arena_init(&run.arena, EVENT_ARENA_BLOCK, EVENT_ARENA_MAX);
    arena_init(&index.batch, BATCH_BLOCK, BATCH_MAX);
    pg_params_init(&run.params);
    pg_params_init(&index.params);
    buf_init(&index.key, TEXT_MAX);
    buf_init(&index.expected, TEXT_MAX);
    buf_init(&index.found, TEXT_MAX);
    end = run_all(&index);
    buf_fini(&index.key);
    buf_fini(&index.expected);
    buf_fini(&index.found);
    free(index.list);
    free(index.gone.items);
    free(index.made.items);
    series_days_destroy(index.days);
    ledger_store_close(index.writer);
    ledger_store_close(run.store);
    pg_params_fini(&index.params);
    pg_params_fini(&run.params);
    arena_fini(&index.batch);
    arena_fini(&run.arena);
    return end;
}
