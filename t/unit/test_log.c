/*
 * Log lines as a reader of stderr gets them.
 */

#include "meter_cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json_reader.h"
#include "base/log.h"

static int saved_stderr;
static int pipe_read;
static char line[65536];
static struct arena arena;

static int
setup(void **state)
{
    int ends[2];

    (void)state;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    saved_stderr = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    pipe_read = ends[0];
    arena_init(&arena, 4096, 1 << 20);
    log_level_set(LOG_INFO);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(pipe_read);
    arena_fini(&arena);
    return 0;
}

/* What was written since the last call; one line that is one object. */
static struct json_value
take_line(void)
{
    static const struct json_limits limits = {2, 100, 100, 16384};
    ssize_t size = read(pipe_read, line, sizeof(line));
    struct json_error error;
    struct json_value value;
    size_t used;

    assert_true(size > 1);
    assert_int_equal(line[size - 1], '\n');
    assert_null(memchr(line, '\n', (size_t)size - 1));
    assert_true(json_read((struct meter_str){line, (size_t)size}, &limits,
                          &arena, &value, &used, &error));
    assert_int_equal(used, size - 1);
    assert_int_equal(value.kind, JSON_OBJECT);
    return value;
}

static bool
nothing_written(void)
{
    return read(pipe_read, line, sizeof(line)) < 0;
}

static void
assert_field(const struct json_value *object, const char *name,
             enum json_kind kind, const char *expected)
{
    const struct json_value *value = json_member_find(object, str_of(name));

    assert_non_null(value);
    assert_int_equal(value->kind, kind);
    assert_int_equal(value->text.size, strlen(expected));
    assert_memory_equal(value->text.data, expected, value->text.size);
}

static void
line__all_kinds_of_fields__is_one_object(void **state)
{
    struct json_value object;

    (void)state;
    log_warn("ingest", "batch refused", log_int("rows", -5),
             log_str("tenant", "acme"), log_str("none", NULL),
             log_bool("again", true), log_bytes("id", METER_STR("a\xff")));
    object = take_line();
    assert_field(&object, "level", JSON_STRING, "warn");
    assert_field(&object, "subsystem", JSON_STRING, "ingest");
    assert_field(&object, "message", JSON_STRING, "batch refused");
    assert_field(&object, "rows", JSON_NUMBER, "-5");
    assert_field(&object, "tenant", JSON_STRING, "acme");
    assert_field(&object, "none", JSON_STRING, "");
    assert_field(&object, "again", JSON_TRUE, "true");
    assert_field(&object, "id", JSON_STRING, "a\xef\xbf\xbd");
    assert_non_null(json_member_find(&object, METER_STR("time")));
}

static void
line__without_fields__is_one_object(void **state)
{
    struct json_value object;

    (void)state;
    log_error("main", "bye");
    object = take_line();
    assert_int_equal(object.count, 4);
    assert_field(&object, "level", JSON_STRING, "error");
}

static void
value__that_tries_to_be_a_line__stays_a_value(void **state)
{
    struct json_value object;

    (void)state;
    log_info("api", "asked",
             log_str("path", "x\"}\n{\"level\":\"error\",\"a\":\"\x1b[31m"));
    object = take_line();
    assert_field(&object, "level", JSON_STRING, "info");
    assert_field(&object, "path", JSON_STRING,
                 "x\"}\n{\"level\":\"error\",\"a\":\"\x1b[31m");
}

static void
value__too_long__is_cut(void **state)
{
    struct json_value object;
    const struct json_value *value;
    char text[2 * LOG_VALUE_SIZE_MAX];

    (void)state;
    memset(text, 'x', sizeof(text));
    log_info("api", "asked",
             log_bytes("path", (struct meter_str){text, sizeof(text)}));
    object = take_line();
    value = json_member_find(&object, METER_STR("path"));
    assert_int_equal(value->text.size, LOG_VALUE_SIZE_MAX);
}

