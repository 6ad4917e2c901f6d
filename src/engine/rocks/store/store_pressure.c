/* Write pressure: how much of what was written still waits for RocksDB's background threads.
 *
 * With a backlog RocksDB itself would delay or stop the write. That would block the loop, and all reads with
 * it, or (no_slowdown) fail the commit. So its triggers are off (store_options.c): a commit always goes
 * through, and the server asks here first and makes clients that write wait.
 *
 * Three backlogs count: memtables that wait to be flushed, files in L0, bytes to be compacted. Each has a
 * soft limit, where pressure begins, and a hard one, where it is DISK_PRESSURE_MAX. The highest of them
 * counts. */
#include "engine/rocks/store/store_impl.h"

#include <stdlib.h>

#define MEASURE_LEAST (256u << 10) /* bytes written between two measurements, at least */

static u32 between(u64 value, u64 soft, u64 hard)
{
    if (LIKELY(value <= soft)) return 0;
    return (u32)(MIN(value - soft, hard - soft) * DISK_PRESSURE_MAX / (hard - soft));
}

/* RocksDB reports this number only as text. */
static u64 level0_files(struct store *s, enum family f)
{
    char *text = rocksdb_property_value_cf(s->db, s->cf[f], "rocksdb.num-files-at-level0");
    u64 n = text ? strtoull(text, NULL, 10) : 0;
    if (text) rocksdb_free(text);
    return n;
}

static u32 family_pressure(struct store *s, enum family f)
{
    const struct store_limits *l = &s->limits;
    u64 files = level0_files(s, f);
    u64 pending = store_number(s, f, "rocksdb.estimate-pending-compaction-bytes");
    return MAX(between(files, l->level0[f], 2 * l->level0[f]),
               between(pending, l->pending_soft, l->pending_hard));
}

u32 store_measure_pressure(struct store *s)
{
    u64 unflushed = 0;
    u32 pressure = 0;
    for (int f = 0; f < FAM_COUNT; f++) {
        u64 all = store_number(s, (enum family)f, "rocksdb.cur-size-all-mem-tables");
        unflushed += all - MIN(all, store_number(s, (enum family)f, "rocksdb.cur-size-active-mem-table"));
        pressure = MAX(pressure, family_pressure(s, (enum family)f));
    }
    pressure = MAX(pressure, between(unflushed, s->limits.unflushed / 2, s->limits.unflushed));
    atomic_store_explicit(&s->measured_at, store_written(s), memory_order_relaxed);
    u32 before = atomic_exchange_explicit(&s->pressure, pressure, memory_order_relaxed);
    if (pressure == DISK_PRESSURE_MAX && before < DISK_PRESSURE_MAX)
        atomic_fetch_add_explicit(&s->stalls, 1, memory_order_relaxed);
    return pressure;
}

u32 store_pressure(struct store *s, bool measure)
{
    return measure ? store_measure_pressure(s) : atomic_load_explicit(&s->pressure, memory_order_relaxed);
}

u64 store_written(const struct store *s) { return atomic_load_explicit(&s->written, memory_order_relaxed); }

void store_count_written(struct store *s, size_t n)
{
    u64 written = atomic_fetch_add_explicit(&s->written, n, memory_order_relaxed) + n;
    u64 measured_at = atomic_load_explicit(&s->measured_at, memory_order_relaxed);
    if ((i64)(written - measured_at) > (i64)MAX(s->limits.unflushed / 64, MEASURE_LEAST))
        store_measure_pressure(s);
}
