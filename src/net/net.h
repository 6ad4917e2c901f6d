/* Connections on a libuv loop, gathered into ticks.
 *
 * One turn of the loop is one tick: every readable connection is read once and its complete requests are
 * parsed; then on_tick runs them all; then the replies are written. A connection gets at most one read per
 * tick, so that none can starve another. Input and output buffers are lent from pools while they have
 * content: an idle connection owns almost nothing.
 *
 * Words, each for one thing:
 *
 *   held back   input: requests of a connection that may not run yet; conn.hold has the reasons (HOLD_*)
 *   blocked     conn_block was called: a request has no reply yet, and those after it are held back
 *   held        output: replies that have been written and may not be sent before a fence (fence.h)
 *   waiting     output: replies that the kernel has not taken yet
 *
 * "Owner" is the server that made the struct net: it sets the callbacks and the fields marked "for the
 * owner".
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
#define OUT_PIECE (256u << 10) /* this much output becomes a buffer of its own in the queue */

struct net;

enum conn_class { CONN_NORMAL, CONN_REPLICA, CONN_PUBSUB, CONN_CLASSES };

/* Output that is not copied into a connection's buffer but read from where it is, when there is nothing else
 * to send: a replica's stream, the file of its full sync. The owner keeps it as long as the connection. */
struct conn_source {
    bytes (*peek)(struct conn_source *);          /* the next bytes, contiguous; empty: nothing now */
    void (*sent)(struct conn_source *, size_t n); /* n bytes were sent; it may close the connection */
    u64 (*pending)(const struct conn_source *);   /* bytes to be sent: they count for the output limits */
};

struct conn {
    struct net *net;
    uv_poll_t poll;
    int fd;
    struct tls *tls;           /* NULL: plain */
    int events;                /* what it waits for: UV_READABLE, UV_WRITABLE … */
    int polled;                /* … and what `poll` waits for because of that (TLS) */
    u8 steady_reads;           /* reads since `polled` changed, up to NET_EDGE_AFTER: see net_poll_edge */
    struct session session;
    struct conn *prev, *next;  /* in net->conns */
    struct conn *ready_next;   /* in net->tick.ready: has requests or output in this tick */
    bool ready;

    /* input */
    struct request_parser parser;
    struct buf in;             /* left over from a tick: the beginning of an incomplete request */
    struct buf lent;           /* this tick's input, lent from the pool; its requests point into it */
    bool read_this_tick;
    u32 first_request;         /* where its requests begin in net->tick.requests, if it has any */
    bool more_input;           /* `in` has requests that were not parsed yet */
    u32 hold;                  /* the reason not to run requests (CLIENT PAUSE, blocked …): 0 = run */
    struct conn *hold_prev, *hold_next; /* in net.held_back, while there is one */

    /* output */
    struct buf_queue waiting;  /* output, if there is much … */
    struct buf out;            /* … and what follows it; no reply is split between the two */
    size_t sent;               /* bytes of the first buffer, or else of `out`, that the kernel has taken */
    size_t tick_mark;          /* where this tick's output begins, after what is held: see conn_output_end */
    u64 blocked_tick;          /* when conn_block was last called */
    struct held *held;         /* output that waits for fences: fence.h; NULL: none */
    bool waits;                /* the request that conn_block was called for has no reply yet */
    bool deferred_reply;       /* a reply of this tick answers a request of an earlier tick */
    bool deferred_wrote;       /* for the owner: the request that was answered later changed data */
    struct conn_source *source;/* sent when there is nothing else; NULL: nothing. Belongs to the owner. */
    i64 over_soft_since_ms;    /* output has been above the soft limit since then; 0: it is not */
    bool answering;            /* a request is being answered, from answer_at on: pushes meanwhile … */
    size_t answer_at;
    struct buf before, after;  /* … is put before the reply or after it: see conn_push */

    /* facts for CLIENT LIST */
    enum conn_class class;
    bool is_unix, is_loopback;
    bool closing;
    i64 connected_ms;          /* the loop's time, as … */
    i64 active_ms;             /* … the time of the last read or write */
    const char *last_command;
    char peer[NET_ADDRESS], local[NET_ADDRESS];

    /* for the owner */
    size_t counted;            /* memory, as client_evict.h last counted it */
    bool in_bucket;            /* … and its place among connections of that size */
    u32 bucket;
    struct conn *bucket_prev, *bucket_next;
    struct replica *replica;   /* it sent REPLCONF, PSYNC or SYNC */
    struct blocked *blocked;   /* it waits for keys: block.h */
    struct migration *migration; /* its MIGRATE is in progress: migrate.h */
    bool got_input;            /* something was read from it; the owner clears this */
    struct subscriber *subscriber; /* it has subscriptions: pubsub.h */
    struct tracker *tracker;   /* it gets invalidations for the keys it read: tracking.h … */
    struct tracker *redirects; /* … or gets them for these other clients */
    u64 wrote_to;              /* the offset in the replication stream after its last write: WAIT …
                                * (cluster mode: the index of its entry in the log) */
    u64 wrote_seq;             /* … and the journal's number of that write: WAITAOF */
};

