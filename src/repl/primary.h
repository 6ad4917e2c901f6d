/* This server's replicas, from the inside: shared by primary.c (who they are, feeding, acknowledgements,
 * time), primary_sync.c (full syncs), wait_cmd.c and replication_cmd.c (commands), replication_info.c and
 * failover.c. Everyone else uses replication.h.
 *
 * A replica is a connection with a cursor in the stream, and for the time of a full sync one in its data:
 *
 *   NEW → (WAITS → RECEIVES →) ONLINE
 *
 * What it gets is pulled by its connection (conn_source): the data of the sync first, the stream then. */
#ifndef MAYFLY_REPL_PRIMARY_H
#define MAYFLY_REPL_PRIMARY_H

#include "server/server.h"

#define REPLICA_HOST 256

enum replica_state {
    REPLICA_NEW,      /* it only said REPLCONF, and is in no list */
    REPLICA_WAITS,    /* for a full sync to begin */
    REPLICA_RECEIVES, /* the data of one */
    REPLICA_ONLINE,   /* it follows the stream */
    REPLICA_DONE,     /* it has all it wanted, and is about to be closed */
};

/* A full sync: the data of one moment for all who waited then. It stays as long as the snapshot job or a
 * replica needs it. */
struct sync {
    u32 users;          /* replicas that receive it */
    bool working;       /* the job is under way: it is repl.sync */
    bool disk;
    u64 position;       /* of the stream, at the moment */
    struct rdb_sink sink;
    /* without a disk: the framing and the data, published as they come */
    struct stream rdb;
    char mark[STREAM_ID + 1];
    bool complete;      /* all is in `rdb` */
    /* with one: the file, which has no name any more */
    char *path;
    int fd;             /* -1: not there yet */
    u64 size;
};

struct replica {
    struct conn_source source;
    struct server *server;
    struct conn *conn;
    struct replica *next; /* of repl.replicas */
    enum replica_state state;

    /* what it said of itself */
    int port;             /* 0: it did not say */
    char ip[REPLICA_HOST];/* "": it is where the connection comes from */
    bool eof, psync2;     /* capa */
    bool rdb_only;        /* it leaves with the data of a full sync */
    bool no_data;         /* it wants that data without any key … */
    bool functions;       /* … but with the functions */
    bool old;             /* said SYNC: it acknowledges nothing */

    bool fed;             /* ONLINE: the stream may be sent; a sync without a disk is acknowledged first */
    u64 acknowledged;     /* position */
    u64 synced;           /* … up to which it says its disk has everything */
    i64 heard_s;          /* when it last sent anything; monotonic, as the times below */
    i64 waits_since_ms;   /* WAITS */
    i64 progress_s;       /* RECEIVES: something was sent */
    struct stream_cursor live; /* in the server's stream */

    struct sync *sync;    /* RECEIVES */
    struct stream_cursor rdb;
    u64 file_at;          /* how much of the file has been read … */
    struct buf piece;     /* … of which this is being sent … */
    size_t piece_sent;    /* … up to here */
};

/* -- primary.c ------------------------------------------------------------------------------------------- */

struct replica *replica_of(struct server *s, struct conn *c); /* made if there is none yet */
void replica_enlist(struct replica *r);   /* from now on it is a replica: one of the list, and of its class */
void replica_online(struct replica *r, bool fed);
void replica_heard(struct replica *r, i64 position, i64 synced); /* its acknowledgement; 0: nothing new */
void replica_close(struct replica *r, const char *why); /* `why` is for the log */

struct replica_name {
    char text[REPLICA_HOST + 32];
};
struct replica_name replica_name(const struct replica *r); /* for the log: "host:port" */
void replica_host(const struct replica *r, char host[REPLICA_HOST]);

/* min-replicas-max-lag may have changed: which replicas are good is looked at again. */
void primary_count_good(struct server *s);

/* -- primary_sync.c -------------------------------------------------------------------------------------- */

void sync_enter(struct replica *r);  /* it needs all data */
void sync_leave(struct replica *r);  /* it does no more: it is gone */
void sync_cron(struct server *s);    /* begins one when it is time */

bytes sync_peek(struct replica *r);  /* a RECEIVES's source */
void sync_sent(struct replica *r, size_t n);

/* For the snapshot job. */
bool sync_open(struct server *s);                /* where the data goes; false: p->file.error says why */
struct rdb_sink *sync_sink(struct server *s);
void sync_begun(struct server *s);               /* the moment is now: tells the replicas */
bool sync_takes_more(const struct server *s);
void sync_walked(struct server *s, bool all);    /* after a slice: what it wrote goes out */
void sync_ended(struct server *s, bool ok, bool killed); /* also when the moment was never reached */
u64 sync_memory(const struct server *s);         /* what is held of data for replicas */

/* -- wait_cmd.c ------------------------------------------------------------------------------------------ */

struct ack_waiter;
void wait_check(struct server *s);                  /* someone acknowledged something */
void wait_forget(struct server *s, struct conn *c); /* it is gone, or its WAIT was answered otherwise */
void wait_refuse_all(struct server *s);             /* we are no primary any more */

#endif
