/* Lua 5.1's patterns. */
#ifndef MAYFLY_SCRIPT_LUA_MATCH_H
#define MAYFLY_SCRIPT_LUA_MATCH_H

#include <lua.h>

#include "base/types.h"

#define MATCH_ESCAPE '%'

/* What is being looked at. The subject stays on Lua's stack. A pattern ends at its first zero byte, as in
 * Lua 5.1. */
struct match {
    lua_State *L;
    const char *subject, *end;
    u32 captures;               /* how many the pattern has begun so far */
    u32 depth, work;            /* calls within one another, and what was done since the hook was called */
    struct match_capture {
        const char *at;
        ptrdiff_t n;            /* bytes, or one of those below */
    } capture[LUA_MAXCAPTURES];
};

#define CAPTURE_OPEN (-1)       /* it has not ended yet */
#define CAPTURE_POSITION (-2)   /* `()`: just where it is */

static inline void match_begin(struct match *m, lua_State *L, const char *subject, size_t n)
{
    m->L = L; /* the captures are left as they are: this is done for every step of gmatch */
    m->subject = subject;
    m->end = subject + n;
    m->captures = m->depth = m->work = 0;
}

/* Tries the pattern at one place of the subject: where the match ends, or NULL. Raises errors of malformed
 * patterns, with Lua's texts. It calls the state's hook once in a while, which may raise others: no pattern,
 * however long it takes, keeps a script from being ended. */
const char *match_at(struct match *m, const char *s, const char *pattern);

/* Pushes one capture; number 0 of a pattern without any is the whole match, from s to e. */
void match_push_one(struct match *m, u32 number, const char *s, const char *e);

/* Pushes all captures, and returns how many; without any, the whole match, unless s is NULL. */
int match_push_all(struct match *m, const char *s, const char *e);

#endif
