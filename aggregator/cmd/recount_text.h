/*
 * recount_text.h - differences as text and JSON, and how often.
 */

#ifndef CMD_RECOUNT_TEXT_H
#define CMD_RECOUNT_TEXT_H

#include "base/buf.h"
#include "maintain/recount.h"

/* One line each on stdout, at most limit of them. */
struct recount_output {
    struct buf line;
    bool is_json;
    int64_t limit;
    int64_t told;
};

void
recount_output_init(struct recount_output *out, bool is_json, int64_t limit);
void recount_output_fini(struct recount_output *out);
/* A recount_finding_cb; asker is the output. */
void recount_output_finding(void *asker, const struct recount_finding *finding);
/* What the outcome says beside the differences, on stderr. */
void recount_output_notes(const char *command,
                          const struct recount_outcome *outcome);

/* Without the end of line. */
void recount_put_line(struct buf *out, const struct recount_finding *finding);
void recount_put_json(struct buf *out, const struct recount_finding *finding);

#endif
