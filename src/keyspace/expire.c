#include "keyspace/expire.h"

#define STEP_KEYS 64

void expire_cycle_init(struct expire_cycle *c)
{
    *c = (struct expire_cycle){.source = EXPIRE_INDEX, .hz = 10, .effort = 1, .enabled = true};
}

static i64 slow_budget_us(const struct expire_cycle *c)
{
    return (25 + 2 * ((i64)c->effort - 1)) * 1000000 / c->hz / 100;
}
static i64 fast_budget_us(const struct expire_cycle *c) { return 1000 + 250 * ((i64)c->effort - 1); }
static double acceptable_stale(const struct expire_cycle *c) { return 10 - ((double)c->effort - 1); }

static void roll_period(struct expire_cycle *c, i64 mono_us)
{
    if (mono_us - c->period_start_us < 1000000 / (i64)c->hz) return;
    c->period_start_us = mono_us;
    c->period_spent_us = 0;
}

/* The fast cycle runs before the loop sleeps, and only if there is reason to:
 * the last cycle ran out of time or too many dead keys were seen; never again
 * within twice its own length. */
static bool fast_cycle_due(const struct expire_cycle *c, i64 mono_us)
{
    if (!c->cut_short && c->stale_perc < acceptable_stale(c)) return false;
    return mono_us - c->last_fast_us >= 2 * fast_budget_us(c);
}

i64 expire_cycle_allowance(struct expire_cycle *c, i64 mono_us, bool idle)
{
    if (!c->enabled) return 0;
    roll_period(c, mono_us);
    i64 left = slow_budget_us(c) - c->period_spent_us;
    if (left > 0) return MIN(left, EXPIRE_SLICE_US);
    if (fast_cycle_due(c, mono_us)) {
        c->last_fast_us = mono_us;
        return MIN(fast_budget_us(c), EXPIRE_SLICE_US);
    }
    return idle ? EXPIRE_SLICE_US : 0;
}

void expire_cycle_spent(struct expire_cycle *c, i64 took_us, bool more_left)
{
    c->period_spent_us += took_us;
    c->spent_us += (u64)took_us;
    if (more_left && !c->cut_short) c->time_cap_reached++;
    c->cut_short = more_left;
}

struct step {
    struct keyspace *ks;
    u32 expired;
};

static void reclaim_key(void *arg, struct key_ref *ref)
{
    struct step *s = arg;
    keyspace_reclaim(s->ks, ref, STEP_KEYS);
    s->expired++;
}

/* The index names exactly the due keys: a step takes a handful from the first
 * database that has some. */
static bool step_index(struct expire_cycle *c, struct keyspace *ks)
{
    struct engine *e = ks->eng;
    struct step s = {ks, 0};
    for (u32 n = 0; n < e->databases; n++) {
        u32 seen = e->ops->due(e, c->db, ks->now_ms, STEP_KEYS, reclaim_key, &s);
        if (seen == STEP_KEYS) return true;
        c->db = (c->db + 1) % e->databases;
        if (seen) break;
    }
    return s.expired > 0;
}

/* Collected while a scan runs, because a scan's callback may not delete. */
struct sample {
    struct keyspace *ks;
    struct buf dead; /* u32 length · key, one after another */
    u32 with_deadline, dead_count;
};

static void sample_key(void *arg, struct key_ref *ref)
{
    struct sample *s = arg;
    if (!ref->deadline_ms) return;
    s->with_deadline++;
    if (alive(ref->deadline_ms, s->ks->now_ms)) return;
    u32 n = (u32)ref->key.n;
    buf_append(&s->dead, &n, sizeof n);
    buf_append_bytes(&s->dead, ref->key);
    s->dead_count++;
}

static void expire_sampled(struct keyspace *ks, u32 db, const struct buf *dead)
{
    struct engine *e = ks->eng;
    for (size_t at = 0; at < dead->n;) {
        u32 n;
        struct key_ref ref;
        memcpy(&n, dead->p + at, sizeof n);
        if (e->ops->find(e, db, bytes_of(dead->p + at + sizeof n, n), &ref)) keyspace_expire(ks, &ref, false);
        at += sizeof n + n;
    }
}

/* The seeds' algorithm: look at some keys, and go on with the same database
 * while more than the acceptable share of them was dead. */
static bool step_sample(struct expire_cycle *c, struct keyspace *ks)
{
    struct engine *e = ks->eng;
    u32 per_loop = 20 + 5 * (c->effort - 1), expired = 0, sampled = 0;
    for (u32 n = 0; n < e->databases; n++, c->db = (c->db + 1) % e->databases) {
        if (e->ops->expires(e, c->db) == 0) continue;
        struct sample s = {.ks = ks};
        for (u32 buckets = 0; s.with_deadline < per_loop && buckets < per_loop * 20; buckets++) {
            c->cursor = e->ops->scan(e, c->db, c->cursor, 1, sample_key, &s);
            if (c->cursor == 0) break;
        }
        expire_sampled(ks, c->db, &s.dead);
        buf_release(&s.dead);
        sampled = s.with_deadline;
        expired = s.dead_count;
        break;
    }
    double share = sampled ? 100.0 * expired / sampled : 0;
    c->stale_perc = share * 0.05 + c->stale_perc * 0.95;
    if (sampled && share > acceptable_stale(c)) return true;
    c->db = (c->db + 1) % e->databases;
    c->cursor = 0;
    return false;
}

bool expire_cycle_step(struct expire_cycle *c, struct keyspace *ks)
{
    return c->source == EXPIRE_INDEX ? step_index(c, ks) : step_sample(c, ks);
}
