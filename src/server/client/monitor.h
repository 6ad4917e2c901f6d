/* MONITOR: a copy of every command for the connections that asked for it. */
#ifndef MAYFLY_SERVER_CLIENT_MONITOR_H
#define MAYFLY_SERVER_CLIENT_MONITOR_H

#include "server/server.h"

void monitor_leave(struct server *s, struct session *session); /* if it is in MONITOR mode */

/* Neither administrative commands nor secrets are shown. */
static inline bool monitor_shows(const struct command *cmd)
{
    return !(cmd->flags & (CMD_SKIP_MONITOR | CMD_ADMIN));
}

void monitor_feed(struct server *s, const struct conn *from, const struct command *cmd, int argc,
                  const bytes *argv);

/* The same for any command; commands of a script are marked as such. */
void monitor_show(struct server *s, const struct conn *from, int argc, const bytes *argv);
void monitor_tell(struct server *s, u32 db, const char *from, int argc, const bytes *argv); /* no client */

#endif
