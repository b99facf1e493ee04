/*
 * Any bytes to the JSON reader. What it takes has a canonical text that it
 * takes again and that is canonical already; json_skip finds the same end;
 * a prefix of an array or object is never taken.
 */

#include "fuzz_check.h"

#include "base/json_reader.h"
#include "meter_event.h"

static const struct json_limits limits = {
    .depth_max = 16,
    .key_count_max = 64,
    .name_size_max = 64,
    .string_size_max = 256,
};

/* Everything the reader promises of a tree. */
static void
check_tree(const struct json_value *value, size_t depth)
{
    switch (value->kind) {
    case JSON_STRING:
        FUZZ_CHECK(value->text.size <= limits.string_size_max);
        FUZZ_CHECK(meter_utf8_valid(value->text));
        break;
    case JSON_ARRAY:
        FUZZ_CHECK(depth < limits.depth_max);
        for (uint32_t i = 0; i < value->count; i++) {
            check_tree(&value->items[i], depth + 1);
        }
        break;
    case JSON_OBJECT:
        FUZZ_CHECK(depth < limits.depth_max);
        FUZZ_CHECK(value->count <= limits.key_count_max);
        for (uint32_t i = 0; i < value->count; i++) {
            struct meter_str name = value->members[i].name;

            FUZZ_CHECK(name.size <= limits.name_size_max);
            FUZZ_CHECK(meter_utf8_valid(name));
            FUZZ_CHECK(i == 0 ||
                       meter_str_compare(value->members[i - 1].name, name) < 0);
            FUZZ_CHECK(json_member_find(value, name) ==
                       &value->members[i].value);
            check_tree(&value->members[i].value, depth + 1);
        }
        break;
    default: break;
    }
}

static void
check_canonical(const struct json_value *value, struct arena *arena)
{
    struct meter_str first, second;
    struct json_error error;
    struct json_value again;
    size_t used;

    FUZZ_CHECK(json_canonical(value, arena, &first));
    FUZZ_CHECK(json_read(first, &limits, arena, &again, &used, &error));
    FUZZ_CHECK(used == first.size);
    FUZZ_CHECK(again.kind == value->kind && again.count == value->count);
    FUZZ_CHECK(json_canonical(&again, arena, &second));
    FUZZ_CHECK(meter_str_equal(first, second));
}

static void
check_taken(struct meter_str text, size_t used, const struct json_value *value,
            struct arena *arena)
{
    struct json_error error;
    struct json_value again;
    size_t used_again;

    FUZZ_CHECK(used > 0 && used <= text.size);
    FUZZ_CHECK(json_skip(text) == used);
    check_tree(value, 0);
    check_canonical(value, arena);
    FUZZ_CHECK(json_read((struct meter_str){text.data, used}, &limits, arena,
                         &again, &used_again, &error));
    FUZZ_CHECK(used_again == used);
    if (value->kind == JSON_OBJECT || value->kind == JSON_ARRAY ||
        value->kind == JSON_STRING) {
        struct meter_str cut = {text.data, used - 1};

        FUZZ_CHECK(
            !json_read(cut, &limits, arena, &again, &used_again, &error));
        FUZZ_CHECK(json_skip(cut) == 0);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct meter_str text = {(const char *)data, size};
    struct json_error error = {0};
    struct json_value value;
    struct arena arena;
    size_t used;

    arena_init(&arena, 4096, 64 << 20);
    if (json_read(text, &limits, &arena, &value, &used, &error)) {
        check_taken(text, used, &value, &arena);
    } else {
        FUZZ_CHECK(error.text != NULL && error.offset <= size);
        FUZZ_CHECK(error.fault != JSON_FAULT_MEMORY);
    }
    FUZZ_CHECK(json_skip(text) <= size);
    arena_fini(&arena);
    return 0;
}
