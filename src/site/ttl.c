#include "site/ttl.h"

#include "site/room.h"

void site_ttl_reset(struct site_ttl *t)
{
    t->n_deadlines = 0;
    while (t->n_marks) buf_release(&t->marks[--t->n_marks].clock);
}

void site_ttl_release(struct site_ttl *t)
{
    site_ttl_reset(t);
    mem_free(t->deadlines);
    mem_free(t->marks);
    *t = (struct site_ttl){0};
}

void site_ttl_add(struct site_ttl *t, struct site_deadline d)
{
    t->deadlines = site_room(t->deadlines, t->n_deadlines, &t->room_deadlines, sizeof d);
    t->deadlines[t->n_deadlines++] = d;
}

void site_ttl_add_mark(struct site_ttl *t, struct site_dot dot, bytes clock)
{
    t->marks = site_room(t->marks, t->n_marks, &t->room_marks, sizeof *t->marks);
    struct site_mark *m = &t->marks[t->n_marks++];
    *m = (struct site_mark){.dot = dot};
    buf_append_bytes(&m->clock, clock);
}

/* -- which one counts ------------------------------------------------------------------------------- */

bool site_deadline_beats(const struct site_deadline *a, const struct site_deadline *b)
{
    if (a->kept != b->kept) return b->kept;
    if (a->at_ms != b->at_ms) return a->at_ms > b->at_ms;
    return site_dot_cmp(a->dot, b->dot) > 0;
}

const struct site_deadline *site_ttl_longest(const struct site_ttl *t)
{
    const struct site_deadline *best = NULL;
    for (u32 i = 0; i < t->n_deadlines; i++)
        if (!best || site_deadline_beats(&t->deadlines[i], best)) best = &t->deadlines[i];
    return best;
}

i64 site_ttl_at(const struct site_ttl *t)
{
    const struct site_deadline *d = site_ttl_longest(t);
    return d ? d->at_ms : 0;
}

bool site_ttl_made(const struct site_ttl *t, struct site_dot dot)
{
    for (u32 i = 0; i < t->n_deadlines; i++)
        if (site_dot_eq(t->deadlines[i].dot, dot)) return true;
    return false;
}

/* -- effects ---------------------------------------------------------------------------------------- */

void site_ttl_replace(struct site_ttl *t, const struct site_clock *context, struct site_deadline by)
{
    u32 n = 0;
    for (u32 i = 0; i < t->n_deadlines; i++) {
        const struct site_deadline *d = &t->deadlines[i];
        bool goes = site_covers(context, d->dot) && (!by.kept || d->kept);
        if (!goes && !site_dot_eq(d->dot, by.dot)) t->deadlines[n++] = *d;
    }
    t->n_deadlines = n;
    site_ttl_add(t, by);
}

void site_ttl_remove(struct site_ttl *t, const struct site_clock *clock)
{
    u32 n = 0;
    for (u32 i = 0; i < t->n_deadlines; i++)
        if (!site_covers(clock, t->deadlines[i].dot)) t->deadlines[n++] = t->deadlines[i];
    t->n_deadlines = n;
}

static bool ttl_is_among(struct site_dot dot, bytes dots)
{
    struct site_reader r = site_reader_of(dots);
    while (site_left(&r))
        if (site_dot_eq(site_get_dot(&r), dot)) return true;
    return false;
}

void site_ttl_spend(struct site_ttl *t, bytes dots)
{
    u32 n = 0;
    for (u32 i = 0; i < t->n_deadlines; i++)
        if (!ttl_is_among(t->deadlines[i].dot, dots)) t->deadlines[n++] = t->deadlines[i];
    t->n_deadlines = n;
}

void site_ttl_past(const struct site_ttl *t, i64 now_ms, struct buf *dots)
{
    for (u32 i = 0; i < t->n_deadlines; i++)
        if (site_deadline_past(&t->deadlines[i], now_ms)) site_put_dot(dots, t->deadlines[i].dot);
}

/* -- garbage ---------------------------------------------------------------------------------------- */

bool site_ttl_tidy(const struct site_ttl *t)
{
    return t->n_marks == 0 && t->n_deadlines <= (site_ttl_at(t) != 0);
}

void site_ttl_collect(struct site_ttl *t)
{
    const struct site_deadline *top = site_ttl_longest(t);
    struct site_deadline keep = top ? *top : (struct site_deadline){0};
    site_ttl_reset(t);
    if (keep.at_ms) site_ttl_add(t, keep);
}

