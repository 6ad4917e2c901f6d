/* The companion of a key: metadata that a layer above keeps beside the value. It has a head of some bytes and
 * rows, each with a name and a value, in the order of their names (memcmp, then length): one for each field,
 * member or element that needs one. Active-active replication keeps its clocks there.
 *
 *     struct key_ref ref;
 *     bytes head;
 *     e->ops->find(e, db, key, &ref);            // whether or not the key is there
 *     e->ops->companion.set_head(e, &ref, BYTES_LIT("..."));
 *     e->ops->companion.put(e, &ref, field, BYTES_LIT("dot"));
 *     if (e->ops->companion.head(e, &ref, &head)) ...
 *
 * A companion is of a key's name, not of its value:
 *
 * - It is part of the same transaction as the data: committed or aborted with it.
 * - Overwriting the key, whatever the types, leaves the companion alone. drop() deletes it, unless
 *   keep(true) was called. One that stays exists until companion.drop(), keep(false) or flush(), whether
 *   the key exists, is deleted, or created again. A companion that is created while its key is absent stays,
 *   too.
 * - rename() and copy() do not move it. The new name keeps the one it had, the old name's is deleted as with
 *   drop().
 * - swap() exchanges those of two databases. flush() deletes all, also those that stay.
 * - A key's deadline does not concern it. An engine that deletes a key on its own because of its deadline
 *   (engine.h, report_expiry) leaves one with a companion to due().
 *
 * Those that stay can be iterated (each_kept) in time that depends on their number alone: of deleted keys
 * whose metadata waits for garbage collection, and of existing keys that have something to collect.
 *
 * Snapshots show the companions of the same moment as the data. One that goes with its key is read through
 * the ref of the key. One that stays is handed out separately, exactly once, by next() or to `keep`, as a ref
 * of TYPE_NONE with an entry, key and database. So a snapshot's reader skips the companion of a key for
 * which kept() is true: what the key's ref shows of it may be newer.
 *
 * usage() of a key counts its companion. An engine without these operations has head == NULL.
 *
 * Costs. A key without a companion has none: no byte, and dropping it looks at a flag only. Reading and
 * writing a head is O(1), a row O(log n). drop() is O(1); reclaim() or compactions free the rows. Memory
 * engine: a head of up to 15 bytes without rows takes 16 bytes. RocksDB: it is read only
 * on demand, and never as long as the database has never had a companion.
 *
 * Slices handed out live until the next primitive that writes to the same key or its companion, or until
 * commit(). In a snapshot's view they live as long as the key that was handed out. */
#ifndef MAYFLY_ENGINE_COMPANION_H
#define MAYFLY_ENGINE_COMPANION_H

#include "base/buf.h"
#include "engine/handles.h"

#define COMPANION_HEAD_MAX 1024 /* bytes; names and values of rows may be as long as those of a hash */

/* A ref comes from find(), also if that returned false, or from a snapshot. Writing may move what
 * ref->entry points to: ref is adjusted, other refs to the same key are no longer valid. */
struct companion_ops {
    bool (*head)(struct engine *, struct key_ref *, bytes *head); /* false: there is no companion */
    /* These two make the companion if there is none; put() with an empty head. */
    void (*set_head)(struct engine *, struct key_ref *, bytes head);
    void (*put)(struct engine *, struct key_ref *, bytes name, bytes value);
    bool (*get)(struct engine *, struct key_ref *, bytes name, bytes *value); /* value may be NULL */
    bool (*del)(struct engine *, struct key_ref *, bytes name); /* true: it was there */
    /* As rows_ops. The companion must not change meanwhile. */
    void (*iter)(struct engine *, struct key_ref *, bytes from, bool reverse, struct rows_iter *);
    bool (*next)(struct rows_iter *, bytes *name, bytes *value); /* value may be NULL */
    void (*done)(struct rows_iter *);
    void (*drop)(struct engine *, struct key_ref *); /* with all rows; it may be absent */

    /* Whether it stays when the key is deleted. keep(false) drops the companion of an absent key. */
    void (*keep)(struct engine *, struct key_ref *, bool stays);
    bool (*kept)(struct engine *, struct key_ref *); /* false: it does not stay, or there is none */
    /* Calls fn for about `count` companions of a database that stay; ref is as from find(). False: that was
     * the last. `place` is where the walk continues, initially empty; it is valid across transactions.
     * Companions that stay during the whole walk are visited at least once. Those that stay since the open
     * transaction may be missed. fn must not change any companion. */
    bool (*each_kept)(struct engine *, u32 db, struct buf *place, u32 count, key_fn, void *arg);
};

#endif
