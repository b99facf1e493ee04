/*
 * letter_store.h - dead letters in the database, for the dead-letter command.
 *
 * Blocking; one connection as meter_writer (database). Only reads: what
 * deletes a letter is the transaction that books it, see ingest.h.
 */

#ifndef CMD_LETTER_STORE_H
#define CMD_LETTER_STORE_H

#include "base/check.h"

struct letter_store;

/* What names a dead letter: the ring's session and the record's number. */
struct letter_identity {
    uint8_t session[16];
    int64_t seq;
};

/* All pointers are valid during the callback only. */
struct letter_row {
    struct meter_str tenant;
    bool has_identity;
    struct letter_identity identity;
    struct meter_str reason;
    struct meter_str record; /* whole, as it stood in the ring */
    int64_t recorded_us;
    struct meter_str node; /* data NULL: not known */
};

/* Which letters: tenant NULL: all tenants; since_us 0: of any time. */
struct letter_filter {
    const char *tenant;
    int64_t since_us;
    int64_t limit;
};

/* NULL: logged. */
MUST_CHECK struct letter_store *letter_store_open(const char *url);
void letter_store_close(struct letter_store *store);

typedef void (*letter_row_cb)(void *asker, const struct letter_row *row);
/* Newest first. False: logged, as all below. */
MUST_CHECK bool letter_store_list(struct letter_store *store,
                                  const struct letter_filter *filter,
                                  letter_row_cb cb, void *asker);

typedef void (*letter_reason_cb)(void *asker, struct meter_str reason,
                                 int64_t letters);
/* The most frequent reasons, limit of them; *total: letters of all. */
MUST_CHECK bool
letter_store_reasons(struct letter_store *store,
                     const struct letter_filter *filter, letter_reason_cb cb,
                     void *asker, int64_t *total);

/* Those that can be replayed, oldest first; *out is for free(). */
MUST_CHECK bool
letter_store_identities(struct letter_store *store,
                        const struct letter_filter *filter,
                        struct letter_identity **out, size_t *count);
/* By identity, in that order, with their node; those that are gone are left
   out. */
MUST_CHECK bool letter_store_read(struct letter_store *store,
                                  const struct letter_identity *identities,
                                  size_t count, letter_row_cb cb, void *asker);

#endif
