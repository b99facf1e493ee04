/*
 * dead_letter.h - what the two files of `meterd dead-letter` share.
 */

#ifndef CMD_DEAD_LETTER_H
#define CMD_DEAD_LETTER_H

#include "config/config.h"
#include "meter_digest.h"
#include "store/letter_store.h"

#include <stdio.h>

#define LETTER_SESSION_SIZE 16
/* 32 digits, '-', up to 19 digits, NUL. */
#define LETTER_IDENTITY_SIZE 53

static inline void
dead_letter_identity_format(const struct letter_identity *identity,
                            char out[LETTER_IDENTITY_SIZE])
{
    meter_hex(identity->session, LETTER_SESSION_SIZE, out);
    snprintf(out + 2 * LETTER_SESSION_SIZE,
             LETTER_IDENTITY_SIZE - 2 * LETTER_SESSION_SIZE, "-%lld",
             (long long)identity->seq);
}

/* What is to be replayed. */
struct dead_letter_options {
    struct config *config;
    const struct letter_identity *identity; /* NULL: all of the tenant */
    const char *tenant;                     /* NULL: of all tenants */
    bool is_dry; /* only tells what the rules say now */
};

/*
 * Tells letters that are rejected again and the counts on stdout. Returns the
 * exit status: 1 when some could not be replayed.
 */
int dead_letter_replay(const struct dead_letter_options *options);

#endif
