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
    enum selftest_verdict (*judge)(const void *result, char *why, size_t size);
};

extern const struct selftest_step selftest_steps[];
extern const size_t selftest_steps_count;

/* session_look: mark is what the session was given. */
enum selftest_verdict
selftest_judge_session(const char *mark, const void *result, char *why,
                       size_t size);

/* A step's statement failed. */
enum selftest_verdict
selftest_judge_error(const struct pg_answer *answer, char *why, size_t size);

/* What selftest_server asks, taken apart so that it can be tested. */
struct selftest_server {
    int32_t version;
    struct meter_str fsync;
    struct meter_str full_page_writes;
    struct meter_str synchronous_commit;
    bool in_recovery;
    struct meter_str session_role;
    bool session_superuser;
    struct meter_str current_role;
    bool current_superuser;
    bool current_bypassrls;
    struct meter_str encoding;
};

enum selftest_verdict
selftest_judge_server(const struct selftest_server *server, char *why,
                      size_t size);
enum selftest_verdict
selftest_judge_version(int32_t version, char *why, size_t size);

#endif
