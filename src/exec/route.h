/* Which region a request runs in. On a lone server that is its only region, and no slot is computed. In
 * cluster mode (node.cluster_enabled) the request's keys decide, by the rules of Redis Cluster:
 *
 *   1. All keys of a request are in one slot, else it is refused with CROSSSLOT. It runs in the region that
 *      has the slot; if no region of this node has it, it is refused, too, and node.elsewhere says where to
 *      ask.
 *   2. A request without keys runs in the node's first region.
 *   3. Each command within MULTI is checked by itself when it is queued. EXEC has the slot of all queued keys
 *      together: keys of several slots are refused then, and nothing runs. Keys that are watched may be in
 *      any slot: each is watched in its own region.
 *   4. A script has the slot of the keys it declares. A command that it calls may use keys of that slot only.
 *      A script that declares none gets the slot of the first key it uses, which must be in the region it
 *      runs in. The flag allow-cross-slot-keys permits other slots of the same region.
 *   5. With cross_slots, which only tests set, there is one region with all slots, and rules 1, 3 and 4
 *      refuse nothing: what works on a lone server can be tried unchanged.
 *
 * server/tick.c runs clients' requests in the region that route_request finds. */
#ifndef MAYFLY_EXEC_ROUTE_H
#define MAYFLY_EXEC_ROUTE_H

#include "exec/region.h"

#define ROUTE_CROSSSLOT "CROSSSLOT Keys in request don't hash to the same slot"
#define ROUTE_UNSERVED "CLUSTERDOWN Hash slot not served"

/* Values of request.slot that are not slots. */
enum { SLOT_NONE = -1, SLOT_CROSS = -2, SLOT_UNSERVED = -3 };

/* The slot of a resolved command's keys or shard channels; SLOT_NONE: it has none; SLOT_CROSS: they are in
 * several. */
i32 route_slot(const struct command *cmd, int argc, const bytes *argv);

/* It changes functions, which are everywhere: in cluster mode it runs in the node's home region
 * (exec/region_map.h). */
bool route_is_for_home(const struct command *cmd);

/* The slot of two requests that run together: either may be SLOT_NONE. */
i32 route_join(i32 a, i32 b);

/* Sets q->slot; returns the region the request runs in, even if it will be refused there (admit). Cluster
 * mode only. */
struct region *route_request(struct node *n, struct request *q);

/* For a command that a script calls; *slot is the script's so far. NULL: it may use its keys; else the text
 * of an error. Cluster mode only. */
const char *route_script_call(const struct region *r, i32 *slot, bool any_slot, const struct command *cmd,
                              int argc, const bytes *argv);

#endif
