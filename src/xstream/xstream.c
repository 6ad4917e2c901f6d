/* A stream's head and entries. The head is decoded into struct xstream when a stream is opened, and written
 * back once, when the command is done with it.
 *
 * Rows must not change during a walk, so deleting code first collects what to erase and then erases it. */
#include "xstream/xstream.h"

#include "xstream/xcode.h"

/* -- the head ---------------------------------------------------------------------------------- */

/* A head begins with its form and the last ID. HEAD_FULL has everything, for engines that write it to disk.
 * HEAD_SHORT is for memory, where a small stream's head is a third of it: it leaves out what has its usual
 * value, by the bits of a byte. */
enum { HEAD_FULL = 1, HEAD_SHORT = 2 };
enum {
    USUAL_LAST = 1,    /* the last ID is that of the last node, … */
    USUAL_FIRST = 2,   /* … and the first one its first: there is one node, whose first entry is there */
    USUAL_DELETED = 4, /* none was deleted */
    USUAL_ADDED = 8,   /* as many were added as there are */
    USUAL_GROUPS = 16, /* there have been no groups */
};

static u8 xstream_usual(const struct xstream *s)
{
    u8 usual = 0;
    if (s->nodes && stream_id_cmp(s->tail.last, s->last) == 0) usual |= USUAL_LAST;
    if (s->nodes && stream_id_cmp(s->tail.id, s->first) == 0) usual |= USUAL_FIRST;
    if (stream_id_zero(s->max_deleted)) usual |= USUAL_DELETED;
    if (s->added == s->length) usual |= USUAL_ADDED;
    if (s->next_group == 0 && s->groups == 0) usual |= USUAL_GROUPS;
    return usual;
}

void xstream_open(struct xstream *s, struct engine *eng, struct key_ref *ref)
{
    *s = (struct xstream){.eng = eng, .ref = ref};
    bytes head = eng->ops->rows.head(eng, ref);
    if (head.n == 0) return;
    struct reader r = {head.p + 1, head.p + head.n};
    s->length = eng->ops->size(eng, ref);
    s->last = reader_get_id(&r);
    u8 usual = head.p[0] == HEAD_SHORT ? reader_get_u8(&r) : 0;
    if (!(usual & USUAL_FIRST)) s->first = reader_get_id(&r);
    if (!(usual & USUAL_DELETED)) s->max_deleted = reader_get_id(&r);
    s->added = usual & USUAL_ADDED ? s->length : reader_get_u64(&r);
    if (!(usual & USUAL_GROUPS)) {
        s->groups = reader_get_u32(&r);
        s->next_group = reader_get_u32(&r);
    }
    s->nodes = reader_get_u32(&r);
    if (!s->nodes) return;
    s->tail.id = reader_get_id(&r);
    if (usual & USUAL_FIRST) s->first = s->tail.id;
    s->tail.last = usual & USUAL_LAST ? s->last : reader_get_id(&r);
    reader_get_node_rest(&r, &s->tail);
}

void xstream_save(struct xstream *s)
{
    char head[ROWS_HEAD_MAX];
    struct writer w = {head};
    bool full = s->eng->caps.durable;
    u8 usual = full ? 0 : xstream_usual(s);
    *w.p++ = full ? HEAD_FULL : HEAD_SHORT;
    writer_put_id(&w, s->last);
    if (!full) *w.p++ = (char)usual;
    if (!(usual & USUAL_FIRST)) writer_put_id(&w, s->first);
    if (!(usual & USUAL_DELETED)) writer_put_id(&w, s->max_deleted);
    if (!(usual & USUAL_ADDED)) writer_put_u64(&w, s->added);
    if (!(usual & USUAL_GROUPS)) {
        writer_put_u32(&w, s->groups);
        writer_put_u32(&w, s->next_group);
    }
    writer_put_u32(&w, s->nodes);
    if (s->nodes) {
        writer_put_id(&w, s->tail.id);
        if (!(usual & USUAL_LAST)) writer_put_id(&w, s->tail.last);
        writer_put_node_rest(&w, &s->tail);
    }
    s->eng->ops->rows.set_head(s->eng, s->ref, bytes_of(head, (size_t)(w.p - head)), s->length);
}

struct stream_id xstream_head_last(bytes head)
{
    return head.n > STREAM_ID_RAW ? stream_id_unpack(head.p + 1) : STREAM_ID_MIN;
}

/* -- entries ----------------------------------------------------------------------------------- */

void xentry_pack(struct buf *to, const bytes *pairs, u64 count)
{
    xentry_put_varint(to, count);
    for (u64 i = 0; i < 2 * count; i += 2) {
        xentry_put_varint(to, pairs[i].n);
        buf_append_bytes(to, pairs[i]);
    }
    for (u64 i = 1; i < 2 * count; i += 2) {
        xentry_put_varint(to, pairs[i].n);
        buf_append_bytes(to, pairs[i]);
    }
}

