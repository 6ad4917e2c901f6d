/* An entry: key, value and optional deadline of one key in one allocation.
 *
 *    0      1            4           6            14
 *   +------+------------+-----------+------------+--------+-------+------------------------+
 *   | kind | access     | wheel_pos | deadline   | length | key   | value                  |
 *   | u8   | u24        | u16       | i64, ms    | 1 or 5 | bytes | by form                |
 *   +------+------------+-----------+------------+--------+-------+------------------------+
 *                       \ only with a deadline  /
 *
 *   kind    bits 0-2 type, bits 3-4 form, bit 5 has a companion, bit 6 has a deadline, bit 7 the snapshot's
 *           mark
 *   access  LRU clock or LFU counter
 *   length  one byte, or 0xff and four bytes
 *   value   FORM_INT                   i64
 *           FORM_INLINE, others        length · bytes
 *           FORM_POINTER               pointer, owned by the entry: a string's struct blob, a big collection
 *
 * The bytes of a small collection (small.h):
 *
 *   FORM_INLINE  +-------+---------+---------+-----   elements (ds/compact.h): pairs of field and value, or
 *                | count | element | element | …      of member and score, in order; single items of lists
 *                +-------+---------+---------+-----   and sets
 *   FORM_INTS    +-------+-----+-----+-----
 *                | width | int | int | …              a set of integers, ascending (ds/intset.h)
 *                +-------+-----+-----+-----
 *   FORM_TIMED   a hash with field deadlines: map_timed.h
 *
 * A 16-byte key with a 32-byte value and a deadline takes exactly 64 bytes; so does a 13-byte key with a hash
 * of four fields, of 40 bytes in all. No field is aligned: all are read and written with memcpy. The
 * allocation is the size rounded up to one of the allocator's classes (mem_room), and a value may grow in
 * place within it; beyond that it moves, and every pointer into the entry with it.
 *
 * An entry with a companion has ENTRY_PREFIX bytes more before byte 0, for companion.c. An entry
 * of TYPE_NONE is no key: it names a companion that stays (mem_db.kept). */
#ifndef MAYFLY_ENGINE_MEMORY_ENTRY_H
#define MAYFLY_ENGINE_MEMORY_ENTRY_H

#include "base/alloc.h"
#include "ds/wheel.h"
#include "engine/engine.h"

enum entry_form {
    FORM_INT = 0,     /* string: an i64 */
    FORM_INLINE = 1,  /* string: bytes in the entry */
    FORM_EDITED = 2,  /* the same after a change in place: OBJECT ENCODING is raw whatever its size */
    FORM_INTS = 2,    /* set: integers in the entry */
    FORM_TIMED = 2,   /* hash with field deadlines, in the entry; other small collections are FORM_INLINE */
    FORM_POINTER = 3, /* string: pointer to a struct blob; collection: to its object */
};

#define ENTRY_INLINE_MAX 512 /* longer strings are stored in a blob */
#define ENTRY_PREFIX 16      /* bytes in front of an entry with a companion */

struct entry;

struct blob {
    size_t n, cap;
    char data[];
};

/* -- length prefixes, also used by items of collections --------------------- */

static inline size_t length_size(size_t n) { return n < 0xff ? 1 : 5; }

static inline char *length_write(char *p, size_t n)
{
    if (n < 0xff) {
        *p = (char)n;
        return p + 1;
    }
    u32 v = (u32)n;
    *p = (char)0xff;
    memcpy(p + 1, &v, 4);
    return p + 5;
}

static inline const char *length_read(const char *p, size_t *n)
{
    if (LIKELY((u8)*p < 0xff)) {
        *n = (u8)*p;
        return p + 1;
    }
    u32 v;
    memcpy(&v, p + 1, 4);
    *n = v;
    return p + 5;
}

/* Length and bytes; the slice may be {NULL, 0}. */
static inline char *slice_write(char *p, bytes s)
{
    p = length_write(p, s.n);
    if (s.n) memcpy(p, s.p, s.n);
    return p + s.n;
}

static inline size_t round16(size_t n) { return (n + 15) & ~(size_t)15; }

/* -- reading ---------------------------------------------------------------- */

#define ENTRY_COMPANION 0x20
#define ENTRY_DEADLINE 0x40
#define ENTRY_MARK 0x80 /* see snapshot.c */

static inline const char *entry_raw(const struct entry *e) { return (const char *)e; }
static inline enum value_type entry_type(const struct entry *e) { return entry_raw(e)[0] & 7; }
static inline enum entry_form entry_form(const struct entry *e) { return (entry_raw(e)[0] >> 3) & 3; }
static inline bool entry_has_deadline(const struct entry *e) { return entry_raw(e)[0] & ENTRY_DEADLINE; }

