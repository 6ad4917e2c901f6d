/* Rules 14 to 17 of raft/merge.h: entries of a merge, and a target that waits for its source. */
#include "raft/group_parts.h"
#include "raft/merge.h"
#include "raft/split.h"

/* ---- Void entries. */

static bool group_is_void_split(const struct group *g, bytes payload)
{
    struct raft_split s;
    bool fits = raft_split_decode(payload, &s) == OK && raft_split_fits(&s, g->at.slots);
    return !fits || g->at.merge.role;
}

static bool group_is_void_prepare(const struct group *g, bytes payload)
{
    struct raft_merge_prepare p;
    return raft_merge_prepare_decode(payload, &p) != OK || !raft_merge_may_prepare(&g->at);
}

static bool group_is_void_commit(const struct group *g, bytes payload)
{
    struct raft_merge_commit c;
    return raft_merge_commit_decode(payload, &c) != OK || !raft_merge_may_commit(&g->at, &c);
}

bool group_is_void(const struct group *g, const struct raft_command *c)
{
    bool fenced = g->at.merge.role == RAFT_MERGE_SOURCE && !PLANTED(g, PLANT_MERGE_NO_FENCE);
    if (c->epoch.version != g->at.epoch.version && !PLANTED(g, PLANT_SKIP_EPOCH)) return true;
    switch (c->kind) {
    case RAFT_KIND_MERGE_ROLLBACK: return !g->at.merge.role;
    case RAFT_KIND_SPLIT: return group_is_void_split(g, c->payload);
    case RAFT_KIND_MERGE_PREPARE: return group_is_void_prepare(g, c->payload);
    case RAFT_KIND_MERGE_COMMIT: return group_is_void_commit(g, c->payload);
    default: return fenced;
    }
}

/* ---- Applying. */

static void group_apply_commit(struct group *g, const struct raft_command *c)
{
    struct raft_merge_commit commit;
    CHECK(raft_merge_commit_decode(c->payload, &commit) == OK);
    raft_merge_apply_commit(&g->at, &commit, c->stamp_ms);
    g->machine->ops->merge(g->machine, &g->at, &commit);
}

void group_apply_merge(struct group *g, const struct raft_command *c)
{
    struct raft_merge_prepare prepare;
    if (c->kind == RAFT_KIND_MERGE_COMMIT) {
        group_apply_commit(g, c);
        return;
    }
    if (c->kind == RAFT_KIND_MERGE_ROLLBACK) {
        raft_merge_apply_rollback(&g->at);
    } else {
        CHECK(raft_merge_prepare_decode(c->payload, &prepare) == OK);
        raft_merge_apply_prepare(&g->at, &prepare);
    }
    g->machine->ops->apply(g->machine, &g->at, NULL);
}

/* ---- A target that waits (rule 16). */

static bool group_votes(const struct group *g)
{
    const struct raft_conf *c = &g->at.conf;
    for (u32 i = 0; i < c->voters_n; i++)
        if (c->voters[i] == g->config.id) return true;
    return false;
}

bool group_waits_for_source(const struct group *g, const struct raft_entry *e)
{
    struct raft_command c;
    struct raft_merge_commit commit;
    if (g->at.merge.role != RAFT_MERGE_TARGET || e->type != RAFT_ENTRY_NORMAL || !e->data.size) return false;
    CHECK(raft_command_decode(bytes_of(e->data.data, e->data.size), &c) == OK);
    if (c.kind != RAFT_KIND_MERGE_COMMIT || group_is_void(g, &c)) return false;
    CHECK(raft_merge_commit_decode(c.payload, &commit) == OK);
    return !group_votes(g) || !g->machine->ops->source_ready(g->machine, &commit);
}

void group_wait_for_source(struct group *g, const struct raft_entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct raft_entry *e = GROUP_PUSH(g, waiting);
        u8 *data = mem_alloc(entries[i].data.size + 1);
        *e = entries[i];
        if (e->data.size) memcpy(data, e->data.data, e->data.size);
        e->data.data = data;
    }
}

static void group_forget_waiting(struct group *g, size_t n)
{
    if (!n) return; /* there may be no array */
    for (size_t i = 0; i < n; i++) mem_free((void *)g->waiting[i].data.data);
    g->waiting_n -= n;
    memmove(g->waiting, g->waiting + n, g->waiting_n * sizeof(*g->waiting));
}

void group_drop_waiting(struct group *g) { group_forget_waiting(g, g->waiting_n); }

void group_retry_waiting(struct group *g)
{
    size_t n = 0;
    if (g->installing) return;
    while (n < g->waiting_n && group_apply(g, &g->waiting[n])) n++;
    if (n == 0) return;
    group_forget_waiting(g, n);
    raft_core_applied(g->core, g->at.index);
}

/* ---- Proposing. */

bool group_propose_commit(struct group *g, const struct raft_merge_commit *c)
{
    struct buf b = {0};
    raft_merge_commit_encode(&b, c);
    u64 stamp_ms = MAX(group_time(g), c->clock_ms); /* rule 17 */
    bool ok = group_propose_at(g, RAFT_KIND_MERGE_COMMIT, buf_bytes(&b), stamp_ms);
    buf_release(&b);
    return ok;
}

void group_committed(struct group *g, u64 index, u64 term)
{
    if (g->installing || g->at.index >= index) return;
    raft_core_commit_to(g->core, index, term);
    group_run(g);
}

void group_retry(struct group *g) { group_run(g); }

bool group_all_have(const struct group *g, u64 index)
{
    const struct raft_conf *c = &g->at.conf;
    struct raft_core_status s;
    raft_core_status(g->core, &s);
    for (u32 i = 0; i < c->voters_n; i++) {
        u64 has = c->voters[i] == g->config.id ? s.persisted : group_matched(g, c->voters[i]);
        if (has < index) return false;
    }
    return g->leader_term && c->voters_n;
}
