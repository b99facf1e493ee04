/*
 * writer_file.h - the writer id of a lane: a random UUID in a locked file.
 *
 * The file is held with flock for the life of the process, so two processes
 * on one host never share a writer. A copied state directory is caught by
 * the epoch instead.
 */

#ifndef STORE_WRITER_FILE_H
#define STORE_WRITER_FILE_H

#include "base/check.h"

/*
 * Opens state_dir/writer-<index>, locks it and reads the id; makes the file
 * (0600) and draws an id when there is none. *fd is to be kept open. False:
 * logged.
 */
MUST_CHECK bool
writer_file_open(const char *state_dir, int index, int *fd, uint8_t writer[16]);

#endif
