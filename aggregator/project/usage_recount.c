/*
 * usage_recount.c - the usage row of a tenant from the ledger, see recount.h.
 *
 *   events -> [usage_project] -> one by one -> row
 *   live row -------------------------------> [compare]
 *
 * Rules without a usage section leave the row as it is.
 */

#include "project/recount.h"

#include "base/json_writer.h"
#include "project/usage.h"

#include <stdlib.h>

#define TEXT_MAX 4096

struct usage_recounting {
    struct recount_scope scope;
    struct usage_row row;
    int64_t updated_us;
    struct usage_row found;
    int64_t found_us;
    int64_t since_us; /* as in struct recount_origin */
    bool is_expected;
    bool is_found;
    bool is_marked;
    size_t strangers;
};

static void *
recount_create(const struct recount_scope *scope)
{
    struct usage_recounting *usage = calloc(1, sizeof(*usage));

    if (usage != NULL) {
        usage->scope = *scope;
        usage->since_us = RECOUNT_SINCE_NEVER;
        usage_row_init(&usage->row);
        usage_row_init(&usage->found);
    }
    return usage;
}

static void
recount_destroy(void *recount)
{
    free(recount);
}

static bool
recount_base_row(void *recount, const struct recount_base *base)
{
    struct usage_recounting *usage = recount;

    if (base->kind == RECOUNT_BASE_USAGE && usage->scope.catalog->usage) {
        memcpy(usage->row.value, base->usage, sizeof(usage->row.value));
        usage->row.status = base->status;
        usage->updated_us = base->updated_us;
        usage->since_us = RECOUNT_SINCE_EVER;
        usage->is_expected = true;
    }
    return true;
}

static void
since_lower(struct usage_recounting *usage, int64_t us)
{
    if (us < usage->since_us) {
        usage->since_us = us;
    }
}

static enum recount_result
recount_add(void *recount, const struct recount_event *event,
            struct arena *arena, const char **error)
{
    struct usage_recounting *usage = recount;
    enum usage_column column;
    const void *effect;
    bool is_careful;

    if (!usage_project(event->type, &event->row->event, event->attributes,
                       arena, &effect, &is_careful, error)) {
        return arena->no_memory ? RECOUNT_FAULT : RECOUNT_UNFIT;
    }
    if (effect == NULL) {
        return RECOUNT_OK;
    }
    if (!usage_apply(&usage->row, effect, &column)) {
        *error = "a column of the usage row would overflow 64 bits";
        return RECOUNT_UNFIT;
    }
    usage->is_expected = true;
    if (event->row->recorded_us > usage->updated_us) {
        usage->updated_us = event->row->recorded_us;
    }
    since_lower(usage, event->row->recorded_us);
    return RECOUNT_OK;
}

static void
put_tenant(const void *recount, struct pg_params *params)
{
    const struct usage_recounting *usage = recount;

    pg_param_text(params, usage->scope.tenant);
}

static bool
live_row(void *recount, const void *result, int at)
{
    struct usage_recounting *usage = recount;

    if (!usage->scope.catalog->usage) {
        usage->strangers++;
        return true;
    }
    for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
        usage->found.value[i] = pg_get_int8(result, at, i);
    }
    /* The table allows no other words. */
    CHECK(usage_status_parse(pg_get_bytes(result, at, USAGE_COLUMN_COUNT),
                             &usage->found.status));
    usage->found_us = pg_get_time(result, at, USAGE_COLUMN_COUNT + 1);
    usage->since_us = RECOUNT_SINCE_EVER; /* the row does not tell */
    usage->is_found = true;
    return true;
}

static bool
recount_compare(void *recount, size_t *count)
{
    struct usage_recounting *usage = recount;

    usage->is_marked =
        usage->is_expected != usage->is_found ||
        (usage->is_found && (memcmp(usage->row.value, usage->found.value,
                                    sizeof(usage->row.value)) != 0 ||
                             usage->row.status != usage->found.status));
    *count = usage->is_marked;
    return true;
}

