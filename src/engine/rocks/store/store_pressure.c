/* Write pressure: how much of what was written still waits for RocksDB's background threads.
 *
 * RocksDB's own answer to a backlog is to delay or stop the write itself. The loop would block in it, and all
 * reads with it, or (no_slowdown) the commit would fail. So its triggers are off (store_options.c): a commit
 * always goes through, and the owner of the transactions asks here first and makes writers wait.
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

/* RocksDB has this number as a text only. */
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
    s->stalls += pressure == DISK_PRESSURE_MAX && s->pressure < DISK_PRESSURE_MAX;
    s->pressure = pressure;
    s->measured_at = s->written;
    return pressure;
}

u32 store_pressure(struct store *s, bool measure)
{
    return measure ? store_measure_pressure(s) : s->pressure;
}

u64 store_written(const struct store *s) { return s->written; }

void store_count_written(struct store *s, size_t n)
{
    s->written += n;
    if (s->written - s->measured_at > MAX(s->limits.unflushed / 64, MEASURE_LEAST)) store_measure_pressure(s);
}
