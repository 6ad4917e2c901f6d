/* Temporary lists of (member, score) pairs: growing, sorting, replying, storing. */
#include "command/collection/zset_list.h"

#include "base/alloc.h"
#include "base/sort.h"
#include "command/collection/zset.h"

void zlist_release(struct zlist *l)
{
    mem_free(l->v);
    *l = (struct zlist){0};
}

void zlist_reserve(struct zlist *l, size_t cap)
{
    if (cap <= l->cap) return;
    l->v = mem_realloc(l->v, cap * sizeof(*l->v));
    l->cap = cap;
}

struct zpair *zlist_add(struct zlist *l, bytes member, double score)
{
    if (l->n == l->cap) zlist_reserve(l, l->cap ? l->cap * 2 : 16);
    struct zpair *p = &l->v[l->n++];
    *p = (struct zpair){member, score};
    return p;
}

static int compare_pairs(const void *x, const void *y)
{
    const struct zpair *a = x, *b = y;
    if (a->score != b->score) return a->score < b->score ? -1 : 1;
    return bytes_cmp(a->member, b->member);
}

void zlist_sort(struct zlist *l)
{
    sort_unless_sorted(l->v, l->n, sizeof(*l->v), compare_pairs);
}

void zlist_reply(struct ctx *c, const struct zlist *l, bool with_scores)
{
    reply_array(c->out, zset_reply_length(c->out, l->n, with_scores));
    for (size_t i = 0; i < l->n; i++)
        zset_reply_pair(c->out, l->v[i].member, l->v[i].score, with_scores);
}

/* Redis builds the whole result before it chooses the encoding. */
static bool fits_small(struct ctx *c, const struct zlist *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (!zset_fits_small(c, l->n, l->v[i].member)) return false;
    return true;
}

static void zlist_fill(struct ctx *c, bytes dst, const struct zlist *l, const char *event)
{
    struct key_ref ref;
    ctx_replace(c, dst, TYPE_ZSET, &ref);
    bool small = fits_small(c, l);
    bytes *members = mem_alloc(l->n * sizeof *members);
    double *scores = mem_alloc(l->n * sizeof *scores);
    for (size_t i = 0; i < l->n; i++) {
        members[i] = l->v[i].member;
        scores[i] = small ? zset_plain_zero(l->v[i].score) : l->v[i].score;
    }
    c->eng->ops->zset.fill(c->eng, &ref, members, scores, (u32)l->n);
    mem_free(members);
    mem_free(scores);
    ctx_changed(c, dst, NOTIFY_ZSET, event);
}

/* Copies the members to memory of their own. */
static struct zlist copy_members(const struct zlist *l, struct buf *owner)
{
    struct zlist copy = {0};
    size_t total = 0;
    for (size_t i = 0; i < l->n; i++) total += l->v[i].member.n;
    buf_reserve(owner, total); /* at once, so that its contents don't move */
    zlist_reserve(&copy, l->n);
    for (size_t i = 0; i < l->n; i++) {
        bytes m = l->v[i].member;
        zlist_add(&copy, bytes_of(owner->p + owner->n, m.n), l->v[i].score);
        buf_append_bytes(owner, m);
    }
    return copy;
}

/* The members may be part of the old value. */
static void fill_from_copy(struct ctx *c, bytes dst, const struct zlist *l, const char *event)
{
    struct buf owner = {0};
    struct zlist copy = copy_members(l, &owner);
    zlist_fill(c, dst, &copy, event);
    zlist_release(&copy);
    buf_release(&owner);
}

void zlist_store(struct ctx *c, bytes dst, const struct zlist *l, const char *event)
{
    struct key_ref old;
    bool had = ctx_write(c, dst, TYPE_NONE, &old) == OK;
    if (l->n > 0) {
        if (had) fill_from_copy(c, dst, l, event);
        else zlist_fill(c, dst, l, event);
    } else if (had) {
        ctx_drop(c, &old);
        ctx_changed(c, dst, NOTIFY_GENERIC, "del");
    }
    reply_int(c->out, (i64)l->n);
}
