/* The greeting on the cluster bus: bytes in, bytes out, no sockets.
 *
 * Both ends prove that they know the secret before either says anything about the cluster:
 *
 *   challenge   from the acceptor    magic 8 · nonce 32                                            40 bytes
 *   hello       from the connector   magic 8 · purpose 1 · zero 7 · from 40 · to 40 · cluster 8 ·
 *                                    nonce 32 · mac 32                                            168 bytes
 *   welcome     from the acceptor    magic 8 · node 40 · cluster 8 · mac 32                        88 bytes
 *
 * A mac is HMAC-SHA256 under the secret over a label ("connect" or "accept"), both nonces and the message
 * before it, so that none can be replayed, reflected or used for another purpose. A connector without the
 * secret gets a random number and nothing else. The frames after the greeting carry a checksum, not a mac: on
 * a network where others can write into a connection, use TLS. */
#ifndef MAYFLY_CLUSTER_BUS_HELLO_H
#define MAYFLY_CLUSTER_BUS_HELLO_H

#include "base/buf.h"
#include "base/err.h"

#define BUS_NODE_ID 40 /* hexadecimal digits */
#define BUS_NONCE 32
#define BUS_CHALLENGE_SIZE 40
#define BUS_HELLO_SIZE 168
#define BUS_WELCOME_SIZE 88

enum bus_purpose {
    BUS_MESSAGES, /* from the connector to the acceptor, for as long as both live */
    BUS_CALL,     /* one frame each way, then it is closed */
    BUS_BULK,     /* as a call, but for long transfers: it has a connection of its own */
    BUS_PURPOSES
};

struct bus_hello {
    enum bus_purpose purpose;
    char from[BUS_NODE_ID + 1];
    char to[BUS_NODE_ID + 1]; /* "": any node at that address */
    u64 cluster;              /* 0: not in one yet */
};

struct bus_nonces {
    u8 acceptor[BUS_NONCE], connector[BUS_NONCE];
};

/* Each appends its message to `out`. */
void bus_challenge_write(struct buf *out, const struct bus_nonces *n);
void bus_hello_write(struct buf *out, const struct bus_hello *h, const struct bus_nonces *n, bytes secret);
void bus_welcome_write(struct buf *out, const char *node, u64 cluster, const struct bus_nonces *n,
                       bytes secret);

/* Each takes a message of exactly its size. ERR_SYNTAX: it is not one. ERR_TYPE: the mac is wrong: the other
 * side has another secret, and nothing in its message can be trusted. */
NODISCARD err bus_challenge_read(bytes in, struct bus_nonces *n);
NODISCARD err bus_hello_read(bytes in, struct bus_hello *h, struct bus_nonces *n, bytes secret);
NODISCARD err bus_welcome_read(bytes in, char node[BUS_NODE_ID + 1], u64 *cluster,
                               const struct bus_nonces *n, bytes secret);

bool bus_is_node_id(const char *id); /* 40 hexadecimal digits */

#endif
