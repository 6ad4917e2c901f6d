/* The periodic work of a node: Raft's ticks, the work of leaders, and what is done before the loop sleeps.
 *
 * The timer, ten times per election timeout, visits only regions whose groups are awake (rules 18 to 20 of
 * raft/group.h). Before the loop sleeps, only regions whose groups had something to do are visited, which are
 * in a list (cluster_stir). Led regions are in a heap by their nearest deadline. */
#include <stdio.h>

#include "base/clock.h"
#include "base/endian.h"
#include "cluster/cluster_parts.h"
#include "cluster/snapshot.h"
#include "repl/primary.h"
#include "server/client/block.h"
#include "server/client/migrate.h"

#define BEAT_HELD 1 /* after the nonce */
#define COMPACT_EVERY 20 /* ticks of the timer */
#define CATCH_UP_TICKS 3 /* of Raft, when the timer came late */
#define TIMER_MS_MAX 100
#define TELL_MS 10 /* after which a leader tells what it has committed, if it proposes nothing else */
#define SAVE_MS 10 /* after which a follower stores what it has applied … */
#define SAVE_BYTES (256u << 10) /* … if that is not more */
#define SWEEP_EVERY 20   /* ticks of the timer */
#define FULL_TIMEOUTS 20 /* between attempts to hand leadership on because the disk is full */

/* -- leadership -------------------------------------------------------------------------------- */

static void lost_leadership(struct member *m)
{
    if (!m->region) return;
    migrate_distrust(m->server); /* others may change the keys, and this node may lead again */
    block_refuse_region(m->server, m->region);
    wait_refuse_region(m->server, m->number);
    watch_distrust(&m->region->watches, 0);
}

static void note_leadership(struct member *m)
{
    bool leads = member_leads(m);
    u64 leader = group_leader(m->group);
    if (leader != m->leader) cluster_moved_on(m->cluster); /* reads that wait for the last one */
    if (leader) m->await_until_ms = 0;
    else if (m->leader) member_await_leader(m);
    m->leader = leader;
    cluster_note_news(m);
    if (leads == m->led) return;
    if (m->region) region_touch(m->region);
    crash_point("cluster-start-5");
    m->led = leads;
    log_line(&m->server->log, LOG_NOTICE,
             leads ? "This node leads region %llu." : "This node no longer leads region %llu.",
             (ull)m->number);
    if (!leads) lost_leadership(m);
    cluster_moved_on(m->cluster);
}

/* There is no leader to wait for: requests are refused from now on. */
static void stop_waiting(struct member *m)
{
    if (!m->await_until_ms || (i64)uv_now(&m->server->loop) < m->await_until_ms) return;
    m->await_until_ms = 0;
    cluster_moved_on(m->cluster);
}

/* A leader whose data differs must not lead. */
static void hand_on(struct member *m)
{
    u64 to = group_successor(m->group);
    if (to) group_transfer(m->group, to);
}

/* A leader whose disk is full transfers its leadership, since other nodes may have space. This is not
 * repeated often: if the leadership returns, all disks are full. */
static void leave_full_disk(struct cluster *c)
{
    i64 now_ms = (i64)uv_now(&c->server->loop);
    bool left = false;
    if (!c->server->node.refuse_writes || now_ms < c->full_until_ms) return;
    for (u32 i = 0; i < c->members_n; i++) {
        struct member *m = c->members[i];
        u64 to = m->led ? group_successor(m->group) : 0;
        if (to) group_transfer(m->group, to);
        left |= to != 0;
    }
    if (!left) return;
    c->full_until_ms = now_ms + FULL_TIMEOUTS * c->server->config.cluster_node_timeout;
    log_line(&c->server->log, LOG_WARNING, "This node can't take writes: it hands leadership on.");
}

/* -- the timer --------------------------------------------------------------------------------- */

static i64 tick_interval(const struct cluster *c)
{
    return MAX(c->server->config.cluster_node_timeout / ELECTION_TICKS, 10);
}

