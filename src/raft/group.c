/* Storing, sending, applying and evaluating. See group.h, whose rules are referred to by number. */
#include "raft/group_parts.h"
#include "raft/merge.h"
#include "raft/split.h"

/* ---- Opening. */

static bool group_log_read(void *log, u64 low, u64 high, u64 bytes_max, struct raft_core_sink *sink)
{
    return ((struct raft_log *)log)->ops->read(log, low, high, bytes_max, sink);
}

static u64 group_log_term(void *log, u64 index) { return ((struct raft_log *)log)->ops->term_of(log, index); }

/* Makes the log consistent with the machine. A snapshot is installed before the log is emptied (rule 9), so
 * after a crash the machine can be ahead of the log, or the log can have entries that the snapshot overrules:
 * then the snapshot counts. */
static void group_reconcile(struct group *g, struct raft_log_state *s)
{
    CHECK(g->at.index >= s->point_index);
    bool overruled = g->at.index > s->last_index || g->log->ops->term_of(g->log, g->at.index) != g->at.term;
    if (g->at.index && overruled) {
        struct raft_log_write w = {.sync = true, .reset = true};
        w.reset_index = g->at.index, w.reset_term = g->at.term;
        g->log->ops->write(g->log, &w);
        s->point_index = s->last_index = g->at.index, s->point_term = g->at.term;
    }
    struct raft_hard_state *hs = &s->hard_state;
    if (hs->term < g->at.term) *hs = (struct raft_hard_state){g->at.term, 0, hs->commit};
    if (hs->commit < g->at.index) hs->commit = g->at.index;
    if (hs->commit > s->last_index) hs->commit = s->last_index;
}

struct group *group_open(const struct group_config *config, struct raft_log *log,
                         struct raft_machine *machine)
{
    struct group *g = mem_zalloc(sizeof(*g));
    struct raft_log_state s;
    g->config = *config, g->log = log, g->machine = machine;
    log->ops->load(log, &s);
    machine->ops->load(machine, &g->at);
    g->written = s.hard_state, g->conf_index = s.last_index;
    group_reconcile(g, &s);
    struct raft_core_config c = {
        .id = config->id,
        .seed = config->seed,
        .election_ticks = config->election_ticks,
        .heartbeat_ticks = config->heartbeat_ticks,
        .message_bytes_max = 1 << 20,
        .uncommitted_bytes_max = 256 << 20,
        .cache_bytes_max = 4 << 20,
        .inflight_messages_max = 256,
        .hard_state = s.hard_state,
        .conf = g->at.conf,
        .applied = g->at.index,
        .snapshot_index = s.point_index,
        .snapshot_term = s.point_term,
        .last_index = s.last_index,
        .log = log,
        .read = group_log_read,
        .term = group_log_term,
        .print = config->print,
    };
    g->core = raft_core_open(&c);
    group_run(g);
    return g;
}

void group_close(struct group *g)
{
    raft_core_close(g->core);
    group_drop_waiting(g);
    mem_free(g->waiting);
    buf_release(&g->held_bytes);
    buf_release(&g->frame);
    mem_free(g->held);
    mem_free(g->reads);
    mem_free(g->wishes);
    mem_free(g->install);
    mem_free(g);
}

/* ---- Sending. */

static void group_send_core(struct group *g, u64 to, const void *data, size_t size)
{
    buf_clear(&g->frame);
    buf_append_char(&g->frame, FRAME_CORE);
    buf_append(&g->frame, data, size);
    g->machine->ops->send(g->machine, to, buf_bytes(&g->frame));
}

void group_send_numbers(struct group *g, u64 to, enum group_frame type, const u64 numbers[4])
{
    buf_clear(&g->frame);
    buf_append_char(&g->frame, (char)type);
    for (u32 i = 0; i < 4; i++) append_le64(&g->frame, numbers[i]);
    g->machine->ops->send(g->machine, to, buf_bytes(&g->frame));
}

static void group_send(struct group *g, const struct raft_message *m)
{
    if (m->snapshot) {
        CHECK(m->snapshot_index == g->at.index);
        g->machine->ops->snapshot_send(g->machine, m->to, &g->at, bytes_of(m->data.data, m->data.size));
    } else {
        group_send_core(g, m->to, m->data.data, m->data.size);
    }
}