/* One parsed request of the tick. argv points into the connection's input. */
struct net_request {
    struct conn *conn;
    u32 argv_at;     /* index of its first argument in the tick's args */
    u32 argc;        /* 0: a protocol error, see `error` */
    const char *raw; /* where the request starts in the input: for putting it back */
    const char *raw_end; /* where the connection's input of this tick ends */
    const char *error; /* the parser's text after "Protocol error: " */
    bool wrote;      /* for the owner: it changed data */
    bool silent;     /* for the owner: it has no reply (CLIENT REPLY), and would get no error either */
    bool waits;      /* it is not answered in this tick, and a segment records that: fence.h */
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
    u32 accepts, tls_accepts; /* per listener in one turn of the loop */
    u32 mark;                 /* SO_MARK of TCP listeners, which their connections inherit; 0: none */
    u8 default_proto;         /* RESP version of a new connection */
    bool open;          /* no password is needed: the limits for unauthenticated clients apply to nobody */
    struct output_limit output[CONN_CLASSES];
    enum tls_verify tls_verify;
};

struct net_stats {
    u64 connections, rejected, bytes_in, bytes_out;
    u64 query_buffer_kills, output_buffer_kills;
    u64 reads, writes;
    u64 turns; /* of the loop */
};

/* Everything that belongs to one turn only. A turn within a turn (net_serve_busy) has its own. */
struct net_tick {
    u64 number;                   /* ticks that ended before this one */
    struct net_request *requests; /* in order of arrival; a connection's requests are adjacent */
    u32 request_count, request_cap;
    u32 running;                  /* for the owner: index of the request that is running, or NET_NO_REQUEST */
    u32 done;                     /* … and in that case, how many have been run: none, or all */
    struct fence *fence;          /* what is written waits for it; NULL: only for the tick's end. fence.h */
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
    bool ended; /* some passed or failed while a request ran; their segments are still to be settled */
};

#define NET_HOLDS 16 /* reasons to hold a connection back: bits of conn.hold */

/* What a failed fence means for a connection. */
struct net_failure {
    bool asked;            /* requests of it failed, not just messages to it */
    bool waits;            /* one of them is still blocked (conn_block) */
    u8 marks;              /* marks (on_segment) of the last segment that has any, if that one failed … */
    bool asked_since_mark; /* … and whether requests after it failed */
};

struct net {
    uv_loop_t *loop;
    struct net_config config;
    struct net_stats stats;
    struct conn *conns;
    struct {
        struct conn *first, *last;
    } held_back[NET_HOLDS]; /* connections by reason (the number of its bit), in the order they came */
    u32 count;
    u32 closing;      /* connections whose close callback is still to come */
    u64 next_id;

    struct net_tick tick; /* the tick that is being gathered or run */
    struct net_fences fences;

    struct buf *pool; /* idle buffers, all of NET_BUFFER bytes */
    u32 pooled, pool_cap;
    u32 pool_low;     /* the fewest it held since the last trim: that many were not needed */

    struct listener *listeners;
    struct tls_context *tls; /* for TLS connections; belongs to the owner, and may be replaced */
    bool mark_failed; /* SO_MARK could not be set on a listener */
    bool no_files;    /* accepting is paused until a file descriptor may be free */
    uv_check_t check;
    uv_prepare_t prepare;

