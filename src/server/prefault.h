/* Allocates the memory for a very long value before the request runs.
 *
 * A commit copies a value of hundreds of megabytes (engine.caps.value_copies), each time to pages that the
 * process does not have yet. The kernel allocates and clears them one by one, which takes longer than the
 * copying, and all clients wait. So the request is held back first (HOLD_MEMORY), while a worker thread
 * touches as much memory as the copies will need. That memory is freed when the request runs, and the
 * allocator reuses it for the copies.
 *
 * This is done for one request at a time, and others wait, so that there is never more of this memory than
 * one commit needs. */
#ifndef MAYFLY_SERVER_PREFAULT_H
#define MAYFLY_SERVER_PREFAULT_H

#include <uv.h>

#include "net/net.h"

struct server;

#define PREFAULT_MIN (64u << 20) /* bytes of a value: writing a shorter one takes little time */
#define PREFAULT_COPIES 2        /* value_copies is at most this */

struct prefault {
    struct conn *conn; /* whose request it is for, until that has run; NULL: none, or it was closed */
    bool working;      /* on the worker thread */
    uv_work_t work;
    char *memory[PREFAULT_COPIES]; /* NULL: freed */
    size_t each; /* bytes */
};

/* Whether a request whose last argument has PREFAULT_MIN bytes or more has to be held back, because memory is
 * being allocated for it, or for another one. False: it must run now, because its memory has been freed. */
bool prefault_must_wait(struct server *s, const struct net_request *q, const bytes *argv);
/* The connection's request has run, or the connection is closed. */
void prefault_forget(struct server *s, const struct conn *c);

#endif
