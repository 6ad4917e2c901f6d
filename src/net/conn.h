/* A connection: its input, its output, and what the server knows about the client. net.h has the loop that
 * reads and writes connections, and the words used here.
 *
 * Ownership: struct net owns its connections. A conn is freed only from libuv's close callback. */
#ifndef MAYFLY_NET_CONN_H
#define MAYFLY_NET_CONN_H

#include <uv.h>

#include "base/buf_queue.h"
#include "command/session.h"
#include "net/tls.h"
#include "resp/reply.h"
#include "resp/request.h"

#define NET_ADDRESS 64 /* room for "host:port" */
#define NET_BUFFER (16 * 1024)
#define NET_SMALL 1024 /* the buffer of a connection that had no more output than this last time */
#define OUT_PIECE (256u << 10) /* this much output becomes a buffer of its own in the queue */

struct net;
struct net_io;

enum conn_class { CONN_NORMAL, CONN_REPLICA, CONN_PUBSUB, CONN_CLASSES };

/* Output that is not copied into a connection's buffer but read from where it is, when there is nothing else
 * to send: a replica's stream, the file of its full sync. The owner keeps it as long as the connection. */
struct conn_source {
    bytes (*peek)(struct conn_source *);          /* the next bytes, contiguous; empty: nothing now */
    void (*sent)(struct conn_source *, size_t n); /* n bytes were sent; it may close the connection */
    u64 (*pending)(const struct conn_source *);   /* bytes to be sent: they count for the output limits */
};

/* Fields that every request uses come first, so that it touches few cache lines. */
struct conn {
    struct net *net;
    struct net_io *io;         /* who reads and writes it: the main thread or an I/O thread (net/io.h) */
    struct conn *ready_next;   /* in net->tick.ready: has requests or output in this tick */
    int fd;
    int events;                /* what it waits for: UV_READABLE, UV_WRITABLE … */
    int polled;                /* … and what `poll` waits for because of that (TLS) */
    u32 first_request;         /* where its requests begin in net->tick.requests, if it has any */
    u32 hold;                  /* the reason not to run requests (CLIENT PAUSE, blocked …): 0 = run */
    u8 steady_reads;           /* reads since `polled` changed, up to NET_EDGE_AFTER: see net_poll_edge */
    bool ready;
    bool read_this_tick;
    bool more_input;           /* `in` has requests that were not parsed yet */
    bool wide;                 /* the last output was more than NET_SMALL */
    bool answering;            /* a request is being answered, from answer_at on: pushes meanwhile go into
                                * before or after: see conn_push */
    bool waits;                /* the request that conn_block was called for has no reply yet */
    bool deferred_reply;       /* a reply of this tick answers a request of an earlier tick */
    bool deferred_wrote;       /* for the owner: the request that was answered later changed data */
    bool got_input;            /* for the owner, which clears it: something was read */
    bool closing;
    bool is_unix, is_loopback;
    bool in_bucket;            /* for the owner: see `bucket` */
    enum conn_class class;
    struct tls *tls;           /* NULL: plain */

    /* input */
    bytes fresh;               /* what this tick has read, in its blocks; its requests point there … */
    struct buf lent;           /* … or here: what was in `in` */
    struct buf in;             /* left over from a tick: the beginning of an incomplete request */

    /* output */
    struct buf_queue waiting;  /* output, if there is much … */
    struct buf out;            /* … and what follows it; no reply is split between the two */
    size_t sent;               /* bytes of the first buffer, or else of `out`, that the kernel has taken */
    size_t tick_mark;          /* where this tick's output begins, after what is held: see conn_output_end */
    size_t answer_at;
    struct held *held;         /* output that waits for fences: fence.h; NULL: none */
    struct conn_source *source;/* sent when there is nothing else; NULL: nothing. Belongs to the owner. */
    i64 over_soft_since_ms;    /* output has been above the soft limit since then; 0: it is not */
    i64 active_ms;             /* the time of the last read or write, by the loop's clock */
    const char *last_command;
    struct buf before, after;  /* messages around the reply that is being written */

