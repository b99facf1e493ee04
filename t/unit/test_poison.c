/*
 * test_poison.c - who is to blame when the process dies. Each crash is that
 * of a child, which shares nothing with us but the file.
 */

#include "meter_cmocka.h"

#include "base/log.h"
#include "ingest/poison.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint8_t one[16] = {1};
static const uint8_t two[16] = {2};

static char directory[64];
static char path[128];

static int
set_up(void **state)
{
    (void)state;
    snprintf(directory, sizeof(directory), "/tmp/em-poison-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        return -1;
    }
    snprintf(path, sizeof(path), "%s/poison", directory);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}

enum ending { END_CLEAN, END_ABORT, END_FAULT, END_KILL, END_STACK };

/* Deeper than any stack; the sum keeps the frames. */
__attribute__((noinline)) static int
dive(volatile int *depth)
{
    volatile char room[4096];

    room[0] = (char)++*depth;
    return *depth < 1 << 30 ? dive(depth) + room[0] : room[0];
}

__attribute__((noreturn)) static void
die(struct poison *poison, enum ending ending)
{
    volatile int depth = 0;
    volatile char *nowhere =
        mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    switch (ending) {
    case END_CLEAN: poison_close(poison); break;
    case END_ABORT: abort();
    case END_FAULT: *nowhere = 1; break;
    case END_KILL: raise(SIGKILL); break;
    case END_STACK: dive(&depth); break;
    }
    _exit(0);
}

/* A process with this record in hand; place POISON_PLACES: with none. */
static void
live_and_die(enum poison_place place, const uint8_t session[16], uint64_t seq,
             enum ending ending)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        struct poison *poison;

        /* Not the handlers of the test's own frame. */
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        poison = poison_open(directory, 0);
        if (poison == NULL) {
            _exit(9);
        }
        poison_watch(poison);
        if (place != POISON_PLACES) {
            poison_mark(poison, place, session, seq);
        }
        die(poison, ending);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    switch (ending) {
    case END_CLEAN: assert_int_equal(status, 0); break;
    case END_ABORT: assert_int_equal(WTERMSIG(status), SIGABRT); break;
    case END_FAULT:
    case END_STACK:
        /* A sanitizer's own handler exits instead. */
        assert_true(WTERMSIG(status) == SIGSEGV || WIFEXITED(status));
        break;
    case END_KILL: assert_int_equal(WTERMSIG(status), SIGKILL); break;
    }
}

static uint64_t
crashes(const uint8_t session[16], uint64_t seq)
{
    struct poison *poison = poison_open(directory, 0);
    uint64_t count;

    assert_non_null(poison);
    count = poison_crashes(poison, session, seq);
    poison_close(poison);
    return count;
}

static void
crash__with_a_record_in_hand__is_counted_against_it(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 4; i++) {
        live_and_die(POISON_READ, one, 7, i % 2 == 0 ? END_ABORT : END_FAULT);
        assert_int_equal(crashes(one, 7), i);
    }
    assert_int_equal(crashes(one, 8), 0);
    assert_int_equal(crashes(two, 7), 0);
}

static void
crash__on_a_stack_that_ran_out__is_counted_too(void **state)
{
    (void)state;
    live_and_die(POISON_READ, one, 7, END_STACK);
    assert_int_equal(crashes(one, 7), 1);
}

static void
crash__while_reading_and_storing__is_the_readers(void **state)
{
    struct poison *poison;
    pid_t child = fork();
    int status;

    (void)state;
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        poison = poison_open(directory, 0);
        poison_watch(poison);
        poison_mark(poison, POISON_STORE, one, 1);
        poison_mark(poison, POISON_READ, two, 2);
        abort();
    }
    waitpid(child, &status, 0);
    assert_int_equal(crashes(two, 2), 1);
    assert_int_equal(crashes(one, 1), 0);
    live_and_die(POISON_STORE, one, 1, END_ABORT);
    assert_int_equal(crashes(one, 1), 1);
}

static void
death__from_outside_or_in_order__is_nobodys_fault(void **state)
{
    (void)state;
    live_and_die(POISON_READ, one, 7, END_KILL);
    assert_int_equal(crashes(one, 7), 0);
    live_and_die(POISON_READ, one, 7, END_CLEAN);
    assert_int_equal(crashes(one, 7), 0);
}

