#include "server/commit.h"

#include "cluster/cluster.h"
#include "command/commands.h"
#include "exec/multi.h"
#include "net/fence.h"
#include "peers/peers.h"
#include "server/client/migrate.h"
#include "server/storage.h"

/* -- fences ------------------------------------------------------------------------------- */

enum { SAID_MULTI = 1 };

/* net's on_segment: whether the transaction that is open, if one is, was begun by these requests. */
static u8 commit_marks(struct net *n, struct conn *c, u32 from, u32 to)
{
    struct server *s = n->owner;
    const struct net_tick *t = &n->tick;
    if (LIKELY(!c->session.tx)) return 0;
    for (; from < to; from++) {
        const struct net_request *q = &t->requests[from];
        const struct command *cmd = q->argc ? node_find(&s->node, t->args[q->argv_at]) : NULL;
        if (cmd && cmd->run == cmd_multi) return SAID_MULTI;
    }
    return 0;
}

/* net's on_failed. If MULTI failed, the client is not in a transaction; if a command to be queued failed,
 * EXEC will fail. A replica's link can no longer be trusted. */
static bool commit_on_failed(struct net *n, struct conn *c, const struct net_failure *what)
{
    struct server *s = n->owner;
    if (c->session.tx && what->asked_since_mark) multi_failed(&c->session, what->marks & SAID_MULTI);
    bool gives_up = what->waits && c->hold & (HOLD_BLOCKED | HOLD_WAIT);
    if ((what->asked && c->replica) || (gives_up && c->hold & HOLD_WAIT)) primary_failed(s, c);
    if (gives_up) block_forget(s, c);
    return gives_up;
}

void commit_init(struct server *s)
{
    s->net.on_segment = commit_marks;
    s->net.on_failed = commit_on_failed;
}

/* Puts the fence in force that the replies of this connection's next request wait for (NULL: those of blocked
 * clients), and opens it if it is the first of the tick. */
static void commit_enforce(struct server *s, const struct conn *c)
{
    struct debug_fences *d = &s->debug_fences;
    struct fence **f = &d->of[c ? c->session.db % d->count : 0];
    if (!*f) *f = fence_open(&s->net);
    fence_enforce(&s->net, *f);
}

/* server.enforce while debug fences are on. Exempt is DEBUG FENCE itself, and a request of a nested turn,
 * which may not depend on the tick's outcome. */
static struct region *debug_enforce(struct server *s, const struct net_request *q, struct request *to UNUSED)
{
    const bytes *argv = q ? s->net.tick.args + q->argv_at : NULL;
    bool exempt = q && q->argc > 1 && bytes_is(argv[0], "debug") && bytes_is(argv[1], "fence");
    if (exempt || (q && s->node.script)) fence_enforce(&s->net, NULL);
    else commit_enforce(s, q ? q->conn : NULL);
    return s->node.regions.first;
}

void commit_debug_fences(struct server *s, u32 count)
{
    s->debug_fences.count = count;
    s->enforce = count ? debug_enforce : NULL;
}

void commit_fence_failed(struct server *s, struct fence *f, const char *wrote, const char *read)
{
    tracking_distrust(s); /* invalidations may be taken back, and not be sent again */
    migrate_distrust(s);
    fence_fail(f, wrote, read);
}

/* The replies of this tick must not be sent. Without a fence in force, one fence covers all of them. */
static COLD void fail_replies(struct server *s, const char *wrote, const char *read)
{
    struct debug_fences *d = &s->debug_fences;
    fence_enforce(&s->net, NULL);
    if (!d->count) fence_fail(fence_of_tick(&s->net), wrote, read);
    for (u32 i = 0; i < d->count; i++)
        if (d->of[i]) fence_fail(d->of[i], wrote, read);
}

/* The tick has run: its fences are left open, to be ended later. */
static COLD void leave_fences(struct server *s)
{
    fence_enforce(&s->net, NULL);
    memset(s->debug_fences.of, 0, sizeof s->debug_fences.of);
    commit_debug_fences(s, s->debug_fences.wanted);
}

/* What the tick did before the running request has been committed: the rest waits for other fences. */
static COLD void renew_fences(struct server *s)
{
    const struct net_request *running = net_running(&s->net);
    memset(s->debug_fences.of, 0, sizeof s->debug_fences.of);
    if (!running) return;
    commit_enforce(s, running->conn);
    conn_reply(running->conn);
}

/* -- steps 1 to 3: metadata, engine, stream ---------------------------------------------- */

