/*
 * replay_place.h - where a replay begins, and how far it has come.
 *
 *   resume file -> [replay_place] -> first byte, or where it was
 *   committed batch -> [replay_place] -> resume file
 *
 * A resume of another file, or of another command line, is refused: to begin
 * anew is for the operator to say. One that speaks of another database, or
 * of more than this one has, is not believed: the replay starts over, which
 * costs time only.
 */

#ifndef CMD_REPLAY_PLACE_H
#define CMD_REPLAY_PLACE_H

#include "cmd/replay_input.h"
#include "cmd/replay_resume.h"

struct replay_place {
    const char *name; /* of the file, for messages */
    bool is_kept;     /* there is a resume file to write */
    bool is_resuming; /* there was one */
    char path[PATH_MAX];
    struct replay_resume resume; /* as it stands now */
};

/*
 * Looks for a resume of the input in the directory. Standard input has none.
 * False: told on stderr.
 */
MUST_CHECK bool
replay_place_open(struct replay_place *place, const struct replay_input *input,
                  const char *directory);
/*
 * The database is known: its incarnation, our writer, and so many batches
 * of that writer. Is it the one that the resume speaks of?
 */
void replay_place_settle(struct replay_place *place, uint64_t db_epoch,
                         const uint8_t writer[16], int64_t batch);
/* Writes the resume, which is true by now. False: told on stderr. */
MUST_CHECK bool replay_place_save(const struct replay_place *place);
/* All is done: no resume any more. */
void replay_place_end(const struct replay_place *place);

#endif
