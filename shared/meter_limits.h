/*
 * meter_limits.h - every bound that both sides of the wire agree on.
 *
 * A limit is checked where bytes enter (reader, JSON scanner, nginx
 * directive), never later; the error text names the limit.
 */

#ifndef METER_LIMITS_H
#define METER_LIMITS_H

/* The envelope, in bytes. */
#define METER_EVENT_ID_SIZE_MAX 255
#define METER_TENANT_SIZE_MAX   255
#define METER_TYPE_SIZE_MAX     128
#define METER_CUSTOMER_SIZE_MAX 255
#define METER_RESOURCE_SIZE_MAX 255
#define METER_SOURCE_SIZE_MAX   1024
#define METER_NAME_SIZE_MAX     255 /* counter, meter and series names */

/* One event as JSON text, and what its attributes may hold. */
#define METER_EVENT_SIZE_MAX            65536
#define METER_ATTRIBUTE_COUNT_MAX       256 /* keys, all levels together */
#define METER_ATTRIBUTE_NAME_SIZE_MAX   128
#define METER_ATTRIBUTE_STRING_SIZE_MAX 8192
#define METER_NUMBER_DIGITS_MAX         64  /* significant digits */
#define METER_NUMBER_EXPONENT_MAX       400 /* magnitude, as 0.d * 10^e */
#define METER_JSON_DEPTH_MAX            16

/* A rule projects at most this many dimensions of this size. */
#define METER_DIMENSION_COUNT_MAX 16
#define METER_DIMENSION_SIZE_MAX  1024

/* One request or DATA frame. */
#define METER_BATCH_EVENTS_MAX 5000
#define METER_BODY_SIZE_MAX    (16u << 20)
#define METER_FRAME_SIZE_MAX   (1u << 20) /* payload behind the header */
#define METER_MUX_BODY_MAX     4096       /* of a request among many */
#define METER_HEADER_COUNT_MAX 64         /* header pairs of a REQUEST */
#define METER_RECORD_SIZE_MAX  4096       /* one captured record */

/* Decimals: 38 digits, 9 of them after the point. */
#define METER_DECIMAL_DIGITS   38
#define METER_DECIMAL_FRACTION 9

#endif
