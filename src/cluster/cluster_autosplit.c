/* Leaders split regions that have grown too large, or get too many requests.
 *
 * How large a region is, is looked up in the indexes of files (rocks_slots_bytes), on every member, and no
 * sooner than it has written a part of what it may have: then it is in a list. A region that is not written
 * to is looked at in its turn, when others were, because its memtables may have become files. So idle regions
 * cost next to nothing.
 *
 * Requests are counted per region, in periods of LOAD_EVERY_MS. If there is a limit, the slots of about
 * LOAD_SAMPLES of them are recorded in each period. */
#include <stdio.h>

#include "cluster/cluster_parts.h"
#include "cluster/snapshot.h"

#define STEP_EVERY_MS 200
#define LOOKS_MAX 32          /* in one step: each takes up to a tenth of a millisecond */
#define LOOK_PARTS 64         /* a region that has written such a part of the limit is looked at … */
#define LOOK_AGAIN_MS 15000   /* … and one that may have changed otherwise after this time */
#define SPLIT_EVERY_MS 1000   /* of a region: a proposal may have failed */
#define LOAD_EVERY_MS 5000
#define SIZE_LEAST (1u << 20) /* smaller limits would make a region of every slot */

static u64 autosplit_limit(const struct cluster *c) /* bytes; 0: none */
{
    u64 max = (u64)c->server->config.cluster_region_max_size;
    return max ? MAX(max, SIZE_LEAST) : 0;
}

static u64 autosplit_keys(const struct cluster *c)
{
    u64 n = 0;
    for (u32 i = 1; i < c->members_n; i++) {
        struct engine *e = c->members[i]->region ? c->members[i]->region->eng : NULL;
        if (e) n += e->ops->count(e, 0);
    }
    return n;
}

/* -- looking ----------------------------------------------------------------------------------- */

static u64 autosplit_part(const struct cluster *c)
{
    u64 limit = autosplit_limit(c);
    return (limit ? limit : (u64)SIZE_LEAST * LOOK_PARTS) / LOOK_PARTS;
}

static bool autosplit_has_written(const struct member *m)
{
    return rocks_written(m->region->eng) - m->looked_written >= autosplit_part(m->cluster);
}

void cluster_autosplit_note(struct member *m)
{
    struct cluster *c = m->cluster;
    if (m->to_look || !m->region || cluster_is_meta(m)) return;
    if (m->looked_ms && !autosplit_has_written(m)) return;
    m->to_look = true;
    m->to_look_next = c->to_look;
    c->to_look = m;
}

static void autosplit_look(struct member *m, u64 keys, i64 now_ms)
{
    struct engine *e = m->region->eng;
    m->bytes = rocks_slots_bytes(e, m->slots.first, m->slots.last, keys);
    m->looked_written = rocks_written(e);
    m->looked_ms = now_ms;
}

/* -- splitting --------------------------------------------------------------------------------- */

/* A split would abort a snapshot of the region that is being sent, so the snapshot is finished first. */
static bool autosplit_may(const struct member *m)
{
    const struct raft_conf *conf = &m->at.conf;
    return m->led && !m->install && !conf->outgoing_n && !snapshot_is_sent(m);
}

static void autosplit_at(struct member *m, u16 slot, u64 has, const char *of_what, u64 limit)
{
    if (cluster_split(m->cluster, slot)) return; /* it is tried again */
    snprintf(m->decision, sizeof m->decision, "split at %u: it has %llu %s, more than %llu", slot, (ull)has,
             of_what, (ull)limit);
    log_line(&m->server->log, LOG_NOTICE, "Region %llu is split at slot %u: it has %llu %s, more than %llu.",
             (ull)m->number, slot, (ull)has, of_what, (ull)limit);
}

static void autosplit_too_large(struct member *m, u64 limit, u64 keys)
{
    u16 slot = rocks_half(m->region->eng, keys);
    if (!slot && m->slots.first == m->slots.last && !m->one_slot) {
        m->one_slot = true;
        log_line(&m->server->log, LOG_WARNING,
                 "Region %llu has %llu bytes, more than cluster-region-max-size, and can't be split: all are "
                 "in slot %u",
                 (ull)m->number, (ull)m->bytes, m->slots.first);
    }
    if (slot) autosplit_at(m, slot, m->bytes, "bytes", limit);
}

/* -- load -------------------------------------------------------------------------------------- */

void cluster_autosplit_sample(struct member *m, u16 slot)
{
    if (m->sample) load_add(m->sample, slot);
    m->sample_in = m->sample && m->sample_gap ? load_wait(m->sample, m->sample_gap) : m->sample_gap;
}

