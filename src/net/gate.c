#include "net/gate.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Sleeps while the word has this value; may return early. */
static void gate_sleep(struct gate *g, u32 while_state)
{
    syscall(SYS_futex, &g->state, FUTEX_WAIT_PRIVATE, while_state, NULL, NULL, 0);
}

static void gate_wake(struct gate *g) { syscall(SYS_futex, &g->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

static bool gate_change(struct gate *g, u32 from, u32 to)
{
    return atomic_compare_exchange_strong(&g->state, &from, to);
}

void gate_init(struct gate *g) { atomic_init(&g->state, GATE_CLOSED); }

/* Only the main thread changes GATE_WANTED, so it need not compare again. */
enum gate_way gate_open(struct gate *g, bool calls)
{
    if (LIKELY(gate_change(g, GATE_CLOSED, calls ? GATE_INSIDE : GATE_OPEN)))
        return calls ? GATE_WAY_CALLED : GATE_WAY_FREE;
    atomic_store(&g->state, GATE_INSIDE);
    gate_wake(g);
    return GATE_WAY_IN;
}

/* A loop, because the thread may leave and enter between the two attempts. */
void gate_shut(struct gate *g)
{
    while (!gate_change(g, GATE_OPEN, GATE_CLOSED) && !gate_change(g, GATE_INSIDE, GATE_AWAITED)) {}
}

void gate_await(struct gate *g)
{
    while (atomic_load(&g->state) == GATE_AWAITED) gate_sleep(g, GATE_AWAITED);
}

bool gate_calls(struct gate *g)
{
    u32 state = atomic_load(&g->state);
    return state == GATE_INSIDE || state == GATE_AWAITED;
}

bool gate_enter(struct gate *g)
{
    while (!gate_calls(g)) {
        if (LIKELY(gate_change(g, GATE_OPEN, GATE_INSIDE))) return false;
        if (!gate_change(g, GATE_CLOSED, GATE_WANTED)) continue;
        while (atomic_load(&g->state) == GATE_WANTED) gate_sleep(g, GATE_WANTED);
    }
    return true;
}

void gate_leave(struct gate *g)
{
    if (LIKELY(gate_change(g, GATE_INSIDE, GATE_OPEN))) return;
    atomic_store(&g->state, GATE_CLOSED);
    gate_wake(g);
}
