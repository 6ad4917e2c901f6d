/* What a tick does after its requests, in bounded slices: a slice of the expire cycle, eviction that is not
 * finished, freeing of dropped values; and until when the loop may sleep. */
#ifndef MAYFLY_SERVER_HOUSEKEEPING_H
#define MAYFLY_SERVER_HOUSEKEEPING_H

#include "server/server.h"

void housekeeping_run(struct server *s, bool idle); /* idle: the tick had no requests */
void housekeeping_expire(struct server *s, struct region *r); /* only a slice of its expire cycle */

#endif
