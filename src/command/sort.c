/* SORT and SORT_RO.
 *
 * The elements (and, for ALPHA with BY, their weights) are copied into one text
 * arena, each followed by a NUL because strcoll() needs one; items refer to it by
 * offset, since it grows. Equal items keep the order they were met in. A result
 * to be stored is complete before its key is touched: STORE may name any key that
 * was read. */
#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/key_slot.h"
#include "command/commands.h"

struct text {
    size_t at, n;
};

struct sort_item {
    struct text element;
    union {
        double score;       /* numeric */
        struct text weight; /* ALPHA with BY; at == NO_WEIGHT: the pattern found nothing */
    };
};

#define NO_WEIGHT SIZE_MAX

struct sort {
    struct ctx *c;
    /* arguments */
    bool desc, alpha, unsorted; /* unsorted: BY a pattern without '*' */
    bool has_by, has_store;
    bytes by, store;
    i64 limit_start, limit_count;
    bytes *get; /* GET patterns */
    size_t gets;
    /* results of the lookup */
    struct key_ref ref; /* entry NULL: no such key */
    u64 start, count;   /* the part of the elements that is output */
    struct buf arena;
    struct sort_item *item;
    size_t items, room;
    struct text *out; /* STORE's result, in `arena` too */
    size_t outs, out_room;
};

static struct text text_keep(struct sort *s, bytes b)
{
    struct text t = {s->arena.n, b.n};
    buf_append_bytes(&s->arena, b);
    buf_append_char(&s->arena, '\0');
    return t;
}

static bytes text_bytes(const struct sort *s, struct text t)
{
    return bytes_of(s->arena.p + t.at, t.n);
}

/* -- arguments ------------------------------------------------------------------ */

/* Whether all keys that a pattern can form are in the slot of the list: its hash tag comes before the '*'. */
static bool is_in_slot(const struct ctx *c, bytes pattern)
{
    const char *star = pattern.n ? memchr(pattern.p, '*', pattern.n) : NULL;
    bytes prefix = bytes_of(pattern.p, star ? (size_t)(star - pattern.p) : pattern.n);
    const char *open = prefix.n ? memchr(prefix.p, '{', prefix.n) : NULL;
    const char *close = open ? memchr(open, '}', (size_t)(prefix.p + prefix.n - open)) : NULL;
    if (bytes_is(pattern, "#")) return true; /* the element itself */
    return close && close > open + 1 && key_slot(prefix) == key_slot(c->argv[1]);
}

/* Keys found by patterns are not among the arguments: only users that may read all keys can use them, and in
 * a cluster they must be where the list is. */
static bool may_look_up(const struct ctx *c, const char *option, bytes pattern)
{
    if (UNLIKELY(c->keys_limited)) {
        reply_errorf(c->out, "ERR %s option of SORT denied due to insufficient ACL permissions.", option);
        return false;
    }
    if (LIKELY(!c->ks->one_slot) || is_in_slot(c, pattern)) return true;
    reply_errorf(c->out,
                 "ERR %s option of SORT denied in cluster mode when keys formed by the pattern may be in "
                 "different slots.",
                 option);
    return false;
}

static bool sort_by(struct sort *s, bytes pattern)
{
    s->has_by = true;
    s->by = pattern;
    if (pattern.n && memchr(pattern.p, '*', pattern.n)) return may_look_up(s->c, "BY", pattern);
    s->unsorted = true;
    return true;
}

/* Parses the option at argv[i]; returns how many arguments it was, 0 for none such, -1 if an error was
 * replied. */
static int sort_option(struct sort *s, int i, bool readonly)
{
    struct ctx *c = s->c;
    bytes name = c->argv[i];
    int left = c->argc - i - 1;
    if (bytes_is(name, "asc") || bytes_is(name, "desc")) {
        s->desc = bytes_is(name, "desc");
        return 1;
    }
    if (bytes_is(name, "alpha")) {
        s->alpha = true;
        return 1;
    }
    if (bytes_is(name, "limit") && left >= 2) {
        return ctx_int(c, c->argv[i + 1], &s->limit_start) &&
                       ctx_int(c, c->argv[i + 2], &s->limit_count) ? 3 : -1;
    }
    if (left < 1) return 0;
    if (!readonly && bytes_is(name, "store")) {
        s->has_store = true;
        s->store = c->argv[i + 1];
    } else if (bytes_is(name, "by")) {
        if (!sort_by(s, c->argv[i + 1])) return -1;
    } else if (bytes_is(name, "get")) {
        if (!may_look_up(c, "GET", c->argv[i + 1])) return -1;
        s->get[s->gets++] = c->argv[i + 1];
    } else {
        return 0;
    }
    return 2;
}