/* -- full sync -------------------------------------------------------------------------------------- */

static bool ttl_has_mark(const struct site_ttl *t, struct site_dot dot)
{
    for (u32 i = 0; i < t->n_marks; i++)
        if (site_dot_eq(t->marks[i].dot, dot)) return true;
    return false;
}

static void ttl_merge_deadlines(struct site_ttl *t, const struct site_ttl *o, const struct site_clock *mine,
                                const struct site_clock *theirs)
{
    u32 n = 0;
    for (u32 i = 0; i < t->n_deadlines; i++) {
        struct site_dot dot = t->deadlines[i].dot;
        if (site_ttl_made(o, dot) || !site_covers(theirs, dot)) t->deadlines[n++] = t->deadlines[i];
    }
    t->n_deadlines = n;
    for (u32 i = 0; i < o->n_deadlines; i++) {
        struct site_dot dot = o->deadlines[i].dot;
        if (!site_covers(mine, dot) && !site_ttl_made(t, dot)) site_ttl_add(t, o->deadlines[i]);
    }
}

void site_ttl_merge(struct site_ttl *t, const struct site_ttl *o, const struct site_clock *mine,
                    const struct site_clock *theirs)
{
    u32 n = 0;
    ttl_merge_deadlines(t, o, mine, theirs);
    for (u32 i = 0; i < t->n_marks; i++) {
        struct site_dot dot = t->marks[i].dot;
        if (ttl_has_mark(o, dot) || !site_covers(theirs, dot)) t->marks[n++] = t->marks[i];
        else buf_release(&t->marks[i].clock);
    }
    t->n_marks = n;
    for (u32 i = 0; i < o->n_marks; i++) {
        const struct site_mark *m = &o->marks[i];
        if (!site_covers(mine, m->dot) && !ttl_has_mark(t, m->dot))
            site_ttl_add_mark(t, m->dot, buf_bytes(&m->clock));
    }
}

/* -- as bytes --------------------------------------------------------------------------------------- */

void site_put_deadlines(struct buf *to, const struct site_ttl *t)
{
    site_put_varint(to, t->n_deadlines);
    for (u32 i = 0; i < t->n_deadlines; i++) {
        const struct site_deadline *d = &t->deadlines[i];
        site_put_u8(to, d->kept);
        site_put_dot(to, d->dot);
        site_put_varint(to, (u64)d->at_ms);
        site_put_dot(to, d->birth);
    }
}

void site_put_marks(struct buf *to, const struct site_ttl *t)
{
    site_put_varint(to, t->n_marks);
    for (u32 i = 0; i < t->n_marks; i++) {
        site_put_dot(to, t->marks[i].dot);
        buf_append_bytes(to, buf_bytes(&t->marks[i].clock));
    }
}

void site_get_deadlines(struct site_reader *r, struct site_ttl *t)
{
    for (u64 n = site_get_varint(r); n > 0 && !r->bad; n--) {
        struct site_deadline d = {.kept = site_get_u8(r) != 0};
        d.dot = site_get_dot(r);
        d.at_ms = (i64)site_get_varint(r);
        d.birth = site_get_dot(r);
        if (d.at_ms < 0 || d.dot.gid == 0) r->bad = true;
        if (!r->bad) site_ttl_add(t, d);
    }
}

void site_get_marks(struct site_reader *r, struct site_ttl *t)
{
    struct site_clock ignored;
    for (u64 n = site_get_varint(r); n > 0 && !r->bad; n--) {
        struct site_dot dot = site_get_dot(r);
        const char *start = r->p;
        site_get_clock(r, &ignored);
        if (dot.gid == 0) r->bad = true;
        if (!r->bad) site_ttl_add_mark(t, dot, bytes_of(start, (size_t)(r->p - start)));
    }
}

bool site_ttl_covered(const struct site_ttl *t, const struct site_clock *clock)
{
    for (u32 i = 0; i < t->n_deadlines; i++) {
        const struct site_deadline *d = &t->deadlines[i];
        if (!site_covers(clock, d->dot) || !site_covers(clock, d->birth)) return false;
    }
    for (u32 i = 0; i < t->n_marks; i++)
        if (!site_covers(clock, t->marks[i].dot)) return false;
    return true;
}
