#include "raft/merge.h"

#include "base/endian.h"

enum { RAFT_PREPARE_BYTES = 13, RAFT_COMMIT_BYTES = 48 };

void raft_merge_prepare_encode(struct buf *out, const struct raft_merge_prepare *p)
{
    u8 *b = (u8 *)buf_reserve(out, RAFT_PREPARE_BYTES);
    b[0] = (u8)p->role;
    put_le64(b + 1, p->other);
    put_le32(b + 9, p->version);
    out->n += RAFT_PREPARE_BYTES;
}

err raft_merge_prepare_decode(bytes payload, struct raft_merge_prepare *p)
{
    const u8 *b = (const u8 *)payload.p;
    if (payload.n != RAFT_PREPARE_BYTES) return ERR_SYNTAX;
    *p = (struct raft_merge_prepare){(enum raft_merge_role)b[0], get_le64(b + 1), get_le32(b + 9)};
    return p->other && (b[0] == RAFT_MERGE_TARGET || b[0] == RAFT_MERGE_SOURCE) ? OK : ERR_SYNTAX;
}

static void merge_put_slot(u8 *p, u16 slot) { p[0] = (u8)slot, p[1] = (u8)(slot >> 8); }

static u16 merge_slot(const u8 *p) { return (u16)(p[0] | p[1] << 8); }

void raft_merge_commit_encode(struct buf *out, const struct raft_merge_commit *c)
{
    u8 *b = (u8 *)buf_reserve(out, RAFT_COMMIT_BYTES);
    put_le64(b, c->source);
    put_le64(b + 8, c->index);
    put_le64(b + 16, c->term);
    put_le64(b + 24, c->clock_ms);
    put_le64(b + 32, c->deaths_from_ms);
    put_le32(b + 40, c->version);
    merge_put_slot(b + 44, c->slots.first);
    merge_put_slot(b + 46, c->slots.last);
    out->n += RAFT_COMMIT_BYTES;
}

err raft_merge_commit_decode(bytes payload, struct raft_merge_commit *c)
{
    const u8 *b = (const u8 *)payload.p;
    if (payload.n != RAFT_COMMIT_BYTES) return ERR_SYNTAX;
    *c = (struct raft_merge_commit){.source = get_le64(b),
                                    .index = get_le64(b + 8),
                                    .term = get_le64(b + 16),
                                    .clock_ms = get_le64(b + 24),
                                    .deaths_from_ms = get_le64(b + 32),
                                    .version = get_le32(b + 40),
                                    .slots = {merge_slot(b + 44), merge_slot(b + 46)}};
    return c->source && c->slots.first <= c->slots.last && c->slots.last < RAFT_SLOTS ? OK : ERR_SYNTAX;
}

bool raft_slots_adjoin(struct raft_slots a, struct raft_slots b)
{
    return a.last + 1 == b.first || b.last + 1 == a.first;
}

bool raft_merge_may_prepare(const struct raft_applied *at)
{
    const struct raft_conf *c = &at->conf;
    return !at->merge.role && c->voters_n && !c->learners_n && !c->outgoing_n && !c->learners_next_n;
}

bool raft_merge_may_commit(const struct raft_applied *at, const struct raft_merge_commit *c)
{
    return at->merge.role == RAFT_MERGE_TARGET && at->merge.other == c->source &&
           raft_slots_adjoin(at->slots, c->slots);
}

void raft_merge_apply_prepare(struct raft_applied *at, const struct raft_merge_prepare *p)
{
    at->epoch.version++;
    at->merge.role = p->role, at->merge.other = p->other;
    at->merge.version = p->role == RAFT_MERGE_TARGET ? at->epoch.version : p->version;
    at->merge.index = at->index, at->merge.term = at->term;
}

/* If both regions log expiry, the merged one does from the later of the two times on: keys that expire later
 * still exist on every member. If only one does, from now on: keys that are alive now exist everywhere. */
static u64 merge_deaths(u64 a, u64 b, u64 now_ms)
{
    if (a && b) return MAX(a, b);
    return a || b ? now_ms : 0;
}

void raft_merge_apply_commit(struct raft_applied *at, const struct raft_merge_commit *c, u64 stamp_ms)
{
    at->clock_ms = MAX(stamp_ms, c->clock_ms);
    at->deaths_from_ms = merge_deaths(at->deaths_from_ms, c->deaths_from_ms, at->clock_ms);
    at->epoch.version = MAX(at->epoch.version, c->version) + 1;
    at->slots.first = MIN(at->slots.first, c->slots.first);
    at->slots.last = MAX(at->slots.last, c->slots.last);
    at->merge = (struct raft_merge){0};
}

void raft_merge_apply_rollback(struct raft_applied *at)
{
    at->epoch.version++;
    at->merge = (struct raft_merge){0};
}