/* Rule 1: keeps the messages that depend on a write until it is durable. */
static void group_hold(struct group *g, const struct raft_ready *r, bool to_sync)
{
    struct group_held *h = GROUP_PUSH(g, held);
    *h = (struct group_held){r->number, to_sync, g->held_bytes.n, 0};
    for (size_t i = 0; i < r->after_n; i++) {
        const struct raft_message *m = &r->after[i];
        if (m->snapshot) continue; /* of a leader that has just stepped down */
        append_le64(&g->held_bytes, m->to);
        append_le64(&g->held_bytes, m->data.size);
        buf_append(&g->held_bytes, m->data.data, m->data.size);
    }
    h->bytes_n = g->held_bytes.n - h->bytes_from;
}

static void group_send_held(struct group *g, const struct group_held *h)
{
    for (size_t at = h->bytes_from; at < h->bytes_from + h->bytes_n;) {
        u64 to = get_le64(g->held_bytes.p + at), size = get_le64(g->held_bytes.p + at + 8);
        group_send_core(g, to, g->held_bytes.p + at + 16, size);
        at += 16 + size;
    }
}

/* Frees messages that were sent. It can't wait until all are sent, as there may always be a write in
 * progress. */
static void group_trim_held(struct group *g)
{
    size_t sent = g->held_n ? g->held[0].bytes_from : g->held_bytes.n;
    if (sent == 0 || sent * 2 < g->held_bytes.n) return;
    g->held_bytes.n -= sent;
    memmove(g->held_bytes.p, g->held_bytes.p + sent, g->held_bytes.n);
    for (size_t i = 0; i < g->held_n; i++) g->held[i].bytes_from -= sent;
}

/* Sends the messages whose writes are durable, and informs the core. A write that needs no fsync counts as
 * durable when the writes before it are: it contains no promises. */
static void group_release(struct group *g)
{
    size_t n = 0;
    u64 number = 0;
    while (n < g->held_n && (g->held[n].number <= g->durable || !g->held[n].to_sync)) {
        number = g->held[n].number;
        if (!PLANTED(g, PLANT_SEND_BEFORE_PERSIST)) group_send_held(g, &g->held[n]);
        n++;
    }
    if (n == 0) return;
    g->held_n -= n;
    memmove(g->held, g->held + n, g->held_n * sizeof(*g->held));
    group_trim_held(g);
    raft_core_persisted(g->core, number);
    if (g->installing && number >= g->install->number) {
        g->installing = false;
        mem_free(g->install);
        g->install = NULL;
        raft_core_applied(g->core, g->at.index);
    }
}

/* ---- Applying (rules 2, 3, 4, 10; 14 to 17 in group_merge.c). */

static void group_abandon(struct group *g, enum group_loss loss)
{
    g->flight.active = false;
    g->evaluations_abandoned++;
    g->machine->ops->abandon(g->machine, loss);
}

/* A void entry changes nothing (rules 4, 10, 14, 15). */
static void group_apply_void(struct group *g, bool own)
{
    g->entries_void++;
    g->proposed_ms = 0; /* its stamp will not become the region's clock */
    if (own) group_abandon(g, GROUP_LOSS_VOID);
    g->machine->ops->apply(g->machine, &g->at, NULL);
}

static void group_apply_split(struct group *g, const struct raft_command *c)
{
    struct raft_split s;
    CHECK(raft_split_decode(c->payload, &s) == OK);
    struct raft_applied child = raft_split_apply(&s, &g->at);
    g->machine->ops->split(g->machine, &g->at, s.child, &child);
}

/* If expiry is logged already, a second such entry changes nothing: keys that died in between are logged. */
static void group_apply_deaths(struct group *g, const struct raft_command *c)
{
    bool logged = c->payload.n && c->payload.p[0];
    if (!logged) g->at.deaths_from_ms = 0;
    else if (!g->at.deaths_from_ms) g->at.deaths_from_ms = c->stamp_ms;
}

static void group_apply_command(struct group *g, const struct raft_entry *e, bool own)
{
    struct raft_command c;
    CHECK(raft_command_decode(bytes_of(e->data.data, e->data.size), &c) == OK);
    if (group_is_void(g, &c)) {
        group_apply_void(g, own);
        return;
    }
    CHECK(c.stamp_ms >= g->at.clock_ms); /* rule 5 */
    g->at.clock_ms = c.stamp_ms;
    if (c.kind == RAFT_KIND_DEATHS) group_apply_deaths(g, &c);
    if (raft_kind_starts_epoch(c.kind)) {
        if (c.kind == RAFT_KIND_SPLIT) group_apply_split(g, &c);
        else group_apply_merge(g, &c);
    } else if (own) {
        g->flight.active = false;
        g->untold = true;
        g->machine->ops->commit(g->machine, &g->at);
        return;
    } else {
        g->machine->ops->apply(g->machine, &g->at, &c);
    }
    g->tell_now = true;
}

