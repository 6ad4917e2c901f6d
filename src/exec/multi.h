/* Transactions: between MULTI and EXEC what a client sends is checked and queued (region_run does both);
 * EXEC runs it as one command, at one time and with one journal record, unless something was rejected on the
 * way or a key the client watches has changed.
 *
 * session.tx is there only while its client watches keys or is within MULTI. */
#ifndef MAYFLY_EXEC_MULTI_H
#define MAYFLY_EXEC_MULTI_H

#include "exec/region.h"

struct queued { /* with its arguments and their text in one allocation */
    const struct command *cmd;
    int argc;
    bytes argv[];
};

struct transaction {
    struct watcher watcher;
    bool open;       /* MULTI was said */
    bool spoiled;    /* something was rejected since: EXEC will refuse */
    u32 count, cap;
    struct queued **queue;
    i32 slot;        /* of all queued keys; in cluster mode only: exec/route.h */
    u32 any_flags, all_flags; /* of the queued commands: flags that any, that all of them have */
};

static inline bool multi_open(const struct session *s) { return s->tx && s->tx->open; }

/* -- for region_run -------------------------------------------------------------------------- */

/* Whether the client is within MULTI and the command is one that is queued there, like all but a few. */
bool multi_takes(const struct session *s, const struct command *cmd);
void multi_queue(const struct region *r, const struct request *q, const struct command *cmd); /* replies */

/* The error behind `mark` is the reply to a command that was rejected: EXEC will refuse. EXEC itself is over,
 * and says so, unless the error is one of routing, which cluster clients look for. */
void multi_rejected(struct ctx *c, size_t mark, bool routed_nowhere);

/* The slot of all queued keys, as route_slot; SLOT_NONE outside MULTI. */
i32 multi_slot(const struct session *s);

/* The flags of EXEC are those of all it is about to run; any other command's are its own. */
u32 multi_flags(const struct session *s, const struct command *cmd);

/* -- for the server -------------------------------------------------------------------------- */

/* Forgets what is queued and watched: DISCARD, RESET, a client that goes. */
void multi_end(struct session *s);

/* What the client sent in this tick was answered by an error, whatever it was: EXEC will refuse. If MULTI was
 * among it, the client is not within it; its watches stay, for it may try again. */
void multi_failed(struct session *s, bool said_multi);

size_t multi_memory(const struct session *s); /* bytes of queue and watches, about */

#endif
