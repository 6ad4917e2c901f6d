/* A blob of rows (omap_blob.h), or a ctree whose leaves each have one.
 *
 * Invariants:
 * (0) There is a tree if, and only if, there are two leaves or more. While a map is being changed the tree
 *     may have fewer; omap_settle then removes it.
 * (1) Names ascend strictly through all leaves, and no leaf is empty.
 * (2) A leaf exceeds leaf_bytes only if it has a single row.
 * (3) Of two neighbours at least one is more than half full, unless they would not fit into one leaf.
 * (4) blob_memory is the sum of the blobs' memory: every change of a tree's blob is between omap_edit_begin
 *     and omap_edit_end.
 *
 * The tree's key of a leaf is the leaf itself, so that a change of its first row needs no update of inner
 * nodes: a search reads the first rows of the leaves it passes. */
#include "ds/omap.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "ds/ctree.h"
#include "ds/omap_blob.h"

struct omap_tree {
    struct ctree of;    /* each leaf counts as one entry */
    size_t blob_memory; /* allocated by all leaves' blobs */
};

struct omap_leaf {
    struct ctree_leaf link;
    struct ctree_key key; /* .item is the leaf */
    packed *blob;
};

static struct omap_leaf *omap_leaf_of(struct ctree_leaf *link) { return (struct omap_leaf *)link; }
static struct omap_leaf *omap_prev_of(const struct omap_leaf *l) { return omap_leaf_of(l->link.prev); }
static struct omap_leaf *omap_next_of(const struct omap_leaf *l) { return omap_leaf_of(l->link.next); }

/* -- finding --------------------------------------------------------------------------- */

static bool begins_after(const void *leaf, bytes name)
{
    const packed *blob = ((const struct omap_leaf *)leaf)->blob;
    return omap_blob_cmp(blob, omap_blob_first(blob), name) > 0;
}

/* The last leaf whose first row is not after the name, or the first leaf. */
static struct omap_leaf *leaf_for(const struct ctree *t, bytes name)
{
    if (!begins_after(t->tail, name)) return omap_leaf_of(t->tail);
    if (t->height == 0 || begins_after(t->head->next, name)) return omap_leaf_of(t->head);
    struct ctree_node *node = t->root;
    for (u32 level = t->height; level > 0; level--) {
        const struct ctree_inner *in = (const struct ctree_inner *)node;
        u32 low = 1, high = in->n;
        while (low < high) {
            u32 half = (low + high) / 2;
            if (begins_after(in->first[half].item, name)) high = half;
            else low = half + 1;
        }
        node = in->child[low - 1];
    }
    return (struct omap_leaf *)node;
}

static bool omap_find(const struct omap *o, bytes name, struct omap_pos *pos)
{
    bool equal;
    pos->leaf = o->tree ? leaf_for(&o->tree->of, name) : NULL;
    pos->blob = pos->leaf ? pos->leaf->blob : o->blob;
    if (!pos->blob) return false;
    pos->at = omap_blob_find(pos->blob, name, &equal);
    return equal;
}

/* -- leaves ----------------------------------------------------------------------------- */

static void omap_edit_begin(struct omap *o, struct omap_leaf *l)
{
    o->tree->blob_memory -= packed_memory(l->blob);
}
static void omap_edit_end(struct omap *o, struct omap_leaf *l)
{
    o->tree->blob_memory += packed_memory(l->blob);
}

/* Takes ownership of the blob. */
static struct omap_leaf *leaf_add(struct omap *o, struct omap_leaf *after, packed *blob)
{
    struct omap_leaf *l = mem_alloc(sizeof *l);
    *l = (struct omap_leaf){.link.count = 1, .key.item = l, .blob = blob};
    omap_edit_end(o, l);
    ctree_insert(&o->tree->of, after ? &after->link : NULL, &l->link, &l->key);
    return l;
}

static void leaf_drop(struct omap *o, struct omap_leaf *l)
{
    omap_edit_begin(o, l);
    ctree_remove(&o->tree->of, &l->link);
    packed_free(l->blob);
    mem_free(l);
}

