/* The part of tracking (tracking.h) that works by prefixes: CLIENT TRACKING … BCAST. */
#ifndef MAYFLY_SERVER_CLIENT_TRACKING_BCAST_H
#define MAYFLY_SERVER_CLIENT_TRACKING_BCAST_H

#include "resp/reply.h"
#include "server/client/tracking.h"

/* Writes the invalid keys, as the last part of the message to a client. */
typedef void (*tracking_writer)(struct reply *out, const void *what);
void tracking_tell(struct tracker *t, tracking_writer write, const void *what);

void bcast_init(struct tracking *g, u64 seed);
void bcast_release(struct tracking *g);
void bcast_changed(struct tracking *g, bytes key, u64 by); /* by: client id; 0: none */
void bcast_tell(struct tracking *g);
void bcast_leave(struct tracking *g, struct tracker *t);

#endif
