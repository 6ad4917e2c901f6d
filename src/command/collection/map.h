/* Shared by hash and set commands: both are maps to the engine. */
#ifndef MAYFLY_COMMAND_COLLECTION_MAP_H
#define MAYFLY_COMMAND_COLLECTION_MAP_H

#include "command/ctx.h"

/* -- the primitives, as a command calls them --------------------------------------- */

static inline u64 map_size(struct ctx *c, struct key_ref *ref)
{
    return c->eng->ops->size(c->eng, ref);
}

static inline bool map_get(struct ctx *c, struct key_ref *ref, bytes field, bytes *value)
{
    return c->eng->ops->map.get(c->eng, ref, field, value);
}

static inline bool map_has(struct ctx *c, struct key_ref *ref, bytes field)
{
    return c->eng->ops->map.get(c->eng, ref, field, NULL);
}

static inline bool map_put(struct ctx *c, struct key_ref *ref, bytes field, bytes value)
{
    return c->eng->ops->map.put(c->eng, ref, field, value, false);
}

static inline bool map_del(struct ctx *c, struct key_ref *ref, bytes field)
{
    return c->eng->ops->map.del(c->eng, ref, field);
}

/* Of a hash's field; false: there is no such field. A deadline of 0 is none. */
static inline bool map_deadline(struct ctx *c, struct key_ref *ref, bytes field, i64 *deadline_ms)
{
    return c->eng->ops->map.field_deadline(c->eng, ref, field, deadline_ms);
}

static inline void map_set_deadline(struct ctx *c, struct key_ref *ref, bytes field, i64 deadline_ms)
{
    c->eng->ops->map.set_field_deadline(c->eng, ref, field, deadline_ms);
}

static inline void map_iter(struct ctx *c, struct key_ref *ref, struct map_iter *it)
{
    c->eng->ops->map.iter(c->eng, ref, it);
}

static inline bool map_next(struct ctx *c, struct map_iter *it, bytes *field, bytes *value)
{
    return c->eng->ops->map.next(it, field, value);
}

static inline bool map_random(struct ctx *c, struct key_ref *ref, bytes *field, bytes *value)
{
    return c->eng->ops->map.random(c->eng, ref, &c->rng, field, value);
}

/* -- whole commands ---------------------------------------------------------------- */

/* HSCAN and SSCAN: argv holds the key, the cursor and the options. */
void map_scan(struct ctx *c, enum value_type type);

/* HRANDFIELD and SRANDMEMBER with a count: a positive one draws that many different elements, or all there
 * are; a negative one draws -count elements that may repeat. map_draws() computes how many that makes (false:
 * an error was replied), map_draw() passes each to emit. The map must not be empty. */
typedef void (*map_emit)(struct ctx *c, bytes field, bytes value);
NODISCARD bool map_draws(struct ctx *c, struct key_ref *ref, i64 count, u64 *draws);
void map_draw(struct ctx *c, struct key_ref *ref, i64 count, map_emit emit);

#endif
