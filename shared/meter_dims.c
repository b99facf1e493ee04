/*
 * meter_dims.c - dimension sets: one canonical encoding, one key.
 *
 *   projected attributes -> sort -> [key] -> counter and series rows
 *                                -> [json] -> what a reader is shown
 *
 * encode and key write the same bytes; t/unit holds them together. Nothing
 * here looks inside a value: numbers come in canonical text already.
 */

#include "meter_dims.h"

#include "meter_tuple.h"

#define ENCODING_VERSION 1


/* By insertion: sets are small and mostly come in order already. */
bool
meter_dims_sort(struct meter_dim *dims, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct meter_dim moved = dims[i];
        size_t at = i;

        while (at > 0) {
            int order = meter_str_compare(dims[at - 1].name, moved.name);

            if (order == 0) {
                dims[at] = moved; /* every dimension is still there */
                return false;
            }
            if (order < 0) {
                break;
            }
            dims[at] = dims[at - 1];
            at--;
        }
        dims[at] = moved;
    }
    return true;
}


void
meter_dims_encode(const struct meter_dim *dims, size_t count,
                  struct meter_writer *out)
{
    meter_put_u8(out, ENCODING_VERSION);
    for (size_t i = 0; i < count; i++) {
        if (dims[i].kind == METER_DIM_NULL) {
            continue;
        }
        meter_put_str(out, dims[i].name);
        meter_put_u8(out, (uint8_t)dims[i].kind);
        meter_put_str(out, dims[i].value);
    }
}


void
meter_dims_key(const struct meter_dim *dims, size_t count,
               uint8_t key[METER_DIGEST_SIZE])
{
    struct meter_tuple tuple;

    meter_tuple_init(&tuple, NULL);
    meter_tuple_u8(&tuple, ENCODING_VERSION);
    for (size_t i = 0; i < count; i++) {
        if (dims[i].kind == METER_DIM_NULL) {
            continue;
        }
        meter_tuple_str(&tuple, dims[i].name);
        meter_tuple_u8(&tuple, (uint8_t)dims[i].kind);
        meter_tuple_str(&tuple, dims[i].value);
    }
    meter_tuple_final(&tuple, key);
}


static void
put_json_string(struct meter_writer *out, struct meter_str str)
{
    meter_put_u8(out, '"');
    meter_put_json_escaped(out, str);
    meter_put_u8(out, '"');
}


void
meter_dims_json(const struct meter_dim *dims, size_t count,
                struct meter_writer *out)
{
    meter_put_u8(out, '{');
    for (size_t i = 0; i < count; i++) {
        if (i > 0) {
            meter_put_u8(out, ',');
        }
        put_json_string(out, dims[i].name);
        meter_put_u8(out, ':');
        switch (dims[i].kind) {
        case METER_DIM_STRING: put_json_string(out, dims[i].value); break;
        case METER_DIM_NUMBER:
        case METER_DIM_BOOL:
            meter_put_bytes(out, dims[i].value.data, dims[i].value.size);
            break;
        case METER_DIM_NULL: meter_put_bytes(out, "null", 4); break;
        }
    }
    meter_put_u8(out, '}');
}
