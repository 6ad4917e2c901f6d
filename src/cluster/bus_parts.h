/* The inside of the bus: for bus.c (listening, peers, time) and bus_conn.c (one connection). */
#ifndef MAYFLY_CLUSTER_BUS_PARTS_H
#define MAYFLY_CLUSTER_BUS_PARTS_H

#include "cluster/bus.h"
#include "net/dial.h"

/* The side that connects: CONNECTING, CHALLENGE, WELCOME, OPEN. The side that accepts: HELLO, OPEN. */
enum bus_conn_state {
    BUS_CONNECTING, /* the name is resolved, or the socket connects */
    BUS_CHALLENGE,  /* the other side's challenge is awaited */
    BUS_WELCOME,    /* … its welcome … */
    BUS_HELLO,      /* … its hello */
    BUS_OPEN,
    BUS_CLOSED, /* the loop has yet to forget it */
};

struct bus_conn {
    struct bus *bus;
    struct bus_conn *prev, *next;       /* of bus.conns */
    struct bus_conn *dirty_next;        /* of bus.dirty: has output for the end of this turn */
    bool dirty, dialled, paused, finishing;
    bool drained;                       /* on_drained is to be called when the socket is writable */
    enum bus_conn_state state;
    const struct bus_conn_ops *ops;
    void *user;
    i64 begun_ms;                       /* by the loop's time */
    i64 open_ms;                        /* wall clock */

    struct dial *dial;                  /* NULL: not connecting */
    union {
        uv_poll_t poll; /* once there is a socket */
        uv_idle_t idle; /* what is closed instead of it, if there never was one */
    };
    int fd;                             /* -1: none yet */
    struct tls *tls;                    /* NULL: plain */
    int polled;                         /* what `poll` waits for */

    struct bus_hello hello;             /* what the connector says */
    struct bus_nonces nonces;
    char node[BUS_NODE_ID + 1];         /* of the other side, proved */
    struct buf in, out;
    size_t taken;                       /* so much of `in` was delivered */
    size_t sent;                        /* so much of `out` the kernel has */
    u64 written;                        /* … and so much in all */
    struct buf early;                   /* frames that were sent before it was open */
    bool delivering;                    /* on_frame is being called */
};

struct bus_peer {
    struct bus *bus;
    struct bus_peer *next;
    char node[BUS_NODE_ID + 1];
    char host[256];
    int port;
    struct bus_conn *conn;              /* NULL: none, until a frame is sent after retry_ms */
    i64 retry_ms, backoff_ms;
    u64 moved;                          /* bus_peer_moves: what had been received */
};

struct bus_listener {
    struct bus *bus;
    struct bus_listener *next;
    uv_poll_t poll;
    int fd;
};

struct bus {
    struct bus_options o;
    struct bus_stats stats;
    struct bus_conn *conns, *dirty;
    struct bus_peer *peers;
    struct bus_listener *listeners;
    uv_prepare_t prepare; /* writes what the turn has queued */
    uv_timer_t timer;     /* greetings that take too long */
    u32 handles;          /* that libuv still knows: the last one frees the bus */
    u32 unproved;         /* connections that were accepted and have not proved themselves yet */
    bool closing;
    i64 logged_ms;        /* when the log last heard of a refused connection … */
    u64 unlogged;         /* … and how many there were since */
};

struct bus_conn *bus_conn_new(struct bus *b, const struct bus_conn_ops *ops, void *user);
void bus_conn_adopt(struct bus_conn *c, int fd); /* a connected socket: the greeting begins */
void bus_conn_flush(struct bus_conn *c);
void bus_refused(struct bus *b, const struct bus_conn *c, const char *why); /* counts; logs now and then */
void bus_handle_closed(struct bus *b);

#endif
