/*
 * sample.c - makes the events of the benches, see sample.h.
 */

#include "sample.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* splitmix64 */
static uint64_t
sample_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t
sample_random(struct sample *sample)
{
    return sample_mix(sample->state += 0x9e3779b97f4a7c15u);
}

/*
 * The seed is mixed first: the generator itself walks one sequence in equal
 * steps, and seeds must not start near each other on it.
 */
void
sample_init(struct sample *sample, enum sample_ids ids, uint64_t seed,
            uint64_t clock_us)
{
    *sample = (struct sample){
        .state = sample_mix(sample_mix(seed) ^ 0x2545f4914f6cdd1du),
        .clock_us = clock_us,
        .ids = ids,
        .orders = SAMPLE_ORDERS,
    };
}

static void
sample_uuid(struct sample *sample, char out[37])
{
    static const char hex[] = "0123456789abcdef";
    uint64_t high = sample_random(sample);
    uint64_t low = sample_random(sample);
    unsigned version = sample->ids == SAMPLE_IDS_V7 ? 7 : 4;
    char *to = out;

    if (sample->ids == SAMPLE_IDS_V7) {
        high = (sample->clock_us / 1000) << 16 | (high & 0x0fff);
    }
    high = (high & ~(uint64_t)0xf000) | (uint64_t)version << 12;
    low = (low & 0x3fffffffffffffffu) | 0x8000000000000000u;
    for (int nibble = 0; nibble < 32; nibble++) {
        uint64_t half = nibble < 16 ? high : low;

        if (nibble == 8 || nibble == 12 || nibble == 16 || nibble == 20) {
            *to++ = '-';
        }
        *to++ = hex[half >> (60 - 4 * (nibble & 15)) & 15];
    }
    *to = '\0';
}

bool
sample_shape_parse(const char *word, enum sample_shape *out)
{
    static const char *const words[] = {"plain", "series", "keys"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(word, words[i]) == 0) {
            *out = (enum sample_shape)i;
            return true;
        }
    }
    return false;
}

/* The attributes behind the dimensions, with a comma in front. */
static void
sample_more(struct sample *sample, char *out, size_t size)
{
    static const char *const states[] = {"new", "paid", "packed", "sent"};
    uint64_t bits = sample->shape == SAMPLE_PLAIN ? 0 : sample_random(sample);

    out[0] = '\0';
    if (sample->shape == SAMPLE_SERIES) {
        snprintf(out, size,
                 ", \"latencyMs\": %u.%u, \"depth\": %u, \"orderId\": "
                 "\"order-%u\", \"state\": \"%s\"",
                 (unsigned)(bits % 700), (unsigned)(bits >> 10 & 7),
                 (unsigned)(bits >> 16 & 1023),
                 (unsigned)((bits >> 32) % sample->orders), states[bits >> 62]);
    } else if (sample->shape == SAMPLE_KEYS) {
        snprintf(out, size, ", \"device\": \"%016llx\"",
                 (unsigned long long)bits);
    }
}

void
sample_next(struct sample *sample, unsigned tenant, struct sample_event *out)
{
    static const char *const methods[] = {"GET", "POST", "PUT", "DELETE"};
    unsigned pick = (unsigned)(sample_random(sample) % SAMPLE_DIMENSIONS);
    char more[128];

    sample->clock_us += 7;
    sample_uuid(sample, out->event_id);
    snprintf(out->tenant, sizeof(out->tenant), "tenant-%03u",
             tenant % SAMPLE_TENANTS);
    out->ts_us = (int64_t)sample->clock_us;
    sample_more(sample, more, sizeof(more));
    snprintf(out->attributes, sizeof(out->attributes),
             "{\"method\": \"%s\", \"region\": \"eu-west-%u\", \"route\": "
             "\"/v1/items/%u\", \"status\": \"%u\"%s}",
             methods[pick % 4], pick / 4 % 2, pick, 200 + pick % 2, more);
}

size_t
sample_body(struct sample *sample, unsigned tenant, size_t count, char *out,
            size_t size)
{
    size_t at = 0;

    out[at++] = '[';
    for (size_t i = 0; i < count; i++) {
        struct sample_event event;
        time_t seconds;
        struct tm utc;
        int wrote;

        sample_next(sample, tenant, &event);
        seconds = (time_t)(event.ts_us / 1000000);
        gmtime_r(&seconds, &utc);
        wrote = snprintf(
            out + at, size - at,
            "%s{\"event_id\":\"%s\",\"type\":\"api.request\",\"ts\":\"%04d-"
            "%02d-%02dT%02d:%02d:%02d.%06dZ\",\"quantity\":1,"
            "\"attributes\":%s}",
            i == 0 ? "" : ",", event.event_id, utc.tm_year + 1900,
            utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
            (int)(event.ts_us % 1000000), event.attributes);
        if (wrote < 0 || (size_t)wrote >= size - at - 1) {
            return 0;
        }
        at += (size_t)wrote;
    }
    out[at++] = ']';
    return at;
}