    struct session session;
    struct request_parser parser;
    uv_poll_t poll;
    struct conn *prev, *next;  /* in net->conns */

    /* if an I/O thread has it: io.h */
    u8 seen;                   /* events the kernel has reported that were not used yet: UV_READABLE … */
    bool io_queued;            /* in io->queue */
    bool io_reported;          /* in io->reports: the main thread must look at it … */
    bool io_broken;            /* … and close it */
    struct conn *io_prev, *io_next, *io_report_next;
    struct conn *hold_prev, *hold_next; /* in net.held_back, while there is a reason */
    u32 held_requests;         /* how many requests `in` has … */
    u32 held_counted;          /* … counted up to this byte; 0: counted when it was held back */
    u64 blocked_tick;          /* when conn_block was last called */

    /* for the owner */
    struct replica *replica;   /* it sent REPLCONF, PSYNC or SYNC */
    struct served *peer_link;  /* it sent SITE.HELLO: peers/peers.h */
    struct blocked *blocked;   /* it waits for keys: block.h */
    struct migration *migration; /* its MIGRATE is in progress: migrate.h */
    struct subscriber *subscriber; /* it has subscriptions: pubsub.h */
    struct tracker *tracker;   /* it gets invalidations for the keys it read: tracking.h … */
    struct tracker *redirects; /* … or gets them for these other clients */
    u64 wrote_to;              /* the offset in the replication stream after its last write: WAIT …
                                * (cluster mode: the index of its entry in the log) */
    u64 wrote_site;            /* this site's effect of its last write: SITE WAIT */
    u64 wrote_seq;             /* … and the journal's number of that write: WAITAOF;
                                * in cluster mode the index in the log of its region, and the region */
    size_t counted;            /* memory, as client_evict.h last counted it … */
    u32 bucket;                /* … and its place among connections of that size */
    struct conn *bucket_prev, *bucket_next;

    /* facts for CLIENT LIST */
    i64 connected_ms;          /* the loop's time */
    char peer[NET_ADDRESS], local[NET_ADDRESS];
};

/* -- output ------------------------------------------------------------------------------- */

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

size_t conn_memory(const struct conn *c);
size_t conn_output_bytes(const struct conn *c);
/* The size of the buffer for its output: of the one it has, or of the one its next reply is written to. */
static inline size_t conn_output_room(const struct conn *c)
{
    return c->out.p ? c->out.cap : c->wide ? NET_BUFFER : NET_SMALL;
}
/* There is output to be sent, including output held by a fence. */
static inline bool conn_has_output(const struct conn *c) { return c->waiting.first || c->out.n; }
/* A position in a connection's output, valid until some of it is sent; output after it can be dropped. */
static inline size_t conn_output_end(const struct conn *c) { return c->waiting.bytes + c->out.n; }
void conn_cut_output(struct conn *c, size_t end);
void conn_copy_output(const struct conn *c, size_t begin, struct buf *to); /* appends what follows `begin` */

/* Its source has something to send, which is sent at the end of this tick … */
void conn_wake(struct conn *c);
/* … or, between ticks, at once. The connection may be closed on return. */
void conn_pump(struct conn *c);

/* -- input, and closing ------------------------------------------------------------------- */

/* Closes now; output that was not sent is dropped. */
void conn_close(struct conn *c);

/* Holds back a connection's input from this request on. `why`: a bit for conn_resume, or 0. */
void conn_postpone(struct net *n, u32 request_index, u32 why);
void conn_resume(struct conn *c, u32 why);
void conn_close_on_eof(struct conn *c);      /* until then: close the connection if the peer closes it */

/* The running request will get its reply later: the connection's requests after it are held back. After that
 * reply (conn_reply), conn_resume lets them run. */
void conn_block(struct net *n, struct conn *c, u32 why);

#endif