/* False: it has to wait (rule 16). */
bool group_apply(struct group *g, const struct raft_entry *e)
{
    CHECK(e->index == g->at.index + 1);
    if (group_waits_for_source(g, e)) return false;
    bool own = g->flight.active && g->flight.index == e->index && g->flight.term == e->term;
    g->at.index = e->index, g->at.term = e->term;
    if (e->type == RAFT_ENTRY_NORMAL && e->data.size) {
        group_apply_command(g, e, own);
        return true;
    }
    if (e->type != RAFT_ENTRY_NORMAL && !g->at.merge.role && /* rules 14 and 15 */
        raft_core_apply_conf(g->core, e->data.data, e->data.size, &g->at.conf) == RAFT_CORE_OK)
        g->at.epoch.conf_ver++;
    g->tell_now = true;
    g->machine->ops->apply(g->machine, &g->at, NULL);
    return true;
}

static void group_apply_all(struct group *g, const struct raft_entry *entries, size_t n)
{
    size_t i = 0;
    if (n == 0) return;
    while (g->waiting_n == 0 && i < n && group_apply(g, &entries[i])) i++;
    if (i < n) group_wait_for_source(g, entries + i, n - i);
    raft_core_applied(g->core, g->at.index);
}

/* ---- The core's work. */

/* Notices gained and lost leadership (rule 3). */
static void group_check_leadership(struct group *g)
{
    struct raft_core_status s;
    raft_core_status(g->core, &s);
    u64 term = s.role == RAFT_LEADER ? s.term : 0;
    if (term == g->leader_term) return;
    g->leader_term = term;
    g->floor_ms = g->proposed_ms = g->rules_index = g->successor = g->caught_id = 0;
    g->untold = false;
    if (g->flight.active) group_abandon(g, GROUP_LOSS_UNKNOWN);
    group_fail_reads(g);
}

/* If only the commit index of the hard state is new, it is not written: what the machine has applied is
 * committed, and the rest is learned again. The exception are changes of members: a member that forgets after
 * a crash that such an entry is committed would ask the old members for votes, while the new members continue
 * without them. So while the log has such entries, the commit index is written with the next write. */
static bool group_new_hard_state(struct group *g, const struct raft_ready *r, bool reset)
{
    const struct raft_hard_state *h = &r->hard_state;
    for (size_t i = 0; i < r->entries_n; i++)
        if (r->entries[i].type != RAFT_ENTRY_NORMAL) g->conf_index = r->entries[i].index;
    bool same = h->term == g->written.term && h->vote == g->written.vote;
    bool settled = g->written.commit >= g->conf_index;
    if (!r->has_hard_state || (same && settled && !reset)) return false;
    g->written = *h;
    return true;
}

void group_write(struct group *g, const struct raft_ready *r, bool reset)
{
    struct raft_log_write w = {.number = r->number, .sync = r->must_sync, .reset = reset};
    if (reset) w.reset_index = r->snapshot_index, w.reset_term = r->snapshot_term;
    w.entries = r->entries, w.entries_n = r->entries_n;
    if (group_new_hard_state(g, r, reset)) w.hard_state = &r->hard_state;
    if (reset || w.entries_n || w.hard_state) g->log->ops->write(g->log, &w);
}

static void group_handle(struct group *g, const struct raft_ready *r)
{
    bool heartbeats = !r->entries_n && !r->committed_n && !r->reads_n && !r->has_hard_state;
    if (g->asleep || !heartbeats) group_rouse(g);
    if (r->now_n) g->sent_tick = g->ticks;
    for (size_t i = 0; i < r->now_n; i++) group_send(g, &r->now[i]);
    group_hold(g, r, r->must_sync);
    if (PLANTED(g, PLANT_SEND_BEFORE_PERSIST)) group_send_held(g, &g->held[g->held_n - 1]);
    if (r->has_snapshot) {
        CHECK(r->entries_n == 0 && r->committed_n == 0);
        g->installing = true;
        if (!g->install) g->install = mem_alloc(sizeof(*g->install));
        *g->install = *r;
        raft_core_advance(g->core);
        g->machine->ops->snapshot_install(g->machine, r->snapshot_index, r->snapshot_term);
        return;
    }
    group_write(g, r, false);
    raft_core_advance(g->core);
    for (size_t i = 0; i < r->reads_n; i++) group_confirm(g, &r->reads[i]);
    group_apply_all(g, r->committed, r->committed_n);
    group_release(g);
}