static bytes xentry_take(const char **p, const char *end)
{
    u64 n = xentry_get_varint(p, end);
    CHECK(n <= (u64)(end - *p));
    bytes part = bytes_of(*p, n);
    *p += n;
    return part;
}

void xentry_open(struct xentry *e, bytes row)
{
    *e = (struct xentry){.name = row.p, .end = row.p + row.n};
    if (row.n == 0) { /* the engine failed to read it; its sticky error is reported at commit */
        e->value = e->name;
        return;
    }
    e->count = e->left = xentry_get_varint(&e->name, e->end);
    e->value = e->name;
    for (u64 i = 0; i < e->count; i++) xentry_take(&e->value, e->end);
}

bool xentry_next(struct xentry *e, bytes *name, bytes *value)
{
    if (e->left == 0) return false;
    e->left--;
    *name = xentry_take(&e->name, e->end);
    *value = xentry_take(&e->value, e->end);
    return true;
}

void xentry_open_names(struct xentry *e, bytes names)
{
    *e = (struct xentry){.name = names.p, .end = names.p + names.n};
    e->count = names.n ? xentry_get_varint(&e->name, e->end) : 0;
}

bytes xentry_name(struct xentry *e) { return xentry_take(&e->name, e->end); }

bool xentry_ok(bytes row)
{
    const char *p = row.p, *end = row.p + row.n;
    if (row.n == 0) return false;
    u64 count = xentry_get_varint(&p, end);
    if (count == 0 || count > row.n) return false;
    for (u64 i = 0; i < 2 * count; i++) {
        if (p == end) return false;
        u64 n = xentry_get_varint(&p, end);
        if (n > (u64)(end - p)) return false;
        p += n;
    }
    return p == end;
}

bytes xentry_names(bytes row)
{
    struct xentry e;
    xentry_open(&e, row);
    return bytes_of(row.p, (size_t)(e.value - row.p));
}

/* -- adding ------------------------------------------------------------------------------------ */

bool xstream_next_id(const struct xstream *s, u64 ms, struct stream_id *id)
{
    u8 gid = s->eng->gid;
    *id = ms > s->last.ms ? (struct stream_id){ms, gid} : s->last;
    if (ms > s->last.ms) return true;
    if (gid == 0) return stream_id_incr(id);
    id->seq = (id->seq & ~(u64)UINT8_MAX) | gid;
    if (id->seq > s->last.seq) return true;
    if ((id->seq += UINT8_MAX + 1) > s->last.seq) return true;
    id->seq = gid;
    return ++id->ms != 0;
}

/* Total bytes of all names and values. */
static u64 payload(bytes packed)
{
    struct xentry e;
    bytes name, value;
    u64 n = 0;
    xentry_open(&e, packed);
    while (xentry_next(&e, &name, &value)) n += name.n + value.n;
    return n;
}

static bool tail_takes(const struct xstream *s, struct xnode_limits limits, bytes packed)
{
    if (s->nodes == 0 || xnode_size(&s->tail) + payload(packed) >= limits.bytes) return false;
    return limits.entries == 0 || (u64)s->tail.live + s->tail.gone < limits.entries;
}

void xstream_append(struct xstream *s, struct xnode_limits limits, struct stream_id id, bytes packed)
{
    struct xrow row = xrow_entry(id);
    if (!tail_takes(s, limits, packed)) {
        struct xnode node;
        xnode_begin(&node, id, packed);
        xstream_push_node(s, &node);
    }
    xnode_add(&s->tail, id, packed);
    s->eng->ops->rows.put(s->eng, s->ref, xrow_bytes(&row), packed);
    s->last = id;
    s->added++;
    if (s->length++ == 0) s->first = id;
}

/* The node that gets an entry which is not the highest. */
static void insert_into_node(struct xstream *s, struct stream_id id, bytes packed)
{
    struct xnode node;
    bool there = xstream_node_of(s, id, &node);
    struct stream_id last = there ? node.last : id;
    if (!there) xnode_begin(&node, id, packed);
    xnode_add(&node, id, packed);
    if (stream_id_cmp(last, id) > 0) node.last = last;
    if (!there && s->nodes++ == 0) s->tail = node;
    else xstream_put_node(s, &node);
}

