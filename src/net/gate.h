/* The hand-over between the main thread and one I/O thread: who may touch what both of them use.
 *
 * The gate is closed while the main thread works, and open while it sleeps. The I/O thread passes only
 * through an open gate, and the main thread closes it only behind a thread that has left: so at each moment
 * what is behind the gate belongs to exactly one of the two, and nothing there needs a lock.
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
 *  2. A thread that waits when the gate is opened, or that is called, is let in by that, however soon the
 *     gate is closed again, which then takes until it has come and left. Neither side can keep the other out.
 *  3. If nobody has to wait, nothing is a system call.
 *
 * One word per gate holds all of it. Its changes order memory: what one side wrote before handing over, the
 * other sees. */
#ifndef MAYFLY_NET_GATE_H
#define MAYFLY_NET_GATE_H

#include <stdatomic.h>

#include "base/types.h"

enum gate_state {
    GATE_OPEN,    /* nobody is inside */
    GATE_INSIDE,  /* the I/O thread is, or may come at any time */
    GATE_AWAITED, /* … and the main thread waits for it to leave */
    GATE_CLOSED,
    GATE_WANTED,  /* closed, and the I/O thread waits for it to open */
};

struct gate {
    _Atomic u32 state; /* enum gate_state */
};

void gate_init(struct gate *g); /* closed */

/* The main thread. Open; calls: the thread has to come. It may be asleep somewhere else, and the caller wakes
 * it if so. */
enum gate_way {
    GATE_WAY_FREE,   /* it may come */
    GATE_WAY_CALLED, /* it has to come … */
    GATE_WAY_IN      /* it waited, and is inside now */
};
enum gate_way gate_open(struct gate *g, bool calls);
void gate_shut(struct gate *g);  /* lets nobody in any more … */
void gate_await(struct gate *g); /* … and waits until nobody is inside */
static inline void gate_close(struct gate *g)
{
    gate_shut(g);
    gate_await(g);
}

/* The I/O thread. Enter: true if the main thread called it or let it in, false if it came by itself. */
bool gate_enter(struct gate *g);
void gate_leave(struct gate *g);
static inline bool gate_is_awaited(struct gate *g) { return atomic_load(&g->state) == GATE_AWAITED; }
bool gate_calls(struct gate *g); /* while it is outside: whether it has been called */

#endif
