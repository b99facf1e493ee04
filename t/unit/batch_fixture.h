/*
 * batch_fixture.h - makes the items of the batch tests: events by id,
 * content and tenant, with effects on rows by number.
 */

#ifndef UNIT_BATCH_FIXTURE_H
#define UNIT_BATCH_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ingest/batch.h"
#include "ingest/batch_rows.h"
#include "projection_fake.h"

#include <stdio.h>
#include <stdlib.h>

#define EVENTS_MAX 600
#define IDS_MAX    64
#define ROWS_MAX   FAKE_ROWS
#define RECORDED   INT64_C(1790000000000000)

/* Everything a test makes lies here, by position. */
static struct meter_event events[EVENTS_MAX];
static struct fake_effect effects[EVENTS_MAX][PROJECTION_COUNT];
static struct batch_item items[EVENTS_MAX];
static struct batch_item *order[EVENTS_MAX];
static char identities[EVENTS_MAX][BATCH_IDENTITY_SIZE_MAX];
static const uint8_t writer[16] = {7};
static char names[EVENTS_MAX][32];
static struct arena reasons;
static struct batch batch;

static uint64_t random_state = 88172645463325252u;

static inline unsigned
random_below(unsigned limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)((random_state >> 11) % limit);
}

static inline struct meter_str
str(const char *text)
{
    return (struct meter_str){text, strlen(text)};
}

static inline int
set_up(void **state)
{
    (void)state;
    memset(items, 0, sizeof(items));
    memset(events, 0, sizeof(events));
    arena_init(&reasons, 4096, 1 << 20);
    batch_init(&batch);
    memset(fake_start, 0, sizeof(fake_start));
    memset(fake_floor_us, 0, sizeof(fake_floor_us));
    fake_limit = INT64_MAX;
    fake_is_short = false;
    return 0;
}

static inline int
tear_down(void **state)
{
    (void)state;
    batch_fini(&batch);
    arena_fini(&reasons);
    return 0;
}

/* Event i: id number, content number, tenant; no effects yet. */
static inline struct batch_item *
make_item(size_t i, unsigned id, unsigned content, const char *tenant,
          const char *scope)
{
    struct batch_item *item = &items[i];
    uint8_t key[METER_KEY_SIZE] = {0};

    /* The low byte first: arrival order is not key order. */
    key[0] = (uint8_t)(id * 167);
    key[1] = (uint8_t)id;
    snprintf(names[i], sizeof(names[i]), "id-%u", id);
    events[i] = (struct meter_event){
        .tenant = str(tenant),
        .event_id = str(names[i]),
        .type = METER_STR("t"),
        .attributes = METER_STR("{}"),
        .quantity = meter_decimal_from_int(1),
        .count = 1,
        .ts_us = RECORDED,
    };
    *item = (struct batch_item){.event = &events[i], .arena = &reasons};
    item->identity.size = batch_identity(key, str(scope), identities[i]);
    item->identity.data = identities[i];
    item->fingerprint = (struct meter_fingerprint){
        .head = 1, .body = content, .has_body = true};
    item->position = i;
    order[i] = item;
    return item;
}

static inline void
set_effect(size_t i, enum projection_id place, size_t row, int64_t delta)
{
    effects[i][place] = (struct fake_effect){.row = row, .delta = delta};
    items[i].effects.of[place] = &effects[i][place];
}

static inline const struct fake_rows *
rows_of(enum projection_id place)
{
    return batch.rows[place];
}

static inline void
make_known(unsigned id, unsigned content, const char *tenant, const char *scope,
           int64_t first_seen_us)
{
    uint8_t key[METER_KEY_SIZE] = {(uint8_t)(id * 167), (uint8_t)id};
    struct batch_item *item = batch_find(&batch, key, str(scope));
    struct batch_known known = {
        .tenant = str(tenant),
        .fingerprint = {.head = 1, .body = content, .has_body = true},
        .first_seen_us = first_seen_us,
    };

    if (item != NULL) {
        assert_true(batch_item_known(&batch, item, &known));
    }
}

#endif
