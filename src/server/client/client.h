/* What CLIENT shares with other connection commands. */
#ifndef MAYFLY_SERVER_CLIENT_CLIENT_H
#define MAYFLY_SERVER_CLIENT_CLIENT_H

#include "server/server.h"

/* Names have no spaces, line breaks or control characters. False: error replied. */
NODISCARD bool client_set_name(struct ctx *c, bytes name);

i64 client_age_s(const struct conn *c);

/* The line CLIENT LIST, CLIENT INFO and the log show for a connection. */
void client_describe(struct conn *c, struct buf *out);

/* To be called before: makes the running command, or the EXEC or script around it, the connection's last
 * one. */
void client_note_running(struct ctx *c);

#endif
