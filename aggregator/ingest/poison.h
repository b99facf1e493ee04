/*
 * poison.h - which record was in hand when the process died.
 *
 *   record -> mark -> [state_dir/poison, mapped] -> next start -> poison?
 *
 * A record that crashes meterd would crash it again after every restart,
 * since its ring still has it. So each record is named in a mapped file
 * before it is read. When the process dies of a signal that its own code
 * raised, the next one finds the name and counts a crash against it; a record
 * with POISON_CRASHES_MAX of them is poison: it is not read any more but set
 * aside. SIGKILL and power loss count against nobody.
 *
 * A crash that comes later, while the record is being stored, would name no
 * one, since many records are stored at a time. After any crash we are
 * cautious: for POISON_CAUTION_MS or POISON_CAUTION_RECORDS records are
 * stored one by one, each with its own mark.
 *
 * Without the file (no directory, disk full) all this is left out.
 */

#ifndef INGEST_POISON_H
#define INGEST_POISON_H

#include "base/check.h"

#define POISON_CRASHES_MAX     3
#define POISON_ENTRIES_MAX     64 /* records with a crash, newest ones */
#define POISON_CAUTION_MS      60000
#define POISON_CAUTION_RECORDS 1000

struct poison;

/* Where a record was when its mark was made. */
enum poison_place {
    POISON_READ,  /* in one call of ours */
    POISON_STORE, /* in a transaction, now and then; READ goes first */
    POISON_PLACES
};

/*
 * Takes the file over from the process before: one at a time, the caller
 * holds the directory's lock. NULL: logged, go without.
 */
struct poison *poison_open(const char *state_dir, uint64_t now_ms);
/* A clean end: nobody is poisoned. NULL is allowed. */
void poison_close(struct poison *poison);

/*
 * From now on signals of our own making (SIGSEGV, SIGBUS, SIGILL, SIGFPE,
 * SIGABRT) leave a note in the file, then do what they did before.
 */
void poison_watch(struct poison *poison);

void poison_mark(struct poison *poison, enum poison_place place,
                 const uint8_t session[16], uint64_t seq);
void poison_clear(struct poison *poison, enum poison_place place);

/* Crashes at which this record was in hand; POISON_CRASHES_MAX: poison. */
uint64_t poison_crashes(const struct poison *poison, const uint8_t session[16],
                        uint64_t seq);

/* Records are to be stored one by one. */
bool poison_is_cautious(const struct poison *poison);
/* As many were stored, and this is the time: caution may end. */
void poison_passed(struct poison *poison, size_t count, uint64_t now_ms);

/*
 * For tests: METERD_TEST_POISON=text dies of a record that holds the text
 * when it is read, METERD_TEST_POISON_COMMIT=text when it is stored.
 */
extern bool poison_test_armed;
void poison_test(enum poison_place place, struct meter_str record);

#endif
