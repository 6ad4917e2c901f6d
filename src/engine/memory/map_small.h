/* Hashes and sets whose elements are in their entry: pairs or items (small.h), a set's integers in the order
 * that Redis's intset has, or pairs with deadlines (map_timed.h). Anything else is a table (map_table.h). */
#ifndef MAYFLY_ENGINE_MEMORY_MAP_SMALL_H
#define MAYFLY_ENGINE_MEMORY_MAP_SMALL_H

#include "engine/memory/small.h"

static inline bool entry_is_ints(const struct entry *e)
{
    return entry_form(e) == FORM_INTS && entry_type(e) == TYPE_SET;
}

u32 map_small_count(const struct entry *);
bool map_small_get(struct engine *, struct key_ref *, bytes field, bytes *value);

/* Not for FORM_TIMED. False if this element doesn't fit into a small one: the caller makes a table. */
bool map_small_put(struct engine *, struct key_ref *, bytes field, bytes value, bool *added);
bool map_small_del(struct engine *, struct key_ref *, bytes field);

/* The elements in order; digits: room for the text of two integers, NULL: made to last until commit. */
struct map_small_walk {
    union {
        const char *at; /* the next one */
        u64 index;      /* … among integers */
    };
    union {
        const char *end;      /* NULL: integers */
        const char *deadline; /* FORM_TIMED: of the next one */
    };
};
void map_small_start(const struct entry *, struct map_small_walk *);
bool map_small_next(struct engine *, const struct key_ref *, struct map_small_walk *, bytes *field,
                    bytes *value, char (*digits)[NUM_I64_LEN]);
void map_small_random(struct engine *, const struct key_ref *, u64 *rng, bytes *field, bytes *value);

/* Fills an empty one: map_ops.fill. UINT32_MAX: these elements need another way. */
u32 map_small_fill(struct engine *, struct key_ref *, const bytes *v, u32 n);

/* Whether a hash or set of so many elements is small if this is one of them: Redis's limits. */
bool map_small_fits(const struct engine *, bool is_set, u64 count, bytes field, bytes value);

#endif
