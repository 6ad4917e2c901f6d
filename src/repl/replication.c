/* The server's history: when changes enter the stream, under which replication ID, and how it continues after
 * a restart or a change of roles. */
#include "repl/replication.h"

#include <stdio.h>

#include "base/clock.h"
#include "exec/region_site.h"
#include "peers/peers.h"
#include "persist/rdb_file.h"
#include "server/server.h"

/* -- names -------------------------------------------------------------------------------------------- */

static void rename_history(struct server *s)
{
    char id[REPL_ID + 1];
    server_random_id(id);
    repl_stream_rename(&s->repl.stream, id);
}

void replication_change_id(struct server *s)
{
    struct repl_stream *stream = &s->repl.stream;
    rename_history(s);
    snprintf(stream->id2, sizeof stream->id2, "%s", REPL_NO_ID);
    stream->id2_end = -1;
    replication_note(s);
}

/* -- the stream --------------------------------------------------------------------------------------- */

static void replication_take_record(struct journal_sink *sink, const struct journal_record *record)
{
    struct replication *r = (struct replication *)(void *)((char *)sink - offsetof(struct replication, sink));
    /* Redis 7.0 has no field deadlines, but a replica of that version should get the values. */
    if (record->newer) repl_stream_append(&r->stream, journal_select(record));
    bytes text = record->newer ? journal_effects(record) : buf_bytes(&record->resp), part[JOURNAL_PARTS];
    journal_parts(record, text, part);
    for (int i = 0; i < JOURNAL_PARTS; i++) repl_stream_append(&r->stream, part[i]);
}

void replication_feed(struct server *s, bytes command)
{
    if (s->repl.attached) repl_stream_append(&s->repl.stream, command);
}

/* The database the stream has selected; if the next record begins with a SELECT, any will do. */
static u32 selected(const struct server *s)
{
    return s->repl.link || !s->repl.attached ? s->repl.stream_db : (u32)MAX(lone_region(s)->journal.db, 0);
}

static void replication_attach(struct server *s)
{
    struct replication *r = &s->repl;
    if (r->attached || !r->streaming || r->link) return;
    r->attached = true;
    journal_attach(&lone_region(s)->journal, &r->sink);
}

static void replication_detach(struct server *s)
{
    if (!s->repl.attached) return;
    s->repl.stream_db = selected(s);
    journal_detach(&lone_region(s)->journal, &s->repl.sink);
    s->repl.attached = false;
}

static enum expiry_mode expiry_mode(const struct server *s)
{
    const struct node *n = &s->node;
    if (s->repl.link)
        return bytes_is(buf_bytes(&s->config.replica_expired_reads), "serve") ? EXPIRY_REPLICA_SERVES
                                                                              : EXPIRY_REPLICA;
    /* While data is missing or writes can't be kept, the DEL of a dead key could not be kept either. */
    if (n->loading || n->refuse_writes || server_holds_changes(s)) return EXPIRY_PAUSED;
    if (LIKELY(!n->regions.first->site)) return EXPIRY_ACTIVE;
    return s->peers ? EXPIRY_SITE : EXPIRY_PAUSED; /* it is about to take its site's place */
}

/* If the deletion of a dead key has to enter the replication stream or expiry-stream, compactions must not
 * delete it, because they report nothing. */
void replication_decide_expiry(struct server *s)
{
    enum expiry_mode mode = expiry_mode(s);
    struct region *r;
    REGIONS_EACH(&s->node.regions, r) {
        r->eng->report_expiry = s->repl.streaming || r->site || expiry_stream_on(&r->expiry_stream);
        if (LIKELY(!s->cluster)) r->mode = mode; /* otherwise cluster/member.h decides */
    }
}

void replication_hold(struct server *s) { server_hold(s, HOLD_FAILOVER, replication_frozen(&s->repl)); }

static void set_streaming(struct server *s, bool on)
{
    s->repl.streaming = on;
    replication_decide_expiry(s);
}

void replication_stream(struct server *s)
{
    set_streaming(s, true);
    replication_attach(s);
}

/* No replica was connected for repl-backlog-ttl seconds. Changes from now on are not recorded, so the
 * replication ID has to change: no replica may take the history for an unbroken one. */
static void end_stream(struct server *s)
{
    struct replication *r = &s->repl;
    char id[REPL_ID + 1];
    server_random_id(id);
    replication_detach(s);
    set_streaming(s, false);
    repl_stream_restart(&r->stream, id, r->stream.end);
    replication_note(s); /* stored with the first of them */
    log_line(&s->log, LOG_NOTICE, "Replication backlog freed after %lld seconds without connected replicas.",
             (long long)s->config.repl_backlog_ttl);
}

/* -- ticks --------------------------------------------------------------------------------------------- */

void replication_begin_tick(struct server *s)
{
    struct replication *r = &s->repl;
    const struct config *c = &s->config;
    s->node.deny_writes = s->node.deny_stale = NULL;
    if (LIKELY(!s->cluster)) { /* whose regions decide for themselves: cluster/member.h */
        replication_decide_expiry(s);
        keyspace_set_mode(&lone_region(s)->ks, lone_region(s)->mode);
    }
    if (LIKELY(!r->link)) {
        bool counts = c->min_replicas_to_write && c->min_replicas_max_lag;
        if (counts && r->good_replicas < c->min_replicas_to_write)
            s->node.deny_writes = "NOREPLICAS Not enough good replicas to write.";
        else if (UNLIKELY(s->config.site_id)) s->node.deny_writes = peers_deny_writes(s);
        return;
    }
    region_listen(lone_region(s), LISTEN_OWN, !c->replica_read_only);
    if (c->replica_read_only) s->node.deny_writes = "READONLY You can't write against a read only replica.";
    if (!c->replica_serve_stale_data && !link_is_up(s))
        s->node.deny_stale =
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
}