static void
mark__cleared__accuses_nobody(void **state)
{
    struct poison *poison;
    pid_t child = fork();
    int status;

    (void)state;
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        poison = poison_open(directory, 0);
        poison_watch(poison);
        poison_mark(poison, POISON_READ, one, 1);
        poison_clear(poison, POISON_READ);
        abort();
    }
    waitpid(child, &status, 0);
    assert_int_equal(crashes(one, 1), 0);
}

static void
entries__more_than_fit__the_oldest_goes(void **state)
{
    (void)state;
    for (uint64_t seq = 1; seq <= POISON_ENTRIES_MAX; seq++) {
        live_and_die(POISON_READ, one, seq, END_ABORT);
    }
    live_and_die(POISON_READ, one, 1, END_ABORT); /* now the newest */
    live_and_die(POISON_READ, two, 1, END_ABORT);
    assert_int_equal(crashes(two, 1), 1);
    assert_int_equal(crashes(one, 1), 2);
    assert_int_equal(crashes(one, 2), 0);
    assert_int_equal(crashes(one, 3), 1);
}

static void
caution__follows_a_crash_until_enough_went_well(void **state)
{
    struct poison *poison;

    (void)state;
    live_and_die(POISON_PLACES, NULL, 0, END_ABORT);
    poison = poison_open(directory, 1000);
    assert_true(poison_is_cautious(poison));
    poison_passed(poison, POISON_CAUTION_RECORDS - 1, 1000);
    assert_true(poison_is_cautious(poison));
    poison_passed(poison, 1, 1000);
    assert_false(poison_is_cautious(poison));
    poison_close(poison);

    poison = poison_open(directory, 1000);
    assert_false(poison_is_cautious(poison));
    poison_close(poison);
}

static void
caution__ends_with_time_too_and_is_not_for_kills(void **state)
{
    struct poison *poison;

    (void)state;
    live_and_die(POISON_PLACES, NULL, 0, END_KILL);
    poison = poison_open(directory, 1000);
    assert_false(poison_is_cautious(poison));
    poison_close(poison);

    live_and_die(POISON_PLACES, NULL, 0, END_ABORT);
    poison = poison_open(directory, 1000);
    poison_passed(poison, 0, 1000 + POISON_CAUTION_MS - 1);
    assert_true(poison_is_cautious(poison));
    poison_passed(poison, 0, 1000 + POISON_CAUTION_MS);
    assert_false(poison_is_cautious(poison));
    poison_close(poison);
}

static void
open__file_of_something_else__starts_anew(void **state)
{
    FILE *file = fopen(path, "w");
    struct stat info;

    (void)state;
    assert_non_null(file);
    for (int i = 0; i < 6000; i++) {
        fputc('\2', file);
    }
    fclose(file);
    assert_int_equal(crashes(one, 1), 0);
    live_and_die(POISON_READ, one, 1, END_ABORT);
    assert_int_equal(crashes(one, 1), 1);
    unlink(path);
    assert_int_equal(crashes(one, 1), 0);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void
open__no_such_place__goes_without(void **state)
{
    (void)state;
    assert_null(poison_open("/nonexistent/place", 0));
    assert_int_equal(symlink("elsewhere", path), 0);
    assert_null(poison_open(directory, 0));
    poison_close(NULL);
}

#define TEST(function) \
    cmocka_unit_test_setup_teardown(function, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    TEST(crash__with_a_record_in_hand__is_counted_against_it),
    TEST(crash__on_a_stack_that_ran_out__is_counted_too),
    TEST(crash__while_reading_and_storing__is_the_readers),
    TEST(death__from_outside_or_in_order__is_nobodys_fault),
    TEST(mark__cleared__accuses_nobody),
    TEST(entries__more_than_fit__the_oldest_goes),
    TEST(caution__follows_a_crash_until_enough_went_well),
    TEST(caution__ends_with_time_too_and_is_not_for_kills),
    TEST(open__file_of_something_else__starts_anew),
    TEST(open__no_such_place__goes_without),
};

int
main(void)
{
    log_level_set(LOG_ERROR);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
