#include "script/script_replay.h"

#include "command/commands.h"

bool script_is_replayed(const struct command *cmd)
{
    return cmd->run == cmd_eval || cmd->run == cmd_evalsha || cmd->run == cmd_script_load ||
           cmd->run == cmd_script_flush;
}

void script_replay_begin(struct node *n, struct script_replay *saved)
{
    *saved = (struct script_replay){
        n->refuse_writes, n->deny_writes, n->deny_stale, n->loading, n->over_memory, n->on_nested, n->host,
    };
    n->refuse_writes = n->deny_writes = n->deny_stale = NULL;
    n->loading = n->over_memory = false;
    n->on_nested = NULL;
    n->host.now_us = n->host.cpu_us = NULL;
    n->host.begins = NULL;
    n->replays_script = true;
}

void script_replay_end(struct node *n, const struct script_replay *saved)
{
    n->refuse_writes = saved->refuse_writes;
    n->deny_writes = saved->deny_writes;
    n->deny_stale = saved->deny_stale;
    n->loading = saved->loading;
    n->over_memory = saved->over_memory;
    n->on_nested = saved->on_nested;
    n->host = saved->host;
    n->replays_script = false;
}

bool script_replay_sorts(bytes command)
{
    static const char *const unordered[] = {"smembers", "sinter", "sunion", "sdiff", "hkeys", "hvals",
                                            "keys"};
    bool found = false;
    for (size_t i = 0; i < ARRAY_LEN(unordered); i++) found |= bytes_is(command, unordered[i]);
    return found;
}

void script_replay_sort(lua_State *L)
{
    if (!lua_istable(L, -1) || lua_objlen(L, -1) < 2) return;
    script_push_real_globals(L);
    lua_getfield(L, -1, "table");
    lua_getfield(L, -1, "sort");
    lua_pushvalue(L, -4);
    lua_call(L, 1, 0);
    lua_pop(L, 2);
}
