/* The cache of EVAL's scripts: see script_cache.c. */
#ifndef MAYFLY_SCRIPT_SCRIPT_CACHE_H
#define MAYFLY_SCRIPT_SCRIPT_CACHE_H

#include "script/script.h"

#define SCRIPT_SHA 40 /* hexadecimal digits of a script's name */

void script_sha(bytes source, char sha[SCRIPT_SHA + 1]);

/* Pushes the script of that name (lower case) onto the interpreter's stack; false: it is not cached. */
NODISCARD bool scripts_push(struct scripts *s, const char *sha, u32 *flags);

/* "#!lua flags=a,b": its flags; *source becomes what follows, line break included, so that lines keep their
 * numbers. False: an error was replied. */
NODISCARD bool script_shebang(bytes *source, u32 *flags, struct reply *out);

/* Compiles a script that is not cached, and pushes it likewise; false: an error was replied. `stays`: SCRIPT
 * LOAD brought it, so it is never evicted. Of others, the last SCRIPTS_PASSING are kept. */
#define SCRIPTS_PASSING 500
NODISCARD bool scripts_add(struct scripts *s, const struct ctx *c, bytes source, const char *sha, bool stays,
                           u32 *flags);

#endif
