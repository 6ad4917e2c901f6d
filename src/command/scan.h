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
    bool no_values; /* HSCAN only */
};

/* False: an error was replied. These are two functions, because HSCAN and the like look the key up in
 * between, as Redis does. `of` is what is walked: TYPE_NONE (the keyspace) accepts TYPE, and TYPE_HASH
 * accepts NOVALUES. */
NODISCARD bool scan_parse_cursor(struct ctx *c, bytes arg, struct scan_options *out);
NODISCARD bool scan_parse_options(struct ctx *c, int from, enum value_type of, struct scan_options *out);

static inline bool scan_matches(const struct scan_options *o, bytes name)
{
    return !o->has_match || glob_match(o->match, name, false);
}

#endif
