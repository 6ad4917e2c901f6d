/* The lookup gate. Every command reaches keys through keyspace_find; no other place decides whether a key is
 * alive. */
#include "keyspace/keyspace.h"

#include "base/rand.h"

#define BURY_FIELDS 64 /* fields of a hollow hash that a command deletes one by one, at most */
#define LFU_NEW_KEY 5 /* initial counter of a new key, so that it is not evicted at once */

void keyspace_init(struct keyspace *ks, struct engine *eng, struct journal *journal)
{
    *ks = (struct keyspace){
        .eng = eng, .journal = journal, .next = ks, .lfu_log_factor = 10, .lfu_decay_minutes = 1,
        .max_string = 512ULL << 20, .compress = true, .hll_sparse_max = 3000, .stream_node_max_bytes = 4096,
        .stream_node_max_entries = 100,
    };
}

void keyspace_begin(struct keyspace *ks, i64 now_ms, enum expiry_mode mode)
{
    ks->now_ms = ks->dead_by_ms = now_ms;
    ks->found_dead_ms = 0;
    keyspace_set_mode(ks, mode);
    ks->eng->ops->begin(ks->eng, now_ms);
    ks->eng->fresh_access = access_new(ks);
    if (UNLIKELY(!expiry_hides(mode))) ks->dead_by_ms = ks->eng->now_ms = 0;
}

/* -- the access clock: 24 bits per key ------------------------------------------ */

static u32 lru_clock(const struct keyspace *ks) { return (u32)(ks->now_ms / 1000) & 0xffffff; }
static u32 lfu_minutes(const struct keyspace *ks) { return (u32)(ks->now_ms / 60000) & 0xffff; }
static bool uses_lfu(const struct keyspace *ks) { return ks->policy & 1; }

u32 access_lfu_bits(const struct keyspace *ks, u32 counter) { return lfu_minutes(ks) << 8 | counter; }

u32 access_new(const struct keyspace *ks)
{
    return uses_lfu(ks) ? access_lfu_bits(ks, LFU_NEW_KEY) : lru_clock(ks);
}

/* The time between two readings of a clock that wraps after `mask`. An age in the last sixteenth of the range
 * is read as a timestamp from before the clock was set back, and counts as 0: a key used recently must not
 * look as if it had been idle for half a year. */
static u32 access_elapsed(u32 now, u32 then, u32 mask)
{
    u32 passed = (now - then) & mask;
    return passed > mask - mask / 16 ? 0 : passed;
}

u64 access_idle_ms(const struct keyspace *ks, u32 bits)
{
    return (u64)access_elapsed(lru_clock(ks), bits, 0xffffff) * 1000;
}

u32 access_frequency(const struct keyspace *ks, u32 bits)
{
    u32 counter = bits & 0xff;
    if (ks->lfu_decay_minutes == 0) return counter;
    u32 periods = access_elapsed(lfu_minutes(ks), bits >> 8, 0xffff) / ks->lfu_decay_minutes;
    return periods > counter ? 0 : counter - periods;
}

/* The clock wraps around: no longer idle time can be represented. */
#define LRU_OLDEST_S 0x7fffff

void access_restore(struct keyspace *ks, struct key_ref *ref, i64 idle_s, i64 frequency)
{
    struct engine *e = ks->eng;
    if (uses_lfu(ks) && frequency >= 0) {
        e->ops->set_access(e, ref, access_lfu_bits(ks, (u32)frequency));
    } else if (!uses_lfu(ks) && idle_s >= 0) {
        u32 idle = (u32)MIN(idle_s, LRU_OLDEST_S);
        e->ops->set_access(e, ref, (lru_clock(ks) - idle) & 0xffffff);
    }
}

/* The counter is logarithmic: the higher it is, the less likely an access increments it. */
static u32 lfu_touched(struct keyspace *ks, u32 bits)
{
    u32 counter = access_frequency(ks, bits);
    if (counter < 255) {
        u32 above = counter > LFU_NEW_KEY ? counter - LFU_NEW_KEY : 0;
        if (rand_below(&ks->access_rng, (u64)above * ks->lfu_log_factor + 1) == 0) counter++;
    }
    return access_lfu_bits(ks, counter);
}

static void touch(struct keyspace *ks, struct key_ref *ref)
{
    struct engine *e = ks->eng;
    u32 old = e->ops->access(e, ref);
    u32 fresh = uses_lfu(ks) ? lfu_touched(ks, old) : e->fresh_access;
    if (fresh != old) e->ops->set_access(e, ref, fresh);
}

/* -- the gate ---------------------------------------------------------------------- */

