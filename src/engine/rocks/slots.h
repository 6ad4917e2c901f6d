/* Keys counted per slot, so that a region's counts are a sum over its slots and a split or merge of regions
 * recounts nothing. CLUSTER COUNTKEYSINSLOT reads them.
 *
 * In memory: an array over the region's slots for each database that has keys. It is as of the last commit;
 * the totals in struct rk_db include what the open transaction has changed.
 *
 * On disk there are two forms, because random keys are in random slots, and a row per changed slot would be
 * one more row written for every new key:
 *
 *   base      'c' · u64 prefix · u64 index · u16 slot   u64 stamp · u16 slots · counts of that many slots,
 *                                                       from `slot` on; zeros at the end are left out
 *   changes   for each database that changed: u64 index · u16 n · n × (u16 slot · counts)
 *
 *   counts = varint (keys << 2 | some have a deadline << 1 | some are hashes with field deadlines)
 *            [· varint keys with a deadline] [· varint hashes with field deadlines]
 *
 * A commit writes the new counts of the slots it has changed into its row of the region's log (state.h). When
 * the log is full, the next commit deletes it, and writes all counts as base rows if the log has any. The
 * stamp grows with each commit, and of what is stored about a slot, the highest stamp is valid.
 *
 * Base rows begin at a region's first slot and at multiples of SLOT_BLOCK. After a split or a merge some
 * may overlap; the stamps tell which counts are valid. The log is the region's own, so a split and a merge
 * write base rows, in the same batch. */
#ifndef MAYFLY_ENGINE_ROCKS_SLOTS_H
#define MAYFLY_ENGINE_ROCKS_SLOTS_H

#include "base/buf.h"

#define SLOT_BLOCK 256
/* Rows of a full log: as many for all regions of a database as for one, so that opening it stays quick, and
 * never so few that base rows are written often. */
#define SLOT_LOG_ROWS 4096
#define SLOT_LOG_ROWS_MIN 64

struct rk;
struct rk_db;
struct row;

struct slot_counts {
    u32 keys, expires, timed; /* all; with a deadline; hashes with field deadlines */
};

/* Of a database. */
struct slots {
    struct slot_counts *v; /* by slot − region.first; NULL: no keys */
    bool changed;          /* by the open transaction */
};

/* The changes of the open transaction, and what is in the log. */
struct slot_log {
    struct slot_change {
        struct rk_db *db;
        u16 slot;
        struct slot_counts was;
    } *changed; /* in order; a slot may be there more than once */
    u32 n, cap;
    struct slot_flush {
        struct rk_db *db;
        struct slot_counts *was;
    } *flushed; /* the counts of databases that the transaction has flushed */
    u32 flushes;
    u64 stamp;    /* of the last commit */
    u32 rows;     /* in the log */
    bool logged;  /* some of them have counts */
    bool full;    /* this commit deletes the log */
    bool base;    /* this commit deletes the log and writes base rows */
};

void slots_append(struct buf *out, const struct slot_counts *c);
bool slots_take(bytes *raw, struct slot_counts *out); /* from the front; false: malformed */

/* Calls fn for each slot in a row; false: malformed. */
typedef void (*slots_fn)(void *arg, u64 index, u16 slot, u64 stamp, const struct slot_counts *c);
bool slots_read_base(bytes key, bytes value, slots_fn fn, void *arg);
bool slots_read_changes(bytes raw, u64 stamp, slots_fn fn, void *arg);

/* -- the engine's: slots.c ------------------------------------------------------------------------- */

void slots_total(struct rk *rk); /* the totals of all databases, from the slots */
/* Called after state.c has found the end of the log. Sets the totals; engine.failed if that fails. */
void slots_load(struct rk *rk);
/* At commit, for each touched row: counts the change. */
void slots_count(struct rk *rk, const struct row *r);
void slots_count_key(struct rk *rk, struct rk_db *db, u16 slot, struct slot_counts add); /* adds; no undo */
void slots_flush(struct rk *rk, struct rk_db *db); /* at commit, before rows are counted: sets all to 0 */
/* At commit: takes the next stamp. False: the commit writes the next row of the log. True: it calls
 * slots_write, which writes all counts as base rows. */
bool slots_next(struct rk *rk);
void slots_write(struct rk *rk);
void slots_append_changes(struct rk *rk, struct buf *out);
void slots_committed(struct rk *rk);
void slots_abandon(struct rk *rk);   /* back to what is stored, the totals too */
void slots_release(struct rk *rk);
u64 slots_keys(const struct rk *rk, const struct rk_db *db, u16 slot); /* as of the last commit */

#endif
