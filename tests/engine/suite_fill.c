/* Filling collections: many elements at once, into empty ones and others, in every order; and what
 * comes twice is found. */
#include <stdlib.h>

#include "base/alloc.h"
#include "suite_model.h"

#define FILL_MOST 300

/* Elements on their way. Their texts lie one after the other, in `space`. */
struct filling {
    u32 n, stride;
    struct elem el[FILL_MOST];
    bytes v[2 * FILL_MOST];
    double scores[FILL_MOST];
    struct buf space;
};

static void add_text(struct filling *f, u32 slot, u32 id)
{
    bytes b = text(id);
    f->v[slot].n = b.n;
    buf_append_bytes(&f->space, b);
}

static void lay_out(struct filling *f)
{
    buf_clear(&f->space);
    for (u32 i = 0; i < f->n; i++) {
        add_text(f, i * f->stride, f->el[i].id);
        if (f->stride == 2) add_text(f, i * 2 + 1, f->el[i].value);
        f->scores[i] = f->el[i].score;
    }
    const char *p = f->space.p;
    for (u32 i = 0; i < f->n * f->stride; p += f->v[i++].n) f->v[i].p = p;
}

static bool chosen(const struct filling *f, u32 id)
{
    for (u32 i = 0; i < f->n; i++)
        if (f->el[i].id == id) return true;
    return false;
}

static int by_score(const void *a, const void *b)
{
    const struct elem *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? -1 : 1;
    struct mval m = {.type = TYPE_ZSET, .v = (struct elem *)b, .n = 1};
    return zset_place(&m, x->score, x->id) == 0 ? -1 : 1;
}

/* Elements the value does not have; those of a sorted set in order, the other way round, or in none. */
static void choose(struct filling *f, const struct mval *m, u32 elements, u32 most)
{
    for (u32 tries = 1 + below(most); tries > 0; tries--) {
        struct elem el = {.id = below(elements), .value = m->type == TYPE_HASH ? below(2000) : 0};
        if (m->type == TYPE_ZSET) el.score = below(3) ? below(20) - 5.0 : below(1000) / 7.0;
        if (m->type == TYPE_LIST || (mval_index(m, el.id) == NONE && !chosen(f, el.id))) f->el[f->n++] = el;
    }
    if (m->type != TYPE_ZSET || below(4) == 0) return;
    qsort(f->el, f->n, sizeof f->el[0], by_score);
    if (below(4)) return;
    for (u32 i = 0, k = f->n; i + 1 < k; i++) {
        struct elem t = f->el[i];
        f->el[i] = f->el[--k];
        f->el[k] = t;
    }
}

static u32 fill(struct world *w, struct key_ref *ref, const struct filling *f)
{
    switch (ref->type) {
    case TYPE_LIST: w->ops->seq.fill(w->e, ref, f->v, f->n); return f->n;
    case TYPE_ZSET: return w->ops->zset.fill(w->e, ref, f->v, f->scores, f->n);
    default: return w->ops->map.fill(w->e, ref, f->v, f->n * f->stride);
    }
}

static struct filling *filling_new(const struct mval *m)
{
    struct filling *f = mem_zalloc(sizeof *f);
    f->stride = m->type == TYPE_HASH ? 2 : 1;
    return f;
}

static void filling_free(struct filling *f)
{
    buf_release(&f->space);
    mem_free(f);
}

void fill_value(struct world *w, struct key_ref *ref, struct mval *m, u32 elements)
{
    struct filling *f = filling_new(m);
    choose(f, m, elements, below(4) ? 20 : FILL_MOST);
    lay_out(f);
    assert_int_equal(fill(w, ref, f), f->n * f->stride);
    for (u32 i = 0; i < f->n; i++) {
        struct elem el = f->el[i];
        mval_insert(m, m->type == TYPE_ZSET ? zset_place(m, el.score, el.id) : m->n, el);
    }
    filling_free(f);
}

void fill_twice(struct world *w, struct key_ref *ref, struct mval *m, u32 elements)
{
    struct filling *f = filling_new(m);
    choose(f, m, elements, below(4) ? 20 : FILL_MOST - 1);
    if (f->n == 0) f->el[f->n++].id = m->v[0].id;
    u32 at = below(f->n), inside = below(f->n);
    bool there = at == inside; /* the value has it, or else these have it twice */
    u32 live = 0;
    while (there && live < m->n && !elem_live(&m->v[live], w->now_ms)) live++;
    if (!there || live < m->n) {
        f->el[at].id = there ? m->v[live].id : f->el[inside].id;
        lay_out(f);
        u32 found = fill(w, ref, f);
        assert_true(found == at * f->stride || (!there && found == inside * f->stride));
    }
    filling_free(f);
    drop_key(w, ref, m); /* its content is not specified */
}
