/*
 * test_checkpoint_dir.c - names of checkpoints, which ones go, when the next
 * one comes, and whose they are.
 */

#include "meter_cmocka.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "maintain/checkpoint_dir.h"
#include "maintain/checkpoint_import.h"
#include "maintain/checkpoint_job.h"
#include "meter_time.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char directory[] = "/tmp/em-checkpoints-XXXXXX";

static void
name__of_an_instant__is_read_again(void **state)
{
    static const struct {
        int64_t us;
        const char *name;
    } cases[] = {
        {0, "checkpoint-19700101T000000Z.ndjson"},
        {INT64_C(1788264000999999), "checkpoint-20260901T120000Z.ndjson"},
        {METER_TIME_MAX, "checkpoint-99991231T235959Z.ndjson"},
        {METER_TIME_MIN, "checkpoint-00010101T000000Z.ndjson"},
    };
    char name[CHECKPOINT_NAME_SIZE];
    int64_t us;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        checkpoint_name_format(cases[i].us, name);
        assert_string_equal(name, cases[i].name);
        assert_true(checkpoint_name_parse(name, &us));
        assert_true(us == meter_time_bucket(cases[i].us, METER_TIME_SECOND));
    }
}

static void
name__of_anything_else__is_none_of_ours(void **state)
{
    static const char *const names[] = {
        "",
        ".",
        "checkpoint-",
        "checkpoint-20260901T120000Z.ndjson.gz",
        "checkpoint-20260901T120000Z.ndjson ",
        "Checkpoint-20260901T120000Z.ndjson",
        "checkpoint-20260901t120000Z.ndjson",
        "checkpoint-20260901T120000z.ndjson",
        "checkpoint-20260901T120000Z.NDJSON",
        "checkpoint-20261301T120000Z.ndjson",
        "checkpoint-20260231T120000Z.ndjson",
        "checkpoint-20260901T240000Z.ndjson",
        "checkpoint-20260901T120060Z.ndjson",
        "checkpoint-2026090 T120000Z.ndjson",
        "checkpoint-20260901T12000-Z.ndjson",
        "checkpoint_20260901T120000Z.ndjson",
        "checkpoint-20260901T120000Z.ndjson.tmp-abcdef",
    };
    int64_t us;

    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_false(checkpoint_name_parse(names[i], &us));
    }
}

static void
name__of_a_file_being_written__is_known(void **state)
{
    (void)state;
    assert_true(checkpoint_name_is_temporary(
        "checkpoint-20260901T120000Z.ndjson.tmp-aB3dEf"));
    assert_false(checkpoint_name_is_temporary(
        "checkpoint-20260901T120000Z.ndjson.tmp-aB3dE"));
    assert_false(checkpoint_name_is_temporary(
        "checkpoint-20260901T120000Z.ndjson.tmp-aB3dE."));
    assert_false(checkpoint_name_is_temporary(
        "checkpoint-20260901T120000Z.ndjson.old-aB3dEf"));
    assert_false(
        checkpoint_name_is_temporary("checkpoint-20260901T120000Z.ndjson"));
    assert_false(checkpoint_name_is_temporary(
        "checkpoint-20261301T120000Z.ndjson.tmp-aB3dEf"));
}

/* ---- the directory ---------------------------------------------------- */

static void
path_of(const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", directory, name);
}

/* Made so many seconds ago; gives its descriptor. */
static int
file_make(const char *name, time_t age)
{
    struct timespec times[2] = {{.tv_sec = time(NULL) - age}};
    char path[256];
    int fd;

    path_of(name, path);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    times[1] = times[0];
    assert_int_equal(futimens(fd, times), 0);
    return fd;
}

static bool
file_is(const char *name)
{
    char path[256];

    path_of(name, path);
    return access(path, F_OK) == 0;
}

static void
keep__of_five__leaves_the_newest_and_strangers(void **state)
{
    static const char *const names[] = {
        "checkpoint-20260901T120000Z.ndjson",
        "checkpoint-20251231T235959Z.ndjson",
        "checkpoint-20260901T120001Z.ndjson",
        "checkpoint-20260101T000000Z.ndjson",
        "checkpoint-20260830T120000Z.ndjson",
    };
    static const char *const strangers[] = {
        "checkpoint-20200101T000000Z.ndjson.gz", "notes.txt",
        "checkpoint-20201301T000000Z.ndjson", "checkpoint-old.ndjson"};

    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        close(file_make(names[i], 0));
    }
    for (size_t i = 0; i < COUNT(strangers); i++) {
        close(file_make(strangers[i], 1000000));
    }
    assert_true(checkpoint_dir_keep(directory, 5));
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_true(file_is(names[i]));
    }
    assert_true(checkpoint_dir_keep(directory, 2));
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_int_equal(file_is(names[i]), i == 0 || i == 2);
    }
    for (size_t i = 0; i < COUNT(strangers); i++) {
        assert_true(file_is(strangers[i]));
    }
}

