/* Replication: this server as a primary of others, and as a replica of another one; both at once in a
 * chain.
 *
 * One stream (repl/repl_stream.h) is the server's history. A primary's is made of the journal's records,
 * through a sink; a replica's of the very bytes its primary sends, so that positions and names are the same
 * all along a chain. Replicas of ours are cursors in it. It exists (`streaming`) from the first replica on,
 * ours or that we are, and while there is a use for it (repl-backlog-ttl).
 *
 * - primary.c: replicas as connections: handshake, full sync, feeding, acknowledgements, WAIT
 * - link.c: the connection to our primary: handshake, receiving a full sync, following the stream
 * - replication.c: the stream itself, and what is common: roles, ticks, what is kept across restarts
 * - replication_cmd.c: REPLICAOF, ROLE, REPLCONF, PSYNC, SYNC, WAIT, FAILOVER
 * - replication_info.c: INFO replication */
#ifndef MAYFLY_REPL_REPLICATION_H
#define MAYFLY_REPL_REPLICATION_H

#include "journal/journal.h"
#include "net/net.h"
#include "repl/repl_stream.h"
#include "repl/failover.h"

struct server;
struct conn;
struct ctx;
struct command;
struct buf;
struct link;
struct replica;

struct replication {
    struct stream stream;
    bool streaming;           /* changes go into the stream; otherwise its position stands still */
    struct journal_sink sink; /* attached to the journal while streaming and no replica ourselves */
    bool attached;
    i64 alone_since_ms;       /* monotonic: no replica of ours is connected since; 0: there are some */

    /* primary.c */
    struct replica *replicas; /* all connections that said PSYNC or SYNC */
    u32 replica_count, good_replicas; /* good: online, and heard of within min-replicas-max-lag seconds */
    struct ack_waiter *waiters; /* clients in WAIT and WAITAOF */
    u32 waiting;              /* how many that are … */
    u32 waiting_local;        /* … and of those that wait for our own disk */
    bool ask_acks;            /* replicas are asked how far they are at the end of this tick */
    i64 second_s, since_ping_s; /* of primary_cron */
    u64 bytes_out;            /* sent to replicas: INFO's total_net_repl_output_bytes */
    struct sync *sync;        /* the full sync under way or about to be; NULL: none */
    u64 full_syncs, partial_syncs, refused_syncs; /* INFO's sync_full, sync_partial_ok, sync_partial_err */

    /* shutdown_cmd.c: before the server goes, its replicas get what they can */
    bool leaving;
    u32 leave_how;            /* SHUTDOWN_* */
    u64 leave_at;             /* position they have to acknowledge … */
    i64 leave_until_ms;       /* … before this monotonic time */

    /* link.c */
    struct link *link;        /* NULL: we are a primary */
    u32 stream_db;            /* the database the stream has selected, by our position in it; a replica's */
    u64 bytes_in;             /* read from primaries: INFO's total_net_repl_input_bytes */
    u64 unexpected_errors;    /* commands of a primary that failed here: INFO's unexpected_error_replies */
    u32 sync_files;           /* received so far: each has a name of its own */

    struct failover failover;

    /* what a file, or the storage's note, said: the data is that of this position of this history */
    char loaded_id[STREAM_ID + 1];
    i64 loaded_position;      /* -1: nothing was said */
    u32 loaded_db;
};

/* -- replication.c -------------------------------------------------------------------------------- */

void replication_init(struct server *s);  /* before data is loaded */
/* All data is loaded: goes on in the history it belongs to, and connects to the primary, if there is to be
 * one. in_step: the position that was loaded is that of the data (no AOF has led on from there). */
void replication_start(struct server *s, bool in_step);
void replication_stop(struct server *s);  /* before the loop is closed */
void replication_release(struct server *s);
void replication_cron(struct server *s);  /* ten times a second */

static inline bool replication_is_replica(const struct replication *r) { return r->link != NULL; }