static bool sort_parse(struct sort *s, bool readonly)
{
    s->limit_count = -1;
    s->get = mem_alloc((size_t)s->c->argc * sizeof(*s->get));
    for (int i = 2; i < s->c->argc;) {
        int taken = sort_option(s, i, readonly);
        if (taken == 0) ctx_syntax_error(s->c);
        if (taken <= 0) return false;
        i += taken;
    }
    return true;
}

/* -- finding the elements --------------------------------------------------------- */

static bool sort_find(struct sort *s)
{
    err e = ctx_read(s->c, s->c->argv[1], TYPE_NONE, &s->ref);
    if (e == ERR_NOT_FOUND) return true;
    if (s->ref.type == TYPE_LIST || s->ref.type == TYPE_SET || s->ref.type == TYPE_ZSET)
        return true;
    ctx_wrong_type(s->c);
    return false;
}

/* The part of `size` elements that is output. */
static void sort_limit(struct sort *s, u64 size)
{
    s->start = s->limit_start < 0 ? 0 : MIN((u64)s->limit_start, size);
    s->count = size - s->start;
    if (s->limit_count >= 0) s->count = MIN(s->count, (u64)s->limit_count);
}

static void item_add(struct sort *s, bytes element)
{
    if (s->items == s->room) {
        s->room = s->room ? s->room * 2 : 16;
        s->item = mem_realloc(s->item, s->room * sizeof(*s->item));
    }
    s->item[s->items++] = (struct sort_item){.element = text_keep(s, element)};
}

static void load_list(struct sort *s, u64 from, u64 n, bool reverse)
{
    const struct seq_ops *seq = &s->c->eng->ops->seq;
    struct seq_iter it;
    bytes element;
    seq->iter(s->c->eng, &s->ref, from, reverse, &it);
    for (; n > 0 && seq->next(&it, &element); n--) item_add(s, element);
}

static void sort_load_zset(struct sort *s, u64 from, u64 n, bool reverse)
{
    const struct zset_ops *zset = &s->c->eng->ops->zset;
    struct zset_seek seek = {.by = ZSEEK_RANK, .reverse = reverse, .rank = from};
    struct zset_iter it;
    bytes element;
    double score;
    zset->iter(s->c->eng, &s->ref, &seek, &it);
    for (; n > 0 && zset->next(&it, &element, &score); n--) item_add(s, element);
}

static void load_set(struct sort *s)
{
    const struct map_ops *map = &s->c->eng->ops->map;
    struct map_iter it;
    bytes element;
    map->iter(s->c->eng, &s->ref, &it);
    while (map->next(&it, &element, NULL)) item_add(s, element);
}

/* Lists and sorted sets have an order of their own: if nothing is sorted, only the part that is output is
 * read, from the end that DESC chooses. */
static void sort_load(struct sort *s)
{
    if (!s->ref.entry) return;
    u64 size = s->c->eng->ops->size(s->c->eng, &s->ref);
    sort_limit(s, size);
    if (s->ref.type == TYPE_SET) {
        load_set(s);
        return;
    }
    u64 from = 0, n = size;
    bool reverse = false;
    if (s->unsorted) {
        if (s->count == 0) return;
        reverse = s->desc;
        from = reverse ? size - 1 - s->start : s->start;
        n = s->count;
        s->start = 0;
    }
    if (s->ref.type == TYPE_LIST) load_list(s, from, n, reverse);
    else sort_load_zset(s, from, n, reverse);
}

/* -- patterns --------------------------------------------------------------------- */

/* Where "->field" begins in a pattern, at or after `from`; its length if nowhere.
 * "->" at the very end dereferences nothing: it belongs to the key's name. */
static size_t find_arrow(bytes pattern, size_t from)
{
    for (size_t i = from; i + 2 < pattern.n; i++)
        if (pattern.p[i] == '-' && pattern.p[i + 1] == '>') return i;
    return pattern.n;
}

