/*
 * buffer.c - series of accepted events, before they are flushed.
 *
 *   change -> [key] -> key -> [cell] -> cell of the generation that fills
 *
 *   keys   one table, by (tenant, series, version, dimension set); they
 *          outlive their cells. What keys of a tenant's series share is held
 *          once, in their group
 *   cells  one table per generation, by (key, bucket); their memory lies in
 *          blocks that go with the generation
 *
 * The engine and orphan fold into it, the flush reads what was cut. The usual
 * change costs one look-up: a key knows its last cell. Tables are chained and
 * double; hashes are seeded against flooding.
 */

#include "series/buffer.h"

#include "base/memory.h"
#include "meter_bytes.h"
#include "meter_hash.h"
#include "meter_level.h"

#include <endian.h>
#include <stdlib.h>
#include <sys/random.h>

#define SLOTS_MIN        1024
#define BLOCK_SIZE       (256u << 10)
#define TALLIES_PER_CELL 8     /* so many labels count as one cell more */
#define IDLE_KEYS_MAX    65536 /* beside twice those in use */

/* A series of a tenant: what its keys share. */
struct buffer_group {
    struct meter_str id; /* tenant size, tenant, version, series */
    struct meter_str tenant;
    struct meter_str series;
    int64_t version;
    size_t key_count;
    uint32_t rank; /* among all groups, while a flush is sorted */
};

/* A key as the buffer keeps it; the JSON of its set lies behind. */
struct buffer_entry {
    struct buffer_key key;
    struct buffer_group *group;
    struct buffer_entry *next;  /* of the slot */
    struct buffer_cell *recent; /* its last cell, of generation `used` */
    uint32_t used;              /* generation */
    uint32_t hash;
};

struct buffer_slots {
    void **heads;
    size_t count; /* power of two, or 0 */
};

struct buffer_generation {
    uint32_t number;
    struct arena arena; /* cells */
    struct buffer_slots slots;
    size_t cell_count;
    size_t tally_count;
    size_t tally_size; /* bytes */
};

struct buffer {
    uint64_t seed;
    struct map groups;
    size_t group_size; /* bytes of all groups */
    struct buffer_slots keys;
    size_t key_count;
    size_t key_size; /* bytes of all keys */
    struct buffer_generation filling;
    struct buffer_generation flushing;
    struct buffer_cell **sorted; /* of flushing; NULL: not asked for yet */
};


/* ---- keys -------------------------------------------------------------- */

static size_t
buffer_slots_size(const struct buffer_slots *slots)
{
    return slots->count * sizeof(*slots->heads);
}

static void
buffer_slots_fini(struct buffer_slots *slots)
{
    free(slots->heads);
    *slots = (struct buffer_slots){NULL};
}

/* Twice as many, all empty; the caller moves the chains over. */
static struct buffer_slots
buffer_slots_double(const struct buffer_slots *slots)
{
    size_t count = slots->count == 0 ? SLOTS_MIN : slots->count * 2;

    return (struct buffer_slots){memory_array(count, sizeof(void *)), count};
}

static size_t
buffer_entry_size(const struct buffer_entry *entry)
{
    return sizeof(*entry) + entry->key.set.json.size;
}

static size_t
buffer_group_size(const struct buffer_group *group)
{
    return sizeof(*group) + group->id.size;
}

static struct buffer_group *
buffer_group_make(struct meter_str tenant, const struct series *series)
{
    size_t size = sizeof(uint32_t) + tenant.size + sizeof(series->version) +
                  series->name.size;
    struct buffer_group *group = memory_alloc(sizeof(*group) + size);
    struct meter_writer writer;

    meter_writer_init(&writer, group + 1, size);
    meter_put_str(&writer, tenant);
    group->tenant = (struct meter_str){
        (const char *)writer.data + sizeof(uint32_t), tenant.size};
    meter_put_u64(&writer, (uint64_t)series->version);
    group->series = (struct meter_str){(const char *)writer.data + writer.at,
                                       series->name.size};
    meter_put_bytes(&writer, series->name.data, series->name.size);
    CHECK(!writer.failed);
    group->version = series->version;
    group->id = (struct meter_str){(const char *)writer.data, size};
    return group;
}

