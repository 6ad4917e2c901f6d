/* This server's replicas, internals: shared by primary.c (registering, feeding, acknowledgements, timeouts),
 * primary_sync.c (full syncs), wait_cmd.c and replication_cmd.c (commands), replication_info.c and
 * failover.c. Other modules use replication.h.
 *
 * A replica is a connection with a cursor in the stream, and during a full sync another one in its data:
 *
 *   NEW → (WAITS → RECEIVES →) ONLINE
 *
 * Its connection pulls what it sends (conn_source): first the data of the sync, then the stream. */
#ifndef MAYFLY_REPL_PRIMARY_H
#define MAYFLY_REPL_PRIMARY_H

#include "server/server.h"

#define REPLICA_HOST 256

enum replica_state {
    REPLICA_NEW,      /* sent only REPLCONF; not in the list */
    REPLICA_WAITS,    /* waits for a full sync to begin */
    REPLICA_RECEIVES, /* receives the data of one */
    REPLICA_ONLINE,   /* follows the stream */
    REPLICA_DONE,     /* has all it asked for, and is about to be closed */
};

/* A full sync: the data of one moment for all replicas that waited for it. It lives as long as the snapshot
 * job or a replica needs it. */
struct sync {
    u32 users;          /* replicas that receive it */
    bool working;       /* the job is running; it is repl.sync */
    bool disk;
    u64 position;       /* of the stream, at that moment */
    struct rdb_sink sink;
    /* diskless: framing and data, published as they are generated */
    struct repl_stream rdb;
    char mark[REPL_ID + 1];
    bool complete;      /* all data is in `rdb` */
    /* with a disk: the file, which is already unlinked */
    char *path;
    int fd;             /* -1: not open yet */
    u64 size;
};

struct replica {
    struct conn_source source;
    struct server *server;
    struct conn *conn;
    struct replica *next; /* of repl.replicas */
    enum replica_state state;

    /* what it announced */
    int port;             /* 0: not announced */
    char ip[REPLICA_HOST];/* "": the connection's address */
    bool eof, psync2;     /* capa */
    u8 site;              /* it keeps the metadata of this one; 0: none */
    bool rdb_only;        /* it leaves after the data of a full sync */
    bool no_data;         /* it wants that data without keys … */
    bool functions;       /* … but with the functions */
    bool old;             /* sent SYNC: it acknowledges nothing */

    bool fed;             /* ONLINE: the stream may be sent; a diskless sync is acknowledged first */
    u64 acknowledged;     /* position */
    u64 synced;           /* … up to which its disk has everything, as it says */
    i64 heard_s;          /* when it last sent anything; monotonic, as the times below */
    i64 waits_since_ms;   /* WAITS */
    i64 progress_s;       /* RECEIVES: something was sent */
    struct repl_stream_cursor live; /* in the server's stream */

    struct sync *sync;    /* RECEIVES */
    struct repl_stream_cursor rdb;
    u64 file_at;          /* how much of the file was read … */
    struct buf piece;     /* … of which this is being sent … */
    size_t piece_sent;    /* … up to here */
};

/* -- primary.c ------------------------------------------------------------------------------------------- */

struct replica *replica_of(struct server *s, struct conn *c); /* creates one if there is none yet */
void replica_enlist(struct replica *r);   /* adds it to the list and to the client class of replicas */
void replica_online(struct replica *r, bool fed);
void replica_heard(struct replica *r, i64 position, i64 synced); /* an acknowledgement; 0: nothing new */
void replica_close(struct replica *r, const char *why); /* `why` is for the log */

struct replica_name {
    char text[REPLICA_HOST + 32];
};
struct replica_name replica_name(const struct replica *r); /* for the log: "host:port" */
void replica_host(const struct replica *r, char host[REPLICA_HOST]);

/* Counts the good replicas again: min-replicas-max-lag may have changed. */
void primary_count_good(struct server *s);

/* -- primary_sync.c -------------------------------------------------------------------------------------- */

void sync_enter(struct replica *r);  /* the replica needs all data */
void sync_leave(struct replica *r);  /* the replica is gone */
void sync_cron(struct server *s);    /* begins a sync when it is due */

bytes sync_peek(struct replica *r);  /* conn_source of a replica in RECEIVES */
void sync_sent(struct replica *r, size_t n);

/* For the snapshot job. */
bool sync_open(struct server *s);                /* opens the file or stream; false: p->file.error says why */
struct rdb_sink *sync_sink(struct server *s);
void sync_begun(struct server *s);               /* the moment of the snapshot: informs the replicas */
bool sync_takes_more(const struct server *s);
void sync_walked(struct server *s, bool all);    /* after a slice: publishes what it wrote */
void sync_ended(struct server *s, bool ok, bool killed); /* also if the moment was never reached */
u64 sync_memory(const struct server *s);         /* bytes of sync data in memory */

/* -- wait_cmd.c ------------------------------------------------------------------------------------------ */

struct ack_waiter;
void wait_check(struct server *s);                  /* a replica or a member has acknowledged something */
void wait_forget(struct server *s, struct conn *c); /* it is gone, or was answered otherwise */
void wait_refuse_all(struct server *s);             /* this server is no longer a primary */
void wait_refuse_region(struct server *s, u64 region); /* this node no longer leads the region */

#endif
