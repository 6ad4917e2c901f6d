/* Reads Redis's compact encodings. Layouts:
 *
 *   ziplist   u32 bytes · u32 tail · u16 count · (size of the previous · head · data) … · 0xff
 *   zipmap    u8 count · (length · field · length · u8 spare · value · spare bytes) … · 0xff
 *   intset    u32 width · u32 count · ascending integers
 *   listpack  u32 bytes · u16 count · (head · data · own size, backward) … · 0xff
 *
 * Integers are little-endian, except for the lengths in ziplist and listpack heads. */
#include "ds/rdb_blob.h"

#define ZIPMAP_BIG 254
#define ZIPLIST_BIG 254

static u64 load_2(const char *p)
{
    u16 v;
    memcpy(&v, p, 2);
    return v;
}

static u64 load_4(const char *p)
{
    u32 v;
    memcpy(&v, p, 4);
    return v;
}

/* An integer of 1, 2, 3, 4 or 8 bytes. */
static i64 load_signed(const char *p, int n)
{
    u64 v;
    switch (n) {
    case 1: return (int8_t)*p;
    case 2: return (int16_t)load_2(p);
    case 3: return (i32)(load_2(p) << 8 | (u64)(u8)p[2] << 24) >> 8;
    case 4: return (i32)load_4(p);
    default: memcpy(&v, p, 8); return (i64)v;
    }
}

static size_t room(const struct rdb_blob *b) { return (size_t)(b->end - b->p); }

static bool rdb_blob_bad(struct rdb_blob *b, const char *what)
{
    b->error = what;
    return false;
}

/* An element as stored. */
struct element {
    bool is_int;
    i64 v;      /* if so … */
    bytes text; /* … and if not */
};

static bool take_int(struct element *item, i64 v)
{
    item->is_int = true;
    item->v = v;
    return true;
}

/* -- opening ----------------------------------------------------------------------------------- */

static void open_counted(struct rdb_blob *b, bytes raw, size_t header, size_t count_at)
{
    if (raw.n < header + 1 || load_4(raw.p) != raw.n) {
        b->error = "the size in its header is wrong";
        return;
    }
    u64 count = load_2(raw.p + count_at);
    if (count != RDB_BLOB_COUNTLESS) b->announced = count;
    b->p += header;
}

static void open_intset(struct rdb_blob *b, bytes raw)
{
    if (raw.n < 8) {
        b->error = "it is shorter than its header";
        return;
    }
    b->width = (u32)load_4(raw.p);
    b->announced = load_4(raw.p + 4);
    if (b->width != 2 && b->width != 4 && b->width != 8) b->error = "it holds integers of an odd size";
    else if (raw.n - 8 != b->announced * b->width) b->error = "the count in its header is wrong";
    b->p += 8;
}

void rdb_blob_open(struct rdb_blob *b, enum rdb_blob_kind kind, bytes raw)
{
    b->kind = kind; /* field by field: zeroing `digits` would be slow */
    b->p = raw.p;
    b->end = raw.p + raw.n;
    b->seen = b->previous = 0;
    b->announced = UINT64_MAX;
    b->error = NULL;
    switch (kind) {
    case BLOB_ZIPLIST: open_counted(b, raw, 10, 8); break;
    case BLOB_LISTPACK: open_counted(b, raw, RDB_LISTPACK_HEADER, 4); break;
    case BLOB_INTSET: open_intset(b, raw); break;
    case BLOB_ZIPMAP:
        if (raw.n < 2) b->error = "it is shorter than its header";
        else if ((u8)raw.p[0] < ZIPMAP_BIG) b->announced = 2 * (u64)(u8)raw.p[0];
        b->p += MIN(raw.n, 1);
    }
}

/* -- one element of each kind: false with an error, or nothing left ---------------------------- */

