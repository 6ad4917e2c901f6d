/* A region's data as text, one line per key in a fixed order, so that two
 * datasets are equal exactly if their texts are; and what must hold of any. */
#ifndef MAYFLY_TESTS_EXEC_DATASET_H
#define MAYFLY_TESTS_EXEC_DATASET_H

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"
#include "xstream/xgroup.h"
#include "engine/engine.h"

/* -- lists of names ------------------------------------------------------------- */

/* A name with what belongs to it; slices of the engine's own memory. */
struct dump_item {
    bytes name, value;
    i64 deadline_ms;
};

struct dump_items {
    struct dump_item *v;
    size_t n, cap;
};

static inline void dump_items_add(struct dump_items *l, struct dump_item item)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 16;
        l->v = mem_realloc(l->v, l->cap * sizeof *l->v);
    }
    l->v[l->n++] = item;
}

static inline int dump_by_name(const void *a, const void *b)
{
    return bytes_cmp(((const struct dump_item *)a)->name, ((const struct dump_item *)b)->name);
}

static inline void dump_items_sort(struct dump_items *l)
{
    if (l->n > 1) qsort(l->v, l->n, sizeof *l->v, dump_by_name);
}

static inline void dump_collect(void *arg, struct key_ref *ref)
{
    dump_items_add(arg, (struct dump_item){.name = ref->key});
}

/* Every key of a database, dead ones included, by name. */
static inline struct dump_items dump_keys(struct engine *e, u32 db)
{
    struct dump_items keys = {0};
    u64 cursor = 0;
    do cursor = e->ops->scan(e, db, cursor, 1024, dump_collect, &keys);
    while (cursor);
    dump_items_sort(&keys);
    return keys;
}

/* -- writing -------------------------------------------------------------------- */

static inline void dump_bytes(struct buf *out, bytes b)
{
    static const char hex[] = "0123456789abcdef";
    char *p = buf_reserve(out, b.n * 3 + 2), *start = p;
    *p++ = '"';
    for (size_t i = 0; i < b.n; i++) {
        u8 c = (u8)b.p[i];
        if (c > ' ' && c < 0x7f && c != '"' && c != '%') {
            *p++ = (char)c;
        } else {
            *p++ = '%';
            *p++ = hex[c >> 4];
            *p++ = hex[c & 15];
        }
    }
    *p++ = '"';
    out->n += (size_t)(p - start);
}

static inline void dump_deadline(struct buf *out, i64 deadline_ms)
{
    char digits[NUM_I64_LEN];
    if (!deadline_ms) return;
    buf_append_char(out, '@');
    buf_append(out, digits, num_print_i64(digits, deadline_ms));
}

/* Fields in the order of their names: the engine's own order is chance. */
static inline u64 dump_map(struct engine *e, struct key_ref *ref, struct buf *out)
{
    struct dump_items items = {0};
    struct map_iter it;
    struct dump_item f = {0};
    bool hash = ref->type == TYPE_HASH;
    e->ops->map.iter(e, ref, &it);
    while (e->ops->map.next(&it, &f.name, &f.value)) {
        if (hash) CHECK(e->ops->map.field_deadline(e, ref, f.name, &f.deadline_ms));
        dump_items_add(&items, f);
    }
    dump_items_sort(&items);
    for (size_t i = 0; i < items.n; i++) {
        CHECK(i == 0 || !bytes_eq(items.v[i].name, items.v[i - 1].name));
        buf_append_char(out, ' ');
        dump_bytes(out, items.v[i].name);
        if (hash) buf_append_char(out, '=');
        if (hash) dump_bytes(out, items.v[i].value);
        dump_deadline(out, items.v[i].deadline_ms);
    }
    u64 n = items.n;
    mem_free(items.v);
    return n;
}

static inline u64 dump_list(struct engine *e, struct key_ref *ref, struct buf *out)
{
    struct seq_iter it;
    bytes value;
    u64 n = 0;
    e->ops->seq.iter(e, ref, 0, false, &it);
    for (; e->ops->seq.next(&it, &value); n++) {
        buf_append_char(out, ' ');
        dump_bytes(out, value);
    }
    return n;
}

static inline u64 dump_zset(struct engine *e, struct key_ref *ref, struct buf *out)
{
    struct zset_seek from_lowest = {.by = ZSEEK_RANK};
    struct zset_iter it;
    bytes member;
    double score, last = 0;
    char text[64];
    u64 n = 0;
    e->ops->zset.iter(e, ref, &from_lowest, &it);
    for (; e->ops->zset.next(&it, &member, &score); n++) {
        CHECK(score == score && (n == 0 || last <= score));
        last = score;
        buf_append_char(out, ' ');
        dump_bytes(out, member);
        buf_append_char(out, '=');
        buf_append(out, text, num_print_double(text, score));
    }
    return n;
}

static inline void dump_id(struct buf *out, struct stream_id id)
{
    buf_printf(out, " %llu-%llu", (unsigned long long)id.ms, (unsigned long long)id.seq);
}

/* What a consumer has pending, which must be what its group has under its number. */
static inline u64 dump_owned(struct xstream *s, struct xgroup *g, struct xconsumer *c, struct buf *out)
{
    struct xwalk w;
    struct stream_id id;
    struct xpending p;
    u64 n = 0;
    xpending_walk(&w, s, g, c, STREAM_ID_MIN, STREAM_ID_MAX, false);
    for (; xwalk_next(&w, &id, NULL); n++) {
        CHECK(xpending_find(s, g, id, &p) && p.consumer == c->number);
        dump_id(out, id);
        buf_printf(out, "@%lld*%llu", (long long)p.time_ms, (unsigned long long)p.count);
    }
    CHECK(n == c->pending);
    return n;
}

