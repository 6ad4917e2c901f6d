/* The work of a tick after its requests, in bounded slices: the expire cycle, unfinished eviction, freeing of
 * dropped values. It also decides how long the loop may sleep. */
#ifndef MAYFLY_SERVER_HOUSEKEEPING_H
#define MAYFLY_SERVER_HOUSEKEEPING_H

#include "server/server.h"

void housekeeping_run(struct server *s, bool idle); /* idle: the tick had no requests */
void housekeeping_expire(struct server *s, struct region *r); /* only a slice of its expire cycle */

#endif
