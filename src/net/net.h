/* Connections on a libuv loop, gathered into ticks.
 *
 * One turn of the loop is one tick: every readable connection is read once and its complete requests are
 * parsed; then on_tick runs them all; then the replies are written. A connection gets at most one read per
 * tick, so that none can starve another. Input and output buffers are lent from pools for the time they hold
 * something: an idle connection owns almost nothing.
 *
 * Ownership: struct net owns its connections. A conn is freed only from libuv's close callback. */
#ifndef MAYFLY_NET_NET_H
#define MAYFLY_NET_NET_H

#include <uv.h>

#include "base/arena.h"
#include "base/buf_queue.h"
#include "command/session.h"
#include "net/tls.h"
#include "resp/reply.h"
#include "resp/request.h"

#define NET_ADDRESS 64 /* room for "host:port" */
#define NET_NO_REQUEST UINT32_MAX
#define OUT_PIECE (256u << 10) /* output of so many bytes becomes a piece of its own */

struct net;

enum conn_class { CONN_NORMAL, CONN_REPLICA, CONN_PUBSUB, CONN_CLASSES };

/* Output that is not copied into a connection's buffer but taken where it lies, when there is nothing else to
 * send: the stream of a replica, the file it starts from. The owner keeps it as long as the connection. */
struct conn_source {
    bytes (*peek)(struct conn_source *);          /* what comes next, in one piece; empty: nothing just now */
    void (*sent)(struct conn_source *, size_t n); /* so much of it went out; it may close the connection */
    u64 (*pending)(const struct conn_source *);   /* bytes that wait: they count for the output limits */
};

struct conn {
    struct net *net;
    uv_poll_t poll;
    int fd;
    struct tls *tls;           /* NULL: plain */
    int events;                /* what it waits for: UV_READABLE, UV_WRITABLE … */
    int polled;                /* … and what `poll` has to wait for to that end */
    u8 calm;                   /* reads since that changed, up to NET_CALM: see net_tell_once */
    struct session session;
    struct conn *prev, *next;  /* of net->conns */
    struct conn *ready_next;   /* of net->tick.ready: has requests or output in this tick */
    bool ready;

    /* input */
    struct request_parser parser;
    struct buf in;             /* what a tick left over: the beginning of an unfinished request */
    struct buf lent;           /* this tick's input, lent from the pool; its requests point into it */
    bool read_this_tick;
    u32 first_request;         /* where this tick's begin in net->tick.requests, if there are any */
    bool more_input;           /* `in` holds requests that were not parsed yet */
    u32 hold;                  /* reasons not to run requests (CLIENT PAUSE, blocked …): 0 = run */

    /* output */
    struct buf_queue waiting;  /* output, if there is much … */
    struct buf out;            /* … and what comes behind that: no answer is in both */
    size_t sent;               /* so much of the first piece, or else of `out`, the kernel has taken */
    size_t tick_mark;          /* where this tick's output begins, behind what is held: see conn_output_end */
    u64 blocked_tick;          /* when conn_block was last called */
    struct held *held;         /* output that waits for fences: fence.h; NULL: nothing does */
    bool waits;                /* the request that conn_block was called for has not been answered */
    bool late;                 /* one of this tick's answers a request of an earlier tick */
    bool late_wrote;           /* the owner's: what was answered late changed data */
    struct conn_source *source;/* what is sent when there is nothing else; NULL: nothing. The owner's. */
    i64 over_soft_since_ms;    /* output above the soft limit since then; 0: not */
    bool answering;            /* a request is being answered, from answer_at on: what is pushed then … */
    size_t answer_at;
    struct buf before, behind; /* … stands in front of the answer, or behind it: see conn_push */

    /* facts for CLIENT LIST */
    enum conn_class class;
    bool is_unix, is_loopback;
    bool closing;
    i64 connected_ms;          /* of the loop's time, as … */
    i64 active_ms;             /* … when bytes last came or went */
    const char *last_command;
    char peer[NET_ADDRESS], local[NET_ADDRESS];

    /* the owner's */
    size_t counted;            /* memory, as client_evict.h counted it last */
    bool in_bucket;            /* … and where it is among those of its size */
    u32 bucket;
    struct conn *bucket_prev, *bucket_next;
    struct replica *replica;   /* it said REPLCONF, PSYNC or SYNC */
    struct blocked *blocked;   /* it waits for keys: block.h */
    struct migration *migration; /* its MIGRATE is under way: migrate.h */
    bool heard;                /* something was read from it; the owner takes it away again */
    struct subscriber *subscriber; /* it is subscribed to something: pubsub.h */
    struct tracker *tracker;   /* it is told what changes of the keys it read: tracking.h … */
    struct tracker *redirects; /* … or is told so for these others */
    u64 wrote_to;              /* where its last write ends in the stream of replication: WAIT … */
    u64 wrote_seq;             /* … and the journal's number of it: WAITAOF */
};

