/*
 * suspect.h - which record was in hand when the process died.
 *
 *   record -> mark -> [state_dir/suspect, mapped] -> next start -> poison?
 *
 * A record that crashes meterd would crash it again after every restart,
 * since its ring still has it. So each record is named in a mapped file
 * before it is read. When the process dies of a signal that its own code
 * raised, the next one finds the name and counts a crash against it; a record
 * with SUSPECT_CRASHES_MAX of them is poison: it is not read any more but set
 * aside. SIGKILL and power loss count against nobody.
 *
 * A crash that comes later, while the record is being stored, would name no
 * one, since many records are stored at a time. After any crash we are
 * cautious: for SUSPECT_CAUTION_MS or SUSPECT_CAUTION_RECORDS records are
 * stored one by one, each with its own mark.
 *
 * Without the file (no directory, disk full) all this is left out.
 */

#ifndef INGEST_SUSPECT_H
#define INGEST_SUSPECT_H

#include "base/check.h"

#define SUSPECT_CRASHES_MAX     3
#define SUSPECT_ENTRIES_MAX     64 /* records with a crash, newest ones */
#define SUSPECT_CAUTION_MS      60000
#define SUSPECT_CAUTION_RECORDS 1000

struct suspect;

/* Where a record was when its mark was made. */
enum suspect_place {
    SUSPECT_READ,  /* in one call of ours */
    SUSPECT_STORE, /* in a transaction, now and then; READ goes first */
    SUSPECT_PLACES
};

/*
 * Takes the file over from the process before: one at a time, the caller
 * holds the directory's lock. NULL: logged, go without.
 */
struct suspect *suspect_open(const char *state_dir, uint64_t now_ms);
/* A clean end: nobody is suspected. NULL is allowed. */
void suspect_close(struct suspect *suspect);

/*
 * From now on signals of our own making (SIGSEGV, SIGBUS, SIGILL, SIGFPE,
 * SIGABRT) leave a note in the file, then do what they did before.
 */
void suspect_watch(struct suspect *suspect);

void suspect_mark(struct suspect *suspect, enum suspect_place place,
                  const uint8_t session[16], uint64_t seq);
void suspect_clear(struct suspect *suspect, enum suspect_place place);

/* Crashes at which this record was in hand; SUSPECT_CRASHES_MAX: poison. */
uint64_t suspect_crashes(const struct suspect *suspect,
                         const uint8_t session[16], uint64_t seq);

/* Records are to be stored one by one. */
bool suspect_is_cautious(const struct suspect *suspect);
/* As many were stored, and this is the time: caution may end. */
void suspect_passed(struct suspect *suspect, size_t count, uint64_t now_ms);

/*
 * For tests: METERD_TEST_POISON=text dies of a record that holds the text
 * when it is read, METERD_TEST_POISON_COMMIT=text when it is stored.
 */
extern bool suspect_test_armed;
void suspect_test(enum suspect_place place, struct meter_str record);

#endif
