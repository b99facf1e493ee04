/*
 * config.h - one loaded configuration: options and compiled rules.
 *
 *   files -> yaml_tree -> options, catalog -> [config] -> everything else
 *
 * A struct config never changes after config_load. A reload loads a second
 * one and swaps the pointer; whoever started with the old one keeps it by
 * reference until done. References are counted without atomics: only the
 * loop's thread takes and drops them.
 */

#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "base/arena.h"
#include "base/log.h"
#include "config/catalog.h"
#include "config/yaml_tree.h"

#define CONFIG_FILES_MAX 16
#define CONFIG_PEERS_MAX 16
#define CONFIG_NONE      (-1) /* pastSkew: none; retention: forever */

/* Names as the operator wrote them. */
struct config_users {
    const char *const *names;
    size_t count;
};

struct config_idempotency {
    int64_t scope; /* globalEventId is the only one */
    bool across_tenants;
    int64_t future_skew_us;
    int64_t past_skew_us; /* CONFIG_NONE: any age */
};

struct config_limits {
    int64_t queue_events; /* waiting for a batch; then 429 */
    int64_t batch_events; /* per transaction */
    int64_t read_connections;
    int64_t counter_keys;    /* of one counter per tenant */
    int64_t series_cells;    /* in memory; then an early flush */
    int64_t operation_queue; /* of the counters API; then 429 */
    int64_t token_cache_ttl_us;
    int64_t statement_timeout_us;
    int64_t database_patience_us;
    struct config_users peers; /* beside our own user and root */
};

/* Days per table; CONFIG_NONE: forever. */
struct config_retention {
    bool given; /* a retention section is present */
    int64_t event_days;
    int64_t event_index_days;
    int64_t duplicate_audit_days;
    int64_t series_5s_days;
    int64_t series_1m_days;
    int64_t series_1h_days;
    int64_t series_1d_days;
    int64_t series_7d_days;
};

struct config_checkpoint {
    const char *path; /* a directory; NULL: checkpoints are off */
    int64_t every_us;
    int64_t keep;
};

struct config {
    const char *database;       /* NULL: not given, see config_require */
    const char *admin_database; /* NULL: not given */
    const char *listen;         /* socket path, without "unix:"; or NULL */
    const char *node;           /* never NULL: the host's name by default */
    const char *state_dir;      /* NULL: not given */
    const char *outbox;         /* NULL: no rings to adopt */

    struct config_idempotency idempotency;
    int64_t default_lateness_us;
    int64_t log_level;    /* enum log_level */
    const char *log_path; /* NULL: stderr */
    struct config_limits limits;
    struct config_retention retention;
    struct config_checkpoint checkpoint;

    const struct catalog *catalog; /* never NULL */
    uint64_t version;              /* equal rules, equal version; not 0 */

    unsigned references;
    struct arena arena; /* holds everything above */
};

/*
 * Loads files in order; a later file adds or replaces whole top-level keys.
 * METERD_DATABASE stands for `database` when no file has it. True: *out
 * holds one reference for the caller. False: errors says why, *out is NULL.
 * errors is cleared first. Reads files, else has no side effect.
 */
METER_MUST_CHECK bool
config_load(const char *const *paths, size_t count, struct config **out,
            struct config_errors *errors);

/* The same from memory; name stands for the file in errors. */
METER_MUST_CHECK bool
config_load_text(const char *name, struct meter_str text, struct config **out,
                 struct config_errors *errors);

struct config *config_ref(struct config *config);
/* NULL is allowed. Frees with the last reference. */
void config_unref(struct config *config);

/* What a command cannot do without; config_load itself demands none. */
enum config_need {
    CONFIG_NEEDS_DATABASE = 1 << 0,
    CONFIG_NEEDS_ADMIN_DATABASE = 1 << 1,
    CONFIG_NEEDS_LISTEN = 1 << 2,
    CONFIG_NEEDS_STATE_DIR = 1 << 3
};

/* False: errors (cleared first) names each option that is missing. */
METER_MUST_CHECK bool
config_require(const struct config *config, unsigned needs,
               struct config_errors *errors);

/*
 * Notes for the operator, one sentence each: counters that can count nothing,
 * event types that only rules name. Calls note for each.
 */
typedef void (*config_note_cb)(void *asker, const char *text);
void
config_notes(const struct config *config, config_note_cb note, void *asker);

#endif
