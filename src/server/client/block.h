/* Clients that wait for keys: BLPOP and its like, XREAD BLOCK. Who waits for what, exec/waiters.h knows;
 * here is when they are served, how long they wait, and what else ends it. */
#ifndef MAYFLY_SERVER_CLIENT_BLOCK_H
#define MAYFLY_SERVER_CLIENT_BLOCK_H

#include <uv.h>

#include "ds/heap.h"
#include "exec/waiters.h"

struct conn;
struct outcome;

struct blocking { /* of the server */
    u32 count;           /* clients that wait */
    struct conn *served; /* whose command is being run again; NULL: nobody's */
    struct heap times;   /* those that do so for a limited time, by its end */
    uv_timer_t timer;
    i64 timer_ms;        /* what it is set to, of the loop's time; 0: it is not */
};

void block_init(struct server *s);
void block_release(struct server *s);

/* What a connection asked for waits for keys (o->waiting is taken over): it is answered later. `usec` is how
 * long the command ran. */
void block_begin(struct server *s, struct conn *c, const struct outcome *o, i64 usec);

/* Serves those whose keys are ready. Between two commands, within a tick. True: somebody was. */
bool block_serve(struct server *s);

/* The command of blocking.served, which is not NULL. */
const struct waiting *block_served(const struct server *s);

/* It is gone, or was answered otherwise. */
void block_forget(struct server *s, struct conn *c);

/* CLIENT UNBLOCK. False: it does not wait for keys. */
bool block_unblock(struct server *s, struct conn *c, bool with_error);

/* The rules of its user have changed: if they no longer allow what it waits for, it is answered by NOPERM. */
void block_recheck(struct server *s, struct conn *c);

/* We are no primary any more: all are told so, and closed. */
void block_refuse_all(struct server *s);

#endif
