/*
 * recount_fixture.h - a recount without a server: events in, rows in,
 * differences and parameters out.
 */

#ifndef RECOUNT_FIXTURE_H
#define RECOUNT_FIXTURE_H

#include "meter_cmocka.h"

#include "base/buf.h"
#include "config/config.h"
#include "meter_bytes.h"
#include "project/recount.h"

#include <endian.h>
#include <libpq-fe.h>

#define FIXTURE_TEXT_MAX ((size_t)16 << 20)

struct fixture {
    struct config *config;
    const struct recount_ops *ops;
    struct recount_scope scope;
    void *recount;
    struct arena arena;
    struct buf text; /* differences, a line each */
    size_t count;    /* as compare said */
    const char *error;
    int64_t writer_seq;
    int64_t made_us;              /* of live rows; 0: not known */
    struct recount_origin origin; /* of the difference told last */
};

static inline void
fixture_open(struct fixture *f, const char *rules,
             const struct recount_ops *ops)
{
    struct config_errors errors;

    memset(f, 0, sizeof(*f));
    if (!config_load_text("rules", str_of(rules), &f->config, &errors)) {
        config_errors_print(&errors, stderr);
        abort();
    }
    f->ops = ops;
    f->scope = (struct recount_scope){
        .catalog = f->config->catalog,
        .tenant = METER_STR("t"),
        .from_us = RECOUNT_FROM_EVER,
        .is_chained = true,
    };
    arena_init(&f->arena, 1 << 16, 64 << 20);
    buf_init(&f->text, FIXTURE_TEXT_MAX);
    f->recount = ops->create(&f->scope);
    assert_non_null(f->recount);
}

/* The same rules, nothing counted. */
static inline void
fixture_again(struct fixture *f)
{
    f->ops->destroy(f->recount);
    f->recount = f->ops->create(&f->scope);
    assert_non_null(f->recount);
}

static inline void
fixture_close(struct fixture *f)
{
    f->ops->destroy(f->recount);
    arena_fini(&f->arena);
    buf_fini(&f->text);
    config_unref(f->config);
}

/* Fills in what the row leaves open; the type comes from the rules. */
static inline enum recount_result
fixture_add(struct fixture *f, struct ledger_row *row)
{
    static const struct json_limits limits = {16, 256, 128, 8192};
    struct json_value attributes;
    struct json_error error;
    size_t used;

    row->event.tenant = f->scope.tenant;
    if (row->event.count == 0) {
        row->event.count = 1;
    }
    if (row->event.attributes.data == NULL) {
        row->event.attributes = METER_STR("{}");
    }
    row->writer_seq = ++f->writer_seq;
    arena_reset(&f->arena);
    assert_true(json_read(row->event.attributes, &limits, &f->arena,
                          &attributes, &used, &error));
    f->error = NULL;
    return f->ops->add(
        f->recount,
        &(struct recount_event){
            row, catalog_event_type(f->scope.catalog, row->event.type),
            &attributes},
        &f->arena, &f->error);
}

/* ---- rows from the "server" ------------------------------------------- */

/* One row; fields are put with pg_put_*, in order. */
struct fixture_row {
    struct buf bytes;
};

static inline struct buf *
row_begin(struct fixture_row *row)
{
    buf_init(&row->bytes, FIXTURE_TEXT_MAX);
    return &row->bytes;
}

static inline void
put_bool(struct buf *out, bool value)
{
    char byte = value ? 1 : 0;

    pg_put_bytes(out, (struct meter_str){&byte, 1});
}

/* The last column of rows that know when they were made. */
static inline void
put_made(const struct fixture *f, struct buf *out)
{
    if (f->made_us == 0) {
        pg_put_null(out);
    } else {
        pg_put_time(out, f->made_us);
    }
}

