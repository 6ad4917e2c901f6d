/* The deadline index: a hierarchical timing wheel that cascades lazily.
 *
 * It holds references (64-bit hashes of keys) in buckets of time. Which bucket a deadline belongs to, and
 * when the bucket is visited, is the rule of due_place.h.
 *
 *              bucket width   ring of 128 slots; slot = bucket number mod 128
 *   level 0    64 ms          [ ][ ][x][x][ ][x] …
 *   level 1    4.1 s          [ ][x][ ][x][x][ ] …        a slot:  bucket   the bucket it holds now
 *   level 2    4.4 min        [x][ ][ ][ ][x][ ] …                 live     number of keys counted in it
 *   level 3    4.7 h          [ ][ ][x][ ][ ][ ] …                 cells    their deadlines, 64 counters
 *   level 4    12.4 d         …                                    refs --> chunk --> chunk --> …
 *   …                                                                       6 to 510 references each
 *   overdue    one slot       visit as soon as possible
 *
 * On a visit the owner looks each reference up and either expires the key, files the reference again at a
 * finer level, or drops it because it is stale.
 *
 * The owner stores a wheel_pos per key: where the key's one valid reference is, and at which level the key is
 * counted.
 *
 *    15          12  11  10        7 6            0
 *   +--------------+-----+----------+--------------+
 *   | counted      | gen | level    | slot         |
 *   | level        |     |          |              |
 *   +--------------+-----+----------+--------------+
 *
 * So removing a deadline or moving it later needs no search and no new reference: the old reference is
 * visited in time anyway, and filed again then. Live keys are counted by their current deadline in the cells
 * of each bucket (due_cells.h), from which EXPIRY FORECAST reads.
 *
 * Stale references (of deleted keys and shortened deadlines) are swept once they outnumber the live ones, so
 * that memory stays proportional to the number of live keys. The wheel owns its chunks; it never reads a
 * key. */
#ifndef MAYFLY_DS_WHEEL_H
#define MAYFLY_DS_WHEEL_H

#include "ds/due_cells.h"

#define WHEEL_LEVELS DUE_PLACE_LEVELS
#define WHEEL_SLOTS 128
#define WHEEL_SIZES 7 /* chunk sizes: 6, 14 … 510 references */

typedef u16 wheel_pos;

struct wheel_chunk;

struct wheel_slot {
    i64 bucket;                /* due_place_bucket of the bucket it holds now */
    u64 live;                  /* keys counted here */
    struct due_cell *cells;    /* … by part of the bucket; NULL until the slot is first used */
    struct wheel_chunk *refs;  /* references of generation gen */
    struct wheel_chunk *moved; /* during a sweep: those of the next generation */
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
    i64 taken_ms;                          /* the time of the last wheel_take that searched */
    i64 soonest_ms;                        /* no reference is due before this */
    struct wheel_slot overdue;             /* references to visit as soon as possible */
    u64 live, refs;                        /* totals */
    struct wheel_chunks all[WHEEL_SIZES];  /* all chunks by size: for wheel_random */
    u32 sweep_level, sweep_slot;
    u32 celled; /* slots that have cells */
};

void wheel_init(struct wheel *w);
void wheel_release(struct wheel *w);

/* Frees up to `chunks` chunks, so that a large wheel is freed in slices. True when the wheel is empty. Until
 * then no other function may be called. */
bool wheel_release_some(struct wheel *w, u32 chunks);

/* Files a new deadline. Returns the position to store with the key. */
wheel_pos wheel_add(struct wheel *w, u64 ref, i64 deadline_ms, i64 now_ms);

/* Changes a deadline. Files a new reference only if the old one would be visited too late. */
wheel_pos wheel_move(struct wheel *w, wheel_pos pos, u64 ref, i64 old_ms, i64 new_ms, i64 now_ms);

/* Removes a deadline; its reference becomes stale. */
void wheel_drop(struct wheel *w, wheel_pos pos, i64 deadline_ms);

/* Takes the next reference that is due by now_ms; false: none. `at` is the place it was filed in. The owner
 * acts on a key only if wheel_same(key's pos, at); if the key is not dead yet, it calls wheel_drop and
 * wheel_add. */
struct wheel_visit {
    u64 ref;
    wheel_pos at;
    bool anywhere; /* from the overdue list: matches any key with this hash */
};
bool wheel_take(struct wheel *w, i64 now_ms, struct wheel_visit *out);
static inline bool wheel_same(wheel_pos a, wheel_pos b) { return (a & 0x0fff) == (b & 0x0fff); }

/* No reference is due before this time; INT64_MAX: none at all. Exact after wheel_take has returned false;
 * filing references can only make it earlier. */
static inline i64 wheel_next(const struct wheel *w) { return w->refs ? w->soonest_ms : INT64_MAX; }

/* Reports the counted keys per cell: overdue ones first, without bounds, then in no particular order. */
void wheel_forecast(const struct wheel *w, due_span_fn fn, void *arg);

/* A uniformly random reference, which may be stale; false: there is none. O(1). */
bool wheel_random(const struct wheel *w, u64 *rng, u64 *ref);

/* Calls fn for each reference until it returns true; false if it never did. O(references): for use after
 * wheel_random found only stale ones. */
bool wheel_any(const struct wheel *w, bool (*fn)(void *arg, u64 ref), void *arg);

/* Removes stale references, looking at about `refs` per call. `keep` is called for each: if the key exists
 * and wheel_keeps(its pos, at, to), it stores wheel_kept(its pos, to) as the key's new position and returns
 * true. */
bool wheel_needs_sweep(const struct wheel *w);
typedef bool (*wheel_keep_fn)(void *arg, u64 ref, wheel_pos at, wheel_pos to);
void wheel_sweep(struct wheel *w, u32 refs, wheel_keep_fn keep, void *arg);

/* In the overdue list any reference is valid for a key that has none there yet. */
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
