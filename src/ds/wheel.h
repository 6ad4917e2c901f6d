/* The deadline index: a hierarchical timing wheel that cascades lazily.
 *
 * It holds references (64-bit hashes of keys) in buckets of time (64 ms, 4 s, 4 min, 5 h, 12 d … wide); which
 * one a deadline belongs to and when that is visited is the rule of due_place.h. On a visit the owner looks
 * each reference up again and either acts, files it again (finer), or lets it go because it is stale.
 *
 * What the owner keeps per key is a wheel_pos of 16 bits: where the key's one
 * valid reference lies, and at which level the key is counted. So removing a
 * deadline or moving it later costs no search and no new reference: the old one
 * is visited in time anyway and filed again then. Live keys are counted by their
 * true deadline, in the cells of each bucket (due_cells.h): that is EXPIRY FORECAST.
 *
 * Stale references (deleted keys, shortened deadlines) are swept once they
 * outnumber the live ones, so memory stays proportional to the live keys. */
#ifndef MAYFLY_DS_WHEEL_H
#define MAYFLY_DS_WHEEL_H

#include "ds/due_cells.h"

#define WHEEL_LEVELS PLACE_LEVELS
#define WHEEL_SLOTS 128
#define WHEEL_SIZES 7 /* of chunks: 6, 14 … 510 references */

typedef u16 wheel_pos;

struct wheel_chunk;

struct wheel_slot {
    i64 bucket;                /* place_bucket of what it holds now */
    u64 live;                  /* keys counted here … */
    struct due_cell *cells;    /* … and in which part of the bucket; NULL until the slot is first used */
    struct wheel_chunk *refs;  /* references of generation gen */
    struct wheel_chunk *moved; /* while being swept: those of the next generation */
    u8 gen;
    bool sweeping;
};

struct wheel_chunks {
    struct wheel_chunk **v;
    u32 n, cap;
};

struct wheel {
    struct wheel_slot *ring[WHEEL_LEVELS]; /* NULL until a level is first used */
    i64 cursor[WHEEL_LEVELS];              /* first bucket not yet visited */
    i64 taken_ms;                          /* the time of the last wheel_take that looked */
    i64 soonest_ms;                        /* no reference is to be visited before */
    struct wheel_slot overdue;             /* references to look at as soon as possible */
    u64 live, refs;                        /* totals */
    struct wheel_chunks all[WHEEL_SIZES];  /* every chunk of any slot, by size: for wheel_random */
    u32 sweep_level, sweep_slot;
    u32 celled; /* slots that have cells */
};

void wheel_init(struct wheel *w);
void wheel_release(struct wheel *w);

/* Frees up to `chunks` pieces of memory; true when the wheel is empty: a big one is freed
 * in slices. Until then it is good for nothing else. */
bool wheel_release_some(struct wheel *w, u32 chunks);

/* Files a new deadline. */
wheel_pos wheel_add(struct wheel *w, u64 ref, i64 deadline_ms, i64 now_ms);

/* The deadline changed. Files a new reference only if the old one would be visited too late. */
wheel_pos wheel_move(struct wheel *w, wheel_pos pos, u64 ref, i64 old_ms, i64 new_ms, i64 now_ms);

/* The deadline is gone; its reference becomes stale. */
void wheel_drop(struct wheel *w, wheel_pos pos, i64 deadline_ms);

/* Takes the next reference that is to be visited by now_ms. `at` is the place
 * it was filed in: the owner acts on a key only if wheel_same(key's pos, at), and
 * if the key is still to live calls wheel_drop and wheel_add for it. */
struct wheel_visit {
    u64 ref;
    wheel_pos at;
    bool anywhere; /* from the overdue list: any key with this hash counts */
};
bool wheel_take(struct wheel *w, i64 now_ms, struct wheel_visit *out);
static inline bool wheel_same(wheel_pos a, wheel_pos b) { return (a & 0x0fff) == (b & 0x0fff); }

/* No reference is to be visited before this time; INT64_MAX if there is none. Exact once
 * wheel_take has found nothing more; what is filed later only brings it nearer. */
static inline i64 wheel_next(const struct wheel *w) { return w->refs ? w->soonest_ms : INT64_MAX; }

/* Counted keys per cell: overdue first, without bounds, then in no order. */
void wheel_forecast(const struct wheel *w, due_span_fn fn, void *arg);

/* A reference at random, each with the same chance (it may be stale); false if there is none. O(1). */
bool wheel_random(const struct wheel *w, u64 *rng, u64 *ref);

/* Calls fn for one reference after another until it says true; false if it never
 * did. O(references): for when wheel_random found only stale ones. */
bool wheel_any(const struct wheel *w, bool (*fn)(void *arg, u64 ref), void *arg);

/* Sweeping out stale references, about `refs` at a time. `keep` is asked for each
 * reference: if the key is there and wheel_keeps(its pos, at, to), it stores
 * wheel_kept(its pos, to) as the new pos and says true. */
bool wheel_needs_sweep(const struct wheel *w);
typedef bool (*wheel_keep_fn)(void *arg, u64 ref, wheel_pos at, wheel_pos to);
void wheel_sweep(struct wheel *w, u32 refs, wheel_keep_fn keep, void *arg);

/* In the overdue list any reference will do for a key that has none there yet. */
static inline bool wheel_keeps(wheel_pos pos, wheel_pos at, wheel_pos to)
{
    bool overdue = (at >> 7 & 0xf) == WHEEL_LEVELS;
    return overdue ? !wheel_same(pos, to) : wheel_same(pos, at);
}
static inline wheel_pos wheel_kept(wheel_pos pos, wheel_pos to)
{
    return (wheel_pos)((pos & 0xf000) | (to & 0x0fff));
}

size_t wheel_memory(const struct wheel *w);

#endif
