/* Matching as in Lua 5.1, by backtracking: a repeated item takes as much as it can (for '-', as little), and
 * the rest of the pattern is tried after it by a nested call of match_at. So the depth of calls is bounded by
 * the number of repeats in a pattern, and by DEPTH_MAX. The cost may grow exponentially with them; every byte
 * examined counts as work, and after WORK_MAX of it the hook is called. */
#include "script/lua_match.h"

#include <ctype.h>
#include <lauxlib.h>
#include <string.h>

#include "script/lua_libs.h"

#define DEPTH_MAX 4096
#define WORK_MAX 65536

static u8 byte_at(const char *p) { return (u8)*p; }

static inline void match_spend(struct match *m, size_t bytes)
{
    if (LIKELY(bytes < WORK_MAX - m->work)) {
        m->work += (u32)bytes;
        return;
    }
    m->work = 0;
    lua_work_hook(m->L);
}

/* -- single characters --------------------------------------------------------------------------- */

/* The end of the item that begins at p: one character, an escaped one, or a set. */
static const char *item_end(struct match *m, const char *p)
{
    const char *first = p++;
    if (*first == MATCH_ESCAPE) {
        if (!*p) luaL_error(m->L, "malformed pattern (ends with '%%')");
        return p + 1;
    }
    if (*first != '[') return p;
    if (*p == '^') p++;
    do { /* a ']' that comes first belongs to the set */
        if (!*p) luaL_error(m->L, "malformed pattern (missing ']')");
        if (*p++ == MATCH_ESCAPE && *p) p++;
    } while (*p != ']');
    match_spend(m, (size_t)(p - first));
    return p + 1;
}

static inline bool in_class(u8 c, u8 class)
{
    bool in;
    switch (tolower(class)) {
    case 'a': in = isalpha(c); break;
    case 'c': in = iscntrl(c); break;
    case 'd': in = isdigit(c); break;
    case 'l': in = islower(c); break;
    case 'p': in = ispunct(c); break;
    case 's': in = isspace(c); break;
    case 'u': in = isupper(c); break;
    case 'w': in = isalnum(c); break;
    case 'x': in = isxdigit(c); break;
    case 'z': in = c == 0; break;
    default: return c == class;
    }
    return isupper(class) ? !in : in;
}

/* The set's '[' is at p, its ']' at close. */
static bool in_set(struct match *m, u8 c, const char *p, const char *close)
{
    bool in = p[1] != '^';
    match_spend(m, (size_t)(close - p));
    if (!in) p++;
    while (++p < close) {
        if (*p == MATCH_ESCAPE) {
            if (in_class(c, byte_at(++p))) return in;
        } else if (p[1] == '-' && p + 2 < close) {
            p += 2;
            if (byte_at(p - 2) <= c && c <= byte_at(p)) return in;
        } else if (byte_at(p) == c) {
            return in;
        }
    }
    return !in;
}

/* Whether there is a character at s that matches the item from p to end. */
static inline bool match_item(struct match *m, const char *s, const char *p, const char *end)
{
    if (s >= m->end) return false;
    if (UNLIKELY(++m->work >= WORK_MAX)) match_spend(m, WORK_MAX);
    switch (*p) {
    case '.': return true;
    case MATCH_ESCAPE: return in_class(byte_at(s), byte_at(p + 1));
    case '[': return in_set(m, byte_at(s), p, end - 1);
    default: return *p == *s;
    }
}

/* -- longer items ---------------------------------------------------------------------------------- */

/* %bxy, from its x on: up to the y that balances an x at s. */
static const char *match_balance(struct match *m, const char *s, const char *p)
{
    if (!p[0] || !p[1]) luaL_error(m->L, "unbalanced pattern");
    if (s >= m->end || *s != *p) return NULL;
    for (size_t open = 1; ++s < m->end;) {
        match_spend(m, 1);
        if (*s == p[1]) {
            if (--open == 0) return s + 1;
        } else if (*s == p[0]) {
            open++;
        }
    }
    return NULL;
}

/* %f[set], from its '[' on: whether the character at s is in the set and the one before is not. */
static bool match_frontier(struct match *m, const char *s, const char *set, const char *end)
{
    u8 before = s == m->subject ? 0 : byte_at(s - 1), here = s < m->end ? byte_at(s) : 0;
    return !in_set(m, before, set, end - 1) && in_set(m, here, set, end - 1);
}

/* %1 to %9: the same text again. */
static const char *match_again(struct match *m, const char *s, char digit)
{
    int number = digit - '1';
    if (number < 0 || number >= (int)m->captures || m->capture[number].n == CAPTURE_OPEN)
        luaL_error(m->L, "invalid capture index");
    const struct match_capture *c = &m->capture[number];
    if (c->n < 0 || m->end - s < c->n) return NULL;
    match_spend(m, (size_t)c->n);
    return memcmp(c->at, s, (size_t)c->n) == 0 ? s + c->n : NULL;
}

