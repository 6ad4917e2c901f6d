/* Invariants; wheel.h has pictures:
 * (1) If a slot counts no key, its cells are all zero: the next bucket in the slot uses them as they are.
 * (2) wheel_pos = counted level (4 bits) << 12 | generation << 11 | level << 7 | slot. The low 12 bits name
 *     the place of the key's one valid reference. The overdue list is level WHEEL_LEVELS, with one slot.
 * (3) A key's valid reference is in a bucket that is visited no later than the bucket of its deadline.
 * (4) A ring slot holds one bucket at a time. If another bucket claims a slot that is still in use (reclaim
 *     was off, or the clock stepped), the old content moves to the overdue list, where every reference is
 *     looked up again: slower, but never wrong.
 * (5) Sweeping moves a slot's references to generation gen ^ 1. A second reference to the same key then no
 *     longer matches, so duplicates are removed too. The overdue list is swept in the same way, because a
 *     replica never visits it. */
#include "ds/wheel.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/rand.h"

#define CHUNK_CAP(size) ((8u << (size)) - 2) /* with its header, 64 bytes to 4 KB */
#define SWEEP_SLACK 4096
#define LISTED_MIN 8u /* smallest capacity of a list of chunks: avoids frequent reallocation */

struct wheel_chunk {
    struct wheel_chunk *next;
    u32 index; /* in wheel.all[size] */
    u16 n;
    u8 size;
    u64 ref[];
};

static wheel_pos make_pos(u32 counted, u32 gen, u32 level, u32 slot)
{
    return (wheel_pos)(counted << 12 | gen << 11 | level << 7 | slot);
}
static u32 pos_counted(wheel_pos p) { return p >> 12; }
static u32 pos_level(wheel_pos p) { return (p >> 7) & 0xf; }
static u32 pos_slot(wheel_pos p) { return p & 0x7f; }

void wheel_init(struct wheel *w) { *w = (struct wheel){.soonest_ms = INT64_MAX}; }

/* NULL if the level was never used. */
static struct wheel_slot *slot_at(const struct wheel *w, u32 level, u32 slot)
{
    if (level == WHEEL_LEVELS) return (struct wheel_slot *)&w->overdue;
    return w->ring[level] ? &w->ring[level][slot] : NULL;
}

static struct wheel_chunk *chunk_new(struct wheel *w, u32 size, struct wheel_chunk *next)
{
    struct wheel_chunks *all = &w->all[size];
    struct wheel_chunk *c = mem_alloc(sizeof *c + CHUNK_CAP(size) * sizeof(u64));
    *c = (struct wheel_chunk){.next = next, .index = all->n, .size = (u8)size};
    if (all->n == all->cap) {
        all->cap = MAX(all->cap * 2, LISTED_MIN);
        all->v = mem_realloc(all->v, all->cap * sizeof *all->v);
    }
    all->v[all->n++] = c;
    return c;
}

static void chunk_free(struct wheel *w, struct wheel_chunk *c)
{
    struct wheel_chunks *all = &w->all[c->size];
    all->v[c->index] = all->v[--all->n];
    all->v[c->index]->index = c->index;
    if (all->cap > LISTED_MIN && all->n < all->cap / 4) {
        all->cap /= 2;
        all->v = mem_realloc(all->v, all->cap * sizeof *all->v);
    }
    mem_free(c);
}

/* Does not update wheel.all: only for a wheel that is being released. */
static bool free_chunks(struct wheel_chunk **list, u32 *max)
{
    for (; *list && *max; --*max) {
        struct wheel_chunk *c = *list;
        *list = c->next;
        mem_free(c);
    }
    return !*list;
}

bool wheel_release_some(struct wheel *w, u32 chunks)
{
    for (u32 l = 0; l < WHEEL_LEVELS; l++) {
        for (u32 i = 0; w->ring[l] && i < WHEEL_SLOTS; i++) {
            struct wheel_slot *s = &w->ring[l][i];
            if (!free_chunks(&s->refs, &chunks) || !free_chunks(&s->moved, &chunks)) return false;
            mem_free(s->cells);
            s->cells = NULL;
        }
        mem_free(w->ring[l]);
        w->ring[l] = NULL;
    }
    if (!free_chunks(&w->overdue.refs, &chunks) || !free_chunks(&w->overdue.moved, &chunks)) return false;
    for (u32 i = 0; i < WHEEL_SIZES; i++) mem_free(w->all[i].v);
    wheel_init(w);
    return true;
}

