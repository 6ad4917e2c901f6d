#include "server/commit.h"

#include "command/commands.h"
#include "exec/multi.h"
#include "server/client/migrate.h"
#include "server/storage.h"

/* -- replies that may not leave --------------------------------------------------------- */

/* If MULTI failed, the client is not in a transaction. */
static void fail_transaction(struct server *s, struct conn *c, u32 at, u32 end)
{
    const struct net_tick *t = &s->net.tick;
    bool said_multi = false;
    for (; at < end && !said_multi; at++) {
        const struct net_request *q = &t->requests[at];
        const struct command *cmd = q->argc ? node_find(&s->node, t->args[q->argv_at]) : NULL;
        said_multi = cmd && cmd->run == cmd_multi;
    }
    multi_failed(&c->session, said_multi);
}

/* Takes back what the tick wrote to a connection, which gets the error so many times instead. */
static void take_back(struct conn *c, const char *error, u32 times)
{
    conn_cut_output(c, c->tick_mark);
    if (c->session.reply_mode != REPLY_OFF) {
        struct reply out = conn_reply(c);
        for (; times > 0; times--) reply_error(&out, error);
    }
    c->tick_mark = conn_output_end(c);
    c->late = c->late_wrote = false;
}

/* Each request of a connection gets the error instead of its reply, and so does a request of an earlier tick
 * that was answered in this one. Its requests begin at `at` and stand together; returns where they end. */
static u32 fail_connection(struct net *n, u32 at, const char *error, bool writers_only)
{
    const struct net_tick *t = &n->tick;
    struct conn *c = t->requests[at].conn;
    u32 end = at;
    bool wrote = c && c->late_wrote;
    for (; end < t->request_count && t->requests[end].conn == c; end++) wrote |= t->requests[end].wrote;
    if (!c || c->closing || (writers_only && !wrote)) return end;
    if (UNLIKELY(c->replica || c->hold & HOLD_WAIT)) primary_failed(n->owner, c);
    if (UNLIKELY(c->session.tx != NULL)) fail_transaction(n->owner, c, at, end);
    block_forget(n->owner, c);
    take_back(c, error, end - at + c->late);
    return end;
}

/* A connection without a request in this tick that was written to: if it had waited for a key it gets the
 * error; messages about what others did are taken back. A replica is sent nothing before it is kept. */
static void fail_listener(struct conn *c, const char *error, bool writers_only)
{
    if (c->closing || c->replica || (writers_only && !c->late_wrote)) return;
    take_back(c, error, c->late);
}

/* Nothing the tick did was kept: all its clients get the error. Or (writers_only) it could not be written to
 * the AOF: those that changed anything do. */
static void fail_replies(struct server *s, const char *error, bool writers_only)
{
    for (u32 i = 0; i < s->net.tick.request_count;) i = fail_connection(&s->net, i, error, writers_only);
    for (struct conn *c = s->net.tick.ready; c; c = c->ready_next) fail_listener(c, error, writers_only);
}

/* -- steps 1 to 3: metadata, engine, stream ---------------------------------------------- */

static COLD void take_back_stream(struct server *s, bool noted)
{
    stream_take_back(&s->repl.stream);
    tracking_distrust(s);
    if (noted) replication_note(s); /* what was to be kept before this is still to be kept */
    s->region.journal.db = -1;      /* a SELECT may have gone with it */
}

static bool commit_data(struct server *s, bool relaxed)
{
    struct stream *stream = &s->repl.stream;
    struct engine *e = s->region.eng;
    bool moves = stream->staged > 0, noted = e->note.changed;
    if (UNLIKELY(moves)) replication_note(s);
    e->relaxed = relaxed;
    bool kept = region_commit(&s->region); /* with the functions, if they changed */
    e->relaxed = false;
    if (UNLIKELY(!kept)) {
        take_back_stream(s, noted);
    } else if (UNLIKELY(moves)) {
        stream_publish(stream);
        primary_feed(s);
    }
    return kept;
}

/* -- step 5: what a failure means to clients ---------------------------------------------- */

static COLD void engine_failed(struct server *s, enum commit_kind kind)
{
    s->persist.flushed = false;
    switch (kind) {
    case COMMIT_TICK:
        storage_note_refusal(s);
        migrate_distrust(s);
        fail_replies(s, s->node.refuse_writes ? s->node.refuse_writes : REGION_IO_ERROR, false);
        break;
    case COMMIT_EXPIRY: net_take_back(&s->net); break;
    case COMMIT_HOUSEKEEPING: storage_note_refusal(s); break;
    case COMMIT_PRIMARY:
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
        fail_replies(s, why ? why : "MISCONF Errors writing to the AOF file", true);
    } else if (kind == COMMIT_PRIMARY) { /* follow_may knows, and waits */
        log_line(&s->log, LOG_WARNING, "What the primary sent could not be written to the append only file");
    }
}

/* -- the path ------------------------------------------------------------------------------ */

bool server_commit(struct server *s, enum commit_kind kind)
{
    if (UNLIKELY(!commit_data(s, kind == COMMIT_EXPIRY || kind == COMMIT_LOAD_PART))) {
        engine_failed(s, kind);
        return false;
    }
    bool logged = persistence_log(s) && !(kind == COMMIT_TICK && s->persist.part_failed);
    if (UNLIKELY(s->persist.flushed) && kind != COMMIT_PART) persistence_after_flushall(s);
    if (UNLIKELY(!logged)) aof_failed(s, kind);
    return true;
}

bool server_commit_part(struct server *s)
{
    struct region *r = &s->region;
    if (!region_settled(r) && region_may_split(r)) region_split(r, server_commit(s, COMMIT_PART));
    return region_settled(r) && !s->persist.part_failed;
}
