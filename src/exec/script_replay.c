#include "exec/script_replay.h"

#include "command/commands.h"

bool script_is_replayed(const struct command *cmd)
{
    return cmd->run == cmd_eval || cmd->run == cmd_evalsha || cmd->run == cmd_script_load ||
           cmd->run == cmd_script_flush;
}

void script_replay_begin(struct region *r, struct script_replay *saved)
{
    *saved = (struct script_replay){
        r->refuse_writes, r->deny_writes, r->deny_stale, r->loading, r->over_memory, r->on_nested, r->host,
    };
    r->refuse_writes = r->deny_writes = r->deny_stale = NULL;
    r->loading = r->over_memory = false;
    r->on_nested = NULL;
    r->host.now_us = r->host.cpu_us = NULL;
    r->host.begins = NULL;
    r->replays_script = true;
}

void script_replay_end(struct region *r, const struct script_replay *saved)
{
    r->refuse_writes = saved->refuse_writes;
    r->deny_writes = saved->deny_writes;
    r->deny_stale = saved->deny_stale;
    r->loading = saved->loading;
    r->over_memory = saved->over_memory;
    r->on_nested = saved->on_nested;
    r->host = saved->host;
    r->replays_script = false;
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