/* One parsed request of the tick. argv points into the connection's input. */
struct net_request {
    struct conn *conn;
    u32 argv_at;     /* index of its first argument in the tick's args */
    u32 argc;        /* 0: a protocol error, see `error` */
    const char *raw; /* where the request starts in the input: to put it back */
    const char *raw_end; /* where the connection's input of this tick ends */
    const char *error; /* the parser's text behind "Protocol error: " */
    bool wrote;      /* the owner's: it changed data */
    bool silent;     /* the owner's: it has no reply (CLIENT REPLY), and would have no error either */
    bool waits;      /* it is not answered in this tick, and a segment knows: fence.h */
};

struct output_limit {
    u64 hard, soft;
    u32 soft_seconds;
};

struct net_config {
    i64 max_bulk, max_query_buffer;
    u32 max_clients;
    u32 idle_timeout_s; /* 0: never */
    u32 keepalive_s;    /* 0: off */
    u32 backlog;
    u32 accepts, tls_accepts; /* of a listener in one turn of the loop */
    u32 mark;                 /* SO_MARK of TCP listeners, which their connections inherit; 0: none */
    u8 default_proto;         /* RESP version of a new connection */
    bool open;          /* whoever connects needs no password: the limits of strangers are nobody's */
    struct output_limit output[CONN_CLASSES];
    enum tls_verify tls_verify;
};

struct net_stats {
    u64 connections, rejected, bytes_in, bytes_out;
    u64 query_buffer_kills, output_buffer_kills;
    u64 reads, writes;
    u64 turns; /* of the loop */
};

/* Everything that belongs to one turn and to no other. A turn within a turn (net_serve_busy) has its own. */
struct net_tick {
    u64 number;                   /* of ticks that ended before it */
    struct net_request *requests; /* in order of arrival; those of a connection stand together */
    u32 request_count, request_cap;
    u32 running;                  /* the owner's: index of the one that is being run, or NET_NO_REQUEST */
    u32 done;                     /* … and then, how many have been run: none, or all */
    struct fence *fence;          /* what is written waits for it; NULL: for the end of the tick. fence.h */
    bytes *args;                  /* of all requests */
    u32 arg_count, arg_cap;
    struct arena words;           /* arguments of inline requests */
    struct conn *ready, *ready_tail; /* connections with requests or output in it */
};

/* Fences that have not ended, in the order they were opened: fence.h. */
struct net_fences {
    struct fence *first, *last;
    u32 count;
    u64 last_id;
    bool ended; /* some passed or failed while a request ran: that is still to be done */
};

/* What a failed fence means to a connection. */
struct net_failure {
    bool asked;            /* requests of it failed, not just messages to it */
    bool waits;            /* one of them still waits (conn_block) */
    u8 marks;              /* on_segment's of the last segment that has any, if that one failed … */
    bool asked_since_mark; /* … and whether requests from there on failed */
};

struct net {
    uv_loop_t *loop;
    struct net_config config;
    struct net_stats stats;
    struct conn *conns;
    u32 count;
    u32 closing;      /* so many of them: the loop has yet to forget them */
    u64 next_id;

    struct net_tick tick; /* the one that is being gathered or run */
    struct net_fences fences;

    struct buf *pool; /* idle buffers, all of NET_BUFFER bytes */
    u32 pooled, pool_cap;
    u32 pool_low;     /* the fewest it held since the last trim: so many were not needed */

    struct listener *listeners;
    struct tls_context *tls; /* for those that speak it; the owner's, and may be replaced */
    bool mark_failed; /* SO_MARK could not be set on a listener */
    bool no_files;    /* accepting waits until a file descriptor may be free */
    uv_check_t check;
    uv_prepare_t prepare;

    /* The owner's part. */
    void *owner;
    void (*on_tick)(struct net *);               /* run the requests; called every turn, also with none */
    const char *(*on_accept)(struct net *, struct conn *); /* error line to refuse with, or NULL */
    void (*on_close)(struct net *, struct conn *);         /* the conn is about to be freed */
    void (*on_moved)(struct net *, struct conn *); /* it was read from or written to; NULL: not needed */
    void (*on_no_tls)(struct net *, struct conn *, const char *why); /* its TLS handshake has failed */
    /* For fences (fence.h). Marks to remember of these requests of the tick; and: replies became errors.
     * True: the request that waits was given up, and is to have the error. Either may be NULL. */
    u8 (*on_segment)(struct net *, struct conn *, u32 from, u32 to);
    bool (*on_failed)(struct net *, struct conn *, const struct net_failure *);
};

#define NET_BUFFER (16 * 1024)

void net_init(struct net *n, uv_loop_t *loop);
void net_release(struct net *n); /* after the loop has closed all its handles */

/* Each returns 0 or a negative libuv error. The address may be a host name. */
NODISCARD int net_listen_tcp(struct net *n, const char *address, int port, bool tls);
NODISCARD int net_listen_unix(struct net *n, const char *path, int mode);
void net_stop_listening(struct net *n, bool only_tcp);

