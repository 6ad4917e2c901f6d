/* Scripts in a file or from a primary: Redis up to version 6 may write the EVAL itself where later versions
 * write its effects. Such a script ran under rules that make its result the same everywhere, so it runs under
 * the same rules here:
 *
 *   - math.random starts from Redis's fixed seed,
 *   - replies without an order of their own (SMEMBERS, HKEYS …) are sorted for the script,
 *   - the limits of clients don't apply to it: role, loading, memory, time.
 *
 * SCRIPT LOAD and SCRIPT FLUSH are written, too, because an EVALSHA may follow. */
#ifndef MAYFLY_SCRIPT_SCRIPT_REPLAY_H
#define MAYFLY_SCRIPT_SCRIPT_REPLAY_H

#include "script/script.h"

#define SCRIPT_REPLAY_RANDOM 0x330E /* the generator's state after srand48(0) */

/* EVAL, EVALSHA, SCRIPT LOAD, SCRIPT FLUSH. */
bool script_is_replayed(const struct command *cmd);

/* What script_replay_begin changes in the node, for script_replay_end to restore. */
struct script_replay {
    const char *refuse_writes, *deny_writes, *deny_stale;
    bool loading, over_memory;
    void (*on_nested)(void *owner, const struct request *q, const struct outcome *o);
    struct script_host host;
};
void script_replay_begin(struct node *n, struct script_replay *saved);
void script_replay_end(struct node *n, const struct script_replay *saved);

/* Whether the reply of a command has no order of its own. */
bool script_replay_sorts(bytes command);
/* Sorts the reply on top of the stack. */
void script_replay_sort(lua_State *L);

#endif
