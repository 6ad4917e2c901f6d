/* Connections on a libuv loop, gathered into ticks.
 *
 * One turn of the loop is one tick: every readable connection is read once and its complete requests are
 * parsed; then on_tick runs them all; then the replies are written. A connection gets at most one read per
 * tick, so that none can starve another. All input of a tick is contiguous in blocks of the tick, and output
 * buffers are borrowed from pools while they have content: an idle connection owns almost no memory, and many
 * busy ones use little.
 *
 * Terms:
 *
 *   held back   input: requests of a connection that may not run yet; conn.hold has the reasons (HOLD_*)
 *   blocked     conn_block was called: a request has no reply yet, and those after it are held back
 *   held        output: replies that have been written and may not be sent before a fence (fence.h)
 *   waiting     output: replies that the kernel has not taken yet
 *
 * "Owner" is the server that made the struct net: it sets the callbacks and the fields marked "for the
 * owner".
 *
 * A connection is in conn.h. */
#ifndef MAYFLY_NET_NET_H
#define MAYFLY_NET_NET_H

#include <uv.h>

#include "base/arena.h"
#include "net/conn.h"

#define NET_NO_REQUEST UINT32_MAX

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
    u32 brief_holds;          /* reasons to hold a connection back that last for a moment: it is still read,
                               * so that all requests that arrive meanwhile run together when it continues */
    bool open;          /* no password is needed: the limits for unauthenticated clients don't apply */
    struct output_limit output[CONN_CLASSES];
    enum tls_verify tls_verify;
};

struct net_stats {
    u64 connections, rejected, bytes_in, bytes_out;
    u64 query_buffer_kills, output_buffer_kills;
    u64 reads, writes;
    u64 turns; /* of the loop */
};

/* Idle buffers of one size. net_trim frees those that were not needed lately. */
struct net_pool {
    struct buf *v;
    u32 n, cap;
    u32 low; /* the minimum of n since the last trim: that many were not needed */
    size_t size;
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
    struct net_block *blocks, *block; /* input: a list, and the block that is being filled */
    u32 blocks_filled;                /* up to the one being filled … */
    u32 blocks_needed;                /* … and the most that were filled since the last trim */
    bool nested;                      /* a turn within a turn */
    struct conn *ready, *ready_tail; /* connections with requests or output in it */
};

/* What a thread needs for reading and writing connections: the main thread, or an I/O thread (io.h). */
struct net_io {
    struct net *net;
    struct net_tick *into;        /* where requests go: net->tick or, while an I/O thread works, its own
                                   * tick */
    struct net_pool small, large; /* buffers of NET_SMALL and NET_BUFFER bytes */
    struct net_stats stats;       /* those of an I/O thread are added to net->own's before each tick */
    u32 clients;                  /* connections, including those being closed */
    struct io_thread *thread;     /* NULL: the main thread */
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
    struct net_io own; /* what the main thread reads and writes itself, and the statistics of all */
    struct io_threads *threads; /* NULL: the main thread has all connections */
    i64 *memory;                /* for the owner: where to note the memory of I/O threads; may be NULL */
    struct conn *conns;
    struct {
        struct conn *first, *last;
        u32 requests; /* of theirs, as far as they are known */
    } held_back[NET_HOLDS]; /* connections by reason (the number of its bit), in the order they came */
    u32 count;
    u32 closing;      /* connections whose close callback is still to come */
    u64 next_id;

    struct net_tick tick; /* the tick that is being gathered or run */
    struct net_fences fences;

    struct listener *listeners;
    struct tls_context *tls; /* for TLS connections; belongs to the owner, and may be replaced */
    bool mark_failed; /* SO_MARK could not be set on a listener */
    bool no_files;    /* accepting is paused until a file descriptor may be free */
    uv_check_t check;
    uv_prepare_t prepare;

    /* For the owner. */
    void *owner;
    void (*on_tick)(struct net *);               /* run the requests; called every turn, even with none */
    void (*on_sleep)(struct net *); /* everything of this turn of the loop has run; may be NULL */
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

void net_init(struct net *n, uv_loop_t *loop);
/* Starts I/O threads for connections accepted afterwards. False: the system refused; the caller must stop the
 * threads that were started. After stopping, the main thread has their connections, to close them. */
NODISCARD bool net_start_threads(struct net *n, u32 count);
void net_stop_threads(struct net *n);
u32 net_threads(const struct net *n); /* 0: none */

/* Statistics of a thread, for INFO. 0: the main thread; 1 …: I/O threads. */
struct net_thread_stats {
    u32 clients;
    u64 reads, writes;
};
struct net_thread_stats net_thread_stats(const struct net *n, u32 number);
void net_reset_stats(struct net *n);

void net_release(struct net *n); /* after the loop has closed all its handles */

/* Each returns 0 or a negative libuv error. The address may be a host name. */
NODISCARD int net_listen_tcp(struct net *n, const char *address, int port, bool tls);
NODISCARD int net_listen_unix(struct net *n, const char *path, int mode);
void net_stop_listening(struct net *n, bool only_tcp);

/* Both ends of a TCP connection, "host:port"; an unknown one is left unchanged. True: both are on this
 * host. */
bool net_addresses(int fd, char peer[NET_ADDRESS], char local[NET_ADDRESS]);

/* net_keep_output: the output written so far in this tick is sent (or waits for the fences in force) even if
 * the rest of the tick fails. net_take_back drops the output written since then: messages about changes that
 * were undone. */
void net_keep_output(struct net *n);
void net_take_back(struct net *n);

/* Resumes all connections that are held back for this reason alone, in the order they began to wait. */
void net_resume(struct net *n, u32 why);
/* How many requests they have; for brief_holds this includes requests that have arrived since. */
u32 net_held_requests(const struct net *n, u32 why);

/* Resumes some of them, in turn: at least one, and together at most `room` bytes of input. *last is the id of
 * the one resumed last. True: there are more. */
bool net_resume_some(struct net *n, u32 why, u64 room, u64 *last);

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

/* Call it while a request of the tick takes very long: reads the connections without requests in the
 * tick, calls `run` for their requests, and writes the replies. `run` must not depend on the tick's
 * outcome. `settled`: replies written before the long request don't depend on it either, and are also
 * sent. */
void net_serve_busy(struct net *n, bool settled, void (*run)(struct net *n, u32 request));

/* Call it about once a second, between ticks: the `timeout` directive, soft output limits of connections
 * without traffic, freeing of idle buffers, and accepting again after running out of file descriptors. */
void net_close_idle(struct net *n);
void net_check_output(struct net *n);
/* At the beginning of a tick, before work that would delay them: sends replies that fences have released
 * since the last one. Connections that have new requests, or were sent messages since, get them at the end of
 * the tick, with these. */
void net_send_released(struct net *n);
void net_trim(struct net *n);
void net_retry_accept(struct net *n);

#endif
