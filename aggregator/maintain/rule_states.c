/*
 * rule_states.c - see rule_states.h.
 */

#include "maintain/rule_states.h"

#include "store/rule_store.h"

#include <stdio.h>
#include <stdlib.h>

struct rule_state {
    bool is_mixed;      /* someone counts by another rule */
    int64_t changed_us; /* INT64_MIN: never */
    int64_t open;       /* differences that nothing explains */
    bool is_left;
};

struct rule_states {
    const struct config *config;
    const char *command;
    struct rule_digests digests;
    struct rule_state *items; /* one for each digest */
    int64_t now_us;           /* by the server, when it was read first */
};


/* ---- reading ---------------------------------------------------------- */

static bool
kind_of(struct meter_str name, enum rule_kind *out)
{
    for (int i = 0; i < RULE_KINDS; i++) {
        const char *known = rule_kind_name((enum rule_kind)i);

        if (meter_str_equal(name, (struct meter_str){known, strlen(known)})) {
            *out = (enum rule_kind)i;
            return true;
        }
    }
    return false;
}

static struct rule_state *
state_find(const struct rule_states *states, enum rule_kind kind,
           struct meter_str name)
{
    const struct rule_digest *rule =
        rule_digests_find(&states->digests, kind, name);

    return rule == NULL ? NULL : &states->items[rule - states->digests.items];
}

static bool
state_row(void *asker, const void *result, int row)
{
    struct rule_states *states = asker;
    struct rule_state *state;
    enum rule_kind kind;

    if (!kind_of(pg_get_bytes(result, row, 0), &kind)) {
        return true;
    }
    state = state_find(states, kind, pg_get_bytes(result, row, 1));
    if (state == NULL) {
        return true;
    }
    state->is_mixed = pg_get_bool(result, row, 2);
    state->changed_us =
        pg_is_null(result, row, 3) ? INT64_MIN : pg_get_time(result, row, 3);
    if (states->now_us == INT64_MIN) {
        states->now_us = pg_get_time(result, row, 4);
    }
    return true;
}

/* Asks a statement that begins with kinds, names and digests. */
static bool
states_ask(struct rule_states *states)
{
    struct ledger_store *store =
        ledger_store_open(states->config->database, states->command);
    struct pg_params params;
    bool is_good;

    if (store == NULL) {
        return false;
    }
    pg_params_init(&params);
    rule_digests_put(&states->digests, &params);
    is_good = ledger_store_rows(store, STATEMENT_RULE_LIST, &params, state_row,
                                states);
    pg_params_fini(&params);
    ledger_store_close(store);
    return is_good;
}

struct rule_states *
rule_states_read(const struct config *config, const char *command)
{
    struct rule_states *states = calloc(1, sizeof(*states));

    if (states != NULL) {
        states->config = config;
        states->command = command;
        states->now_us = INT64_MIN;
    }
    if (states == NULL ||
        !rule_digests_make(config->catalog, &states->digests) ||
        (states->items = calloc(states->digests.count + 1,
                                sizeof(*states->items))) == NULL) {
        fprintf(stderr, "meterd %s: out of memory\n", command);
        rule_states_free(states);
        return NULL;
    }
    for (size_t i = 0; i < states->digests.count; i++) {
        states->items[i].changed_us = INT64_MIN;
    }
    if (!states_ask(states)) {
        rule_states_free(states);
        return NULL;
    }
    return states;
}

void
rule_states_free(struct rule_states *states)
{
    if (states != NULL) {
        rule_digests_fini(&states->digests);
        free(states->items);
        free(states);
    }
}


/* ---- explaining ------------------------------------------------------- */

static bool
is_reason(const struct rule_state *state, const struct recount_origin *origin)
{
    return state != NULL &&
           (state->is_mixed || (state->changed_us != INT64_MIN &&
                                origin->since_us <= state->changed_us));
}

