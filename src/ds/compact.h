/* The elements of a small collection, one after another in a few bytes, without pointers and lengths to
 * spare. The caller owns the memory; these functions read it, and write elements to where the caller made
 * room.
 *
 * An element is an item (of a list or a set) or a pair of items (field and value, member and score). An item
 * is a string, or an integer that has fewer bytes than its digits.
 *
 *   pair     +-------------+--------+----------+--------+----------+     code 0-11  string of that length
 *            | code : code | [wide] | 1st item | [wide] | 2nd item |          12-14 integer: 1, 2, 4 bytes
 *            +-------------+--------+----------+--------+----------+          15    see its wide head
 *
 *   single   +------+------+     wide 0x00-0xef  string of that length
 *            | wide | item |          0xf0-0xf3  integer of 1, 2, 4, 8 bytes
 *            +------+------+          0xff       string, whose length is in the next four bytes
 *
 * So four fields of five bytes with values of five bytes take 44 bytes. Every text has exactly one form,
 * hence elements are sought by comparing bytes. A score is an integer of up to four bytes if it is one (and
 * not -0), otherwise the eight bytes of a double, with code 8.
 *
 *     struct compact_item field, value;
 *     compact_item_text(&field, BYTES_LIT("name"));
 *     compact_item_text(&value, BYTES_LIT("1234"));      // refers to itself: don't copy it
 *     u32 n = compact_need(&field, &value);              // 1 + 4 + 2
 *     compact_write(make_room(n), &field, &value); */
#ifndef MAYFLY_DS_COMPACT_H
#define MAYFLY_DS_COMPACT_H

#include "base/bytes.h"
#include "base/num.h"

/* An item to be written or sought. The bytes of a string stay the caller's. */
struct compact_item {
    const char *p; /* what is stored, n bytes */
    u32 n;
    u8 code, wide;
    i64 number;
};

void compact_item_text(struct compact_item *, bytes);
void compact_item_score(struct compact_item *, double);

/* An item where it is stored. */
struct compact_slot {
    const char *p;
    u32 n;
    bool is_int;
};

i64 compact_int(const struct compact_slot *); /* if it is one */
double compact_score(const struct compact_slot *);

/* The text of an item: its bytes in place, or digits printed to `digits` (at least NUM_I64_LEN bytes). */
static inline bytes compact_text(const struct compact_slot *s, char *digits)
{
    if (LIKELY(!s->is_int)) return bytes_of(s->p, s->n);
    return bytes_of(digits, num_print_i64(digits, compact_int(s)));
}

/* Bytes of an item with this code, if it has no wide head. */
extern const u8 compact_code_bytes[16];
#define COMPACT_INT 12u /* and 13, 14: of 1, 2, 4 bytes */
#define COMPACT_WIDE 15u
#define COMPACT_WIDE_INT 0xf0u /* to 0xf3: of 1, 2, 4, 8 bytes */
const char *compact_read_wide(const char *at, struct compact_slot *slot);

static inline const char *compact_read_half(const char *at, u32 code, struct compact_slot *slot)
{
    if (UNLIKELY(code == COMPACT_WIDE)) return compact_read_wide(at, slot);
    slot->p = at;
    slot->n = compact_code_bytes[code];
    slot->is_int = code >= COMPACT_INT;
    return at + slot->n;
}

/* Elements are read at a `const char *`. `pairs` says of what the elements consist, and must be the same for
 * all elements of a sequence. Reading returns the next element. */
static inline const char *compact_read_pair(const char *at, struct compact_slot *first,
                                            struct compact_slot *second)
{
    u32 codes = (u8)*at;
    return compact_read_half(compact_read_half(at + 1, codes >> 4, first), codes & 15, second);
}

static inline const char *compact_read(const char *at, struct compact_slot *slot) /* a single item */
{
    u32 n = (u8)*at;
    if (UNLIKELY(n >= COMPACT_WIDE_INT)) return compact_read_wide(at, slot);
    *slot = (struct compact_slot){.p = at + 1, .n = n};
    return at + 1 + n;
}

static inline const char *compact_next(const char *at, bool pairs)
{
    struct compact_slot first, second;
    return pairs ? compact_read_pair(at, &first, &second) : compact_read(at, &first);
}

static inline const char *compact_skip(const char *at, bool pairs, u32 elements)
{
    while (elements-- > 0) at = compact_next(at, pairs);
    return at;
}

/* The first element whose (first) item equals the given one; NULL: none. */
const char *compact_find(const char *at, const char *end, bool pairs, const struct compact_item *);

/* Bytes that an element takes. second: NULL for a single item. */
u32 compact_need(const struct compact_item *first, const struct compact_item *second);
char *compact_write(char *to, const struct compact_item *first, const struct compact_item *second);

/* Backward walks. There are no lengths to be read backwards, so each COMPACT_BACK elements cost a walk from
 * the beginning. Zeroed at first; elements from `before` on may change meanwhile. Offsets count from `start`.
 * False: there is none before. */
#define COMPACT_BACK 8u
struct compact_back {
    u32 n, top, at[COMPACT_BACK]; /* a ring of the n offsets before `top` */
};
bool compact_prev(struct compact_back *, const char *start, u32 before, bool pairs, u32 *at);

#endif