static inline bool entry_has_companion(const struct entry *e) { return entry_raw(e)[0] & ENTRY_COMPANION; }
static inline char *entry_prefix(struct entry *e) { return (char *)e - ENTRY_PREFIX; } /* if it has one */

static inline u8 entry_mark(const struct entry *e) { return (u8)entry_raw(e)[0] & ENTRY_MARK; }

static inline i64 entry_deadline(const struct entry *e)
{
    i64 d = 0;
    if (entry_has_deadline(e)) memcpy(&d, entry_raw(e) + 6, 8);
    return d;
}

static inline wheel_pos entry_pos(const struct entry *e) /* only with a deadline */
{
    wheel_pos p;
    memcpy(&p, entry_raw(e) + 4, 2);
    return p;
}

static inline bytes entry_key(const struct entry *e)
{
    bytes k;
    k.p = length_read(entry_raw(e) + (entry_has_deadline(e) ? 14 : 4), &k.n);
    return k;
}

static inline const char *entry_value(const struct entry *e)
{
    bytes k = entry_key(e);
    return k.p + k.n;
}

static inline bytes entry_inline(const struct entry *e) /* not FORM_INT, FORM_POINTER */
{
    bytes v;
    v.p = length_read(entry_value(e), &v.n);
    return v;
}

static inline i64 entry_int(const struct entry *e)
{
    i64 v;
    memcpy(&v, entry_value(e), 8);
    return v;
}

static inline void *entry_object(const struct entry *e) /* FORM_POINTER */
{
    void *p;
    memcpy(&p, entry_value(e), sizeof p);
    return p;
}

static inline u32 entry_access(const struct entry *e)
{
    const u8 *p = (const u8 *)entry_raw(e);
    return (u32)p[1] | (u32)p[2] << 8 | (u32)p[3] << 16;
}

/* -- writing in place -------------------------------------------------------- */

static inline void entry_set_access(struct entry *e, u32 bits)
{
    u8 *p = (u8 *)e;
    p[1] = (u8)bits;
    p[2] = (u8)(bits >> 8);
    p[3] = (u8)(bits >> 16);
}

static inline void entry_set_deadline(struct entry *e, i64 deadline_ms, wheel_pos pos) /* already has one */
{
    memcpy((char *)e + 4, &pos, 2);
    memcpy((char *)e + 6, &deadline_ms, 8);
}

static inline void entry_set_form(struct entry *e, enum entry_form form)
{
    char *p = (char *)e;
    p[0] = (char)((p[0] & ~(3 << 3)) | form << 3);
}

static inline void entry_set_mark(struct entry *e, u8 mark) /* 0 or ENTRY_MARK */
{
    u8 *p = (u8 *)e;
    p[0] = (u8)((p[0] & ~ENTRY_MARK) | mark);
}

static inline void entry_set_int(struct entry *e, i64 v) { memcpy((char *)entry_value(e), &v, 8); }
static inline void entry_set_object(struct entry *e, void *p)
{
    memcpy((char *)entry_value(e), &p, sizeof p);
}

/* -- building ------------------------------------------------------------------ */

/* Bytes an entry needs for this key and this many bytes of value. */
static inline size_t entry_need(bytes key, bool deadline, size_t value_bytes)
{
    return (deadline ? 14u : 4u) + length_size(key.n) + key.n + value_bytes;
}

/* Bytes of the value as stored, for FORM_INLINE including the length prefix. */
static inline size_t entry_value_size(const struct entry *e)
{
    enum entry_form form = entry_form(e);
    if (form != FORM_INLINE && form != FORM_EDITED) return 8;
    bytes v = entry_inline(e);
    return length_size(v.n) + v.n;
}

/* Its bytes in use, and its allocation; without the prefix. */
static inline size_t entry_bytes(const struct entry *e)
{
    return (size_t)(entry_value(e) - entry_raw(e)) + entry_value_size(e);
}
static inline size_t entry_size(const struct entry *e) { return mem_room(entry_bytes(e)); }

/* Allocates an entry with access bits 0 and, if requested, room for a deadline. The caller writes the value
 * (value_bytes long) at entry_value(). mem_insert and mem_replace set the mark. */
struct entry *entry_new(bytes key, enum value_type, enum entry_form, bool deadline, size_t value_bytes);

/* A copy with another value, value_bytes long, which the caller writes, and without the prefix. */
struct entry *entry_resized(const struct entry *e, enum entry_form, size_t value_bytes);

/* A copy with a zeroed prefix, or without one. The original is the caller's to free. */
struct entry *entry_copy(const struct entry *e, bool prefix);

/* Frees the entry, not what value and prefix point to. */
static inline void entry_free(struct entry *e)
{
    mem_free((char *)e - (UNLIKELY(entry_has_companion(e)) ? ENTRY_PREFIX : 0));
}

#endif