/* The group of a new key, which is counted. */
static struct buffer_group *
buffer_group_take(struct buffer *buffer, struct meter_str tenant,
                  const struct series *series)
{
    struct buffer_group *made = buffer_group_make(tenant, series);
    struct buffer_group *group = map_add(&buffer->groups, made->id, made);

    CHECK(group != NULL);
    if (group != made) {
        free(made);
    } else {
        buffer->group_size += buffer_group_size(group);
    }
    group->key_count++;
    return group;
}

static void
buffer_group_leave(struct buffer *buffer, struct buffer_group *group)
{
    if (--group->key_count == 0) {
        map_remove(&buffer->groups, group->id);
        buffer->group_size -= buffer_group_size(group);
        free(group);
    }
}

static void
buffer_keys_grow(struct buffer *buffer)
{
    struct buffer_slots grown;

    if (buffer->key_count < buffer->keys.count) {
        return;
    }
    grown = buffer_slots_double(&buffer->keys);
    for (size_t i = 0; i < buffer->keys.count; i++) {
        struct buffer_entry *entry = buffer->keys.heads[i];

        while (entry != NULL) {
            struct buffer_entry *next = entry->next;
            void **head = &grown.heads[entry->hash & (grown.count - 1)];

            entry->next = *head;
            *head = entry;
            entry = next;
        }
    }
    buffer_slots_fini(&buffer->keys);
    buffer->keys = grown;
}

/* version stands for the series: its name is part of that digest. */
static uint32_t
buffer_key_hash(const struct buffer *buffer, struct meter_str tenant,
                const struct series_change *change)
{
    uint64_t hash =
        meter_hash(change->set.key, METER_DIGEST_SIZE,
                   buffer->seed ^ (uint64_t)change->series->version);

    return (uint32_t)meter_hash(tenant.data, tenant.size, hash);
}

static bool
buffer_is_key_of(const struct buffer_entry *entry, struct meter_str tenant,
                 const struct series_change *change)
{
    return memcmp(entry->key.set.key, change->set.key, METER_DIGEST_SIZE) ==
               0 &&
           entry->key.version == change->series->version &&
           meter_str_equal(entry->key.tenant, tenant) &&
           meter_str_equal(entry->key.series, change->series->name);
}

static struct buffer_entry *
buffer_key_make(struct buffer *buffer, struct meter_str tenant,
                const struct series_change *change, uint32_t hash)
{
    struct meter_str json = change->set.json;
    struct buffer_group *group =
        buffer_group_take(buffer, tenant, change->series);
    struct buffer_entry *entry = memory_alloc(sizeof(*entry) + json.size);
    void **head;

    buffer_keys_grow(buffer);
    *entry = (struct buffer_entry){.key = {.tenant = group->tenant,
                                           .series = group->series,
                                           .version = group->version,
                                           .kind = change->series->kind,
                                           .set = change->set},
                                   .group = group,
                                   .hash = hash};
    memcpy(entry + 1, json.data, json.size);
    entry->key.set.json.data = (const char *)(entry + 1);
    head = &buffer->keys.heads[hash & (buffer->keys.count - 1)];
    entry->next = *head;
    *head = entry;
    buffer->key_count++;
    buffer->key_size += buffer_entry_size(entry);
    return entry;
}

static struct buffer_entry *
buffer_key_take(struct buffer *buffer, struct meter_str tenant,
                const struct series_change *change)
{
    uint32_t hash = buffer_key_hash(buffer, tenant, change);

    if (buffer->keys.count > 0) {
        struct buffer_entry *entry =
            buffer->keys.heads[hash & (buffer->keys.count - 1)];

        for (; entry != NULL; entry = entry->next) {
            if (entry->hash == hash &&
                buffer_is_key_of(entry, tenant, change)) {
                return entry;
            }
        }
    }
    return buffer_key_make(buffer, tenant, change, hash);
}

