/* The lines that frame what we write into an AOF (aof.h has the format), and the sums that chain them. */
#ifndef MAYFLY_PERSIST_AOF_BLOCK_H
#define MAYFLY_PERSIST_AOF_BLOCK_H

#include "base/buf.h"

#define AOF_LINE 44 /* every line of ours is as long as this; Redis reads up to 127 */
#define AOF_BLOCK_MAX ((1ULL << 48) - 1) /* what a line can tell of */

/* What a line begins with, behind "#M". */
enum aof_tag {
    AOF_TAG_INCREMENT =
        'I', /* the first line of an increment: its sequence number, the chain before it */
    AOF_TAG_BASE = 'B',  /* the first line of a base of commands: its sequence number, 0 */
    AOF_TAG_BLOCK = 'F', /* a block: the bytes that follow, the chain with them */
};

void aof_line_print(char line[AOF_LINE], enum aof_tag tag, u64 number, u64 chain);

/* False: not, to the letter, such a line. */
NODISCARD bool aof_line_parse(const char line[AOF_LINE], enum aof_tag tag, u64 *number, u64 *chain);

/* What the first block of a file with this first line goes on from. */
u64 aof_chain_start(const char line[AOF_LINE]);

/* The chain after a block of these bytes. */
u64 aof_chain_next(u64 chain, bytes block);
u64 aof_chain_next_parts(u64 chain, const bytes *parts, size_t count); /* of a block in parts */

#endif
