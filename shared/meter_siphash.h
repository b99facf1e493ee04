/*
 * meter_siphash.h - SipHash-2-4 with 128 bits: a keyed digest for the edge.
 *
 * For the identity of an id in the zone: a chosen id cannot be made to meet
 * another one without the key, and it costs a tenth of an HMAC.
 */

#ifndef METER_SIPHASH_H
#define METER_SIPHASH_H

#include "meter_types.h"

void meter_siphash128(const uint8_t key[16], const void *data, size_t size,
                      uint64_t out[2]);

#endif
