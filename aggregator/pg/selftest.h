/*
 * selftest.h - may meterd work with this server and this role? Pure.
 *
 * pg_conn runs the steps at every connect and hands the results over. A
 * server that does not keep what it was told to commit, or a role that
 * could read past row-level security, is refused with one sentence.
 */

#ifndef PG_SELFTEST_H
#define PG_SELFTEST_H

#include "pg/conn.h"

#define STORE_ROLE_WRITER "meter_writer"
#define STORE_ROLE_READER "meter_reader"

enum selftest_verdict {
    SELFTEST_OK,
    SELFTEST_AWAY,   /* cannot serve now, may later: back off */
    SELFTEST_REFUSED /* somebody must change something */
};

struct selftest_step {
    enum statement statement;
    const char *role; /* only for this one; NULL: for every role */
    /* NULL: any answer will do. */
    enum selftest_verdict (*judge)(const void *result, char *why, size_t size);
};

extern const struct selftest_step selftest_steps[];
extern const size_t selftest_steps_count;

/*
 * The answer to a step, or to what set the session (step NULL). mark is what
 * the session was given. why: one sentence unless OK.
 */
enum selftest_verdict
selftest_judge(const struct selftest_step *step, const char *mark,
               const struct pg_answer *answer, char *why, size_t size);

#endif
