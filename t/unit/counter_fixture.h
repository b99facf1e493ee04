/*
 * counter_fixture.h - a database for the tests of counter rows: it does what
 * the statements of counters do, on tables in memory, and answers as the
 * server would. Events are made by hand: which counter, which dimensions.
 *
 *   items -> [run] -> projection_counters <-> [execute] -> tables
 *
 * That the statements themselves do this is tested on a server
 * (t/sql/05-counter.sql).
 */

#ifndef UNIT_COUNTER_FIXTURE_H
#define UNIT_COUNTER_FIXTURE_H

#include "meter_cmocka.h"

#include "meter_decimal.h"
#include "project/counter.h"

#include <endian.h>
#include <libpq-fe.h>

#define RECORDED    INT64_C(1790000000000000)
#define ITEMS_MAX   4096
#define CHANGES_MAX 4
#define SETS_MAX    4200
#define TEXT_MAX    64
#define GROUPS_MAX  64

static const struct projection *const counters = &projection_counters;
static const uint8_t writer[16] = {7};

/* --- tables ------------------------------------------------------------- */

struct table_row {
    char tenant[TEXT_MAX];
    char name[TEXT_MAX];
    char entity[TEXT_MAX];          /* entity_state */
    uint8_t key[METER_DIGEST_SIZE]; /* counter, entity_state, audit */
    bool has_key;                   /* entity_state: is counted */
    char dimensions[TEXT_MAX];
    int64_t value; /* counter_keys: keys */
    int64_t updated_us;
    bool has_add, has_floor; /* audit */
    int64_t add, floor;
    int64_t seq_first, seq_last;
};

struct table {
    struct table_row *rows;
    size_t count;
    size_t room;
};

enum table_name { COUNTER, KEYS, STATE, AUDIT, TABLE_COUNT };

static struct table tables[TABLE_COUNT];
static struct table saved[TABLE_COUNT]; /* at the begin of a transaction */
static char affected[32];
static bool is_overflown; /* the server said 22003 */
static enum statement executed[16];
static size_t executed_count;

/* In the place of libpq's: a result that was made here has no command tag. */
char *
PQcmdTuples(PGresult *result)
{
    (void)result;
    return affected;
}

static inline struct table_row *
table_add(struct table *table)
{
    if (table->count == table->room) {
        table->room = table->room == 0 ? 64 : table->room * 2;
        table->rows = realloc(table->rows, table->room * sizeof(*table->rows));
        assert_non_null(table->rows);
    }
    memset(&table->rows[table->count], 0, sizeof(*table->rows));
    return &table->rows[table->count++];
}

static inline void
table_copy(struct table *to, const struct table *from)
{
    to->count = 0;
    for (size_t i = 0; i < from->count; i++) {
        *table_add(to) = from->rows[i];
    }
}

static inline void
tables_begin(void)
{
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        table_copy(&saved[i], &tables[i]);
    }
}

static inline void
tables_rollback(void)
{
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        table_copy(&tables[i], &saved[i]);
    }
}

static inline void
tables_free(void)
{
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        free(tables[i].rows);
        free(saved[i].rows);
        tables[i] = saved[i] = (struct table){NULL};
    }
}

static inline bool
is_text(const char *stored, struct meter_str text)
{
    return strlen(stored) == text.size &&
           memcmp(stored, text.data, text.size) == 0;
}

static inline void
put_text(char stored[TEXT_MAX], struct meter_str text)
{
    assert_true(text.size < TEXT_MAX);
    memcpy(stored, text.data, text.size);
    stored[text.size] = '\0';
}

/* key or entity may be NULL: not part of the table's key. */
static inline struct table_row *
table_find(enum table_name table, struct meter_str tenant,
           struct meter_str name, const char *key,
           const struct meter_str *entity)
{
    for (size_t i = 0; i < tables[table].count; i++) {
        struct table_row *row = &tables[table].rows[i];

        if ((key == NULL || memcmp(row->key, key, METER_DIGEST_SIZE) == 0) &&
            is_text(row->tenant, tenant) && is_text(row->name, name) &&
            (entity == NULL || is_text(row->entity, *entity))) {
            return row;
        }
    }
    return NULL;
}

