#include "exec/route.h"

#include "base/alloc.h"
#include "base/key_slot.h"
#include "command/commands.h"
#include "exec/multi.h"

#define KEYS_AT_HAND 64

static i32 slot_of_keys(const struct key_use *keys, int n, const bytes *argv)
{
    i32 slot = SLOT_NONE;
    for (int i = 0; i < n && slot != SLOT_CROSS; i++) slot = route_join(slot, key_slot(argv[keys[i].at]));
    return slot;
}

/* Shard channels have slots as keys have. */
static i32 slot_of_channels(const struct command *cmd, int argc, const bytes *argv)
{
    int end = cmd->run == cmd_spublish ? 2 : argc;
    i32 slot = SLOT_NONE;
    for (int i = 1; i < end && slot != SLOT_CROSS; i++) slot = route_join(slot, key_slot(argv[i]));
    return slot;
}

i32 route_slot(const struct command *cmd, int argc, const bytes *argv)
{
    if (UNLIKELY(cmd->specs[0].begin != SEEK_NONE && cmd->specs[0].flags & KEY_NOT_KEY))
        return slot_of_channels(cmd, argc, argv);
    struct key_use few[KEYS_AT_HAND], *keys = few;
    int n = command_keys(cmd, argc, argv, few, KEYS_AT_HAND);
    if (n > KEYS_AT_HAND) {
        keys = mem_alloc((size_t)n * sizeof *keys);
        command_keys(cmd, argc, argv, keys, n);
    }
    i32 slot = slot_of_keys(keys, n, argv); /* invalid arguments have no keys: the command reports it */
    if (keys != few) mem_free(keys);
    return slot;
}

bool route_is_for_home(const struct command *cmd)
{
    if (LIKELY(cmd->specs[0].begin != SEEK_NONE || !(cmd->flags & CMD_WRITE))) return false;
    return cmd->run == cmd_function_load || cmd->run == cmd_function_delete ||
           cmd->run == cmd_function_flush || cmd->run == cmd_function_restore;
}

i32 route_join(i32 a, i32 b)
{
    if (a == SLOT_NONE || a == b) return b;
    return b == SLOT_NONE ? a : SLOT_CROSS;
}

/* The command a request names, resolved as region_run does; NULL: it will be refused as unknown or with too
 * few arguments. */
static const struct command *route_command(const struct node *n, const struct request *q)
{
    const struct command *cmd = node_find(n, q->argv[0]);
    if (cmd && cmd->sub_count) cmd = q->argc > 1 ? command_find_sub(cmd, q->argv[1]) : NULL;
    return cmd && command_takes(cmd, q->argc) ? cmd : NULL;
}

struct region *route_request(struct node *n, struct request *q)
{
    const struct command *cmd = route_command(n, q);
    q->slot = SLOT_NONE;
    if (cmd) q->slot = cmd->run == cmd_exec ? multi_slot(q->session) : route_slot(cmd, q->argc, q->argv);
    if (UNLIKELY(q->slot == SLOT_CROSS) && n->cross_slots) q->slot = 0;
    if (q->slot < 0) return n->regions.first;
    struct region *r = region_map_at(&n->regions, (u32)q->slot);
    if (r) return r;
    if (!n->elsewhere) q->slot = SLOT_UNSERVED; /* otherwise it says where */
    return n->regions.first;
}

const char *route_script_call(const struct region *r, i32 *slot, bool any_slot, const struct command *cmd,
                              int argc, const bytes *argv)
{
    i32 used = route_slot(cmd, argc, argv);
    if (used == SLOT_NONE || r->node->cross_slots) return NULL;
    if (used >= 0 && region_map_at(&r->node->regions, (u32)used) != r)
        return "ERR Script attempted to access a non local key in a cluster node";
    if (any_slot && used >= 0) return NULL;
    i32 together = route_join(*slot, used);
    if (together == SLOT_CROSS)
        return "ERR Script attempted to access keys that do not hash to the same slot";
    *slot = together;
    return NULL;
}
