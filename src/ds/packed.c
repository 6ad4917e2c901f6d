/* The blob: bytes u32 · count u32 · elements.
 * An element: its length as a varint · its bytes · the same varint mirrored,
 * so that the element before a position can be read backwards from there.
 *
 * Invariants:
 * (1) `bytes` counts the header and every element, and is below PACKED_MAX.
 * (2) The allocation is exactly mem_room(bytes), except for a roomy blob. Because that is a function of
 *     `bytes` alone, no capacity is stored, and blobs shrink as they grew.
 * (3) A roomy blob is at one end of its room and grows towards the other. If it grows at the front, the
 *     header moves along; so a blob is not always aligned. */
#include "ds/packed.h"

#include "base/alloc.h"
#include "base/err.h"

struct packed {
    u32 bytes, count;
    u8 data[];
} __attribute__((packed)); /* not aligned */

#define HEADER ((u32)sizeof(struct packed))

static inline u8 *at(packed *p, u32 pos) { return (u8 *)p + pos; }
static inline const u8 *at_const(const packed *p, u32 pos) { return (const u8 *)p + pos; }

/* --- lengths --- */

static inline u32 packed_length_size(u32 n)
{
    return n < 1u << 7 ? 1 : n < 1u << 14 ? 2 : n < 1u << 21 ? 3 : n < 1u << 28 ? 4 : 5;
}

/* The length written from `from` on in direction step (1, or -1 for the mirrored
 * one); *size is the number of bytes it takes. */
static inline u32 packed_length_read(const u8 *from, int step, u32 *size)
{
    u32 n = *from & 0x7f;
    *size = 1;
    while (UNLIKELY(*from & 0x80)) {
        from += step;
        n |= (u32)(*from & 0x7f) << (7 * (*size)++);
    }
    return n;
}

static inline void packed_length_write(u8 *to, int step, u32 n)
{
    for (; n >= 0x80; n >>= 7, to += step) *to = (u8)(n | 0x80);
    *to = (u8)n;
}

static inline u32 element_size(u32 n) { return 2 * packed_length_size(n) + n; }

static inline u32 size_at(const packed *p, u32 pos)
{
    u32 size, n = packed_length_read(at_const(p, pos), 1, &size);
    return 2 * size + n;
}

static void element_write(u8 *to, bytes value)
{
    u32 n = (u32)value.n, size = packed_length_size(n);
    if (LIKELY(size == 1)) {
        to[0] = to[n + 1] = (u8)n;
        if (n) memcpy(to + 1, value.p, n);
        return;
    }
    packed_length_write(to, 1, n);
    if (n) memcpy(to + size, value.p, n);
    packed_length_write(to + 2 * size + n - 1, -1, n);
}

/* --- memory --- */

static packed *blob_alloc(u32 bytes, u32 count)
{
    packed *p = mem_alloc(mem_room(bytes));
    p->bytes = bytes;
    p->count = count;
    return p;
}

static packed *packed_resize(packed *p, u64 bytes)
{
    CHECK(bytes < PACKED_MAX);
    if (mem_room(bytes) != mem_room(p->bytes)) p = mem_realloc(p, mem_room(bytes));
    p->bytes = (u32)bytes;
    return p;
}

/* Resizes the `old` bytes at pos to `new` bytes. The caller fills them. */
static packed *packed_splice(packed *p, u32 pos, u32 old, u32 new)
{
    u32 tail = p->bytes - pos - old;
    u64 bytes = (u64)p->bytes - old + new;
    if (new > old) p = packed_resize(p, bytes);
    memmove(at(p, pos + new), at(p, pos + old), tail);
    if (new < old) p = packed_resize(p, bytes);
    return p;
}

packed *packed_new(void) { return blob_alloc(HEADER, 0); }

packed *packed_new_roomy(size_t room, bool front)
{
    CHECK(room >= HEADER);
    packed *p = mem_alloc(room);
    if (front) p = (packed *)at(p, (u32)room - HEADER);
    *p = (packed){.bytes = HEADER};
    return p;
}

packed *packed_trim(packed *p, size_t room, bool front)
{
    if (front) {
        u8 *start = at(p, p->bytes) - room;
        p = memmove(start, p, p->bytes);
    }
    return mem_room(p->bytes) == room ? p : mem_realloc(p, mem_room(p->bytes));
}

void packed_free(packed *p) { mem_free(p); }

packed *packed_copy(const packed *p)
{
    packed *copy = blob_alloc(p->bytes, p->count);
    memcpy(copy->data, p->data, p->bytes - HEADER);
    return copy;
}

u32 packed_count(const packed *p) { return p->count; }
size_t packed_bytes(const packed *p) { return p->bytes; }
size_t packed_memory(const packed *p) { return mem_room(p->bytes); }

size_t packed_cost(size_t n)
{
    CHECK(n < PACKED_MAX);
    return element_size((u32)n);
}

/* --- reading --- */

u32 packed_here(const packed *p, u32 pos) { return pos < p->bytes ? pos : PACKED_END; }
u32 packed_first(const packed *p) { return packed_here(p, HEADER); }
u32 packed_last(const packed *p) { return packed_prev(p, p->bytes); }
u32 packed_next(const packed *p, u32 pos) { return packed_here(p, pos + size_at(p, pos)); }

