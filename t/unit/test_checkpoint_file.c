/*
 * test_checkpoint_file.c - a checkpoint is whole and exact, or refused.
 */

#include "meter_cmocka.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "maintain/checkpoint_file.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char directory[] = "/tmp/em-checkpoint-XXXXXX";
static char path[128];
static char copy[128];

static const struct checkpoint_seq writers[] = {
    {{0x00, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, INT64_MAX},
    {{0x10}, 1},
    {{0xff, 0xfe, 0xfd}, 4711},
};

static struct checkpoint_header
header_make(void)
{
    struct checkpoint_header header = {
        .created_us = INT64_C(1788264000123456),
        .schema_version = 4,
        .incarnation = "7123456789012345678 00000001",
        .writers = writers,
        .writer_count = COUNT(writers),
    };

    for (size_t i = 0; i < METER_DIGEST_SIZE; i++) {
        header.salt_digest[i] = (uint8_t)(i * 7);
    }
    return header;
}

/* Sorted; with whatever could go wrong in text. */
static const struct checkpoint_row rows[] = {
    {.kind = CHECKPOINT_USAGE,
     .tenant = METER_STR("\x01"),
     .updated_us = -1,
     .status = METER_STR("decommissioned")},
    {.kind = CHECKPOINT_COUNTER,
     .tenant = METER_STR("acme"),
     .name = METER_STR("a"),
     .has_dimensions = true,
     .dimension_key = {0},
     .dimensions = METER_STR("{}"),
     .value = INT64_MIN,
     .updated_us = INT64_C(253402300799999999)},
    {.kind = CHECKPOINT_COUNTER,
     .tenant = METER_STR("acme"),
     .name = METER_STR("a"),
     .has_dimensions = true,
     .dimension_key = {0, 1},
     .dimensions = METER_STR("{\"a\":\"\\\"\\\\\\u0001 \xc3\xbc\",\"b\":1}"),
     .value = INT64_MAX,
     .updated_us = 0},
    {.kind = CHECKPOINT_COUNTER,
     .tenant = METER_STR("acme"),
     .name = METER_STR("ab"),
     .has_dimensions = true,
     .dimension_key = {0xff, 0xff},
     .dimensions = METER_STR(""),
     .value = 0,
     .updated_us = 1},
    {.kind = CHECKPOINT_ENTITY,
     .tenant = METER_STR("acme"),
     .name = METER_STR("\xe2\x80\xa8"),
     .entity = METER_STR("\"line\nend\x7f\""),
     .has_dimensions = false,
     .updated_us = 1},
    {.kind = CHECKPOINT_ENTITY,
     .tenant = METER_STR("acme"),
     .name = METER_STR("\xe2\x80\xa8"),
     .entity = METER_STR("1e400"),
     .has_dimensions = true,
     .dimension_key = {7},
     .dimensions = METER_STR("{\"plan\":null}"),
     .updated_us = INT64_C(1788264000000001)},
    {.kind = CHECKPOINT_USAGE,
     .tenant = METER_STR("acme"),
     .usage = {INT64_MAX, 0, INT64_C(9007199254740993)},
     .status = METER_STR("active"),
     .updated_us = 5},
    {.kind = CHECKPOINT_ENTITY,
     .tenant = METER_STR("acme\xf0\x9f\x8d\x83"),
     .name = METER_STR("a"),
     .entity = METER_STR("true"),
     .updated_us = 5},
    {.kind = CHECKPOINT_COUNTER,
     .tenant = METER_STR("\xc3\xbc"),
     .name = METER_STR("a"),
     .has_dimensions = true,
     .dimensions = METER_STR("{}"),
     .value = -1,
     .updated_us = 5},
};

static void
assert_str(struct meter_str found, struct meter_str expected)
{
    assert_int_equal(found.size, expected.size);
    if (expected.size > 0) {
        assert_memory_equal(found.data, expected.data, expected.size);
    }
}

static void
assert_row(const struct checkpoint_row *found,
           const struct checkpoint_row *expected)
{
    assert_non_null(found);
    assert_int_equal(found->kind, expected->kind);
    assert_str(found->tenant, expected->tenant);
    assert_true(found->updated_us == expected->updated_us);
    assert_str(found->name, expected->name);
    assert_int_equal(found->has_dimensions, expected->has_dimensions);
    assert_memory_equal(found->dimension_key, expected->dimension_key,
                        METER_DIGEST_SIZE);
    assert_str(found->dimensions, expected->dimensions);
    assert_true(found->value == expected->value);
    assert_str(found->entity, expected->entity);
    assert_memory_equal(found->usage, expected->usage, sizeof(found->usage));
    assert_str(found->status, expected->status);
}

/* The rows as a file at `to`. */
static bool
file_write(const char *to, const struct checkpoint_row *all, size_t count)
{
    struct checkpoint_header header = header_make();
    struct checkpoint_writer *writer = checkpoint_writer_create(to, &header);
    bool is_good;

    assert_non_null(writer);
    for (size_t i = 0; i < count; i++) {
        assert_true(checkpoint_writer_put(writer, &all[i]));
    }
    assert_int_equal(checkpoint_writer_rows(writer), count);
    is_good = checkpoint_writer_end(writer);
    checkpoint_writer_destroy(writer);
    return is_good;
}

static size_t
bytes_read(const char *from, char *bytes, size_t room)
{
    int fd = open(from, O_RDONLY);
    ssize_t size = read(fd, bytes, room);

    assert_true(fd >= 0 && size > 0 && (size_t)size < room);
    close(fd);
    return (size_t)size;
}

static void
bytes_write(const char *to, const char *bytes, size_t size)
{
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

static bool
is_accepted(const char *from)
{
    struct checkpoint_reader *reader = checkpoint_reader_open(from);
    bool is = reader != NULL;

    checkpoint_reader_close(reader);
    return is;
}

/* How many files there are, whatever their names. */
static int
names_count(void)
{
    DIR *opened = opendir(directory);
    int count = 0;

    assert_non_null(opened);
    for (struct dirent *entry; (entry = readdir(opened)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(opened);
    return count;
}

static void
rows__of_odd_values__come_back_the_same(void **state)
{
    struct checkpoint_header header = header_make();
    struct checkpoint_reader *reader;
    const struct checkpoint_header *found;

    (void)state;
    assert_true(file_write(path, rows, COUNT(rows)));
    reader = checkpoint_reader_open(path);
    assert_non_null(reader);
    found = checkpoint_reader_header(reader);
    assert_true(found->created_us == header.created_us);
    assert_int_equal(found->schema_version, 4);
    assert_memory_equal(found->salt_digest, header.salt_digest,
                        METER_DIGEST_SIZE);
    assert_string_equal(found->incarnation, header.incarnation);
    assert_int_equal(found->writer_count, COUNT(writers));
    for (size_t i = 0; i < COUNT(writers); i++) {
        assert_memory_equal(found->writers[i].writer, writers[i].writer, 16);
        assert_true(found->writers[i].last == writers[i].last);
    }
    assert_int_equal(checkpoint_reader_rows(reader), COUNT(rows));
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_row(checkpoint_reader_row(reader), &rows[i]);
        assert_true(checkpoint_reader_next(reader));
    }
    assert_null(checkpoint_reader_row(reader));
    assert_true(checkpoint_reader_next(reader));
    assert_null(checkpoint_reader_row(reader));
    checkpoint_reader_close(reader);
}

static void
header__a_writer_it_does_not_know__has_no_number(void **state)
{
    struct checkpoint_header header = header_make();
    uint8_t writer[16] = {0x10, 1};

    (void)state;
    for (size_t i = 0; i < COUNT(writers); i++) {
        assert_true(checkpoint_header_last(&header, writers[i].writer) ==
                    writers[i].last);
    }
    assert_int_equal(checkpoint_header_last(&header, writer), 0);
    header.writer_count = 0;
    assert_int_equal(checkpoint_header_last(&header, writers[0].writer), 0);
}

static void
file__without_rows__is_a_file(void **state)
{
    struct checkpoint_reader *reader;

    (void)state;
    assert_true(file_write(path, NULL, 0));
    reader = checkpoint_reader_open(path);
    assert_non_null(reader);
    assert_null(checkpoint_reader_row(reader));
    assert_true(checkpoint_reader_seek(reader, METER_STR("acme")));
    assert_null(checkpoint_reader_row(reader));
    checkpoint_reader_close(reader);
}

static void
seek__in_any_order__finds_the_first_row_of_a_tenant(void **state)
{
    /* tenant, row that it leads to */
    static const struct {
        struct meter_str tenant;
        size_t row;
    } steps[] = {
        {METER_STR(""), 0},
        {METER_STR("\x01"), 0},
        {METER_STR("\x01"
                   "a"),
         1},
        {METER_STR("aaaa"), 1},
        {METER_STR("acme"), 1},
        {METER_STR("acme"), 1},
        {METER_STR("acme!"), 7},
        {METER_STR("acme"), 1},
        {METER_STR("\x01"), 0},
        {METER_STR("zzz"), 8},
        {METER_STR("\xff"), COUNT(rows)},
        {METER_STR("\xff"), COUNT(rows)},
        {METER_STR("\xc3\xbc"), 8},
        {METER_STR(""), 0},
    };
    struct checkpoint_reader *reader;

    (void)state;
    assert_true(file_write(path, rows, COUNT(rows)));
    reader = checkpoint_reader_open(path);
    assert_non_null(reader);
    for (size_t i = 0; i < COUNT(steps); i++) {
        assert_true(checkpoint_reader_seek(reader, steps[i].tenant));
        for (size_t row = steps[i].row; row < COUNT(rows); row++) {
            assert_row(checkpoint_reader_row(reader), &rows[row]);
            if (i % 2 == 0) {
                break; /* stay there */
            }
            assert_true(checkpoint_reader_next(reader));
        }
        if (steps[i].row == COUNT(rows)) {
            assert_null(checkpoint_reader_row(reader));
        }
    }
    checkpoint_reader_close(reader);
}

static void
file__cut_anywhere__is_refused(void **state)
{
    char bytes[16384];
    size_t size;

    (void)state;
    assert_true(file_write(path, rows, COUNT(rows)));
    size = bytes_read(path, bytes, sizeof(bytes));
    for (size_t cut = 0; cut < size; cut++) {
        bytes_write(copy, bytes, cut);
        assert_false(is_accepted(copy));
    }
    bytes_write(copy, bytes, size);
    assert_true(is_accepted(copy));
    bytes_write(copy, bytes, size + 1); /* one more */
    assert_false(is_accepted(copy));
    memcpy(bytes + size, bytes, size); /* twice */
    bytes_write(copy, bytes, 2 * size);
    assert_false(is_accepted(copy));
}

static void
file__with_a_bit_turned__is_refused(void **state)
{
    char bytes[16384];
    size_t size;

    (void)state;
    assert_true(file_write(path, rows, COUNT(rows)));
    size = bytes_read(path, bytes, sizeof(bytes));
    for (size_t at = 0; at < size; at++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes[at] = (char)(bytes[at] ^ 1 << bit);
            bytes_write(copy, bytes, size);
            assert_false(is_accepted(copy));
            bytes[at] = (char)(bytes[at] ^ 1 << bit);
        }
    }
}

/* What a person or a program could do by mistake, line by line. */
static void
file__with_lines_missing_or_moved__is_refused(void **state)
{
    char bytes[16384];
    char other[16384];
    const char *lines[COUNT(rows) + 3];
    size_t count = 0;
    size_t size;

    (void)state;
    assert_true(file_write(path, rows, COUNT(rows)));
    size = bytes_read(path, bytes, sizeof(bytes));
    for (size_t at = 0; at < size; at++) {
        if (at == 0 || bytes[at - 1] == '\n') {
            lines[count++] = bytes + at;
        }
    }
    assert_int_equal(count, COUNT(rows) + 2);
    lines[count] = bytes + size;
    for (size_t i = 0; i < count; i++) { /* without this one */
        size_t before = (size_t)(lines[i] - bytes);
        size_t behind = (size_t)(bytes + size - lines[i + 1]);

        memcpy(other, bytes, before);
        memcpy(other + before, lines[i + 1], behind);
        bytes_write(copy, other, before + behind);
        assert_false(is_accepted(copy));
    }
    for (size_t i = 0; i + 1 < count; i++) { /* with the next one first */
        size_t before = (size_t)(lines[i] - bytes);
        size_t first = (size_t)(lines[i + 1] - lines[i]);
        size_t second = (size_t)(lines[i + 2] - lines[i + 1]);

        memcpy(other, bytes, size);
        memcpy(other + before, lines[i + 1], second);
        memcpy(other + before + second, lines[i], first);
        bytes_write(copy, other, size);
        assert_false(is_accepted(copy));
    }
}

/* A file whose digest is right, made by whoever knows how. */
static void
signed_write(const char *text, size_t row_count)
{
    char bytes[4096];
    uint8_t digest[METER_DIGEST_SIZE];
    char hex[2 * METER_DIGEST_SIZE + 1];
    int size;

    meter_sha256(text, strlen(text), digest);
    meter_hex(digest, sizeof(digest), hex);
    size = snprintf(bytes, sizeof(bytes),
                    "%s{\"rows\":\"%zu\",\"sha256\":\"%s\"}\n", text, row_count,
                    hex);
    bytes_write(copy, bytes, (size_t)size);
}

#define HEADER(version, writers)                                            \
    "{\"format\":\"edgemeter-checkpoint\",\"version\":" version             \
    ",\"created_at\":\"2026-09-01T12:00:00.000000Z\",\"schema\":4,"         \
    "\"salt_sha256\":"                                                      \
    "\"00000000000000000000000000000000000000000000000000000000000000aa\"," \
    "\"incarnation\":\"\",\"writers\":{" writers "}}\n"
#define KEY \
    "\"0000000000000000000000000000000000000000000000000000000000000000\""
#define TIME "\"updated_at\":\"2026-09-01T12:00:00.000000Z\""
#define COUNTER(tenant, value)                                  \
    "{\"tenant\":\"" tenant "\",\"counter\":\"c\",\"key\":" KEY \
    ",\"dimensions\":\"{}\",\"value\":" value "," TIME "}\n"

static void
file__of_another_version__is_refused(void **state)
{
    (void)state;
    signed_write(HEADER("1", ""), 0);
    assert_true(is_accepted(copy));
    signed_write(HEADER("2", ""), 0);
    assert_false(is_accepted(copy));
    signed_write(HEADER("0", ""), 0);
    assert_false(is_accepted(copy));
}

static void
file__signed_but_wrong__is_refused(void **state)
{
    static const struct {
        const char *text;
        size_t rows;
        bool is_good;
    } cases[] = {
        {HEADER("1", "") COUNTER("a", "\"1\""), 1, true},
        {HEADER("1", "") COUNTER("a", "\"1\""), 2, false},
        {HEADER("1", "") COUNTER("a", "\"1\""), 0, false},
        {HEADER("1", "") COUNTER("a", "\"1\"") COUNTER("b", "\"1\""), 2, true},
        {HEADER("1", "") COUNTER("b", "\"1\"") COUNTER("a", "\"1\""), 2, false},
        {HEADER("1", "") COUNTER("a", "\"1\"") COUNTER("a", "\"1\""), 2, false},
        {HEADER("1", "") COUNTER("a", "1"), 1, false},
        {HEADER("1", "") HEADER("1", ""), 0, false},
        {HEADER("1", "") "\n", 0, false},
        {COUNTER("a", "\"1\""), 1, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        signed_write(cases[i].text, cases[i].rows);
        if (is_accepted(copy) != cases[i].is_good) {
            fail_msg("case %zu: %s", i, cases[i].text);
        }
    }
}

static void
writer__before_its_end__leaves_the_old_file(void **state)
{
    struct checkpoint_header header = header_make();
    struct checkpoint_writer *writer;
    char before[16384];
    char now[16384];
    size_t size;

    (void)state;
    assert_true(file_write(path, rows, COUNT(rows)));
    size = bytes_read(path, before, sizeof(before));
    writer = checkpoint_writer_create(path, &header);
    assert_non_null(writer);
    assert_true(checkpoint_writer_put(writer, &rows[0]));
    checkpoint_writer_destroy(writer);
    assert_int_equal(bytes_read(path, now, sizeof(now)), size);
    assert_memory_equal(before, now, size);
    assert_int_equal(names_count(), 1);
}

static void
writer__rows_out_of_order__gets_no_name(void **state)
{
    struct checkpoint_row wrong[2] = {rows[1], rows[0]};

    (void)state;
    assert_int_equal(names_count(), 0);
    assert_false(file_write(path, wrong, 2));
    wrong[1] = rows[1];
    assert_false(file_write(path, wrong, 2));
    assert_int_equal(names_count(), 0); /* not even under another name */
}

static void
writer__where_there_is_no_directory__fails(void **state)
{
    struct checkpoint_header header = header_make();

    (void)state;
    assert_null(checkpoint_writer_create("/nonexistent/x.ndjson", &header));
    assert_false(is_accepted("/nonexistent/x.ndjson"));
    assert_false(is_accepted(directory));
}

/* Lines that cross the chunks in which a file is read and written. */
static void
file__of_many_rows__is_read_as_it_was_written(void **state)
{
    enum { MANY = 5000 };
    struct checkpoint_header header = header_make();
    struct checkpoint_writer *writer = checkpoint_writer_create(path, &header);
    struct checkpoint_reader *reader;
    char dimensions[1500];
    struct checkpoint_row row = {.kind = CHECKPOINT_COUNTER,
                                 .tenant = METER_STR("t"),
                                 .name = METER_STR("n"),
                                 .has_dimensions = true};

    (void)state;
    memset(dimensions, '"', sizeof(dimensions)); /* twice as long in JSON */
    assert_non_null(writer);
    for (int i = 0; i < MANY; i++) {
        row.dimension_key[0] = (uint8_t)(i >> 8);
        row.dimension_key[1] = (uint8_t)i;
        row.value = i;
        row.dimensions = (struct meter_str){dimensions, (size_t)(i * 7) % 1500};
        assert_true(checkpoint_writer_put(writer, &row));
    }
    assert_true(checkpoint_writer_end(writer));
    checkpoint_writer_destroy(writer);
    reader = checkpoint_reader_open(path);
    assert_non_null(reader);
    for (int i = 0; i < MANY; i++) {
        const struct checkpoint_row *found = checkpoint_reader_row(reader);

        assert_int_equal(found->value, i);
        assert_int_equal(found->dimensions.size, i * 7 % 1500);
        assert_true(checkpoint_reader_next(reader));
    }
    assert_null(checkpoint_reader_row(reader));
    checkpoint_reader_close(reader);
}

static int
files_remove(void **state)
{
    (void)state;
    unlink(path);
    unlink(copy);
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows__of_odd_values__come_back_the_same),
        cmocka_unit_test(header__a_writer_it_does_not_know__has_no_number),
        cmocka_unit_test(file__without_rows__is_a_file),
        cmocka_unit_test(seek__in_any_order__finds_the_first_row_of_a_tenant),
        cmocka_unit_test_teardown(file__cut_anywhere__is_refused, files_remove),
        cmocka_unit_test(file__with_a_bit_turned__is_refused),
        cmocka_unit_test(file__with_lines_missing_or_moved__is_refused),
        cmocka_unit_test(file__of_another_version__is_refused),
        cmocka_unit_test_teardown(file__signed_but_wrong__is_refused,
                                  files_remove),
        cmocka_unit_test_teardown(writer__before_its_end__leaves_the_old_file,
                                  files_remove),
        cmocka_unit_test(writer__rows_out_of_order__gets_no_name),
        cmocka_unit_test(writer__where_there_is_no_directory__fails),
        cmocka_unit_test_teardown(file__of_many_rows__is_read_as_it_was_written,
                                  files_remove),
    };
    int failed;

    log_level_set(LOG_ERROR);
    if (mkdtemp(directory) == NULL ||
        freopen("/dev/null", "w", stderr) == NULL) {
        return 1;
    }
    snprintf(path, sizeof(path), "%s/a.ndjson", directory);
    snprintf(copy, sizeof(copy), "%s/b.ndjson", directory);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    files_remove(NULL);
    rmdir(directory);
    return failed;
}
