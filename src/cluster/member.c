#include "cluster/member.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/num.h"
#include "cluster/cluster_parts.h"
#include "cluster/snapshot.h"
#include "raft/plant.h"
#include "server/commit.h"

#define MEMBERS_TOGETHER DISK_TOGETHER

#define UNCERTAIN "UNCERTAIN leadership was lost; this write may or may not have happened"
#define UNCONFIRMED "TRYAGAIN leadership was lost before this read was confirmed"
#define NOT_RUN "TRYAGAIN the request was not run; try again"

static struct member *member_of(struct raft_machine *base) { return (struct member *)(void *)base; }

i64 member_clock(const struct member *m) { return (i64)MAX(m->at.clock_ms, 1u); }

/* -- raft_applied as text ---------------------------------------------------------------------- */

/* Written for each entry: printf would take longer than all else that is stored of it. */
static void put_decimal(struct buf *out, const char *before, u64 n)
{
    buf_append_str(out, before);
    out->n += num_print_i64(buf_reserve(out, NUM_I64_LEN), (i64)n);
}

static void put_hex(struct buf *out, u64 n)
{
    u32 digits = n ? (67 - (u32)__builtin_clzll(n)) / 4 : 1;
    char *p = buf_reserve(out, digits);
    for (u32 i = digits; i-- > 0; n >>= 4) p[i] = "0123456789abcdef"[n & 15];
    out->n += digits;
}

static void encode_ids(struct buf *out, char name, const u64 *ids, u32 n)
{
    buf_append_char(out, ' ');
    buf_append_char(out, name);
    for (u32 i = 0; i < n; i++) {
        if (i) buf_append_char(out, ',');
        put_hex(out, ids[i]);
    }
}

static void encode_merge(struct buf *out, const struct raft_merge *merge)
{
    put_decimal(out, " m", (u64)merge->role);
    put_decimal(out, ",", merge->other);
    put_decimal(out, ",", merge->version);
    put_decimal(out, ",", merge->index);
    put_decimal(out, ",", merge->term);
}

void member_encode(const struct raft_applied *at, u64 peer, struct buf *out)
{
    const struct raft_conf *c = &at->conf;
    put_decimal(out, "1 ", at->index);
    put_decimal(out, " ", at->term);
    put_decimal(out, " ", at->clock_ms);
    put_decimal(out, " ", at->epoch.version);
    put_decimal(out, " ", at->epoch.conf_ver);
    put_decimal(out, " ", c->auto_leave);
    encode_ids(out, 'v', c->voters, c->voters_n);
    encode_ids(out, 'l', c->learners, c->learners_n);
    encode_ids(out, 'o', c->outgoing, c->outgoing_n);
    encode_ids(out, 'n', c->learners_next, c->learners_next_n);
    put_decimal(out, " s", at->slots.first);
    put_decimal(out, "-", at->slots.last);
    if (peer) {
        buf_append_str(out, " p");
        put_hex(out, peer);
    }
    if (at->deaths_from_ms) put_decimal(out, " d", at->deaths_from_ms);
    if (at->merge.role) encode_merge(out, &at->merge);
}

static bool decode_ids(const char **p, char name, u64 *ids, u32 *n)
{
    char *end;
    if ((*p)[0] != ' ' || (*p)[1] != name) return false;
    *p += 2;
    for (*n = 0; **p && **p != ' ' && *n < RAFT_MEMBERS_MAX; (*n)++) {
        ids[*n] = strtoull(*p, &end, 16);
        if (end == *p) return false;
        *p = end + (*end == ',');
    }
    return **p == '\0' || **p == ' ';
}

static bool decode_slots(const char **p, struct raft_applied *at)
{
    unsigned first, last;
    int used = 0;
    if (sscanf(*p, " s%u-%u%n", &first, &last, &used) != 2) return false;
    if (first > last || last >= RAFT_SLOTS) return false;
    at->slots = (struct raft_slots){(u16)first, (u16)last};
    *p += used;
    return **p == '\0' || **p == ' ';
}

