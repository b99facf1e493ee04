/*
 * peer.h - who may speak on the socket: our own user, root, and the users
 * named in limits.peers.
 */

#ifndef EDGE_PEER_H
#define EDGE_PEER_H

#include "config/config.h"

#include <sys/types.h>

struct peers {
    uid_t uids[CONFIG_PEERS_MAX + 2];
    size_t count;
};

/* Looks the names up; one that is unknown is logged and left out. */
void peers_init(struct peers *peers, const struct config_users *users);
bool peers_allow(const struct peers *peers, uid_t uid);

/* The other end of a connected socket. False: cannot be told. */
MUST_CHECK bool peer_of(int fd, uid_t *uid, pid_t *pid);

#endif