bool
rule_states_explain(struct rule_states *states, struct recount_finding *out)
{
    const struct recount_origin *origin = &out->difference->origin;
    struct rule_state *open = NULL;
    size_t reasons = 0;

    out->rule_changed_us = INT64_MIN;
    if (origin->name_count == 0 || origin->since_us == RECOUNT_SINCE_NEVER) {
        return false;
    }
    for (size_t i = 0; i < origin->name_count; i++) {
        struct rule_state *state =
            state_find(states, origin->kind, origin->names[i]);

        if (!is_reason(state, origin)) {
            open = open == NULL ? state : open;
            continue;
        }
        reasons++;
        out->is_rule_mixed = out->is_rule_mixed || state->is_mixed;
        out->rule_changed_us = state->is_mixed ? states->now_us
                               : state->changed_us > out->rule_changed_us
                                   ? state->changed_us
                                   : out->rule_changed_us;
    }
    if (origin->is_any ? reasons > 0 : reasons == origin->name_count) {
        return true;
    }
    out->rule_changed_us = INT64_MIN;
    out->is_rule_mixed = false;
    if (open != NULL) {
        open->open++;
    }
    return false;
}

bool
rule_states_again(struct rule_states *states, int64_t more[RULE_KINDS])
{
    for (int i = 0; i < RULE_KINDS; i++) {
        more[i] = 0;
    }
    if (!states_ask(states)) {
        return false;
    }
    for (size_t i = 0; i < states->digests.count; i++) {
        const struct rule_state *state = &states->items[i];

        if (state->is_mixed || state->changed_us > states->now_us) {
            more[states->digests.items[i].kind] += state->open;
        }
    }
    return true;
}


/* ---- a rebuild -------------------------------------------------------- */

void
rule_states_leave(struct rule_states *states, enum rule_kind kind,
                  struct meter_str name)
{
    struct rule_state *state = state_find(states, kind, name);

    if (state != NULL) {
        state->is_left = true;
    }
}

/* Those of the kind and name that were not left, in the order of the list. */
static bool
rebuilt_make(const struct rule_states *states, enum rule_kind kind,
             const char *name, struct rule_digests *out)
{
    out->count = 0;
    out->items = calloc(states->digests.count + 1, sizeof(*out->items));
    if (out->items == NULL) {
        return false;
    }
    for (size_t i = 0; i < states->digests.count; i++) {
        const struct rule_digest *rule = &states->digests.items[i];
        const struct rule_state *state = &states->items[i];

        if (rule->kind != kind ||
            (name != NULL &&
             !meter_str_equal(rule->name,
                              (struct meter_str){name, strlen(name)}))) {
            continue;
        }
        if (!state->is_left) {
            out->items[out->count++] = *rule;
        } else if (state->is_mixed || state->changed_us != INT64_MIN) {
            fprintf(stderr,
                    "meterd %s: %s %.*s stays changed for reconcile: rows of "
                    "other rules were left\n",
                    states->command, rule_kind_name(kind), (int)rule->name.size,
                    rule->name.data);
        }
    }
    return true;
}

bool
rule_states_rebuilt(struct rule_states *states, enum rule_kind kind,
                    const char *name)
{
    struct ledger_store *store = NULL;
    struct rule_digests rebuilt;
    struct pg_params params;
    bool is_good;

    if (!rebuilt_make(states, kind, name, &rebuilt)) {
        fprintf(stderr, "meterd %s: out of memory\n", states->command);
        return false;
    }
    pg_params_init(&params);
    is_good = rebuilt.count == 0;
    if (!is_good) {
        rule_digests_put(&rebuilt, &params);
        pg_param_time(&params, states->now_us);
        store = ledger_store_open(states->config->database, states->command);
        is_good =
            store != NULL && ledger_store_rows(store, STATEMENT_RULE_REBUILT,
                                               &params, NULL, NULL);
    }
    ledger_store_close(store);
    pg_params_fini(&params);
    rule_digests_fini(&rebuilt);
    return is_good;
}
