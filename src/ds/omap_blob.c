/* The first element of a blob is its model, the others are rows:
 *
 *   model    u8 n · n bytes of a name · the beginning of a value
 *   row      u8 front · u8 shared · mask · bytes · rest of the value
 *   or       u8 PLAIN · u8 front · u8 shared · length · rest of the name · rest of the value
 *
 * A row's name begins with `front` bytes of the model's name, their common prefix, and its value with
 * `shared` bytes of the model's value. The first form is for names as long as the model's: after the front,
 * the mask has a bit for each byte (in byte order, lowest bit first), followed by the bytes that differ. So
 * an increasing id costs only the bytes that changed. A length is one byte, or 0xff and four bytes. */
#include "ds/omap_blob.h"

#include "base/alloc.h"
#include "base/err.h"

#define MODEL_MAX 254    /* maximum bytes of a name, and of a value, in a model */
#define SHARING_MAX 1024 /* longer values are stored whole: reading them would have to join two slices */
#define PLAIN 0xff
#define LONG 0xff
#define ROW_HEAD_MAX (3 + 1 + 4 + OMAP_MASKED_MAX / 8) /* upper bound of the bytes before the name */

struct model {
    bytes name, value;
};

static struct model model_of(const packed *b)
{
    bytes text = packed_get(b, packed_first(b));
    size_t n = (u8)text.p[0];
    return (struct model){bytes_of(text.p + 1, n), bytes_of(text.p + 1 + n, text.n - 1 - n)};
}

static size_t same_front(bytes a, bytes b)
{
    size_t n = 0, most = MIN(a.n, b.n);
    while (n < most && a.p[n] == b.p[n]) n++;
    return n;
}

/* -- reading ------------------------------------------------------------------------------ */

static const char *read_length(const char *p, size_t *n)
{
    u32 v;
    *n = (u8)*p;
    if (LIKELY(*n != LONG)) return p + 1;
    memcpy(&v, p + 1, 4);
    *n = v;
    return p + 5;
}

/* Writes the name after the front: the model's, with some bytes replaced. Returns the end of the replaced
 * bytes. */
static const char *omap_blob_unmask(bytes model, const char *p, char *to)
{
    const u8 *mask = (const u8 *)p;
    p += (model.n + 7) / 8;
    for (size_t i = 0; i < model.n; i++) to[i] = mask[i / 8] >> i % 8 & 1 ? *p++ : model.p[i];
    return p;
}

static void row_decode(const struct model *m, bytes text, struct omap_row *row)
{
    const char *p = text.p, *end = text.p + text.n;
    bool plain = (u8)*p == PLAIN;
    if (plain) p++;
    size_t front = (u8)*p++, shared = (u8)*p++;
    row->name[0] = bytes_of(m->name.p, front);
    row->value[0] = bytes_of(m->value.p, shared);
    if (plain) {
        size_t n;
        p = read_length(p, &n);
        row->name[1] = bytes_of(p, n);
        p += n;
    } else {
        row->name[1] = bytes_of(row->text, m->name.n - front);
        p = omap_blob_unmask(bytes_of(m->name.p + front, m->name.n - front), p, row->text);
    }
    row->value[1] = bytes_of(p, (size_t)(end - p));
}

void omap_blob_read(const packed *b, u32 at, struct omap_row *row)
{
    struct model m = model_of(b);
    row_decode(&m, packed_get(b, at), row);
}

/* The first byte of a row's name after the front; -1: there is none. */
static int row_byte(const struct model *m, const char *p)
{
    size_t n;
    if ((u8)*p == PLAIN) {
        p = read_length(p + 3, &n);
        return n ? (u8)*p : -1;
    }
    n = m->name.n - (u8)*p; /* if it isn't empty, its first byte differs from the model's, and so is stored */
    return n ? (u8)p[2 + (n + 7) / 8] : -1;
}

/* Compares a row's name with another one, whose common prefix with the model is `same` bytes. Comparing the
 * two prefix lengths decides most cases, and the first byte after the row's most of the others. */
static int row_cmp(const struct model *m, bytes text, bytes name, size_t same)
{
    size_t front = (u8)text.p[(u8)text.p[0] == PLAIN];
    if (front > same) return same == name.n ? 1 : (u8)m->name.p[same] - (u8)name.p[same];
    int byte = row_byte(m, text.p), other = front < name.n ? (u8)name.p[front] : -1;
    if (byte != other) return byte - other;
    struct omap_row row;
    row_decode(m, text, &row);
    return bytes_cmp(row.name[1], bytes_of(name.p + front, name.n - front));
}

int omap_blob_cmp(const packed *b, u32 at, bytes name)
{
    struct model m = model_of(b);
    return row_cmp(&m, packed_get(b, at), name, same_front(m.name, name));
}

/* Tries the last row first, because most maps grow at the end. */
u32 omap_blob_find(const packed *b, bytes name, bool *equal)
{
    struct model m = model_of(b);
    size_t same = same_front(m.name, name);
    *equal = false;
    if (row_cmp(&m, packed_get(b, packed_last(b)), name, same) < 0) return PACKED_END;
    for (u32 at = omap_blob_first(b);; at = packed_next(b, at)) {
        int c = row_cmp(&m, packed_get(b, at), name, same);
        if (c < 0) continue;
        *equal = c == 0;
        return at;
    }
}