static bool decode_peer(const char **p, u64 *peer)
{
    char *end;
    *peer = 0;
    if (strncmp(*p, " p", 2) != 0) return true;
    *peer = strtoull(*p + 2, &end, 16);
    *p = end;
    return **p == '\0' || **p == ' ';
}

static bool decode_deaths(const char **p, struct raft_applied *at)
{
    char *end;
    if (strncmp(*p, " d", 2) != 0) return true;
    at->deaths_from_ms = strtoull(*p + 2, &end, 10);
    bool some = end > *p + 2;
    *p = end;
    return some && (*end == '\0' || *end == ' ');
}

/* The end of the text. */
static bool decode_merge(const char *p, struct raft_applied *at)
{
    unsigned role, version;
    ull other, index, term;
    int used = 0;
    if (!*p) return true;
    if (sscanf(p, " m%u,%llu,%u,%llu,%llu%n", &role, &other, &version, &index, &term, &used) != 5)
        return false;
    at->merge = (struct raft_merge){(enum raft_merge_role)role, version, other, index, term};
    return (role == RAFT_MERGE_TARGET || role == RAFT_MERGE_SOURCE) && !p[used];
}

bool member_decode(bytes text, struct raft_applied *at, u64 *peer)
{
    char copy[2048];
    ull index, term, clock;
    unsigned version, conf_ver;
    int leave, used = 0;
    if (text.n >= sizeof copy) return false;
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    *at = (struct raft_applied){0};
    if (sscanf(copy, "1 %llu %llu %llu %u %u %d%n", &index, &term, &clock, &version, &conf_ver, &leave,
               &used) != 6)
        return false;
    *at = (struct raft_applied){.index = index,
                                .term = term,
                                .clock_ms = clock,
                                .epoch = {version, conf_ver},
                                .conf = {.auto_leave = leave}};
    const char *p = copy + used;
    struct raft_conf *c = &at->conf;
    return decode_ids(&p, 'v', c->voters, &c->voters_n) && decode_ids(&p, 'l', c->learners, &c->learners_n) &&
           decode_ids(&p, 'o', c->outgoing, &c->outgoing_n) &&
           decode_ids(&p, 'n', c->learners_next, &c->learners_next_n) && decode_slots(&p, at) &&
           decode_peer(&p, peer) && decode_deaths(&p, at) && decode_merge(p, at);
}

/* -- the engine -------------------------------------------------------------------------------- */

static bytes applied_row(u64 number, char name[32])
{
    int n = snprintf(name, 32, "applied %llu", (ull)number);
    return bytes_of(name, (size_t)n);
}

void member_adopt_at(struct member *m, u64 number, u64 peer, const struct raft_applied *at)
{
    struct engine *e = m->region->eng;
    struct buf text = {0};
    char name[32];
    member_encode(at, peer, &text);
    e->ops->meta.put(e, META_CLUSTER, applied_row(number, name), buf_bytes(&text));
    buf_release(&text);
}

static void write_applied(struct member *m)
{
    member_adopt_at(m, m->number, m->peer, &m->at);
    m->region->journal.seq = m->at.index;
}

void member_forget(struct member *m, u64 number)
{
    struct engine *e = m->region->eng;
    char name[32];
    e->ops->meta.del(e, META_CLUSTER, applied_row(number, name));
}

void member_erase(struct member *m) { member_forget(m, m->number); }

bool member_conf_is_durable(const struct member *m)
{
    return !m->conf_unsaved && (!m->conf_mark || cluster_logs_synced(m->cluster->logs) >= m->conf_mark);
}

static void commit_begun(struct member *m)
{
    cluster_write_nodes(m->cluster, m->region->eng);
    write_applied(m);
    m->region->eng->relaxed = true;
}