void wheel_release(struct wheel *w)
{
    while (!wheel_release_some(w, UINT32_MAX)) {}
}

static void wheel_push_ref(struct wheel *w, struct wheel_chunk **list, u64 ref)
{
    struct wheel_chunk *c = *list;
    if (!c || c->n == CHUNK_CAP(c->size))
        *list = c = chunk_new(w, c ? MIN(c->size + 1u, WHEEL_SIZES - 1u) : 0, c);
    c->ref[c->n++] = ref;
    w->refs++;
}

static bool wheel_pop_ref(struct wheel *w, struct wheel_chunk **list, u64 *ref)
{
    struct wheel_chunk *c = *list;
    if (!c) return false;
    *ref = c->ref[--c->n];
    w->refs--;
    if (c->n == 0) {
        *list = c->next;
        chunk_free(w, c);
    }
    return true;
}

static void wheel_splice(struct wheel_chunk **list, struct wheel_chunk *more)
{
    while (more) {
        struct wheel_chunk *next = more->next;
        more->next = *list;
        *list = more;
        more = next;
    }
}

/* Prepares a slot of another bucket for this one: invariant (4). */
static void reuse(struct wheel *w, struct wheel_slot *s, i64 bucket)
{
    if (s->refs || s->moved) w->soonest_ms = 0;
    wheel_splice(&w->overdue.refs, s->refs);
    wheel_splice(&w->overdue.refs, s->moved);
    w->overdue.live += s->live;
    if (s->live) memset(s->cells, 0, DUE_CELLS * sizeof *s->cells);
    *s = (struct wheel_slot){.bucket = bucket, .gen = s->gen, .cells = s->cells};
}

/* The slot of a bucket, ready to accept a key. */
static struct wheel_slot *wheel_claim_slot(struct wheel *w, u32 level, i64 bucket)
{
    if (UNLIKELY(!w->ring[level])) {
        w->ring[level] = mem_zalloc(WHEEL_SLOTS * sizeof(struct wheel_slot));
        w->cursor[level] = bucket;
    }
    struct wheel_slot *s = &w->ring[level][bucket & (WHEEL_SLOTS - 1)];
    if (UNLIKELY(s->bucket != bucket)) reuse(w, s, bucket);
    if (UNLIKELY(!s->cells)) {
        s->cells = mem_zalloc(DUE_CELLS * sizeof *s->cells);
        w->celled++;
    }
    if (bucket < w->cursor[level]) w->cursor[level] = bucket;
    return s;
}

static void count_in(struct wheel *w, struct wheel_slot *s, u32 level, i64 deadline_ms)
{
    due_cell_count(due_cell_of(s->cells, level, deadline_ms), level, deadline_ms, 1);
    s->live++;
    w->live++;
}

/* A key whose bucket lost its slot is counted in the overdue list: invariant (4). */
static void count_out(struct wheel *w, u32 level, i64 deadline_ms)
{
    i64 bucket = due_place_bucket(level, deadline_ms);
    struct wheel_slot *s = &w->ring[level][bucket & (WHEEL_SLOTS - 1)];
    struct due_cell *cell = s->bucket == bucket ? due_cell_of(s->cells, level, deadline_ms) : NULL;
    if (LIKELY(cell && cell->keys)) {
        due_cell_count(cell, level, deadline_ms, -1);
        if (cell->keys == 0) cell->past = 0;
        s->live--;
    } else if (w->overdue.live) {
        w->overdue.live--;
    }
    w->live--;
}

wheel_pos wheel_add(struct wheel *w, u64 ref, i64 deadline_ms, i64 now_ms)
{
    struct due_place p = due_place_of(deadline_ms, now_ms);
    struct wheel_slot *s = wheel_claim_slot(w, p.level, p.bucket);
    count_in(w, s, p.level, deadline_ms);
    if (s->sweeping) wheel_push_ref(w, &s->moved, ref);
    else wheel_push_ref(w, &s->refs, ref);
    w->soonest_ms = MIN(w->soonest_ms, p.due_ms);
    return make_pos(p.level, (u32)(s->gen ^ s->sweeping), p.level, p.bucket & (WHEEL_SLOTS - 1));
}

