/* The users of a running server: where they are read from (`user` lines, aclfile, requirepass), where they
 * are written to (ACL SAVE, CONFIG REWRITE), and what their changes mean for open connections. What a user
 * may do is decided in exec/acl.h. */
#ifndef MAYFLY_SERVER_CLIENT_USERS_H
#define MAYFLY_SERVER_CLIENT_USERS_H

#include "server/server.h"

/* A `user name rule …` line of the configuration; words[0] is the name. False: `why` has Redis's text. */
NODISCARD bool users_declare(struct config *c, u32 n, const bytes *words, struct buf *why);

/* The default user; and the others, when the configuration is in force but clients can't connect yet. False:
 * the log says why. */
void users_init(struct server *s);
NODISCARD bool users_start(struct server *s);
void users_release(struct server *s);

/* acl-pubsub-default; and requirepass, if it changed: then it is the default user's password. */
void users_apply_config(struct server *s);

/* The session of an unauthenticated connection: a new one, or after RESET. */
void users_greet(struct server *s, struct session *session);

/* AUTH. False: the error has been replied, and the failure counted. */
NODISCARD bool users_log_in(struct ctx *c, bytes name, bytes password);

/* About once a second: failures are halved, and connections whose AUTH was held back try again. */
void users_next_try(struct server *s);

/* Applies the rules of SETUSER. False: `why` has the error, and nothing changed. Connections that do what the
 * user may no longer do are closed, or their blocking command ends; `self` is the caller's session. */
NODISCARD bool users_change(struct server *s, struct session *self, bytes name, u32 n, const bytes *rules,
                            struct buf *why);

/* Removes a user, and closes its connections; `self` is the caller's session, which still gets its reply. */
void users_remove(struct server *s, struct acl_user *u, struct session *self);

/* ACL LOAD: the whole file or nothing. False: `why` has every error. */
NODISCARD bool users_load(struct server *s, struct session *self, struct buf *why);
void users_replace(struct server *s, struct session *self, struct acl *fresh); /* by those of `fresh` */
NODISCARD bool users_save(struct server *s); /* ACL SAVE; false: the log says why */

/* Appends the `user` lines of a configuration file. The default user is left out while it is as requirepass
 * alone would make it. */
void users_lines(const struct server *s, struct buf *out);

/* node.on_denied: adds it to ACL LOG. */
void users_denied(void *server, const struct request *q, enum acl_denial denial, enum acl_context where,
                  bytes what);

#endif