/* As table_find; the row is there. */
static inline struct table_row *
table_get(enum table_name table, struct meter_str tenant, struct meter_str name,
          const char *key, const struct meter_str *entity)
{
    struct table_row *row = table_find(table, tenant, name, key, entity);

    if (row == NULL) {
        fail_msg("no such row");
        abort();
    }
    return row;
}

static inline struct table_row *
table_make(enum table_name table, struct meter_str tenant,
           struct meter_str name, const char *key)
{
    struct table_row *row = table_add(&tables[table]);

    put_text(row->tenant, tenant);
    put_text(row->name, name);
    if (key != NULL) {
        memcpy(row->key, key, METER_DIGEST_SIZE);
    }
    return row;
}

/* --- parameters and results --------------------------------------------- */

/* Elements of array parameter number `at`; *count of them. To be freed. */
static inline struct meter_str *
array_of(const struct pg_params *params, int at, size_t *count)
{
    const char *bytes = params->bytes.data + params->offset[at];
    struct meter_str *out;
    uint32_t word;

    assert_true(at < params->count && params->size[at] >= 12);
    memcpy(&word, bytes, sizeof(word));
    *count = 0;
    if (be32toh(word) == 0) {
        return NULL; /* no dimensions: empty */
    }
    memcpy(&word, bytes + 12, sizeof(word));
    *count = be32toh(word);
    out = calloc(*count, sizeof(*out));
    bytes += 20;
    for (size_t i = 0; i < *count; i++) {
        memcpy(&word, bytes, sizeof(word));
        bytes += 4;
        if (be32toh(word) != UINT32_MAX) {
            out[i] = (struct meter_str){bytes, be32toh(word)};
            bytes += out[i].size;
        }
    }
    return out;
}

static inline int64_t
int8_of(struct meter_str field)
{
    uint64_t word;

    assert_int_equal(field.size, 8);
    memcpy(&word, field.data, sizeof(word));
    return (int64_t)be64toh(word);
}

#define PG_EPOCH_US INT64_C(946684800000000)

static inline int64_t
time_of(const struct pg_params *params, int at)
{
    return int8_of(
               (struct meter_str){params->bytes.data + params->offset[at], 8}) +
           PG_EPOCH_US;
}

static inline PGresult *
result_make(int columns)
{
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc attributes[8] = {{0}};
    static char name[] = "c";

    for (int i = 0; i < columns; i++) {
        attributes[i].name = name;
        attributes[i].format = 1;
    }
    assert_true(PQsetResultAttrs(result, columns, attributes));
    return result;
}

static inline void
set_null(PGresult *result, int row, int column)
{
    assert_true(PQsetvalue(result, row, column, NULL, -1));
}

static inline void
set_bytes(PGresult *result, int row, int column, const void *data, size_t size)
{
    assert_true(
        PQsetvalue(result, row, column, (char *)(uintptr_t)data, (int)size));
}

static inline void
set_text(PGresult *result, int row, int column, const char *text)
{
    set_bytes(result, row, column, text, strlen(text));
}

static inline void
set_int8(PGresult *result, int row, int column, int64_t value)
{
    uint64_t word = htobe64((uint64_t)value);

    set_bytes(result, row, column, &word, sizeof(word));
}

/* --- what the statements do --------------------------------------------- */

/* The arrays of a statement, each once; keys ascend strictly. */
struct input {
    struct meter_str *columns[8];
    size_t count;
    int column_count;
};

static inline void
input_read(struct input *input, const struct pg_params *params, int columns)
{
    *input = (struct input){.column_count = columns};
    for (int i = 0; i < columns; i++) {
        size_t count;

        input->columns[i] = array_of(params, i, &count);
        assert_true(i == 0 || count == input->count);
        input->count = count;
    }
    for (size_t k = 1; k < input->count && !projection_is_unsorted; k++) {
        int order = 0;

        for (int i = 0; order == 0 && i < 3; i++) {
            order = meter_str_compare(input->columns[i][k - 1],
                                      input->columns[i][k]);
        }
        assert_true(order < 0);
    }
}

static inline void
input_free(struct input *input)
{
    for (int i = 0; i < input->column_count; i++) {
        free(input->columns[i]);
    }
}

#define FIELD(column) (input->columns[column][k])

static inline void
keys_add(struct meter_str tenant, struct meter_str name, bool *is_grown)
{
    struct table_row *keys = table_find(KEYS, tenant, name, NULL, NULL);

    if (keys == NULL) {
        keys = table_make(KEYS, tenant, name, NULL);
    }
    keys->value++;
    is_grown[keys - tables[KEYS].rows] = true;
}

