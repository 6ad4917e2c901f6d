#include "engine/memory/small.h"

char *mem_splice(struct engine *e, struct key_ref *ref, size_t at, size_t old, size_t new)
{
    struct entry *entry = ref->entry;
    bytes v = entry_inline(entry);
    size_t n = v.n - old + new, before = (size_t)(v.p - entry_raw(entry)) - length_size(v.n);
    size_t tail = v.n - at - old, head = before + length_size(n);
    char *p = (char *)v.p;
    if (LIKELY(length_size(n) == length_size(v.n) && mem_same_room(head + n, head + v.n))) {
        if (new != old) memmove(p + at + new, p + at + old, tail);
        length_write((char *)entry + before, n);
        return p + at;
    }
    char *fresh = mem_alloc(mem_room(head + n));
    memcpy(fresh, entry, before);
    *fresh &= ~ENTRY_COMPANION; /* mem_moved moves it */
    p = length_write(fresh + before, n);
    memcpy(p, v.p, at);
    memcpy(p + at + new, v.p + at + old, tail);
    mem_moved(e, ref, (struct entry *)fresh);
    if (UNLIKELY(ref->entry != (void *)fresh)) p = (char *)entry_inline(ref->entry).p;
    return p + at;
}

char *small_splice(struct engine *e, struct key_ref *ref, u32 at, u32 old, u32 new, i32 more)
{
    u32 before = entry_is_timed(ref->entry) ? TIMED_HEAD : 0;
    size_t count;
    length_read(entry_inline(ref->entry).p + before, &count);
    u32 head = (u32)length_size(count);
    count = (u32)count + (u32)more;
    if (UNLIKELY(length_size(count) != head)) {
        mem_splice(e, ref, before, head, length_size(count));
        head = (u32)length_size(count);
    }
    char *to = mem_splice(e, ref, before + head + at, old, new);
    length_write(to - at - head, count);
    return to;
}

char *small_write_head(char *value, u32 count, u32 bytes)
{
    return length_write(length_write(value, length_size(count) + bytes), count);
}

void mem_set_object(struct engine *e, struct key_ref *ref, void *object)
{
    struct entry *fresh = entry_resized(ref->entry, FORM_POINTER, sizeof object);
    entry_set_object(fresh, object);
    mem_moved(e, ref, fresh);
}

char *small_replace(struct engine *e, struct key_ref *ref, u32 count, u32 bytes)
{
    struct entry *fresh = entry_resized(ref->entry, FORM_INLINE, small_value_size(count, bytes));
    small_write_head((char *)entry_value(fresh), count, bytes);
    mem_moved(e, ref, fresh);
    return small_of(ref->entry).p;
}