static COLD void take_back_stream(struct server *s, bool noted)
{
    repl_stream_take_back(&s->repl.stream);
    tracking_distrust(s);
    if (noted) replication_note(s); /* what was noted before this still has to be stored */
    lone_region(s)->journal.db = -1; /* a SELECT may have been taken back with it */
}

/* Every region has a transaction of its own: with several, some may be kept and others not. False: at least
 * one was not, and no reply of the tick may be sent. */
static bool commit_regions(struct server *s, bool relaxed)
{
    struct region *r;
    bool kept = true;
    REGIONS_EACH(&s->node.regions, r) {
        r->eng->relaxed = relaxed;
        kept &= region_commit(r); /* with the functions, if they changed */
        r->eng->relaxed = false;
    }
    return kept;
}

static bool commit_data(struct server *s, bool relaxed)
{
    struct repl_stream *stream = &s->repl.stream;
    struct engine *e = node_engine(&s->node);
    bool moves = stream->staged > 0, noted = e->repl_position.changed;
    if (UNLIKELY(moves)) replication_note(s);
    bool kept = commit_regions(s, relaxed);
    if (UNLIKELY(!kept)) {
        take_back_stream(s, noted);
    } else if (UNLIKELY(moves)) {
        repl_stream_publish(stream);
        primary_feed(s);
    }
    return kept;
}

/* -- step 5: what a failure means to clients ---------------------------------------------- */

static COLD void engine_failed(struct server *s, enum commit_kind kind)
{
    const char *why;
    s->persist.flushed = false;
    switch (kind) {
    case COMMIT_TICK:
        storage_note_refusal(s);
        migrate_distrust(s);
        why = s->node.refuse_writes ? s->node.refuse_writes : REGION_IO_ERROR;
        fail_replies(s, why, why);
        break;
    case COMMIT_EXPIRY: net_take_back(&s->net); break;
    case COMMIT_HOUSEKEEPING: storage_note_refusal(s); break;
    case COMMIT_PRIMARY: case COMMIT_SITE:
        net_take_back(&s->net);
        storage_note_refusal(s);
        break;
    case COMMIT_PART: case COMMIT_POSITION: case COMMIT_LOAD_PART: case COMMIT_LOAD_END: break;
    }
}

static COLD void aof_failed(struct server *s, enum commit_kind kind)
{
    const char *why = aof_refuses(s->persist.aof);
    if (kind == COMMIT_PART) {
        s->persist.part_failed = true;
    } else if (kind == COMMIT_TICK) {
        tracking_distrust(s);
        fail_replies(s, why ? why : "MISCONF Errors writing to the AOF file", NULL);
    } else if (kind == COMMIT_PRIMARY) { /* follow_may checks this, and waits */
        log_line(&s->log, LOG_WARNING, "The primary's commands could not be written to the append only file");
    } else if (kind == COMMIT_SITE) { /* links are not read until it can be written again */
        log_line(&s->log, LOG_WARNING, "Effects of other sites could not be written to the append only file");
    }
}

/* -- the path ------------------------------------------------------------------------------ */

static bool commit_all(struct server *s, enum commit_kind kind)
{
    if (UNLIKELY(!commit_data(s, kind == COMMIT_EXPIRY || kind == COMMIT_LOAD_PART))) {
        engine_failed(s, kind);
        if (UNLIKELY(s->peers != NULL)) peers_committed(s, false);
        return false;
    }
    if (UNLIKELY(s->peers != NULL)) peers_committed(s, true);
    bool logged = persistence_log(s) && !(kind == COMMIT_TICK && s->persist.part_failed);
    if (UNLIKELY(s->persist.flushed) && kind != COMMIT_PART) persistence_after_flushall(s);
    if (UNLIKELY(!logged)) aof_failed(s, kind);
    return true;
}

bool server_commit(struct server *s, enum commit_kind kind)
{
    if (UNLIKELY(s->cluster)) return cluster_commit(s, kind);
    bool kept = commit_all(s, kind);
    if (UNLIKELY(s->debug_fences.count) && kind == COMMIT_TICK) leave_fences(s);
    return kept;
}

bool server_commit_part(struct server *s)
{
    struct node *n = &s->node;
    if (UNLIKELY(s->cluster)) return true; /* a tick is one entry: its fence holds what depends on it */
    if (!node_settled(n) && node_may_split(n)) {
        bool kept = server_commit(s, COMMIT_PART);
        node_split(n, kept);
        if (UNLIKELY(s->debug_fences.count) && kept) renew_fences(s);
    }
    return node_settled(n) && !s->persist.part_failed;
}