u32 packed_prev(const packed *p, u32 pos)
{
    if (pos == HEADER) return PACKED_END;
    u32 size, n = packed_length_read(at_const(p, pos - 1), -1, &size);
    return pos - 2 * size - n;
}

u32 packed_at(const packed *p, i64 index)
{
    i64 count = p->count;
    if (index < 0) index += count;
    if (index < 0 || index >= count) return PACKED_END;
    u32 pos;
    if (index < count / 2) {
        for (pos = HEADER; index > 0; index--) pos += size_at(p, pos);
    } else {
        for (pos = p->bytes; index < count; index++) pos = packed_prev(p, pos);
    }
    return pos;
}

bytes packed_get(const packed *p, u32 pos)
{
    u32 size, n = packed_length_read(at_const(p, pos), 1, &size);
    return bytes_of(at_const(p, pos + size), n);
}

u32 packed_find(const packed *p, u32 from, bytes needle, u32 stride)
{
    for (u32 pos = from == PACKED_END ? p->bytes : from; pos < p->bytes;) {
        u32 size, n = packed_length_read(at_const(p, pos), 1, &size);
        if (n == needle.n && (n == 0 || memcmp(at_const(p, pos + size), needle.p, n) == 0))
            return pos;
        pos += 2 * size + n;
        for (u32 skip = 1; skip < stride && pos < p->bytes; skip++) pos += size_at(p, pos);
    }
    return PACKED_END;
}

/* --- writing --- */

packed *packed_insert(packed *p, u32 pos, bytes value)
{
    if (pos == PACKED_END) pos = p->bytes;
    p = packed_splice(p, pos, 0, (u32)packed_cost(value.n));
    element_write(at(p, pos), value);
    p->count++;
    return p;
}

packed *packed_extend(packed *p, const bytes *v, u32 n)
{
    u32 pos = p->bytes;
    u64 bytes = pos;
    for (u32 i = 0; i < n; i++) bytes += packed_cost(v[i].n);
    if (p->count == 0 && mem_room(bytes) != mem_room(p->bytes)) {
        mem_free(p); /* no content to keep */
        CHECK(bytes < PACKED_MAX);
        p = blob_alloc((u32)bytes, 0);
    }
    p = packed_resize(p, bytes);
    for (u32 i = 0; i < n; i++) {
        element_write(at(p, pos), v[i]);
        pos += element_size((u32)v[i].n);
    }
    p->count += n;
    return p;
}

packed *packed_insert_inside(packed *p, u32 pos, bytes value, bool front)
{
    u32 cost = (u32)packed_cost(value.n);
    if (pos == PACKED_END) pos = p->bytes;
    if (front) p = memmove((u8 *)p - cost, p, pos);
    else memmove(at(p, pos + cost), at(p, pos), p->bytes - pos);
    element_write(at(p, pos), value);
    p->bytes += cost;
    p->count++;
    return p;
}

packed *packed_replace(packed *p, u32 pos, bytes value)
{
    CHECK(pos >= HEADER && pos < p->bytes);
    p = packed_splice(p, pos, size_at(p, pos), (u32)packed_cost(value.n));
    element_write(at(p, pos), value);
    return p;
}

bool packed_overwrite(packed *p, u32 pos, bytes value)
{
    u32 size, n = packed_length_read(at(p, pos), 1, &size);
    if (n != value.n) return false;
    if (n) memmove(at(p, pos + size), value.p, n);
    return true;
}

packed *packed_erase(packed *p, u32 pos, u32 count)
{
    CHECK(pos >= HEADER && pos < p->bytes);
    u32 end = pos, erased = 0;
    for (; erased < count && end < p->bytes; erased++) end += size_at(p, end);
    p->count -= erased;
    return packed_splice(p, pos, end - pos, 0);
}

packed *packed_split(packed *p, u32 pos, packed **tail)
{
    if (pos == PACKED_END) pos = p->bytes;
    u32 moved = 0;
    for (u32 i = pos; i < p->bytes; i += size_at(p, i)) moved++;
    *tail = blob_alloc(p->bytes - pos + HEADER, moved);
    memcpy((*tail)->data, at(p, pos), p->bytes - pos);
    p->count -= moved;
    return packed_resize(p, pos);
}

packed *packed_append_all(packed *a, const packed *b)
{
    u32 pos = a->bytes, more = b->bytes - HEADER;
    a = packed_resize(a, (u64)pos + more);
    memcpy(at(a, pos), b->data, more);
    a->count += b->count;
    return a;
}

void packed_check(const packed *p)
{
    u32 pos = HEADER, count = 0;
    CHECK(p->bytes >= HEADER && p->bytes < PACKED_MAX);
    for (; pos < p->bytes; count++) {
        u32 next = pos + size_at(p, pos);
        CHECK(next > pos && next <= p->bytes);
        CHECK(packed_prev(p, next) == pos);
        pos = next;
    }
    CHECK(pos == p->bytes && count == p->count);
}