/* Takes n bytes from p + head on as the element and advances past them. */
static bool rdb_blob_take_bytes(struct rdb_blob *b, size_t head, u64 n, struct element *item)
{
    if (room(b) < head || room(b) - head < n) return rdb_blob_bad(b, "an element goes beyond its end");
    item->is_int = false;
    item->text = bytes_of(b->p + head, n);
    b->p += head + n;
    return true;
}

static bool next_in_intset(struct rdb_blob *b, struct element *item)
{
    if (b->p == b->end) return false;
    i64 v = load_signed(b->p, (int)b->width);
    if (b->seen && v <= load_signed(b->p - b->width, (int)b->width))
        return rdb_blob_bad(b, "its integers are not in order");
    b->p += b->width;
    return take_int(item, v);
}

static bool next_in_zipmap(struct rdb_blob *b, struct element *item)
{
    size_t head = 1, spare = 0;
    u64 n = (u8)*b->p;
    if (n == ZIPMAP_BIG) {
        head = 5;
        if (room(b) < head) return rdb_blob_bad(b, "an element goes beyond its end");
        n = load_4(b->p + 1);
    }
    if (b->seen & 1) { /* values may have spare bytes */
        if (room(b) < head + 1) return rdb_blob_bad(b, "an element goes beyond its end");
        spare = (u8)b->p[head++];
    }
    if (!rdb_blob_take_bytes(b, head, n, item)) return false;
    if (room(b) < spare) return rdb_blob_bad(b, "an element goes beyond its end");
    b->p += spare;
    return true;
}

/* Sets the length and returns the size of a string's head; 0: not a string. */
static size_t ziplist_string(const struct rdb_blob *b, u64 *n)
{
    const u8 *p = (const u8 *)b->p;
    size_t have = room(b);
    switch (p[0] >> 6) {
    case 0: *n = p[0]; return 1;
    case 1: *n = have < 2 ? 0 : (u64)(p[0] & 63) << 8 | p[1]; return 2;
    case 2:
        *n = have < 5 ? 0 : (u64)p[1] << 24 | (u64)p[2] << 16 | (u64)p[3] << 8 | p[4];
        return 5;
    default: return 0;
    }
}

static bool ziplist_int(struct rdb_blob *b, i64 *v)
{
    u8 first = (u8)*b->p;
    int size;
    switch (first) {
    case 0xc0: size = 2; break;
    case 0xd0: size = 4; break;
    case 0xe0: size = 8; break;
    case 0xf0: size = 3; break;
    case 0xfe: size = 1; break;
    default:
        if (first < 0xf1 || first > 0xfd) return rdb_blob_bad(b, "an element's encoding is unknown");
        *v = (first & 15) - 1;
        b->p++;
        return true;
    }
    if (room(b) < 1 + (size_t)size) return rdb_blob_bad(b, "an element goes beyond its end");
    *v = load_signed(b->p + 1, size);
    b->p += 1 + size;
    return true;
}

static bool next_in_ziplist(struct rdb_blob *b, struct element *item)
{
    const char *start = b->p;
    u64 n = (u8)*b->p;
    size_t head = 1;
    if (n == ZIPLIST_BIG) {
        head = 5;
        n = room(b) < head ? UINT64_MAX : load_4(b->p + 1);
    }
    if (n != b->previous) return rdb_blob_bad(b, "an element tells a wrong size of the one before it");
    b->p += head;
    if (room(b) == 0) return rdb_blob_bad(b, "an element goes beyond its end");
    head = ziplist_string(b, &n);
    i64 v;
    if (head) {
        if (!rdb_blob_take_bytes(b, head, n, item)) return false;
    } else {
        if (!ziplist_int(b, &v)) return false;
        take_int(item, v);
    }
    b->previous = (size_t)(b->p - start);
    return true;
}

static bool is_backward(const char *p, u64 n)
{
    char want[5];
    if (LIKELY(n <= 127)) return (u8)*p == n;
    rdb_put_backward(want, n);
    return memcmp(p, want, listpack_backward_cost(n)) == 0;
}

