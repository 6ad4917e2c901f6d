/* Transactions: between MULTI and EXEC a client's commands are checked and queued (region_run does both).
 * EXEC runs them as one command, at one time and with one journal record, unless one was rejected or a
 * watched key has changed.
 *
 * session.tx exists only while its client watches keys or is in MULTI. */
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
    bool open;       /* in MULTI */
    bool spoiled;    /* a command was rejected: EXEC will fail */
    u32 count, cap;
    struct queued **queue;
    i32 slot;        /* of all queued keys; in cluster mode only: exec/route.h */
    bool for_home;   /* a queued command is for the home region: likewise */
    u32 any_flags, all_flags; /* flags that any, that all of the queued commands have */
};

static inline bool multi_open(const struct session *s) { return s->tx && s->tx->open; }
/* Whether EXEC would run the queued commands, as far as can be known in advance. */
static inline bool multi_will_run(const struct session *s) { return multi_open(s) && !s->tx->spoiled; }

/* -- for region_run -------------------------------------------------------------------------- */

/* Whether the client is in MULTI and the command is to be queued, as all but a few are. */
bool multi_takes(const struct session *s, const struct command *cmd);
void multi_queue(const struct region *r, const struct request *q, const struct command *cmd); /* replies */

/* A command was rejected, and its reply is an error: EXEC will fail. EXEC itself is over and
 * answers EXECABORT, unless the error is one of routing, which cluster clients look for. */
void multi_rejected(struct ctx *c);

/* The slot of all queued keys, as route_slot; SLOT_NONE outside MULTI. */
i32 multi_slot(const struct session *s);

/* The flags of EXEC are those of the queued commands; any other command has its own. */
u32 multi_flags(const struct session *s, const struct command *cmd);

/* -- for the server -------------------------------------------------------------------------- */

/* Drops queued commands and watched keys: DISCARD, RESET, a client that disconnects. */
void multi_end(struct session *s);

/* Everything the client sent in this tick was answered by an error: EXEC will fail. If MULTI was part of it,
 * the client is not in a transaction; its watches stay, because it may try again. */
void multi_failed(struct session *s, bool said_multi);

size_t multi_memory(const struct session *s); /* approximate bytes of queue and watches */

#endif