/* When a consumer was seen is no part of it: no journal tells that. */
static inline void dump_group(struct xstream *s, bytes name, struct xgroup *g, struct buf *out)
{
    struct xname_walk w;
    struct xconsumer c;
    bytes consumer, found;
    u64 n = 0, pending = 0;
    buf_append_str(out, " group ");
    dump_bytes(out, name);
    dump_id(out, g->last);
    buf_printf(out, " read %lld", (long long)g->entries_read);
    xconsumer_walk(&w, s, g);
    for (; xconsumer_next(&w, &consumer, &c); n++) {
        found = xconsumer_name(s, g, c.number);
        CHECK(bytes_eq(found, consumer));
        buf_append_str(out, " consumer ");
        dump_bytes(out, consumer);
        pending += dump_owned(s, g, &c, out);
    }
    xname_walk_end(&w);
    CHECK(n == g->consumers && pending == g->pending);
}

/* Redis's nodes are not shown, as a file leaves deleted entries out of them; but they must add up. */
static inline void check_nodes(struct xstream *s)
{
    struct xnode_walk w;
    struct xnode n;
    u64 live = 0, nodes = 0;
    xnode_walk(&w, s);
    for (; xnode_next(&w, &n); nodes++) live += n.live;
    CHECK(live == s->length && nodes == s->nodes);
}

/* shared: only what sites have in common. */
static inline u64 dump_stream(struct engine *e, struct key_ref *ref, bool shared, struct buf *out)
{
    struct xstream s;
    struct xwalk w;
    struct xname_walk groups;
    struct xgroup g;
    struct stream_id id;
    bytes value;
    u64 n = 0, group_count = 0;
    xstream_open(&s, e, ref);
    check_nodes(&s);
    dump_id(out, s.last);
    dump_id(out, s.first);
    if (!shared) dump_id(out, s.max_deleted);
    if (!shared) buf_printf(out, " added %llu", (unsigned long long)s.added);
    xstream_walk(&w, &s, STREAM_ID_MIN, STREAM_ID_MAX, false);
    for (; xwalk_next(&w, &id, &value); n++) {
        CHECK(n || stream_id_cmp(id, s.first) == 0);
        dump_id(out, id);
        buf_append_char(out, '=');
        dump_bytes(out, value);
    }
    if (shared) return n;
    xgroup_walk(&groups, &s);
    for (; xgroup_next(&groups, &value, &g); group_count++) dump_group(&s, value, &g, out);
    xname_walk_end(&groups);
    CHECK(group_count == s.groups);
    return n;
}

static inline u64 dump_string(struct engine *e, struct key_ref *ref, struct buf *out)
{
    struct str_view view;
    e->ops->str.get(e, ref, &view);
    buf_append_char(out, ' ');
    dump_bytes(out, view.b);
    return view.b.n;
}

/* One line. The elements met must be as many as size() says; that is the check
 * of the engine's counts, for all types. */
static inline void dump_key(struct engine *e, struct key_ref *ref, bool shared, struct buf *out)
{
    static const char *const types[] = {"?", "string", "hash", "list", "set", "zset", "stream"};
    u64 n = 0;
    dump_bytes(out, ref->key);
    dump_deadline(out, ref->deadline_ms);
    buf_append_char(out, ' ');
    buf_append_str(out, types[ref->type]);
    switch (ref->type) {
    case TYPE_STRING: n = dump_string(e, ref, out); break;
    case TYPE_HASH:
    case TYPE_SET: n = dump_map(e, ref, out); break;
    case TYPE_LIST: n = dump_list(e, ref, out); break;
    case TYPE_ZSET: n = dump_zset(e, ref, out); break;
    case TYPE_STREAM: n = dump_stream(e, ref, shared, out); break;
    case TYPE_NONE: CHECK(!"a key has a type");
    }
    CHECK(n == e->ops->size(e, ref));
    buf_append_char(out, '\n');
}

/* A collection without elements is no key, unless all its fields just died. */
static inline bool dump_is_hollow(struct engine *e, struct key_ref *ref)
{
    if (ref->type == TYPE_STRING || ref->type == TYPE_STREAM || e->ops->size(e, ref)) return false;
    CHECK(ref->type == TYPE_HASH && e->ops->map.has_field_deadlines(e, ref));
    return true;
}

/* What a reader sees of all databases at this time: live keys, live fields. At
 * time 0 nothing is dead, so that shows all there physically is. */
static inline void dataset_dump_as(struct engine *e, i64 now_ms, bool shared, struct buf *out)
{
    e->ops->begin(e, now_ms);
    buf_clear(out);
    for (u32 db = 0; db < e->databases; db++) {
        struct dump_items keys = dump_keys(e, db);
        u64 with_deadline = 0;
        buf_printf(out, "db %u\n", db);
        for (size_t i = 0; i < keys.n; i++) {
            struct key_ref ref;
            CHECK(i == 0 || !bytes_eq(keys.v[i].name, keys.v[i - 1].name));
            CHECK(e->ops->find(e, db, keys.v[i].name, &ref));
            with_deadline += ref.deadline_ms != 0;
            if (alive(ref.deadline_ms, now_ms) && !dump_is_hollow(e, &ref)) dump_key(e, &ref, shared, out);
        }
        CHECK(keys.n == e->ops->count(e, db));
        CHECK(with_deadline == e->ops->expires(e, db));
        mem_free(keys.v);
    }
}

static inline void dataset_dump(struct engine *e, i64 now_ms, struct buf *out)
{
    dataset_dump_as(e, now_ms, false, out);
}

#endif
