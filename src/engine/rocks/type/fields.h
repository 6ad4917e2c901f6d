/* The deadlines of a hash's fields. Two rows are stored for each:
 *
 *   field_deadline    P · version · field              u64 deadline
 *   redis_zset_score  P · version · u64 deadline · field      (empty)
 *
 * so that one field's deadline is a point read, and the dead ones are the first of the second
 * kind. A hash without any (row->field_deadlines) is never looked at here. Dead fields are still
 * elements: they are hidden, until reap takes them out.
 *
 * Of the stored state the row remembers as long as it is cached: in `value` the first row of the
 * second kind (deadline · field), empty when it is not known; how many fields were dead, and when.
 * So a storm of dying fields is neither counted nor searched from the start again and again. */
#ifndef MAYFLY_ENGINE_ROCKS_TYPE_FIELDS_H
#define MAYFLY_ENGINE_ROCKS_TYPE_FIELDS_H

#include "engine/rocks/delta.h"

/* Reads the deadline of a change's field, if that was not done yet, into the change. */
void fields_load(struct rk *rk, struct row *r, struct change *c);
/* Whether it is there for a command to see. */
bool fields_shows(struct rk *rk, struct row *r, struct change *c);
/* Gives an existing field another deadline; 0: none. The row must have been touched. */
void fields_set(struct rk *rk, struct row *r, struct change *c, i64 deadline_ms);

bool fields_any(struct rk *rk, struct row *r); /* puts row->field_deadlines right first */
bool fields_may_hide(struct rk *rk, struct row *r); /* some are not to be seen: cheap */
u64 fields_dead(struct rk *rk, struct row *r);      /* how many: O(those that died since the last time) */
i64 fields_nearest(struct rk *rk, struct row *r); /* the first deadline, passed or not; 0: there is none */
u32 fields_reap(struct rk *rk, struct row *r, u32 max, pair_fn fn, void *arg); /* see map_ops */
bool fields_reap_one(struct rk *rk, struct row *r, bytes field, pair_fn fn, void *arg);

/* The deadline of the element a forward walk stands on; 0: none. `beside` is the walk's own
 * companion: NULL at first, and to be given to store_iter_done at the end if it is not any more. */
i64 fields_deadline_at(struct walk *w, struct store_iter **beside);

/* What of a change's deadline is to be written, into the batch; and at the end what is to be known
 * of all of them: flag, index. */
void fields_write(struct rk *rk, struct row *r, const struct change *c);
void fields_commit(struct rk *rk, struct row *r);

#endif
