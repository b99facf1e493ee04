/*
 * rule_store.c - see rule_store.h.
 */

#include "store/rule_store.h"

static bool
is_same(const struct rule_digest *rule, const struct rule_digests *others)
{
    const struct rule_digest *other =
        rule_digests_find(others, rule->kind, rule->name);

    return other != NULL &&
           memcmp(rule->digest, other->digest, sizeof(rule->digest)) == 0;
}

bool
rule_digests_differ(const struct rule_digests *a, const struct rule_digests *b)
{
    if (a->count != b->count) {
        return true;
    }
    for (size_t i = 0; i < a->count; i++) {
        if (!is_same(&a->items[i], b)) {
            return true;
        }
    }
    return false;
}

static bool
is_changed(const struct rule_digest *rule, const struct rule_before *before)
{
    for (; before != NULL; before = before->next) {
        if (!is_same(rule, &before->digests)) {
            return true;
        }
    }
    return false;
}

static void
put_changed(const struct rule_digests *now, const struct rule_before *before,
            struct pg_params *params)
{
    size_t count = 0;
    struct buf text;

    for (size_t i = 0; i < now->count; i++) {
        count += is_changed(&now->items[i], before);
    }
    buf_init(&text, CATALOG_NAME_SIZE_MAX * 2);
    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < now->count; i++) {
        if (is_changed(&now->items[i], before)) {
            buf_reset(&text);
            buf_put_text(&text, rule_kind_name(now->items[i].kind));
            buf_put_byte(&text, ' ');
            buf_put_str(&text, now->items[i].name);
            pg_put_text(&params->bytes, buf_str(&text));
        }
    }
    pg_param_array_end(params);
    buf_fini(&text);
}

void
rule_digests_put(const struct rule_digests *now, struct pg_params *params)
{
    pg_param_array_begin(params, PG_TEXT, now->count);
    for (size_t i = 0; i < now->count; i++) {
        const char *kind = rule_kind_name(now->items[i].kind);

        pg_put_text(&params->bytes, (struct meter_str){kind, strlen(kind)});
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_TEXT, now->count);
    for (size_t i = 0; i < now->count; i++) {
        pg_put_text(&params->bytes, now->items[i].name);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_BYTEA, now->count);
    for (size_t i = 0; i < now->count; i++) {
        pg_put_bytes(&params->bytes,
                     (struct meter_str){(const char *)now->items[i].digest,
                                        METER_DIGEST_SIZE});
    }
    pg_param_array_end(params);
}

void
rule_note_put(const uint8_t writer[16], const struct rule_digests *now,
              const struct rule_before *before, struct pg_params *params)
{
    pg_param_uuid(params, writer);
    rule_digests_put(now, params);
    put_changed(now, before, params);
}