static void commit_ended(struct member *m)
{
    m->region->eng->relaxed = false;
    m->unsaved = false;
    m->unsaved_bytes = 0;
    if (UNLIKELY(m->conf_unsaved) && m->log) m->conf_mark = cluster_log_sync(m->log);
    if (m->log) m->conf_unsaved = false;
    cluster_autosplit_note(m);
    region_begin(m->region, member_clock(m));
}

/* Commits open transactions with how far they have come, in one write. The log has it all: it need not be
 * synced. What a quorum has decided can't be refused, so a disk that does not take it ends this node. */
static void commit_applied_all(struct member *const *m, u32 n)
{
    struct region *r[MEMBERS_TOGETHER] = {NULL};
    for (u32 i = 0; i < n; i++) {
        commit_begun(m[i]);
        r[i] = m[i]->region;
    }
    if (!region_commit_all(r, n))
        cluster_die(m[0]->cluster, "the storage can't keep an entry that a quorum has committed");
    for (u32 i = 0; i < n; i++) commit_ended(m[i]);
}

static void commit_applied(struct member *m)
{
    commit_begun(m);
    if (!region_commit(m->region))
        cluster_die(m->cluster, "the storage can't keep an entry that a quorum has committed");
    commit_ended(m);
}

static void roll_back(struct member *m)
{
    struct region *r = m->region;
    r->doomed = true;
    (void)!region_commit(r);
    r->journal.db = -1; /* a SELECT may have gone with it */
    buf_clear(&m->effects);
    region_begin(r, member_clock(m));
}

static bool may_save(const struct member *m)
{
    return m->unsaved && !m->in_flight && !m->evaluating && !m->install;
}

void member_save(struct member *m)
{
    if (may_save(m)) commit_applied(m);
}

void member_save_all(struct member *const *m, u32 n)
{
    struct member *some[MEMBERS_TOGETHER];
    u32 some_n = 0;
    for (u32 i = 0; i < n; i++) {
        if (!may_save(m[i])) continue;
        some[some_n++] = m[i];
        if (some_n < MEMBERS_TOGETHER) continue;
        commit_applied_all(some, some_n);
        some_n = 0;
    }
    if (some_n) commit_applied_all(some, some_n);
}

static void member_record(struct journal_sink *sink, const struct journal_record *record)
{
    struct member *m = (struct member *)(void *)((char *)sink - offsetof(struct member, sink));
    bytes part[JOURNAL_PARTS];
    if (!m->evaluating || journal_is_message(record)) return;
    journal_parts(record, buf_bytes(&record->resp), part);
    for (int i = 0; i < JOURNAL_PARTS; i++) buf_append_bytes(&m->effects, part[i]);
}

/* -- what the group calls ---------------------------------------------------------------------- */

struct find_row {
    bytes name;
    struct raft_applied *at;
    u64 peer;
    bool found;
};

static void look_at_row(void *arg, bytes name, bytes value, double unused UNUSED)
{
    struct find_row *f = arg;
    if (bytes_eq(name, f->name)) f->found = member_decode(value, f->at, &f->peer);
}

static void machine_load(struct raft_machine *base, struct raft_applied *at)
{
    struct member *m = member_of(base);
    char name[32];
    struct find_row f = {.name = applied_row(m->number, name), .at = at};
    *at = (struct raft_applied){0};
    if (m->region) m->region->eng->ops->meta.each(m->region->eng, META_CLUSTER, look_at_row, &f);
    if (f.found && !m->peer) m->peer = f.peer;
    m->at = *at;
}

static void replay(struct member *m, bytes effects)
{
    bool by_wall = group_planted(m->group, PLANT_EXPIRE_BY_WALL);
    struct journal_record record = {.now_ms = by_wall ? clock_wall_ms() : member_clock(m),
                                    .resp = {(char *)(uintptr_t)effects.p, effects.n, effects.n}};
    if (region_apply(m->region, &m->session, m->server, &record) != OK || m->region->doomed)
        cluster_die(m->cluster, "an entry of the log can't be applied");
}

