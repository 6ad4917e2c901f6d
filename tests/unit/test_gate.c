/* Gates: mutual exclusion of the main thread and an I/O thread, without starving either. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rand.h"
#include "net/gate.h"

#define ROUNDS 20000

enum owner { NOBODY, MAIN, THREAD };

/* `owner`, `turns` and `ends` are plain: only the gate keeps the threads apart. */
struct shared {
    struct gate gate;
    enum owner owner;
    u64 turns;
    bool ends, overlapped, dawdles;
};

static void linger(u64 *rng)
{
    if (rand_below(rng, 16) == 0) sched_yield();
    for (volatile u64 i = rand_below(rng, 64); i > 0; i--) continue;
}

static void *thread_run(void *arg)
{
    struct shared *s = arg;
    u64 rng = 7;
    for (bool ends = false; !ends;) {
        gate_enter(&s->gate);
        s->overlapped |= s->owner != NOBODY;
        s->owner = THREAD;
        if (s->dawdles) linger(&rng);
        s->turns++;
        ends = s->ends;
        s->overlapped |= s->owner != THREAD;
        s->owner = NOBODY;
        gate_leave(&s->gate);
        if (s->dawdles) linger(&rng);
    }
    return NULL;
}

static pthread_t begin(struct shared *s)
{
    pthread_t id;
    gate_init(&s->gate);
    assert_int_equal(pthread_create(&id, NULL, thread_run, s), 0);
    return id;
}

static void end(struct shared *s, pthread_t id)
{
    s->ends = true;
    gate_open(&s->gate, false);
    assert_int_equal(pthread_join(id, NULL), 0);
    assert_false(s->overlapped);
}

static void test_one_at_a_time(void **state UNUSED)
{
    struct shared s = {.dawdles = true};
    pthread_t id = begin(&s);
    u64 rng = 3, seen = 0;
    for (int i = 0; i < ROUNDS; i++) {
        s.overlapped |= s.owner != NOBODY;
        s.owner = MAIN;
        linger(&rng);
        assert_true(s.turns >= seen);
        seen = s.turns;
        s.overlapped |= s.owner != MAIN;
        s.owner = NOBODY;
        gate_open(&s.gate, false);
        linger(&rng);
        gate_close(&s.gate);
    }
    assert_false(s.overlapped);
    end(&s, id);
}

static void wait_until_wanted(struct gate *g)
{
    while (atomic_load(&g->state) != GATE_WANTED) sched_yield();
}

/* Invariant 2. The main thread closes at once, as if it had no time to sleep. */
static void test_a_waiting_thread_has_its_turn(void **state UNUSED)
{
    struct shared s = {0};
    pthread_t id = begin(&s);
    for (u64 i = 0; i < ROUNDS / 10; i++) {
        wait_until_wanted(&s.gate);
        u64 before = s.turns;
        assert_int_equal(gate_open(&s.gate, i % 2), GATE_WAY_IN);
        gate_close(&s.gate);
        assert_true(s.turns > before);
    }
    end(&s, id);
}

/* … and so has one that is called, wherever it is. */
static void test_a_called_thread_has_its_turn(void **state UNUSED)
{
    struct shared s = {.dawdles = true};
    pthread_t id = begin(&s);
    for (u64 i = 0; i < ROUNDS / 10; i++) {
        u64 before = s.turns;
        assert_int_not_equal(gate_open(&s.gate, true), GATE_WAY_FREE);
        gate_close(&s.gate);
        assert_true(s.turns > before);
    }
    end(&s, id);
}

/* The other direction: a thread that enters all the time has to stay out when the gate is shut. */
static void test_the_main_thread_has_its_turn(void **state UNUSED)
{
    struct shared s = {0};
    pthread_t id = begin(&s);
    for (int i = 0; i < ROUNDS / 10; i++) {
        gate_open(&s.gate, false);
        gate_close(&s.gate);
        u64 before = s.turns;
        for (int j = 0; j < 3; j++) sched_yield();
        assert_int_equal(s.turns, before);
    }
    end(&s, id);
}

static void test_nobody_there(void **state UNUSED)
{
    struct gate g;
    gate_init(&g);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gate_open(&g, false), GATE_WAY_FREE);
        assert_int_equal(atomic_load(&g.state), GATE_OPEN);
        gate_close(&g);
        assert_int_equal(atomic_load(&g.state), GATE_CLOSED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_a_waiting_thread_has_its_turn),
        cmocka_unit_test(test_a_called_thread_has_its_turn),
        cmocka_unit_test(test_the_main_thread_has_its_turn),
        cmocka_unit_test(test_nobody_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