/* A leader announces its commit index with the next entry, which under load follows soon: announcing it at
 * once would double the messages. Entries that are not evaluations change more than data, and are announced
 * at once. */
static bool group_tell_now(struct group *g)
{
    if (!g->tell_now) return false;
    if (g->leader_term) raft_core_tell(g->core);
    g->untold = g->tell_now = false;
    return true;
}

void group_tell(struct group *g)
{
    if (!g->untold || group_must_wait(g)) return;
    g->tell_now = true;
    group_run(g);
}

/* Rule 13. */
static bool group_hand_on(struct group *g)
{
    u64 to = g->successor;
    if (!to || g->evaluating || g->flight.active || group_owes_reads(g)) return false;
    g->successor = 0;
    raft_core_transfer(g->core, to);
    return true;
}

/* Does all pending work; called at the end of every input. */
void group_run(struct group *g)
{
    struct raft_ready r;
    group_check_leadership(g);
    if (g->waiting_n) group_retry_waiting(g);
    do {
        while (!g->installing && raft_core_ready(g->core, &r)) {
            group_handle(g, &r);
            group_check_leadership(g);
        }
    } while (group_tell_now(g) || group_hand_on(g));
    group_check_wishes(g);
}

/* Rule 9. Also, the core lets a sole voter win its election alone, so its log must be durable before. */
bool group_must_wait(const struct group *g)
{
    const struct raft_conf *c = &g->at.conf;
    bool sole_voter = c->voters_n == 1 && c->outgoing_n == 0 && c->voters[0] == g->config.id;
    return g->installing || (sole_voter && !g->leader_term && g->held_n);
}

/* ---- Input. */

void group_wall(struct group *g, u64 wall_ms) { g->wall_ms = wall_ms; }

void group_tick(struct group *g)
{
    if (g->asleep) return;
    g->ticks++;
    for (size_t i = g->wishes_n; i-- > 0;) {
        if (g->ticks - g->wishes[i].born_tick > g->config.read_timeout_ticks) group_end_wish(g, i, false);
        else if (!g->wishes[i].index && g->ticks - g->wishes[i].asked_tick >= g->config.read_retry_ticks)
            group_ask(g, &g->wishes[i]);
    }
    if (g->successor && g->ticks - g->successor_tick > g->config.election_ticks) g->successor = 0;
    if (group_must_wait(g)) return;
    group_tell(g);
    if (g->reads_n && g->ticks - g->reads_asked_tick >= g->config.read_retry_ticks) {
        g->reads_retried++;
        group_read_index(g);
    }
    raft_core_tick(g->core);
    group_run(g);
    group_try_sleep(g);
}

void group_receive(struct group *g, u64 from, bytes message)
{
    if (message.n == 0 || group_must_wait(g)) return;
    const char *p = message.p + 1;
    size_t n = message.n - 1;
    if (message.p[0] == FRAME_SLEEP && n == 32) {
        group_on_sleep(g, from, get_le64(p), get_le64(p + 8));
        return;
    }
    group_on_word(g, from, message);
    if (message.p[0] == FRAME_CORE) raft_core_step(g->core, (const u8 *)p, n);
    else if (message.p[0] == FRAME_READ_REQUEST && n == 32)
        group_on_read_request(g, from, get_le64(p), get_le64(p + 8));
    else if (message.p[0] == FRAME_READ_REPLY && n == 32)
        group_on_read_reply(g, get_le64(p), get_le64(p + 8), get_le64(p + 16), get_le64(p + 24));
    else if (message.p[0] == FRAME_TRANSFER && n == 32 && g->leader_term)
        group_transfer(g, get_le64(p));
    group_run(g);
}

void group_durable(struct group *g, u64 number)
{
    if (number > g->durable) g->durable = number;
    group_release(g);
    group_run(g);
}

void group_unreachable(struct group *g, u64 peer)
{
    group_rouse(g);
    raft_core_unreachable(g->core, peer);
    group_run(g);
}

/* ---- Evaluation. */

/* A leader that has applied everything of earlier terms, and is not transferring its leadership. */
bool group_leads(const struct group *g)
{
    struct raft_core_status s;
    if (!g->leader_term || g->installing || g->successor) return false;
    raft_core_status(g->core, &s);
    return s.role == RAFT_LEADER && s.applied_own_term && !s.transferee;
}

bool group_may_propose(const struct group *g)
{
    bool fenced = g->at.merge.role == RAFT_MERGE_SOURCE && !PLANTED(g, PLANT_MERGE_NO_FENCE); /* rule 15 */
    return !fenced && group_leads(g);
}