static void change_members(struct member *m, const struct raft_conf *to)
{
    struct raft_conf before = m->at.conf;
    m->at.conf = *to;
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): other padding only costs a sync of the log */
    if (memcmp(&before, to, sizeof before) == 0) return;
    m->conf_unsaved = true;
    if (cluster_is_meta(m)) cluster_members_changed(m->cluster, &before);
}

/* While an evaluation is in flight, other entries are applied only if they contain no data. */
static void machine_apply(struct raft_machine *base, const struct raft_applied *at,
                          const struct raft_command *command)
{
    struct member *m = member_of(base);
    bool has_data = command && command->kind == RAFT_KIND_EFFECTS;
    CHECK(!has_data || !m->in_flight);
    if (!command) change_members(m, &at->conf);
    if (UNLIKELY(at->merge.role)) m->cluster->merges = true;
    m->at = *at;
    m->unsaved = true;
    if (command && command->kind == RAFT_KIND_NODE) cluster_learn_node(m->cluster, command->payload);
    if (command && command->kind == RAFT_KIND_REGIONS) cluster_take_regions(m->cluster, command->payload);
    if (has_data) {
        replay(m, command->payload);
        m->unsaved_bytes += (u32)command->payload.n;
    }
    if (command && command->kind == RAFT_KIND_DIGEST) check_begin(m, at->index);
    cluster_moved_on(m->cluster);
}

/* -- replies ------------------------------------------------------------------------------------ */

static void end_joint(struct member *m, struct member_joint *j, bool ok, const char *wrote)
{
    j->regions--;
    if (j->fence && !ok) commit_fence_failed(m->server, j->fence, wrote, UNCONFIRMED);
    else if (j->fence && !j->regions) fence_pass(j->fence);
    if (!ok) j->fence = NULL;
    if (!j->regions) mem_free(j);
}

static void end_replies(struct member *m, struct member_replies r, bool ok, const char *wrote)
{
    if (r.fence && ok) fence_pass(r.fence);
    else if (r.fence) commit_fence_failed(m->server, r.fence, wrote, UNCONFIRMED);
    if (r.joint) end_joint(m, r.joint, ok, wrote);
}

static struct member_replies take_replies(struct member *m)
{
    struct member_replies r = m->replies;
    m->replies = (struct member_replies){0};
    return r;
}

static void fly(struct member *m, bool on)
{
    if (m->in_flight != on) cluster_flies(m->cluster, on);
    m->in_flight = on;
}

static void machine_commit(struct raft_machine *base, const struct raft_applied *at)
{
    struct member *m = member_of(base);
    struct member_replies r = take_replies(m);
    u32 answered = r.fence ? fence_requests(r.fence) : 0;
    m->at = *at;
    fly(m, false);
    buf_clear(&m->effects);
    m->unsaved = true;
    end_replies(m, r, true, NULL);
    u64 took_us = (u64)(clock_mono_us() - m->proposed_us);
    if (!m->times) m->times = mem_zalloc(sizeof *m->times);
    commit_times_add(m->times, took_us);
    if (!cluster_is_meta(m)) cluster_committed(m->cluster, answered, took_us);
    cluster_tell_later(m);
    cluster_moved_on(m->cluster);
}

static void machine_abandon(struct raft_machine *base, enum group_loss loss)
{
    struct member *m = member_of(base);
    fly(m, false);
    roll_back(m);
    end_replies(m, take_replies(m), false, loss == GROUP_LOSS_VOID ? NOT_RUN : UNCERTAIN);
    cluster_moved_on(m->cluster);
}

static void machine_confirmed(struct raft_machine *base, u64 read, bool ok)
{
    struct member *m = member_of(base);
    for (u32 i = 0; i < m->reads_n; i++) {
        if (m->reads[i].read != read) continue;
        struct member_replies r = m->reads[i].replies;
        m->reads[i] = m->reads[--m->reads_n];
        end_replies(m, r, ok, NOT_RUN);
        cluster_moved_on(m->cluster);
        return;
    }
    m->early_read = ok ? read : 0; /* within group_evaluated */
}

