/* Small hashes with field deadlines, in their entry: FORM_TIMED. In front of the pairs (small.h) is where the
 * hash is filed in mem_db.fields, after them a deadline for each pair, 0 for none:
 *
 *   +-----------+--------+-------+------+------+-----+----------+----------+-----
 *   | wheel_pos | due    | count | pair | pair | …   | deadline | deadline | …
 *   | u16       | i64 ms |       |      |      |     | i64 ms   | i64 ms   |
 *   +-----------+--------+-------+------+------+-----+----------+----------+-----
 *
 * Once it has this form, a hash keeps it until it becomes a table, as Redis keeps listpackex. Operations are
 * O(fields), so a hash of more than TIMED_MAX fields is a table. */
#ifndef MAYFLY_ENGINE_MEMORY_MAP_TIMED_H
#define MAYFLY_ENGINE_MEMORY_MAP_TIMED_H

#include "engine/memory/small.h"

#define TIMED_MAX 256u

static inline struct small map_timed_of(const struct entry *entry)
{
    bytes v = entry_inline(entry);
    size_t count;
    char *p = (char *)length_read(v.p + TIMED_HEAD, &count);
    return (struct small){p, (u32)(v.p + v.n - p) - 8 * (u32)count, (u32)count};
}

static inline i64 map_timed_deadline(const struct small *s, u32 index)
{
    i64 deadline_ms;
    memcpy(&deadline_ms, small_end(s) + 8 * (size_t)index, 8);
    return deadline_ms;
}

/* Of the pair at `at`. */
i64 map_timed_deadline_at(const struct small *, const char *at);
static inline bool map_timed_alive(const struct engine *e, const struct small *s, const char *at)
{
    return alive(map_timed_deadline_at(s, at), e->now_ms);
}
bool map_timed_get(struct engine *, const struct key_ref *, bytes field, bytes *value); /* as map_ops.get */
/* As map_ops.stored, map_ops.due: the earliest first. */
bool map_timed_stored(struct engine *, const struct key_ref *, bytes field, bytes *value, i64 *deadline_ms);
u32 map_timed_due(const struct entry *, i64 until_ms, u32 max, pair_fn, void *arg);
u32 map_timed_dead(const struct entry *, i64 now_ms); /* fields */
i64 map_timed_nearest(const struct entry *);          /* deadline; 0: no field has one */

/* A small hash without deadlines gets room for them. False: it has too many fields. */
bool map_timed_begin(struct engine *, struct key_ref *);
/* The pairs of `entry`, dead ones too, are added to a table. */
void map_timed_to_table(const struct entry *, struct map_table *);
/* A copy that is not filed and has no dead fields, in place of `fresh`, which is freed. */
struct entry *map_timed_copied(struct entry *fresh, i64 now_ms);

/* These take the pair of a field, dead or alive. NULL: there is none. */
const char *map_timed_find(const struct small *, bytes field);
void map_timed_set_deadline(struct key_ref *, const char *at, i64 deadline_ms);
void map_timed_remove(struct engine *, struct key_ref *, const char *at);

/* As map_small_put; `keep` the deadline of a field that is alive. */
bool map_timed_put(struct engine *, struct key_ref *, bytes field, bytes value, bool keep, bool *added);
/* As map_ops.reap: fields whose deadline has passed, the earliest first. */
u32 map_timed_reap(struct engine *, struct key_ref *, u32 max, pair_fn, void *arg);
bool map_timed_reap_field(struct engine *, struct key_ref *, bytes field, pair_fn, void *arg);

#endif