/* Rows of the groups that have grown, from result row `at` on. */
static inline void
put_grown(PGresult *result, int at, const bool *is_grown, int keys_column)
{
    for (size_t i = 0; i < tables[KEYS].count; i++) {
        const struct table_row *keys = &tables[KEYS].rows[i];

        if (is_grown[i]) {
            set_text(result, at, 0, keys->tenant);
            set_text(result, at, 1, keys->name);
            for (int column = 2; column < PQnfields(result); column++) {
                set_null(result, at, column);
            }
            set_int8(result, at++, keys_column, keys->value);
        }
    }
}

static inline PGresult *
do_upsert(struct input *input, int64_t recorded_us)
{
    bool is_grown[GROUPS_MAX] = {false};
    PGresult *result = result_make(5);
    int64_t touched = 0, least = 0, most = 0;

    for (size_t k = 0; k < input->count; k++) {
        struct table_row *row =
            table_find(COUNTER, FIELD(0), FIELD(1), FIELD(2).data, NULL);
        bool has_floor = FIELD(5).data != NULL;
        meter_int128 value = int8_of(FIELD(4));

        if (row == NULL) {
            keys_add(FIELD(0), FIELD(1), is_grown);
            row = table_make(COUNTER, FIELD(0), FIELD(1), FIELD(2).data);
            put_text(row->dimensions, FIELD(3));
        } else if (!is_text(row->dimensions, FIELD(3)) ||
                   (has_floor && row->updated_us >= recorded_us)) {
            continue;
        }
        value += row->value;
        is_overflown |= value < INT64_MIN || value > INT64_MAX;
        row->value = (int64_t)value;
        if (has_floor && value < int8_of(FIELD(5))) {
            row->value = int8_of(FIELD(5));
        }
        if (recorded_us > row->updated_us) {
            row->updated_us = recorded_us;
        }
        least = touched == 0 || row->value < least ? row->value : least;
        most = touched == 0 || row->value > most ? row->value : most;
        touched++;
    }
    set_null(result, 0, 0);
    set_null(result, 0, 1);
    set_int8(result, 0, 2, touched);
    set_int8(result, 0, 3, least);
    set_int8(result, 0, 4, most);
    put_grown(result, 1, is_grown, 2);
    return result;
}

static inline PGresult *
do_ensure(struct input *input)
{
    bool is_grown[GROUPS_MAX] = {false};
    PGresult *result = result_make(4);
    int at = 0;

    for (size_t k = 0; k < input->count; k++) {
        struct table_row *row;

        if (table_find(COUNTER, FIELD(0), FIELD(1), FIELD(2).data, NULL)) {
            continue;
        }
        row = table_make(COUNTER, FIELD(0), FIELD(1), FIELD(2).data);
        put_text(row->dimensions, FIELD(3));
        keys_add(FIELD(0), FIELD(1), is_grown);
        set_text(result, at, 0, row->tenant);
        set_text(result, at, 1, row->name);
        set_bytes(result, at, 2, row->key, METER_DIGEST_SIZE);
        set_null(result, at++, 3);
    }
    put_grown(result, at, is_grown, 3);
    return result;
}

static inline PGresult *
do_lock(struct input *input)
{
    PGresult *result = result_make(6);

    for (size_t k = 0; k < input->count; k++) {
        struct table_row *row =
            table_get(COUNTER, FIELD(0), FIELD(1), FIELD(2).data, NULL);
        int at = (int)k;

        set_text(result, at, 0, row->tenant);
        set_text(result, at, 1, row->name);
        set_bytes(result, at, 2, row->key, METER_DIGEST_SIZE);
        set_text(result, at, 3, row->dimensions);
        set_int8(result, at, 4, row->value);
        set_int8(result, at, 5, row->updated_us - PG_EPOCH_US);
    }
    return result;
}

static inline void
do_write(struct input *input, int64_t recorded_us)
{
    for (size_t k = 0; k < input->count; k++) {
        struct table_row *row =
            table_get(COUNTER, FIELD(0), FIELD(1), FIELD(2).data, NULL);

        row->value = int8_of(FIELD(3));
        if (recorded_us > row->updated_us) {
            row->updated_us = recorded_us;
        }
    }
}

