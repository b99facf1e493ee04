/*
 * meter_hash.h - placement hash and checksum of our own data.
 *
 * Never an identity: published XXH3 collisions are seed-independent.
 */

#ifndef METER_HASH_H
#define METER_HASH_H

#include "meter_types.h"

/* XXH3, for choosing a set or a bucket. */
uint64_t meter_hash(const void *data, size_t size, uint64_t seed);

/* CRC-32C (Castagnoli), start with crc 0; chains: f(f(0,a),b) = f(0,ab). */
uint32_t meter_crc32c(uint32_t crc, const void *data, size_t size);

/* The same answers from a table: for machines without SSE4.2, and tests. */
uint32_t meter_crc32c_table(uint32_t crc, const void *data, size_t size);

#endif
