/*
 * replay_csv.h - a record of CSV to an event in JSON. Pure.
 *
 *   header -> columns;  record -> [replay_csv] -> {"event_id": ..., ...}
 *
 * Columns named event_id, type, ts, tenant, customer, resource, quantity and
 * source are the fields of these names. `attributes` holds a JSON object.
 * Any other column is the attribute of its name, dots and all, which is how
 * rules find it; `attributes.NAME` is the attribute NAME, for names that are
 * those of fields.
 *
 * An empty cell is absent. An attribute is a number when its cell is one as
 * JSON writes it, true and false are themselves, all else is text; a column
 * that is named by --text is always text. Quotes say nothing about types.
 */

#ifndef CMD_REPLAY_CSV_H
#define CMD_REPLAY_CSV_H

#include "base/arena.h"
#include "base/buf.h"

struct replay_csv;

/*
 * From the first record of a file. texts: names of columns that are always
 * text. NULL: *error says why this is no header; it lies in the arena, as
 * all that is needed later.
 */
MUST_CHECK struct replay_csv *
replay_csv_create(struct meter_str header, const char *const *texts,
                  size_t text_count, struct arena *arena, const char **error);
void replay_csv_destroy(struct replay_csv *csv);

/*
 * Puts the event behind what is in out. NULL, or the reason against the
 * record, in the arena or a literal; out is then as it was. An out that
 * failed is to be looked for.
 */
MUST_CHECK const char *
replay_csv_convert(struct replay_csv *csv, struct meter_str record,
                   struct arena *arena, struct buf *out);

#endif