bool keyspace_hash_is_hollow(struct keyspace *ks, struct key_ref *ref)
{
    struct engine *e = ks->eng;
    if (LIKELY(!e->ops->map.has_field_deadlines(e, ref))) return false;
    /* The engine hides dead fields: which of them a command looked for is not known here. */
    if (expiry_of_group(ks->mode) && e->ops->map.dead_fields(e, ref)) ks->found_dead_ms = ks->now_ms;
    return e->ops->size(e, ref) == 0;
}

/* Whether a snapshot would have to write the whole hash before a field can be deleted. */
static bool hash_is_heavy(struct keyspace *ks, struct key_ref *ref)
{
    return ks->eng->ops->snapshot.heavy(ks->eng, ref->db, ref->key);
}

/* Deletes a hollow hash. A few fields are deleted one by one, the rest together with the hash. If every
 * expired field has to be reported (on_expired), the rest stays hidden and is left to the cycle, so that no
 * read pays for all of them. Only a command that may create a new value under the name (vacate) deletes all
 * fields. */
static void bury_hollow(struct keyspace *ks, struct key_ref *ref, bool vacate)
{
    struct engine *e = ks->eng;
    bool each = ks->on_expired != NULL, all = each && vacate;
    if (all || !hash_is_heavy(ks, ref)) keyspace_reap_fields(ks, ref, all ? UINT32_MAX : BURY_FIELDS, true);
    if (!ref->entry || (each && !vacate)) return;
    ks->stats.expired_fields += e->ops->map.dead_fields(e, ref);
    if (expiry_is_recorded(ks->mode))
        journal_effect(ks->journal, ref->db, 2, (bytes[]){BYTES_LIT("DEL"), ref->key});
    keyspace_touched(ks, ref->db, ref->key);
    keyspace_notify(ks, ref->db, ref->key, NOTIFY_GENERIC, "del");
    e->ops->drop(e, ref);
}

void keyspace_bury_hollow(struct keyspace *ks, struct key_ref *ref) { bury_hollow(ks, ref, false); }

static void bury_dead(struct keyspace *ks, struct key_ref *ref)
{
    if (!ks->deletes_dead) return;
    if (!alive(ref->deadline_ms, ks->dead_by_ms)) keyspace_expire(ks, ref, true);
    else bury_hollow(ks, ref, !ks->only_reads);
}

bool keyspace_find(struct keyspace *ks, u32 db, bytes key, enum lookup_intent intent, struct key_ref *ref)
{
    struct engine *e = ks->eng;
    bool found = e->ops->find(e, db, key, ref);
    if (found && UNLIKELY(!keyspace_visible(ks, ref))) {
        bury_dead(ks, ref);
        *ref = (struct key_ref){.key = key, .db = db, .hash = ref->hash};
        found = false;
    }
    if (intent == LOOKUP_READ || intent == LOOKUP_PEEK) {
        ks->stats.hits += found;
        ks->stats.misses += !found;
        if (!found && intent == LOOKUP_READ) keyspace_notify(ks, db, key, NOTIFY_MISS, "keymiss");
    }
    if (found && intent <= LOOKUP_WRITE && !ks->no_touch) touch(ks, ref);
    return found;
}

void keyspace_notify(struct keyspace *ks, u32 db, bytes key, u32 class, const char *event)
{
    if (UNLIKELY(ks->event_mask & class)) ks->on_event(ks->on_event_arg, class, event, db, key);
}

void keyspace_changed(struct keyspace *ks, u32 db, bytes key, u32 class, const char *event)
{
    ks->dirty++;
    keyspace_touched(ks, db, key);
    keyspace_notify(ks, db, key, class, event);
}

void keyspace_touched(struct keyspace *ks, u32 db, bytes key)
{
    if (UNLIKELY(ks->watcher)) ks->watcher->changed(ks->watcher_arg, db, key);
}

void keyspace_flush(struct keyspace *ks, u32 db)
{
    u64 keys = ks->eng->ops->count(ks->eng, db);
    if (ks->watcher) ks->watcher->flushing(ks->watcher_arg, db);
    if (keys == 0) return;
    ks->eng->ops->flush(ks->eng, db);
    ks->dirty += keys;
}

void keyspace_swap(struct keyspace *ks, u32 a, u32 b)
{
    ks->dirty++; /* also if nothing is swapped, as in Redis */
    if (a == b) return;
    ks->eng->ops->swap(ks->eng, a, b);
    if (ks->watcher) ks->watcher->swapped(ks->watcher_arg, a, b);
}

/* -- expiry ------------------------------------------------------------------------- */

