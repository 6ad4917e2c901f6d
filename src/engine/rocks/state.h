/* The rows of meta_info: what the engine stores about a region beside its data, always
 * written in the same batch as that data.
 *
 *   'v'                                              u32 version of this layout
 *   's' · u64 region                                 head · u64 prefix · u16 first slot · u16 last slot
 *   'e' · u64 region · u64 stamp                     head without stamp · slots.h: the counts that the
 *                                                    commit has changed
 *   'i' · u64 prefix · u32 database                  u64 index (only of databases that were swapped). An
 *                                                    index of no database is a staging one: rk.h
 *   'c' · u64 prefix · u64 index                     empty: this index has, or had, keys
 *   'c' · u64 prefix · u64 index · u16 slot          slots.h: counts of keys per slot, from this slot on
 *   'b' · u64 prefix · u64 index · u8 level          due.c: u64 keys counted in this bucket · u64 sum of
 *       · u64 bucket                                 their deadlines, each less its start, modulo 2^64 ·
 *                                                    in which part of it they lie (due_counts.h)
 *   'p' · u64 region                                 due.c: how far the deadline index is drained (due_row.h)
 *   'n' · u64 region                                 engine.repl_position
 *   'f' · u64 1 · name                               META_FUNCTIONS (engine.h): the code of a library. Older
 *                                                    versions had one row, without a name, of all libraries
 *   'm' · u64 1 · name                               META_CLUSTER: the nodes of a cluster, and how far each
 *                                                    region has applied its log
 *   'w' · u64 1 · "site"                             META_SITE: what a site knows beside its keys
 *   'k' · P                                          empty: a companion that stays (companion.h)
 *   'l'                                              how far the migration of old strings has come; absent:
 *                                                    there never were any
 *
 *   head = u64 stamp · u64 applied sequence · u64 last version · i64 clock
 *
 * Every commit writes one row with a head, and the region's state is the head with the highest stamp. Usually
 * that row is the next one of the region's log, 'e'. The row 's' says that the region exists. It is written
 * when its slots change, and with all counts (slots.h). The state is a log with ever new keys, not one row
 * that is overwritten, because a memtable inserts a key that follows the last one without a search.
 *
 * In STATE_LAYOUT_BEFORE, 's' has a head without stamp, and ends there if it is region 1 with prefix 1 and
 * all slots. Changed counts are in rows 'd' · u64 region · u16 position: u64 stamp · counts. A region's
 * first commit replaces these rows.
 *
 * Rows with a region's id are that region's alone. Rows with a prefix are of all regions that were split off
 * from one another: a split or a merge leaves them as they are.
 */
#ifndef MAYFLY_ENGINE_ROCKS_STATE_H
#define MAYFLY_ENGINE_ROCKS_STATE_H

#include "engine/rocks/rk.h"

/* Of the row 'v'. 2: coarse buckets of the deadline index are visited a width before they start. 3: keys are
 * counted per slot. 4: a log of each region's commits. */
#define STATE_LAYOUT 4
#define STATE_LAYOUT_BEFORE 3    /* read as it is; opening the database makes it 4 */
#define STATE_LAYOUT_UNCOUNTED 2 /* migrated at start: recount.h */

/* Metadata rows are the database's, whichever region's engine writes them. */
#define STATE_META_PREFIX 1

struct state_head {
    u64 stamp, applied, version;
    i64 clock_ms;
};

/* Writes the row 'v' of a new database, before its first region is opened, because others may be opened while
 * that one writes: a database that has keys, but no such row, was made elsewhere (legacy.h). Reads the last
 * versions of all regions. */
bool state_open(struct rocks *db, struct buf *why);
/* Reads all rows but those of due.c; empties staging databases.
 * False: `why` says what is wrong (another layout, fewer databases than have keys …). */
bool state_load(struct rk *rk, struct buf *why);
/* Whether `data`, where strings of the old form are, has rows of our databases only; `why` if not. */
bool state_covers_data(struct rk *rk, struct buf *why);
void state_commit(struct rk *rk, u64 seq); /* what changed, into the batch */
void state_committed(struct rk *rk, u64 seq); /* the batch was written */
void state_abandon(struct rk *rk);         /* the transaction failed: back to what is stored */

/* A version that no region has given out yet. */
u64 state_next_version(struct rk *rk, u64 at_least);
void state_raise_version(struct rk *rk, u64 version); /* none gives out this one any more, or one before it */
/* Of a row 's'; of a row 'e' or 'd' with this key. False: malformed. What is missing in heads of
 * STATE_LAYOUT_BEFORE is 0. */
bool state_read_region(bytes value, struct state_head *head, struct rocks_region *out);
bool state_read_log(bytes key, bytes value, struct state_head *head, bytes *changes);
struct store_iter *state_log_iter(struct rk *rk); /* over the rows of the region's log */
void state_regions_each(struct store *store, bool (*each)(void *arg, const struct rocks_region *r),
                        void *arg);
void state_forget_region(struct rk *rk, u64 region); /* deletes the rows of this region alone, in the batch */

extern const struct meta_ops rk_meta_ops;

#endif
