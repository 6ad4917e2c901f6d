/* Running as a daemon: the background, the supervisor, the pid file. */
#ifndef MAYFLY_SERVER_DAEMON_H
#define MAYFLY_SERVER_DAEMON_H

#include "base/log.h"
#include "config/config.h"

/* Call it first: notifies a supervisor that we are starting or, if `daemonize` is set and there is no
 * supervisor, goes to the background; then only the child returns. False: the log says why. */
NODISCARD bool daemon_begin(struct config *c, const struct log *log);

void daemon_write_pid(const struct config *c, const struct log *log);

/* All data is loaded: notifies systemd. */
void daemon_ready(const struct config *c);

/* The server is about to stop: notifies systemd and removes the pid file. */
void daemon_end(const struct config *c);

#endif