static bool pattern_value(struct sort *s, bytes key, bytes field, struct str_view *value)
{
    struct engine *eng = s->c->eng;
    struct key_ref ref;
    if (!keyspace_find(s->c->ks, s->c->db, key, LOOKUP_READ, &ref)) return false;
    if (field.p) return ref.type == TYPE_HASH && eng->ops->map.get(eng, &ref, field, &value->b);
    if (ref.type != TYPE_STRING) return false;
    eng->ops->str.get(eng, &ref, value);
    return true;
}

/* Looks up a BY or GET pattern for an element: the string at the pattern with the first '*' replaced by the
 * element, or with "…->field" that field of the hash there. The value lives until the next lookup. */
static bool pattern_lookup(struct sort *s, bytes pattern, bytes element, struct str_view *value)
{
    const char *star = pattern.n ? memchr(pattern.p, '*', pattern.n) : NULL;
    if (!star) return false;
    size_t prefix = (size_t)(star - pattern.p);
    size_t end = find_arrow(pattern, prefix + 1);
    bytes field = {0};
    if (end < pattern.n) field = bytes_of(pattern.p + end + 2, pattern.n - end - 2);

    struct buf key = {0};
    buf_append(&key, pattern.p, prefix);
    buf_append_bytes(&key, element);
    buf_append(&key, star + 1, end - prefix - 1);
    bool found = pattern_value(s, buf_bytes(&key), field, value);
    buf_release(&key);
    return found;
}

/* -- weights ---------------------------------------------------------------------- */

/* As strtod parses it: leading blanks, hex and infinity pass, and an empty text is 0. */
static bool parse_score(struct buf *scratch, bytes b, double *out)
{
    char *end;
    buf_clear(scratch);
    buf_append_bytes(scratch, b);
    buf_append_char(scratch, '\0');
    errno = 0;
    *out = strtod(scratch->p, &end);
    return *end == '\0' && errno != ERANGE && *out == *out;
}

/* Sets what each item is compared by. False: a weight is not a number. */
static bool sort_weigh(struct sort *s)
{
    struct buf scratch = {0};
    bool good = true;
    for (size_t i = 0; i < s->items; i++) {
        struct sort_item *it = &s->item[i];
        struct str_view value;
        value.b = text_bytes(s, it->element);
        bool found = !s->has_by || pattern_lookup(s, s->by, value.b, &value);
        if (s->alpha && s->has_by) {
            it->weight = found ? text_keep(s, value.b) : (struct text){.at = NO_WEIGHT};
        } else if (!s->alpha) {
            it->score = 0;
            if (found && !parse_score(&scratch, value.b, &it->score)) good = false;
        }
    }
    buf_release(&scratch);
    if (!good) reply_error(s->c->out, "ERR One or more scores can't be converted into double");
    return good;
}

/* Replies follow the locale; stored results must be the same everywhere. */
static int compare_texts(const struct sort *s, struct text a, struct text b)
{
    if (s->has_store) return bytes_cmp(text_bytes(s, a), text_bytes(s, b));
    return strcoll(s->arena.p + a.at, s->arena.p + b.at);
}

static int compare_weights(const struct sort *s, struct text a, struct text b)
{
    if (a.at == NO_WEIGHT || b.at == NO_WEIGHT) return (a.at != NO_WEIGHT) - (b.at != NO_WEIGHT);
    return compare_texts(s, a, b);
}

static int compare_items(const struct sort *s, const struct sort_item *a,
                         const struct sort_item *b)
{
    int cmp;
    if (s->alpha && s->has_by) cmp = compare_weights(s, a->weight, b->weight);
    else if (s->alpha) cmp = compare_texts(s, a->element, b->element);
    else if (a->score != b->score) cmp = a->score > b->score ? 1 : -1;
    else cmp = bytes_cmp(text_bytes(s, a->element), text_bytes(s, b->element));
    return s->desc ? -cmp : cmp;
}

static void merge_runs(const struct sort *s, const struct sort_item *from, struct sort_item *to,
                       size_t mid, size_t n)
{
    size_t left = 0, right = mid;
    for (size_t i = 0; i < n; i++) {
        bool take_left = left < mid &&
                         (right >= n || compare_items(s, &from[left], &from[right]) <= 0);
        to[i] = take_left ? from[left++] : from[right++];
    }
}

