/*
 * notify.h - what a service manager is told: ready, status, alive, stopping.
 *
 *   aggregator -> [notify] -> datagram to $NOTIFY_SOCKET
 *
 * The protocol of systemd's Type=notify, by hand. Without $NOTIFY_SOCKET every
 * call does nothing. A message that cannot be sent is dropped: the manager's
 * word for that is a time-out.
 */

#ifndef OPS_NOTIFY_H
#define OPS_NOTIFY_H

#include "base/check.h"

/*
 * Takes $NOTIFY_SOCKET and $WATCHDOG_USEC out of the environment, so that no
 * child speaks for this process.
 */
void notify_open(void);
/* Lines NAME=value, separated by a newline. */
void notify_send(const char *lines);
/* How often WATCHDOG=1 is to be sent; 0: never. */
uint64_t notify_watchdog_ms(void);

#endif
