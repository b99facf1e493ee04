/*
 * meter_zone.c - ids the edge has seen: a cache in shared memory.
 *
 *   (tenant, event id) -> siphash -> key -> XXH3 -> set -> 8 slots
 *
 *   +-------+-----+-----+---------+-----+-----+-------+-------+
 *   | check | key | key | content | tag | seq | state | stamp |
 *   +-------+-----+-----+---------+-----+-----+-------+-------+
 *
 * A slot is copied word by word to the stack and believed only when the
 * check fits the copy. The check is stored last, so that every mixture of
 * two writers, and of a writer and its death, is ABSENT and free to take.
 * A writer that was held up may put back what it meant to write long ago:
 * harmless, since DURABLE stays true within its epoch and names it.
 */

#include "meter_zone.h"

#include "meter_bytes.h"
#include "meter_crash.h"
#include "meter_hash.h"
#include "meter_limits.h"
#include "meter_siphash.h"

#define ZONE_MAGIC UINT64_C(0x314e5a524554454d) /* "METERZN1" */
#define SET_SIZE   (METER_ZONE_WAYS * sizeof(struct meter_zone_slot))

/* Longer strings, which are never forwarded, go in as a digest. */
#define FIELD_SIZE_MAX 255
#define TUPLE_SIZE_MAX 1024

_Static_assert(METER_TENANT_SIZE_MAX <= FIELD_SIZE_MAX &&
                   METER_EVENT_ID_SIZE_MAX <= FIELD_SIZE_MAX &&
                   METER_TYPE_SIZE_MAX <= FIELD_SIZE_MAX &&
                   METER_CUSTOMER_SIZE_MAX <= FIELD_SIZE_MAX &&
                   METER_RESOURCE_SIZE_MAX <= FIELD_SIZE_MAX,
               "what is forwarded goes in as it is");
_Static_assert(3 * (4 + FIELD_SIZE_MAX) <= TUPLE_SIZE_MAX, "a tuple fits");

enum place {
    PLACE_DURABLE, /* the same id, settled */
    PLACE_SAME,    /* the same id, pending */
    PLACE_FREE,
    PLACE_OLDEST
};


static inline uint64_t
load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}


static inline void
store(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}


static uint64_t
set_count_of(size_t size)
{
    return (size - sizeof(struct meter_zone)) / SET_SIZE;
}


struct meter_zone *
meter_zone_format(void *memory, size_t size, const uint8_t secret[16])
{
    struct meter_zone *zone = memory;

    if (size < METER_ZONE_SIZE_MIN) {
        return NULL;
    }
    memset(memory, 0, sizeof(*zone) + set_count_of(size) * SET_SIZE);
    memcpy(zone->secret, secret, sizeof(zone->secret));
    zone->set_count = set_count_of(size);
    __atomic_store_n(&zone->magic, ZONE_MAGIC, __ATOMIC_RELEASE);
    return zone;
}


struct meter_zone *
meter_zone_open(void *memory, size_t size)
{
    struct meter_zone *zone = memory;

    if (size < METER_ZONE_SIZE_MIN ||
        __atomic_load_n(&zone->magic, __ATOMIC_ACQUIRE) != ZONE_MAGIC ||
        zone->set_count != set_count_of(size)) {
        return NULL;
    }
    return zone;
}


static void
put_field(struct meter_writer *tuple, const uint8_t secret[16],
          struct meter_str str)
{
    uint64_t digest[2];

    if (str.size <= FIELD_SIZE_MAX) {
        meter_put_str(tuple, str);
        return;
    }
    meter_siphash128(secret, str.data, str.size, digest);
    meter_put_u32(tuple, UINT32_MAX);
    meter_put_u64(tuple, digest[0]);
    meter_put_u64(tuple, digest[1]);
}


void
meter_zone_id(const struct meter_zone *zone, struct meter_str tenant,
              struct meter_str event_id, struct meter_str type,
              struct meter_str customer, struct meter_str resource,
              struct meter_zone_id *out)
{
    uint8_t bytes[TUPLE_SIZE_MAX];
    struct meter_writer tuple;
    uint64_t content[2];

    meter_writer_init(&tuple, bytes, sizeof(bytes));
    put_field(&tuple, zone->secret, tenant);
    put_field(&tuple, zone->secret, event_id);
    meter_siphash128(zone->secret, bytes, tuple.at, out->key);

