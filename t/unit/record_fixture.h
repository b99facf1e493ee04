/*
 * record_fixture.h - puts one record of a ring into memory.
 */

#ifndef UNIT_RECORD_FIXTURE_H
#define UNIT_RECORD_FIXTURE_H

#include "meter_cmocka.h"
#include "meter_ring.h"

/* Returns the size of the whole record, header and padding included. */
static inline size_t
put_record(uint8_t *data, size_t room, uint64_t seq, uint8_t kind,
           struct meter_str body)
{
    struct meter_record record = {.seq = seq, .kind = kind, .body = body};
    struct meter_writer writer;

    meter_writer_init(&writer, data, room);
    meter_record_encode(&record, &writer);
    assert_false(writer.failed);
    assert_int_equal(writer.at, meter_record_size(body.size));
    return writer.at;
}

#endif
