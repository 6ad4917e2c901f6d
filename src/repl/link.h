/* The connection to our primary, from the inside: shared by link.c (connecting, time), link_greet.c (the
 * handshake), link_sync.c (a full sync), link_follow.c (the stream) and link_info.c. Everyone else uses
 * replication.h.
 *
 * A link lives as long as we are a replica; its connections come and go. A connection has handles of the
 * loop, and so outlives its closing: it is a struct of its own, and knows no link from then on. Any call that
 * may close the connection says so: look at `conn` after it.
 *
 * DOWN → RESOLVING → CONNECTING → HANDSHAKE → (SYNC →) UP; link_close leads from anywhere back to DOWN. */
#ifndef MAYFLY_REPL_LINK_H
#define MAYFLY_REPL_LINK_H

#include <uv.h>

#include "command/session.h"
#include "persist/disk_file.h"
#include "repl/inbox.h"
#include "repl/transfer.h"
#include "server/server.h"

enum link_state { LINK_DOWN, LINK_RESOLVING, LINK_CONNECTING, LINK_HANDSHAKE, LINK_SYNC, LINK_UP };

/* The answer that comes next, in this order; those to what was not sent are left out. */
enum link_answer { ANSWER_PING, ANSWER_AUTH, ANSWER_PORT, ANSWER_IP, ANSWER_CAPA, ANSWER_PSYNC };

/* Where a full sync is. */
enum sync_stage {
    SYNC_RECEIVE, /* data comes, and goes to the file */
    SYNC_FINISH,  /* all has come; the file is not complete yet */
    SYNC_WAIT,    /* … it is; a snapshot of ours has to end first */
    SYNC_LOAD,
};

struct link_conn {
    struct link *link;          /* NULL: closed */
    uv_poll_t poll;
    uv_check_t check;           /* active while something is waited for that is not the socket */
    uv_getaddrinfo_t resolve;
    struct addrinfo *addresses, *next_address;
    int fd;                     /* -1: none yet */
    struct tls *tls;            /* NULL: plain */
    int events;                 /* that are waited for … */
    int polled;                 /* … by waiting for these */
    u32 open;                   /* handles and requests that libuv still knows: it is freed with the last */
};

struct link_file {
    struct disk_file file;
    struct server *server;
    struct link *link;          /* NULL: nobody wants it any more */
    char path[8192];
};

struct link {
    struct server *server;
    char host[256];
    int port;
    enum link_state state;
    struct link_conn *conn;     /* NULL if LINK_DOWN */
    i64 retry_ms;               /* LINK_DOWN: not before; monotonic, as the following */
    i64 io_ms;                  /* the primary was last heard of */
    i64 told_ms;                /* it last heard of us: an acknowledgement, or a sign of life */
    i64 up_ms;                  /* LINK_UP since */
    i64 down_ms;                /* it is not up since; 0: it never was */

    struct buf in;              /* of the handshake: what has been read */
    struct buf out;             /* what is to be sent; the kernel has taken `sent` bytes */
    size_t sent;
    enum link_answer answer;
    bool authenticates, announces_ip; /* AUTH, REPLCONF ip-address were sent */
    bool no_partial;            /* we have to ask for everything: going on from our position has failed */
    bool old_primary;           /* it knows SYNC, but not PSYNC: it wants no acknowledgements */

    /* full sync */
    enum sync_stage stage;
    char id[STREAM_ID + 1];     /* of the history the data belongs to … */
    u64 position;               /* … and its place there */
    struct transfer transfer;
    struct link_file *file;     /* NULL: none */
    bool adopted;               /* its position is ours already */

    /* following */
    struct inbox inbox;         /* what came behind the data is here, too */
    struct session session;     /* with the id of a client: link_as_client */
    const char *last_command;   /* NULL: none yet */
    const struct request *running; /* NULL: none; for the report of a crash */
    struct buf ignored;         /* replies */
    bytes *argv;                /* scratch */
    u32 argv_cap;
    bool asked;                 /* REPLCONF GETACK … */
    u64 asked_at;               /* … stood there */
    struct {                    /* link_loop.c */
        u32 refusals;           /* the primary waits for its own */
        i64 refused_ms;         /* when we last refused a replica for the same reason; 0: never … */
        char host[NET_ADDRESS]; /* … where that is … */
        int port;               /* … the port it has said it listens on … */
        bool self;              /* … and whether it was this server itself */
        bool told;              /* the log knows */
    } circle;
    struct buf told;            /* commands that failed and the log knows of, each name with a NUL */
};

static inline i64 link_now_ms(const struct link *l) { return (i64)uv_now(&l->server->loop); }

/* -- link.c ----------------------------------------------------------------------------------------- */

/* Ends the connection and whatever goes on with it. It is tried again in a second, or (soon) at once. */
void link_close(struct link *l, bool soon);

/* Waits for the socket. 0: for nothing. */
void link_watch(struct link *l, int events);
void link_wait(struct link *l, bool on); /* sync_waited is called at every turn of the loop */

/* A replica is refused, or our primary refuses us, because the one that refuses waits for its own primary. */
void link_refuses(struct server *s, const struct conn *c);
void link_is_refused(struct link *l);

/* A command for the primary, among what is to be sent; link_flush sends. May close. */
void link_command(struct link *l, int argc, const char *const *argv);
void link_command_bytes(struct link *l, int argc, const bytes *argv);
void link_flush(struct link *l);
void link_acknowledge(struct link *l, u64 position); /* sends; may close */

/* Reads what the kernel has, up to `room`. 0: nothing just now, or (see conn) it was closed. */
size_t link_read(struct link *l, char *to, size_t room);

/* The data is at our position in the stream: from here on we follow. May close. */
void link_up(struct link *l);

/* -- link_greet.c ----------------------------------------------------------------------------------- */

void greet_begin(struct link *l);           /* may close */
void greet_readable(struct link *l);        /* may close */

/* -- link_sync.c ------------------------------------------------------------------------------------ */

void sync_begin(struct link *l);            /* l->in has what came behind the answer. May close. */
void sync_readable(struct link *l);         /* may close */
void sync_waited(struct link *l);           /* may close */
void sync_drop(struct link *l);             /* in any stage */

/* -- link_follow.c ---------------------------------------------------------------------------------- */

void follow_readable(struct link *l);       /* may close */
bool follow_may(const struct link *l);      /* whether what is read could be kept */
void follow_resume(struct link *l);         /* reads again, if it stopped because it could not */

#endif
