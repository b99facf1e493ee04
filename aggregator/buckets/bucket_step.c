/*
 * bucket_step.c - asking, and waiting for all answers of a state.
 *
 *   begin -> ask, ask, command -> send -> take, take, take -> step_done
 */

#include "buckets/bucket_lane_state.h"

#include <stdio.h>

/* A server that became read-only, statements of an older schema. */
static bool
needs_connection(const char *sqlstate)
{
    static const char *const classes[] = {"08", "25", "26", "0A"};

    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (strncmp(sqlstate, classes[i], 2) == 0) {
            return true;
        }
    }
    return false;
}


/* What an error says about the next try. */
static enum lane_again
again_of(const struct pg_answer *answer)
{
    switch (answer->kind) {
    case SQL_UNIQUE: return AGAIN_AT_ONCE;
    case SQL_RETRY:
        return strcmp(answer->sqlstate, "55P03") == 0 ? AGAIN_LATER
                                                      : AGAIN_AT_ONCE;
    case SQL_DATA:
    case SQL_BUG:
    case SQL_NO_PARTITION: return AGAIN_APART;
    case SQL_REDO_CAREFUL:
    case SQL_AWAY: break;
    }
    return needs_connection(answer->sqlstate) ? AGAIN_ELSEWHERE : AGAIN_LATER;
}


void
bucket_step_fail(struct bucket_lane *lane, enum lane_again again,
                 const char *sqlstate, const char *reason)
{
    if (lane->is_failed) {
        return;
    }
    lane->is_failed = true;
    lane->again = again;
    snprintf(lane->sqlstate, sizeof(lane->sqlstate), "%s", sqlstate);
    snprintf(lane->reason, sizeof(lane->reason), "%s", reason);
}


bool
bucket_step_take(struct bucket_lane *lane, const struct pg_answer *answer)
{
    CHECK(lane->answers_due > 0);
    lane->answers_due--;
    if (answer->outcome == PG_OUTCOME_LOST) {
        lane->is_lost = true;
    } else if (answer->outcome == PG_OUTCOME_ERROR) {
        bucket_step_fail(lane, again_of(answer), answer->sqlstate,
                         answer->message);
    }
    return answer->outcome == PG_OUTCOME_OK && !lane->is_failed &&
           !lane->is_lost;
}


void
bucket_step_if_done(struct bucket_lane *lane)
{
    if (lane->answers_due == 0) {
        bucket_lane_step_done(lane);
    }
}


void
bucket_step_plain_cb(void *asker, const struct pg_answer *answer)
{
    struct bucket_lane *lane = asker;

    (void)bucket_step_take(lane, answer);
    bucket_step_if_done(lane);
}


void
bucket_step_ask(struct bucket_lane *lane, enum statement statement,
                pg_answer_cb cb)
{
    lane->answers_due++;
    pg_conn_query(lane->conn, statement, &lane->params, cb, lane);
}


void
bucket_step_command(struct bucket_lane *lane, enum statement statement,
                    pg_answer_cb cb)
{
    lane->answers_due++;
    pg_conn_command(lane->conn, statement, cb, lane);
}


/* What is asked may be lost at once: the step does not end in between. */
void
bucket_step_begin(struct bucket_lane *lane, enum lane_state state)
{
    CHECK(lane->answers_due == 0);
    lane->state = state;
    lane->is_lost = false;
    lane->is_failed = false;
    lane->answers_due = 1;
}


void
bucket_step_send(struct bucket_lane *lane)
{
    pg_conn_flush(lane->conn);
    lane->answers_due--;
    bucket_step_if_done(lane);
}


void
bucket_step_put_lane(struct bucket_lane *lane)
{
    pg_params_reset(&lane->params);
    pg_param_uuid(&lane->params, lane->writer);
    pg_param_int4(&lane->params, lane->options.index);
}
