#include "raft/split.h"

#include "base/endian.h"

enum { RAFT_SPLIT_BYTES = 10 };

void raft_split_encode(struct buf *out, const struct raft_split *s)
{
    u8 *p = (u8 *)buf_reserve(out, RAFT_SPLIT_BYTES);
    put_le64(p, s->child);
    p[8] = (u8)s->first, p[9] = (u8)(s->first >> 8);
    out->n += RAFT_SPLIT_BYTES;
}

err raft_split_decode(bytes payload, struct raft_split *s)
{
    const u8 *p = (const u8 *)payload.p;
    if (payload.n != RAFT_SPLIT_BYTES) return ERR_SYNTAX;
    *s = (struct raft_split){get_le64(p), (u16)(p[8] | p[9] << 8)};
    return s->child && s->first < RAFT_SLOTS ? OK : ERR_SYNTAX;
}

bool raft_split_fits(const struct raft_split *s, struct raft_slots slots)
{
    return slots.first < s->first && s->first <= slots.last;
}

struct raft_applied raft_split_apply(const struct raft_split *s, struct raft_applied *at)
{
    at->epoch.version++;
    struct raft_applied child = *at;
    child.index = RAFT_FIRST_INDEX, child.term = RAFT_FIRST_TERM;
    child.slots.first = s->first;
    at->slots.last = (u16)(s->first - 1);
    return child;
}