/* A leader's state may be behind what is committed: the others can commit an entry that its own slow disk has
 * not stored yet. */
bool group_has_applied_all(const struct group *g)
{
    struct raft_core_status s;
    raft_core_status(g->core, &s);
    return g->at.index == s.commit;
}

/* Requires a state that equals everything committed (rule 7), and no pending change of the epoch (rule 12).
 * `flight` covers only effects, not other kinds of entries. */
bool group_may_evaluate(const struct group *g)
{
    if (g->at.index < g->rules_index && !PLANTED(g, PLANT_SKIP_EPOCH)) return false;
    return !g->flight.active && group_may_propose(g) && group_has_applied_all(g);
}

/* It stands still within an evaluation: what is proposed meanwhile precedes that one's entry (rule 5). */
u64 group_time(const struct group *g)
{
    u64 ms = MAX(g->at.clock_ms, g->floor_ms);
    return g->evaluating ? ms : MAX(ms, g->wall_ms);
}

u64 group_evaluation_time(struct group *g)
{
    g->floor_ms = group_time(g);
    g->evaluating = true;
    return g->floor_ms;
}

void group_drop_evaluation(struct group *g)
{
    g->evaluating = false;
    group_run(g);
}

bool group_append(struct group *g, enum raft_kind kind, bytes payload, u64 stamp_ms)
{
    struct raft_command c = {kind, g->at.epoch, stamp_ms, payload};
    CHECK(stamp_ms >= g->at.clock_ms && stamp_ms >= g->floor_ms); /* rule 5 */
    buf_clear(&g->frame);
    raft_command_encode(&g->frame, &c);
    if (raft_core_propose(g->core, (const u8 *)g->frame.p, g->frame.n) != RAFT_CORE_OK) return false;
    g->floor_ms = g->proposed_ms = stamp_ms;
    g->untold = false;
    return true;
}

enum group_wait group_evaluated(struct group *g, u64 now_ms, bytes effects, u64 depends_ms, u64 *read)
{
    struct raft_core_status s;
    CHECK(!g->flight.active);
    g->evaluating = false;
    if (PLANTED(g, PLANT_NO_FENCE)) depends_ms = 0;
    if (effects.n == 0 && depends_ms <= g->at.clock_ms) {
        *read = ++g->next_id;
        u64 number = group_read_index(g);
        *GROUP_PUSH(g, reads) = (struct group_read){.number = number, .id = *read};
        if (PLANTED(g, PLANT_READ_UNCONFIRMED)) {
            g->reads_n--;
            g->machine->ops->confirmed(g->machine, *read, true);
        }
        group_run(g);
        return GROUP_WAIT_READ;
    }
    enum raft_kind kind = effects.n ? RAFT_KIND_EFFECTS : RAFT_KIND_CLOCK; /* rule 6 */
    if (!group_append(g, kind, effects, now_ms)) return GROUP_REFUSED;
    raft_core_status(g->core, &s);
    g->clock_entries += kind == RAFT_KIND_CLOCK;
    g->flight.active = true, g->flight.term = s.term, g->flight.index = s.last_index;
    group_run(g);
    return GROUP_WAIT_COMMIT;
}

bool group_propose_at(struct group *g, enum raft_kind kind, bytes payload, u64 stamp_ms)
{
    struct raft_core_status s;
    bool rules = raft_kind_starts_epoch(kind) || kind == RAFT_KIND_DEATHS;
    if (rules && g->evaluating) return false; /* rule 12 */
    bool may = kind == RAFT_KIND_MERGE_ROLLBACK ? group_leads(g) : group_may_propose(g);
    if (!may || !group_append(g, kind, payload, stamp_ms)) return false;
    raft_core_status(g->core, &s);
    if (rules) g->rules_index = s.last_index;
    group_run(g);
    return true;
}

bool group_propose(struct group *g, enum raft_kind kind, bytes payload)
{
    return group_propose_at(g, kind, payload, group_time(g));
}

bool group_propose_clock(struct group *g)
{
    bool ok = group_append(g, RAFT_KIND_CLOCK, bytes_of(NULL, 0), group_time(g));
    g->clock_entries += ok;
    return ok;
}

bool group_clock_due(struct group *g)
{
    if (!group_may_propose(g)) return false;
    u64 due = g->machine->ops->next_deadline(g->machine);
    if (!due || due > g->wall_ms || due <= MAX(g->at.clock_ms, g->proposed_ms)) return false;
    if (!group_propose_clock(g)) return false;
    group_run(g);
    return true;
}