static inline void
do_audit(struct input *input, int64_t recorded_us)
{
    for (size_t k = 0; k < input->count; k++) {
        struct table_row *row =
            table_get(COUNTER, FIELD(0), FIELD(1), FIELD(2).data, NULL);
        struct table_row *log =
            table_make(AUDIT, FIELD(0), FIELD(1), FIELD(2).data);

        log->value = row->value;
        log->updated_us = recorded_us;
        log->has_add = FIELD(3).data != NULL;
        log->add = log->has_add ? int8_of(FIELD(3)) : 0;
        log->has_floor = FIELD(4).data != NULL;
        log->floor = log->has_floor ? int8_of(FIELD(4)) : 0;
        log->seq_first = int8_of(FIELD(5));
        log->seq_last = int8_of(FIELD(6));
    }
}

static inline PGresult *
do_states(struct input *input, bool is_ensure)
{
    PGresult *result = result_make(6);

    for (size_t k = 0; k < input->count; k++) {
        struct table_row *row =
            table_find(STATE, FIELD(0), FIELD(1), NULL, &FIELD(2));
        int at = (int)k;

        if (row == NULL) {
            assert_true(is_ensure);
            row = table_make(STATE, FIELD(0), FIELD(1), NULL);
            put_text(row->entity, FIELD(2));
        }
        if (is_ensure) {
            continue;
        }
        set_text(result, at, 0, row->tenant);
        set_text(result, at, 1, row->name);
        set_text(result, at, 2, row->entity);
        set_null(result, at, 3);
        set_null(result, at, 4);
        if (row->has_key) {
            set_bytes(result, at, 3, row->key, METER_DIGEST_SIZE);
        }
        if (row->dimensions[0] != '\0') {
            set_text(result, at, 4, row->dimensions);
        }
        set_int8(result, at, 5, row->updated_us - PG_EPOCH_US);
    }
    return result;
}

static inline void
do_states_write(struct input *input, int64_t recorded_us)
{
    for (size_t k = 0; k < input->count; k++) {
        struct table_row *row =
            table_get(STATE, FIELD(0), FIELD(1), NULL, &FIELD(2));

        assert_true(recorded_us > row->updated_us);
        row->updated_us = recorded_us;
        row->has_key = FIELD(3).data != NULL;
        if (row->has_key) {
            memcpy(row->key, FIELD(3).data, METER_DIGEST_SIZE);
        }
        put_text(row->dimensions,
                 FIELD(4).data == NULL ? METER_STR("") : FIELD(4));
    }
}

#undef FIELD

static inline PGresult *
execute(const struct projection_query *query)
{
    const struct pg_params *params = query->params;
    PGresult *result = NULL;
    struct input input = {.count = 0};

    executed[executed_count++ % 16] = query->statement;
    switch (query->statement) {
    case STATEMENT_COUNTER_UPSERT:
        input_read(&input, params, 6);
        result = do_upsert(&input, time_of(params, 6));
        break;
    case STATEMENT_COUNTER_ENSURE:
        input_read(&input, params, 4);
        result = do_ensure(&input);
        break;
    case STATEMENT_COUNTER_LOCK:
        input_read(&input, params, 3);
        result = do_lock(&input);
        break;
    case STATEMENT_COUNTER_WRITE:
        input_read(&input, params, 4);
        do_write(&input, time_of(params, 4));
        break;
    case STATEMENT_COUNTER_AUDIT_INSERT:
        input_read(&input, params, 7);
        assert_memory_equal(params->bytes.data + params->offset[7], writer, 16);
        do_audit(&input, time_of(params, 8));
        break;
    case STATEMENT_ENTITY_STATE_ENSURE:
    case STATEMENT_ENTITY_STATE_LOCK:
        input_read(&input, params, 3);
        result = do_states(&input,
                           query->statement == STATEMENT_ENTITY_STATE_ENSURE);
        break;
    case STATEMENT_ENTITY_STATE_WRITE:
        input_read(&input, params, 5);
        do_states_write(&input, time_of(params, 5));
        break;
    default: fail_msg("statement %d", (int)query->statement);
    }
    snprintf(affected, sizeof(affected), "%zu", input.count);
    input_free(&input);
    return result != NULL ? result : result_make(1);
}

#endif
