/* Compares pairs whose sums differ: looks each up in the other family. */
#include "base/num.h"
#include "engine/rocks/check/check.h"

const struct pair_kind check_members = {FAM_DATA, "member", "row by score", true};
const struct pair_kind check_fields = {FAM_FIELD, "field", "row by deadline", false};

static void print_number(const struct pair_kind *kind, u64 number, char out[64])
{
    if (kind->number_is_score) out[num_print_double(out, codec_score_read(number))] = '\0';
    else out[num_print_i64(out, (i64)number)] = '\0';
}

void check_tell_pair(struct check *c, const struct check_key *k, const struct pair_kind *kind, bytes name,
                     u64 number, const char *what)
{
    struct buf quoted = {0};
    char text[64];
    check_quote(&quoted, name);
    print_number(kind, number, text);
    check_problem(c, k, "%s %.*s (%s) %s", kind->name, (int)quoted.n, quoted.p, text, what);
    buf_release(&quoted);
}

void check_own_range(const struct check_key *k, struct buf *prefix, struct buf *after)
{
    buf_append_bytes(prefix, buf_bytes(&k->p));
    append_u64(prefix, k->m.version);
    buf_append_bytes(after, buf_bytes(prefix));
    codec_after_prefix(after);
}

static struct store_iter *own_rows(struct check *c, const struct check_key *k, enum family f,
                                   struct buf *prefix)
{
    struct buf after = {0};
    check_own_range(k, prefix, &after);
    struct store_iter *it = store_iter(c->session, f, buf_bytes(prefix), buf_bytes(&after), STORE_ONCE);
    store_seek_first(it);
    buf_release(&after);
    return it;
}

/* Each named one must have its row by number … */
static void find_unordered(struct check *c, const struct check_key *k, const struct pair_kind *kind)
{
    struct buf prefix = {0}, row = {0};
    struct store_iter *it = own_rows(c, k, kind->named, &prefix);
    for (; store_valid(it); store_next(it)) {
        struct store_value v;
        bytes raw = store_key(it), name = bytes_of(raw.p + prefix.n, raw.n - prefix.n);
        bytes number = store_iter_value(it);
        if (number.n != 8) continue; /* reported before */
        buf_clear(&row);
        buf_append_bytes(&row, buf_bytes(&prefix));
        buf_append_bytes(&row, number);
        buf_append_bytes(&row, name);
        bool found = store_get(c->session, FAM_SCORE, buf_bytes(&row), &v);
        store_value_release(&v);
        if (!found && !c->failed)
            check_tell_pair(c, k, kind, name, get_u64(number.p), "is in no row of the order");
    }
    store_iter_done(it);
    buf_release(&prefix);
    buf_release(&row);
}

/* … and each row by number its named one. */
static void find_unnamed(struct check *c, const struct check_key *k, const struct pair_kind *kind)
{
    struct buf prefix = {0}, row = {0};
    struct store_iter *it = own_rows(c, k, FAM_SCORE, &prefix);
    for (; store_valid(it); store_next(it)) {
        struct store_value v;
        bytes raw = store_key(it), sub = bytes_of(raw.p + prefix.n, raw.n - prefix.n);
        if (sub.n < 8) continue; /* reported before */
        bytes name = bytes_of(sub.p + 8, sub.n - 8);
        buf_clear(&row);
        buf_append_bytes(&row, buf_bytes(&prefix));
        buf_append_bytes(&row, name);
        bool found = store_get(c->session, kind->named, buf_bytes(&row), &v);
        bool equal = found && bytes_eq(v.b, bytes_of(sub.p, 8));
        store_value_release(&v);
        if (!equal && !c->failed)
            check_tell_pair(c, k, kind, name, get_u64(sub.p),
                            found ? "is in the order under another number than its own"
                                  : "is in the order, but missing");
    }
    store_iter_done(it);
    buf_release(&prefix);
    buf_release(&row);
}

void check_same_pairs(struct check *c, const struct check_key *k, const struct pair_kind *kind,
                      const struct check_pairs *named, const struct check_pairs *ordered)
{
    if (c->failed || (named->n == ordered->n && named->sum == ordered->sum)) return;
    u64 before = c->problems;
    find_unordered(c, k, kind);
    find_unnamed(c, k, kind);
    if (c->problems == before && !c->failed)
        check_problem(c, k, "%llu %ss, but %llu %ss", LLU(named->n), kind->name,
                      LLU(ordered->n), kind->other);
}
