/* Small collections: their elements are in the entry (entry.h), so that they cost one allocation and one
 * cache miss with their key. A change that fits into the allocation is made in place; else the entry moves,
 * which mem_moved tells the table and the ref. So a pointer into an entry is valid until the next
 * change of the key, and what a function here returns until the next one that takes the ref. */
#ifndef MAYFLY_ENGINE_MEMORY_SMALL_H
#define MAYFLY_ENGINE_MEMORY_SMALL_H

#include "ds/compact.h"
#include "engine/memory/mem.h"

#define SMALL_SAFE (1u << 30) /* bytes: a collection leaves its entry before it grows beyond this */

/* The elements of a small collection, in its entry. */
struct small {
    char *p;
    u32 bytes, count;
};

#define TIMED_HEAD 10 /* bytes of a FORM_TIMED before the number of elements: map_timed.h */

static inline bool entry_is_timed(const struct entry *e)
{
    return entry_form(e) == FORM_TIMED && entry_type(e) == TYPE_HASH;
}
static inline bool entry_is_small(const struct entry *e) { return entry_form(e) == FORM_INLINE; }

static inline struct small small_of(const struct entry *e)
{
    bytes v = entry_inline(e);
    size_t count;
    char *p = (char *)length_read(v.p, &count);
    return (struct small){p, (u32)(v.p + v.n - p), (u32)count};
}

static inline const char *small_end(const struct small *s) { return s->p + s->bytes; }
static inline u32 small_offset(const struct small *s, const char *at) { return (u32)(at - s->p); }

/* Bytes of a small collection's value in the entry. */
static inline size_t small_value_size(u32 count, u32 bytes)
{
    size_t n = length_size(count) + bytes;
    return length_size(n) + n;
}

/* Writes the head of a value of small_value_size() bytes; returns where its elements go. */
char *small_write_head(char *value, u32 count, u32 bytes);

/* Replaces `old` bytes of elements at an offset by `new`, which the caller writes to where it returns, and
 * adds `more` to the number of elements. */
char *small_splice(struct engine *, struct key_ref *, u32 at, u32 old, u32 new, i32 more);

/* Likewise for the bytes of any value in the entry. */
char *mem_splice(struct engine *, struct key_ref *, size_t at, size_t old, size_t new);

/* The value becomes an object, or a small collection of so many elements, which the caller writes. What the
 * entry pointed to is the caller's. */
void mem_set_object(struct engine *, struct key_ref *, void *object);
char *small_replace(struct engine *, struct key_ref *, u32 count, u32 bytes);

/* The text of an item: in the entry, or made, and then valid until commit. */
static inline bytes small_text(struct engine *e, const struct compact_slot *slot)
{
    if (LIKELY(!slot->is_int)) return bytes_of(slot->p, slot->n);
    return compact_text(slot, arena_alloc(&mem_of(e)->handed_out, NUM_I64_LEN));
}

#endif
