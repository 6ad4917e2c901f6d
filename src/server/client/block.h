/* Blocked clients: connections whose command waits for keys (BLPOP and the like, XREAD BLOCK). exec/waiters.h
 * knows which keys each waits for; this module decides when they are served, how long they wait, and what
 * else ends it. */
#ifndef MAYFLY_SERVER_CLIENT_BLOCK_H
#define MAYFLY_SERVER_CLIENT_BLOCK_H

#include <uv.h>

#include "ds/heap.h"
#include "exec/waiters.h"

struct conn;
struct outcome;

struct blocking { /* one per server */
    u32 count;           /* blocked clients */
    struct conn *served; /* its command is being run again; NULL: none is */
    struct heap times;   /* those with a timeout, by its end */
    uv_timer_t timer;
    i64 timer_ms;        /* the loop's time it is set to; 0: it is not set */
};

void block_init(struct server *s);
void block_release(struct server *s);

/* The connection's command waits for keys (o->waiting is taken over): it is answered later. `usec` is how
 * long it ran. */
void block_begin(struct server *s, struct conn *c, const struct outcome *o, i64 usec);

/* Serves clients whose keys are ready. Between two commands, within a tick. True: at least one was served. */
bool block_serve(struct server *s);

/* The command of blocking.served, which is not NULL. */
const struct waiting *block_served(const struct server *s);

/* The connection is gone, or was answered otherwise. */
void block_forget(struct server *s, struct conn *c);

/* CLIENT UNBLOCK. False: it is not blocked. */
bool block_unblock(struct server *s, struct conn *c, bool with_error);

/* Its user's rules have changed: if they no longer allow the command, it is answered with NOPERM. */
void block_recheck(struct server *s, struct conn *c);

/* The server is no longer a primary: answers all with an error and closes them. */
void block_refuse_all(struct server *s);
void block_refuse_region(struct server *s, const struct region *r); /* only those that wait for its keys */
/* Clients that wait for keys of `from` which are in `to` now. */
void block_split(struct server *s, const struct region *from, struct region *to);

#endif
