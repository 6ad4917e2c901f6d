/* The heap against a plain array that is searched. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rand.h"
#include "ds/heap.h"

#define NODES 500

static struct heap_node node[NODES];
static bool there[NODES];

static struct heap_node *smallest(void)
{
    struct heap_node *best = NULL;
    for (u32 i = 0; i < NODES; i++) {
        struct heap_node *n = &node[i];
        if (there[i] && (!best || n->key < best->key || (n->key == best->key && n->tie < best->tie))) best = n;
    }
    return best;
}

static void test_random(void **state UNUSED)
{
    struct heap h = {0};
    u64 rng = 11;
    u32 count = 0;
    for (u32 step = 0; step < 60000; step++) {
        u32 i = (u32)rand_below(&rng, NODES);
        if (there[i]) {
            heap_remove(&h, &node[i]);
            count--;
        } else {
            node[i].key = (i64)rand_below(&rng, 60) - 30; /* many are equal */
            node[i].tie = i;
            heap_add(&h, &node[i]);
            count++;
        }
        there[i] = !there[i];
        assert_int_equal(h.n, count);
        assert_ptr_equal(heap_first(&h), smallest());
    }
    for (struct heap_node *last = NULL, *n; (n = heap_first(&h)); last = n) {
        assert_true(!last || last->key < n->key || (last->key == n->key && last->tie < n->tie));
        heap_remove(&h, n);
    }
    heap_release(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
