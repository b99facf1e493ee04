/*
 * meter_crash.c - named points where a test may kill the process.
 */

#include "meter_crash.h"

void (*meter_crash_hook)(const char *name) = NULL;

const char *const meter_crash_names[] = {
    "ring_before_record",
    "ring_mid_record",
    "ring_before_head",
    "ring_after_head",
    "ring_before_counts_end",
    "slot_reserved",
    "slot_mid_body",
    "slot_before_answered",
    "slot_answered",
    "slot_before_free",
    "cell_mid_open",
    "cell_opened",
    "cell_before_flip",
    "cell_after_flip",
    "cell_before_free",
    "loss_before_free",
    "ack_half_written",
    "claim_before_emit",
    "claim_mid_emit",
    "renew_mid",
    NULL,
};
