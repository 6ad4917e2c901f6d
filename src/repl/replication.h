/* Replication: this server as a primary of others, as a replica of another, or both in a chain.
 *
 * One stream (repl/repl_stream.h) is the server's history. A primary's stream is made of the journal's
 * records, through a sink; a replica's stream is the very bytes its primary sends, so that positions and
 * replication IDs are the same all along a chain. Each of our replicas has a cursor in it. The stream exists
 * (`streaming`) from the first replica on, or while this server is a replica, and until repl-backlog-ttl has
 * passed without one.
 *
 * - primary.c: replicas as connections: handshake, full sync, feeding, acknowledgements, WAIT
 * - link.c: the connection to our primary: handshake, receiving a full sync, following the stream
 * - replication.c: the stream itself, and what is common: roles, ticks, state kept across restarts
 * - replication_cmd.c: ROLE, REPLCONF, PSYNC, SYNC; replicaof_cmd.c, wait_cmd.c and failover.c: REPLICAOF,
 *   WAIT, FAILOVER
 * - replication_info.c: INFO replication */
#ifndef MAYFLY_REPL_REPLICATION_H
#define MAYFLY_REPL_REPLICATION_H

#include "journal/journal.h"
#include "net/net.h"
#include "repl/repl_stream.h"
#include "repl/failover.h"

struct server;
struct conn;
struct region;
struct ctx;
struct command;
struct buf;
struct link;
struct replica;

struct replication {
    struct repl_stream stream;
    bool streaming;           /* changes enter the stream; otherwise its position stands still */
    struct journal_sink sink; /* attached to the journal while streaming as a primary */
    bool attached;
    i64 alone_since_ms;       /* monotonic: no replica is connected since then; 0: some are */

    /* primary.c */
    struct replica *replicas; /* all connections that sent PSYNC or SYNC */
    u32 replica_count, good_replicas; /* good: online, and heard from within min-replicas-max-lag seconds */
    struct ack_waiter *waiters; /* clients in WAIT and WAITAOF */
    u32 waiting;              /* how many they are … */
    u32 waiting_local;        /* … and how many of them wait for our own disk (not in cluster mode) */
    bool ask_acks;            /* send REPLCONF GETACK at the end of this tick */
    i64 second_s, since_ping_s; /* of primary_cron */
    u64 bytes_out;            /* sent to replicas: INFO's total_net_repl_output_bytes */
    struct sync *sync;        /* the full sync running or about to start; NULL: none */
    u64 full_syncs, partial_syncs, refused_syncs; /* INFO's sync_full, sync_partial_ok, sync_partial_err */

    /* shutdown_cmd.c: before the server exits, replicas get a chance to catch up */
    bool leaving;
    u32 leave_how;            /* SHUTDOWN_* */
    u64 leave_at;             /* position replicas have to acknowledge … */
    i64 leave_until_ms;       /* … before this monotonic time */

    /* link.c */
    struct link *link;        /* NULL: we are a primary */
    u32 stream_db;            /* a replica's: the database selected by the stream at our position */
    u64 bytes_in;             /* read from primaries: INFO's total_net_repl_input_bytes */
    u64 unexpected_errors;    /* commands of a primary that failed here: INFO's unexpected_error_replies */
    u32 sync_files;           /* received so far: each file gets a name of its own */

    struct failover failover;

    /* as a file or the engine's repl_position said: position and history of the data */
    char loaded_id[REPL_ID + 1];
    i64 loaded_position;      /* -1: not said */
    u32 loaded_db;
};

/* -- replication.c -------------------------------------------------------------------------------- */

void replication_init(struct server *s);  /* before data is loaded */
/* All data is loaded: continues its history, and connects to the primary, if one is configured. in_step: the
 * loaded position is that of the data (no AOF was applied after it). */
void replication_start(struct server *s, bool in_step);
void replication_stop(struct server *s);  /* before the loop is closed */
void replication_release(struct server *s);
void replication_cron(struct server *s);  /* ten times a second */

