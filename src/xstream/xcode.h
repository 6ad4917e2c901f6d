/* Encoding of stream records: big-endian integers, and varints (seven bits per byte) for lengths. Included
 * only by the files that know the record layout. */
#ifndef MAYFLY_XSTREAM_XCODE_H
#define MAYFLY_XSTREAM_XCODE_H

#include <endian.h>

#include "xstream/xstream.h"

struct writer {
    char *p;
};

/* Reading past the end yields zeros, so a record the engine failed to read decodes as empty. */
struct reader {
    const char *p, *end;
};

static inline void writer_put_u32(struct writer *w, u32 v)
{
    v = htobe32(v);
    memcpy(w->p, &v, 4);
    w->p += 4;
}

static inline void writer_put_u64(struct writer *w, u64 v)
{
    v = htobe64(v);
    memcpy(w->p, &v, 8);
    w->p += 8;
}

static inline void writer_put_id(struct writer *w, struct stream_id id)
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

static inline u8 reader_get_u8(struct reader *r) { return reader_has(r, 1) ? (u8)*r->p++ : 0; }

static inline u32 reader_get_u32(struct reader *r)
{
    u32 v;
    if (!reader_has(r, 4)) return 0;
    memcpy(&v, r->p, 4);
    r->p += 4;
    return be32toh(v);
}

static inline u64 reader_get_u64(struct reader *r)
{
    u64 v;
    if (!reader_has(r, 8)) return 0;
    memcpy(&v, r->p, 8);
    r->p += 8;
    return be64toh(v);
}

static inline struct stream_id reader_get_id(struct reader *r)
{
    struct stream_id id = {reader_get_u64(r), 0};
    id.seq = reader_get_u64(r);
    return id;
}

/* A node record: the last ID and the rest. It omits the node's id, which is in the row's key. */
static inline void writer_put_node_rest(struct writer *w, const struct xnode *n)
{
    writer_put_u32(w, n->live);
    writer_put_u32(w, n->gone);
    writer_put_u32(w, n->bytes);
    writer_put_u64(w, n->fields);
}

static inline void writer_put_node(struct writer *w, const struct xnode *n)
{
    writer_put_id(w, n->last);
    writer_put_node_rest(w, n);
}

static inline void reader_get_node_rest(struct reader *r, struct xnode *n)
{
    n->live = reader_get_u32(r);
    n->gone = reader_get_u32(r);
    n->bytes = reader_get_u32(r);
    n->fields = reader_get_u64(r);
}

static inline void reader_get_node(struct reader *r, struct xnode *n)
{
    n->last = reader_get_id(r);
    reader_get_node_rest(r, n);
}

static inline void xentry_put_varint(struct buf *to, u64 v)
{
    for (; v >= 128; v >>= 7) buf_append_char(to, (char)(v | 128));
    buf_append_char(to, (char)v);
}

static inline u64 xentry_get_varint(const char **p, const char *end)
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
