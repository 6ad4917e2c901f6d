/* The text of a scrape. Names follow Prometheus's conventions: base units, _total for counters.
 * redis_exporter covers the rest of INFO; here is what it can't know, and enough more to run without it. */
#include "base/clock.h"
#include "cluster/cluster.h"
#include "exec/node_sums.h"
#include "peers/peers.h"
#include "server/observe/metrics.h"
#include "server/server.h"

static void head(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP mayfly_%s %s\n# TYPE mayfly_%s %s\n", name, help, name, type);
}

static void one(struct buf *b, const char *name, const char *type, double value, const char *help)
{
    head(b, name, type, help);
    buf_printf(b, "mayfly_%s %.17g\n", name, value);
}

static void gauge(struct buf *b, const char *name, double value, const char *help)
{
    one(b, name, "gauge", value, help);
}

static void counter(struct buf *b, const char *name, double value, const char *help)
{
    one(b, name, "counter", value, help);
}

/* -- expiry ------------------------------------------------------------------------------------ */

static void forecast_text(struct server *s, struct buf *b)
{
    struct forecast f = {.now_ms = s->now_ms};
    u64 keys[FORECAST_HORIZONS];
    node_forecast(&s->node, &f);
    forecast_within(&f, keys);
    gauge(b, "expiry_overdue_keys", (double)forecast_overdue(&f),
          "Keys that are dead and wait to be reclaimed.");
    gauge(b, "expiry_overdue_oldest_seconds", (double)f.oldest_overdue_ms / 1e3,
          "For how long the oldest of them has been dead.");
    head(b, "expiry_forecast_keys", "gauge", "Keys that expire between now and this time from now.");
    for (u32 i = 0; i < FORECAST_HORIZONS; i++)
        buf_printf(b, "mayfly_expiry_forecast_keys{within=\"%s\"} %llu\n", forecast_horizons[i].name,
                   (ull)keys[i]);
}

static void lag_histogram_text(struct buf *b, const char *how, const struct lag_histogram *h)
{
    static const u64 edges_ms[] = {1,   2,   5,    10,   20,   50,    64,    100,
                                   200, 500, 1000, 2000, 5000, 10000, 60000, 600000};
    for (u32 i = 0; i < ARRAY_LEN(edges_ms); i++)
        buf_printf(b, "mayfly_expiry_lag_seconds_bucket{how=\"%s\",le=\"%g\"} %llu\n", how,
                   (double)edges_ms[i] / 1e3, (ull)lag_within(h, edges_ms[i]));
    buf_printf(b, "mayfly_expiry_lag_seconds_bucket{how=\"%s\",le=\"+Inf\"} %llu\n", how, (ull)h->count);
    buf_printf(b, "mayfly_expiry_lag_seconds_sum{how=\"%s\"} %.17g\n", how, (double)h->sum_ms / 1e3);
    buf_printf(b, "mayfly_expiry_lag_seconds_count{how=\"%s\"} %llu\n", how, (ull)h->count);
}

static void expiry_text(struct server *s, const struct node_sums *sums, struct buf *b)
{
    const struct keyspace_stats *k = &sums->stats;
    forecast_text(s, b);
    head(b, "expiry_lag_seconds", "histogram", "Time from a deadline until what it ended was reclaimed.");
    lag_histogram_text(b, "active", &sums->active);
    lag_histogram_text(b, "lazy", &sums->lazy);
    head(b, "expired_keys_total", "counter",
         "Keys reclaimed: by the server itself, or by a command that met them.");
    buf_printf(b, "mayfly_expired_keys_total{how=\"active\"} %llu\n",
               (ull)(k->expired_keys - k->lazy_expired));
    buf_printf(b, "mayfly_expired_keys_total{how=\"lazy\"} %llu\n", (ull)k->lazy_expired);
    counter(b, "expired_fields_total", (double)k->expired_fields, "Fields of hashes reclaimed.");
    counter(b, "expire_cycle_cpu_seconds_total", (double)sums->expire_spent_us / 1e6,
            "CPU time of the cycle that reclaims.");
    counter(b, "evicted_keys_total", (double)k->evicted_keys, "Keys evicted to stay below maxmemory.");
}

/* -- the rest ----------------------------------------------------------------------------------- */

static void keyspace_text(struct server *s, const struct node_sums *sums, struct buf *b)
{
    u32 databases = node_engine(&s->node)->databases;
    head(b, "keys", "gauge", "Keys by database, dead ones that are not reclaimed yet included.");
    for (u32 i = 0; i < databases; i++) {
        struct node_db db = node_db(&s->node, i);
        if (db.keys) buf_printf(b, "mayfly_keys{db=\"%u\"} %llu\n", i, (ull)db.keys);
    }
    head(b, "keys_with_deadline", "gauge", "Keys that will expire, by database.");
    for (u32 i = 0; i < databases; i++) {
        struct node_db db = node_db(&s->node, i);
        if (db.keys) buf_printf(b, "mayfly_keys_with_deadline{db=\"%u\"} %llu\n", i, (ull)db.expires);
    }
    counter(b, "keyspace_hits_total", (double)sums->stats.hits, "Lookups that found a key.");
    counter(b, "keyspace_misses_total", (double)sums->stats.misses, "Lookups that found none.");
}