    meter_writer_init(&tuple, bytes, sizeof(bytes));
    put_field(&tuple, zone->secret, type);
    put_field(&tuple, zone->secret, customer);
    put_field(&tuple, zone->secret, resource);
    meter_siphash128(zone->secret, bytes, tuple.at, content);
    out->content = content[0];
}


/*
 * What the state word of a slot made now carries above its lowest byte: all
 * bits of the epoch count, and one that comes back finds nothing.
 */
static uint64_t
era_of(const struct meter_zone *zone)
{
    uint64_t epoch = load(&zone->epoch);

    return meter_hash(&epoch, sizeof(epoch), load(&zone->turn)) << 8;
}


static size_t
set_of(const struct meter_zone *zone, const uint64_t key[2])
{
    uint64_t hash = meter_hash(key, 2 * sizeof(key[0]), 0);

    return (size_t)((unsigned __int128)hash * zone->set_count >> 64) *
           METER_ZONE_WAYS;
}


static uint64_t
check_of(const struct meter_zone_slot *copy)
{
    return meter_hash((const uint8_t *)copy + sizeof(copy->check),
                      sizeof(*copy) - sizeof(copy->check), ZONE_MAGIC);
}


/* False: free, half-written or of another epoch; the copy means nothing. */
static bool
slot_read(const struct meter_zone_slot *slot, uint64_t era,
          struct meter_zone_slot *copy)
{
    uint64_t state;

    copy->check = __atomic_load_n(&slot->check, __ATOMIC_ACQUIRE);
    copy->key[0] = load(&slot->key[0]);
    copy->key[1] = load(&slot->key[1]);
    copy->content = load(&slot->content);
    copy->tag = load(&slot->tag);
    copy->seq = load(&slot->seq);
    copy->state = load(&slot->state);
    copy->stamp = load(&slot->stamp);
    state = copy->state ^ era;
    return (state == METER_ZONE_PENDING || state == METER_ZONE_DURABLE) &&
           copy->check == check_of(copy);
}


static void
slot_seal(struct meter_zone_slot *slot, const struct meter_zone_slot *copy)
{
    __atomic_store_n(&slot->check, check_of(copy), __ATOMIC_RELEASE);
}


static void
slot_write(struct meter_zone_slot *slot, const struct meter_zone_slot *copy)
{
    store(&slot->stamp, copy->stamp);
    store(&slot->state, copy->state);
    store(&slot->seq, copy->seq);
    store(&slot->tag, copy->tag);
    METER_CRASH_POINT("zone_half_written");
    store(&slot->content, copy->content);
    store(&slot->key[1], copy->key[1]);
    store(&slot->key[0], copy->key[0]);
    slot_seal(slot, copy);
}


/*
 * A write for each hit would pass the line from one worker to the next; it
 * is saved while the slot is among the younger half of its set.
 */
static void
slot_touch(struct meter_zone_slot *set, size_t way,
           struct meter_zone_slot *copy, uint64_t stamp)
{
    size_t younger = 0;

    for (size_t i = 0; i < METER_ZONE_WAYS; i++) {
        younger += load(&set[i].stamp) > copy->stamp;
    }
    if (younger < METER_ZONE_WAYS / 2 || stamp <= copy->stamp) {
        return;
    }
    copy->stamp = stamp;
    store(&set[way].stamp, stamp);
    slot_seal(&set[way], copy);
}


static bool
slot_has_key(const struct meter_zone_slot *slot, const uint64_t key[2])
{
    return load(&slot->key[0]) == key[0] && load(&slot->key[1]) == key[1];
}


/* Two workers may have noted one id twice: the best answer of the set. */
enum meter_zone_state
meter_zone_find(struct meter_zone *zone, const struct meter_zone_id *id,
                uint64_t stamp, bool *is_other)
{
    struct meter_zone_slot *set = &zone->slots[set_of(zone, id->key)];
    uint64_t era = era_of(zone);
    enum meter_zone_state best = METER_ZONE_ABSENT;
    struct meter_zone_slot copy, found;
    size_t way = 0;

    *is_other = false;
    for (size_t i = 0; i < METER_ZONE_WAYS; i++) {
        if (!slot_has_key(&set[i], id->key) ||
            !slot_read(&set[i], era, &copy) || !slot_has_key(&copy, id->key)) {
            continue;
        }
        if (copy.content != id->content) {
            *is_other = true;
        } else if ((copy.state ^ era) > best) {
            best = (enum meter_zone_state)(copy.state ^ era);
            found = copy;
            way = i;
        }
    }
    if (best != METER_ZONE_ABSENT) {
        *is_other = false;
        slot_touch(set, way, &found, stamp);
    }
    return best;
}


