#include "raft/command.h"

#include "base/endian.h"

void raft_command_encode(struct buf *out, const struct raft_command *c)
{
    u8 *h = (u8 *)buf_reserve(out, RAFT_COMMAND_HEADER + c->payload.n);
    h[0] = RAFT_COMMAND_FORMAT;
    h[1] = (u8)c->kind;
    h[2] = h[3] = 0;
    put_le32(h + 4, c->epoch.version);
    put_le32(h + 8, c->epoch.conf_ver);
    put_le64(h + 12, c->stamp_ms);
    out->n += RAFT_COMMAND_HEADER;
    buf_append_bytes(out, c->payload);
}

err raft_command_decode(bytes data, struct raft_command *c)
{
    const u8 *h = (const u8 *)data.p;
    if (data.n < RAFT_COMMAND_HEADER || h[0] != RAFT_COMMAND_FORMAT) return ERR_SYNTAX;
    if (h[1] == 0 || h[1] > RAFT_KIND_MAX || h[2] || h[3]) return ERR_SYNTAX;
    c->kind = (enum raft_kind)h[1];
    c->epoch.version = get_le32(h + 4);
    c->epoch.conf_ver = get_le32(h + 8);
    c->stamp_ms = get_le64(h + 12);
    c->payload = bytes_of(data.p + RAFT_COMMAND_HEADER, data.n - RAFT_COMMAND_HEADER);
    return OK;
}
