/* Shared by the list commands, the blocking ones included. */
#ifndef MAYFLY_COMMAND_COLLECTION_LIST_H
#define MAYFLY_COMMAND_COLLECTION_LIST_H

#include "command/ctx.h"

/* Reads LEFT or RIGHT. False: a syntax error was replied. */
NODISCARD bool list_side(struct ctx *c, bytes arg, bool *front);

/* Takes n elements (1 <= n <= size) off an end and replies each as a bulk,
 * outermost first; reports lpop or rpop, and del if that was all. The caller
 * writes the array header, if any. */
void list_take(struct ctx *c, bytes key, struct key_ref *ref, bool front, u64 n);

/* LMOVE of argv[1] to argv[2], reply included. False: there is nothing to move, and nothing was replied. */
NODISCARD bool list_move(struct ctx *c, bool from_front, bool to_front);

#endif