static void autosplit_too_busy(struct member *m, u64 limit)
{
    u16 slot = load_median(m->sample, m->slots);
    if (slot) {
        autosplit_at(m, slot, m->load, "requests a second", limit);
        return;
    }
    if (m->one_slot_load || m->sample->n < LOAD_SAMPLES / 4) return;
    m->one_slot_load = true;
    log_line(&m->server->log, LOG_WARNING,
             "Region %llu gets %llu requests a second, more than cluster-region-max-load, and is not split: "
             "one slot has most of them",
             (ull)m->number, (ull)m->load);
}

/* A period of counting is over. */
static void autosplit_load(struct member *m, u64 limit, i64 took_ms)
{
    u64 requests = m->requests - m->requests_before;
    m->requests_before = m->requests;
    m->load = requests * 1000 / (u64)took_ms;
    if (limit && m->load > limit && m->sample && autosplit_may(m)) autosplit_too_busy(m, limit);
    if (!limit || !m->led) {
        mem_free(m->sample);
        m->sample = NULL;
    } else if (!m->sample) {
        m->sample = mem_zalloc(sizeof *m->sample);
        m->sample->rng = m->number;
        m->sample_in = 0;
    }
    if (m->sample) m->sample->n = 0;
    m->sample_gap = load_gap(requests);
}

static void autosplit_loads(struct cluster *c, i64 now_ms)
{
    i64 took_ms = now_ms - c->load_ms;
    if (took_ms < LOAD_EVERY_MS) return;
    u64 limit = (u64)c->server->config.cluster_region_max_load;
    c->load_ms = now_ms;
    for (u32 i = 1; i < c->members_n; i++)
        if (c->members[i]->region) autosplit_load(c->members[i], limit, took_ms);
}

/* -- both -------------------------------------------------------------------------------------- */

/* True: it is to be looked at again. */
static bool autosplit_size(struct member *m, u64 *keys, i64 now_ms)
{
    struct cluster *c = m->cluster;
    u64 limit = autosplit_limit(c);
    if (!m->region || m->install) return true;
    if (!*keys) *keys = autosplit_keys(c);
    if (!m->looked_ms || autosplit_has_written(m))
        autosplit_look(m, *keys, now_ms);
    if (!limit || m->bytes <= limit) return false;
    bool due = now_ms - m->split_ms >= SPLIT_EVERY_MS;
    if (!due || !autosplit_may(m)) return true;
    m->split_ms = now_ms;
    autosplit_too_large(m, limit, *keys);
    return true;
}

/* So many that each has its turn within LOOK_AGAIN_MS. Files change for a while after the last write, so each
 * is looked at once more. */
static void autosplit_turn(struct cluster *c, i64 now_ms)
{
    u64 written = rocks_written_all(c->server->rocks);
    for (u32 n = c->members_n * STEP_EVERY_MS / LOOK_AGAIN_MS + 1; n > 0; n--) {
        c->looked = c->looked + 1 < c->members_n ? c->looked + 1 : 0;
        struct member *m = c->members[c->looked];
        if (written == m->looked_written_all || now_ms - m->looked_ms < LOOK_AGAIN_MS) continue;
        m->looked_written_all = written;
        m->looked_ms = 0;
        cluster_autosplit_note(m);
    }
}

static void autosplit_sizes(struct cluster *c, i64 now_ms)
{
    struct member *list = c->to_look;
    u64 keys = 0;
    c->to_look = NULL;
    for (u32 looks = 0; list; looks++) {
        struct member *m = list;
        list = m->to_look_next;
        m->to_look = false;
        if (looks < LOOKS_MAX && !autosplit_size(m, &keys, now_ms)) continue;
        m->to_look = true;
        m->to_look_next = c->to_look;
        c->to_look = m;
    }
}

void cluster_autosplit_step(struct cluster *c)
{
    i64 now_ms = (i64)uv_now(&c->server->loop);
    u64 limit = autosplit_limit(c);
    if (now_ms - c->autosplit_ms < STEP_EVERY_MS) return;
    c->autosplit_ms = now_ms;
    autosplit_loads(c, now_ms);
    if (limit != c->look_limit) { /* what was not too large may be */
        for (u32 i = 1; i < c->members_n; i++) {
            c->members[i]->looked_ms = 0;
            cluster_autosplit_note(c->members[i]);
        }
    }
    c->look_limit = limit;
    autosplit_turn(c, now_ms);
    autosplit_sizes(c, now_ms);
}