    /* For the owner. */
    void *owner;
    void (*on_tick)(struct net *);               /* run the requests; called every turn, even with none */
    const char *(*on_accept)(struct net *, struct conn *); /* the error line to refuse with, or NULL */
    void (*on_close)(struct net *, struct conn *);         /* the conn is about to be freed */
    void (*on_moved)(struct net *, struct conn *); /* it was read from or written to; may be NULL */
    void (*on_no_tls)(struct net *, struct conn *, const char *why); /* its TLS handshake failed */
    /* For fences (fence.h). on_segment: the marks to remember for these requests of the tick. on_failed:
     * replies became errors; true: the blocked request was given up, and gets the error. Either may be
     * NULL. */
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

/* Both ends of a TCP connection, "host:port"; an unknown one is left unchanged. True: both are on this
 * host. */
bool net_addresses(int fd, char peer[NET_ADDRESS], char local[NET_ADDRESS]);

/* The reply writer for a connection's next reply. */
struct reply conn_reply(struct conn *c);
/* The request it is blocked on has been answered. silent: without a reply (CLIENT REPLY). */
void conn_answer_deferred(struct conn *c, bool silent);

/* The writer for a message that is not a reply. If a request of this connection is being answered, the
 * message is put before the reply (if none of that is written yet) or after it, never inside; after it in
 * RESP2, which can't tell the two apart. */
enum push_place { PUSH_BEFORE, PUSH_AFTER };
struct reply conn_push(struct conn *c, enum push_place place);

/* Closes a connection whose output exceeds its limits: for callers that write much within a tick. */
void conn_check_output(struct conn *c);
static inline void conn_limit_output(struct conn *c)
{
    if (UNLIKELY(c->out.n > NET_BUFFER)) conn_check_output(c);
}

/* What is written to a connection between these two is the reply to one request. */
static inline size_t conn_answer_begin(struct conn *c)
{
    c->answering = true;
    return c->answer_at = c->out.n;
}
void conn_answer_join(struct conn *c, size_t begin); /* the reply, and the messages before and after it */
void conn_set_aside(struct conn *c);                 /* `out` becomes the last buffer of the queue */
static inline void conn_answer_end(struct conn *c, size_t begin)
{
    c->answering = false;
    if (UNLIKELY(c->before.n || c->after.n)) conn_answer_join(c, begin);
    conn_limit_output(c);
    if (UNLIKELY(c->out.n >= OUT_PIECE)) conn_set_aside(c);
}

/* Keep: what was written in this tick so far is sent even if what follows fails (or waits for the fences in
 * force). Take back: drops what was written since then, messages about changes that were not kept. */
void net_keep_output(struct net *n);
void net_take_back(struct net *n);

/* Closes now; output that was not sent is dropped. */
void conn_close(struct conn *c);

/* Holds back a connection's input from this request on. `why`: a bit for conn_resume, or 0. */
void conn_postpone(struct net *n, u32 request_index, u32 why);
void conn_resume(struct conn *c, u32 why);
void conn_close_on_eof(struct conn *c);      /* until then: close the connection if the peer closes it */
/* All that wait for this one reason, in the order they began to. Costs as much as there are of them. */
void net_resume(struct net *n, u32 why);

/* Resumes some of them: at least one, and no more than have `room` bytes of input. They take turns: *last is
 * the id of the one resumed last. True: there are more. */
bool net_resume_some(struct net *n, u32 why, u64 room, u64 *last);

/* The request that is running will be answered later: the connection's requests after it are held back. When
 * it is answered (conn_reply), conn_resume lets them run. */
void conn_block(struct net *n, struct conn *c, u32 why);

/* Its source has something to send, which is sent at the end of this tick … */
void conn_wake(struct conn *c);
/* … or, between ticks, at once. The connection may be closed on return. */
void conn_pump(struct conn *c);

/* The owner's on_tick has run all requests. */
static inline void net_requests_done(struct net *n)
{
    n->tick.running = NET_NO_REQUEST;
    n->tick.done = n->tick.request_count;
}

/* The request that is running; NULL: none, or it was postponed. */
static inline const struct net_request *net_running(const struct net *n)
{
    const struct net_tick *t = &n->tick;
    return t->running < t->request_count && t->requests[t->running].conn ? &t->requests[t->running] : NULL;
}

/* Open connections: without those whose close callback is still to come. */
static inline u32 net_clients(const struct net *n) { return n->count - n->closing; }

size_t conn_memory(const struct conn *c);
size_t conn_output_bytes(const struct conn *c);
/* There is output to be sent, including output held by a fence. */
static inline bool conn_has_output(const struct conn *c) { return c->waiting.first || c->out.n; }
/* A position in a connection's output, valid until some of it is sent; output after it can be dropped. */
static inline size_t conn_output_end(const struct conn *c) { return c->waiting.bytes + c->out.n; }
void conn_cut_output(struct conn *c, size_t end);
void conn_copy_output(const struct conn *c, size_t begin, struct buf *to); /* appends what follows `begin` */

/* To be called while a request of the tick takes very long: reads the connections that have no part in the
 * tick, lets `run` answer their requests, and writes the replies. Nothing they do may depend on the tick's
 * outcome. `settled`: replies written before the long request don't depend on it either, and are sent,
 * too. */
void net_serve_busy(struct net *n, bool settled, void (*run)(struct net *n, u32 request));

/* Call it about once a second, between ticks: the `timeout` directive, soft output limits of connections
 * without traffic, freeing of idle buffers, and accepting again after running out of file descriptors. */
void net_close_idle(struct net *n);
void net_check_output(struct net *n);
void net_trim(struct net *n);
void net_retry_accept(struct net *n);

#endif
