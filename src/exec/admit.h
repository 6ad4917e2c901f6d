/* The checks before a client's command runs: which command it is, and whether it may run now. */
#ifndef MAYFLY_EXEC_ADMIT_H
#define MAYFLY_EXEC_ADMIT_H

#include "exec/region.h"

/* The subcommand, or `cmd` itself; NULL: an error was replied. */
const struct command *admit_resolve_sub(const struct command *cmd, const struct request *q, struct ctx *c);
static inline const struct command *admit_resolve(const struct command *cmd, const struct request *q,
                                                  struct ctx *c)
{
    return LIKELY(cmd && !cmd->sub_count) ? cmd : admit_resolve_sub(cmd, q, c);
}

/* True if c->cmd may run; otherwise an error was replied. Evicts first if memory is above its limit. */
NODISCARD bool admit(struct region *r, const struct request *q, struct ctx *c);

/* The error that keeps a command with these flags from running now (storage, role, loading, sites); NULL:
 * none. Also called for scripts, which check arity, user and memory themselves. */
const char *admit_obstacle_to(const struct region *r, u32 flags);
static inline const char *admit_obstacle(const struct region *r, u32 flags)
{
    const struct node *n = r->node;
    bool open = !r->doomed && !n->refuse_writes && !n->deny_writes && !n->deny_stale && !n->loading &&
                !(flags & CMD_NO_SITE);
    return LIKELY(open) ? NULL : admit_obstacle_to(r, flags);
}

/* True if this server evicts: a replica leaves that to its primary. */
bool admit_eviction(struct region *r);

#endif
