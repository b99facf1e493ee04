/*
 * socket_file.h - the listening socket as a file that one process owns.
 *
 * A lock file beside the socket (PATH.lock) is held with flock for the
 * life of the process; its holder alone may replace the socket. The socket
 * is bound under a temporary name with mode 0660 and renamed, so that a
 * path that exists can always be connected to, and what a crash left
 * behind is replaced. A socket that somebody removed, alone or with its
 * directory, is made again; one that somebody else listens on is left to
 * him.
 */

#ifndef EDGE_SOCKET_FILE_H
#define EDGE_SOCKET_FILE_H

#include "base/check.h"

#include <sys/types.h>

#define SOCKET_PATH_SIZE_MAX 107 /* sun_path without its NUL */

struct socket_file {
    char path[SOCKET_PATH_SIZE_MAX + 1];
    int lock; /* descriptors; -1: none */
    int fd;
    dev_t device; /* of the socket that we made */
    ino_t inode;
    bool is_quiet; /* why it cannot be made was said */
};

/* False: logged, nothing is held. fd listens and does not block. */
MUST_CHECK bool socket_file_open(struct socket_file *file, const char *path);
/* The path leads to our socket, and the lock to our lock. */
MUST_CHECK bool socket_file_is_there(const struct socket_file *file);
/*
 * Makes the socket again. fd keeps its number, but is another socket: forget
 * it before, look at it anew after. False: not possible now, the old one is
 * as it was; logged once.
 */
MUST_CHECK bool socket_file_renew(struct socket_file *file);
/* Removes the socket, if it is ours, and closes fd; the lock stays. */
void socket_file_leave(struct socket_file *file);
/* The same, then lets go of the lock. */
void socket_file_close(struct socket_file *file);

#endif
