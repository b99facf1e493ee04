/*
 * fuzz_yaml.c - any bytes as a configuration file.
 *
 * Oracles: a file that loads gives the same rules when it is loaded again;
 * the dump of its rules loads and has the same dump and version; a file
 * that does not load says why, at a place inside the file.
 */

#include <stdlib.h>

#include "config/config.h"

#define DUMP_SIZE_MAX (8u << 20)
#define INPUT_MAX     (64u << 10) /* the dump then fits into one file */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned
count_lines(const uint8_t *data, size_t size)
{
    unsigned lines = 1;

    /* Every break that YAML knows, counted generously. */
    for (size_t i = 0; i < size; i++) {
        lines += data[i] == '\n' || data[i] == '\r' || data[i] == 0x85 ||
                 data[i] == 0xa8 || data[i] == 0xa9;
    }
    return lines;
}

static void
check_errors(const struct config_errors *errors, const uint8_t *data,
             size_t size)
{
    unsigned lines = count_lines(data, size);

    CHECK(errors->count > 0);
    for (size_t i = 0; i < errors->count; i++) {
        const struct config_error *error = &errors->items[i];

        CHECK(error->text[0] != '\0');
        CHECK(error->line <= lines + 1);
        CHECK(error->column <= size + 2);
        for (const char *at = error->text; *at != '\0'; at++) {
            CHECK((unsigned char)*at >= 0x20);
        }
    }
}

static void
dump(const struct config *config, struct buf *out)
{
    buf_init(out, DUMP_SIZE_MAX);
    catalog_dump(config->catalog, out);
    CHECK(!out->failed);
}

static void
check_same(struct meter_str text, const struct buf *expected, uint64_t version)
{
    static struct config_errors errors;
    struct config *config;
    struct buf text_dump;

    if (!config_load_text("again", text, &config, &errors)) {
        config_errors_print(&errors, stderr);
        CHECK(!"a dump or a second load fails");
    }
    dump(config, &text_dump);
    CHECK(meter_str_equal(buf_str(&text_dump), buf_str(expected)));
    CHECK(config->version == version);
    buf_fini(&text_dump);
    config_unref(config);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct config_errors errors;
    struct meter_str text = {(const char *)data, size};
    struct config *config;
    struct buf first;

    if (size > INPUT_MAX) {
        return 0;
    }
    if (!config_load_text("input", text, &config, &errors)) {
        CHECK(config == NULL);
        check_errors(&errors, data, size);
        return 0;
    }
    dump(config, &first);
    check_same(text, &first, config->version);
    if (first.size <= (1u << 20)) {
        check_same(buf_str(&first), &first, config->version);
    }
    buf_fini(&first);
    config_unref(config);
    return 0;
}
