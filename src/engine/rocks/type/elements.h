/* A cache of elements of hashes, sets and sorted sets: whether a field is new, or which score a member has,
 * is then known without a read from RocksDB, which takes about two microseconds.
 *
 * An element is identified by its collection's version, which is never reused, and its name. The cache has
 * only committed elements, and no absent ones. */
#ifndef MAYFLY_ENGINE_ROCKS_TYPE_ELEMENTS_H
#define MAYFLY_ENGINE_ROCKS_TYPE_ELEMENTS_H

#include "base/bytes.h"
#include "engine/rocks/cache_budget.h"

struct elements;

struct elements *elements_new(struct cache_budget *of, u64 seed);
void elements_free(struct elements *e); /* NULL is fine */

/* `key` is version · name, the end of an element's key in `data`. Without a cache (e is NULL) these find and
 * do nothing. */
bool elements_find(struct elements *e, bytes key, bytes *value); /* until the next call */
void elements_remember(struct elements *e, bytes key, bytes value);
void elements_forget(struct elements *e, bytes key);

/* Collections with a version above this one are created from now on, so all their elements pass the cache. */
void elements_begin(struct elements *e, u64 version);

/* Records that some elements of the collection are not cached. */
void elements_leave_out(struct elements *e, u64 version);

/* True if all stored elements of the collection are cached: then one that is not found does not exist.
 * Becomes false for a collection, and for all older ones, when one of its elements is too long or is
 * evicted. */
bool elements_whole(const struct elements *e, u64 version);

u64 elements_memory(const struct elements *e);
/* Gives memory to other caches of the budget, if it has to. uses: as of cache_asked. */
void elements_share(struct elements *e, u64 uses);

#endif