static bool listpack_int(struct rdb_blob *b, i64 *v)
{
    const u8 *p = (const u8 *)b->p;
    int size = 0;
    if (p[0] < 0x80) {
        *v = p[0];
    } else if (p[0] >> 5 == 6) {
        size = 1;
        if (room(b) >= 2) *v = (i64)((u64)(p[0] << 8 | p[1]) << 51) >> 51; /* 13 bits */
    } else {
        if (p[0] < 0xf1 || p[0] > 0xf4) return rdb_blob_bad(b, "an element's encoding is unknown");
        size = p[0] == 0xf4 ? 8 : p[0] - 0xf1 + 2;
        if (room(b) > (size_t)size) *v = load_signed(b->p + 1, size);
    }
    if (room(b) < 1 + (size_t)size) return rdb_blob_bad(b, "an element goes beyond its end");
    b->p += 1 + size;
    return true;
}

static size_t listpack_string(const struct rdb_blob *b, u64 *n)
{
    const u8 *p = (const u8 *)b->p;
    if (p[0] >> 6 == 2) {
        *n = p[0] & 63;
        return 1;
    }
    if (p[0] >> 4 == 14) {
        *n = room(b) < 2 ? 0 : (u64)(p[0] & 15) << 8 | p[1];
        return 2;
    }
    if (p[0] != 0xf0) return 0;
    *n = room(b) < 5 ? 0 : load_4(b->p + 1);
    return 5;
}

static bool next_in_listpack(struct rdb_blob *b, struct element *item)
{
    const char *start = b->p;
    u64 n;
    i64 v = 0;
    size_t head = listpack_string(b, &n);
    if (head) {
        if (!rdb_blob_take_bytes(b, head, n, item)) return false;
    } else {
        if (!listpack_int(b, &v)) return false;
        take_int(item, v);
    }
    n = (u64)(b->p - start);
    size_t size = listpack_backward_cost(n);
    if (room(b) < size || !is_backward(b->p, n))
        return rdb_blob_bad(b, "an element tells a wrong size of its own");
    b->p += size;
    return true;
}

static bool at_end_mark(struct rdb_blob *b)
{
    if (room(b) == 0) return rdb_blob_bad(b, "it has no end mark");
    if ((u8)*b->p != RDB_BLOB_END) return false;
    if (room(b) != 1) return rdb_blob_bad(b, "there are bytes after its end mark");
    if (b->announced != UINT64_MAX && b->announced != b->seen)
        return rdb_blob_bad(b, "the count in its header is wrong");
    return true;
}

static bool next_element(struct rdb_blob *b, struct element *item)
{
    bool got = false;
    if (b->error) return false;
    if (b->kind != BLOB_INTSET && (at_end_mark(b) || b->error)) return false;
    switch (b->kind) {
    case BLOB_ZIPLIST: got = next_in_ziplist(b, item); break;
    case BLOB_ZIPMAP: got = next_in_zipmap(b, item); break;
    case BLOB_INTSET: got = next_in_intset(b, item); break;
    case BLOB_LISTPACK: got = next_in_listpack(b, item); break;
    }
    b->seen += got;
    return got;
}

bool rdb_blob_next(struct rdb_blob *b, bytes *item)
{
    struct element x;
    if (!next_element(b, &x)) return false;
    if (x.is_int) {
        char *digits = b->digits[b->seen % RDB_BLOB_KEPT];
        x.text = bytes_of(digits, num_print_i64(digits, x.v));
    }
    *item = x.text;
    return true;
}

bool rdb_blob_next_score(struct rdb_blob *b, double *score)
{
    struct element x;
    if (!next_element(b, &x)) return false;
    if (x.is_int) *score = (double)x.v;
    else if (!num_parse_double(x.text, score)) return rdb_blob_bad(b, "a score is not a number");
    return true;
}
