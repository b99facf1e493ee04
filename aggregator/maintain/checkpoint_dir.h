/*
 * checkpoint_dir.h - the files of a directory of checkpoints.
 *
 *   checkpoint-20260901T120000Z.ndjson
 *
 * Named by the second of their snapshot, in UTC. Whatever has another name
 * is none of ours and is left alone.
 */

#ifndef MAINTAIN_CHECKPOINT_DIR_H
#define MAINTAIN_CHECKPOINT_DIR_H

#include "base/check.h"

#define CHECKPOINT_NAME_SIZE 35 /* with the NUL */

void checkpoint_name_format(int64_t created_us, char out[CHECKPOINT_NAME_SIZE]);
/* Exactly such a name; the instant is a whole second. */
MUST_CHECK bool checkpoint_name_parse(const char *name, int64_t *created_us);
/* The name of one that is being written, or was left so. */
bool checkpoint_name_is_temporary(const char *name);

/*
 * Removes all but the newest `keep` files, and what a killed export has
 * left. False: logged; what could be removed is.
 */
MUST_CHECK bool checkpoint_dir_keep(const char *path, size_t keep);

#endif
