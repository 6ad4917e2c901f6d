/* One engine at a time in a folder that survives reopening: for tests of durability. */
#ifndef MAYFLY_TESTS_UNIT_ROCKS_FOLDER_H
#define MAYFLY_TESTS_UNIT_ROCKS_FOLDER_H

#include "unit/rocks_helpers.h"

#define NOW 1700000000000

static char path[256];
static struct engine *e;

static int setup(void **state)
{
    (void)state;
    return folder_make(path, sizeof path, "rocks") ? 0 : -1;
}

static void close_engine(void)
{
    if (e) e->ops->close(e);
    e = NULL;
}

static int teardown(void **state)
{
    (void)state;
    close_engine();
    folder_remove(path);
    return 0;
}

static void open_engine(u32 databases)
{
    struct rocks_options o = rocks_small(path, databases);
    close_engine();
    e = rocks_must_open(&o);
    e->ops->begin(e, NOW);
}

static inline void expect_refusal(u32 databases, const char *says)
{
    struct rocks_options o = rocks_small(path, databases);
    close_engine();
    rocks_must_refuse(&o, says);
}

static void tick(i64 now_ms)
{
    assert_true(e->ops->commit(e, e->applied + 1));
    e->ops->begin(e, now_ms);
}

#endif
