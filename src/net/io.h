/* I/O threads: reading, parsing and writing connections on several cores (io-threads; decision 027).
 *
 * With `io-threads N`, the clients' connections are divided evenly among N - 1 threads. A thread sleeps until
 * one of its connections can be read or written, serves all that are ready, and wakes the main thread if
 * there are requests to run. The main thread runs the requests of all threads as one tick, and leaves writing
 * the replies to the threads. Commands, listeners, replicas' streams, links to other servers and everything
 * else stay on the main thread.
 *
 * A gate per thread (gate.h) decides which of the two may run:
 *
 *     I/O thread     sleeps │ enters, reads, parses │ leaves, wakes │            │ enters, writes … │
 *     main thread    sleeps in io_wait                              │ runs the   │ sleeps in io_wait
 *     gate           open                                           │ tick       │ open
 *
 * Invariants:
 *
 *  1. All gates are closed while the main thread works. It may access every connection, as if there were no
 *     threads.
 *  2. While the gates are open the main thread sleeps, and its tick is empty.
 *  3. Inside its gate a thread accesses only its own connections, its io_thread, and data that does not
 *     change meanwhile. Outside of src/net it calls only the allocator, the parser and TLS. It reports what
 *     only the main thread may do (closing a connection, calling the owner).
 *  4. A connection stays with its thread. Its buffers come from the thread's pools.
 *  5. The kernel reports an event of a connection once (EPOLLET), whatever the connection waits for; `seen`
 *     has the events that were reported and not used yet. */
#ifndef MAYFLY_NET_IO_H
#define MAYFLY_NET_IO_H

#include "base/alloc.h"
#include "net/gate.h"
#include "net/net_parts.h"

struct io_thread {
    struct gate gate;
    _Atomic bool asleep;   /* it waits in the kernel, or is about to: to wake it, ring its bell */
    struct net_io io;
    struct net_tick tick;  /* what it has read and parsed, for the main thread's next tick */
    struct conn *queue, *queue_last; /* connections to look at */
    u32 queued;
    struct conn *reports;  /* connections that the main thread has to look at */
    bool worked;           /* since the main thread last looked */
    u32 turns;             /* turns since then that had something for it */
    bool spent;            /* `tick` has nothing that is still needed: its next turn clears it */
    bool wakes_others;     /* that have been called with it */
    bool ends;
    int epoll, bell;       /* `bell`: an eventfd in `epoll` */
    u64 reads, writes;     /* since the start */
    i64 memory;            /* bytes it has allocated minus bytes it has freed */
    struct io_threads *all;
    u32 number;            /* 1 … */
    uv_thread_t id;
};

struct io_threads {
    _Atomic u32 inside;    /* threads inside their gates, or let in and about to enter */
    _Atomic bool wanted;   /* one of them has something for the main thread */
    _Atomic bool rung;     /* the bell has been rung since the main thread last closed the gates */
    struct net *net;
    int epoll, bell;       /* what the main thread sleeps on: the loop's descriptor, and an eventfd */
    uv_idle_t turn;        /* active: the loop does not sleep by itself */
    bool stopped;
    u32 conns_last;        /* connections with requests in the last tick */
    u32 count;
    struct io_thread *of;
};

/* The caller runs on the I/O thread. */
static inline bool io_thread_works(const struct net_io *io) { return io->into != &io->net->tick; }

/* -- on the main thread --------------------------------------------------------------------- */

struct net_io *io_choose(const struct net *n); /* for a new connection */
void io_add(struct conn *c);    /* starts watching its events */
void io_forget(struct conn *c); /* it is being closed */
void io_flush(struct conn *c);  /* as net_flush, at the end of a tick */
void io_retry_output(struct conn *c); /* the main thread has left output unsent that might be sent now */
void io_wait(struct net *n);    /* sleeps until there is something to do, and gathers the threads' requests */
void io_write_here(struct net *n); /* the main thread writes the output that is queued for the threads */
void io_trim(struct net *n);
void io_release(struct net *n);

/* -- on both -------------------------------------------------------------------------------- */

void io_poll(struct conn *c, int events); /* as net_poll */
void io_break(struct conn *c);  /* the main thread has to close it */

#endif
