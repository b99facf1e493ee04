/*
 * test_config.c - whole files: good ones, bad ones, merging, references.
 *
 * Each file of config/bad starts with "# expect: LINE:COLUMN: fragment";
 * the load must fail with an error at that place holding that fragment.
 */

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "config/reload.c"

#define PATH_SIZE_MAX 1024
#define DUMP_SIZE_MAX (1u << 20)
#define BAD_FILES_MIN 200

/* config/ lies beside this file. */
static void
path_of(char path[PATH_SIZE_MAX], const char *directory, const char *file)
{
    const char *slash = strrchr(__FILE__, '/');
    int here = slash == NULL ? 0 : (int)(slash - __FILE__ + 1);

    snprintf(path, PATH_SIZE_MAX, "%.*sconfig/%s/%s", here, __FILE__, directory,
             file);
}

/* Calls visit for each *.yaml of the directory; returns how many. */
static size_t
for_each_file(const char *directory, void (*visit)(const char *path))
{
    char path[PATH_SIZE_MAX];
    struct dirent **entries;
    size_t count = 0;
    int found;

    path_of(path, directory, "");
    found = scandir(path, &entries, NULL, alphasort);
    assert_true(found > 0);
    for (int i = 0; i < found; i++) {
        const char *dot = strrchr(entries[i]->d_name, '.');

        if (dot != NULL && strcmp(dot, ".yaml") == 0) {
            path_of(path, directory, entries[i]->d_name);
            visit(path);
            count++;
        }
        free(entries[i]);
    }
    free(entries);
    return count;
}

static struct config *
load_path(const char *path)
{
    struct config_errors errors;
    struct config *config;

    if (!config_load(&path, 1, &config, &errors)) {
        config_errors_print(&errors, stderr);
        fail_msg("%s does not load", path);
    }
    return config;
}

static struct config *
load_text(const char *text)
{
    struct config_errors errors;
    struct config *config;

    if (!config_load_text("t.yaml", (struct meter_str){text, strlen(text)},
                          &config, &errors)) {
        config_errors_print(&errors, stderr);
        fail_msg("the text does not load:\n%s", text);
    }
    return config;
}

static char *
dump_of(const struct config *config)
{
    struct buf dump;

    buf_init(&dump, DUMP_SIZE_MAX);
    catalog_dump(config->catalog, &dump);
    buf_put_byte(&dump, '\0');
    assert_false(dump.failed);
    return dump.data;
}


static bool
errors_have(const struct config_errors *errors, unsigned line, unsigned column,
            const char *fragment)
{
    for (size_t i = 0; i < errors->count; i++) {
        if (errors->items[i].line == line &&
            errors->items[i].column == column &&
            strstr(errors->items[i].text, fragment) != NULL) {
            return true;
        }
    }
    return false;
}

/* "# expect: LINE:COLUMN: fragment"; returns the fragment. */
static const char *
expectation(const char *path, char *head, unsigned *line, unsigned *column)
{
    static const char prefix[] = "# expect: ";
    char *at = head + strlen(prefix);

    if (strncmp(head, prefix, strlen(prefix)) == 0) {
        *line = (unsigned)strtoul(at, &at, 10);
        if (*at == ':') {
            *column = (unsigned)strtoul(at + 1, &at, 10);
            if (strncmp(at, ": ", 2) == 0 && at[2] != '\0') {
                return at + 2;
            }
        }
    }
    fail_msg("%s: no expectation in the first line", path);
    return NULL;
}

static void
check_bad_file(const char *path)
{
    struct config_errors errors;
    struct config *config;
    char head[512];
    const char *fragment;
    unsigned line = 0;
    unsigned column = 0;
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    assert_non_null(fgets(head, sizeof(head), file));
    fclose(file);
    head[strcspn(head, "\n")] = '\0';
    fragment = expectation(path, head, &line, &column);
    if (config_load(&path, 1, &config, &errors)) {
        fail_msg("%s loads", path);
    }
    assert_null(config);
    assert_true(errors.count > 0);
    if (!errors_have(&errors, line, column, fragment)) {
        config_errors_print(&errors, stderr);
        fail_msg("%s: expected %u:%u: %s", path, line, column, fragment);
    }
}

static void
config_load__every_bad_file__fails_at_the_expected_place(void **state)
{
    (void)state;
    assert_true(for_each_file("bad", check_bad_file) >= BAD_FILES_MIN);
}

