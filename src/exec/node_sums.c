#include "exec/node_sums.h"

static void stats_add(struct keyspace_stats *sum, const struct keyspace_stats *s)
{
    sum->hits += s->hits;
    sum->misses += s->misses;
    sum->expired_keys += s->expired_keys;
    sum->expired_fields += s->expired_fields;
    sum->evicted_keys += s->evicted_keys;
    sum->lazy_expired += s->lazy_expired;
}

static void cycle_add(struct node_sums *sums, const struct expire_cycle *c)
{
    sums->expire_spent_us += c->spent_us;
    sums->expire_capped += c->time_cap_reached;
    sums->stale_perc = MAX(sums->stale_perc, c->stale_perc);
    if (c->last.at_ms >= sums->last.at_ms) sums->last = c->last;
}

void node_sum(const struct node *n, struct node_sums *sums)
{
    struct region *r;
    *sums = (struct node_sums){.active = n->lag.active, .lazy = n->lag.lazy};
    REGIONS_EACH(&n->regions, r) {
        stats_add(&sums->stats, &r->ks.stats);
        cycle_add(sums, &r->cycle);
        sums->stream_told += r->expiry_stream.told;
        sums->stream_lost += r->expiry_stream.lost;
        sums->watched_keys += r->watches.keys.count;
        sums->waited_keys += r->waiters.keys.count;
        sums->waited_even_gone += r->waiters.even_gone;
        sums->own_keys += own_keys_count(&r->own, &r->ks);
        sums->reclaimed += r->eng->reclaimed;
    }
}

struct node_db node_db(const struct node *n, u32 db)
{
    struct node_db sum = {0};
    const struct region *r;
    REGIONS_EACH(&n->regions, r) {
        struct engine *e = r->eng;
        u64 expires = e->ops->expires(e, db);
        sum.keys += e->ops->count(e, db);
        sum.timed_hashes += e->ops->timed_hashes(e, db);
        if (!expires) continue;
        sum.expires += expires;
        double share = (double)expires / (double)sum.expires;
        sum.mean_deadline += (e->ops->mean_deadline(e, db) - sum.mean_deadline) * share;
    }
    return sum;
}

void node_forecast(const struct node *n, struct forecast *f)
{
    const struct region *r;
    REGIONS_EACH(&n->regions, r) forecast_add_all(f, r->eng);
}