/* Makes the only blob the only leaf of a tree. */
static struct omap_leaf *omap_plant(struct omap *o)
{
    packed *blob = o->blob;
    o->tree = mem_alloc(sizeof *o->tree);
    *o->tree = (struct omap_tree){.of.keyed = true};
    o->blob = NULL;
    return leaf_add(o, NULL, blob);
}

/* Restores invariant (0). */
static void omap_settle(struct omap *o)
{
    if (!o->tree || o->tree->of.leaves > 1) return;
    struct omap_leaf *only = omap_leaf_of(o->tree->of.head);
    if (only) o->blob = only->blob;
    mem_free(only);
    mem_free(o->tree);
    o->tree = NULL;
}

static bool leaf_put(struct omap *o, struct omap_leaf *l, u32 at, bool replace, bytes name, bytes value)
{
    omap_edit_begin(o, l);
    bool room = omap_blob_put(&l->blob, o->leaf_bytes, at, replace, name, value);
    omap_edit_end(o, l);
    return room;
}

static void leaf_cut(struct omap *o, struct omap_leaf *l, u32 at, u32 rows)
{
    omap_edit_begin(o, l);
    l->blob = packed_erase(l->blob, at, rows);
    omap_edit_end(o, l);
}

/* Moves the rows from `at` on into a new leaf and returns it. There may be several new leaves, because with
 * another model the rows may take more space. */
static struct omap_leaf *leaf_split(struct omap *o, struct omap_leaf *l, u32 at)
{
    struct omap_leaf *after = l;
    for (u32 next = at; next != PACKED_END;)
        after = leaf_add(o, after, omap_blob_new_from(l->blob, o->leaf_bytes, &next));
    leaf_cut(o, l, at, UINT32_MAX);
    return omap_next_of(l);
}

static bool omap_is_small(const struct omap *o, const struct omap_leaf *l)
{
    return packed_bytes(l->blob) <= o->leaf_bytes / 2;
}

/* Moves the rows of the right leaf into the left one, if all fit. */
static void omap_join(struct omap *o, struct omap_leaf *left, struct omap_leaf *right)
{
    u32 at = omap_blob_first(right->blob);
    packed *both = packed_copy(left->blob);
    omap_blob_append(&both, o->leaf_bytes, right->blob, &at);
    if (at != PACKED_END) {
        packed_free(both);
        return;
    }
    omap_edit_begin(o, left);
    packed_free(left->blob);
    left->blob = both;
    omap_edit_end(o, left);
    leaf_drop(o, right);
}

/* Restores invariant (3) around a leaf that shrank or got a new neighbour. */
static void omap_merge_small(struct omap *o, struct omap_leaf *l)
{
    if (!omap_is_small(o, l)) return;
    struct omap_leaf *prev = omap_prev_of(l), *next = omap_next_of(l);
    if (next && omap_is_small(o, next)) omap_join(o, l, next);
    if (prev && omap_is_small(o, l) && omap_is_small(o, prev)) omap_join(o, prev, l);
}

/* Erases rows from `at` on, and the leaf if it becomes empty. */
static void leaf_erase(struct omap *o, struct omap_leaf *l, u32 at, u32 rows)
{
    if (rows < omap_blob_rows(l->blob)) {
        leaf_cut(o, l, at, rows);
    } else {
        struct omap_leaf *gone = l;
        l = omap_prev_of(gone);
        leaf_drop(o, gone);
    }
    if (l) omap_merge_small(o, l);
    omap_settle(o);
}

/* The same for a map without a tree. */
static void omap_cut_only(struct omap *o, u32 at, u32 rows)
{
    if (rows < omap_blob_rows(o->blob)) {
        o->blob = packed_erase(o->blob, at, rows);
    } else {
        packed_free(o->blob);
        o->blob = NULL;
    }
}

static void omap_erase_at(struct omap *o, const struct omap_pos *pos, u32 rows)
{
    if (pos->leaf) leaf_erase(o, pos->leaf, pos->at, rows);
    else omap_cut_only(o, pos->at, rows);
}

/* -- changing ---------------------------------------------------------------------------- */

