/*
 * usage_fixture.h - usage rows of a transaction and a server made of answers,
 * for test_usage_rows.c.
 */

#ifndef UNIT_USAGE_FIXTURE_H
#define UNIT_USAGE_FIXTURE_H

#include "meter_cmocka.h"

#include "project/usage.h"

#include <endian.h>
#include <libpq-fe.h>

#define RECORDED INT64_C(1800000000000000)
#define ITEMS    64

static const struct projection *const usage = &projection_usage;

/* What the server has, and says. */
struct server_row {
    const char *tenant;
    struct usage_row row;
    int64_t updated_us;
};

struct fixture {
    void *rows;
    struct arena arena;
    struct projection_stamp stamp;
    struct projection_query query;
    struct pg_params params;
    struct meter_event events[ITEMS];
    struct effects effects[ITEMS];
    struct usage_effect own[ITEMS];
    struct projected items[ITEMS];
    size_t count;
    const char *error;
};

static int
setup(void **state)
{
    static const uint8_t writer[16];
    struct fixture *f = calloc(1, sizeof(*f));

    f->rows = usage->rows_create();
    assert_non_null(f->rows);
    arena_init(&f->arena, 4096, 1 << 20);
    f->stamp = (struct projection_stamp){writer, RECORDED, RECORDED};
    pg_params_init(&f->params);
    f->query.params = &f->params;
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;

    usage->rows_destroy(f->rows);
    arena_fini(&f->arena);
    pg_params_fini(&f->params);
    free(f);
    return 0;
}

static const struct projected *
item_of(struct fixture *f, const char *tenant,
        const struct usage_effect *effect)
{
    size_t i = f->count++;

    assert_true(i < ITEMS);
    f->events[i] = (struct meter_event){.tenant = str_of(tenant), .count = 1};
    f->effects[i] = (struct effects){{NULL}, false};
    if (effect != NULL) {
        f->own[i] = *effect;
        f->effects[i].of[PROJECTION_USAGE] = &f->own[i];
    }
    f->items[i] = (struct projected){
        .event = &f->events[i],
        .effects = &f->effects[i],
        .arena = &f->arena,
    };
    return &f->items[i];
}

static struct usage_effect
entries(int64_t delta)
{
    return (struct usage_effect){
        .is_touched = {true}, .delta = {delta}, .is_ordered = true};
}

static struct usage_effect
calls(int64_t delta)
{
    return (struct usage_effect){.is_touched = {false, false, true},
                                 .delta = {0, 0, delta}};
}

static void
fold(struct fixture *f, const char *tenant, struct usage_effect effect)
{
    assert_int_equal(
        usage->fold(f->rows, item_of(f, tenant, &effect), &f->stamp),
        PROJECTION_OK);
}

static const struct projected *
collect(struct fixture *f, const char *tenant, struct usage_effect effect)
{
    const struct projected *item = item_of(f, tenant, &effect);

    assert_true(usage->collect(f->rows, PROJECTION_STATES, item));
    assert_true(usage->collect(f->rows, PROJECTION_LOCK, item));
    return item;
}

/* False: no more. */
static bool
next(struct fixture *f, enum projection_phase phase, size_t *at)
{
    pg_params_reset(&f->params);
    return usage->next(f->rows, phase, &f->stamp, at, &f->query);
}

static void
assert_next(struct fixture *f, enum projection_phase phase, size_t at,
            enum statement statement)
{
    size_t then = at;

    assert_true(next(f, phase, &then));
    assert_int_equal(then, at + 1);
    assert_int_equal(f->query.statement, statement);
}

/* Elements of an array parameter: a head of 20 bytes, then size and bytes. */
static const char *
element(const struct fixture *f, int parameter, size_t number, int32_t *size)
{
    const char *at = f->params.bytes.data + f->params.offset[parameter] + 20;

    for (;;) {
        uint32_t wire;

        memcpy(&wire, at, 4);
        *size = (int32_t)be32toh(wire);
        if (number-- == 0) {
            return at + 4;
        }
        at += 4 + (*size < 0 ? 0 : *size);
    }
}

static void
assert_text(const struct fixture *f, int parameter, size_t number,
            const char *expected)
{
    int32_t size;
    const char *text = element(f, parameter, number, &size);

    if (expected == NULL) {
        assert_int_equal(size, -1);
        return;
    }
    assert_int_equal(size, strlen(expected));
    assert_memory_equal(text, expected, strlen(expected));
}

/* INT64_MIN: null. */
static int64_t
number_of(const struct fixture *f, int parameter, size_t number)
{
    int32_t size;
    const char *bytes = element(f, parameter, number, &size);
    uint64_t wire;

    if (size < 0) {
        return INT64_MIN;
    }
    assert_int_equal(size, 8);
    memcpy(&wire, bytes, 8);
    return (int64_t)be64toh(wire);
}


/* ---- answers --------------------------------------------------------- */

static PGresult *
result_make(int column_count)
{
    static char name[] = "c";
    PGresAttDesc columns[6];
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);

    memset(columns, 0, sizeof(columns));
    for (int i = 0; i < 6; i++) {
        columns[i].name = name;
        columns[i].format = 1;
    }
    assert_int_equal(PQsetResultAttrs(result, column_count, columns), 1);
    return result;
}

/* As many columns of the row as the result has. */
static void
result_add(PGresult *result, const struct server_row *row)
{
    const char *status = usage_status_name(row->row.status);
    int number = PQntuples(result);
    struct pg_params params;

    pg_params_init(&params);
    pg_param_text(&params, str_of(row->tenant));
    for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
        pg_param_int8(&params, row->row.value[i]);
    }
    pg_param_text(&params, str_of(status == NULL ? "gone" : status));
    pg_param_time(&params, row->updated_us);
    for (int i = 0; i < PQnfields(result); i++) {
        assert_int_equal(PQsetvalue(result, number, i,
                                    params.bytes.data + params.offset[i],
                                    params.size[i]),
                         1);
    }
    pg_params_fini(&params);
}

static enum projection_result
answer(struct fixture *f, enum projection_phase phase, size_t at,
       const struct server_row *rows, size_t count)
{
    static const int columns[] = {1, 6, 4};
    PGresult *result = result_make(columns[at]);
    enum projection_result said;

    for (size_t i = 0; i < count; i++) {
        result_add(result, &rows[i]);
    }
    said = usage->answer(f->rows, phase, at, result);
    PQclear(result);
    return said;
}

static struct server_row
server_row(const char *tenant, int64_t value, int64_t updated_us)
{
    return (struct server_row){
        tenant, {{value, 0, 0}, USAGE_STATUS_ACTIVE}, updated_us};
}

/* What the fast path says of one row that the server has. */
static enum projection_result
locked(struct fixture *f, struct server_row row)
{
    assert_int_equal(answer(f, PROJECTION_APPLY, 0, NULL, 0), PROJECTION_OK);
    return answer(f, PROJECTION_APPLY, 1, &row, 1);
}

#endif
