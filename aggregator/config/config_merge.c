/*
 * config_merge.c - several files as one, see config_merge.h.
 *
 * A later file replaces a key as a whole, so what stands in a replaced
 * section is never read. Retention levels that were not given follow the
 * given ones: a coarser level is kept at least as long as a finer one.
 */

#include "config/config_merge.h"

#include "config/options.h"
#include "config/scalar.h"

#define SUGGESTIONS_MAX 64

static const char *const rule_sections[] = {"events", "counters", "usage",
                                            "meters", "series",   NULL};

static bool
top_level_is_known(struct meter_str key)
{
    return options_find(METER_STR(""), key) != NULL ||
           options_is_section(key) || scalar_word(key, rule_sections) >= 0;
}

/* Every name that may stand at one level, for suggestions. */
static void
names_of_level(struct meter_str section, char names[][32],
               const char *words[SUGGESTIONS_MAX + 1])
{
    size_t row_count;
    const struct option_row *rows = options_table(&row_count);
    size_t count = 0;

    for (size_t i = 0; i < row_count && count < SUGGESTIONS_MAX; i++) {
        const char *dot = strchr(rows[i].name, '.');
        size_t size =
            dot != NULL ? (size_t)(dot - rows[i].name) : strlen(rows[i].name);
        const char *word = rows[i].name;

        if (section.size > 0) {
            if (dot == NULL || size != section.size ||
                memcmp(rows[i].name, section.data, size) != 0) {
                continue;
            }
            word = dot + 1;
            size = strlen(word);
        }
        snprintf(names[count], sizeof(names[count]), "%.*s", (int)size, word);
        words[count] = names[count];
        count++;
    }
    for (size_t i = 0; section.size == 0 && rule_sections[i] != NULL &&
                       count < SUGGESTIONS_MAX;
         i++) {
        words[count++] = rule_sections[i];
    }
    words[count] = NULL;
}

static void
unknown_key(const struct yaml_node *key, struct meter_str section,
            struct config_errors *errors)
{
    char names[SUGGESTIONS_MAX][32];
    const char *words[SUGGESTIONS_MAX + 1];
    char what[64] = "the configuration";

    names_of_level(section, names, words);
    if (section.size > 0) {
        snprintf(what, sizeof(what), "\"%.*s\"", (int)section.size,
                 section.data);
    }
    rule_unknown_key(errors, key, what, words);
}

void
merge_add(struct merge *merge, const struct yaml_node *root,
          struct config_errors *errors)
{
    for (const struct yaml_node *node = root->first; node != NULL;
         node = node->next) {
        size_t at = 0;

        if (!top_level_is_known(node->key->text)) {
            unknown_key(node->key, METER_STR(""), errors);
            continue;
        }
        while (at < merge->count &&
               !meter_str_equal(merge->nodes[at]->key->text, node->key->text)) {
            at++;
        }
        CHECK(at < MERGE_KEYS_MAX);
        merge->nodes[at] = node;
        merge->count += at == merge->count;
    }
}

static const struct yaml_node *
merge_find(const struct merge *merge, struct meter_str key)
{
    for (size_t i = 0; i < merge->count; i++) {
        if (meter_str_equal(merge->nodes[i]->key->text, key)) {
            return merge->nodes[i];
        }
    }
    return NULL;
}

void
merge_sections(const struct merge *merge, struct catalog_sections *sections)
{
    sections->events = merge_find(merge, METER_STR("events"));
    sections->counters = merge_find(merge, METER_STR("counters"));
    sections->usage = merge_find(merge, METER_STR("usage"));
    sections->meters = merge_find(merge, METER_STR("meters"));
    sections->series = merge_find(merge, METER_STR("series"));
}


static void
set_section(const struct yaml_node *section, struct config *config,
            struct config_errors *errors)
{
    struct meter_str name = section->key->text;

    if (section->kind != YAML_MAP) {
        yaml_node_error(errors, section, "\"%s\" must be a map, not %s",
                        name.data, yaml_node_kind_name(section));
        return;
    }
    for (const struct yaml_node *node = section->first; node != NULL;
         node = node->next) {
        const struct option_row *row = options_find(name, node->key->text);

        if (row == NULL) {
            unknown_key(node->key, name, errors);
            continue;
        }
        /* An error is in the list; the others are still worth reading. */
        (void)!options_set(row, node, config, errors);
    }
}