static inline bool replication_is_replica(const struct replication *r) { return r->link != NULL; }

/* The data must not change: a failover or a shutdown waits for replicas to have all of it. */
static inline bool replication_frozen(const struct replication *r) { return r->failover.state || r->leaving; }
void replication_hold(struct server *s); /* holds writes while it is so: to be called when that changes */

/* At the start of a tick: tells the node what clients may do. */
void replication_begin_tick(struct server *s);

/* Stores the position (staged bytes included) with the next commit. */
void replication_note(struct server *s);

/* Makes sure there is a stream, which begins here. */
void replication_stream(struct server *s);

/* DEBUG: changes the replication ID and drops id2; sends a command that only replicas run. */
void replication_change_id(struct server *s);
void replication_feed(struct server *s, bytes command);

/* Tells the engine whether compactions may delete dead keys: not if the deletion must be reported to replicas
 * or to the expiry-stream. */
void replication_decide_expiry(struct server *s);

/* Becomes a replica of this primary; or a primary again, with the data it has. complete: that is all that the
 * old primary had, which has stopped. */
void replication_follow(struct server *s, const char *host, int port);
void replication_promote(struct server *s, bool complete);

/* Our data is no longer what our replicas have: closes their connections, so that they sync again. */
void replication_drop_replicas(struct server *s);

/* The state needed to continue after a restart, as AUX fields of an RDB file … (named as Redis does: repl-id,
 * repl-offset, repl-stream-db) */
struct rdb_out;
void replication_save_aux(const struct server *s, struct rdb_out *out);
void replication_load_aux(struct server *s, bytes name, bytes value); /* for every field loaded */
/* … or as the engine's repl_position (engine.h), which the rocksdb engine stores. */

/* -- primary.c -------------------------------------------------------------------------------------- */

void primary_cron(struct server *s);
void primary_forget(struct server *s, struct conn *c); /* net's on_close, for any connection */
void primary_feed(struct server *s);                   /* sends what was published, at the end of the tick */
u32 primary_acknowledged(const struct server *s, u64 position); /* replicas that have acknowledged it … */
u32 primary_synced(const struct server *s, u64 position);       /* … and have it on disk */
/* It has just changed data of this region. */
void primary_note_write(struct server *s, struct conn *c, struct region *r);
void primary_note_write(struct server *s, struct conn *c, struct region *r);
bool primary_refuses(struct server *s, struct conn *c, const struct command *cmd); /* and closes a replica */
void primary_answered(struct server *s, struct conn *c); /* closes a replica that got a reply */
void primary_ask(struct server *s);                    /* REPLCONF GETACK; not within a tick */
void primary_failed(struct server *s, struct conn *c); /* its tick was not committed: drops its WAIT */
u32 primary_in_step(const struct server *s, u64 position, u32 *of); /* … of those that acknowledge */
u64 primary_buffers(const struct server *s);           /* bytes held for replicas beyond the backlog */
bool primary_unblock(struct server *s, struct conn *c, bool with_error); /* CLIENT UNBLOCK of a WAIT */
void wait_look(struct server *s); /* WAITAOF: our own disk may have more now */

/* -- link.c ------------------------------------------------------------------------------------------- */

void link_start(struct server *s, const char *host, int port); /* creates s->repl.link, and connects */
void link_drop(struct server *s);  /* closes and frees it; the position is kept */
void link_cron(struct server *s);
bool link_is_up(const struct server *s);
void link_break(struct server *s); /* closes the connection, if there is one; it is made again */
bool link_is_to(const struct server *s, bytes host, int port); /* that is already our primary */
void link_info(struct server *s, struct buf *out); /* INFO replication, master_host to replica_announced */
void link_role(struct ctx *c);     /* ROLE of a replica */

/* While the link is up, our primary counts as a client. False: it is not up. */
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