/* Hands the row to the source that reads this statement. */
static inline void
row_end(struct fixture *f, struct fixture_row *row, enum statement statement)
{
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc columns[64] = {{.name = NULL}};
    struct meter_reader reader;
    struct meter_str values[64];
    int count = 0;

    assert_false(row->bytes.failed);
    meter_reader_init(&reader, row->bytes.data, row->bytes.size);
    while (meter_reader_left(&reader) > 0) {
        uint32_t size = be32toh(meter_get_u32(&reader));

        assert_true(count < 64 && !reader.failed);
        values[count] = size == UINT32_MAX ? (struct meter_str){NULL, 0}
                                           : meter_get_bytes(&reader, size);
        columns[count].name = (char *)(uintptr_t) "";
        columns[count++].format = 1;
    }
    assert_int_equal(1, PQsetResultAttrs(result, count, columns));
    for (int i = 0; i < count; i++) {
        assert_int_equal(
            1, PQsetvalue(result, 0, i, (char *)(uintptr_t)values[i].data,
                          values[i].data == NULL ? -1 : (int)values[i].size));
    }
    for (size_t i = 0; i < f->ops->source_count; i++) {
        if (f->ops->sources[i].statement == statement) {
            assert_true(f->ops->sources[i].row(f->recount, result, 0));
        }
    }
    PQclear(result);
    buf_fini(&row->bytes);
}

/* ---- what comes out --------------------------------------------------- */

static inline void
fixture_difference(void *asker, const struct recount_difference *one)
{
    struct fixture *f = asker;
    const struct meter_str none = METER_STR("-");

    f->origin = one->origin;
    buf_printf(&f->text, "%s ", one->what);
    buf_put_str(&f->text, one->key);
    buf_put_byte(&f->text, ' ');
    buf_put_str(&f->text, one->expected.data == NULL ? none : one->expected);
    buf_put_byte(&f->text, ' ');
    buf_put_str(&f->text, one->found.data == NULL ? none : one->found);
    buf_put_byte(&f->text, '\n');
}

/* Compares; the differences as one text. */
static inline const char *
fixture_compare(struct fixture *f)
{
    buf_reset(&f->text);
    assert_true(f->ops->compare(f->recount, &f->count));
    assert_true(f->ops->differences(f->recount, fixture_difference, f));
    buf_put_byte(&f->text, 0);
    assert_false(f->text.failed);
    return f->text.data;
}

/* Parameter `at` is an array: its elements, "-" for NULL, one after the
   other with a space behind each; as numbers when they are of 8 bytes. */
static inline void
fixture_put_array(struct buf *out, const struct pg_params *params, int at)
{
    struct meter_reader reader;
    uint32_t dimensions, type, count = 0;

    meter_reader_init(&reader, params->bytes.data + params->offset[at],
                      (size_t)params->size[at]);
    dimensions = be32toh(meter_get_u32(&reader));
    meter_get_u32(&reader);
    type = be32toh(meter_get_u32(&reader));
    if (dimensions > 0) {
        count = be32toh(meter_get_u32(&reader));
        meter_get_u32(&reader);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t size = be32toh(meter_get_u32(&reader));

        if (size == UINT32_MAX) {
            buf_put_text(out, "- ");
        } else if (type == PG_INT8) {
            buf_printf(out, "%lld ",
                       (long long)be64toh(meter_get_u64(&reader)));
        } else {
            buf_put_str(out, meter_get_bytes(&reader, size));
            buf_put_byte(out, ' ');
        }
    }
}

/* The write of this statement: its arrays from parameter `from` to `to`,
   "|" between them; "none" when it is not written. */
static inline const char *
fixture_written(struct fixture *f, enum statement statement, int from, int to)
{
    struct pg_params params;
    struct projection_query query = {.params = &params};
    size_t at = 0;
    bool is_found = false;

    buf_reset(&f->text);
    pg_params_init(&params);
    while (f->ops->write(f->recount, &at, &query)) {
        for (int i = from; query.statement == statement && i <= to; i++) {
            fixture_put_array(&f->text, &params, i);
            buf_put_text(&f->text, i == to ? "" : "| ");
            is_found = true;
        }
        pg_params_reset(&params);
    }
    pg_params_fini(&params);
    buf_put_text(&f->text, is_found ? "" : "none");
    buf_put_byte(&f->text, 0);
    return f->text.data;
}

#endif