static void
buffer_key_forget(struct buffer *buffer, struct buffer_entry *entry)
{
    buffer->key_count--;
    buffer->key_size -= buffer_entry_size(entry);
    buffer_group_leave(buffer, entry->group);
    free(entry);
}

/* Forgets keys that were last used before that generation. */
static void
buffer_keys_sweep(struct buffer *buffer, uint32_t generation)
{
    for (size_t i = 0; i < buffer->keys.count; i++) {
        struct buffer_entry *entry = buffer->keys.heads[i];

        buffer->keys.heads[i] = NULL;
        while (entry != NULL) {
            struct buffer_entry *next = entry->next;

            if (entry->used >= generation) {
                entry->next = buffer->keys.heads[i];
                buffer->keys.heads[i] = entry;
            } else {
                buffer_key_forget(buffer, entry);
            }
            entry = next;
        }
    }
}


/* ---- cells ------------------------------------------------------------- */

static void
buffer_generation_init(struct buffer_generation *generation, uint32_t number)
{
    *generation = (struct buffer_generation){.number = number};
    arena_init(&generation->arena, BLOCK_SIZE, SIZE_MAX / 2);
}

/* Walks the cells; a tally is all that is not in the blocks. */
static void
buffer_generation_fini(struct buffer_generation *generation)
{
    if (generation->tally_size > 0) {
        for (size_t i = 0; i < generation->slots.count; i++) {
            struct buffer_cell *cell = generation->slots.heads[i];

            for (; cell != NULL; cell = cell->next) {
                cell_fini(&cell->cell);
            }
        }
    }
    buffer_slots_fini(&generation->slots);
    arena_fini(&generation->arena);
}

struct buffer *
buffer_create(void)
{
    struct buffer *buffer = memory_alloc(sizeof(*buffer));

    if (getrandom(&buffer->seed, sizeof(buffer->seed), 0) !=
        sizeof(buffer->seed)) {
        buffer->seed = (uint64_t)(uintptr_t)buffer;
    }
    map_init(&buffer->groups, SIZE_MAX / 2);
    buffer_generation_init(&buffer->filling, 1);
    buffer_generation_init(&buffer->flushing, 0);
    return buffer;
}

void
buffer_clear(struct buffer *buffer)
{
    uint32_t number = buffer->filling.number;

    free(buffer->sorted);
    buffer->sorted = NULL;
    buffer_generation_fini(&buffer->filling);
    buffer_generation_fini(&buffer->flushing);
    buffer_keys_sweep(buffer, number + 1); /* all of them, and their groups */
    buffer_slots_fini(&buffer->keys);
    map_fini(&buffer->groups);
    map_init(&buffer->groups, SIZE_MAX / 2);
    buffer_generation_init(&buffer->filling, number + 1);
    buffer_generation_init(&buffer->flushing, number);
}

void
buffer_destroy(struct buffer *buffer)
{
    buffer_clear(buffer);
    free(buffer);
}

static size_t
buffer_cell_slot(const struct buffer *buffer, const struct buffer_slots *slots,
                 const struct buffer_key *key, int64_t bucket_us)
{
    const uint64_t id[2] = {(uint64_t)(uintptr_t)key, (uint64_t)bucket_us};

    return meter_hash(id, sizeof(id), buffer->seed) & (slots->count - 1);
}

static void
buffer_cells_grow(struct buffer *buffer, struct buffer_generation *generation)
{
    struct buffer_slots grown;

    if (generation->cell_count < generation->slots.count) {
        return;
    }
    grown = buffer_slots_double(&generation->slots);
    for (size_t i = 0; i < generation->slots.count; i++) {
        struct buffer_cell *cell = generation->slots.heads[i];

        while (cell != NULL) {
            struct buffer_cell *next = cell->next;
            void **head = &grown.heads[buffer_cell_slot(
                buffer, &grown, cell->key, cell->cell.bucket_us)];

            cell->next = *head;
            *head = cell;
            cell = next;
        }
    }
    buffer_slots_fini(&generation->slots);
    generation->slots = grown;
}