/* The columns that differ; all of them where there is no other row. */
static void
put_columns(struct buf *out, const struct usage_row *row,
            const struct usage_row *other)
{
    struct json_writer json;

    json_writer_init(&json, out);
    json_object_begin(&json);
    for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
        if (other == NULL || row->value[i] != other->value[i]) {
            json_key(&json, usage_column_name((enum usage_column)i));
            json_int_string(&json, row->value[i]);
        }
    }
    if (other == NULL || row->status != other->status) {
        json_key(&json, "status");
        json_text(&json, usage_status_name(row->status));
    }
    json_object_end(&json);
}

static void
origin_add(struct recount_origin *origin, const char *name)
{
    origin->names[origin->name_count++] =
        (struct meter_str){name, strlen(name)};
}

/*
 * The columns that differ; where there is one row only, from one of which
 * nothing is known. None does: then any of them may have made the row.
 */
static void
origin_find(const struct usage_recounting *usage, struct recount_origin *origin)
{
    struct usage_row none;

    usage_row_init(&none);
    origin->kind = RULE_USAGE;
    origin->since_us = usage->since_us;
    for (int turn = 0; turn < 2 && origin->name_count == 0; turn++) {
        const struct usage_row *row = usage->is_expected ? &usage->row : &none;
        const struct usage_row *found = usage->is_found ? &usage->found : &none;

        origin->is_any = turn == 1;
        for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
            if (turn == 1 || row->value[i] != found->value[i]) {
                origin_add(origin, usage_column_name((enum usage_column)i));
            }
        }
        if (turn == 1 || row->status != found->status) {
            origin_add(origin, RULE_USAGE_STATUS);
        }
    }
}

static bool
recount_differences(void *recount, recount_difference_cb cb, void *asker)
{
    struct usage_recounting *usage = recount;
    bool is_both = usage->is_expected && usage->is_found;
    struct recount_difference one = {.what = "usage", .key = METER_STR("{}")};
    struct buf expected;
    struct buf found;
    bool is_good;

    if (!usage->is_marked) {
        return true;
    }
    origin_find(usage, &one.origin);
    buf_init(&expected, TEXT_MAX);
    buf_init(&found, TEXT_MAX);
    if (usage->is_expected) {
        put_columns(&expected, &usage->row, is_both ? &usage->found : NULL);
        one.expected = buf_str(&expected);
    }
    if (usage->is_found) {
        put_columns(&found, &usage->found, is_both ? &usage->row : NULL);
        one.found = buf_str(&found);
    }
    is_good = !expected.failed && !found.failed;
    if (is_good) {
        cb(asker, &one);
    }
    buf_fini(&expected);
    buf_fini(&found);
    return is_good;
}

/* Never back in time: the row only takes what is later than itself. */
static bool
recount_write(void *recount, size_t *at, struct projection_query *out)
{
    struct usage_recounting *usage = recount;
    const char *status = usage_status_name(usage->row.status);

    if (!usage->is_marked || *at > 1 || (*at == 1 && !usage->is_expected)) {
        return false;
    }
    pg_param_text(out->params, usage->scope.tenant);
    out->statement = STATEMENT_RECOUNT_USAGE_DELETE;
    if ((*at)++ == 1) {
        out->statement = STATEMENT_RECOUNT_USAGE_INSERT;
        for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
            pg_param_int8(out->params, usage->row.value[i]);
        }
        pg_param_text(out->params, (struct meter_str){status, strlen(status)});
        pg_param_time(out->params, usage->found_us > usage->updated_us
                                       ? usage->found_us
                                       : usage->updated_us);
    }
    return true;
}

static size_t
recount_strangers(const void *recount)
{
    const struct usage_recounting *usage = recount;

    return usage->strangers;
}

static const struct recount_source sources[] = {
    {RECOUNT_LIVE, STATEMENT_RECOUNT_USAGE, put_tenant, live_row},
};

const struct recount_ops usage_recount = {
    .create = recount_create,
    .destroy = recount_destroy,
    .base = recount_base_row,
    .sources = sources,
    .source_count = sizeof(sources) / sizeof(sources[0]),
    .add = recount_add,
    .compare = recount_compare,
    .differences = recount_differences,
    .write = recount_write,
    .strangers = recount_strangers,
};