static void machine_readable(struct raft_machine *base, u64 read, bool ok)
{
    struct member *m = member_of(base);
    if (ok) m->granted_read = MAX(m->granted_read, read);
    else m->refused_read = MAX(m->refused_read, read);
    if (read == m->asked_read) m->asked_read = 0;
    cluster_moved_on(m->cluster); /* requests that waited run again, or are sent elsewhere */
}

/* -- splitting ---------------------------------------------------------------------------------- */

/* One transaction of the parent's engine stores both states and gives the child its slots. */
void member_split(struct member *m, const struct raft_applied *at, u64 child,
                  const struct raft_applied *child_at)
{
    struct region *r = m->region;
    struct rocks_region to = {child, 1, child_at->slots.first, child_at->slots.last};
    bool discard = cluster_split_fate(m->cluster, child, m->peer) == REGION_SPLIT_DISCARD;
    CHECK(!m->in_flight && !m->evaluating); /* its transaction is the split's */
    member_save(m);
    cluster_before_split(m);
    m->at = *at;
    if (discard) to.id = CLUSTER_NO_REGION;
    rocks_split(r->eng, &to, child_at->index);
    if (!discard) member_adopt_at(m, child, m->peer, child_at);
    commit_applied(m);
    m->slots = at->slots;
    if (discard) cluster_discard_slots(m, &to);
    else cluster_add_child(m, &to, child_at);
}

static void machine_split(struct raft_machine *base, const struct raft_applied *at, u64 child,
                          const struct raft_applied *child_at)
{
    member_split(member_of(base), at, child, child_at);
}

static bool machine_source_ready(struct raft_machine *base, const struct raft_merge_commit *commit)
{
    return cluster_source_ready(member_of(base), commit);
}

static void machine_merge(struct raft_machine *base, const struct raft_applied *at,
                          const struct raft_merge_commit *commit)
{
    cluster_take_source(member_of(base), at, commit);
}

/* The engine's transaction has stored `at`, with the source's slots. */
void member_took(struct member *m, const struct raft_applied *at)
{
    struct region *r = m->region;
    m->at = *at;
    m->unsaved = false;
    r->committed = r->journal.seq = at->index;
    region_begin(r, member_clock(m));
}

static u64 machine_next_deadline(struct raft_machine *base)
{
    struct member *m = member_of(base);
    struct engine *e = m->region->eng;
    member_save(m); /* the index has what is stored */
    i64 next = e->ops->next_due(e);
    return next == INT64_MAX ? 0 : (u64)next;
}

static void machine_send(struct raft_machine *base, u64 to, bytes message)
{
    cluster_send(member_of(base), to, message);
}

static void machine_snapshot_send(struct raft_machine *base, u64 to, const struct raft_applied *at,
                                  bytes message)
{
    snapshot_send(member_of(base), to, at, message);
}

static void machine_snapshot_install(struct raft_machine *base, u64 index, u64 term)
{
    snapshot_install(member_of(base), index, term);
}

static void machine_snapshot_discard(struct raft_machine *base) { snapshot_discard(member_of(base)); }

static void machine_slept(struct raft_machine *base, bool asleep) { cluster_awake(member_of(base), !asleep); }

static u32 machine_silence(struct raft_machine *base, u64 peer)
{
    struct cluster *c = member_of(base)->cluster;
    const struct cluster_node *n = cluster_node_of(c, peer);
    return n ? beat_silence(&n->beat, c->raft_ticks) : UINT32_MAX;
}

