/* The lines that frame our data in an AOF (aof.h has the format), and the checksums that chain them. */
#ifndef MAYFLY_PERSIST_AOF_BLOCK_H
#define MAYFLY_PERSIST_AOF_BLOCK_H

#include "base/buf.h"

#define AOF_LINE 44 /* length of our lines; Redis reads up to 127 */
#define AOF_BLOCK_MAX ((1ULL << 48) - 1) /* the most a line can express */

/* Kind of a line: the letter after "#M". */
enum aof_tag {
    AOF_TAG_INCREMENT =
        'I', /* the first line of an increment: its sequence number, the chain before it */
    AOF_TAG_BASE = 'B',  /* the first line of a base of commands: its sequence number, 0 */
    AOF_TAG_BLOCK = 'F', /* a block: the length of the bytes that follow, the chain including them */
};

void aof_line_print(char line[AOF_LINE], enum aof_tag tag, u64 number, u64 chain);

/* False: not exactly such a line. */
NODISCARD bool aof_line_parse(const char line[AOF_LINE], enum aof_tag tag, u64 *number, u64 *chain);

/* The chain that the first block continues, in a file with this first line. */
u64 aof_chain_start(const char line[AOF_LINE]);

/* The chain after a block of these bytes. */
u64 aof_chain_next(u64 chain, bytes block);
u64 aof_chain_next_parts(u64 chain, const bytes *parts, size_t count); /* a block in several parts */

#endif
