#include "rdb/rdb_small.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "ds/rdb_blob.h"

#define SMALL_ENTRIES 4096  /* more are never packed as a whole, whatever the configuration says … */
#define SMALL_BYTES (64u << 10) /* … and neither are more bytes */

static bool few(u64 n, i64 limit) { return (i64)n <= MIN(limit, SMALL_ENTRIES); }

bool rdb_small_list(struct rdb_save *s)
{
    const struct seq_ops *seq = &s->eng->ops->seq;
    struct seq_iter it;
    bytes value;
    seq->iter(s->eng, s->ref, 0, false, &it);
    rdb_pack_begin(&s->blob);
    while (seq->next(&it, &value)) {
        if (s->blob.n + value.n + RDB_PACK_OVERHEAD > RDB_NODE_BYTES) return false;
        rdb_pack_add(&s->blob, value);
    }
    rdb_pack_end(&s->blob, s->elements);
    return true;
}

static bool collect_ints(struct rdb_save *s, i64 *v)
{
    struct map_iter it;
    bytes member;
    s->eng->ops->map.iter(s->eng, s->ref, &it);
    it.passing = true;
    for (u64 i = 0; i < s->elements; i++)
        if (!s->eng->ops->map.next(&it, &member, NULL) || !num_parse_i64(member, &v[i])) return false;
    return true;
}

bool rdb_small_ints(struct rdb_save *s)
{
    if (!few(s->elements, s->eng->limits.set_max_intset_entries)) return false;
    i64 *v = mem_alloc(MAX(s->elements, 1) * sizeof *v);
    bool ok = collect_ints(s, v);
    if (ok) rdb_intset(&s->blob, v, (u32)s->elements);
    mem_free(v);
    return ok;
}

bool rdb_small_zset(struct rdb_save *s)
{
    const struct engine_limits *limits = &s->eng->limits;
    struct zset_seek from_lowest = {.by = ZSEEK_RANK};
    struct zset_iter it;
    bytes member;
    double score;
    char text[64];
    if (!few(s->elements, limits->zset_max_listpack_entries)) return false;
    s->eng->ops->zset.iter(s->eng, s->ref, &from_lowest, &it);
    rdb_pack_begin(&s->blob);
    while (s->eng->ops->zset.next(&it, &member, &score)) {
        if ((i64)member.n > limits->zset_max_listpack_value || s->blob.n > SMALL_BYTES) return false;
        rdb_pack_add(&s->blob, member);
        rdb_pack_add(&s->blob, bytes_of(text, num_print_packed_score(text, score)));
    }
    rdb_pack_end(&s->blob, 2 * s->elements);
    return true;
}

struct hash_item {
    bytes field, value;
    i64 deadline_ms;
    u64 at; /* position in the engine's order */
};

/* Redis's order: the nearest deadline first, fields without one last. */
static int rdb_small_by_deadline(const void *a, const void *b)
{
    const struct hash_item *x = a, *y = b;
    if (x->deadline_ms != y->deadline_ms) return (u64)x->deadline_ms - 1 < (u64)y->deadline_ms - 1 ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* Collects the fields, if all of them are small enough. */
static bool collect_fields(struct rdb_save *s, struct hash_item *v, bool ttls)
{
    const struct map_ops *map = &s->eng->ops->map;
    struct map_iter it;
    size_t total = 0;
    i64 max = s->eng->limits.hash_max_listpack_value;
    map->iter(s->eng, s->ref, &it);
    for (u64 i = 0; i < s->elements; i++) {
        v[i] = (struct hash_item){.at = i};
        if (!map->next(&it, &v[i].field, &v[i].value)) return false;
        if ((i64)MAX(v[i].field.n, v[i].value.n) > max) return false;
        if ((total += v[i].field.n + v[i].value.n) > SMALL_BYTES) return false;
    }
    for (u64 i = 0; ttls && i < s->elements; i++)
        if (!map->field_deadline(s->eng, s->ref, v[i].field, &v[i].deadline_ms)) return false;
    return true;
}

static void pack_fields(struct rdb_save *s, struct hash_item *v, bool ttls)
{
    char digits[NUM_I64_LEN];
    if (ttls) qsort(v, s->elements, sizeof *v, rdb_small_by_deadline);
    rdb_pack_begin(&s->blob);
    for (u64 i = 0; i < s->elements; i++) {
        rdb_pack_add(&s->blob, v[i].field);
        rdb_pack_add(&s->blob, v[i].value);
        if (ttls) rdb_pack_add(&s->blob, bytes_of(digits, num_print_i64(digits, v[i].deadline_ms)));
    }
    rdb_pack_end(&s->blob, s->elements * (ttls ? 3 : 2));
    s->min_deadline_ms = v[0].deadline_ms;
}

bool rdb_small_hash(struct rdb_save *s, bool ttls)
{
    if (!few(s->elements, s->eng->limits.hash_max_listpack_entries)) return false;
    struct hash_item *v = mem_zalloc(MAX(s->elements, 1) * sizeof *v);
    bool ok = collect_fields(s, v, ttls);
    if (ok) pack_fields(s, v, ttls);
    mem_free(v);
    return ok;
}