wheel_pos wheel_move(struct wheel *w, wheel_pos pos, u64 ref, i64 old_ms, i64 new_ms, i64 now_ms)
{
    struct due_place to = due_place_of(new_ms, now_ms);
    u32 filed = pos_level(pos);
    const struct wheel_slot *s = slot_at(w, filed, pos_slot(pos));
    bool in_time = filed == WHEEL_LEVELS || due_place_visit_ms(filed, s->bucket) <= to.due_ms;
    if (!in_time) {
        wheel_drop(w, pos, old_ms);
        return wheel_add(w, ref, new_ms, now_ms);
    }
    count_out(w, pos_counted(pos), old_ms);
    count_in(w, wheel_claim_slot(w, to.level, to.bucket), to.level, new_ms);
    return (wheel_pos)((pos & 0x0fff) | to.level << 12);
}

void wheel_drop(struct wheel *w, wheel_pos pos, i64 deadline_ms)
{
    count_out(w, pos_counted(pos), deadline_ms);
    /* No live key is left: all references are stale and freed at once. */
    if (w->live == 0 && w->refs > SWEEP_SLACK) wheel_release(w);
}

/* The first non-empty slot of a level that is due by now_ms. */
static struct wheel_slot *due_slot(struct wheel *w, u32 level, i64 now_ms)
{
    if (!w->ring[level]) return NULL;
    /* Level 0 buckets are due when they have ended, coarser ones a width before they start. */
    i64 last = (now_ms >> DUE_PLACE_SHIFT(level)) + (level ? 1 : -1);
    if (last - w->cursor[level] >= WHEEL_SLOTS) w->cursor[level] = last - WHEEL_SLOTS + 1;
    for (; w->cursor[level] <= last; w->cursor[level]++) {
        struct wheel_slot *s = &w->ring[level][w->cursor[level] & (WHEEL_SLOTS - 1)];
        if (s->bucket <= last && (s->refs || s->moved)) return s;
    }
    return NULL;
}

/* The clock stepped back while a cursor that had fallen far behind was skipping slots. Any slot may hold a
 * due reference, so every cursor starts a new round. */
static void rewind_cursors(struct wheel *w)
{
    for (u32 l = 0; l < WHEEL_LEVELS; l++) w->cursor[l] = INT64_MIN / 2;
}

/* The time of the next visit. The overdue list is empty. */
static i64 wheel_find_soonest(const struct wheel *w)
{
    i64 next = INT64_MAX;
    for (u32 l = 0; l < WHEEL_LEVELS; l++) {
        for (u32 s = 0; w->ring[l] && s < WHEEL_SLOTS; s++) {
            const struct wheel_slot *slot = &w->ring[l][s];
            if (slot->refs || slot->moved) next = MIN(next, due_place_visit_ms(l, slot->bucket));
        }
    }
    return next;
}

bool wheel_take(struct wheel *w, i64 now_ms, struct wheel_visit *out)
{
    if (w->refs == 0) w->soonest_ms = INT64_MAX;
    if (now_ms < w->soonest_ms) return false;
    if (now_ms < w->taken_ms) rewind_cursors(w);
    w->taken_ms = now_ms;
    if (wheel_pop_ref(w, &w->overdue.refs, &out->ref) || wheel_pop_ref(w, &w->overdue.moved, &out->ref)) {
        out->anywhere = true;
        out->at = 0;
        return true;
    }
    for (u32 level = 0; level < WHEEL_LEVELS; level++) {
        struct wheel_slot *s = due_slot(w, level, now_ms);
        if (!s) continue;
        u32 gen = s->gen;
        if (!wheel_pop_ref(w, &s->refs, &out->ref)) {
            gen ^= 1;
            CHECK(wheel_pop_ref(w, &s->moved, &out->ref));
        }
        out->anywhere = false;
        out->at = make_pos(0, gen, level, (u32)(s - w->ring[level]));
        return true;
    }
    w->soonest_ms = wheel_find_soonest(w);
    return false;
}