static void
keep__of_what_was_left__goes_by_its_lock_and_age(void **state)
{
    static const char left[] = "checkpoint-20260901T120000Z.ndjson.tmp-aaaaaa";
    static const char fresh[] = "checkpoint-20260901T120000Z.ndjson.tmp-bbbbbb";
    static const char held[] = "checkpoint-20260901T120000Z.ndjson.tmp-cccccc";
    int fd;

    (void)state;
    close(file_make(left, 100));
    close(file_make(fresh, 10));
    fd = file_make(held, 100);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_true(checkpoint_dir_keep(directory, 1));
    assert_false(file_is(left));
    assert_true(file_is(fresh));
    assert_true(file_is(held));
    close(fd);
    assert_true(checkpoint_dir_keep(directory, 1));
    assert_false(file_is(held));
}

static void
keep__without_a_directory__fails(void **state)
{
    (void)state;
    assert_false(checkpoint_dir_keep("/nonexistent", 1));
}

static int
directory_clean(void **state)
{
    DIR *opened = opendir(directory);
    char path[512];

    (void)state;
    for (struct dirent *entry; (entry = readdir(opened)) != NULL;) {
        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        unlink(path);
    }
    closedir(opened);
    return 0;
}

/* ---- when ------------------------------------------------------------- */

static void
due__by_the_newest_file(void **state)
{
    const int64_t day = METER_TIME_DAY;
    const int64_t now = 1000 * day;

    (void)state;
    assert_true(checkpoint_due_us(INT64_MIN, day, now) == 0);
    assert_true(checkpoint_due_us(now - day, day, now) == 0);
    assert_true(checkpoint_due_us(now - 2 * day, day, now) == 0);
    assert_true(checkpoint_due_us(now - day + 1, day, now) == 1);
    assert_true(checkpoint_due_us(now, day, now) == day);
    /* Clocks that differ a little, and one that is wrong. */
    assert_true(checkpoint_due_us(now + 5, day, now) == day + 5);
    assert_true(checkpoint_due_us(now + day, day, now) == 0);
    assert_true(checkpoint_due_us(METER_TIME_MAX, day, now) == 0);
}

/* ---- whose ------------------------------------------------------------ */

static void
misfit__of_header_and_database(void **state)
{
    static const struct checkpoint_seq older[] = {{{1}, 10}, {{2}, 20}};
    static const struct checkpoint_seq newer[] = {
        {{1}, 10}, {{2}, 21}, {{3}, 5}};
    const struct checkpoint_header file = {.schema_version = 4,
                                           .salt_digest = {1},
                                           .incarnation = "7 00000001",
                                           .writers = older,
                                           .writer_count = 2};
    struct checkpoint_header database = {.schema_version = 5,
                                         .salt_digest = {1},
                                         .incarnation = "7 00000001",
                                         .writers = newer,
                                         .writer_count = 3};
    struct checkpoint_header other;
    bool is_final;

    (void)state;
    assert_null(checkpoint_misfit(&file, &file, &is_final));
    assert_null(checkpoint_misfit(&file, &database, &is_final));
    other = database;
    other.incarnation[0] = '\0'; /* the server does not tell */
    assert_null(checkpoint_misfit(&file, &other, &is_final));
    assert_null(checkpoint_misfit(&other, &database, &is_final));
    other.salt_digest[31] = 1;
    assert_non_null(checkpoint_misfit(&file, &other, &is_final));
    assert_false(is_final);
    other = database;
    other.incarnation[9] = '2';
    assert_non_null(checkpoint_misfit(&file, &other, &is_final));
    assert_false(is_final);
    other = file;
    assert_non_null(checkpoint_misfit(&database, &other, &is_final));
    assert_true(is_final); /* a newer schema */
    other.schema_version = 5;
    assert_non_null(checkpoint_misfit(&database, &other, &is_final));
    assert_true(is_final); /* a writer that it never had, and numbers */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(name__of_an_instant__is_read_again),
        cmocka_unit_test(name__of_anything_else__is_none_of_ours),
        cmocka_unit_test(name__of_a_file_being_written__is_known),
        cmocka_unit_test_teardown(
            keep__of_five__leaves_the_newest_and_strangers, directory_clean),
        cmocka_unit_test_teardown(
            keep__of_what_was_left__goes_by_its_lock_and_age, directory_clean),
        cmocka_unit_test(keep__without_a_directory__fails),
        cmocka_unit_test(due__by_the_newest_file),
        cmocka_unit_test(misfit__of_header_and_database),
    };
    int failed;

    log_level_set(LOG_ERROR);
    if (mkdtemp(directory) == NULL ||
        freopen("/dev/null", "w", stderr) == NULL) {
        return 1;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(directory);
    return failed;
}
