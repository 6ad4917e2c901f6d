/* Shared by the bitmap commands. Bit 0 is the highest bit of byte 0. */
#ifndef MAYFLY_COMMAND_STRING_BITMAP_H
#define MAYFLY_COMMAND_STRING_BITMAP_H

#include "command/ctx.h"

/* Reads a bit offset. With field_bits > 0, "#n" means n fields of that width.
 * False: "bit offset is not an integer or out of range" was replied. */
NODISCARD bool bitmap_offset(struct ctx *c, bytes arg, u32 field_bits, u64 *offset);

#endif