/* Nodes join and become voters by steps of the timer: they need not wait for patient elections. */
static u64 timer_interval(const struct cluster *c) { return (u64)MIN(tick_interval(c), TIMER_MS_MAX); }

/* Compaction keeps some entries, so that a member that was away for a short time needs no snapshot. */
static void time_compact(struct member *m)
{
    u64 kept = (u64)m->server->config.cluster_log_keep_entries;
    u64 applied = m->region ? m->region->eng->applied : 0;
    if (applied > kept) group_compact(m->group, applied - kept);
}

static void time_tell_unreachable(struct member *m, const struct cluster_node *n)
{
    u64 peer = conf_peer_on(&m->at.conf, n->number);
    if (peer) group_unreachable(m->group, peer);
}

static void report_unreachable(struct cluster *c)
{
    for (struct cluster_node *n = c->nodes; n; n = n->next) {
        if (!n->unreachable) continue;
        n->unreachable = false;
        for (u32 i = 0; i < c->members_n; i++) time_tell_unreachable(c->members[i], n);
    }
}

void cluster_awake(struct member *m, bool awake)
{
    if (awake == m->awake) return;
    m->awake = awake;
    m->rested = false;
    m->cluster->awake_n += awake ? 1u : -1u;
}

/* -- regions that sleep ------------------------------------------------------------------------ */

/* fn for each member on that node of groups that have a member here. */
static void time_each_peer(struct cluster *c, const struct cluster_node *n,
                           void (*fn)(struct group *g, u64 peer))
{
    for (u32 i = 0; i < c->members_n; i++) {
        struct member *m = c->members[i];
        u64 peer = m->group ? conf_peer_on(&m->at.conf, n->number) : 0;
        if (peer) fn(m->group, peer);
    }
}

void cluster_on_beat(struct cluster *c, struct cluster_node *n, bytes beat)
{
    bool held = beat.n == 9 && beat.p[8] == BEAT_HELD;
    if (!n || (beat.n != 8 && !held) || !get_le64(beat.p)) return;
    n->heard_ms = clock_wall_ms();
    bool restarted = beat_heard(&n->beat, c->raft_ticks, get_le64(beat.p));
    if (!c->started) return;
    if (restarted) time_each_peer(c, n, group_doubt);
    if (held || (n->link && bus_peer_moves(n->link))) time_each_peer(c, n, group_excuse);
}

void cluster_on_part(struct cluster *c, struct cluster_node *n)
{
    if (!n || !c->started || !n->beat.nonce || n->part_tick == c->raft_ticks) return; /* once per tick */
    n->part_tick = c->raft_ticks;
    n->heard_ms = clock_wall_ms();
    beat_heard(&n->beat, c->raft_ticks, n->beat.nonce);
    time_each_peer(c, n, group_excuse);
}

static void time_send_beats(struct cluster *c, bool held)
{
    char beat[9];
    put_le64(beat, c->nonce);
    beat[8] = BEAT_HELD;
    for (struct cluster_node *n = c->nodes->next; n; n = n->next)
        if (n->link) bus_send(n->link, CLUSTER_BEAT, (bytes){0}, bytes_of(beat, held ? 9 : 8));
}

i64 cluster_silence_ms(const struct cluster *c, const struct cluster_node *n)
{
    if (n == c->nodes) return 0;
    u64 ticks = MIN((u64)beat_silence(&n->beat, c->raft_ticks), c->raft_ticks); /* since the start at most */
    return (i64)ticks * tick_interval(c);
}

static void time_beat(struct cluster *c, i64 ticks)
{
    u64 before = c->raft_ticks;
    c->raft_ticks += (u64)ticks;
    if (c->raft_ticks / BEAT_TICKS > before / BEAT_TICKS) time_send_beats(c, false);
    for (struct cluster_node *n = c->nodes->next; n; n = n->next)
        if (beat_lost(&n->beat, c->raft_ticks, ELECTION_TICKS)) time_each_peer(c, n, group_doubt);
}

