/* A list as an array, against which others are held. The test says how long it may get: MODEL_ROOM. */
#ifndef MAYFLY_TESTS_UNIT_LIST_MODEL_H
#define MAYFLY_TESTS_UNIT_LIST_MODEL_H

#include "base/alloc.h"
#include "base/bytes.h"

static void assert_bytes(bytes a, bytes b)
{
    assert_int_equal(a.n, b.n);
    assert_true(bytes_eq(a, b));
}

struct model {
    bytes v[MODEL_ROOM];
    u32 n;
};

static bytes keep(bytes v)
{
    char *p = mem_alloc(v.n);
    if (v.n) memcpy(p, v.p, v.n);
    return bytes_of(p, v.n);
}

static void model_insert(struct model *m, u32 i, bytes v)
{
    memmove(&m->v[i + 1], &m->v[i], (m->n - i) * sizeof m->v[0]);
    m->v[i] = keep(v);
    m->n++;
}

static void model_erase(struct model *m, u32 i, u32 n)
{
    for (u32 k = i; k < i + n; k++) mem_free((char *)m->v[k].p);
    memmove(&m->v[i], &m->v[i + n], (m->n - i - n) * sizeof m->v[0]);
    m->n -= n;
}

#endif
