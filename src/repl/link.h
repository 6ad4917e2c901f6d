/* The connection to our primary, internals: shared by link.c (connecting, timeouts), link_greet.c (the
 * handshake), link_sync.c (a full sync), link_follow.c (the stream) and link_info.c. Other modules use
 * replication.h.
 *
 * A link exists as long as this server is a replica; its connections come and go. A connection owns libuv
 * handles and therefore outlives its closing: it is a struct of its own, with `link` NULL after it was
 * closed. Functions that may close the connection say so: check `conn` after calling one.
 *
 * DOWN → RESOLVING → CONNECTING → HANDSHAKE → (SYNC →) UP; link_close goes from any state back to DOWN. */
#ifndef MAYFLY_REPL_LINK_H
#define MAYFLY_REPL_LINK_H

#include <uv.h>

#include "command/session.h"
#include "persist/disk_file.h"
#include "repl/inbox.h"
#include "repl/transfer.h"
#include "server/server.h"

enum link_state { LINK_DOWN, LINK_RESOLVING, LINK_CONNECTING, LINK_HANDSHAKE, LINK_SYNC, LINK_UP };

/* The reply expected next, in this order. Replies to commands that were not sent are skipped. */
enum link_answer { ANSWER_PING, ANSWER_AUTH, ANSWER_PORT, ANSWER_IP, ANSWER_SITE, ANSWER_CAPA, ANSWER_PSYNC };

/* Stage of a full sync. */
enum sync_stage {
    SYNC_RECEIVE, /* data arrives and is written to the file */
    SYNC_FINISH,  /* all data has arrived; the file is not complete yet */
    SYNC_WAIT,    /* the file is complete; a snapshot of ours has to end first */
    SYNC_LOAD,
};

struct link_conn {
    struct link *link;          /* NULL: closed */
    uv_poll_t poll;
    uv_check_t check;           /* active while waiting for something other than the socket */
    uv_getaddrinfo_t resolve;
    struct addrinfo *addresses, *next_address;
    int fd;                     /* -1: none yet */
    struct tls *tls;            /* NULL: plain */
    int events;                 /* events waited for … */
    int polled;                 /* … and those the poll handle is set to */
    u32 open;                   /* handles and requests still known to libuv: the last one frees the struct */
};

struct link_file {
    struct disk_file file;
    struct server *server;
    struct link *link;          /* NULL: cancelled */
    char path[8192];
};

struct link {
    struct server *server;
    char host[256];
    int port;
    enum link_state state;
    struct link_conn *conn;     /* NULL if LINK_DOWN */
    i64 retry_ms;               /* LINK_DOWN: no attempt before this time; monotonic, as the following */
    i64 io_ms;                  /* when the primary last sent something */
    i64 sent_ms;                /* when we last sent it an acknowledgement or an empty line */
    i64 up_ms;                  /* LINK_UP since */
    i64 down_ms;                /* not up since; 0: it never was */

    struct buf in;              /* handshake: bytes received */
    struct buf out;             /* bytes to send; the kernel has taken the first `sent` */
    size_t sent;
    enum link_answer answer;
    bool authenticates, announces_ip; /* AUTH, REPLCONF ip-address were sent */
    bool no_partial;            /* a partial resync has failed: ask for a full one */
    bool old_primary;           /* it knows SYNC but not PSYNC, and expects no acknowledgements */

    /* full sync */
    enum sync_stage stage;
    char id[REPL_ID + 1];     /* history the data belongs to … */
    u64 position;               /* … and its position there */
    struct transfer transfer;
    struct link_file *file;     /* NULL: none */
    bool adopted;               /* its position is already ours */

    /* following */
    struct inbox inbox;         /* also holds what arrived after the data */
    struct session session;     /* with the id of a client: link_as_client */
    const char *last_command;   /* NULL: none yet */
    const struct request *running; /* NULL: none; for crash reports */
    struct buf ignored;         /* replies */
    bytes *argv;                /* scratch */
    u32 argv_cap;
    bool asked;                 /* REPLCONF GETACK was received … */
    u64 asked_at;               /* … at this position */
    struct {                    /* link_loop.c */
        u32 refusals;           /* how often the primary refused because its own link is down */
        i64 refused_ms;         /* when we last refused a replica for that reason; 0: never … */
        char host[NET_ADDRESS]; /* … its address … */
        int port;               /* … the port it announced … */
        bool self;              /* … and whether it was this server itself */
        bool logged;            /* it was logged */
    } circle;
    struct buf logged;          /* names of commands that failed and were logged, each with a NUL */
};

static inline i64 link_now_ms(const struct link *l) { return (i64)uv_now(&l->server->loop); }

/* -- link.c ----------------------------------------------------------------------------------------- */

/* Closes the connection and drops whatever it was doing. The next attempt is in a second, or (soon) at
 * once. */
void link_close(struct link *l, bool soon);

/* Events of the socket to wait for; 0: none. */
void link_watch(struct link *l, int events);
void link_wait(struct link *l, bool on); /* calls sync_waited in every iteration of the loop */

/* A replica was refused, or our primary refused us, because the refusing server waits for its own primary. */
void link_refuses(struct server *s, const struct conn *c);
void link_is_refused(struct link *l);

/* Appends a command to the output; link_flush sends it. May close. */
void link_command(struct link *l, int argc, const char *const *argv);
void link_command_bytes(struct link *l, int argc, const bytes *argv);
void link_flush(struct link *l);
void link_acknowledge(struct link *l, u64 position); /* sends; may close */

/* Reads what the kernel has, up to `room` bytes. 0: nothing now, or the connection was closed (see conn). */
size_t link_read(struct link *l, char *to, size_t room);

/* The data is that of our position in the stream: starts following it. May close. */
void link_up(struct link *l);

/* -- link_greet.c ----------------------------------------------------------------------------------- */

void greet_begin(struct link *l);           /* may close */
void greet_readable(struct link *l);        /* may close */

/* -- link_sync.c ------------------------------------------------------------------------------------ */

void sync_begin(struct link *l);            /* l->in has what came after the reply. May close. */
void sync_readable(struct link *l);         /* may close */
void sync_waited(struct link *l);           /* may close */
void sync_drop(struct link *l);             /* in any stage */

/* -- link_follow.c ---------------------------------------------------------------------------------- */

void follow_readable(struct link *l);       /* may close */
bool follow_may(const struct link *l);      /* whether the commands that are read could be committed */
void follow_resume(struct link *l);         /* reads again if it stopped because of that */

#endif
