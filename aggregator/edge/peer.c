/*
 * peer.c - see peer.h.
 *
 * Names are looked up at start and at reload only: the look-up may read
 * files, which must not happen per connection.
 */

#include "edge/peer.h"

#include "base/log.h"

#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

void
peers_init(struct peers *peers, const struct config_users *users)
{
    peers->count = 0;
    peers->uids[peers->count++] = geteuid();
    peers->uids[peers->count++] = 0;
    CHECK(users->count <= CONFIG_PEERS_MAX);
    for (size_t i = 0; i < users->count; i++) {
        const struct passwd *user = getpwnam(users->names[i]);

        if (user == NULL) {
            log_warn("listener", "limits.peers names an unknown user",
                     log_str("user", users->names[i]));
            continue;
        }
        peers->uids[peers->count++] = user->pw_uid;
    }
}

bool
peers_allow(const struct peers *peers, uid_t uid)
{
    for (size_t i = 0; i < peers->count; i++) {
        if (peers->uids[i] == uid) {
            return true;
        }
    }
    return false;
}

bool
peer_of(int fd, uid_t *uid, pid_t *pid)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        size != sizeof(peer)) {
        return false;
    }
    *uid = peer.uid;
    *pid = peer.pid;
    return true;
}
