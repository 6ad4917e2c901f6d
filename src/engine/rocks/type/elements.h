/* Elements of hashes, sets and sorted sets that were read or written lately: whether a field is new, or what
 * score a member has, is then known without asking RocksDB, which costs about two microseconds.
 *
 * An element is known by its collection's version, which is never used twice, and its name. Only what is
 * stored and committed is here, and only elements that are there. */
#ifndef MAYFLY_ENGINE_ROCKS_TYPE_ELEMENTS_H
#define MAYFLY_ENGINE_ROCKS_TYPE_ELEMENTS_H

#include "base/bytes.h"

struct elements;

struct elements *elements_new(u64 budget, u64 seed); /* budget: bytes of memory */
void elements_free(struct elements *e); /* NULL is fine */

/* `key` is version · name, the end of an element's key in `data`. Without a cache (NULL) nothing is found,
 * and nothing happens. */
bool elements_find(struct elements *e, bytes key, bytes *value); /* until the next call */
void elements_remember(struct elements *e, bytes key, bytes value);
void elements_forget(struct elements *e, bytes key);

/* Collections younger than `version` are made from now on, so that every element of theirs comes by here. */
void elements_begin(struct elements *e, u64 version);

/* Whether all stored elements of the collection are here: then one that is not found does not exist. That
 * ends when one is too long to be kept or has to make room, for its collection and for older ones. */
bool elements_whole(const struct elements *e, u64 version);

u64 elements_memory(const struct elements *e);

#endif
