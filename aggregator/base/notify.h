/*
 * notify.h - what a service manager is told: ready, status, alive, stopping.
 *
 *   daemon -> [notify] -> datagram to $NOTIFY_SOCKET
 *
 * The protocol of systemd's Type=notify, by hand; one for the process. READY=1
 * goes out once: when the database is there, or after five seconds without it,
 * because nginx is started after meterd and serves without a database. Without
 * $NOTIFY_SOCKET nothing is sent. A message that cannot be sent is dropped: the
 * manager's word for that is a time-out.
 */

#ifndef BASE_NOTIFY_H
#define BASE_NOTIFY_H

#include "base/check.h"

#include <uv.h>

/*
 * Takes the manager's variables out of the environment, so that no child speaks
 * for this process; sends WATCHDOG=1 from the loop where they ask for it.
 */
void notify_start(uv_loop_t *loop);
/* True: commits are possible. Sends when that has changed. */
void notify_database(bool is_there);
void notify_stopping(void);
/* Closes its handles; after notify_start only. */
void notify_close(void);

#endif