/* Inserts a row before the one at `at` into a leaf that has no room: between the leaf's two parts, or between
 * it and its neighbour. The row is appended to the left part or starts a new leaf, but never joins the right
 * part: where rows arrive in order, as at the end of a log that is followed by other rows, the next rows
 * resemble this one, and it is a better model for them than the rows after it. */
static void put_between(struct omap *o, struct omap_leaf *l, u32 at, bytes name, bytes value)
{
    struct omap_leaf *left = l, *right;
    if (at == PACKED_END) {
        right = omap_next_of(l);
    } else if (at == omap_blob_first(l->blob)) {
        left = omap_prev_of(l);
        right = l;
    } else {
        right = leaf_split(o, l, at);
    }
    if (!left || !leaf_put(o, left, PACKED_END, false, name, value))
        leaf_add(o, left, omap_blob_new(name, value));
    if (right) omap_merge_small(o, right);
    if (left) omap_merge_small(o, left);
}

/* The same; `replace` replaces the row at `at`, which is not the only one. Name and value may point into a
 * blob. */
static void put_apart(struct omap *o, struct omap_leaf *l, u32 at, bool replace, bytes name, bytes value)
{
    char *copy = mem_alloc(name.n + value.n + 1), *p = copy;
    if (name.n) memcpy(p, name.p, name.n);
    if (value.n) memcpy(p + name.n, value.p, value.n);
    if (replace) {
        leaf_cut(o, l, at, 1);
        at = packed_here(l->blob, at);
    }
    put_between(o, l, at, bytes_of(p, name.n), bytes_of(p + name.n, value.n));
    mem_free(copy);
}

void omap_put(struct omap *o, bytes name, bytes value)
{
    struct omap_pos pos;
    bool replace = omap_find(o, name, &pos);
    if (!pos.blob) {
        o->blob = omap_blob_new(name, value);
    } else if (!pos.leaf) {
        if (omap_blob_put(&o->blob, o->leaf_bytes, pos.at, replace, name, value)) return;
        put_apart(o, omap_plant(o), pos.at, replace, name, value);
    } else if (!leaf_put(o, pos.leaf, pos.at, replace, name, value)) {
        put_apart(o, pos.leaf, pos.at, replace, name, value);
    } else if (replace) {
        omap_merge_small(o, pos.leaf);
    }
    omap_settle(o);
}

bool omap_del(struct omap *o, bytes name)
{
    struct omap_pos pos;
    if (!omap_find(o, name, &pos)) return false;
    omap_erase_at(o, &pos, 1);
    return true;
}

/* The number of rows of a blob from `at` on that are before `to`. */
static u32 omap_count_before(const packed *blob, u32 at, bytes to)
{
    u32 n = 0;
    bool all = at == omap_blob_first(blob) && omap_blob_cmp(blob, packed_last(blob), to) < 0;
    if (all) return omap_blob_rows(blob);
    for (; at != PACKED_END && omap_blob_cmp(blob, at, to) < 0; at = packed_next(blob, at)) n++;
    return n;
}

u64 omap_erase(struct omap *o, bytes from, bytes to)
{
    u64 erased = 0;
    struct omap_pos pos;
    while (omap_seek(o, from, false, &pos)) {
        u32 n = omap_count_before(pos.blob, pos.at, to);
        if (n == 0) break;
        omap_erase_at(o, &pos, n);
        erased += n;
    }
    return erased;
}

/* -- reading ------------------------------------------------------------------------------ */

bool omap_get(const struct omap *o, bytes name, struct omap_row *row)
{
    struct omap_pos pos;
    if (!omap_find(o, name, &pos)) return false;
    omap_read(&pos, row);
    return true;
}

bool omap_seek(const struct omap *o, bytes name, bool backward, struct omap_pos *pos)
{
    if (omap_find(o, name, pos)) return true;
    if (!pos->blob) return false;
    if (pos->at != PACKED_END) return !backward || omap_step(pos, true);
    pos->at = packed_last(pos->blob);
    return backward || omap_step(pos, false);
}