/* The dump is a configuration with the same rules and the same dump. */
static void
check_good_file(const char *path)
{
    struct config *config = load_path(path);
    struct config *again = load_path(path);
    char *dump = dump_of(config);
    char *dump_again = dump_of(again);
    struct config *reloaded = load_text(dump);
    char *dump_reloaded = dump_of(reloaded);

    assert_string_equal(dump, dump_again);
    assert_string_equal(dump, dump_reloaded);
    assert_true(config->version == again->version);
    assert_true(config->version == reloaded->version);
    assert_true(config->version != 0);
    free(dump);
    free(dump_again);
    free(dump_reloaded);
    config_unref(config);
    config_unref(again);
    config_unref(reloaded);
}

static void
config_load__every_good_file__its_dump_means_the_same(void **state)
{
    (void)state;
    assert_true(for_each_file("good", check_good_file) >= 10);
}

static void
config_load__full_example__everything_is_there(void **state)
{
    char path[PATH_SIZE_MAX];
    struct config *config;

    (void)state;
    path_of(path, "good", "full.yaml");
    config = load_path(path);
    assert_string_equal(config->listen, "/run/edgemeter/meterd.sock");
    assert_string_equal(config->node, "gw-1");
    assert_int_equal(config->catalog->event_type_count, 10);
    assert_int_equal(config->catalog->counter_count, 1);
    assert_int_equal(config->catalog->meter_count, 1);
    assert_int_equal(config->catalog->series_count, 4);
    assert_int_equal(config->catalog->usage_rule_count, 6);
    config_unref(config);
}


static void
config_load__later_file__replaces_whole_keys(void **state)
{
    char first[PATH_SIZE_MAX];
    char second[PATH_SIZE_MAX];
    const char *paths[2] = {first, second};
    struct config_errors errors;
    struct config *config;

    (void)state;
    path_of(first, "good", "full.yaml");
    path_of(second, "good", "options_only.yaml");
    assert_true(config_load(paths, 2, &config, &errors));
    assert_string_equal(config->node, "7.gw_west-1");
    assert_string_equal(config->listen, "/tmp/meterd.sock");
    assert_int_equal(config->catalog->counter_count, 1);
    config_unref(config);

    path_of(second, "good", "minimal.yaml");
    assert_true(config_load(paths, 2, &config, &errors));
    assert_string_equal(config->node, "gw-1");
    assert_non_null(catalog_event_type(config->catalog, METER_STR("a")));
    /* Now only a rule names it. */
    assert_false(catalog_event_type(config->catalog, METER_STR("api.request"))
                     ->declared);
    config_unref(config);
}

static void
config_load__error_in_the_second_file__names_that_file(void **state)
{
    char first[PATH_SIZE_MAX];
    char second[PATH_SIZE_MAX];
    const char *paths[2] = {first, second};
    struct config_errors errors;
    struct config *config;

    (void)state;
    path_of(first, "good", "full.yaml");
    path_of(second, "bad", "bool_no.yaml");
    assert_false(config_load(paths, 2, &config, &errors));
    assert_int_equal(errors.count, 1);
    assert_string_equal(errors.items[0].file, second);
}

static void
config_load__no_file_or_too_many__refused(void **state)
{
    const char *paths[CONFIG_FILES_MAX + 1] = {NULL};
    struct config_errors errors;
    struct config *config;

    (void)state;
    assert_false(config_load(paths, 0, &config, &errors));
    assert_false(config_load(paths, CONFIG_FILES_MAX + 1, &config, &errors));
    assert_int_equal(errors.count, 1);
}

static void
config_load__many_mistakes__all_reported_in_order_up_to_20(void **state)
{
    struct config_errors errors;
    struct config *config;
    char text[4096];
    size_t at = (size_t)snprintf(text, sizeof(text), "counters:\n");

    (void)state;
    for (int i = 0; i < 15; i++) {
        at += (size_t)snprintf(text + at, sizeof(text) - at,
                               "  - { counterName: 9, colour: red }\n");
    }
    at += (size_t)snprintf(text + at, sizeof(text) - at, "node: a b\n");
    assert_false(config_load_text("t.yaml", (struct meter_str){text, at},
                                  &config, &errors));
    assert_int_equal(errors.count, CONFIG_ERRORS_MAX);
    assert_true(errors.suppressed > 0);
    for (size_t i = 1; i < errors.count; i++) {
        assert_true(errors.items[i - 1].line < errors.items[i].line ||
                    (errors.items[i - 1].line == errors.items[i].line &&
                     errors.items[i - 1].column <= errors.items[i].column));
    }
}


