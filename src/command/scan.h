/* The options SCAN, HSCAN, SSCAN and ZSCAN share. */
#ifndef MAYFLY_COMMAND_SCAN_H
#define MAYFLY_COMMAND_SCAN_H

#include "base/glob.h"
#include "command/ctx.h"

struct scan_options {
    u64 cursor;
    u32 count; /* default 10 */
    bool has_match;
    bytes match;
    bool has_type; /* SCAN only */
    bytes type;
};

/* Reads the cursor at argv[cursor_at] and the options after it; TYPE is taken
 * only when allow_type. False: an error was replied. */
NODISCARD bool scan_parse(struct ctx *c, int cursor_at, bool allow_type, struct scan_options *out);

static inline bool scan_matches(const struct scan_options *o, bytes name)
{
    return !o->has_match || glob_match(o->match, name, false);
}

#endif