/* NULL: no memory. */
static struct buffer_cell *
buffer_cell_make(struct buffer *buffer, struct buffer_key *key,
                 int64_t bucket_us)
{
    struct buffer_generation *filling = &buffer->filling;
    struct buffer_cell *cell;
    void **head;

    buffer_cells_grow(buffer, filling);
    cell = arena_alloc(&filling->arena, offsetof(struct buffer_cell, cell) +
                                            CELL_SIZE(key->kind));
    if (cell == NULL) {
        return NULL;
    }
    head =
        &filling->slots
             .heads[buffer_cell_slot(buffer, &filling->slots, key, bucket_us)];
    cell->key = key;
    cell->next = *head;
    cell_init(&cell->cell, key->kind, bucket_us);
    *head = cell;
    filling->cell_count++;
    return cell;
}

static struct buffer_cell *
buffer_cell_take(struct buffer *buffer, struct buffer_entry *entry,
                 int64_t bucket_us)
{
    struct buffer_generation *filling = &buffer->filling;
    struct buffer_cell *cell = NULL;

    if (entry->used == filling->number) {
        if (entry->recent->cell.bucket_us == bucket_us) {
            return entry->recent;
        }
        cell = filling->slots.heads[buffer_cell_slot(buffer, &filling->slots,
                                                     &entry->key, bucket_us)];
        while (cell != NULL && (cell->key != &entry->key ||
                                cell->cell.bucket_us != bucket_us)) {
            cell = cell->next;
        }
    }
    if (cell == NULL) {
        cell = buffer_cell_make(buffer, &entry->key, bucket_us);
    }
    if (cell != NULL) {
        entry->recent = cell;
        entry->used = filling->number;
    }
    return cell;
}

static bool
buffer_change_fold(struct buffer *buffer, const struct buffer_event *event,
                   const struct series_change *change, struct meter_str from,
                   int64_t bucket_us)
{
    struct buffer_generation *filling = &buffer->filling;
    struct buffer_entry *entry = buffer_key_take(buffer, event->tenant, change);
    struct buffer_cell *cell = buffer_cell_take(buffer, entry, bucket_us);
    size_t tallies, size;

    if (cell == NULL) {
        return false;
    }
    tallies = cell->cell.tally_count;
    size = cell_size(&cell->cell);
    if (!cell_fold(&cell->cell, change, from, &event->place)) {
        return false;
    }
    filling->tally_count += cell->cell.tally_count - tallies;
    filling->tally_size += cell_size(&cell->cell) - size;
    return true;
}

bool
buffer_fold(struct buffer *buffer, const struct buffer_event *event)
{
    const struct series_effect *effect = event->effect;
    int64_t bucket_us = meter_level_bucket(METER_LEVEL_5S, event->place.ts_us);
    size_t states = 0;

    for (size_t i = 0; i < effect->count; i++) {
        const struct series_change *change = &effect->changes[i];
        struct meter_str from = {NULL, 0};

        if (change->entity.data != NULL) {
            from = event->from[states++];
            if (from.data == series_from_unknown) {
                continue;
            }
        }
        if (!buffer_change_fold(buffer, event, change, from, bucket_us)) {
            return false;
        }
    }
    return true;
}

size_t
buffer_filling(const struct buffer *buffer)
{
    return buffer->filling.cell_count +
           buffer->filling.tally_count / TALLIES_PER_CELL;
}

static size_t
buffer_generation_size(const struct buffer_generation *generation)
{
    return generation->arena.total + buffer_slots_size(&generation->slots) +
           generation->tally_size;
}

size_t
buffer_size(const struct buffer *buffer)
{
    size_t sorted = buffer->sorted == NULL
                        ? 0
                        : buffer->flushing.cell_count * sizeof(*buffer->sorted);

    return buffer_generation_size(&buffer->filling) +
           buffer_generation_size(&buffer->flushing) +
           buffer_slots_size(&buffer->keys) + buffer->key_size +
           buffer->group_size + sorted;
}

void
buffer_cut(struct buffer *buffer)
{
    CHECK(buffer->flushing.cell_count == 0);
    buffer_generation_fini(&buffer->flushing);
    buffer->flushing = buffer->filling;
    buffer_generation_init(&buffer->filling, buffer->flushing.number + 1);
}

