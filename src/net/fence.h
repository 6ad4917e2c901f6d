/* Fences: output that may not leave a connection yet.
 *
 * A reply may leave the server when what it says is durable. For a lone server that is when the tick has
 * committed, before anything of it is written to a socket. With Raft it is later: when a quorum has the entry
 * that carries the tick's changes, or has confirmed a read. By then further ticks have run. A fence is the
 * thing that output waits for. It is opened during a tick and later passes or fails; several may be open at
 * once, and they end in any order.
 *
 *     struct fence *f = fence_open(n);    in the tick of a region's first request
 *     fence_enforce(n, f);                what is written from here on, to any connection, waits for f
 *     … run the request …
 *     fence_enforce(n, g);                a request of another region, in the same tick
 *     … run it …
 *     fence_enforce(n, NULL);             before the tick ends
 *
 *     fence_pass(f);                      ticks later: the quorum has it
 *     fence_fail(g, "UNCERTAIN …", "MOVED 42 10.0.0.7:6379");   or the leadership is lost
 *
 * The output of a connection is a sequence of bytes, of which the kernel is given a prefix:
 *
 *     | free | segment, fence 7 | segment, fence 9 | segment, no fence | part |
 *     '--> sent                                                        '--> tick_mark
 *
 * What a tick writes to a connection, from tick_mark on, is a *part*. It becomes a *segment* when the fence
 * in force changes, and at the end of the tick. A segment remembers what it waits for, how many bytes it has,
 * which requests it answers and which of those changed data.
 *
 * Invariants:
 *
 *  1. Output leaves in order. No byte of a segment leaves before its fence and those of all segments in front
 *     of it have ended. A segment without a fence waits for those in front of it only.
 *  2. A connection without segments has no `held`: then nothing is looked at, and nothing is free to leave
 *     later. If no fence is open, no connection has a segment with a fence.
 *  3. When a fence fails, each request that a segment answers gets exactly one error in the place of its
 *     reply: the first text if it changed data, the second if not. Messages (pub/sub, invalidations, MONITOR)
 *     in the segment are taken back. A request whose reply was suppressed (CLIENT REPLY) gets nothing.
 *  4. A request that began to wait (conn_block) in a failed segment and still waits is given up: the owner
 *     ends the wait (on_failed), and it gets the error. If it has been answered since, the answer belongs to
 *     a later segment, which has a fence of its own.
 *  5. What failed becomes a segment without a fence: errors leave in order, too.
 *  6. Held bytes count as output: for client-output-buffer-limit, for maxmemory-clients, and for
 *     close_after_reply, which closes a connection when all of it has left. They don't make a client idle.
 *  7. A connection that is closed drops what it holds. The fence does not notice.
 *  8. What is sent to a replica unasked, and its stream (conn_source), has no fence; the stream waits until
 *     the connection has no other output.
 *
 * The tick of a lone server has no struct fence: it passes when the tick ends, and then there is nothing to
 * do. If the commit fails, fence_of_tick makes the fence that would have been in force, to fail it.
 *
 * Lifetimes: a fence belongs to its struct net. fence_pass and fence_fail end it: the pointer is invalid
 * afterwards. They cost O(segments that wait for it). While a request is running they take effect when the
 * tick's requests have run, otherwise at once; what they set free is sent at the end of this tick, or of the
 * next, which follows before the loop sleeps. While a script takes too long (net_serve_busy) nothing is set
 * free.
 *
 * All of this runs on the loop's thread. */
#ifndef MAYFLY_NET_FENCE_H
#define MAYFLY_NET_FENCE_H

#include "net/net.h"

#define SEGMENT_REQUESTS 64

struct segment {
    struct fence *fence;           /* NULL: it waits only for the segments in front of it */
    struct conn *conn;
    struct segment *next;          /* of the connection, in order of output */
    struct segment *before, *after; /* in the list of those that wait for the fence, unordered */
    size_t bytes;
    u64 tick;                      /* the tick that wrote it */
    u64 wrote;                     /* bit i: the i-th request changed data */
    u8 requests;                   /* it answers so many. More than SEGMENT_REQUESTS: see the next segment */
    bool changed;                  /* a request of its part changed data */
    bool waits;                    /* another request was blocked in it (conn_block) */
    u8 marks;                      /* for the owner, from on_segment */
};

/* What a connection holds back: conn.held. */
struct held {
    struct segment *first, *last;
    size_t bytes;         /* of all segments */
    struct fence *part;   /* in force for the output after tick_mark; NULL: none */
    u32 next_request;     /* index in the tick: those before it are in segments already */
};

struct fence {
    struct net *net;
    u64 id;                    /* 1, 2, 3 … in the order they were opened */
    struct fence *prev, *next; /* in net->fences */
    struct segment *segments;  /* segments that wait for it */
    u64 tick;                  /* the tick in which it was last in force */
    enum { FENCE_OPEN, FENCE_PASSED, FENCE_FAILED } state;
    char *wrote, *read;        /* the errors, if it failed; read NULL: see fence_fail */
};

/* A new fence. It is not in force. */
NODISCARD struct fence *fence_open(struct net *n);

/* What is written from now on, to any connection, waits for this fence (NULL: for none). Call it before the
 * request's conn_reply. A turn within a turn (net_serve_busy) begins without a fence. */
static inline void fence_enforce(struct net *n, struct fence *f)
{
    n->tick.fence = f;
    if (f) f->tick = n->tick.number;
}

/* How many requests have replies that wait for it. */
u32 fence_requests(const struct fence *f);

/* The output that waits for it may be sent. */
void fence_pass(struct fence *f);

/* The output that waits for it must not be sent. The texts are errors without "-" and line end, and are
 * copied. read NULL: what a tick wrote to a connection passes if none of its requests changed data; otherwise
 * all of them get `wrote`. */
void fence_fail(struct fence *f, const char *wrote, const char *read);

/* A fence over everything this tick has written without one, to be failed at once. Not while a request is
 * running. */
NODISCARD struct fence *fence_of_tick(struct net *n);

/* The oldest fence that has not ended; f->next is the one after it. */
static inline struct fence *fence_first(const struct net *n) { return n->fences.first; }
u32 fence_segments(const struct fence *f);

#endif
