/*
 * test_options.c - the table of options and what follows from its rows.
 */

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "config/config.c"
#include "config/reload.c"
#include "meter_time.h"

static struct config *
load(const char *text)
{
    struct config_errors errors;
    struct config *config;

    if (!config_load_text("t.yaml", (struct meter_str){text, strlen(text)},
                          &config, &errors)) {
        config_errors_print(&errors, stderr);
        fail();
    }
    return config;
}

static const struct option_row *
row(const char *section, const char *key)
{
    const struct option_row *found =
        option_find((struct meter_str){section, strlen(section)},
                    (struct meter_str){key, strlen(key)});

    assert_non_null(found);
    return found;
}

static void
options_table__every_row__is_complete(void **state)
{
    size_t count;
    const struct option_row *rows = options_table(&count);

    (void)state;
    assert_true(count >= 25);
    for (size_t i = 0; i < count; i++) {
        size_t help_size = strlen(rows[i].help);

        assert_true(help_size > 10);
        assert_int_equal(rows[i].help[help_size - 1], '.');
        assert_true(isupper((unsigned char)rows[i].help[0]) ||
                    rows[i].help[0] == '`');
        assert_true(rows[i].offset < sizeof(struct config));
        assert_true(rows[i].min <= rows[i].max);
        assert_true(rows[i].type != OPTION_WORD || rows[i].words != NULL);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(rows[i].name, rows[j].name);
            assert_true(rows[i].offset != rows[j].offset);
        }
    }
}

/* Values that must be given have no default; all others do, in range. */
static void
config_set_defaults__every_row__is_within_its_own_range(void **state)
{
    size_t count;
    const struct option_row *rows = options_table(&count);
    struct config config = {.references = 1};

    (void)state;
    arena_init(&config.arena, 4096, 1u << 20);
    config_set_defaults(&config);
    for (size_t i = 0; i < count; i++) {
        bool number =
            rows[i].type == OPTION_INTEGER || rows[i].type == OPTION_DURATION ||
            rows[i].type == OPTION_SKEW || rows[i].type == OPTION_DAYS;

        assert_true(!number || rows[i].fallback != NULL);
    }
    assert_null(config.database);
    assert_int_equal(config.limits.queue_events, 500000);
    assert_int_equal(config.limits.batch_events, 5000);
    assert_int_equal(config.limits.read_connections, 2);
    assert_int_equal(config.limits.counter_keys, 1000000);
    assert_int_equal(config.limits.token_cache_ttl_us, 10 * METER_TIME_SECOND);
    assert_int_equal(config.idempotency.future_skew_us, METER_TIME_HOUR);
    assert_int_equal(config.idempotency.past_skew_us, CONFIG_NONE);
    assert_false(config.idempotency.across_tenants);
    assert_int_equal(config.default_lateness_us, 48 * METER_TIME_HOUR);
    assert_int_equal(config.log_level, LOG_INFO);
    assert_null(config.log_path);
    assert_int_equal(config.retention.event_days, 730);
    assert_int_equal(config.retention.event_index_days, 90);
    assert_int_equal(config.retention.duplicate_audit_days, 400);
    assert_int_equal(config.retention.series_5s_days, 7);
    assert_int_equal(config.retention.series_1m_days, 30);
    assert_int_equal(config.retention.series_1h_days, 400);
    assert_int_equal(config.retention.series_1d_days, CONFIG_NONE);
    assert_int_equal(config.retention.series_7d_days, CONFIG_NONE);
    assert_null(config.checkpoint.path);
    assert_int_equal(config.limits.peers.count, 0);
    arena_fini(&config.arena);
}

static void
option_set__every_type__reaches_its_field(void **state)
{
    struct config *config = load(
        "database: postgres://u:p@h/d\n"
        "adminDatabase: host=h dbname=d\n"
        "listen: unix:/run/m.sock\n"
        "node: gw-7\n"
        "stateDir: /s\n"
        "outbox: /o\n"
        "idempotency: { acrossTenants: true, futureSkew: 5m, pastSkew: 2d }\n"
        "defaults: { lateness: 72h }\n"
        "log: { level: debug, path: /l }\n"
        "limits: { queueEvents: 10, batchEvents: 9, readConnections: 8,\n"
        "          counterKeys: 5, seriesCells: 4, operationQueue: 3,\n"
        "          tokenCacheTtl: 7s,\n"
        "          statementTimeout: 6s, peers: [a, b] }\n"
        "checkpoint: { every: 1h, path: /c, keep: 3 }\n"
        "retention: { event: 9d, duplicateAudit: forever }\n");

    (void)state;
    assert_string_equal(config->database, "postgres://u:p@h/d");
    assert_string_equal(config->admin_database, "host=h dbname=d");
    assert_string_equal(config->listen, "/run/m.sock");
    assert_string_equal(config->node, "gw-7");
    assert_string_equal(config->state_dir, "/s");
    assert_string_equal(config->outbox, "/o");
    assert_true(config->idempotency.across_tenants);
    assert_int_equal(config->idempotency.future_skew_us, 5 * METER_TIME_MINUTE);
    assert_int_equal(config->idempotency.past_skew_us, 2 * METER_TIME_DAY);
    assert_int_equal(config->default_lateness_us, 72 * METER_TIME_HOUR);
    assert_int_equal(config->log_level, LOG_DEBUG);
    assert_string_equal(config->log_path, "/l");
    assert_int_equal(config->limits.queue_events, 10);
    assert_int_equal(config->limits.batch_events, 9);
    assert_int_equal(config->limits.read_connections, 8);
    assert_int_equal(config->limits.counter_keys, 5);
    assert_int_equal(config->limits.series_cells, 4);
    assert_int_equal(config->limits.operation_queue, 3);
    assert_int_equal(config->limits.token_cache_ttl_us, 7 * METER_TIME_SECOND);
    assert_int_equal(config->limits.statement_timeout_us,
                     6 * METER_TIME_SECOND);
    assert_int_equal(config->limits.peers.count, 2);
    assert_string_equal(config->limits.peers.names[1], "b");
    assert_int_equal(config->checkpoint.every_us, METER_TIME_HOUR);
    assert_string_equal(config->checkpoint.path, "/c");
    assert_int_equal(config->checkpoint.keep, 3);
    assert_int_equal(config->retention.event_days, 9);
    assert_int_equal(config->retention.duplicate_audit_days, CONFIG_NONE);
    config_unref(config);
}