/* As many as possible, then fewer. */
static const char *match_most(struct match *m, const char *s, const char *p, const char *end)
{
    const char *last = s, *found = NULL;
    while (match_item(m, last, p, end)) last++;
    for (; !found && last >= s; last--) found = match_at(m, last, end + 1);
    return found;
}

static const char *match_fewest(struct match *m, const char *s, const char *p, const char *end)
{
    for (;; s++) {
        const char *found = match_at(m, s, end + 1);
        if (found || !match_item(m, s, p, end)) return found;
    }
}

/* -- captures -------------------------------------------------------------------------------------- */

static const char *open_capture(struct match *m, const char *s, const char *p, ptrdiff_t what)
{
    if (m->captures >= LUA_MAXCAPTURES) luaL_error(m->L, "too many captures");
    m->capture[m->captures++] = (struct match_capture){s, what};
    const char *found = match_at(m, s, p);
    if (!found) m->captures--;
    return found;
}

static const char *close_capture(struct match *m, const char *s, const char *p)
{
    u32 at = m->captures;
    while (at > 0 && m->capture[at - 1].n != CAPTURE_OPEN) at--;
    if (at == 0) luaL_error(m->L, "invalid pattern capture");
    struct match_capture *c = &m->capture[at - 1];
    c->n = s - c->at;
    const char *found = match_at(m, s, p);
    if (!found) c->n = CAPTURE_OPEN;
    return found;
}

void match_push_one(struct match *m, u32 number, const char *s, const char *e)
{
    const struct match_capture *c = &m->capture[number];
    if (number >= m->captures) {
        if (number > 0) luaL_error(m->L, "invalid capture index");
        lua_pushlstring(m->L, s, (size_t)(e - s));
    } else if (c->n == CAPTURE_OPEN) {
        luaL_error(m->L, "unfinished capture");
    } else if (c->n == CAPTURE_POSITION) {
        lua_pushinteger(m->L, c->at - m->subject + 1);
    } else {
        lua_pushlstring(m->L, c->at, (size_t)c->n);
    }
}

int match_push_all(struct match *m, const char *s, const char *e)
{
    u32 n = m->captures == 0 && s ? 1 : m->captures;
    luaL_checkstack(m->L, (int)n, "too many captures");
    for (u32 i = 0; i < n; i++) match_push_one(m, i, s, e);
    return (int)n;
}

/* -- a pattern ------------------------------------------------------------------------------------- */

/* One item that is a character, and its repeat. False: *s is where the rest of the pattern ends, or NULL.
 * True: *s and *p have moved. */
static inline bool match_repeated(struct match *m, const char **s, const char **p)
{
    const char *item = *p, *end = item_end(m, item), *found = NULL;
    switch (*end) {
    case '*': *s = match_most(m, *s, item, end); return false;
    case '-': *s = match_fewest(m, *s, item, end); return false;
    case '+': *s = match_item(m, *s, item, end) ? match_most(m, *s + 1, item, end) : NULL; return false;
    case '?':
        if (match_item(m, *s, item, end)) found = match_at(m, *s + 1, end + 1);
        if (found) *s = found;
        *p = end + 1;
        return !found;
    default:
        *s = match_item(m, *s, item, end) ? *s + 1 : NULL;
        *p = end;
        return *s != NULL;
    }
}

/* The same for an item that begins with '%'. */
static bool match_escaped(struct match *m, const char **s, const char **p)
{
    const char *item = *p, *end;
    if (item[1] == 'b') {
        *s = match_balance(m, *s, item + 2);
        *p = item + 4;
    } else if (item[1] == 'f') {
        if (item[2] != '[') luaL_error(m->L, "missing '[' after '%%f' in pattern");
        end = item_end(m, item + 2);
        if (!match_frontier(m, *s, item + 2, end)) *s = NULL;
        *p = end;
    } else if (isdigit(byte_at(item + 1))) {
        *s = match_again(m, *s, item[1]);
        *p = item + 2;
    } else {
        return match_repeated(m, s, p);
    }
    return *s != NULL;
}

static const char *match_rest(struct match *m, const char *s, const char *p)
{
    for (bool more = true; more;) {
        switch (*p) {
        case '\0': return s;
        case '(':
            if (p[1] == ')') return open_capture(m, s, p + 2, CAPTURE_POSITION);
            return open_capture(m, s, p + 1, CAPTURE_OPEN);
        case ')': return close_capture(m, s, p + 1);
        case '$':
            if (!p[1]) return s == m->end ? s : NULL;
            more = match_repeated(m, &s, &p);
            break;
        case MATCH_ESCAPE: more = match_escaped(m, &s, &p); break;
        default: more = match_repeated(m, &s, &p);
        }
    }
    return s;
}

const char *match_at(struct match *m, const char *s, const char *p)
{
    if (++m->depth > DEPTH_MAX) luaL_error(m->L, "pattern too complex");
    match_spend(m, 1);
    s = match_rest(m, s, p);
    m->depth--;
    return s;
}