/* Where in its set an id goes; PLACE_DURABLE: *copy is the slot there. */
static enum place
choose(const struct meter_zone_slot *set, uint64_t era, const uint64_t key[2],
       size_t *way, struct meter_zone_slot *copy)
{
    enum place place = PLACE_OLDEST;
    uint64_t oldest = UINT64_MAX;

    *way = 0;
    for (size_t i = 0; i < METER_ZONE_WAYS; i++) {
        if (!slot_read(&set[i], era, copy)) {
            if (place > PLACE_FREE) {
                place = PLACE_FREE;
                *way = i;
            }
        } else if (slot_has_key(copy, key)) {
            *way = i;
            if (copy->state == (era | METER_ZONE_DURABLE)) {
                return PLACE_DURABLE;
            }
            place = PLACE_SAME;
        } else if (place == PLACE_OLDEST && copy->stamp < oldest) {
            oldest = copy->stamp;
            *way = i;
        }
    }
    return place;
}


size_t
meter_zone_pending(struct meter_zone *zone, const struct meter_zone_id *id,
                   uint64_t tag, uint64_t seq, uint64_t stamp, bool *is_evicted)
{
    size_t first = set_of(zone, id->key);
    struct meter_zone_slot *set = &zone->slots[first];
    uint64_t era = era_of(zone);
    struct meter_zone_slot copy;
    enum place place;
    size_t way;

    place = choose(set, era, id->key, &way, &copy);
    *is_evicted = place == PLACE_OLDEST;
    if (place == PLACE_DURABLE) {
        slot_touch(set, way, &copy, stamp);
        return first + way;
    }
    copy.key[0] = id->key[0];
    copy.key[1] = id->key[1];
    copy.content = id->content;
    copy.tag = tag;
    copy.seq = seq;
    copy.state = era | METER_ZONE_PENDING;
    copy.stamp = stamp;
    slot_write(&set[way], &copy);
    return first + way;
}


void
meter_zone_settle(struct meter_zone *zone, size_t index, uint64_t tag,
                  uint64_t seq, bool is_durable)
{
    uint64_t era = era_of(zone);
    struct meter_zone_slot *slot;
    struct meter_zone_slot copy;

    if (index >= zone->set_count * METER_ZONE_WAYS) {
        return;
    }
    slot = &zone->slots[index];
    if (!slot_read(slot, era, &copy) ||
        copy.state != (era | METER_ZONE_PENDING) || copy.tag != tag ||
        copy.seq != seq) {
        return;
    }
    copy.state = is_durable ? era | METER_ZONE_DURABLE : METER_ZONE_ABSENT;
    store(&slot->state, copy.state);
    METER_CRASH_POINT("zone_half_written");
    slot_seal(slot, &copy);
}


void
meter_zone_epoch(struct meter_zone *zone, uint64_t epoch)
{
    if (load(&zone->epoch) == epoch) {
        return;
    }
    meter_zone_forget(zone);
    store(&zone->epoch, epoch);
}


void
meter_zone_forget(struct meter_zone *zone)
{
    __atomic_fetch_add(&zone->turn, 1, __ATOMIC_RELAXED);
}


void
meter_zone_sample(const struct meter_zone *zone, size_t first, size_t count,
                  size_t *pending, size_t *durable)
{
    size_t slots = zone->set_count * METER_ZONE_WAYS;
    uint64_t era = era_of(zone);
    struct meter_zone_slot copy;

    *pending = 0;
    *durable = 0;
    for (size_t i = first; i < slots && i - first < count; i++) {
        if (!slot_read(&zone->slots[i], era, &copy)) {
            continue;
        }
        *pending += copy.state == (era | METER_ZONE_PENDING);
        *durable += copy.state == (era | METER_ZONE_DURABLE);
    }
}


void
meter_zone_count(const struct meter_zone *zone, size_t *pending,
                 size_t *durable, size_t *slots)
{
    *slots = zone->set_count * METER_ZONE_WAYS;
    meter_zone_sample(zone, 0, *slots, pending, durable);
}