static void
options_format__secret__is_never_shown(void **state)
{
    struct config *config = load("database: postgres://u:hunter2@h/d\n");
    size_t count;
    const struct option_row *rows = options_table(&count);
    struct buf text;

    (void)state;
    buf_init(&text, 65536);
    for (size_t i = 0; i < count; i++) {
        options_format(&rows[i], config, &text);
        buf_put_byte(&text, '\n');
    }
    buf_put_byte(&text, '\0');
    assert_false(text.failed);
    assert_null(strstr(text.data, "hunter2"));
    assert_non_null(strstr(text.data, "(set)"));
    assert_non_null(strstr(text.data, "forever"));
    assert_non_null(strstr(text.data, "globalEventId"));
    buf_fini(&text);
    config_unref(config);
}

static void
option_set__bad_secret__is_not_in_the_error(void **state)
{
    struct config_errors errors;
    struct config *config;

    (void)state;
    assert_false(config_load_text(
        "t.yaml", METER_STR("database: mysql://u:hunter2@h/d\n"), &config,
        &errors));
    assert_int_equal(errors.count, 1);
    assert_null(strstr(errors.items[0].text, "hunter2"));
}

static void
option_equal__each_kind__sees_a_difference(void **state)
{
    struct config *a = load("node: a\nlimits: { peers: [x] }\n"
                            "idempotency: { acrossTenants: true }\n");
    struct config *b = load("node: b\nlimits: { peers: [y], queueEvents: 1 }\n"
                            "listen: unix:/x\n");

    (void)state;
    assert_false(option_equal(row("", "node"), a, b));
    assert_false(option_equal(row("", "listen"), a, b));
    assert_false(option_equal(row("limits", "peers"), a, b));
    assert_false(option_equal(row("limits", "queueEvents"), a, b));
    assert_false(option_equal(row("idempotency", "acrossTenants"), a, b));
    assert_true(option_equal(row("", "database"), a, b));
    assert_true(option_equal(row("limits", "peers"), a, a));
    assert_true(option_equal(row("", "node"), b, b));
    config_unref(a);
    config_unref(b);
}

static void
options_print__markdown__has_a_heading_per_option(void **state)
{
    size_t count;
    const struct option_row *rows = options_table(&count);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    options_print(true, out);
    options_print(false, out);
    fclose(out);
    for (size_t i = 0; i < count; i++) {
        char heading[64];

        snprintf(heading, sizeof(heading), "\n### `%s`\n", rows[i].name);
        assert_non_null(strstr(text, heading));
        snprintf(heading, sizeof(heading), "\n%s\n    type: ", rows[i].name);
        assert_non_null(strstr(text, heading));
    }
    free(text);
}

/* docs/options.md lies two folders above this file. */
static FILE *
page_open(void)
{
    const char *slash = strrchr(__FILE__, '/');
    int here = slash == NULL ? 0 : (int)(slash - __FILE__ + 1);
    char path[1024];

    snprintf(path, sizeof(path), "%.*s../../docs/options.md", here, __FILE__);
    return fopen(path, "r");
}

static void
options_print__markdown__is_the_page_in_docs(void **state)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    FILE *page = page_open();
    char *held;

    (void)state;
    assert_non_null(page);
    options_print(true, out);
    fclose(out);
    held = calloc(1, size + 2);
    assert_int_equal(fread(held, 1, size + 1, page), size);
    assert_string_equal(held, text);
    fclose(page);
    free(held);
    free(text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_table__every_row__is_complete),
        cmocka_unit_test(
            config_set_defaults__every_row__is_within_its_own_range),
        cmocka_unit_test(option_set__every_type__reaches_its_field),
        cmocka_unit_test(options_format__secret__is_never_shown),
        cmocka_unit_test(option_set__bad_secret__is_not_in_the_error),
        cmocka_unit_test(option_equal__each_kind__sees_a_difference),
        cmocka_unit_test(options_print__markdown__has_a_heading_per_option),
        cmocka_unit_test(options_print__markdown__is_the_page_in_docs),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
