/* LCS: the longest common subsequence of two strings.
 *
 * The textbook table of lengths, row by row, but only two rows of it are kept. Walking back from its corner
 * needs one bit per cell: whether the cell above is longer than the one to the left. So a table for which
 * Redis takes 512 MB takes 16 MB here; the limit on its size is still Redis's. */
#include "base/alloc.h"
#include "command/commands.h"
#include "command/string/strval.h"

struct options {
    bool len, idx, with_match_len;
    i64 min_match_len;
};

/* Cell (i, j) stands for the prefixes a[0..i) and b[0..j). */
struct table {
    bytes a, b;
    u32 len;  /* of the longest common subsequence */
    u64 *up;  /* bit (i * (b.n + 1) + j): cell (i-1, j) is longer than (i, j-1); NULL: not kept */
};

static bool lcs_parse_options(struct ctx *c, struct options *o)
{
    *o = (struct options){0};
    for (int i = 3; i < c->argc; i++) {
        bytes word = c->argv[i];
        if (bytes_is(word, "IDX")) {
            o->idx = true;
        } else if (bytes_is(word, "LEN")) {
            o->len = true;
        } else if (bytes_is(word, "WITHMATCHLEN")) {
            o->with_match_len = true;
        } else if (bytes_is(word, "MINMATCHLEN") && i + 1 < c->argc) {
            if (!ctx_int(c, c->argv[++i], &o->min_match_len)) return false;
        } else {
            ctx_syntax_error(c);
            return false;
        }
    }
    if (o->idx && o->len) {
        reply_error(c->out, "ERR If you want both the length and indexes, please just use IDX.");
        return false;
    }
    return true;
}

static bool cell_up(const struct table *t, size_t i, size_t j)
{
    u64 at = (u64)i * (t->b.n + 1) + j;
    return t->up[at / 64] >> (at % 64) & 1;
}

static void table_fill(struct table *t, bool keep_way)
{
    size_t width = t->b.n + 1;
    u32 *row = mem_zalloc(width * sizeof(*row)); /* row i-1, overwritten by row i from the left */
    t->up = keep_way ? mem_zalloc(((t->a.n + 1) * width / 64 + 1) * sizeof(*t->up)) : NULL;

    for (size_t i = 1; i <= t->a.n; i++) {
        u32 diagonal = 0, left = 0;
        for (size_t j = 1; j < width; j++) {
            u32 above = row[j];
            if (t->a.p[i - 1] == t->b.p[j - 1]) {
                left = diagonal + 1;
            } else if (above > left) {
                left = above;
                if (keep_way) {
                    u64 at = (u64)i * width + j;
                    t->up[at / 64] |= 1ULL << (at % 64);
                }
            }
            diagonal = above;
            row[j] = left;
        }
    }
    t->len = row[width - 1];
    mem_free(row);
}

/* Steps back over cells that match nothing; false at the table's edge. */
static bool back_to_match(const struct table *t, size_t *i, size_t *j)
{
    while (*i > 0 && *j > 0) {
        if (t->a.p[*i - 1] == t->b.p[*j - 1]) return true;
        if (cell_up(t, *i, *j))
            --*i;
        else
            --*j;
    }
    return false;
}

static void reply_subsequence(struct ctx *c, const struct table *t)
{
    char *text = mem_alloc(t->len);
    size_t n = t->len;
    for (size_t i = t->a.n, j = t->b.n; back_to_match(t, &i, &j); i--, j--)
        text[--n] = t->a.p[i - 1];
    reply_bulk(c->out, bytes_of(text, t->len));
    mem_free(text);
}

static void lcs_reply_range(struct ctx *c, size_t first, size_t len)
{
    reply_array(c->out, 2);
    reply_int(c->out, (i64)first);
    reply_int(c->out, (i64)(first + len - 1));
}

/* The runs that match in both strings, from the last to the first. */
static void reply_matches(struct ctx *c, const struct table *t, const struct options *o)
{
    size_t i = t->a.n, j = t->b.n, matches = 0;
    reply_map(c->out, 2);
    reply_bulk_str(c->out, "matches");
    size_t mark = reply_mark(c->out);
    while (back_to_match(t, &i, &j)) {
        size_t len = 0;
        for (; i > 0 && j > 0 && t->a.p[i - 1] == t->b.p[j - 1]; i--, j--) len++;
        if ((i64)len < o->min_match_len) continue;
        reply_array(c->out, o->with_match_len ? 3 : 2);
        lcs_reply_range(c, i, len);
        lcs_reply_range(c, j, len);
        if (o->with_match_len) reply_int(c->out, (i64)len);
        matches++;
    }
    reply_array_at(c->out, mark, matches);
    reply_bulk_str(c->out, "len");
    reply_int(c->out, t->len);
}

/* Absent keys are empty strings. False: an error was replied. */
static bool find_strings(struct ctx *c, struct key_ref *a, struct key_ref *b)
{
    bool bad = ctx_read(c, c->argv[1], TYPE_NONE, a) == OK && a->type != TYPE_STRING;
    bad |= ctx_read(c, c->argv[2], TYPE_NONE, b) == OK && b->type != TYPE_STRING;
    if (bad) reply_error(c->out, "ERR The specified keys must contain string values");
    return !bad;
}

void cmd_lcs(struct ctx *c)
{
    struct key_ref a, b;
    struct str_view view_a, view_b;
    struct options o;
    if (!find_strings(c, &a, &b) || !lcs_parse_options(c, &o)) return;

    struct table t = {.a = strval_get(c, &a, &view_a), .b = strval_get(c, &b, &view_b)};
    if ((u64)(t.a.n + 1) * (t.b.n + 1) > c->ks->max_string / sizeof(u32)) {
        reply_error(c->out, "ERR Insufficient memory, transient memory for LCS exceeds "
                            "proto-max-bulk-len");
        return;
    }
    table_fill(&t, !o.len);
    if (o.idx)
        reply_matches(c, &t, &o);
    else if (o.len)
        reply_int(c->out, t.len);
    else
        reply_subsequence(c, &t);
    mem_free(t.up);
}