void cluster_held(void *owner)
{
    struct cluster *c = ((struct server *)owner)->cluster;
    i64 now_us = clock_mono_us();
    if (!c->started || now_us - c->beat_us < BEAT_TICKS * tick_interval(c) * 1000) return;
    c->beat_us = now_us;
    time_send_beats(c, true);
    bus_flush(c->bus);
}

static void time_wake_all(struct cluster *c)
{
    for (u32 i = 0; i < c->members_n; i++) group_wake(c->members[i]->group);
}

/* What leaders look at in each step. */
static u64 time_news(const struct cluster *c)
{
    const struct region *r = c->server->node.regions.first;
    return (u64)expiry_stream_on(&r->expiry_stream) << 1 | (c->diverged != 0);
}

/* Periodically wakes a sleeping group, so that its periodic checks run, and a member that should not be
 * asleep finds that out. */
static void time_sweep(struct cluster *c)
{
    u64 news = time_news(c);
    if (news != c->news) time_wake_all(c);
    c->news = news;
    if (c->ticks % SWEEP_EVERY) return;
    c->swept = c->swept + 1 < c->members_n ? c->swept + 1 : 0;
    group_wake(c->members[c->swept]->group);
}

/* -- what was committed ------------------------------------------------------------------------ */

/* Groups that have proposed nothing since they committed. Under load a commit is announced with the next
 * proposal. */
static void time_on_tell(uv_timer_t *t)
{
    struct cluster *c = t->data;
    i64 now_ms = (i64)uv_now(t->loop);
    for (struct member **at = &c->untold, *m; (m = *at);) {
        if (now_ms - m->untold_ms < TELL_MS) {
            at = &m->untold_next;
            continue;
        }
        *at = m->untold_next;
        m->untold = false;
        group_tell(m->group);
        cluster_stir(m);
    }
    if (c->untold) uv_timer_start(t, time_on_tell, TELL_MS, 0);
}

void cluster_tell_later(struct member *m)
{
    struct cluster *c = m->cluster;
    m->untold_ms = (i64)uv_now(&c->server->loop);
    if (m->untold) return;
    if (!c->untold) uv_timer_start(&c->tell_timer, time_on_tell, TELL_MS, 0);
    m->untold = true;
    m->untold_next = c->untold;
    c->untold = m;
}

/* -- the steps --------------------------------------------------------------------------------- */

static void time_rest(struct member *m)
{
    if (m->rested || !group_sleeps(m->group) || m->unsaved || m->in_flight || m->evaluating) return;
    time_compact(m);
    member_rest(m);
}

static void time_step(struct member *m, i64 ticks)
{
    struct cluster *c = m->cluster;
    group_wall(m->group, (u64)clock_wall_ms());
    for (i64 i = 0; i < ticks; i++) group_tick(m->group);
    note_leadership(m);
    stop_waiting(m);
    if (m->led && !cluster_is_meta(m)) cluster_expiry_step(m);
    if (m->led && c->diverged) hand_on(m);
    if ((c->ticks + m->number) % COMPACT_EVERY == 0) time_compact(m);
    check_step(m);
    time_rest(m);
}

/* In this order parents come before their children: a node refuses a child's snapshot until its parent has
 * been split there. */
static void time_steps(struct cluster *c, i64 ticks)
{
    for (u32 i = 0; i < c->members_n; i++)
        if (c->members[i]->awake) time_step(c->members[i], ticks);
}

static void time_on_timer(uv_timer_t *t)
{
    struct cluster *c = t->data;
    i64 now_ms = (i64)uv_now(t->loop), interval = tick_interval(c);
    i64 due = MIN((now_ms - c->timer_ms) / interval, CATCH_UP_TICKS);
    report_unreachable(c);
    if (due > 0) c->timer_ms = now_ms;
    uv_timer_set_repeat(t, timer_interval(c)); /* CONFIG SET may have changed it */
    c->ticks++;
    time_beat(c, due);
    time_sweep(c);
    time_steps(c, due);
    leave_full_disk(c);
    cluster_autosplit_step(c);
    cluster_merge_step(c, (u64)MAX(due, 0));
    cluster_bury_step(c);
    cluster_report_step(c);
    if (!c->leave_until_ms) cluster_schedule_step(c);
    if (!cluster_meta(c)->led) cluster_join_step(c);
    snapshot_step(c);
}

