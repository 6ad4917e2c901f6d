/* Cursors of the SCAN family over ordered data.
 *
 * A walk in the order of names continues after the last name it returned; the cursor is that
 * name's fingerprint, which a restart does not change. The names of the latest few hundred
 * cursors are cached, so that continuing is one seek. For any other cursor (a restart, many
 * scans at a time) the walk searches for the name from the start, once; if the name was deleted
 * it starts over. Names may be returned twice, but none that exists all the time is missed.
 *
 * The scope distinguishes walks over the same names: a collection's version; for keys, a
 * database's index, which is never a version. */
#ifndef MAYFLY_ENGINE_ROCKS_CURSOR_H
#define MAYFLY_ENGINE_ROCKS_CURSOR_H

#include "base/buf.h"

struct rk;
struct row;
struct walk;

/* The cache; a zeroed struct is empty. */
struct cursors {
    struct cursor_hint *hints;
    u64 clock;
};

void cursors_release(struct cursors *c);

/* The cursor that says "after this name": never 0, and below 10^14, because some clients parse it
 * as a floating-point number, and Lua writes such a number with 14 digits. */
#define CURSOR_BITS 46
u64 cursor_of(bytes name);

/* Caches the name of a cursor; the name is copied. Very long names are not cached. */
void cursor_remember(struct cursors *c, u64 scope, u64 cursor, bytes name);

/* The name it stands for, or false. The name lives until the next cursor_remember. */
bool cursor_recall(struct cursors *c, u64 scope, u64 cursor, bytes *name);

/* SCAN over a collection's elements, whose sub is the member's name: HSCAN, SSCAN, ZSCAN. Visits
 * about `count` elements, or all elements of a collection of up to `whole`, and returns the next
 * cursor, 0 after the last. `see` gets the walk at the element, and must not move it; it returns
 * whether the element counts (false: it is hidden). */
typedef bool (*cursor_see)(void *arg, struct walk *at);
u64 cursor_scan(struct rk *rk, struct row *r, u64 cursor, u32 count, u64 whole, cursor_see see, void *arg);

#endif