static void record_lag(struct keyspace *ks, i64 deadline_ms, bool lazy)
{
    i64 lag_ms = ks->now_ms - deadline_ms;
    if (!lazy && lag_ms > (i64)ks->run_lag_ms) ks->run_lag_ms = (u64)lag_ms;
    if (LIKELY(ks->lag != NULL)) lag_record(lazy ? &ks->lag->lazy : &ks->lag->active, lag_ms);
}

void keyspace_note_expired(struct keyspace *ks, struct key_ref *ref, bool lazy)
{
    if (expiry_is_recorded(ks->mode)) journal_expired(ks->journal, ref->db, ref->key);
    record_lag(ks, ref->deadline_ms, lazy);
    if (UNLIKELY(ks->on_expired)) ks->on_expired(ks->on_expired_arg, ref, NULL, ref->deadline_ms);
    ks->stats.expired_keys++;
    ks->stats.lazy_expired += lazy;
    keyspace_touched(ks, ref->db, ref->key);
    keyspace_notify(ks, ref->db, ref->key, NOTIFY_EXPIRED, "expired");
}

void keyspace_expire(struct keyspace *ks, struct key_ref *ref, bool lazy)
{
    keyspace_note_expired(ks, ref, lazy);
    ks->eng->ops->drop(ks->eng, ref);
}

struct reaping {
    struct keyspace *ks;
    struct key_ref *ref;
    bool lazy;
};

void keyspace_note_expired_field(struct keyspace *ks, struct key_ref *ref, bytes field, i64 deadline_ms,
                                 bool lazy)
{
    record_lag(ks, deadline_ms, lazy);
    if (UNLIKELY(ks->on_expired)) ks->on_expired(ks->on_expired_arg, ref, &field, deadline_ms);
    ks->stats.expired_fields++;
}

static void field_dies(void *arg, bytes field, bytes value UNUSED, double deadline_ms)
{
    struct reaping *r = arg;
    struct keyspace *ks = r->ks;
    if (expiry_is_recorded(ks->mode))
        journal_effect(ks->journal, r->ref->db, 3, (bytes[]){BYTES_LIT("HDEL"), r->ref->key, field});
    keyspace_note_expired_field(ks, r->ref, field, (i64)deadline_ms, r->lazy);
}

static void tell_reaped(struct keyspace *ks, struct key_ref *ref)
{
    keyspace_touched(ks, ref->db, ref->key);
    keyspace_notify(ks, ref->db, ref->key, NOTIFY_HASH, "hexpired");
}

void keyspace_met_dead_fields(struct keyspace *ks, struct key_ref *ref)
{
    struct engine *e = ks->eng;
    if (!ks->deletes_dead || !e->ops->map.dead_fields(e, ref) || hash_is_heavy(ks, ref)) return;
    keyspace_reap_fields(ks, ref, BURY_FIELDS, true);
}

void keyspace_reap_field(struct keyspace *ks, struct key_ref *ref, bytes field, bool lazy)
{
    struct engine *e = ks->eng;
    struct reaping r = {ks, ref, lazy};
    if (UNLIKELY(e->ops->map.reap_field(e, ref, field, field_dies, &r))) tell_reaped(ks, ref);
}

u32 keyspace_reap_fields(struct keyspace *ks, struct key_ref *ref, u32 max, bool lazy)
{
    struct engine *e = ks->eng;
    struct reaping r = {ks, ref, lazy};
    u32 n = e->ops->map.reap(e, ref, max, field_dies, &r);
    if (n) tell_reaped(ks, ref);
    bool gone = !ref->entry; /* a site's reap() drops the hash with its last field (site/capture.h) */
    if (gone || (!e->ops->map.has_field_deadlines(e, ref) && e->ops->size(e, ref) == 0)) {
        keyspace_notify(ks, ref->db, ref->key, NOTIFY_GENERIC, "del");
        if (!gone) e->ops->drop(e, ref);
    }
    return n;
}

void keyspace_reclaim(struct keyspace *ks, struct key_ref *ref, u32 max_fields)
{
    if (!alive(ref->deadline_ms, ks->dead_by_ms)) keyspace_expire(ks, ref, false);
    else if (!hash_is_heavy(ks, ref)) keyspace_reap_fields(ks, ref, max_fields, false);
}

void keyspace_add_stats(struct keyspace *ks, const struct keyspace *of)
{
    struct keyspace_stats *s = &ks->stats;
    const struct keyspace_stats *more = &of->stats;
    s->hits += more->hits, s->misses += more->misses;
    s->expired_keys += more->expired_keys, s->expired_fields += more->expired_fields;
    s->evicted_keys += more->evicted_keys, s->lazy_expired += more->lazy_expired;
    ks->dirty += of->dirty;
}
