/*
 * dead_letter_text.h - dead letters as people and programs read them. Pure.
 *
 *   letter_row -> [dead_letter_text] -> a line, fields, JSON
 *
 * The identity of a letter is its session in 32 hexadecimal digits, a '-'
 * and its sequence number: the same two words that stand in a minted id.
 */

#ifndef CMD_DEAD_LETTER_TEXT_H
#define CMD_DEAD_LETTER_TEXT_H

#include "base/json_writer.h"
#include "cmd/letter_store.h"

/* 32 digits, '-', up to 19 digits, NUL. */
#define DEAD_LETTER_IDENTITY_SIZE 53

void dead_letter_identity_format(const struct letter_identity *identity,
                                 char out[DEAD_LETTER_IDENTITY_SIZE]);
/* The session may have the dashes of a UUID. False: no identity. */
MUST_CHECK bool
dead_letter_identity_parse(const char *text, struct letter_identity *out);

/* One line with its end; and the line above the first. */
void dead_letter_put_head(struct buf *out);
void dead_letter_put_line(struct buf *out, const struct letter_row *row);
/* Everything, a field on each line; the event as JSON. */
void dead_letter_put_fields(struct buf *out, const struct letter_row *row);

/* An object; is_whole: with the decoded record. */
void dead_letter_json(struct json_writer *json, const struct letter_row *row,
                      bool is_whole);

#endif
