/*
 * test_check.c - `meterd check` as its user sees it.
 *
 * Each call runs in a child process whose outputs go to temporary files.
 */

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "cmd/command.h"

#define OUTPUT_MAX 65536

struct run {
    int status;
    char out[OUTPUT_MAX];
    char err[OUTPUT_MAX];
};

static int
temporary_file(void)
{
    char path[] = "/tmp/test_check.XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    unlink(path);
    return fd;
}

static void
read_back(int fd, char text[OUTPUT_MAX])
{
    ssize_t size = pread(fd, text, OUTPUT_MAX - 1, 0);

    assert_true(size >= 0);
    text[size] = '\0';
    close(fd);
}

static void
run_check(struct run *result, const char *const *argv)
{
    int out = temporary_file();
    int err = temporary_file();
    int argc = 0;
    int status;
    pid_t child;

    while (argv[argc] != NULL) {
        argc++;
    }
    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        status = command_run(&check_command, argc, (char **)argv);
        fflush(NULL);
        _exit(status);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    result->status = WEXITSTATUS(status);
    read_back(out, result->out);
    read_back(err, result->err);
}

/* Writes text to a new file and returns its path, to be unlinked. */
static char *
file_with(const char *text)
{
    char *path = strdup("/tmp/test_check.XXXXXX");
    int fd = mkstemp(path);
    size_t size = strlen(text);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, size), size);
    close(fd);
    return path;
}

static struct run run;

static void
check__valid_files__counts_and_notes(void **state)
{
    char *rules =
        file_with("events: [ { type: a } ]\n"
                  "series: [ { name: s, kind: counter, on: [a, b] } ]\n");
    char *site = file_with("node: gw\n");
    const char *argv[] = {"check", "-c", rules, "--config", site, NULL};

    (void)state;
    run_check(&run, argv);
    assert_int_equal(run.status, 0);
    assert_string_equal(run.out,
                        "note: event type \"b\": accepted because rules name "
                        "it; not declared under events\n"
                        "configuration is valid: 2 event types, 0 counters, "
                        "0 meters, 1 series, usage off\n");
    assert_string_equal(run.err, "");
    unlink(rules);
    unlink(site);
    free(rules);
    free(site);
}

static void
check__mistakes__one_line_each_and_status_1(void **state)
{
    char *rules = file_with("evnets: []\nnode: a b\n");
    const char *argv[] = {"check", "-c", rules, NULL};
    char expected[1024];

    (void)state;
    run_check(&run, argv);
    snprintf(expected, sizeof(expected),
             "%s:1:1: unknown key \"evnets\" in the configuration; did you "
             "mean \"events\"?\n"
             "%s:2:7: \"node\" must be 1 to 64 letters, digits, '_', '.' or "
             "'-', starting with a letter or digit\n",
             rules, rules);
    assert_int_equal(run.status, 1);
    assert_string_equal(run.out, "");
    assert_string_equal(run.err, expected);
    unlink(rules);
    free(rules);
}

static void
check__print__output_is_itself_valid(void **state)
{
    char *rules = file_with("database: postgres://u:hunter2@h/d\n"
                            "events: [ { type: a, required: [x] } ]\n");
    const char *argv[] = {"check", "-c", rules, "--print", NULL};
    char *printed;

    (void)state;
    run_check(&run, argv);
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "# database: (set)\n"));
    assert_null(strstr(run.out, "hunter2"));
    assert_non_null(strstr(run.out, "required: [\"x\"]"));
    assert_non_null(strstr(run.err, "configuration is valid"));

    printed = file_with(run.out);
    argv[2] = printed;
    argv[3] = NULL;
    run_check(&run, argv);
    assert_int_equal(run.status, 0);
    unlink(rules);
    unlink(printed);
    free(rules);
    free(printed);
}

static void
check__missing_file__status_1(void **state)
{
    const char *argv[] = {"check", "-c", "/nonexistent/rules.yaml", NULL};

    (void)state;
    run_check(&run, argv);
    assert_int_equal(run.status, 1);
    assert_string_equal(run.err, "/nonexistent/rules.yaml: cannot open the "
                                 "file: No such file or directory\n");
}

static void
check__wrong_arguments__usage_and_status_2(void **state)
{
    const char *none[] = {"check", NULL};
    const char *unknown[] = {"check", "--colour", NULL};
    const char *extra[] = {"check", "-c", "x", "y", NULL};
    const char *markdown[] = {"check", "-c", "x", "--markdown", NULL};
    const char *const *cases[] = {none, unknown, extra, markdown};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_check(&run, cases[i]);
        assert_int_equal(run.status, 2);
        assert_non_null(strstr(run.err, "usage: meterd check"));
        assert_int_not_equal(strncmp(run.err, "usage", 5), 0);
        assert_string_equal(run.out, "");
    }
}

static void
check__help_and_options__on_standard_output(void **state)
{
    const char *help[] = {"check", "--help", NULL};
    const char *options[] = {"check", "--print-options", NULL};

    (void)state;
    run_check(&run, help);
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "usage: meterd check"));
    run_check(&run, options);
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "limits.queueEvents\n    type: integer\n"
                                    "    default: 500000\n"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check__valid_files__counts_and_notes),
        cmocka_unit_test(check__mistakes__one_line_each_and_status_1),
        cmocka_unit_test(check__print__output_is_itself_valid),
        cmocka_unit_test(check__missing_file__status_1),
        cmocka_unit_test(check__wrong_arguments__usage_and_status_2),
        cmocka_unit_test(check__help_and_options__on_standard_output),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    unsetenv("METERD_DATABASE");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
