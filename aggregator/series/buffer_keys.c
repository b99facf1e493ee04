/*
 * buffer_keys.c - keys of the buffer, see buffer_state.h.
 *
 *   (tenant, series, version, dimension set) -> [table] -> key -> group
 *
 * Keys outlive their cells. What keys of a tenant's series share is held
 * once, in their group.
 */

#include "series/buffer_state.h"

#include "meter_bytes.h"
#include "meter_hash.h"

#include <stdlib.h>

#define SLOTS_MIN 1024

size_t
buffer_slots_size(const struct buffer_slots *slots)
{
    return slots->count * sizeof(*slots->heads);
}

void
buffer_slots_fini(struct buffer_slots *slots)
{
    free(slots->heads);
    *slots = (struct buffer_slots){NULL};
}

bool
buffer_slots_double(const struct buffer_slots *slots, struct buffer_slots *out)
{
    out->count = slots->count == 0 ? SLOTS_MIN : slots->count * 2;
    out->heads = calloc(out->count, sizeof(*out->heads));
    return out->heads != NULL;
}

static size_t
entry_size(const struct buffer_entry *entry)
{
    return sizeof(*entry) + entry->key.set.json.size;
}

static size_t
group_size(const struct buffer_group *group)
{
    return sizeof(*group) + group->id.size;
}

static struct buffer_group *
group_make(struct meter_str tenant, const struct series *series)
{
    size_t size = sizeof(uint32_t) + tenant.size + sizeof(series->version) +
                  series->name.size;
    struct buffer_group *group = calloc(1, sizeof(*group) + size);
    struct meter_writer writer;

    if (group == NULL) {
        return NULL;
    }
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

/* The group of a new key; NULL: no memory. */
static struct buffer_group *
group_take(struct buffer *buffer, struct meter_str tenant,
           const struct series *series)
{
    struct buffer_group *made = group_make(tenant, series);
    struct buffer_group *group;

    if (made == NULL) {
        return NULL;
    }
    group = map_add(&buffer->groups, made->id, made);
    if (group != made) {
        free(made);
    } else {
        buffer->group_size += group_size(group);
    }
    return group;
}

static void
group_leave(struct buffer *buffer, struct buffer_group *group)
{
    if (--group->key_count == 0) {
        map_remove(&buffer->groups, group->id);
        buffer->group_size -= group_size(group);
        free(group);
    }
}

static bool
keys_grow(struct buffer *buffer)
{
    struct buffer_slots grown;

    if (buffer->key_count < buffer->keys.count) {
        return true;
    }
    if (!buffer_slots_double(&buffer->keys, &grown)) {
        return false;
    }
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
    return true;
}

/* version stands for the series: its name is part of that digest. */
static uint32_t
key_hash(const struct buffer *buffer, struct meter_str tenant,
         const struct series_change *change)
{
    uint64_t hash =
        meter_hash(change->set.key, METER_DIGEST_SIZE,
                   buffer->seed ^ (uint64_t)change->series->version);

    return (uint32_t)meter_hash(tenant.data, tenant.size, hash);
}

static bool
is_key_of(const struct buffer_entry *entry, struct meter_str tenant,
          const struct series_change *change)
{
    return memcmp(entry->key.set.key, change->set.key, METER_DIGEST_SIZE) ==
               0 &&
           entry->key.version == change->series->version &&
           meter_str_equal(entry->key.tenant, tenant) &&
           meter_str_equal(entry->key.series, change->series->name);
}

/* NULL: no memory. */
static struct buffer_entry *
key_make(struct buffer *buffer, struct meter_str tenant,
         const struct series_change *change, uint32_t hash)
{
    struct meter_str json = change->set.json;
    struct buffer_group *group = group_take(buffer, tenant, change->series);
    struct buffer_entry *entry;
    void **head;

    if (group == NULL) {
        return NULL;
    }
    group->key_count++;
    entry = malloc(sizeof(*entry) + json.size);
    if (entry == NULL || !keys_grow(buffer)) {
        free(entry);
        group_leave(buffer, group);
        return NULL;
    }
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
    buffer->key_size += entry_size(entry);
    return entry;
}

struct buffer_entry *
buffer_key_take(struct buffer *buffer, struct meter_str tenant,
                const struct series_change *change)
{
    uint32_t hash = key_hash(buffer, tenant, change);

    if (buffer->keys.count > 0) {
        struct buffer_entry *entry =
            buffer->keys.heads[hash & (buffer->keys.count - 1)];

        for (; entry != NULL; entry = entry->next) {
            if (entry->hash == hash && is_key_of(entry, tenant, change)) {
                return entry;
            }
        }
    }
    return key_make(buffer, tenant, change, hash);
}

static void
key_forget(struct buffer *buffer, struct buffer_entry *entry)
{
    buffer->key_count--;
    buffer->key_size -= entry_size(entry);
    group_leave(buffer, entry->group);
    free(entry);
}

void
buffer_keys_sweep(struct buffer *buffer)
{
    for (size_t i = 0; i < buffer->keys.count; i++) {
        struct buffer_entry *entry = buffer->keys.heads[i];

        buffer->keys.heads[i] = NULL;
        while (entry != NULL) {
            struct buffer_entry *next = entry->next;

            if (entry->used >= buffer->flushing.number) {
                entry->next = buffer->keys.heads[i];
                buffer->keys.heads[i] = entry;
            } else {
                key_forget(buffer, entry);
            }
            entry = next;
        }
    }
}

static void
groups_free(struct buffer *buffer)
{
    size_t cursor = 0;
    struct buffer_group *group;

    while ((group = map_next(&buffer->groups, &cursor)) != NULL) {
        free(group);
    }
    map_fini(&buffer->groups);
    buffer->group_size = 0;
}

void
buffer_keys_free(struct buffer *buffer)
{
    for (size_t i = 0; i < buffer->keys.count; i++) {
        struct buffer_entry *entry = buffer->keys.heads[i];

        while (entry != NULL) {
            struct buffer_entry *next = entry->next;

            free(entry);
            entry = next;
        }
    }
    buffer_slots_fini(&buffer->keys);
    buffer->key_count = 0;
    buffer->key_size = 0;
    groups_free(buffer);
}
