/* MIGRATE: sends keys to another server.
 *
 * The request is run twice. The first run serializes the keys as RESTORE commands, watches them, and leaves
 * the rest to a migration, while the connection is held back (HOLD_MIGRATE) and other clients are served.
 * When the target has answered, or failed, the request is run again: it deletes the keys that the target has
 * taken and that were not changed meanwhile, and replies. So a write in between is never lost: the key stays
 * then, and the reply says so.
 *
 *   CONNECT → GREET (AUTH, SELECT) → RESTORE → DONE
 *
 * A migration belongs to its connection (conn.migration). Its handles may outlive both runs. */
#ifndef MAYFLY_SERVER_CLIENT_MIGRATE_H
#define MAYFLY_SERVER_CLIENT_MIGRATE_H

#include <uv.h>

#include "base/buf.h"
#include "keyspace/watch.h"

struct conn;
struct server;

#define MIGRATE_ERROR_MAX 512 /* bytes of the target's error that are passed on */

struct migrated_key {
    struct buf name;
    struct watcher watcher;
    bool taken; /* the target replied OK */
};

struct migration {
    struct server *server;
    struct conn *conn; /* NULL: it is gone, and the outcome is not needed */
    enum { MIGRATE_CONNECT, MIGRATE_GREET, MIGRATE_RESTORE, MIGRATE_DONE } stage;
    i64 timeout_ms;    /* without any progress */
    struct buf greeting, commands; /* sent to the target, the second after the first was answered */
    u32 greetings;     /* replies to `greeting` still to come */
    struct migrated_key *keys;
    u32 count, answered;
    bool distrusted;   /* the keys may contain a change that was not kept */
    char error[MIGRATE_ERROR_MAX + 64]; /* "": none */

    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    uv_write_t write;
    struct addrinfo *addresses, *next_address;
    size_t unsent;     /* bytes, when the timer was last set */
    bool received;     /* … and something was received since then */
    struct buf in;
    u32 open;          /* handles and requests that libuv still uses: it is freed with the last */
};

/* `keys` has room for that many; the caller fills in the keys and the buffers before migration_start. */
struct migration *migration_new(struct server *s, u32 keys);

/* Begins to connect; the connection is resumed at the end. False: it can't even try, and `m` is unchanged. */
NODISCARD bool migration_start(struct migration *m, struct conn *c, const char *host, int port);

/* Ends it if it is running, and drops the keys. */
void migration_drop(struct migration *m);

/* The same for the connection's migration, if it has one: the connection is gone, or was answered
 * otherwise. */
void migrate_forget(struct conn *c);

/* A tick was not kept, or this node no longer leads: keys that are being sent must not be deleted. */
void migrate_distrust(struct server *s);

#endif