static void commands_text(struct server *s, struct buf *b)
{
    head(b, "commands_total", "counter", "Calls by command.");
    for (u32 i = 0; i < s->stats.command_count; i++)
        if (s->stats.commands[i].calls)
            buf_printf(b, "mayfly_commands_total{cmd=\"%s\"} %llu\n", command_at(i)->name,
                       (ull)s->stats.commands[i].calls);
    head(b, "command_seconds_total", "counter", "Time spent by command.");
    for (u32 i = 0; i < s->stats.command_count; i++)
        if (s->stats.commands[i].calls)
            buf_printf(b, "mayfly_command_seconds_total{cmd=\"%s\"} %.6f\n", command_at(i)->name,
                       (double)s->stats.commands[i].usec / 1e6);
    counter(b, "errors_total", (double)s->stats.total_errors, "Replies that were errors.");
}

static void server_text(struct server *s, struct buf *b)
{
    head(b, "build_info", "gauge", "Always 1; what runs is in the labels.");
    buf_printf(b, "mayfly_build_info{version=\"%s\",redis_version=\"%s\",engine=\"%s\"} 1\n", MAYFLY_VERSION,
               REDIS_VERSION, node_engine(&s->node)->ops->name);
    gauge(b, "start_time_seconds", (double)s->start_ms / 1e3, "When it started, as a Unix time.");
    gauge(b, "loading", s->node.loading, "1 while data is being loaded.");
    gauge(b, "connected_clients", net_clients(&s->net), "Client connections.");
    counter(b, "connections_total", (double)s->net.own.stats.connections, "Connections accepted.");
    counter(b, "net_input_bytes_total", (double)s->net.own.stats.bytes_in, "Bytes received.");
    counter(b, "net_output_bytes_total", (double)s->net.own.stats.bytes_out, "Bytes sent.");
    gauge(b, "memory_used_bytes", (double)evictor_used(&s->node.evictor),
          "Memory in use, as INFO's used_memory.");
    gauge(b, "memory_rss_bytes", (double)mem_rss(), "Memory as the system counts it.");
    gauge(b, "memory_max_bytes", (double)(u64)s->config.maxmemory, "maxmemory; 0: no limit.");
    gauge(b, "reclaim_pending_objects", (double)s->reclaim_pending, "Values dropped and not freed yet.");
    gauge(b, "replica", s->repl.link != NULL, "1 on a replica.");
    counter(b, "replication_offset", (double)s->repl.stream.end, "Bytes of replication history.");
}

/* -- the cluster ------------------------------------------------------------------------------- */

static void region_figure(struct buf *b, const struct cluster_figures *f, const char *name, double value,
                          const char *help)
{
    if (!f->index) head(b, name, "gauge", help);
    buf_printf(b, "mayfly_%s{region=\"%llu\"} %.17g\n", name, (ull)f->region, value);
}

static void region_total(struct buf *b, const struct cluster_figures *f, const char *name, u64 value,
                         const char *help)
{
    if (!f->index) head(b, name, "counter", help);
    buf_printf(b, "mayfly_%s{region=\"%llu\"} %llu\n", name, (ull)f->region, (ull)value);
}

typedef void (*region_line)(struct buf *b, const struct cluster_figures *f);

static void region_leads(struct buf *b, const struct cluster_figures *f)
{
    region_figure(b, f, "region_leader", f->leads, "1 where the region's leader is.");
}

static void region_has_leader(struct buf *b, const struct cluster_figures *f)
{
    region_figure(b, f, "region_has_leader", f->has_leader, "0 while this node knows no leader.");
}

static void region_term(struct buf *b, const struct cluster_figures *f)
{
    region_figure(b, f, "region_term", (double)f->term, "Raft's term.");
}

static void region_commit_index(struct buf *b, const struct cluster_figures *f)
{
    region_figure(b, f, "region_commit_index", (double)f->commit, "The last entry a majority has.");
}

static void region_applied(struct buf *b, const struct cluster_figures *f)
{
    region_figure(b, f, "region_applied_index", (double)f->applied, "The last entry this node has applied.");
}

static void region_last(struct buf *b, const struct cluster_figures *f)
{
    region_figure(b, f, "region_last_index", (double)f->last, "The last entry of this node's log.");
}

static void region_entries(struct buf *b, const struct cluster_figures *f)
{
    region_figure(b, f, "region_log_entries", (double)(f->last + 1 - f->first), "Entries in the log.");
}

static void region_voters(struct buf *b, const struct cluster_figures *f)
{
    region_figure(b, f, "region_voters", f->voters, "Members that vote.");
}

