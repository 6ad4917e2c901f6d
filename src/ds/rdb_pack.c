/* Writes listpacks and intsets. rdb_blob.c describes the layouts. */
#include <stdlib.h>

#include "ds/rdb_blob.h"

void rdb_put_backward(char *to, u64 n)
{
    size_t size = listpack_backward_cost(n);
    for (size_t i = 0; i < size; i++)
        to[i] = (char)((n >> 7 * (size - 1 - i) & 127) | (i ? 128 : 0));
}

void rdb_pack_begin(struct buf *pack)
{
    buf_clear(pack);
    memset(buf_reserve(pack, RDB_LISTPACK_HEADER), 0, RDB_LISTPACK_HEADER);
    pack->n = RDB_LISTPACK_HEADER;
}

/* Writes the head of an integer and its data. Returns the size of both. */
static size_t int_head(i64 v, char to[9])
{
    if (v >= 0 && v <= 127) {
        to[0] = (char)v;
        return 1;
    }
    if (v >= -4096 && v <= 4095) {
        to[0] = (char)(0xc0 | ((u64)v >> 8 & 0x1f));
        to[1] = (char)v;
        return 2;
    }
    int size = v >= INT16_MIN && v <= INT16_MAX ? 2 : v >= -(1 << 23) && v < 1 << 23 ? 3
             : v >= INT32_MIN && v <= INT32_MAX ? 4 : 8;
    to[0] = (char)(size == 8 ? 0xf4 : 0xf1 + size - 2);
    memcpy(to + 1, &v, (size_t)size);
    return 1 + (size_t)size;
}

static size_t string_head(size_t n, char to[5])
{
    if (n < 64) {
        to[0] = (char)(0x80 | n);
        return 1;
    }
    if (n < 4096) {
        to[0] = (char)(0xe0 | n >> 8);
        to[1] = (char)n;
        return 2;
    }
    to[0] = (char)0xf0;
    memcpy(to + 1, &n, 4);
    return 5;
}

static void add_backward(struct buf *pack, u64 n)
{
    rdb_put_backward(buf_reserve(pack, 5), n);
    pack->n += listpack_backward_cost(n);
}

void rdb_pack_add(struct buf *pack, bytes item)
{
    char head[9];
    i64 v;
    size_t n;
    if (num_parse_i64(item, &v)) {
        n = int_head(v, head);
        item.n = 0;
    } else {
        n = string_head(item.n, head);
    }
    buf_append(pack, head, n);
    buf_append_bytes(pack, item);
    add_backward(pack, n + item.n);
}

static void rdb_pack_write_header(char *to, size_t size, u64 count)
{
    u16 shown = (u16)MIN(count, RDB_BLOB_COUNTLESS);
    u32 total = (u32)size;
    memcpy(to, &total, 4);
    memcpy(to + 4, &shown, 2);
}

void rdb_pack_end(struct buf *pack, u64 count)
{
    buf_append_char(pack, (char)RDB_BLOB_END);
    rdb_pack_write_header(pack->p, pack->n, count);
}

size_t rdb_pack_around(size_t n, struct buf *head, struct buf *tail)
{
    char text[5];
    size_t text_n = string_head(n, text);
    rdb_pack_begin(head);
    buf_append(head, text, text_n);
    buf_clear(tail);
    add_backward(tail, text_n + n);
    buf_append_char(tail, (char)RDB_BLOB_END);
    size_t size = head->n + n + tail->n;
    rdb_pack_write_header(head->p, size, 1);
    return size;
}

static int rdb_intset_by_value(const void *a, const void *b)
{
    i64 x, y;
    memcpy(&x, a, 8);
    memcpy(&y, b, 8);
    return (x > y) - (x < y);
}

void rdb_intset(struct buf *out, i64 *v, u32 n)
{
    u32 width = 2;
    qsort(v, n, sizeof *v, rdb_intset_by_value);
    if (n && (v[0] < INT16_MIN || v[n - 1] > INT16_MAX)) width = 4;
    if (n && (v[0] < INT32_MIN || v[n - 1] > INT32_MAX)) width = 8;
    buf_clear(out);
    buf_append(out, &width, 4);
    buf_append(out, &n, 4);
    for (u32 i = 0; i < n; i++) buf_append(out, &v[i], width);
}