static void
config_load__environment__stands_for_database(void **state)
{
    struct config_errors errors;
    struct config *config;

    (void)state;
    setenv("METERD_DATABASE", "postgres://from/environment", 1);
    setenv("DATABASE_URL", "postgres://never/used", 1);
    config = load_text("node: a\n");
    assert_string_equal(config->database, "postgres://from/environment");
    config_unref(config);
    config = load_text("database: postgres://from/file\n");
    assert_string_equal(config->database, "postgres://from/file");
    config_unref(config);

    setenv("METERD_DATABASE", "nonsense", 1);
    assert_false(
        config_load_text("t.yaml", METER_STR("node: a\n"), &config, &errors));
    assert_string_equal(errors.items[0].file, "METERD_DATABASE");

    setenv("METERD_DATABASE", "", 1);
    config = load_text("node: a\n");
    assert_null(config->database);
    config_unref(config);
    unsetenv("METERD_DATABASE");
    config = load_text("node: a\n");
    assert_null(config->database);
    config_unref(config);
}

static void
config_load__no_node__host_name(void **state)
{
    struct config *config = load_text("events: []\n");

    (void)state;
    assert_non_null(config->node);
    assert_true(config->node[0] != '\0');
    config_unref(config);
}

static void
config_require__missing__each_is_named(void **state)
{
    struct config *config = load_text("database: postgres://x/y\n");
    struct config_errors errors;

    (void)state;
    assert_true(config_require(config, CONFIG_NEEDS_DATABASE, &errors));
    assert_false(config_require(config,
                                CONFIG_NEEDS_DATABASE | CONFIG_NEEDS_LISTEN |
                                    CONFIG_NEEDS_STATE_DIR |
                                    CONFIG_NEEDS_ADMIN_DATABASE,
                                &errors));
    assert_int_equal(errors.count, 3);
    assert_true(config_require(config, 0, &errors));
    config_unref(config);
}

static void
config_ref__two_holders__lives_until_both_are_done(void **state)
{
    struct config *config = load_text("events: [ { type: a } ]\n");
    struct config *held = config_ref(config);

    (void)state;
    config_unref(config);
    assert_non_null(catalog_event_type(held->catalog, METER_STR("a")));
    config_unref(held);
    config_unref(NULL);
}

static void
config_version__layout__does_not_matter(void **state)
{
    struct config *flow =
        load_text("node: a\nevents: [{type: x, delta: false}]\n");
    struct config *block =
        load_text("# other\nevents:\n  - type: 'x'\nnode: b\n");
    struct config *other = load_text("events: [ { type: x, delta: true } ]\n");

    (void)state;
    assert_true(flow->version == block->version);
    assert_true(flow->version != other->version);
    config_unref(flow);
    config_unref(block);
    config_unref(other);
}

static void
reload_needs_restart__only_for_what_a_reload_cannot_apply(void **state)
{
    struct config *running = load_text("node: a\nlog: { level: info }\n");
    struct config *reload = load_text("node: a\nlog: { level: debug }\n"
                                      "events: [ { type: x } ]\n");
    struct config *restart = load_text("node: b\n");

    (void)state;
    assert_null(reload_needs_restart(running, reload));
    assert_string_equal(reload_needs_restart(running, restart), "node");
    config_unref(running);
    config_unref(reload);
    config_unref(restart);
}

static void
config_retention__levels_not_given__follow_the_given_ones(void **state)
{
    char path[PATH_SIZE_MAX];
    struct config *config;

    (void)state;
    path_of(path, "good", "retention_follows.yaml");
    config = load_path(path);
    assert_int_equal(config->retention.event_days, 30);
    assert_int_equal(config->retention.event_index_days, 30);
    assert_int_equal(config->retention.series_5s_days, 3);
    assert_int_equal(config->retention.series_1m_days, 3);
    assert_int_equal(config->retention.series_1h_days, 400);
    assert_int_equal(config->retention.series_1d_days, 500);
    assert_int_equal(config->retention.series_7d_days, CONFIG_NONE);
    config_unref(config);

    config = load_text("retention: { series5s: 500d, series7d: 600d }\n");
    assert_int_equal(config->retention.series_1m_days, 500);
    assert_int_equal(config->retention.series_1h_days, 500);
    assert_int_equal(config->retention.series_1d_days, 600);
    assert_int_equal(config->retention.series_7d_days, 600);
    config_unref(config);
}