void wheel_forecast(const struct wheel *w, due_span_fn fn, void *arg)
{
    if (w->overdue.live) fn(arg, &(struct due_span){.keys = w->overdue.live});
    for (u32 l = 0; l < WHEEL_LEVELS; l++) {
        for (u32 s = 0; w->ring[l] && s < WHEEL_SLOTS; s++) {
            const struct wheel_slot *slot = &w->ring[l][s];
            if (slot->live) due_cells_each(slot->cells, l, slot->bucket, fn, arg);
        }
    }
}

/* Draws a random position among the capacity of all chunks, until it holds a reference. Few are unused: only
 * the first chunk of a list is not full. */
bool wheel_random(const struct wheel *w, u64 *rng, u64 *ref)
{
    u64 places = 0;
    for (u32 i = 0; i < WHEEL_SIZES; i++) places += (u64)w->all[i].n * CHUNK_CAP(i);
    while (w->refs) {
        u64 at = rand_below(rng, places);
        u32 size = 0;
        for (u64 here; at >= (here = (u64)w->all[size].n * CHUNK_CAP(size)); size++) at -= here;
        const struct wheel_chunk *c = w->all[size].v[at / CHUNK_CAP(size)];
        if (at % CHUNK_CAP(size) >= c->n) continue;
        *ref = c->ref[at % CHUNK_CAP(size)];
        return true;
    }
    return false;
}

static bool chunks_any(const struct wheel_chunk *c, bool (*fn)(void *, u64), void *arg)
{
    for (; c; c = c->next) {
        for (u32 i = 0; i < c->n; i++) {
            if (fn(arg, c->ref[i])) return true;
        }
    }
    return false;
}

bool wheel_any(const struct wheel *w, bool (*fn)(void *, u64), void *arg)
{
    for (u32 l = 0; l <= WHEEL_LEVELS; l++) {
        for (u32 i = 0; i < (l < WHEEL_LEVELS ? WHEEL_SLOTS : 1); i++) {
            const struct wheel_slot *s = slot_at(w, l, i);
            if (s && (chunks_any(s->refs, fn, arg) || chunks_any(s->moved, fn, arg))) return true;
        }
    }
    return false;
}

bool wheel_needs_sweep(const struct wheel *w)
{
    return w->refs > 2 * w->live + SWEEP_SLACK;
}

/* Advances the sweep to the next slot that has references; NULL: none has. */
static struct wheel_slot *sweep_slot(struct wheel *w)
{
    for (u32 tries = 0; tries <= WHEEL_LEVELS * WHEEL_SLOTS; tries++) {
        struct wheel_slot *s = slot_at(w, w->sweep_level, w->sweep_slot);
        if (s && s->refs) {
            s->sweeping = true;
            return s;
        }
        if (s && s->sweeping) {
            s->refs = s->moved;
            s->moved = NULL;
            s->gen ^= 1;
            s->sweeping = false;
        }
        if (++w->sweep_slot == WHEEL_SLOTS || !s || w->sweep_level == WHEEL_LEVELS) {
            w->sweep_slot = 0;
            w->sweep_level = (w->sweep_level + 1) % (WHEEL_LEVELS + 1);
        }
    }
    return NULL;
}

void wheel_sweep(struct wheel *w, u32 refs, wheel_keep_fn keep, void *arg)
{
    for (u32 seen = 0; seen < refs && wheel_needs_sweep(w);) {
        struct wheel_slot *s = sweep_slot(w);
        if (!s) return;
        wheel_pos at = make_pos(0, s->gen, w->sweep_level, w->sweep_slot);
        wheel_pos to = make_pos(0, s->gen ^ 1u, w->sweep_level, w->sweep_slot);
        struct wheel_chunk *c = s->refs;
        s->refs = c->next;
        seen += c->n;
        for (u32 i = 0; i < c->n; i++) {
            w->refs--;
            if (keep(arg, c->ref[i], at, to)) wheel_push_ref(w, &s->moved, c->ref[i]);
        }
        chunk_free(w, c);
    }
}

size_t wheel_memory(const struct wheel *w)
{
    size_t n = w->refs * sizeof(u64) + w->celled * DUE_CELLS * sizeof(struct due_cell);
    for (u32 l = 0; l < WHEEL_LEVELS; l++) {
        if (w->ring[l]) n += WHEEL_SLOTS * sizeof(struct wheel_slot);
    }
    for (u32 i = 0; i < WHEEL_SIZES; i++) n += w->all[i].cap * sizeof(struct wheel_chunk *);
    return n;
}
