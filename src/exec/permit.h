/* Access control at the door of a node: the check, and the note of a denial in the owner's log. */
#ifndef MAYFLY_EXEC_PERMIT_H
#define MAYFLY_EXEC_PERMIT_H

#include "exec/acl.h"
#include "exec/region.h"

/* May the session's user run this resolved command, here and now? If not, node.on_denied hears of it; what
 * the client is told is the caller's: EXEC and scripts have words of their own. */
NODISCARD enum acl_denial permit_check(struct node *n, const struct request *q, const struct command *cmd,
                                       enum acl_context where);

/* What a denial is called to who was denied, without a code: keys and channels are not named. */
void permit_print(struct buf *text, const struct request *q, const struct command *cmd,
                  enum acl_denial denial);

/* The same for a command as a client sent it; false: NOPERM was replied. */
NODISCARD bool permit_request(struct node *n, const struct request *q, const struct command *cmd,
                              enum acl_context where);

#endif
