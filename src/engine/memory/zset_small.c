#include "engine/memory/zset_small.h"

static double zset_small_score_at(const char *at, struct compact_slot *member)
{
    struct compact_slot score;
    compact_read_pair(at, member, &score);
    return compact_score(&score);
}

static const char *zset_small_find(const struct small *s, bytes member, struct compact_item *it)
{
    compact_item_text(it, member);
    return compact_find(s->p, small_end(s), true, it);
}

bool zset_small_score(const struct entry *entry, bytes member, double *score)
{
    struct small s = small_of(entry);
    struct compact_item it;
    struct compact_slot slot;
    const char *at = zset_small_find(&s, member, &it);
    if (at) *score = zset_small_score_at(at, &slot);
    return at != NULL;
}

bool zset_small_rank(const struct entry *entry, bytes member, u64 *rank)
{
    struct small s = small_of(entry);
    struct compact_item it;
    const char *at = zset_small_find(&s, member, &it);
    *rank = 0;
    for (const char *p = s.p; at && p < at; p = compact_next(p, true)) ++*rank;
    return at != NULL;
}

const char *zset_small_read(struct engine *e, const char *at, char *digits, bytes *member, double *score)
{
    struct compact_slot name, number;
    at = compact_read_pair(at, &name, &number);
    *member = digits ? compact_text(&name, digits) : small_text(e, &name);
    *score = compact_score(&number);
    return at;
}

/* -- changes ------------------------------------------------------------------------------------- */

/* Where an element belongs. The elements are in order, but `without` may be out of place. */
static const char *zset_small_place(const struct small *s, bytes member, double score, const char *without)
{
    char digits[NUM_I64_LEN];
    const char *at = s->p, *end = small_end(s);
    for (; at < end; at = compact_next(at, true)) {
        struct compact_slot slot;
        if (at == without) continue;
        double other = zset_small_score_at(at, &slot);
        if (other > score || (other == score && bytes_cmp(compact_text(&slot, digits), member) > 0)) break;
    }
    return at;
}

/* Moves `n` bytes, which are written again, within the elements: from `at` to before `to`. */
static char *zset_small_move(char *at, char *to, u32 n)
{
    if (to > at) {
        memmove(at, at + n, (size_t)(to - at - n));
        return to - n;
    }
    memmove(to + n, to, (size_t)(at - to));
    return to;
}

bool zset_small_put(struct engine *e, struct key_ref *ref, bytes member, double score, bool *added)
{
    struct small s = small_of(ref->entry);
    struct compact_item name, number;
    char *at = (char *)zset_small_find(&s, member, &name);
    struct compact_slot slot;
    *added = !at;
    if (at && zset_small_score_at(at, &slot) == score) return true;
    if (!at && ((i64)s.count >= e->limits.zset_max_listpack_entries ||
                (i64)member.n > e->limits.zset_max_listpack_value || (u64)s.bytes + member.n >= SMALL_SAFE))
        return false;
    compact_item_score(&number, score);
    u32 need = compact_need(&name, &number), old = at ? (u32)(compact_next(at, true) - at) : 0;
    if (at && need != old) {
        small_splice(e, ref, small_offset(&s, at), old, 0, -1);
        s = small_of(ref->entry);
        at = NULL;
    }
    char *to = (char *)zset_small_place(&s, member, score, at);
    to = at ? zset_small_move(at, to, need) : small_splice(e, ref, small_offset(&s, to), 0, need, 1);
    compact_write(to, &name, &number);
    return true;
}

bool zset_small_del(struct engine *e, struct key_ref *ref, bytes member)
{
    struct small s = small_of(ref->entry);
    struct compact_item it;
    const char *at = zset_small_find(&s, member, &it);
    if (at) small_splice(e, ref, small_offset(&s, at), (u32)(compact_next(at, true) - at), 0, -1);
    return at != NULL;
}

void zset_small_erase(struct engine *e, struct key_ref *ref, u32 from, u32 count, pair_fn fn, void *arg)
{
    struct small s = small_of(ref->entry);
    const char *first = compact_skip(s.p, true, from), *end = first;
    bytes member;
    double score;
    for (u32 i = 0; i < count; i++) {
        end = zset_small_read(e, end, NULL, &member, &score);
        if (fn) fn(arg, member, (bytes){"", 0}, score);
    }
    small_splice(e, ref, small_offset(&s, first), (u32)(end - first), 0, -(i32)count);
}

/* -- bounds -------------------------------------------------------------------------------------- */

/* Whether an element precedes a bound; `through`: or equals it. */
static bool zset_small_is_before(const char *at, const struct zset_seek *to, bool through)
{
    struct compact_slot slot;
    double score = zset_small_score_at(at, &slot);
    if (to->by == ZSEEK_SCORE) return score < to->score || (through && score == to->score);
    char digits[NUM_I64_LEN];
    int c = bytes_cmp(compact_text(&slot, digits), to->lex);
    return c < 0 || (through && c == 0);
}

u32 zset_small_before(const struct entry *entry, const struct zset_seek *to, bool through, bool reverse)
{
    struct small s = small_of(entry);
    u32 n = 0, i = 0;
    for (const char *at = s.p; at < small_end(&s); at = compact_next(at, true)) {
        i++;
        if (zset_small_is_before(at, to, through)) n = i;
        else if (!reverse) break;
    }
    return n;
}

/* -- filling ------------------------------------------------------------------------------------- */

static bool zset_small_in_order(const bytes *members, const double *scores, u32 n)
{
    for (u32 i = 1; i < n; i++) {
        if (scores[i] > scores[i - 1]) continue;
        if (scores[i] < scores[i - 1] || bytes_cmp(members[i], members[i - 1]) <= 0) return false;
    }
    return true;
}

u32 zset_small_fill(struct engine *e, struct key_ref *ref, const bytes *members, const double *scores, u32 n)
{
    struct compact_item name, number;
    u64 need = 0;
    if ((i64)n > e->limits.zset_max_listpack_entries || !zset_small_in_order(members, scores, n))
        return UINT32_MAX;
    for (u32 i = 0; i < n; i++) {
        if ((i64)members[i].n > e->limits.zset_max_listpack_value) return UINT32_MAX;
        compact_item_text(&name, members[i]);
        compact_item_score(&number, scores[i]);
        need += compact_need(&name, &number);
    }
    if (need >= SMALL_SAFE) return UINT32_MAX;
    u32 twice = mem_find_twice(members, n, 1);
    if (twice < n) return twice;
    char *to = small_replace(e, ref, n, (u32)need);
    for (u32 i = 0; i < n; i++) {
        compact_item_text(&name, members[i]);
        compact_item_score(&number, scores[i]);
        to = compact_write(to, &name, &number);
    }
    return n;
}