/* "id position db". Only a durable engine stores it; for the memory engine the RDB file does. */
void replication_note(struct server *s)
{
    struct replication *r = &s->repl;
    struct engine_repl_position *to = &lone_region(s)->eng->repl_position;
    if (!lone_region(s)->eng->caps.durable) return;
    buf_clear(&to->text);
    buf_printf(&to->text, "%s %llu %u", r->stream.id, (ull)(r->stream.end + r->stream.staged), selected(s));
    to->changed = true;
}

void replication_cron(struct server *s)
{
    struct replication *r = &s->repl;
    if (s->node.loading && !r->link) return;
    if (r->waiting_local) wait_look(s);
    else durable_look(s); /* takes marks in time for the next sync */
    if (r->link) link_cron(s);
    failover_cron(s);
    primary_cron(s);
    if (!r->streaming) return;
    repl_stream_trim(&r->stream, (u64)s->config.repl_backlog_size);
    i64 ttl_ms = s->config.repl_backlog_ttl * 1000;
    bool alone = !r->link && r->alone_since_ms;
    if (alone && ttl_ms && clock_mono_ms() - r->alone_since_ms > ttl_ms) end_stream(s);
}

/* -- roles --------------------------------------------------------------------------------------------- */

static void set_role(struct server *s, bool follows)
{
    replication_decide_expiry(s);
    own_keys_clear(&lone_region(s)->own);
    region_listen(lone_region(s), LISTEN_OWN, false); /* until a tick finds that writes are accepted */
    lone_region(s)->cycle.next_ms = 0; /* dead keys may be deleted now */
    s->log.role = follows ? 'S' : 'M';
    process_apply_role(s);
}

void replication_follow(struct server *s, const char *host, int port)
{
    struct replication *r = &s->repl;
    bool was_primary = !r->link;
    block_refuse_all(s);
    if (r->link) link_drop(s);
    if (was_primary) replication_drop_replicas(s);
    replication_detach(s);
    peers_follow(s);
    set_streaming(s, true);
    link_start(s, host, port);
    set_role(s, true);
    buf_clear(&s->config.replicaof);
    buf_printf(&s->config.replicaof, "%s %d", host, port);
}

void replication_promote(struct server *s, bool complete)
{
    if (!s->repl.link) return;
    link_drop(s);
    peers_promote(s, complete);
    buf_clear(&s->config.replicaof);
    rename_history(s);
    replication_drop_replicas(s); /* they reconnect and continue under the new name */
    set_role(s, false);
    replication_attach(s);
    s->repl.alone_since_ms = clock_mono_ms();
}

/* -- restarts ------------------------------------------------------------------------------------------ */

void replication_save_aux(const struct server *s, struct rdb_out *out)
{
    const struct replication *r = &s->repl;
    if (!r->streaming) return;
    rdb_file_aux_int(out, "repl-stream-db", selected(s));
    rdb_file_aux(out, "repl-id", bytes_str(r->stream.id));
    rdb_file_aux_int(out, "repl-offset", (i64)(r->stream.end + r->stream.staged)); /* SAVE is in a tick */
}

void replication_load_aux(struct server *s, bytes name, bytes value)
{
    struct replication *r = &s->repl;
    i64 n = 0;
    bool number = num_parse_i64(value, &n) && n >= 0;
    if (bytes_is(name, "repl-stream-db")) r->loaded_db = number ? (u32)n : 0;
    else if (bytes_is(name, "repl-offset") && number) r->loaded_position = n;
    else if (bytes_is(name, "repl-id") && value.n == REPL_ID) memcpy(r->loaded_id, value.p, REPL_ID);
}

static void replication_load_note(struct server *s)
{
    const struct buf *stored = &lone_region(s)->eng->repl_position.text;
    char text[128], id[REPL_ID + 1];
    unsigned long long position;
    unsigned db;
    snprintf(text, sizeof text, "%.*s", (int)MIN(stored->n, sizeof text - 1), stored->n ? stored->p : "");
    if (sscanf(text, "%40s %llu %u", id, &position, &db) != 3 || strlen(id) != REPL_ID) return;
    memcpy(s->repl.loaded_id, id, sizeof id);
    s->repl.loaded_position = (i64)position;
    s->repl.loaded_db = db;
}

void replication_start(struct server *s, bool in_step)
{
    struct replication *r = &s->repl;
    char host[256];
    int port;
    if (lone_region(s)->eng->caps.durable) replication_load_note(s);
    bool known = in_step && r->loaded_position >= 0 && r->loaded_id[0];
    if (known) {
        repl_stream_restart(&r->stream, r->loaded_id, (u64)r->loaded_position);
        r->stream_db = r->loaded_db;
    }
    if (sscanf(s->config.replicaof.n ? s->config.replicaof.p : "", "%255s %d", host, &port) == 2) {
        replication_follow(s, host, port);
    } else if (known) {
        rename_history(s);
        replication_stream(s);
        r->alone_since_ms = clock_mono_ms();
    }
}

/* -- life ----------------------------------------------------------------------------------------------- */

void replication_init(struct server *s)
{
    struct replication *r = &s->repl;
    char id[REPL_ID + 1];
    server_random_id(id);
    repl_stream_init(&r->stream, id, 0);
    r->sink.append = replication_take_record;
    r->sink.messages = true;
    r->loaded_position = -1;
}

void replication_stop(struct server *s)
{
    replication_drop_replicas(s);
    replication_detach(s);
    if (s->repl.link) link_drop(s);
}

void replication_release(struct server *s) { repl_stream_release(&s->repl.stream); }
