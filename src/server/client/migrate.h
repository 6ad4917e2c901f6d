/* MIGRATE: keys on their way to another server.
 *
 * The request is run twice. The first run writes the keys down as RESTORE commands, watches them, and leaves
 * the rest to a migration, while the connection is held (HOLD_MIGRATE) and everybody else is served. When the
 * target has answered, or does not, the request is run again: it deletes those keys that the target has taken
 * and that nobody has changed meanwhile, and replies. So a write that comes in between is never lost: the key
 * stays then, and the reply says so.
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

#define MIGRATE_ERROR_MAX 512 /* bytes of an error of the target that are passed on */

struct migrated_key {
    struct buf name;
    struct watcher watcher;
    bool taken; /* the target has said OK */
};

struct migration {
    struct server *server;
    struct conn *conn; /* NULL: it is gone, and nobody wants the outcome */
    enum { MIGRATE_CONNECT, MIGRATE_GREET, MIGRATE_RESTORE, MIGRATE_DONE } stage;
    i64 timeout_ms;    /* without any progress */
    struct buf greeting, commands; /* what the target is sent, one after the other answer */
    u32 greetings;     /* answers to `greeting` that are yet to come */
    struct migrated_key *keys;
    u32 count, answered;
    bool distrusted;   /* what was sent may be a change that was not kept */
    char error[MIGRATE_ERROR_MAX + 64]; /* "": none */

    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    uv_write_t write;
    struct addrinfo *addresses, *next_address;
    size_t unsent;     /* bytes, when the timer was last set */
    bool heard;        /* … and since then something has come */
    struct buf in;
    u32 open;          /* handles and requests that libuv still knows: it is freed with the last */
};

/* `keys` has room for so many; the caller fills them in, and what is to be sent, before migration_start. */
struct migration *migration_new(struct server *s, u32 keys);

/* Begins to connect; the connection is resumed at the end. False: it can't even try, and `m` is as it was. */
NODISCARD bool migration_start(struct migration *m, struct conn *c, const char *host, int port);

/* Ends it if it still runs, and forgets the keys. */
void migration_drop(struct migration *m);

/* The same for the connection's, if it has one: it is gone, or was answered otherwise. */
void migrate_forget(struct conn *c);

/* A tick was not kept: keys that are on their way are not to be deleted. */
void migrate_distrust(struct server *s);

#endif