void xstream_insert(struct xstream *s, struct xnode_limits limits, struct stream_id id, bytes packed)
{
    struct xrow row = xrow_entry(id);
    if (stream_id_cmp(id, s->last) > 0) {
        xstream_append(s, limits, id, packed);
        return;
    }
    bool there = xstream_has(s, id, NULL);
    s->eng->ops->rows.put(s->eng, s->ref, xrow_bytes(&row), packed);
    if (there) return;
    insert_into_node(s, id, packed);
    s->added++;
    if (s->length++ == 0 || stream_id_cmp(id, s->first) < 0) s->first = id;
}

bool xstream_has(struct xstream *s, struct stream_id id, bytes *packed)
{
    struct xrow row = xrow_entry(id);
    return s->eng->ops->rows.get(s->eng, s->ref, xrow_bytes(&row), packed);
}

/* -- deleting ---------------------------------------------------------------------------------- */

static void find_first(struct xstream *s)
{
    s->first = STREAM_ID_MIN;
    if (s->length) xwalk_edge(s, xrow_kind('e'), false, &s->first);
}

bool xstream_delete(struct xstream *s, struct stream_id id)
{
    struct xrow row = xrow_entry(id);
    struct xnode node;
    if (!s->eng->ops->rows.del(s->eng, s->ref, xrow_bytes(&row))) return false;
    s->length--;
    if (xstream_node_of(s, id, &node)) {
        node.gone++;
        if (--node.live == 0) xstream_drop_node(s, &node);
        else xstream_put_node(s, &node);
    }
    if (stream_id_cmp(id, s->max_deleted) > 0) s->max_deleted = id;
    if (stream_id_cmp(id, s->first) == 0) find_first(s);
    return true;
}

/* Erases the entries before this ID; returns how many. */
static u64 erase_before(struct xstream *s, struct stream_id id)
{
    struct xrow from = xrow_entry(STREAM_ID_MIN), to = xrow_entry(id);
    return s->eng->ops->rows.erase(s->eng, s->ref, xrow_bytes(&from), xrow_bytes(&to));
}

/* Erases the rows of this kind up to and including `last`. */
static void wipe_up_to(struct xstream *s, struct xrow last, u64 count)
{
    struct xrow from = xrow_kind(last.p[0]);
    last.p[last.n++] = '\0'; /* the end is exclusive: the first key after `last` */
    s->eng->ops->rows.wipe(s->eng, s->ref, xrow_bytes(&from), xrow_bytes(&last), count);
}

/* Erases the first nodes, up to and including `last`, and their entries. */
static void erase_nodes(struct xstream *s, const struct xnode *last, u32 nodes, u64 entries)
{
    wipe_up_to(s, xrow_node(last->id), nodes);
    wipe_up_to(s, xrow_entry(last->last), entries);
    s->nodes -= nodes;
}

/* Whether trimming removes the whole node. */
static bool trims_whole(const struct xtrim *t, const struct xnode *n, u64 length)
{
    if (t->by == TRIM_MAXLEN) return length - n->live >= t->maxlen;
    return stream_id_cmp(n->last, t->minid) < 0;
}

/* The first entry that remains when trimming removes part of a node. */
static struct stream_id first_kept(struct xstream *s, const struct xtrim *t, const struct xnode *n)
{
    struct stream_id id = t->minid;
    struct xwalk w;
    if (t->by == TRIM_MINID) return id;
    xstream_walk(&w, s, n->id, STREAM_ID_MAX, false);
    for (u64 go = s->length - t->maxlen; xwalk_next(&w, &id, NULL) && go > 0; go--) {}
    xwalk_end(&w);
    return id;
}

static u64 trim_inside(struct xstream *s, const struct xtrim *t, struct xnode *n)
{
    u64 count = erase_before(s, first_kept(s, t, n));
    if (count == 0) return 0;
    n->live -= (u32)count;
    n->gone += (u32)count;
    s->length -= count;
    xstream_put_node(s, n);
    return count;
}

u64 xstream_trim(struct xstream *s, const struct xtrim *t)
{
    struct xnode_walk w;
    struct xnode node, last = {0};
    u64 before = s->length;
    u32 whole = 0;
    bool inside = false;
    if (t->by == TRIM_MAXLEN && s->length <= t->maxlen) return 0;
    xnode_walk(&w, s);
    while (xnode_next(&w, &node)) {
        if (t->by == TRIM_MAXLEN && s->length <= t->maxlen) break;
        if (t->limit && before - s->length + node.live > t->limit) break;
        inside = !trims_whole(t, &node, s->length) && !t->approx;
        if (!trims_whole(t, &node, s->length)) break;
        s->length -= node.live;
        last = node;
        whole++;
    }
    xnode_walk_end(&w);
    if (whole) erase_nodes(s, &last, whole, before - s->length);
    if (inside) trim_inside(s, t, &node);
    if (before != s->length) find_first(s);
    return before - s->length;
}
