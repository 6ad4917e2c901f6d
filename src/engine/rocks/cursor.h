/* Cursors of the SCAN family over what is stored in an order.
 *
 * A walk in the order of the names goes on after the last name it gave; the cursor is that
 * name's fingerprint, the same after every restart. Which name a cursor
 * stands for is remembered for the latest few hundred cursors, so that going on is one seek;
 * for a cursor that is not remembered (a restart, many scans at a time) the walk looks for the
 * name from the start, once, and if the name has gone meanwhile it starts over: names may come
 * twice, but none that was there all the time is left out.
 *
 * The scope tells walks apart that give the same names: a collection's version; for keys,
 * something no version is (a database's index). */
#ifndef MAYFLY_ENGINE_ROCKS_CURSOR_H
#define MAYFLY_ENGINE_ROCKS_CURSOR_H

#include "base/buf.h"

struct rk;
struct row;
struct walk;

/* What is remembered; a zeroed struct is empty. */
struct cursors {
    struct cursor_hint *hints;
    u64 clock;
};

void cursors_release(struct cursors *c);

/* The cursor that says "after this name": never 0, and below 10^14, because there are clients that take
 * it for a floating-point number, and Lua writes such a number with 14 digits. */
#define CURSOR_BITS 46
u64 cursor_of(bytes name);

/* Remembers that this cursor was given for this name, which is copied; very long ones are not. */
void cursor_remember(struct cursors *c, u64 scope, u64 cursor, bytes name);

/* The name it stands for, or false. The name lives until the next cursor_remember. */
bool cursor_recall(struct cursors *c, u64 scope, u64 cursor, bytes *name);

/* SCAN over a collection's elements, whose sub is the member's name: HSCAN, SSCAN, ZSCAN. Gives
 * about `count` elements, or all that there are in a collection of up to `whole`, and returns the
 * next cursor, 0 after the last. `see` gets the walk that stands on the element, and must not
 * move it; it returns whether the element counts (false: it is hidden). */
typedef bool (*cursor_see)(void *arg, struct walk *at);
u64 cursor_scan(struct rk *rk, struct row *r, u64 cursor, u32 count, u64 whole, cursor_see see, void *arg);

#endif
