#include "keyspace/evict.h"

#include <math.h>

#include "base/rand.h"

#define MAX_PER_CALL 32  /* evictions per command at most */
#define DUE_PER_CALL 256 /* expired keys deleted per command at most */

void evictor_init(struct evictor *v, u64 seed)
{
    *v = (struct evictor){.samples = 5, .rng = seed};
    mem_meter_open(&v->meter);
}

void evictor_release(struct evictor *v)
{
    for (u32 i = 0; i < EVICT_POOL; i++) buf_release(&v->pool[i].key);
}

/* Memory held back by a snapshot counts as freed: evicting for it would evict too much. */
static bool over(const struct evictor *v, const struct keyspace *ks)
{
    return evictor_used(v) > v->maxmemory + v->not_counted + ks->eng->held;
}
static bool all_keys(const struct keyspace *ks) { return ks->policy & 16; }

static bool evict_sample_key(struct evictor *v, struct keyspace *ks, u32 db, struct key_ref *ref)
{
    struct engine *e = ks->eng;
    return all_keys(ks) ? e->ops->random(e, db, &v->rng, ref)
                        : e->ops->random_volatile(e, db, &v->rng, ref);
}

static double score_of(struct keyspace *ks, struct key_ref *ref)
{
    struct engine *e = ks->eng;
    if (!alive(ref->deadline_ms, ks->dead_by_ms)) return HUGE_VAL; /* not offered by the index yet */
    if (ks->policy & EVICT_VOLATILE_TTL) return -(double)ref->deadline_ms;
    u32 bits = e->ops->access(e, ref);
    if (ks->policy & EVICT_VOLATILE_LFU) return 255 - (double)access_frequency(ks, bits);
    return (double)access_idle_ms(ks, bits);
}

static bool pooled_already(const struct evictor *v, u32 db, bytes key)
{
    for (u32 i = 0; i < v->pooled; i++) {
        if (v->pool[i].db == db && bytes_eq(buf_bytes(&v->pool[i].key), key)) return true;
    }
    return false;
}

static void pool_insert(struct evictor *v, double score, u32 db, bytes key)
{
    if (v->pooled == EVICT_POOL && score <= v->pool[0].score) return;
    if (pooled_already(v, db, key)) return;
    struct evict_candidate *pool = v->pool;
    struct buf name;
    u32 at;
    if (v->pooled == EVICT_POOL) { /* replaces the worst candidate */
        name = pool[0].key;
        for (at = 0; at + 1 < EVICT_POOL && pool[at + 1].score < score; at++) pool[at] = pool[at + 1];
    } else {
        name = pool[v->pooled].key;
        for (at = v->pooled++; at > 0 && pool[at - 1].score > score; at--) pool[at] = pool[at - 1];
    }
    buf_clear(&name);
    buf_append_bytes(&name, key);
    pool[at] = (struct evict_candidate){score, db, name};
}

static void feed_pool(struct evictor *v, struct keyspace *ks)
{
    struct engine *e = ks->eng;
    for (u32 db = 0; db < e->databases; db++) {
        if (e->ops->count(e, db) == 0) continue;
        struct key_ref ref;
        for (u32 i = 0; i < v->samples && evict_sample_key(v, ks, db, &ref); i++)
            pool_insert(v, score_of(ks, &ref), db, ref.key);
    }
}

/* Takes the best candidate that still exists. Drops candidates that do not. */
static bool take_best(struct evictor *v, struct keyspace *ks, struct key_ref *ref)
{
    struct engine *e = ks->eng;
    feed_pool(v, ks);
    while (v->pooled) {
        struct evict_candidate *c = &v->pool[--v->pooled];
        bool found = e->ops->find(e, c->db, buf_bytes(&c->key), ref);
        if (found && (all_keys(ks) || ref->deadline_ms)) return true;
    }
    return false;
}

static bool take_random(struct evictor *v, struct keyspace *ks, struct key_ref *ref)
{
    for (u32 n = 0; n < ks->eng->databases; n++) {
        u32 db = v->next_db++ % ks->eng->databases;
        if (evict_sample_key(v, ks, db, ref)) return true;
    }
    return false;
}

static void evict_key(struct keyspace *ks, struct key_ref *ref)
{
    if (ks->mode == EXPIRY_ACTIVE && !alive(ref->deadline_ms, ks->dead_by_ms)) {
        keyspace_expire(ks, ref, false);
        return;
    }
    journal_effect(ks->journal, ref->db, 2, (bytes[]){BYTES_LIT("DEL"), ref->key});
    ks->stats.evicted_keys++;
    keyspace_touched(ks, ref->db, ref->key);
    keyspace_notify(ks, ref->db, ref->key, NOTIFY_EVICTED, "evicted");
    ks->eng->ops->drop(ks->eng, ref);
}

static void due_key(void *arg, struct key_ref *ref) { keyspace_reclaim(arg, ref, DUE_PER_CALL); }

/* Deletes dead keys before any live key is evicted. */
static void expire_first(struct evictor *v, struct keyspace *ks)
{
    struct engine *e = ks->eng;
    if (ks->mode == EXPIRY_ACTIVE) e->ops->due(e, ks->now_ms, DUE_PER_CALL, due_key, ks);
    /* Also frees memory of objects in the lazy-free queue. */
    for (u32 n = 0; over(v, ks) && n < MAX_PER_CALL && e->ops->reclaim(e, DUE_PER_CALL); n++) {}
}

bool evict_as_needed(struct evictor *v, struct keyspace *ks)
{
    v->unfinished = false;
    if (v->maxmemory == 0 || !over(v, ks)) return true;
    if (ks->mode == EXPIRY_PAUSED) return true;
    expire_first(v, ks);
    for (u32 n = 0; over(v, ks) && n < MAX_PER_CALL; n++) {
        struct key_ref ref;
        if (ks->policy == EVICT_NONE || ks->mode == EXPIRY_SITE) return false;
        bool found = ks->policy & EVICT_VOLATILE_RANDOM ? take_random(v, ks, &ref) : take_best(v, ks, &ref);
        if (!found) return false;
        evict_key(ks, &ref);
        ks->eng->ops->reclaim(ks->eng, DUE_PER_CALL);
    }
    v->unfinished = over(v, ks);
    return true;
}

bool evict_step(struct evictor *v, struct keyspace *ks)
{
    return v->unfinished && evict_as_needed(v, ks) && v->unfinished;
}
