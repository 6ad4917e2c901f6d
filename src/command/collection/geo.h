/* Shared by the geo commands: parsing points and units, replying coordinates. */
#ifndef MAYFLY_COMMAND_COLLECTION_GEO_H
#define MAYFLY_COMMAND_COLLECTION_GEO_H

#include "command/ctx.h"
#include "command/collection/geohash.h"

/* Longitude and latitude at argv[at]. False: an error was replied. */
NODISCARD bool geo_parse_point(struct ctx *c, int at, struct geo_point *out);

/* m, km, ft or mi, as metres. False: an error was replied. */
NODISCARD bool geo_parse_unit(struct ctx *c, bytes arg, double *metres);

/* The position of a member; false if the set does not have it. */
bool geo_find(struct ctx *c, struct key_ref *ref, bytes member, struct geo_point *out);

void geo_reply_point(struct ctx *c, struct geo_point p);
void geo_reply_distance(struct ctx *c, double distance);

#endif
