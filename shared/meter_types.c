/*
 * meter_types.c - the name of each verdict.
 *
 * The names are part of the HTTP API, of log lines and of metric labels.
 */

#include "meter_types.h"


const char *
meter_verdict_name(enum meter_verdict verdict)
{
    static const char *const names[METER_VERDICT_COUNT] = {
        [METER_VERDICT_ACCEPTED] = "accepted",
        [METER_VERDICT_DUPLICATE] = "duplicate",
        [METER_VERDICT_CONFLICT] = "conflict",
        [METER_VERDICT_REJECTED] = "rejected",
    };

    if ((unsigned)verdict >= METER_VERDICT_COUNT) {
        return "?";
    }
    return names[verdict];
}
