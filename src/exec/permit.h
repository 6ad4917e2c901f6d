/* Access control for requests to a node: checks the user, and reports a denial to the owner's ACL LOG. */
#ifndef MAYFLY_EXEC_PERMIT_H
#define MAYFLY_EXEC_PERMIT_H

#include "exec/acl.h"
#include "exec/region.h"

/* May the session's user run this resolved command now? If not, node.on_denied is called; the caller replies,
 * because EXEC and scripts have texts of their own. */
NODISCARD enum acl_denial permit_check(struct node *n, const struct request *q, const struct command *cmd,
                                       enum acl_context where);

/* Appends the text of a denial, without an error code: keys and channels are not named. */
void permit_print(struct buf *text, const struct request *q, const struct command *cmd,
                  enum acl_denial denial);

/* The same for a command as a client sent it; false: NOPERM was replied. */
NODISCARD bool permit_request(struct node *n, const struct request *q, const struct command *cmd,
                              enum acl_context where);

#endif
