/* Mutual exclusion between the main thread and one I/O thread.
 *
 * The gate is closed while the main thread works, and open while it sleeps. The I/O thread enters only
 * through an open gate, and closing the gate waits until the thread has left. So the data that both use
 * belongs to exactly one of them at any time, and needs no lock.
 *
 *     main thread                         I/O thread
 *     gate_open(&g, false);               gate_enter(&g);    sleeps while the gate is closed
 *     … sleep until something is to do    … read, parse, write
 *     gate_close(&g);                     gate_leave(&g);
 *     … run what was read
 *
 * Invariants:
 *
 *  1. Between gate_close and gate_open the I/O thread is not inside.
 *  2. If the thread waits when the gate is opened, or is called by gate_open, it gets in even if the gate is
 *     closed again at once: closing then waits until it has entered and left. Neither side can starve the
 *     other.
 *  3. Without waiting there are no system calls.
 *
 * One atomic word per gate holds the state. Its changes order memory: each side sees what the other wrote
 * before handing over. */
#ifndef MAYFLY_NET_GATE_H
#define MAYFLY_NET_GATE_H

#include <stdatomic.h>

#include "base/types.h"

enum gate_state {
    GATE_OPEN,    /* the I/O thread is outside and may enter */
    GATE_INSIDE,  /* the I/O thread is inside, or is called and may enter at any time */
    GATE_AWAITED, /* … and the main thread waits for it to leave */
    GATE_CLOSED,
    GATE_WANTED,  /* closed, and the I/O thread waits until it opens */
};

struct gate {
    _Atomic u32 state; /* enum gate_state */
};

void gate_init(struct gate *g); /* closed */

/* For the main thread. gate_open with `calls`: the thread must enter. It may be asleep elsewhere; then the
 * caller wakes it. Returns what the thread does: */
enum gate_way {
    GATE_WAY_FREE,   /* it may enter */
    GATE_WAY_CALLED, /* it must enter */
    GATE_WAY_IN      /* it was waiting, and is inside now */
};
enum gate_way gate_open(struct gate *g, bool calls);
void gate_shut(struct gate *g);  /* the thread can't enter any more … */
void gate_await(struct gate *g); /* … and is not inside any more */
static inline void gate_close(struct gate *g)
{
    gate_shut(g);
    gate_await(g);
}

/* For the I/O thread. gate_enter returns true if the main thread called it or let it in, false if it came by
 * itself. */
bool gate_enter(struct gate *g);
void gate_leave(struct gate *g);
static inline bool gate_is_awaited(struct gate *g) { return atomic_load(&g->state) == GATE_AWAITED; }
bool gate_calls(struct gate *g); /* while it is outside: whether it is called */

#endif
