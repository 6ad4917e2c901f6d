/* The deadlines of a hash's fields. Two rows are stored for each:
 *
 *   field_deadline    P · version · field              u64 deadline
 *   redis_zset_score  P · version · u64 deadline · field      (empty)
 *
 * so that one field's deadline is a point read, and dead fields come first in the second kind. Hashes without
 * field deadlines (row->field_deadlines) skip all of this. Dead fields are still elements: they are hidden
 * until reap deletes them.
 *
 * A cached row keeps the first row of the second kind (deadline · field) in `value`, empty if not known, and
 * how many fields were dead at which time. So when many fields expire, they are not counted or searched from
 * the start again and again. */
#ifndef MAYFLY_ENGINE_ROCKS_TYPE_FIELDS_H
#define MAYFLY_ENGINE_ROCKS_TYPE_FIELDS_H

#include "engine/rocks/delta.h"

/* Reads the deadline of a change's field, if that was not done yet, into the change. */
void fields_load(struct rk *rk, struct row *r, struct change *c);
/* True if the field is visible to commands. */
bool fields_shows(struct rk *rk, struct row *r, struct change *c);
/* Gives an existing field another deadline; 0: none. The row must have been touched. */
void fields_set(struct rk *rk, struct row *r, struct change *c, i64 deadline_ms);

bool fields_any(struct rk *rk, struct row *r); /* recomputes row->field_deadlines if need be */
bool fields_may_hide(struct rk *rk, struct row *r); /* some fields may be dead: cheap */
u64 fields_dead(struct rk *rk, struct row *r);      /* how many: O(those that died since the last time) */
i64 fields_nearest(struct rk *rk, struct row *r); /* the first deadline, passed or not; 0: there is none */
/* These three: see map_ops. */
u32 fields_each_due(struct rk *rk, struct row *r, i64 until_ms, u32 max, pair_fn fn, void *arg);
u32 fields_reap(struct rk *rk, struct row *r, u32 max, pair_fn fn, void *arg);
bool fields_reap_one(struct rk *rk, struct row *r, bytes field, pair_fn fn, void *arg);

/* The deadline of the element at a forward walk's position; 0: none. `beside` is a second iterator kept with
 * the walk: NULL at first; if it is set at the end, call store_iter_done. */
i64 fields_deadline_at(struct walk *w, struct store_iter **beside);

/* Writes the deadline of a change into the batch; then, once per hash, its flag and its row in the deadline
 * index. */
void fields_write(struct rk *rk, struct row *r, const struct change *c);
void fields_commit(struct rk *rk, struct row *r);

#endif
