/* The cluster bus: authenticated connections between the nodes of a cluster, on the loop of the node.
 *
 * Three purposes (enum bus_purpose), each with connections of its own, so that a long snapshot never delays
 * a heartbeat:
 *
 *   messages  A node keeps one connection to each peer it sends to. bus_send queues a frame; the frames of
 *             one turn of the loop are sent in one write. Nothing blocks: a frame for a peer that can't be
 *             reached, or whose queue is full, is dropped, and bus_send returns false. The protocol above
 *             repeats what matters.
 *   calls     One frame and one reply, on a connection of bus_dial.
 *   bulk      A stream of frames, on a connection of bus_dial. The sender keeps the queue short by sending
 *             when on_drained is called, the receiver by bus_conn_pause.
 *
 * A frame on the wire (integers are little-endian):
 *
 *     u32 crc32c of what follows · u32 length of the body · u8 type · 3 zero bytes · body
 *
 * A frame that is longer than `frame_max`, or whose checksum is wrong, closes its connection, because nothing
 * after it can be trusted. The handshake before the first frame is in bus_hello.h.
 *
 * Lifetimes. A bus_conn is freed after its on_closed has returned. Any callback may close any connection and
 * any peer. The body that on_frame gets is valid during the call. */
#ifndef MAYFLY_CLUSTER_BUS_H
#define MAYFLY_CLUSTER_BUS_H

#include <uv.h>

#include "base/log.h"
#include "cluster/bus_hello.h"
#include "net/tls.h"

struct bus;
struct bus_conn;
struct bus_peer;

/* Callbacks of a connection's user. All but on_frame may be NULL. */
struct bus_conn_ops {
    void (*on_open)(struct bus_conn *); /* both sides have proved themselves; frames may be sent before */
    void (*on_frame)(struct bus_conn *, u8 type, bytes body);
    void (*on_part)(struct bus_conn *);    /* some of a frame has arrived, and some has not */
    void (*on_drained)(struct bus_conn *); /* the kernel has taken everything, and would take more */
    void (*on_closed)(struct bus_conn *, const char *why); /* by either side, also by bus_conn_close */
};

struct bus_options {
    uv_loop_t *loop;
    const struct log *log;
    char node[BUS_NODE_ID + 1];
    u64 cluster;             /* 0: not in one yet; bus_set_cluster */
    bytes secret;            /* borrowed; empty: every node is believed */
    struct tls_context *tls; /* borrowed; NULL: plain TCP. Certificates of both sides are verified. */
    size_t queue_max;        /* bytes that may wait for a peer */
    u32 frame_max;           /* bytes of a frame's body */
    i64 greet_timeout_ms;    /* for connecting and greeting */
    void *owner;
    /* Another node, which has proved that it knows the secret, has connected. Returns the operations and the
     * `user` of its connection. NULL: it is refused, and `why` (a static string) is logged. */
    const struct bus_conn_ops *(*on_accept)(void *owner, const struct bus_hello *h, void **user,
                                            const char **why);
    /* The connection to a peer has become usable, or no longer is. */
    void (*on_peer)(void *owner, struct bus_peer *p, bool up);
    bool late; /* the owner calls bus_flush at the end of each turn of the loop */
};

struct bus_stats {
    u64 frames_in, frames_out, bytes_in, bytes_out;
    u64 dropped; /* frames that bus_send refused */
    u64 refused; /* connections that did not prove themselves, or were not wanted */
};

struct bus *bus_new(const struct bus_options *o);
/* Closes everything; on_closed is called for each connection. The memory is freed when the loop has run the
 * close callbacks. */
void bus_free(struct bus *b);

/* 0, or a negative libuv error. May be called for several addresses. */
NODISCARD int bus_listen(struct bus *b, const char *address, int port);
void bus_set_cluster(struct bus *b, u64 cluster);
/* Sends what is queued now. The bus does it before the loop sleeps, unless its owner runs later than that. */
void bus_flush(struct bus *b);
const struct bus_stats *bus_stats(const struct bus *b);

/* -- peers -------------------------------------------------------------------------------------- */

/* A node to send messages to. The bus connects when the first frame is sent and reconnects by itself. There
 * is at most one peer of a name: adding it again changes its address. */
struct bus_peer *bus_peer_add(struct bus *b, const char *node, const char *host, int port);
void bus_peer_remove(struct bus_peer *p);
const char *bus_peer_node(const struct bus_peer *p);
bool bus_peer_up(const struct bus_peer *p);
size_t bus_peer_queued(const struct bus_peer *p); /* bytes */
/* Its node has received something since the last call, and a lot is still on its way. */
bool bus_peer_moves(struct bus_peer *p);

/* Queues a frame whose body is the two parts, which is sent before the loop sleeps. False: dropped. */
bool bus_send(struct bus_peer *p, u8 type, bytes head, bytes body);

/* The connections for messages that are open, those we made and those other nodes made. */
struct bus_link {
    const char *node;
    bool dialled;   /* we connected */
    i64 since_ms;   /* wall clock */
    size_t queued, buffer; /* bytes that wait to be sent; what is allocated for them */
};
void bus_each_link(const struct bus *b, void (*fn)(void *arg, const struct bus_link *l), void *arg);

/* -- connections -------------------------------------------------------------------------------- */

/* Connects for a call or a bulk transfer. `to`: the expected node, or "". */
struct bus_conn *bus_dial(struct bus *b, const char *host, int port, enum bus_purpose purpose,
                          const char *to, const struct bus_conn_ops *ops, void *user);

void bus_conn_send(struct bus_conn *c, u8 type, bytes head, bytes body); /* queues, without a limit */
size_t bus_conn_queued(const struct bus_conn *c);                        /* bytes not handed to the kernel */
void bus_conn_pause(struct bus_conn *c, bool pause); /* no frames are delivered meanwhile */
void bus_conn_close(struct bus_conn *c, const char *why);
void bus_conn_refuse(struct bus_conn *c, const char *why); /* the same, counted and logged as refused */
void bus_conn_finish(struct bus_conn *c); /* closes it when everything queued is sent */

void *bus_conn_user(const struct bus_conn *c);
struct bus *bus_conn_bus(const struct bus_conn *c);
const char *bus_conn_node(const struct bus_conn *c); /* the other side, once it has proved itself; else "" */
enum bus_purpose bus_conn_purpose(const struct bus_conn *c);

#endif