bool omap_step(struct omap_pos *pos, bool backward)
{
    u32 at = backward ? omap_blob_prev(pos->blob, pos->at) : packed_next(pos->blob, pos->at);
    if (at == PACKED_END) {
        if (!pos->leaf) return false;
        struct omap_leaf *l = backward ? omap_prev_of(pos->leaf) : omap_next_of(pos->leaf);
        if (!l) return false;
        pos->leaf = l;
        pos->blob = l->blob;
        at = backward ? packed_last(l->blob) : omap_blob_first(l->blob);
    }
    pos->at = at;
    return true;
}

void omap_read(const struct omap_pos *pos, struct omap_row *row) { omap_blob_read(pos->blob, pos->at, row); }

/* -- as a whole ---------------------------------------------------------------------------- */

void omap_init(struct omap *o, u32 leaf_bytes) { *o = (struct omap){.leaf_bytes = leaf_bytes}; }

void omap_copy(struct omap *to, const struct omap *from)
{
    omap_init(to, from->leaf_bytes);
    if (from->blob) to->blob = packed_copy(from->blob);
    if (!from->tree) return;
    struct ctree_leaf *link = from->tree->of.head;
    to->blob = packed_copy(omap_leaf_of(link)->blob);
    for (struct omap_leaf *last = omap_plant(to); (link = link->next);)
        last = leaf_add(to, last, packed_copy(omap_leaf_of(link)->blob));
}

bool omap_release_some(struct omap *o, u32 max_leaves)
{
    for (; o->tree && max_leaves > 0; max_leaves--) {
        leaf_drop(o, omap_leaf_of(o->tree->of.head));
        omap_settle(o);
    }
    if (max_leaves > 0 && o->blob) omap_cut_only(o, omap_blob_first(o->blob), UINT32_MAX);
    return omap_leaves(o) == 0;
}

void omap_release(struct omap *o)
{
    while (!omap_release_some(o, UINT32_MAX)) {}
}

u64 omap_leaves(const struct omap *o) { return o->tree ? o->tree->of.leaves : o->blob != NULL; }

size_t omap_memory(const struct omap *o)
{
    const struct omap_tree *t = o->tree;
    if (!t) return o->blob ? packed_memory(o->blob) : 0;
    return sizeof *t + t->of.leaves * sizeof(struct omap_leaf) + t->blob_memory + ctree_memory(&t->of);
}

/* -- checking ------------------------------------------------------------------------------- */

static const struct ctree_key *omap_key_of(const struct ctree_leaf *link)
{
    return &((const struct omap_leaf *)link)->key;
}

static void check_order(const struct omap *o)
{
    struct omap_pos pos;
    struct buf last = {0};
    for (bool more = omap_seek(o, bytes_of("", 0), false, &pos); more; more = omap_step(&pos, false)) {
        struct omap_row row;
        omap_read(&pos, &row);
        CHECK(!last.p || omap_blob_cmp(pos.blob, pos.at, buf_bytes(&last)) > 0);
        buf_clear(&last);
        omap_join_name(&row, buf_reserve(&last, omap_name_size(&row) + 1));
        last.n = omap_name_size(&row);
    }
    buf_release(&last);
}

static void omap_check_blob(const struct omap *o, const packed *blob)
{
    packed_check(blob);
    CHECK(omap_blob_rows(blob) >= 1);
    CHECK(omap_blob_rows(blob) == 1 || packed_bytes(blob) <= o->leaf_bytes);
}

static void omap_check_tree(const struct omap *o)
{
    size_t memory = 0;
    CHECK(!o->blob && o->tree->of.leaves > 1);
    ctree_check(&o->tree->of, omap_key_of);
    for (const struct ctree_leaf *link = o->tree->of.head; link; link = link->next) {
        const packed *blob = ((const struct omap_leaf *)link)->blob;
        omap_check_blob(o, blob);
        memory += packed_memory(blob);
    }
    const struct ctree *t = &o->tree->of;
    CHECK(t->root && t->head && t->tail && t->height > 0 && t->head->next); /* leaf_for relies on it */
    CHECK(memory == o->tree->blob_memory);
}

void omap_check(const struct omap *o)
{
    if (o->tree) omap_check_tree(o);
    if (o->blob) omap_check_blob(o, o->blob);
    check_order(o);
}
