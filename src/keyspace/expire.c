#include "keyspace/expire.h"

#define STEP_KEYS 32
#define SWEEP_KEYS 1024

void expire_cycle_init(struct expire_cycle *c)
{
    *c = (struct expire_cycle){
        .source = EXPIRE_INDEX, .hz = 10, .effort = 1, .enabled = true, .interval_ms = 1, .batch = 1000,
    };
}

/* A next run that is further away than the interval was planned before the clock was set back, or before the
 * interval was shortened: it is due. */
bool expire_cycle_due(const struct expire_cycle *c, i64 now_ms)
{
    i64 wait_ms = c->next_ms - now_ms;
    return c->interval_ms && (wait_ms <= 0 || wait_ms > MAX(c->interval_ms, EXPIRE_RETRY_MS));
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
    if (!expire_cycle_active(c)) return 0;
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

void expire_cycle_ran(struct expire_cycle *c, struct keyspace *ks, i64 now_ms, u64 cleaned, i64 took_us,
                      bool more_left)
{
    if (cleaned && !c->run.at_ms) c->run.at_ms = ks->now_ms;
    c->run.cleaned += cleaned;
    c->run.took_us += took_us;
    if (more_left) return;
    c->next_ms = now_ms + c->interval_ms;
    if (c->run.cleaned) {
        c->run.lag_ms = ks->run_lag_ms;
        c->last = c->run;
    }
    c->run = (struct expire_run){0};
    ks->run_lag_ms = 0;
}

bool expire_cycle_waits(const struct expire_cycle *c) { return expire_cycle_active(c) && c->cut_short; }

void expire_pace_spent(struct expire_pace *p, i64 mono_us, i64 took_us, bool committed, i64 late_ms)
{
    if (!committed) took_us *= 1 + EXPIRE_PACE_COMMIT;
    i64 left_ms = MAX(EXPIRE_PACE_LATE_MS - MAX(late_ms, 0), 0);
    i64 rest_us = took_us * EXPIRE_PACE_REST * left_ms / EXPIRE_PACE_LATE_MS;
    p->rest_until_us = mono_us + MIN(rest_us, EXPIRE_PACE_REST_MAX_US);
}

struct step {
    struct keyspace *ks;
    u64 enough; /* expire_total() at which the slice ends */
};

static void reclaim_due(void *arg, struct key_ref *ref)
{
    struct step *s = arg;
    u64 total = expire_total(s->ks);
    keyspace_reclaim(s->ks, ref, total < s->enough ? (u32)(s->enough - total) : 1);
}

/* The deadline index returns exactly the due keys: a step takes a few of them, or as many fields. */
static bool step_index(struct expire_cycle *c, struct keyspace *ks)
{
    u32 most = MIN(STEP_KEYS, c->batch);
    struct step s = {ks, expire_total(ks) + most};
    return ks->eng->ops->due(ks->eng, ks->now_ms, most, reclaim_due, &s) > 0;
}

/* -- walking ---------------------------------------------------------------------- */

/* Keys found by a walk that may be dead or have dead fields. They are collected first, because a walk's
 * callback must not delete. */
struct suspects {
    struct keyspace *ks;
    struct buf names;  /* u32 length · key, one after another */
    u32 with_deadline; /* keys with a deadline of their own or of a field */
};

static void suspect_key(void *arg, struct key_ref *ref)
{
    struct suspects *s = arg;
    struct engine *e = s->ks->eng;
    bool fields = ref->type == TYPE_HASH && e->ops->map.has_field_deadlines(e, ref);
    if (!ref->deadline_ms && !fields) return;
    s->with_deadline++;
    if (!fields && alive(ref->deadline_ms, s->ks->dead_by_ms)) return;
    u32 n = (u32)ref->key.n;
    buf_append(&s->names, &n, sizeof n);
    buf_append_bytes(&s->names, ref->key);
}

/* Returns the number of keys that were dead or had dead fields. */
static u32 reclaim_suspects(struct suspects *s, u32 db, u32 max_fields)
{
    struct engine *e = s->ks->eng;
    u32 dead = 0;
    for (size_t at = 0; at < s->names.n;) {
        u32 n;
        struct key_ref ref;
        u64 before = expire_total(s->ks);
        memcpy(&n, s->names.p + at, sizeof n);
        bytes name = bytes_of(s->names.p + at + sizeof n, n);
        if (e->ops->find(e, db, name, &ref)) keyspace_reclaim(s->ks, &ref, max_fields);
        dead += expire_total(s->ks) > before;
        at += sizeof n + n;
    }
    buf_release(&s->names);
    return dead;
}

bool expire_sweep_step(struct expire_sweep *w, struct keyspace *ks)
{
    struct engine *e = ks->eng;
    struct suspects s = {.ks = ks};
    w->cursor = e->ops->scan(e, w->db, w->cursor, SWEEP_KEYS, suspect_key, &s);
    reclaim_suspects(&s, w->db, UINT32_MAX);
    if (w->cursor == 0) w->db++;
    return w->db < e->databases;
}

/* -- sampling --------------------------------------------------------------------- */

/* Checks some keys with a deadline, from where the last call stopped. Returns the percentage of them that was
 * dead or had dead fields. */
static double sample(struct expire_cycle *c, struct keyspace *ks, u32 db)
{
    struct engine *e = ks->eng;
    struct suspects s = {.ks = ks};
    u64 *cursor = &c->cursor[db % EXPIRE_CURSORS];
    u32 wanted = 20 + 5 * (c->effort - 1);
    for (u32 looks = 0; s.with_deadline < wanted && looks < wanted * 20; looks++) {
        *cursor = e->ops->scan(e, db, *cursor, 1, suspect_key, &s);
        if (*cursor == 0) break;
    }
    u32 dead = reclaim_suspects(&s, db, STEP_KEYS);
    return s.with_deadline ? 100.0 * dead / s.with_deadline : 0;
}

/* Redis's sampling: stays with the same database while more than the
 * acceptable share of the keys looked at was dead. */
static bool step_sample(struct expire_cycle *c, struct keyspace *ks)
{
    struct engine *e = ks->eng;
    u32 left = e->databases;
    for (; left && !e->ops->has_deadlines(e, c->db); left--) c->db = (c->db + 1) % e->databases;
    double share = left ? sample(c, ks, c->db) : 0;
    c->stale_perc = share * 0.05 + c->stale_perc * 0.95;
    if (share > acceptable_stale(c)) return true;
    if (++c->db >= e->databases) c->db = 0;
    return false;
}

bool expire_cycle_step(struct expire_cycle *c, struct keyspace *ks)
{
    if (!expiry_cycles(ks->mode)) return false;
    return c->source == EXPIRE_INDEX ? step_index(c, ks) : step_sample(c, ks);
}