static void region_learners(struct buf *b, const struct cluster_figures *f)
{
    region_figure(b, f, "region_learners", f->learners, "Members that don't vote.");
}

static void region_ahead(struct buf *b, const struct cluster_figures *f)
{
    region_figure(b, f, "region_clock_ahead_seconds", (double)f->clock_ahead_ms / 1e3,
                  "How far the region's clock is ahead of this node's.");
}

/* Prometheus counts what is below each edge, that of the edges before included. */
static void region_bytes(struct buf *b, const struct cluster_figures *f)
{
    region_figure(b, f, "region_bytes", (double)f->bytes, "Bytes of its data on disk, about.");
}

static void region_splits(struct buf *b, const struct cluster_figures *f)
{
    region_total(b, f, "region_splits_total", f->splits, "Splits of the region that this node has applied.");
}

static void region_merges(struct buf *b, const struct cluster_figures *f)
{
    region_total(b, f, "region_merges_total", f->merges,
                 "Regions that were merged into it, as this node has applied it.");
}

static void region_requests(struct buf *b, const struct cluster_figures *f)
{
    region_total(b, f, "region_requests_total", f->requests, "Requests that its leader here has run.");
}

static void region_commit_seconds(struct buf *b, const struct cluster_figures *f)
{
    const char *name = "region_commit_seconds";
    u64 n = 0;
    if (!f->index) head(b, name, "histogram", "Time from proposing an entry until a majority has it.");
    if (!f->times) return;
    for (u32 i = 0; i < COMMIT_TIMES_EDGES; i++) {
        n += f->times->count[i];
        buf_printf(b, "mayfly_%s_bucket{region=\"%llu\",le=\"%g\"} %llu\n", name, (ull)f->region,
                   commit_times_edges_us[i] / 1e6, (ull)n);
    }
    n += f->times->count[COMMIT_TIMES_EDGES];
    buf_printf(b, "mayfly_%s_bucket{region=\"%llu\",le=\"+Inf\"} %llu\n", name, (ull)f->region, (ull)n);
    buf_printf(b, "mayfly_%s_sum{region=\"%llu\"} %.17g\n", name, (ull)f->region,
               (double)f->times->sum_us / 1e6);
    buf_printf(b, "mayfly_%s_count{region=\"%llu\"} %llu\n", name, (ull)f->region, (ull)n);
}

/* A metric's lines have to be together, so each is asked of all regions. */
static void regions_text(struct server *s, struct buf *b)
{
    static const region_line lines[] = {
        region_leads, region_has_leader, region_term,   region_commit_index, region_applied,
        region_last,  region_entries,    region_voters, region_learners,     region_ahead,
        region_bytes, region_splits,     region_merges, region_requests,     region_commit_seconds};
    struct cluster_figures f;
    for (size_t line = 0; line < ARRAY_LEN(lines); line++)
        for (u32 i = 0; cluster_figures(s, i, &f); i++) lines[line](b, &f);
}

static void cluster_text(struct server *s, struct buf *b)
{
    struct cluster_figures f;
    if (!cluster_figures(s, 0, &f)) return;
    regions_text(s, b);
    counter(b, "raft_log_entries_total", (double)f.log_entries, "Entries written to the log.");
    counter(b, "raft_log_bytes_total", (double)f.log_bytes, "Bytes of entries written to the log.");
    counter(b, "raft_log_syncs_total", (double)f.log_syncs, "Syncs of the log.");
    counter(b, "snapshots_sent_total", (double)f.snapshots_sent, "Snapshots sent to other members.");
    counter(b, "snapshots_installed_total", (double)f.snapshots_installed, "Snapshots installed.");
    counter(b, "snapshots_failed_total", (double)f.snapshots_failed, "Snapshots that were given up.");
    counter(b, "snapshot_sent_bytes_total", (double)f.snapshot_bytes_out, "Bytes of snapshots sent.");
    counter(b, "snapshot_received_bytes_total", (double)f.snapshot_bytes_in, "Bytes of snapshots received.");
    counter(b, "region_digest_mismatches_total", (double)f.digest_mismatches, "Members found to differ.");
    gauge(b, "region_diverged", f.diverged, "1 if this node's data was found to differ.");
    counter(b, "bus_sent_bytes_total", (double)f.bus_bytes_out, "Bytes sent on the cluster bus.");
    counter(b, "bus_received_bytes_total", (double)f.bus_bytes_in, "Bytes received on the cluster bus.");
    counter(b, "bus_dropped_frames_total", (double)f.bus_dropped, "Frames that a peer did not get.");
    counter(b, "bus_refused_total", (double)f.bus_refused, "Connections and messages that were refused.");
}

void metrics_text(struct server *s, struct buf *out)
{
    struct node_sums sums;
    node_sum(&s->node, &sums);
    server_text(s, out);
    keyspace_text(s, &sums, out);
    expiry_text(s, &sums, out);
    commands_text(s, out);
    cluster_text(s, out);
    if (s->peers) peers_metrics(s, out);
}