/* Days compare with forever as the longest. */
static int64_t
days_rank(int64_t days)
{
    return days == CONFIG_NONE ? INT64_MAX : days;
}

struct retention_level {
    const char *key;
    int64_t *days;
    const struct yaml_node *node; /* NULL: the default */
};

/* Of two given levels next to each other, the coarser is not shorter. */
static void
retention_check(const struct retention_level *levels, size_t count,
                struct config_errors *errors)
{
    const struct retention_level *finer = NULL;

    for (size_t i = 0; i < count; i++) {
        if (levels[i].node == NULL) {
            continue;
        }
        if (finer != NULL &&
            days_rank(*levels[i].days) < days_rank(*finer->days)) {
            yaml_node_error(errors, levels[i].node,
                            "\"retention.%s\" must not be shorter than "
                            "\"retention.%s\"",
                            levels[i].key, finer->key);
        }
        finer = &levels[i];
    }
}

/* Defaults move out of the way of given values, never the reverse. */
static void
retention_follow(struct retention_level *levels, size_t count)
{
    int64_t least = 0;
    int64_t most = INT64_MAX;

    for (size_t i = 0; i < count; i++) {
        if (levels[i].node != NULL) {
            least = days_rank(*levels[i].days);
        } else if (days_rank(*levels[i].days) < least) {
            *levels[i].days = least == INT64_MAX ? CONFIG_NONE : least;
        }
    }
    for (size_t i = count; i-- > 0;) {
        if (levels[i].node != NULL) {
            most = days_rank(*levels[i].days);
        } else if (days_rank(*levels[i].days) > most) {
            *levels[i].days = most;
        }
    }
}

/* An index entry is of no use without its event. */
static void
set_index_retention(const struct yaml_node *section,
                    struct config_retention *retention,
                    struct config_errors *errors)
{
    const struct yaml_node *given =
        yaml_node_find(section, METER_STR("eventIndex"));

    if (days_rank(retention->event_index_days) <=
        days_rank(retention->event_days)) {
        return;
    }
    if (given != NULL) {
        yaml_node_error(errors, given,
                        "\"retention.eventIndex\" must not be longer than "
                        "\"retention.event\"");
        return;
    }
    retention->event_index_days = retention->event_days;
}

static void
set_retention(const struct yaml_node *section, struct config *config,
              struct config_errors *errors)
{
    struct config_retention *retention = &config->retention;
    struct retention_level levels[] = {
        {"series5s", &retention->series_5s_days, NULL},
        {"series1m", &retention->series_1m_days, NULL},
        {"series1h", &retention->series_1h_days, NULL},
        {"series1d", &retention->series_1d_days, NULL},
        {"series7d", &retention->series_7d_days, NULL},
    };
    size_t count = sizeof(levels) / sizeof(levels[0]);

    for (size_t i = 0; i < count; i++) {
        struct meter_str key = {levels[i].key, strlen(levels[i].key)};

        levels[i].node = yaml_node_find(section, key);
    }
    retention_check(levels, count, errors);
    retention_follow(levels, count);
    set_index_retention(section, retention, errors);
}

void
merge_options(const struct merge *merge, struct config *config,
              struct config_errors *errors)
{
    const struct yaml_node *checkpoint =
        merge_find(merge, METER_STR("checkpoint"));
    const struct yaml_node *retention =
        merge_find(merge, METER_STR("retention"));

    for (size_t i = 0; i < merge->count; i++) {
        const struct yaml_node *node = merge->nodes[i];
        const struct option_row *row =
            options_find(METER_STR(""), node->key->text);

        if (row != NULL) {
            (void)!options_set(row, node, config, errors);
        } else if (options_is_section(node->key->text)) {
            set_section(node, config, errors);
        }
    }
    if (checkpoint != NULL && checkpoint->kind == YAML_MAP &&
        yaml_node_find(checkpoint, METER_STR("path")) == NULL) {
        yaml_node_error(errors, checkpoint,
                        "\"checkpoint\" needs the key \"path\"");
    }
    if (retention != NULL && retention->kind == YAML_MAP) {
        config->retention.given = true;
        set_retention(retention, config, errors);
    }
}