/* Both ends of a TCP connection, "host:port"; what is not known stays as it was. True: within this host. */
bool net_addresses(int fd, char peer[NET_ADDRESS], char local[NET_ADDRESS]);

/* The reply writer for a connection's next reply. */
struct reply conn_reply(struct conn *c);
/* The request it is blocked for is answered; silent: by nothing (CLIENT REPLY). */
void conn_late(struct conn *c, bool silent);

/* The writer for a message that nobody asked for. One that comes while a request of this very connection is
 * being answered, stands in front of the answer (if nothing of that is written yet) or behind it, but never
 * within; where there is no telling the two apart (RESP2), behind it. */
enum push_place { PUSH_BEFORE, PUSH_BEHIND };
struct reply conn_push(struct conn *c, enum push_place place);

/* Closes a connection that has more output than it may have: for those who write much within a tick. */
void conn_check_output(struct conn *c);
static inline void conn_mind_output(struct conn *c)
{
    if (UNLIKELY(c->out.n > NET_BUFFER)) conn_check_output(c);
}

/* What is written to a connection between these two is the answer to one request. */
static inline size_t conn_answer_begin(struct conn *c)
{
    c->answering = true;
    return c->answer_at = c->out.n;
}
void conn_answer_join(struct conn *c, size_t begin); /* the answer, and the messages before and behind it */
void conn_set_aside(struct conn *c);                 /* `out` becomes the last of the pieces */
static inline void conn_answer_end(struct conn *c, size_t begin)
{
    c->answering = false;
    if (UNLIKELY(c->before.n || c->behind.n)) conn_answer_join(c, begin);
    conn_mind_output(c);
    if (UNLIKELY(c->out.n >= OUT_PIECE)) conn_set_aside(c);
}

/* What was written in this tick so far stays, whatever becomes of what comes next, or waits for the fences in
 * force; or what was written since goes: messages of changes that were not kept. */
void net_keep_output(struct net *n);
void net_take_back(struct net *n);

/* Close now; pending output is dropped. */
void conn_close(struct conn *c);

/* The rest of a connection's input is for later, from this request on. `why`: a bit for conn_resume. */
void conn_postpone(struct net *n, u32 request_index, u32 why);
void conn_resume(struct conn *c, u32 why);
void conn_mind_end(struct conn *c);      /* until then: if the peer leaves, the connection is closed */
void net_resume(struct net *n, u32 why); /* all of them, those that connected first before the others */

/* Some of them: at least one, and no more than have `room` bytes of input. They take turns: *last is the id
 * of the one that was last resumed. True: there are more. */
bool net_resume_some(struct net *n, u32 why, u64 room, u64 *last);

/* The request that is being run will be answered later: those of the connection behind it wait. When it is
 * answered (conn_reply), conn_resume lets them run. */
void conn_block(struct net *n, struct conn *c, u32 why);

/* Its source has something to send: it goes out at the end of this tick … */
void conn_wake(struct conn *c);
/* … or, between ticks, at once. The connection may be closed on return. */
void conn_pump(struct conn *c);

/* The owner's on_tick has run all requests. */
static inline void net_requests_done(struct net *n)
{
    n->tick.running = NET_NO_REQUEST;
    n->tick.done = n->tick.request_count;
}

/* The request that is being run; NULL: none is, or it was put off. */
static inline const struct net_request *net_running(const struct net *n)
{
    const struct net_tick *t = &n->tick;
    return t->running < t->request_count && t->requests[t->running].conn ? &t->requests[t->running] : NULL;
}

/* Those that are there: not those the loop has yet to forget. */
static inline u32 net_clients(const struct net *n) { return n->count - n->closing; }

size_t conn_memory(const struct conn *c);
size_t conn_output_bytes(const struct conn *c);
/* Something waits to be sent, if only for a fence. */
static inline bool conn_has_output(const struct conn *c) { return c->waiting.first || c->out.n; }
/* A place in what is written to a connection, until something of it is sent; what is behind it can go. */
static inline size_t conn_output_end(const struct conn *c) { return c->waiting.bytes + c->out.n; }
void conn_cut_output(struct conn *c, size_t end);
void conn_copy_output(const struct conn *c, size_t begin, struct buf *to); /* appends what is behind it */

/* To be called while a request of the tick takes very long: reads those connections that have no part in the
 * tick, lets `run` answer their requests, and writes the answers. Nothing they do may depend on the tick's
 * outcome. `settled`: what was answered before the long request does not either, and goes out, too. */
void net_serve_busy(struct net *n, bool settled, void (*run)(struct net *n, u32 request));

/* About once a second, between ticks: the `timeout` directive, the soft output limits of those on which
 * nothing happens, freeing of idle buffers, and accepting again after the file descriptors had run out. */
void net_close_idle(struct net *n);
void net_check_output(struct net *n);
void net_trim(struct net *n);
void net_retry_accept(struct net *n);

#endif