struct notes {
    char text[4096];
};

static void
note_keep(void *asker, const char *text)
{
    struct notes *notes = asker;
    size_t used = strlen(notes->text);

    snprintf(notes->text + used, sizeof(notes->text) - used, "%s\n", text);
}

static void
config_notes__type_that_only_rules_name__one_line(void **state)
{
    struct notes notes = {""};
    struct config *config =
        load_text("events: [ { type: x, indexed: [i] } ]\n"
                  "counters:\n"
                  "  - { counterName: c, dimensions: [], rules:\n"
                  "      [ { on: y, op: increment } ] }\n"
                  "retention: { event: 1d }\n"
                  "series: [ { name: s, kind: counter, on: [x] } ]\n");

    (void)state;
    config_notes(config, note_keep, &notes);
    assert_string_equal(
        notes.text,
        "event type \"y\": accepted because rules name it; not declared "
        "under events\n");
    config_unref(config);
}

static void
config_notes__what_is_in_force__not_mentioned(void **state)
{
    struct notes notes = {""};
    struct config *config =
        load_text("events: [ { type: x } ]\n"
                  "counters:\n"
                  "  - { counterName: c, dimensions: [], audit: true, rules:\n"
                  "      [ { on: x, op: decrement } ] }\n"
                  "  - { counterName: b, dimensions: [], transitions:\n"
                  "      { entity: e }, rules: [ { on: x, op: increment } ] }\n"
                  "usage: { provisioned: x }\n"
                  "meters: [ { metric: m, on: [x], aggregation: sum,\n"
                  "            period: day } ]\n"
                  "checkpoint: { path: /c }\n");

    (void)state;
    config_notes(config, note_keep, &notes);
    assert_string_equal(notes.text, "");
    config_unref(config);
}

static void
config_notes__transitions_without_increment__told(void **state)
{
    struct notes notes = {""};
    struct config *config = load_text(
        "events: [ { type: x } ]\n"
        "counters:\n"
        "  - { counterName: b, dimensions: [], transitions:\n"
        "      { entity: e }, rules: [ { on: x, op: decrement } ] }\n");

    (void)state;
    config_notes(config, note_keep, &notes);
    assert_string_equal(notes.text,
                        "counter \"b\": transitions without an increment "
                        "count nothing\n");
    config_unref(config);
}

static void
config_errors_add__control_bytes_and_long_text__made_safe(void **state)
{
    struct config_errors errors;
    char path[400];
    char text[400];

    (void)state;
    config_errors_clear(&errors);
    memset(path, 'p', sizeof(path));
    memcpy(path + sizeof(path) - 6, "/tail", 6);
    /* Two-byte characters behind one byte: the cut falls inside one. */
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        text[i] = i % 2 == 0 ? '\xc3' : '\xa4';
    }
    text[sizeof(text) - 1] = '\0';
    config_errors_add(&errors, path, 1, 2, "%s", text);
    config_errors_add(&errors, "f", 1, 2, "a\x1b[31m\nb");
    assert_int_equal(strlen(errors.items[0].file), CONFIG_ERROR_FILE_SIZE_MAX);
    assert_non_null(strstr(errors.items[0].file, "/tail"));
    assert_int_equal(strlen(errors.items[0].text), 254);
    assert_string_equal(errors.items[1].text, "a?[31m?b");
}

static void
config_errors_print__with_and_without_place__one_line_each(void **state)
{
    struct config_errors errors;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    config_errors_clear(&errors);
    config_errors_add(&errors, "a.yaml", 3, 7, "wrong");
    config_errors_add(&errors, "b.yaml", 0, 0, "cannot open the file");
    config_errors_add(&errors, "", 0, 0, "\"listen\" is missing");
    errors.suppressed = 2;
    config_errors_print(&errors, out);
    fclose(out);
    assert_string_equal(text, "a.yaml:3:7: wrong\n"
                              "b.yaml: cannot open the file\n"
                              "\"listen\" is missing\n"
                              "and 2 more\n");
    free(text);
}