/* A merge sort, because it is stable and its worst case is its usual case. */
static void sort_items(struct sort *s)
{
    size_t n = s->items;
    if (n < 2) return;
    struct sort_item *spare = mem_alloc(n * sizeof(*spare));
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t i = 0; i < n; i += 2 * run)
            merge_runs(s, s->item + i, spare + i, MIN(run, n - i), MIN(2 * run, n - i));
        struct sort_item *sorted = spare;
        spare = s->item;
        s->item = sorted;
    }
    mem_free(spare);
}

/* -- output ----------------------------------------------------------------------- */

static void output_keep(struct sort *s, struct text value)
{
    if (s->outs == s->out_room) {
        s->out_room = s->out_room ? s->out_room * 2 : 16;
        s->out = mem_realloc(s->out, s->out_room * sizeof(*s->out));
    }
    s->out[s->outs++] = value;
}

static void output_element(struct sort *s, struct text element)
{
    if (s->has_store) output_keep(s, element);
    else reply_bulk(s->c->out, text_bytes(s, element));
}

static void output_get(struct sort *s, bytes pattern, struct text element)
{
    struct str_view value;
    if (bytes_eq(pattern, BYTES_LIT("#"))) {
        output_element(s, element);
        return;
    }
    bool found = pattern_lookup(s, pattern, text_bytes(s, element), &value);
    if (s->has_store) output_keep(s, text_keep(s, found ? value.b : (bytes){0}));
    else if (found) reply_bulk(s->c->out, value.b);
    else reply_null(s->c->out);
}

static void output_all(struct sort *s)
{
    size_t per_item = s->gets ? s->gets : 1;
    if (!s->has_store) reply_array(s->c->out, s->count * per_item);
    for (u64 i = s->start; i < s->start + s->count; i++) {
        if (s->gets == 0) output_element(s, s->item[i].element);
        for (size_t g = 0; g < s->gets; g++) output_get(s, s->get[g], s->item[i].element);
    }
}

/* The effects are the result, not the command: the order of equal elements of a set, and which weights were
 * alive, may differ elsewhere. */
#define EFFECT_ELEMENTS 1024

static void store_effects(struct sort *s)
{
    bytes argv[2 + EFFECT_ELEMENTS] = {BYTES_LIT("RPUSH"), s->store};
    for (size_t i = 0; i < s->outs;) {
        int argc = 2;
        while (i < s->outs && argc < 2 + EFFECT_ELEMENTS)
            argv[argc++] = text_bytes(s, s->out[i++]);
        ctx_effect(s->c, argc, argv);
    }
}

static void sort_store(struct sort *s)
{
    struct ctx *c = s->c;
    struct key_ref ref;
    bool existed = ctx_write(c, s->store, TYPE_NONE, &ref) == OK;
    if (existed) CTX_EFFECT(c, BYTES_LIT("DEL"), s->store);
    if (s->outs > 0) {
        ctx_replace(c, s->store, TYPE_LIST, &ref);
        for (size_t i = 0; i < s->outs; i++)
            c->eng->ops->seq.push(c->eng, &ref, false, text_bytes(s, s->out[i]));
        ctx_changed_by(c, s->outs, s->store, NOTIFY_LIST, "sortstore");
        store_effects(s);
    } else if (existed) {
        ctx_drop(c, &ref);
        ctx_changed(c, s->store, NOTIFY_GENERIC, "del");
    }
    reply_int(c->out, (i64)s->outs);
}

static void sort_run(struct sort *s, bool readonly)
{
    if (!sort_parse(s, readonly) || !sort_find(s)) return;
    if (s->unsorted && (s->has_store || s->c->in_script) && s->ref.type == TYPE_SET) {
        /* A set has no order, but a stored list, and a script, need one that is always the same. */
        s->unsorted = false;
        s->alpha = true;
        s->has_by = false;
    }
    sort_load(s);
    if (!s->unsorted) {
        if (!sort_weigh(s)) return;
        sort_items(s);
    }
    output_all(s);
    if (s->has_store) sort_store(s);
}

static void sort_command(struct ctx *c, bool readonly)
{
    struct sort s = {.c = c};
    sort_run(&s, readonly);
    mem_free(s.get);
    mem_free(s.item);
    mem_free(s.out);
    buf_release(&s.arena);
}

void cmd_sort(struct ctx *c) { sort_command(c, false); }
void cmd_sort_ro(struct ctx *c) { sort_command(c, true); }