/* -- writing ------------------------------------------------------------------------------ */

static char *omap_blob_write(char *to, bytes b)
{
    if (b.n) memcpy(to, b.p, b.n);
    return to + b.n;
}

char *omap_join_name(const struct omap_row *r, char *to)
{
    return omap_blob_write(omap_blob_write(to, r->name[0]), r->name[1]);
}

char *omap_join_value(const struct omap_row *r, char *to)
{
    return omap_blob_write(omap_blob_write(to, r->value[0]), r->value[1]);
}

/* A buffer for encoding a row, usually on the stack. */
struct scratch {
    char *p;
    char small[512];
};

static char *scratch_open(struct scratch *s, size_t n)
{
    return s->p = n <= sizeof s->small ? s->small : mem_alloc(n);
}

static void scratch_close(struct scratch *s)
{
    if (s->p != s->small) mem_free(s->p);
}

/* Writes the mask and the bytes that differ. */
static char *write_masked(char *to, bytes model, bytes name)
{
    u8 *mask = (u8 *)to;
    size_t masks = (model.n + 7) / 8;
    memset(to, 0, masks);
    to += masks;
    for (size_t i = 0; i < model.n; i++) {
        if (model.p[i] == name.p[i]) continue;
        mask[i / 8] |= (u8)(1u << i % 8);
        *to++ = name.p[i];
    }
    return to;
}

static char *write_plain(char *to, bytes name)
{
    u32 n = (u32)name.n;
    if (LIKELY(n < LONG)) {
        *to++ = (char)n;
    } else {
        *to++ = (char)LONG;
        to = omap_blob_write(to, bytes_of(&n, 4));
    }
    return omap_blob_write(to, name);
}

static bytes row_encode(const packed *b, bytes name, bytes value, struct scratch *s)
{
    struct model m = model_of(b);
    bool plain = name.n != m.name.n || name.n > OMAP_MASKED_MAX;
    size_t front = same_front(m.name, name), shared = value.n <= SHARING_MAX ? same_front(m.value, value) : 0;
    bytes of_model = bytes_of(m.name.p + front, m.name.n - front);
    bytes rest = bytes_of(name.p + front, name.n - front);
    char *p = scratch_open(s, ROW_HEAD_MAX + rest.n + value.n);
    if (plain) *p++ = (char)PLAIN;
    *p++ = (char)front;
    *p++ = (char)shared;
    p = plain ? write_plain(p, rest) : write_masked(p, of_model, rest);
    p = omap_blob_write(p, bytes_of(value.p + shared, value.n - shared));
    return bytes_of(s->p, (size_t)(p - s->p));
}

bool omap_blob_put(packed **b, u32 max, u32 at, bool replace, bytes name, bytes value)
{
    struct scratch s;
    bytes row = row_encode(*b, name, value, &s);
    size_t old = replace ? packed_cost(packed_get(*b, at).n) : 0;
    bool room = packed_bytes(*b) - old + packed_cost(row.n) <= max || omap_blob_rows(*b) == replace;
    if (room) *b = replace ? packed_replace(*b, at, row) : packed_insert(*b, at, row);
    scratch_close(&s);
    return room;
}

packed *omap_blob_new(bytes name, bytes value)
{
    char text[1 + 2 * MODEL_MAX];
    size_t shared = value.n <= SHARING_MAX ? MIN(value.n, MODEL_MAX) : 0;
    bytes n = bytes_of(name.p, MIN(name.n, MODEL_MAX));
    text[0] = (char)n.n;
    char *end = omap_blob_write(omap_blob_write(text + 1, n), bytes_of(value.p, shared));
    packed *b = packed_insert(packed_new(), PACKED_END, bytes_of(text, (size_t)(end - text)));
    CHECK(omap_blob_put(&b, 0, PACKED_END, false, name, value));
    return b;
}

/* Appends the row at `at` of another blob if there is room. Creates the blob if *b is NULL. */
static bool append_row(packed **b, u32 max, const packed *from, u32 at)
{
    struct omap_row row;
    struct scratch s;
    omap_blob_read(from, at, &row);
    char *p = scratch_open(&s, omap_name_size(&row) + omap_value_size(&row));
    omap_join_value(&row, omap_join_name(&row, p));
    bytes name = bytes_of(p, omap_name_size(&row)), value = bytes_of(p + name.n, omap_value_size(&row));
    bool room = true;
    if (*b) room = omap_blob_put(b, max, PACKED_END, false, name, value);
    else *b = omap_blob_new(name, value);
    scratch_close(&s);
    return room;
}

void omap_blob_append(packed **b, u32 max, const packed *from, u32 *at)
{
    while (*at != PACKED_END && append_row(b, max, from, *at)) *at = packed_next(from, *at);
}

packed *omap_blob_new_from(const packed *from, u32 max, u32 *at)
{
    packed *b = NULL;
    omap_blob_append(&b, max, from, at);
    return b;
}