static bool
load_result(const char *path, struct config_errors *errors)
{
    const char *const paths[] = {path};
    struct config *config;
    bool ok = config_load(paths, 1, &config, errors);

    config_unref(config);
    return ok;
}

static void
config_load__missing_file__says_so(void **state)
{
    struct config_errors errors;

    (void)state;
    assert_false(load_result("/nonexistent/x.yaml", &errors));
    assert_int_equal(errors.items[0].line, 0);
    assert_non_null(strstr(errors.items[0].text, "cannot open"));
}

static void
config_load__directory__refused(void **state)
{
    struct config_errors errors;

    (void)state;
    assert_false(load_result("/", &errors));
    assert_string_equal(errors.items[0].text, "not a regular file");
}

static bool
load_bytes(size_t size, struct config_errors *errors)
{
    char path[] = "/tmp/test_config.XXXXXX";
    int fd = mkstemp(path);
    char *text = malloc(size);
    bool ok;

    assert_true(fd >= 0);
    memset(text, '#', size);
    memcpy(text, "node: b\n", 8);
    assert_int_equal(write(fd, text, size), size);
    close(fd);
    ok = load_result(path, errors);
    unlink(path);
    free(text);
    return ok;
}

static void
config_load__one_mebibyte__accepted_one_more_byte_refused(void **state)
{
    struct config_errors errors;

    (void)state;
    assert_true(load_bytes(YAML_TREE_FILE_SIZE_MAX, &errors));
    assert_false(load_bytes(YAML_TREE_FILE_SIZE_MAX + 1, &errors));
    assert_non_null(strstr(errors.items[0].text, "larger than"));
}

static void
config_errors_add__any_order__kept_by_file_and_place(void **state)
{
    static const char *const texts[] = {"1", "2", "3", "4", "5", "6", "7"};
    struct config_errors errors;

    (void)state;
    config_errors_clear(&errors);
    config_errors_add(&errors, "b", 7, 1, "3");
    config_errors_add(&errors, "a", 2, 9, "5");
    config_errors_add(&errors, "b", 2, 5, "1");
    config_errors_add(&errors, "a", 3, 1, "6");
    config_errors_add(&errors, "", 0, 0, "7");
    config_errors_add(&errors, "b", 7, 1, "4");
    config_errors_add(&errors, "b", 2, 6, "2");
    assert_int_equal(errors.count, 7);
    for (size_t i = 0; i < errors.count; i++) {
        assert_string_equal(errors.items[i].text, texts[i]);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            config_load__every_bad_file__fails_at_the_expected_place),
        cmocka_unit_test(config_load__every_good_file__its_dump_means_the_same),
        cmocka_unit_test(config_load__full_example__everything_is_there),
        cmocka_unit_test(config_load__later_file__replaces_whole_keys),
        cmocka_unit_test(
            config_load__error_in_the_second_file__names_that_file),
        cmocka_unit_test(config_load__no_file_or_too_many__refused),
        cmocka_unit_test(
            config_load__many_mistakes__all_reported_in_order_up_to_20),
        cmocka_unit_test(config_load__environment__stands_for_database),
        cmocka_unit_test(config_load__no_node__host_name),
        cmocka_unit_test(config_require__missing__each_is_named),
        cmocka_unit_test(config_ref__two_holders__lives_until_both_are_done),
        cmocka_unit_test(config_version__layout__does_not_matter),
        cmocka_unit_test(
            reload_needs_restart__only_for_what_a_reload_cannot_apply),
        cmocka_unit_test(
            config_retention__levels_not_given__follow_the_given_ones),
        cmocka_unit_test(config_notes__type_that_only_rules_name__one_line),
        cmocka_unit_test(config_notes__what_is_in_force__not_mentioned),
        cmocka_unit_test(config_notes__transitions_without_increment__told),
        cmocka_unit_test(config_load__missing_file__says_so),
        cmocka_unit_test(config_load__directory__refused),
        cmocka_unit_test(
            config_load__one_mebibyte__accepted_one_more_byte_refused),
        cmocka_unit_test(config_errors_add__any_order__kept_by_file_and_place),
        cmocka_unit_test(
            config_errors_add__control_bytes_and_long_text__made_safe),
        cmocka_unit_test(
            config_errors_print__with_and_without_place__one_line_each),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    unsetenv("METERD_DATABASE");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
