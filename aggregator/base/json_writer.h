/*
 * json_writer.h - JSON output into a buf; the only place that escapes.
 *
 * Commas are put by the writer: json_object_begin, json_key, json_string,
 * ... Strings must be valid UTF-8 for the output to be so; control bytes
 * (C0, DEL, C1), quotes, backslashes, U+2028/2029 and changes of direction
 * are escaped, bytes that are no UTF-8 become U+FFFD.
 */

#ifndef BASE_JSON_WRITER_H
#define BASE_JSON_WRITER_H

#include "base/buf.h"

struct json_writer {
    struct buf *out;
    bool comma; /* the next value needs one */
};

void json_writer_init(struct json_writer *json, struct buf *out);
void json_object_begin(struct json_writer *json);
void json_object_end(struct json_writer *json);
void json_array_begin(struct json_writer *json);
void json_array_end(struct json_writer *json);
void json_key(struct json_writer *json, const char *key);
void json_key_str(struct json_writer *json, struct meter_str key);
void json_string(struct json_writer *json, struct meter_str value);
void json_text(struct json_writer *json, const char *value);
void json_int(struct json_writer *json, int64_t value);
/* A 64-bit number as a string: "123". */
void json_int_string(struct json_writer *json, int64_t value);
void json_bool(struct json_writer *json, bool value);
void json_null(struct json_writer *json);
/* RFC 3339 UTC. */
void json_time(struct json_writer *json, int64_t ts_us);
/* Bytes that are JSON already. */
void json_raw(struct json_writer *json, struct meter_str value);

/* Only the escaped bytes, without quotes. */
void json_escape(struct buf *out, struct meter_str value);

#endif