/* A line past the maximum is said without its fields, not swallowed. */
static void
line__too_long__keeps_its_message(void **state)
{
    struct log_field fields[40];
    struct json_value object;
    char text[LOG_VALUE_SIZE_MAX];

    (void)state;
    memset(text, 1, sizeof(text));
    for (size_t i = 0; i < 40; i++) {
        fields[i] = log_bytes("f", (struct meter_str){text, sizeof(text)});
    }
    log_write(LOG_ERROR, "api", "much to say", fields, 40);
    object = take_line();
    assert_int_equal(object.count, 4);
    assert_field(&object, "message", JSON_STRING, "much to say");
}

static void
line__for_a_person__is_plain_and_tame(void **state)
{
    static const char expected[] = "meterd migrate: no connection\n"
                                   "  reason: refused\n"
                                   "  \tIs it\n"
                                   "  up?[31m?\n"
                                   "  tries: 3\n"
                                   "  again: no\n";
    ssize_t size;

    (void)state;
    log_for_person("meterd migrate");
    log_error("store", "no connection",
              log_str("reason", "refused\n\tIs it\nup\x1b[31m\x7f\n"),
              log_int("tries", 3), log_bool("again", false));
    log_for_person(NULL);
    size = read(pipe_read, line, sizeof(line) - 1);
    assert_true(size > 0);
    line[size] = '\0';
    assert_string_equal(line, expected);
}

static void
level__above_the_set_one__is_not_written(void **state)
{
    (void)state;
    log_debug("api", "detail");
    assert_true(nothing_written());
    log_level_set(LOG_DEBUG);
    log_debug("api", "detail");
    take_line();
    log_level_set(LOG_ERROR);
    log_warn("api", "detail");
    log_info("api", "detail");
    assert_true(nothing_written());
    log_error("api", "detail");
    take_line();
}

/* The bytes of a file, which is short. */
static void
assert_file(const char *path, const char *expected)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size;

    assert_true(fd >= 0);
    size = read(fd, line, sizeof(line) - 1);
    close(fd);
    assert_true(size >= 0);
    line[size] = '\0';
    assert_non_null(strstr(line, expected));
    assert_ptr_equal(strchr(line, '\n'), line + size - 1);
}

static void
file__renamed_and_opened_again__parts_the_lines(void **state)
{
    char directory[] = "/tmp/test_log.XXXXXX";
    char path[64];
    char renamed[64];
    struct stat file;

    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/log", directory);
    snprintf(renamed, sizeof(renamed), "%s/log.1", directory);
    assert_true(log_file_open(path));
    log_info("log", "before");
    assert_int_equal(rename(path, renamed), 0);
    assert_true(log_file_open(path));
    log_info("log", "after");
    assert_file(renamed, "\"before\"");
    assert_file(path, "\"after\"");
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0137, 0);
    assert_int_equal(read(pipe_read, line, sizeof(line)), 0); /* left */
    unlink(path);
    unlink(renamed);
    rmdir(directory);
}

static void
file__that_cannot_be_opened__leaves_the_lines_where_they_go(void **state)
{
    struct json_value object;

    (void)state;
    assert_false(log_file_open("/nonexistent/log"));
    assert_int_equal(errno, ENOENT);
    log_info("log", "still here");
    object = take_line();
    assert_field(&object, "message", JSON_STRING, "still here");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(line__all_kinds_of_fields__is_one_object),
    TEST(line__without_fields__is_one_object),
    TEST(value__that_tries_to_be_a_line__stays_a_value),
    TEST(value__too_long__is_cut),
    TEST(line__too_long__keeps_its_message),
    TEST(line__for_a_person__is_plain_and_tame),
    TEST(level__above_the_set_one__is_not_written),
    TEST(file__renamed_and_opened_again__parts_the_lines),
    TEST(file__that_cannot_be_opened__leaves_the_lines_where_they_go),
};

RUN_TAP(tests)
