/*
 * test_command.c - command lines by tables: kinds of values, verbs, words,
 * help and what is said of mistakes.
 *
 * Each call runs in a child process whose outputs go to temporary files.
 */

#include "meter_cmocka.h"

#include "cmd/command.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_MAX 65536

struct sample {
    struct command_line line;
    bool is_fast;
    const char *name;
    int64_t count;
    int64_t since_us;
    struct command_list tags;
};

/* All that was read, on stdout. */
static int
sample_print(void *data)
{
    const struct sample *sample = data;

    printf("%s fast=%d name=%s count=%lld since=%lld tags=%zu words=%zu",
           sample->line.verb->name, sample->is_fast,
           sample->name == NULL ? "-" : sample->name, (long long)sample->count,
           (long long)sample->since_us, sample->tags.count,
           sample->line.word_count);
    for (size_t i = 0; i < sample->line.word_count; i++) {
        printf(" %s", sample->line.words[i]);
    }
    return 7;
}

static const char *
sample_check(void *data)
{
    const struct sample *sample = data;

    return sample->is_fast && sample->count == 1 ? "not both" : NULL;
}

static const struct command_verb verbs[] = {
    {"get", sample_print, COMMAND_NO_CONFIG},
    {"put", sample_print, COMMAND_NO_CONFIG, "a place", 1, 2},
    {"load", sample_print, CONFIG_NEEDS_DATABASE},
    {NULL},
};

static const struct command_option options[] = {
    {"fast", 'f', COMMAND_FLAG, offsetof(struct sample, is_fast), NULL,
     "at once"},
    {"name", 'n', COMMAND_TEXT, offsetof(struct sample, name), "NAME",
     "whose it is", 1 << 0 | 1 << 1},
    {"count", 0, COMMAND_NUMBER, offsetof(struct sample, count), "N",
     "so many,\nor fewer", 1 << 1, 1, 50, 5},
    {"since", 0, COMMAND_TIME, offsetof(struct sample, since_us), "TIME",
     "from then on"},
    {"tag", 't', COMMAND_LIST, offsetof(struct sample, tags), "T", "a tag"},
    {NULL},
};

static const struct command command = {
    .name = "sample",
    .summary = "for tests",
    .synopsis = "usage: meterd sample get\n",
    .about = "About it.\n",
    .notes = "Notes.\n",
    .verbs = verbs,
    .options = options,
    .size = sizeof(struct sample),
    .check = sample_check,
};

static char said_out[OUTPUT_MAX];
static char said_err[OUTPUT_MAX];

static void
read_back(FILE *file, char text[OUTPUT_MAX])
{
    rewind(file);
    text[fread(text, 1, OUTPUT_MAX - 1, file)] = '\0';
    fclose(file);
}

/* The words are separated by blanks. */
static int
run(const char *words)
{
    FILE *out = tmpfile();
    FILE *err = tmpfile();
    char text[4096];
    char *argv[512] = {text};
    char *at = text;
    int argc = 1;
    int status;
    pid_t child;

    snprintf(text, sizeof(text), "%s", words);
    while (at != NULL && *at != '\0') {
        argv[argc++] = strsep(&at, " ");
    }
    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(err), STDERR_FILENO);
        status = command_run(&command, argc, argv);
        fflush(NULL);
        _exit(status);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    read_back(out, said_out);
    read_back(err, said_err);
    return WEXITSTATUS(status);
}

static void
command__values_of_each_kind__reach_the_struct(void **state)
{
    (void)state;
    assert_int_equal(run("get"), 7);
    assert_string_equal(said_out,
                        "get fast=0 name=- count=5 since=0 tags=0 words=0");
    assert_int_equal(run("-f put -n x a --count 50 --tag 1 -t2 "
                         "--since=1970-01-01T00:00:01Z b"),
                     7);
    assert_string_equal(said_out, "put fast=1 name=x count=50 since=1000000 "
                                  "tags=2 words=2 a b");
    assert_string_equal(said_err, "");
}

