/* The process among its neighbours: the background, the supervisor, the pid file. */
#ifndef MAYFLY_SERVER_DAEMON_H
#define MAYFLY_SERVER_DAEMON_H

#include "base/log.h"
#include "config/config.h"

/* Before anything else runs: tells a supervisor that we are starting or, if
 * `daemonize` asks for it and nobody supervises us, goes to the background; then
 * only the child returns. False: the log says why. */
NODISCARD bool daemon_begin(struct config *c, const struct log *log);

void daemon_write_pid(const struct config *c, const struct log *log);

/* All data is loaded: tells systemd. */
void daemon_ready(const struct config *c);

/* The server is going to stop: tells systemd and takes the pid file away. */
void daemon_end(const struct config *c);

#endif