/* -- before the loop sleeps -------------------------------------------------------------------- */

/* Continues to shut down when other nodes lead. If that fails, this node continues to serve. */
static void leave_step(struct cluster *c)
{
    if (!c->leave_until_ms || server_shutdown(c->server, c->leave_how)) return;
    c->leave_until_ms = 0;
    cluster_moved_on(c);
}

/* Of a region with data; INT64_MAX: none. */
static i64 next_deadline(const struct member *m)
{
    struct engine *e = m->region->eng;
    return e->ops->next_due(e);
}

void cluster_note_due(struct member *m, bool leads)
{
    struct heap *dues = &m->cluster->dues;
    i64 due_ms = leads && m->region ? next_deadline(m) : INT64_MAX;
    if (m->is_due && m->due.key == due_ms) return;
    if (m->is_due) heap_remove(dues, &m->due);
    m->is_due = due_ms != INT64_MAX;
    m->due.key = due_ms;
    if (m->is_due) heap_add(dues, &m->due);
}

/* The members whose nearest deadline has passed, as a list. */
static struct member *take_due(struct cluster *c, i64 wall_ms)
{
    struct member *list = NULL;
    for (struct heap_node *h; (h = heap_first(&c->dues)) && h->key <= wall_ms;) {
        struct member *m = (struct member *)(void *)((char *)h - offsetof(struct member, due));
        heap_remove(&c->dues, h);
        m->is_due = false;
        m->due_next = list;
        list = m;
    }
    return list;
}

/* Once per millisecond: deadlines are that exact. */
static void move_clocks(struct cluster *c)
{
    u64 wall_ms = (u64)clock_wall_ms();
    if (wall_ms == c->clock_looked_ms) return;
    c->clock_looked_ms = wall_ms;
    for (struct member *m = take_due(c, (i64)wall_ms), *next; m; m = next) {
        next = m->due_next;
        group_wall(m->group, wall_ms);
        if (!m->in_flight) group_clock_due(m->group);
        cluster_note_due(m, m->led);
    }
}

void cluster_stir(struct member *m)
{
    struct cluster *c = m->cluster;
    if (m->stirred) return;
    m->stirred = true;
    m->stirred_next = c->stirred;
    c->stirred = m;
}

/* -- what was applied is stored ----------------------------------------------------------------- */

/* Members to be saved, which are collected so that they share a write. */
struct time_saving {
    struct member *v[DISK_TOGETHER];
    u32 n;
};

static void time_save(struct time_saving *s)
{
    member_save_all(s->v, s->n);
    s->n = 0;
}

static void time_to_save(struct time_saving *s, struct member *m)
{
    if (m->unsaved) s->v[s->n++] = m;
    if (s->n == DISK_TOGETHER) time_save(s);
}

static void time_on_save(uv_timer_t *t)
{
    struct cluster *c = t->data;
    struct time_saving s = {.n = 0};
    for (struct member *m = c->saved_later; m; m = m->saved_later_next) time_to_save(&s, m);
    time_save(&s);
    for (struct member *m; (m = c->saved_later);) {
        c->saved_later = m->saved_later_next;
        m->saved_later = false;
        time_rest(m);
    }
}

static void time_save_later(struct member *m)
{
    struct cluster *c = m->cluster;
    if (m->saved_later) return;
    if (!c->saved_later) uv_timer_start(&c->save_timer, time_on_save, SAVE_MS, 0);
    m->saved_later = true;
    m->saved_later_next = c->saved_later;
    c->saved_later = m;
}