static void
command__mistakes__a_sentence_the_synopsis_and_status_2(void **state)
{
    static const struct {
        const char *words;
        const char *sentence;
    } cases[] = {
        {"", "meterd sample: say get, put or load\n"},
        {"take", "meterd sample: there is no command \"take\"\n"},
        {"get more", "meterd sample: unexpected argument \"more\"\n"},
        {"put a b c", "meterd sample: unexpected argument \"c\"\n"},
        {"put", "meterd sample: put needs a place\n"},
        {"load --name x", "meterd sample: --name belongs to get and put\n"},
        {"get --count 3", "meterd sample: --count belongs to put\n"},
        {"put a --fast --count 1", "meterd sample: not both\n"},
        {"load", "meterd sample: " COMMAND_NO_FILE "\n"},
        {"get --nope", "meterd sample: unrecognized option '--nope'\n"},
        {"get --name", "meterd sample: option '--name' requires an argument\n"},
        {"get --since now",
         "meterd sample: --since takes a time like 2026-09-01T12:00:00Z\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char expected[512];

        snprintf(expected, sizeof(expected), "%s%stry: meterd sample --help\n",
                 cases[i].sentence, command.synopsis);
        assert_int_equal(run(cases[i].words), 2);
        assert_string_equal(said_err, expected);
        assert_string_equal(said_out, "");
    }
}

static void
command__numbers_out_of_bounds__are_refused(void **state)
{
    static const char *const values[] = {
        "0", "51", "-1", "1x", "x", "", "1.5", "99999999999999999999",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char words[64];

        snprintf(words, sizeof(words), "put a --count=%s", values[i]);
        assert_int_equal(run(words), 2);
        assert_non_null(strstr(said_err, "meterd sample: --count takes a "
                                         "number from 1 to 50\n"));
    }
}

static void
command__too_many_of_a_list_or_of_files__is_refused(void **state)
{
    char words[4096] = "get";

    (void)state;
    for (int i = 0; i < COMMAND_LIST_MAX; i++) {
        snprintf(words + strlen(words), sizeof(words) - strlen(words), " -t%d",
                 i);
    }
    assert_int_equal(run(words), 7);
    snprintf(words + strlen(words), sizeof(words) - strlen(words), " -tx");
    assert_int_equal(run(words), 2);
    assert_non_null(strstr(said_err, "meterd sample: too many --tag\n"));

    snprintf(words, sizeof(words), "get");
    for (int i = 0; i <= CONFIG_FILES_MAX; i++) {
        snprintf(words + strlen(words), sizeof(words) - strlen(words), " -c%d",
                 i);
    }
    assert_int_equal(run(words), 2);
    assert_non_null(strstr(said_err, "meterd sample: too many files \"16\"\n"));
}

static void
command__help__has_each_option_aligned(void **state)
{
    (void)state;
    assert_int_equal(run("load --help"), 0);
    assert_string_equal(
        said_out, "usage: meterd sample get\n"
                  "\n"
                  "About it.\n"
                  "\n"
                  "  -c, --config FILE  a file; later ones add or replace "
                  "top-level keys\n"
                  "  -f, --fast         at once\n"
                  "  -n, --name NAME    whose it is\n"
                  "      --count N      so many,\n"
                  "                     or fewer (5)\n"
                  "      --since TIME   from then on\n"
                  "  -t, --tag T        a tag\n"
                  "  -h, --help         this text\n"
                  "\n"
                  "Notes.\n");
    assert_string_equal(said_err, "");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command__values_of_each_kind__reach_the_struct),
        cmocka_unit_test(
            command__mistakes__a_sentence_the_synopsis_and_status_2),
        cmocka_unit_test(command__numbers_out_of_bounds__are_refused),
        cmocka_unit_test(command__too_many_of_a_list_or_of_files__is_refused),
        cmocka_unit_test(command__help__has_each_option_aligned),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
