/* What the list commands share, the blocking ones included. */
#ifndef MAYFLY_COMMAND_LIST_H
#define MAYFLY_COMMAND_LIST_H

#include "command/ctx.h"

/* Reads LEFT or RIGHT. False: a syntax error was replied. */
NODISCARD bool list_side(struct ctx *c, bytes arg, bool *front);

/* Takes n elements (1 <= n <= size) off an end and replies each as a bulk,
 * outermost first; reports lpop or rpop, and del if that was all. The caller
 * writes the array header, if any. */
void list_take(struct ctx *c, bytes key, struct key_ref *ref, bool front, u64 n);

/* Moves one element between ends of two lists (or of one): `from` is the source
 * as found; the target's type must have been checked. Replies the element. */
void list_move_one(struct ctx *c, bytes from_key, struct key_ref *from, bool from_front,
                   bytes to_key, bool to_front);

#endif
