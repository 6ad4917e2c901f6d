/* What is looked at before a client's command runs: which command is meant, and whether it may run now. */
#ifndef MAYFLY_EXEC_ADMIT_H
#define MAYFLY_EXEC_ADMIT_H

#include "exec/region.h"

/* The subcommand that is meant, or `cmd` itself; NULL after an error was replied. */
const struct command *admit_resolve_sub(const struct command *cmd, const struct request *q, struct ctx *c);
static inline const struct command *admit_resolve(const struct command *cmd, const struct request *q,
                                                  struct ctx *c)
{
    return LIKELY(cmd && !cmd->sub_count) ? cmd : admit_resolve_sub(cmd, q, c);
}

/* True if c->cmd may run; otherwise an error was replied. Makes room first, if there is a limit of memory. */
NODISCARD bool admit(struct region *r, const struct request *q, struct ctx *c);

/* What keeps a command of these flags from running now (the storage, the role, loading), as the text of an
 * error; NULL: nothing. Scripts ask, too: arity, user and the limit of memory they look at themselves. */
const char *admit_obstacle_to(const struct region *r, u32 flags);
static inline const char *admit_obstacle(const struct region *r, u32 flags)
{
    const struct node *n = r->node;
    bool open = !r->doomed && !n->refuse_writes && !n->deny_writes && !n->deny_stale && !n->loading;
    return LIKELY(open) ? NULL : admit_obstacle_to(r, flags);
}

/* Whether to keep the memory below the limit is ours to do. */
bool admit_eviction(struct region *r);

#endif
