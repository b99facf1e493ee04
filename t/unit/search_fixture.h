/*
 * search_fixture.h - rules with an indexed type, and questions read from
 * JSON, for test_search.c and test_search_drive.c.
 */

#ifndef UNIT_SEARCH_FIXTURE_H
#define UNIT_SEARCH_FIXTURE_H

#include "meter_cmocka.h"

#include "config/config.h"
#include "query/search.c"

#define RULES                                                  \
    "events:\n"                                                \
    "  - { type: call, indexed: [route, status, who.name] }\n" \
    "  - { type: bare }\n"

struct place {
    struct arena arena;
    struct config *config;
    struct search search;
    const char *error;
};

static const struct json_limits limits = {
    .depth_max = 16,
    .key_count_max = 5000,
    .name_size_max = 1000,
    .string_size_max = 65536,
};

static int
setup(void **state)
{
    struct place *place = calloc(1, sizeof(*place));
    struct config_errors errors;

    arena_init(&place->arena, 65536, 256u << 20);
    if (!config_load_text("rules", str_of(RULES), &place->config, &errors)) {
        print_message("# %s\n", errors.items[0].text);
        return -1;
    }
    *state = place;
    return 0;
}

static int
teardown(void **state)
{
    struct place *place = *state;

    config_unref(place->config);
    arena_fini(&place->arena);
    free(place);
    return 0;
}

static struct json_value *
read_json(struct place *place, const char *text)
{
    struct json_value *value = arena_alloc(&place->arena, sizeof(*value));
    struct json_error error;
    size_t used;

    assert_true(
        json_read(str_of(text), &limits, &place->arena, value, &used, &error));
    return value;
}

/* The body's members; false: place->error. */
static bool
ask(struct place *place, const char *body)
{
    const struct json_value *object = read_json(place, body);
    const struct json_value *values[SEARCH_MEMBERS] = {NULL};

    for (int i = 0; i < SEARCH_MEMBERS; i++) {
        const char *name = search_member_names[i];

        values[i] = json_member_find(object, str_of(name));
    }
    return search_read(place->config->catalog, values, &place->arena,
                       &place->search, &place->error);
}

static void
assert_asked(struct place *place, const char *body)
{
    if (!ask(place, body)) {
        fail_msg("%s: %s", body, place->error);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
