/* Lua 5.1's patterns. */
#ifndef MAYFLY_SCRIPT_LUA_MATCH_H
#define MAYFLY_SCRIPT_LUA_MATCH_H

#include <lua.h>

#include "base/types.h"

#define MATCH_ESCAPE '%'

/* The state of a match. The subject stays on Lua's stack. A pattern ends at its first zero byte, as in Lua
 * 5.1. */
struct match {
    lua_State *L;
    const char *subject, *end;
    u32 captures;               /* begun so far */
    u32 depth, work;            /* depth of calls, and work since the hook was last called */
    struct match_capture {
        const char *at;
        ptrdiff_t n;            /* bytes, or one of the values below */
    } capture[LUA_MAXCAPTURES];
};

#define CAPTURE_OPEN (-1)       /* it has not ended yet */
#define CAPTURE_POSITION (-2)   /* `()`: only the position */

static inline void match_begin(struct match *m, lua_State *L, const char *subject, size_t n)
{
    m->L = L; /* captures are not cleared: this runs for every step of gmatch */
    m->subject = subject;
    m->end = subject + n;
    m->captures = m->depth = m->work = 0;
}

/* Tries the pattern at one position of the subject: returns where the match ends, or NULL. Raises errors of
 * malformed patterns, with Lua's texts. It calls the state's hook from time to time, which may raise others:
 * no pattern, however long it takes, keeps a script from being ended. */
const char *match_at(struct match *m, const char *s, const char *pattern);

/* Pushes one capture; number 0 of a pattern without captures is the whole match, from s to e. */
void match_push_one(struct match *m, u32 number, const char *s, const char *e);

/* Pushes all captures, and returns how many; without any, the whole match, unless s is NULL. */
int match_push_all(struct match *m, const char *s, const char *e);

#endif
