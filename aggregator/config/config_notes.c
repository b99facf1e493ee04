/*
 * config_notes.c - what an operator should know of a valid configuration.
 */

#include "config/config.h"

#include <stdarg.h>

#define NOTE_SIZE_MAX 255

struct note_place {
    config_note_cb note;
    void *asker;
};

__attribute__((format(printf, 2, 3))) static void
note_put(const struct note_place *place, const char *format, ...)
{
    char text[NOTE_SIZE_MAX + 1];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    place->note(place->asker, text);
}

static bool
has_increment(const struct counter *counter)
{
    for (size_t i = 0; i < counter->rule_count; i++) {
        if (counter->rules[i].delta > 0) {
            return true;
        }
    }
    return false;
}

/* Only what was counted once can leave again. */
static void
note_counters(const struct catalog *catalog, const struct note_place *place)
{
    for (size_t i = 0; i < catalog->counter_count; i++) {
        const struct counter *counter = &catalog->counters[i];

        if (counter->entity != NULL && !has_increment(counter)) {
            note_put(place,
                     "counter \"%s\": transitions without an increment "
                     "count nothing",
                     counter->name.data);
        }
    }
}

static void
note_undeclared(const struct catalog *catalog, const struct note_place *place)
{
    for (size_t i = 0; i < catalog->event_type_count; i++) {
        const struct event_type *type = &catalog->event_types[i];

        if (!type->declared && catalog->any_type == NULL) {
            note_put(place,
                     "event type \"%s\": accepted because rules name it; "
                     "not declared under events",
                     type->name.data);
        }
    }
}

void
config_notes(const struct config *config, config_note_cb note, void *asker)
{
    struct note_place place = {note, asker};

    note_counters(config->catalog, &place);
    note_undeclared(config->catalog, &place);
}