static const struct raft_machine_ops member_ops = {
    .load = machine_load,
    .apply = machine_apply,
    .split = machine_split,
    .source_ready = machine_source_ready,
    .merge = machine_merge,
    .commit = machine_commit,
    .abandon = machine_abandon,
    .confirmed = machine_confirmed,
    .readable = machine_readable,
    .next_deadline = machine_next_deadline,
    .send = machine_send,
    .snapshot_send = machine_snapshot_send,
    .snapshot_install = machine_snapshot_install,
    .snapshot_discard = machine_snapshot_discard,
    .slept = machine_slept,
    .silence = machine_silence,
};

/* -- the tick ---------------------------------------------------------------------------------- */

void member_begin_tick(struct member *m, i64 wall_ms)
{
    group_wall(m->group, (u64)wall_ms);
    m->asked_read = 0;
    if (m->in_flight || m->install) return; /* the transaction stays as it is */
    member_save(m);
    bool waits = cluster_gathers(m->cluster) || cluster_resumes(m->cluster);
    m->evaluating = !waits && group_may_evaluate(m->group);
    i64 now_ms = m->evaluating ? (i64)group_evaluation_time(m->group) : member_clock(m);
    m->region->mode = m->evaluating && m->at.deaths_from_ms ? EXPIRY_RAFT_LEADER : EXPIRY_RAFT;
    region_begin(m->region, now_ms);
}

void member_enforce(struct member *m, bool touches_data)
{
    struct net *n = &m->server->net;
    if (!touches_data || !m->evaluating) {
        fence_enforce(n, NULL);
        return;
    }
    if (!m->replies.fence) m->replies.fence = fence_open(n);
    fence_enforce(n, m->replies.fence);
}

/* Nothing was changed that other members must know: what it reclaimed is dead by the region's clock. */
static void end_transaction(struct member *m)
{
    struct region *r = m->region;
    r->journal.seq = r->committed;
    r->eng->relaxed = true;
    if (!region_commit(r)) m->server->node.refuse_writes = REGION_IO_ERROR;
    r->eng->relaxed = false;
    region_begin(r, member_clock(m));
}

static void expect_read(struct member *m, u64 read)
{
    if (m->reads_n == m->reads_cap) {
        m->reads_cap = m->reads_cap ? m->reads_cap * 2 : 16;
        m->reads = mem_realloc(m->reads, m->reads_cap * sizeof *m->reads);
    }
    m->reads[m->reads_n++] = (struct member_read){read, take_replies(m)};
}

void member_end_tick(struct member *m)
{
    struct region *r = m->region;
    u64 read = 0;
    if (!m->evaluating) return;
    m->evaluating = false;
    r->mode = EXPIRY_RAFT;
    if (!m->replies.fence && !m->replies.joint && !m->effects.n) {
        group_drop_evaluation(m->group);
        end_transaction(m);
        return;
    }
    bool failed = r->doomed || r->eng->failed;
    u64 now_ms = (u64)r->ks.now_ms, depends_ms = (u64)r->ks.found_dead_ms;
    if (m->effects.n >= HELD_BYTES) cluster_held(m->server);
    fly(m, true); /* commit or abandon may be called before group_evaluated returns */
    m->slices = 0;
    m->proposed_us = clock_mono_us();
    m->early_read = 0;
    if (failed) group_drop_evaluation(m->group);
    enum group_wait wait = failed
                               ? GROUP_REFUSED
                               : group_evaluated(m->group, now_ms, buf_bytes(&m->effects), depends_ms, &read);
    if (wait == GROUP_WAIT_COMMIT && m->replies.fence && group_planted(m->group, PLANT_REPLY_EARLY)) {
        fence_pass(m->replies.fence);
        m->replies.fence = NULL;
    }
    if (wait == GROUP_WAIT_COMMIT) return;
    fly(m, false);
    if (wait == GROUP_REFUSED) {
        roll_back(m);
        end_replies(m, take_replies(m), false, NOT_RUN);
    } else {
        end_transaction(m);
        if (m->early_read == read) end_replies(m, take_replies(m), true, NULL);
        else expect_read(m, read);
    }
}

