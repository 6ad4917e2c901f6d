/* Regions that have grown too large are split by their leaders.
 *
 * How large a region is, is looked up in the indexes of files (rocks_slots_bytes), on every member, and no
 * sooner than it has written a part of what it may have; a region that is not written to is looked at when
 * others were, because its memtables may have become files. So idle regions cost nothing. */
#include <stdio.h>

#include "cluster/cluster_parts.h"
#include "cluster/snapshot.h"

#define STEP_EVERY_MS 200
#define LOOKS_MAX 32          /* in one step: each takes up to a tenth of a millisecond */
#define LOOK_PARTS 64         /* a region that has written such a part of the limit is looked at … */
#define LOOK_AGAIN_MS 15000   /* … and one that may have changed otherwise after this time */
#define SPLIT_EVERY_MS 1000   /* of a region: a proposal may have failed */
#define SIZE_LEAST (1u << 20) /* smaller limits would make a region of every slot */

static u64 autosplit_limit(const struct cluster *c) /* bytes; 0: none */
{
    u64 max = (u64)c->server->config.cluster_region_max_size;
    return max ? MAX(max, SIZE_LEAST) : 0;
}

static u64 autosplit_keys(const struct cluster *c)
{
    u64 n = 0;
    for (u32 i = 0; i < c->members_n; i++) {
        struct engine *e = c->members[i]->region ? c->members[i]->region->eng : NULL;
        if (e) n += e->ops->count(e, 0);
    }
    return n;
}

/* -- looking ----------------------------------------------------------------------------------- */

static bool autosplit_look_due(const struct member *m, u64 part, u64 written_all, i64 now_ms)
{
    if (!m->looked_ms || rocks_written(m->region->eng) - m->looked_written >= part) return true;
    return written_all != m->looked_written_all && now_ms - m->looked_ms >= LOOK_AGAIN_MS;
}

static void autosplit_look(struct member *m, u64 keys, u64 written_all, i64 now_ms)
{
    struct engine *e = m->region->eng;
    m->bytes = rocks_slots_bytes(e, m->slots.first, m->slots.last, keys);
    m->looked_written = rocks_written(e);
    m->looked_written_all = written_all;
    m->looked_ms = now_ms;
}

/* -- splitting --------------------------------------------------------------------------------- */

/* A split ends a snapshot that is under way: that comes first. */
static bool autosplit_may(const struct member *m)
{
    const struct raft_conf *conf = &m->at.conf;
    return m->led && !m->install && !conf->outgoing_n && !snapshot_is_sent(m);
}

static void autosplit_too_large(struct member *m, u64 limit, u64 keys)
{
    struct cluster *c = m->cluster;
    const struct log *log = &m->server->log;
    u16 slot = rocks_half(m->region->eng, keys);
    if (!slot && m->slots.first == m->slots.last && !m->one_slot) {
        m->one_slot = true;
        log_line(log, LOG_WARNING,
                 "Region %llu has %llu bytes, more than cluster-region-max-size, and can't be split: all are "
                 "in slot %u",
                 (ull)m->number, (ull)m->bytes, m->slots.first);
    }
    if (!slot || cluster_split(c, slot)) return; /* it is tried again */
    snprintf(m->decision, sizeof m->decision, "split at %u: it has %llu bytes, more than %llu", slot,
             (ull)m->bytes, (ull)limit);
    log_line(log, LOG_NOTICE, "Region %llu is split at slot %u: it has %llu bytes, more than %llu.",
             (ull)m->number, slot, (ull)m->bytes, (ull)limit);
}

void cluster_autosplit_step(struct cluster *c)
{
    i64 now_ms = (i64)uv_now(&c->server->loop);
    u64 limit = autosplit_limit(c), written = rocks_written_all(c->server->rocks);
    u64 part = (limit ? limit : (u64)SIZE_LEAST * LOOK_PARTS) / LOOK_PARTS;
    u64 keys = 0;
    if (now_ms - c->autosplit_ms < STEP_EVERY_MS) return;
    c->autosplit_ms = now_ms;
    for (u32 i = 0, looks = 0; i < c->members_n; i++) {
        struct member *m = c->members[i];
        if (!m->region || m->install) continue;
        if (!keys) keys = autosplit_keys(c);
        if (looks < LOOKS_MAX && autosplit_look_due(m, part, written, now_ms)) {
            autosplit_look(m, keys, written, now_ms);
            looks++;
        }
        bool due = now_ms - m->split_ms >= SPLIT_EVERY_MS;
        if (!limit || m->bytes <= limit || !due || !autosplit_may(m)) continue;
        m->split_ms = now_ms;
        autosplit_too_large(m, limit, keys);
    }
}