/* What most comparisons are decided by, side by side. */
struct buffer_place {
    uint32_t rank;   /* of the group */
    uint64_t prefix; /* of the dimension key */
    struct buffer_cell *cell;
};

static int
buffer_group_compare(const void *left, const void *right)
{
    const struct buffer_group *a = *(const struct buffer_group *const *)left;
    const struct buffer_group *b = *(const struct buffer_group *const *)right;
    int order = meter_str_compare(a->tenant, b->tenant);

    if (order == 0) {
        order = meter_str_compare(a->series, b->series);
    }
    if (order == 0) {
        order = (a->version > b->version) - (a->version < b->version);
    }
    return order;
}

static int
buffer_place_compare(const void *left, const void *right)
{
    const struct buffer_place *a = left;
    const struct buffer_place *b = right;
    int order;

    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    if (a->prefix != b->prefix) {
        return a->prefix < b->prefix ? -1 : 1;
    }
    order =
        memcmp(a->cell->key->set.key, b->cell->key->set.key, METER_DIGEST_SIZE);
    if (order == 0) {
        order = (a->cell->cell.bucket_us > b->cell->cell.bucket_us) -
                (a->cell->cell.bucket_us < b->cell->cell.bucket_us);
    }
    return order;
}

static void
buffer_groups_rank(struct buffer *buffer)
{
    struct buffer_group **groups =
        memory_array(buffer->groups.count, sizeof(struct buffer_group *));
    struct buffer_group *group;
    size_t cursor = 0;
    size_t count = 0;

    while ((group = map_next(&buffer->groups, &cursor)) != NULL) {
        groups[count++] = group;
    }
    qsort(groups, count, sizeof(struct buffer_group *), buffer_group_compare);
    for (size_t i = 0; i < count; i++) {
        groups[i]->rank = (uint32_t)i;
    }
    free(groups);
}

static void
buffer_places_fill(const struct buffer_generation *generation,
                   struct buffer_place *places)
{
    size_t count = 0;

    for (size_t i = 0; i < generation->slots.count; i++) {
        struct buffer_cell *cell = generation->slots.heads[i];

        for (; cell != NULL; cell = cell->next) {
            uint64_t prefix;

            memcpy(&prefix, cell->key->set.key, sizeof(prefix));
            places[count++] = (struct buffer_place){
                ((struct buffer_entry *)cell->key)->group->rank,
                be64toh(prefix), cell};
        }
    }
    CHECK(count == generation->cell_count);
}

struct buffer_cell *const *
buffer_flushing(struct buffer *buffer, size_t *count)
{
    const struct buffer_generation *flushing = &buffer->flushing;
    struct buffer_place *places;

    *count = flushing->cell_count;
    if (buffer->sorted != NULL) {
        return buffer->sorted;
    }
    buffer->sorted = memory_array(*count, sizeof(struct buffer_cell *));
    places = memory_array(*count, sizeof(*places));
    buffer_groups_rank(buffer);
    buffer_places_fill(flushing, places);
    qsort(places, *count, sizeof(*places), buffer_place_compare);
    for (size_t i = 0; i < *count; i++) {
        buffer->sorted[i] = places[i].cell;
    }
    free(places);
    return buffer->sorted;
}

void
buffer_flushed(struct buffer *buffer)
{
    struct buffer_generation *flushing = &buffer->flushing;
    size_t in_use = flushing->cell_count + buffer->filling.cell_count;

    for (size_t i = 0; i < flushing->slots.count; i++) {
        struct buffer_cell *cell = flushing->slots.heads[i];

        for (; cell != NULL; cell = cell->next) {
            cell->key->is_stored = true;
        }
    }
    free(buffer->sorted);
    buffer->sorted = NULL;
    if (buffer->key_count > IDLE_KEYS_MAX + 2 * in_use) {
        buffer_keys_sweep(buffer, flushing->number);
    }
    buffer_generation_fini(flushing);
    buffer_generation_init(flushing, flushing->number);
}
