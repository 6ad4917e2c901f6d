/* Numbers in the records of streams: big-endian, and lengths of seven bits a byte. Only for the files that
 * know the layout. */
#ifndef MAYFLY_COMMAND_STREAM_STREAM_CODE_H
#define MAYFLY_COMMAND_STREAM_STREAM_CODE_H

#include <endian.h>

#include "command/stream/stream.h"

struct writer {
    char *p;
};

/* Reads zeros beyond the end: a record that could not be read is none. */
struct reader {
    const char *p, *end;
};

static inline void put_u32(struct writer *w, u32 v)
{
    v = htobe32(v);
    memcpy(w->p, &v, 4);
    w->p += 4;
}

static inline void put_u64(struct writer *w, u64 v)
{
    v = htobe64(v);
    memcpy(w->p, &v, 8);
    w->p += 8;
}

static inline void put_id(struct writer *w, struct stream_id id)
{
    stream_id_pack(w->p, id);
    w->p += STREAM_ID_RAW;
}

static inline bool reader_has(struct reader *r, size_t n)
{
    if ((size_t)(r->end - r->p) >= n) return true;
    r->p = r->end;
    return false;
}

static inline u32 get_u32(struct reader *r)
{
    u32 v;
    if (!reader_has(r, 4)) return 0;
    memcpy(&v, r->p, 4);
    r->p += 4;
    return be32toh(v);
}

static inline u64 get_u64(struct reader *r)
{
    u64 v;
    if (!reader_has(r, 8)) return 0;
    memcpy(&v, r->p, 8);
    r->p += 8;
    return be64toh(v);
}

static inline struct stream_id get_id(struct reader *r)
{
    struct stream_id id = {get_u64(r), 0};
    id.seq = get_u64(r);
    return id;
}

/* A node without its id, which is in the row's name. */
static inline void put_node(struct writer *w, const struct xnode *n)
{
    put_id(w, n->last);
    put_u32(w, n->live);
    put_u32(w, n->gone);
    put_u32(w, n->bytes);
    put_u64(w, n->fields);
}

static inline void get_node(struct reader *r, struct xnode *n)
{
    n->last = get_id(r);
    n->live = get_u32(r);
    n->gone = get_u32(r);
    n->bytes = get_u32(r);
    n->fields = get_u64(r);
}

static inline void put_varint(struct buf *to, u64 v)
{
    for (; v >= 128; v >>= 7) buf_append_char(to, (char)(v | 128));
    buf_append_char(to, (char)v);
}

static inline u64 get_varint(const char **p, const char *end)
{
    u64 v = 0;
    for (int shift = 0; *p < end && shift < 64; shift += 7) {
        u8 b = (u8)*(*p)++;
        v |= (u64)(b & 127) << shift;
        if (b < 128) break;
    }
    return v;
}

#endif
