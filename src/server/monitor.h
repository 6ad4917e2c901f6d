/* MONITOR: a copy of every command for the connections that asked. */
#ifndef MAYFLY_SERVER_MONITOR_H
#define MAYFLY_SERVER_MONITOR_H

#include "server/server.h"

void monitor_feed(struct server *s, const struct conn *from, const struct command *cmd, int argc,
                  const bytes *argv);

#endif