/* A follower is asked nothing but by its log, which has all of it after a crash: several entries share what
 * is stored with each. */
static bool time_may_save_later(const struct member *m)
{
    bool plain = !m->led && !cluster_is_meta(m) && !m->conf_unsaved && !m->at.merge.role;
    return plain && m->unsaved_bytes < SAVE_BYTES;
}

void cluster_save(struct cluster *c)
{
    struct time_saving s = {.n = 0};
    for (struct member *m = c->stirred; m; m = m->stirred_next) {
        if (m->unsaved && time_may_save_later(m)) time_save_later(m);
        else time_to_save(&s, m);
    }
    time_save(&s);
}

/* Entries that came are stored. */
static void settle_stirred(struct cluster *c)
{
    struct member *m;
    for (m = c->stirred; m; m = m->stirred_next) note_leadership(m);
    cluster_save(c);
    while ((m = c->stirred)) {
        c->stirred = m->stirred_next;
        m->stirred = false;
        time_rest(m);
        cluster_note_due(m, m->led);
    }
}

static void time_on_idle(uv_idle_t *h UNUSED) {}

/* Ticks that run after time_on_prepare may call this, and then the loop must not sleep yet. */
void cluster_moved_on(struct cluster *c)
{
    c->moved_on = true;
    if (c->awake.data && !uv_is_closing((uv_handle_t *)&c->awake)) uv_idle_start(&c->awake, time_on_idle);
}

bool cluster_resumes(const struct cluster *c)
{
    return c->moved_on && net_held_requests(&c->server->net, HOLD_RAFT);
}

/* Before the loop sleeps: stores the entries that have arrived, and runs requests that waited for them. */
static void time_on_prepare(uv_prepare_t *h)
{
    struct cluster *c = h->data;
    uv_idle_stop(&c->awake);
    settle_stirred(c);
    cluster_merge_step(c, 0);
    move_clocks(c);
    if (c->acked && c->server->repl.waiting) wait_check(c->server);
    c->acked = false;
    leave_step(c);
    if (cluster_gathers(c) || !c->moved_on) return;
    c->moved_on = false;
    net_resume(&c->server->net, HOLD_RAFT);
}

/* -- life -------------------------------------------------------------------------------------- */

void cluster_start_time(struct cluster *c)
{
    uv_loop_t *loop = &c->server->loop;
    c->timer_ms = (i64)uv_now(loop);
    c->nonce = rand_next(&cluster_meta(c)->region->seeds) | 1;
    uv_timer_init(loop, &c->timer);
    uv_timer_start(&c->timer, time_on_timer, timer_interval(c), timer_interval(c));
    uv_timer_init(loop, &c->tell_timer);
    uv_timer_init(loop, &c->save_timer);
    uv_timer_init(loop, &c->feed_timer);
    uv_timer_init(loop, &c->install_timer);
    uv_prepare_init(loop, &c->prepare);
    uv_prepare_start(&c->prepare, time_on_prepare);
    uv_idle_init(loop, &c->awake);
    c->timer.data = c->tell_timer.data = c->save_timer.data = c->prepare.data = c->awake.data = c;
    c->feed_timer.data = c->install_timer.data = c;
    c->handles += 7;
    uv_unref((uv_handle_t *)&c->prepare);
    uv_unref((uv_handle_t *)&c->awake);
}

void cluster_stop_time(struct cluster *c)
{
    uv_close((uv_handle_t *)&c->timer, cluster_on_closed);
    uv_close((uv_handle_t *)&c->tell_timer, cluster_on_closed);
    uv_close((uv_handle_t *)&c->save_timer, cluster_on_closed);
    uv_close((uv_handle_t *)&c->feed_timer, cluster_on_closed);
    uv_close((uv_handle_t *)&c->install_timer, cluster_on_closed);
    uv_close((uv_handle_t *)&c->prepare, cluster_on_closed);
    uv_close((uv_handle_t *)&c->awake, cluster_on_closed);
}
