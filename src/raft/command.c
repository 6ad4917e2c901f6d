#include "raft/command.h"

static void command_put(u8 *to, u64 value, u32 size)
{
    for (u32 i = 0; i < size; i++) to[i] = (u8)(value >> (8 * i));
}

static u64 command_get(const u8 *from, u32 size)
{
    u64 value = 0;
    for (u32 i = 0; i < size; i++) value |= (u64)from[i] << (8 * i);
    return value;
}

void raft_command_encode(struct buf *out, const struct raft_command *c)
{
    u8 *h = (u8 *)buf_reserve(out, RAFT_COMMAND_HEADER + c->payload.n);
    h[0] = RAFT_COMMAND_FORMAT;
    h[1] = (u8)c->kind;
    h[2] = h[3] = 0;
    command_put(h + 4, c->epoch.version, 4);
    command_put(h + 8, c->epoch.conf_ver, 4);
    command_put(h + 12, c->stamp_ms, 8);
    out->n += RAFT_COMMAND_HEADER;
    buf_append_bytes(out, c->payload);
}

err raft_command_decode(bytes data, struct raft_command *c)
{
    const u8 *h = (const u8 *)data.p;
    if (data.n < RAFT_COMMAND_HEADER || h[0] != RAFT_COMMAND_FORMAT) return ERR_SYNTAX;
    if (h[1] == 0 || h[1] > RAFT_KIND_MAX || h[2] || h[3]) return ERR_SYNTAX;
    c->kind = (enum raft_kind)h[1];
    c->epoch.version = (u32)command_get(h + 4, 4);
    c->epoch.conf_ver = (u32)command_get(h + 8, 4);
    c->stamp_ms = command_get(h + 12, 8);
    c->payload = bytes_of(data.p + RAFT_COMMAND_HEADER, data.n - RAFT_COMMAND_HEADER);
    return OK;
}