bool member_commit_reclaim(struct member *m)
{
    struct region *r = m->region;
    CHECK(!m->in_flight && !m->evaluating);
    if (m->unsaved) {
        commit_applied(m);
        return true;
    }
    r->journal.seq = r->committed;
    r->eng->relaxed = true;
    bool kept = region_commit(r);
    r->eng->relaxed = false;
    region_begin(r, member_clock(m));
    return kept;
}

bool member_may_read(struct member *m, u64 *wanted)
{
    if (*wanted && m->granted_read >= *wanted) {
        *wanted = 0;
        return true;
    }
    if (*wanted) return false;
    if (!m->asked_read) m->asked_read = group_follower_read(m->group);
    *wanted = m->asked_read;
    return false;
}

bool member_read_failed(const struct member *m, u64 *wanted)
{
    if (!*wanted || *wanted <= m->granted_read || *wanted > m->refused_read) return false;
    *wanted = 0;
    return true;
}

/* -- life -------------------------------------------------------------------------------------- */

void member_adopt(struct member *m, const struct raft_applied *at)
{
    m->at = *at;
    m->unsaved = false;
    cluster_write_nodes(m->cluster, m->region->eng);
    write_applied(m);
}

void member_open(struct member *m, struct cluster *c, struct region *r, u64 number, u64 peer)
{
    *m = (struct member){.machine.ops = &member_ops,
                         .cluster = c,
                         .server = cluster_server(c),
                         .number = number,
                         .peer = peer};
    session_init(&m->session, 0, true);
    m->sink.append = member_record;
    if (r) member_give(m, r);
    machine_load(&m->machine, &m->at);
}

void member_give(struct member *m, struct region *r)
{
    struct rocks_region of = rocks_region_of(r->eng);
    m->region = r;
    m->slots = (struct raft_slots){of.first, of.last};
    r->member = m;
    r->ks.first_slot = of.first;
    r->ks.one_database = (u32)m->server->config.databases;
    r->ks.one_slot = !m->server->config.cluster_cross_slots;
    r->mode = EXPIRY_RAFT;
    journal_attach(&r->journal, &m->sink);
    r->eng->ops->disk->set_grace(r->eng, INT64_MAX); /* a compaction knows no region's clock */
}

void member_start(struct member *m, const struct group_config *config, struct raft_log *log)
{
    m->log = log;
    m->group = group_open(config, log, &m->machine);
    if (m->region) region_begin(m->region, member_clock(m));
}

/* Two election timeouts: leadership is handed on, or a majority elects another leader, in less. */
void member_await_leader(struct member *m)
{
    m->await_until_ms = (i64)uv_now(&m->server->loop) + 2 * m->server->config.cluster_node_timeout;
}

/* m->leader is as of the last look: it may have gone since. */
bool member_awaits_leader(const struct member *m)
{
    return !group_leader(m->group) && (m->leader || m->await_until_ms);
}

void member_rest(struct member *m)
{
    if (m->rested) return;
    m->rested = true;
    buf_release(&m->effects);
    mem_free(m->reads);
    m->reads = NULL;
    m->reads_cap = 0;
    if (m->region) m->region->eng->ops->disk->rest(m->region->eng);
}

void member_close(struct member *m)
{
    if (m->in_flight) machine_abandon(&m->machine, GROUP_LOSS_UNKNOWN);
    member_save(m);
    if (m->group) group_close(m->group);
    m->group = NULL; /* the node may still look at its members */
    cluster_awake(m, false);
    cluster_note_due(m, false);
    for (u32 i = 0; i < m->reads_n; i++) end_replies(m, m->reads[i].replies, false, NOT_RUN);
    cluster_log_close(m->log);
    if (m->region) journal_detach(&m->region->journal, &m->sink);
    if (m->region) m->region->member = NULL;
    session_release(&m->session);
    buf_release(&m->effects);
    mem_free(m->reads);
    mem_free(m->times);
    mem_free(m->sample);
}