/* The data must not change: someone waits for replicas to have all of it. */
static inline bool replication_frozen(const struct replication *r) { return r->failover.state || r->leaving; }

/* At the start of a tick: what clients may do goes to the node. */
void replication_begin_tick(struct server *s);

/* The position (with what is staged) goes to the storage with the next commit. */
void replication_note(struct server *s);

/* Makes sure there is a stream, to go on from here. */
void replication_stream(struct server *s);

/* DEBUG: another name for our history, and none for what was before; a command that only replicas run. */
void replication_change_id(struct server *s);
void replication_feed(struct server *s, bytes command);

/* Tells the engine whether the dead may go silently: not if a replica, or expiry-stream, is to hear of it. */
void replication_decide_expiry(struct server *s);

/* Becomes a replica, of this primary from now on; or a primary again, with the data that is there. */
void replication_follow(struct server *s, const char *host, int port);
void replication_promote(struct server *s);

/* Our data is no longer what those who follow us have had: they connect again. */
void replication_drop_replicas(struct server *s);

/* What has to be known to go on after a restart, as AUX fields of an RDB file … (`name` and `value` as
 * Redis has them: repl-id, repl-offset, repl-stream-db) */
struct rdb_out;
void replication_save_aux(const struct server *s, struct rdb_out *out);
void replication_load_aux(struct server *s, bytes name, bytes value); /* told of every field that is loaded */
/* … or as the storage's note (engine.h), which the rocks engine keeps. */

/* -- primary.c -------------------------------------------------------------------------------------- */

void primary_cron(struct server *s);
void primary_forget(struct server *s, struct conn *c); /* net's on_close: it may have been a replica */
void primary_feed(struct server *s);                   /* what was published, at the end of the tick */
u32 primary_acknowledged(const struct server *s, u64 position); /* replicas that have all up to there … */
u32 primary_synced(const struct server *s, u64 position);       /* … and have synced it */
void primary_note_write(const struct server *s, struct conn *c); /* it changed something just now */
bool primary_refuses(struct server *s, struct conn *c, const struct command *cmd); /* and closes a replica */
void primary_answered(struct server *s, struct conn *c); /* a replica, which is closed: it must not be */
void primary_ask(struct server *s);                    /* REPLCONF GETACK; not within a tick */
void primary_failed(struct server *s, struct conn *c); /* its tick was not kept: it gets errors */
u32 primary_in_step(const struct server *s, u64 position, u32 *of); /* … of those that acknowledge */
u64 primary_buffers(const struct server *s);           /* bytes held for replicas beyond the backlog */
bool primary_unblock(struct server *s, struct conn *c, bool with_error); /* CLIENT UNBLOCK of a WAIT */
void wait_look(struct server *s); /* WAITAOF: our disk may have moved on */

/* -- link.c ------------------------------------------------------------------------------------------- */

void link_start(struct server *s, const char *host, int port); /* makes s->repl.link, and connects */
void link_drop(struct server *s);  /* closes and frees it; the position is kept */
void link_cron(struct server *s);
bool link_is_up(const struct server *s);
void link_break(struct server *s); /* the connection, if there is one, is made anew */
bool link_is_to(const struct server *s, bytes host, int port); /* that is our primary already */
void link_info(struct server *s, struct buf *out); /* INFO replication, master_host to replica_announced */
void link_role(struct ctx *c);     /* ROLE of a replica */

/* Our primary is one of our clients, too, while the link is up. False: it is not. */
struct link_client {
    i64 age_s;
    u64 id;
    char peer[NET_ADDRESS], local[NET_ADDRESS];
};
bool link_as_client(const struct server *s, struct link_client *x);
void link_describe(const struct server *s, const struct link_client *x, struct buf *out); /* CLIENT LIST */

/* -- replication_info.c ------------------------------------------------------------------------------- */

void replication_info(struct server *s, struct buf *out); /* the lines of INFO replication */

#endif
