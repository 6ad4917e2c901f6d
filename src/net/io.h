/* I/O threads: reading, parsing and writing connections on several cores (io-threads; decision 027).
 *
 * With `io-threads N`, N - 1 threads have the clients' connections, each about as many as the others. A
 * thread sleeps until one of its connections can be read or written, works on all that are ready, and calls
 * the main thread if there are requests for it. The main thread runs the requests of all threads as one tick,
 * and leaves the replies to the threads. Commands, listeners, replicas' streams, links to other servers and
 * everything else stay on the main thread.
 *
 * A gate per thread (gate.h) says whose turn it is:
 *
 *     I/O thread     sleeps │ enters, reads, parses │ leaves, calls │            │ enters, writes … │
 *     main thread    sleeps in io_wait                              │ runs the   │ sleeps in io_wait
 *     gate           open                                           │ tick       │ open
 *
 * Invariants:
 *
 *  1. While the main thread works all gates are closed. It may touch every connection, as if there were no
 *     threads.
 *  2. While the gates are open the main thread sleeps, and its tick is empty.
 *  3. Behind its gate a thread touches its own connections, its io_thread, and what nobody changes meanwhile.
 *     It calls nobody outside of src/net but the allocator, the parser and TLS. What only the main thread may
 *     do (close a connection, call the owner) it reports.
 *  4. A connection keeps its thread. Its buffers come from the thread's pools.
 *  5. The kernel reports what happens to a connection once (EPOLLET), whatever it waits for; `seen` keeps
 *     what has been reported until somebody makes use of it. */
#ifndef MAYFLY_NET_IO_H
#define MAYFLY_NET_IO_H

#include "base/alloc.h"
#include "net/gate.h"
#include "net/net_parts.h"

struct io_thread {
    struct gate gate;
    _Atomic bool asleep;   /* it is about to wait for the kernel, and its bell has to be rung */
    struct net_io io;
    struct net_tick tick;  /* what it has read and parsed, for the main thread's next tick */
    struct conn *queue, *queue_last; /* connections to look at */
    u32 queued;
    struct conn *reports;  /* connections that the main thread has to look at */
    bool worked;           /* since the main thread last looked */
    u32 turns;             /* turns since then that had something for it */
    bool spent;            /* `tick` has nothing that is still needed: its next turn clears it */
    bool ends;
    int epoll, bell;       /* `bell`: an eventfd in `epoll` */
    u64 reads, writes;     /* since the start */
    i64 memory;            /* it has allocated less what it has freed */
    struct io_threads *all;
    u32 number;            /* 1 … */
    uv_thread_t id;
};

struct io_threads {
    _Atomic u32 inside;    /* threads behind their gates or on their way there, as the gates say */
    _Atomic bool wanted;   /* one of them has something for the main thread … */
    _Atomic bool rung;     /* … which has been called and has not come yet */
    struct net *net;
    int epoll, bell;       /* what the main thread sleeps on: the loop's descriptor, and an eventfd */
    uv_idle_t turn;        /* active: the loop does not sleep by itself */
    bool stopped;
    u32 conns_last;        /* connections that had a part in the last tick */
    u32 count;
    struct io_thread *of;
};

/* The thread has its turn: the caller runs on it. */
static inline bool io_thread_works(const struct net_io *io) { return io->into != &io->net->tick; }

/* -- on the main thread --------------------------------------------------------------------- */

struct net_io *io_choose(const struct net *n); /* for a new connection */
void io_add(struct conn *c);    /* from now on its events are seen */
void io_forget(struct conn *c); /* it is being closed */
void io_flush(struct conn *c);  /* as net_flush, at the end of a tick */
void io_retry_output(struct conn *c); /* the main thread has left output unsent that might be sent now */
void io_wait(struct net *n);    /* sleeps until there is something to do, and gathers what the threads have */
void io_write_here(struct net *n); /* the main thread writes what is left for the threads */
void io_trim(struct net *n);
void io_release(struct net *n);

/* -- on both -------------------------------------------------------------------------------- */

void io_poll(struct conn *c, int events); /* as net_poll */
void io_break(struct conn *c);  /* the main thread has to close it */

#endif
