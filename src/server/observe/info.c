/* INFO: sections and fields have Redis's names, because monitoring parses them. Fields that Redis doesn't
 * have are in sections of their own (# Expiry). */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "cluster/cluster.h"
#include "peers/peers.h"
#include "command/commands.h"
#include "exec/node_sums.h"
#include "server/observe/info.h"
#include "server/script_host.h"
#include "server/server.h"

static void human(char out[32], u64 n)
{
    static const char units[] = "BKMGTP";
    double d = (double)n;
    int u = 0;
    while (d >= 1024 && u < 5) {
        d /= 1024;
        u++;
    }
    if (u == 0) snprintf(out, 32, "%lluB", (ull)n);
    else snprintf(out, 32, "%.2f%c", d, units[u]);
}

static void human_line(struct buf *b, const char *name, u64 n)
{
    char text[32];
    human(text, n);
    buf_printf(b, "%s_human:%s\r\n", name, text);
}

static void size_pair(struct buf *b, const char *name, u64 n)
{
    buf_printf(b, "%s:%llu\r\n", name, (ull)n);
    human_line(b, name, n);
}

/* One line per kind of socket: "listener0:name=tcp,bind=127.0.0.1,bind=-::1,port=6379". */
static void info_listener(struct buf *b, int number, const char *kind, const struct buf *addresses, i64 port)
{
    buf_printf(b, "listener%d:name=%s", number, kind);
    const char *at = addresses->n ? addresses->p : "";
    while (*at) {
        size_t n = strcspn(at, " ");
        if (n) buf_printf(b, ",bind=%.*s", (int)n, at);
        at += n + (at[n] == ' ');
    }
    if (port) buf_printf(b, ",port=%lld", (long long)port);
    buf_append_str(b, "\r\n");
}

static void info_listeners(const struct config *c, struct buf *b)
{
    if (c->port) info_listener(b, 0, "tcp", &c->bind, c->port);
    if (c->unixsocket.n) buf_printf(b, "listener1:name=unix,bind=%s\r\n", c->unixsocket.p);
    if (c->tls_port) info_listener(b, 2, "tls", &c->bind, c->tls_port);
}

static void info_server(struct server *s, struct buf *b)
{
    struct utsname u = {0};
    uname(&u);
    i64 up_s = (clock_mono_us() - s->start_mono_us) / 1000000;
    char path[1024];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    buf_printf(
        b,
        "redis_version:%s\r\nredis_git_sha1:00000000\r\nredis_git_dirty:0\r\nredis_build_id:0\r\n"
        "redis_mode:%s\r\nos:%s %s %s\r\narch_bits:64\r\nmonotonic_clock:POSIX clock_gettime\r\n"
        "multiplexing_api:epoll\r\natomicvar_api:c11-builtin\r\ngcc_version:%d.%d.%d\r\nprocess_id:%d\r\n"
        "process_supervised:%s\r\nrun_id:%s\r\ntcp_port:%lld\r\nserver_time_usec:%lld\r\n"
        "uptime_in_seconds:%lld\r\nuptime_in_days:%lld\r\nhz:%lld\r\nconfigured_hz:%lld\r\n"
        "lru_clock:%u\r\nexecutable:%s\r\nconfig_file:%s\r\nio_threads_active:%d\r\n"
        "mayfly_version:%s\r\nmayfly_engine:%s\r\n",
        REDIS_VERSION, s->cluster ? "cluster" : "standalone", u.sysname, u.release, u.machine, __GNUC__,
        __GNUC_MINOR__,
        __GNUC_PATCHLEVEL__, (int)getpid(), s->config.supervised.n ? s->config.supervised.p : "no",
        s->run_id, (long long)(s->config.port ? s->config.port : s->config.tls_port),
        (long long)clock_wall_us(), (long long)up_s, (long long)(up_s / 86400),
        (long long)s->config.hz, (long long)s->config.hz,
        (u32)(s->now_ms / 1000) & 0xffffff, path, s->config.file.n ? s->config.file.p : "",
        net_threads(&s->net) > 0,
        MAYFLY_VERSION, node_engine(&s->node)->ops->name);
    info_listeners(&s->config, b);
    if (s->repl.leaving)
        buf_printf(b, "shutdown_in_milliseconds:%lld\r\n",
                   (long long)MAX(s->repl.leave_until_ms - clock_mono_us() / 1000, 0));
}

static void info_clients(struct server *s, struct buf *b)
{
    size_t biggest_in = 0, biggest_out = 0;
    u32 clients = link_is_up(s), blocked = 0, pubsub = 0;
    for (struct conn *c = s->net.conns; c; c = c->next) {
        if (c->closing) continue;
        clients += c->class != CONN_REPLICA;
        blocked += (c->hold & HOLD_SHOWN) != 0;
        pubsub += c->class == CONN_PUBSUB;
        biggest_in = MAX(biggest_in, c->in.n);
        biggest_out = MAX(biggest_out, conn_output_bytes(c));
    }
    struct node_sums sums;
    node_sum(&s->node, &sums);
    buf_printf(b,
               "connected_clients:%u\r\ncluster_connections:0\r\nmaxclients:%lld\r\n"
               "client_recent_max_input_buffer:%zu\r\nclient_recent_max_output_buffer:%zu\r\n"
               "blocked_clients:%u\r\ntracking_clients:%llu\r\npubsub_clients:%u\r\nwatching_clients:%llu\r\n"
               "clients_in_timeout_table:%u\r\ntotal_watched_keys:%llu\r\ntotal_blocking_keys:%llu\r\n"
               "total_blocking_keys_on_nokey:%llu\r\n",
               clients, (long long)s->config.maxclients, biggest_in, biggest_out, blocked,
               (ull)s->tracking.clients.count, pubsub, (ull)s->node.watching,
               s->repl.waiting + s->blocking.times.n, (ull)sums.watched_keys, (ull)sums.waited_keys,
               (ull)sums.waited_even_gone);
}

static void info_scripts(struct server *s, struct buf *b)
{
    struct script_usage u = script_usage(s);
    buf_printf(b, "used_memory_lua:%llu\r\nused_memory_vm_eval:%llu\r\n", (ull)u.eval_vm, (ull)u.eval_vm);
    human_line(b, "used_memory_lua", u.eval_vm);
    buf_printf(b, "used_memory_scripts_eval:%llu\r\nnumber_of_cached_scripts:%llu\r\n"
                  "number_of_functions:%llu\r\nnumber_of_libraries:%llu\r\nused_memory_vm_functions:%llu\r\n",
               (ull)u.eval, (ull)u.cached, (ull)u.function_count, (ull)u.libraries, (ull)u.functions_vm);
    size_pair(b, "used_memory_vm_total", u.eval_vm + u.functions_vm);
    buf_printf(b, "used_memory_functions:%llu\r\n", (ull)u.functions);
    size_pair(b, "used_memory_scripts", u.eval + u.functions);
}

static void info_memory(struct server *s, struct buf *b)
{
    u64 used = evictor_used(&s->node.evictor), rss = mem_rss(), clients = 0, replicas = 0;
    u64 backlog = MIN(s->repl.stream.memory, (u64)s->config.repl_backlog_size);
    struct mem_stats m;
    struct node_sums sums;
    mem_stats_read(&m);
    node_sum(&s->node, &sums);
    s->stats.peak_memory = MAX(s->stats.peak_memory, used);
    for (struct conn *c = s->net.conns; c; c = c->next)
        *(c->class == CONN_REPLICA ? &replicas : &clients) += client_memory(c);
    replicas += primary_buffers(s);
    size_pair(b, "used_memory", used);
    size_pair(b, "used_memory_rss", rss);
    size_pair(b, "used_memory_peak", s->stats.peak_memory);
    buf_printf(b, "used_memory_peak_perc:%.2f%%\r\n",
               100.0 * (double)used / (double)s->stats.peak_memory);
    buf_printf(
        b, "used_memory_overhead:%llu\r\nused_memory_startup:%llu\r\nused_memory_dataset:%llu\r\n",
        (ull)(s->startup_memory + clients), (ull)s->startup_memory,
        (ull)(used > s->startup_memory + clients ? used - s->startup_memory - clients : 0));
    buf_printf(
        b, "used_memory_dataset_perc:%.2f%%\r\n",
        used > s->startup_memory
            ? 100.0 * (double)(used - s->startup_memory - MIN(clients, used - s->startup_memory)) /
                  (double)(used - s->startup_memory)
            : 0);
    buf_printf(b, "allocator_allocated:%zu\r\nallocator_active:%zu\r\nallocator_resident:%zu\r\n"
                  "allocator_muzzy:0\r\n",
               m.allocated, m.active, m.resident);
    size_pair(b, "total_system_memory", (u64)sysconf(_SC_PHYS_PAGES) * (u64)sysconf(_SC_PAGESIZE));
    info_scripts(s, b);
    size_pair(b, "maxmemory", (u64)s->config.maxmemory);
    buf_append_str(b, "maxmemory_policy:");
    config_get(&s->config, config_find(BYTES_LIT("maxmemory-policy"), NULL), b);
    buf_append_str(b, "\r\n");
    buf_printf(
        b,
        "allocator_frag_ratio:%.2f\r\nallocator_frag_bytes:%zu\r\nallocator_rss_ratio:%.2f\r\n"
        "allocator_rss_bytes:%lld\r\nrss_overhead_ratio:%.2f\r\nrss_overhead_bytes:%lld\r\n",
        (double)m.active / (double)MAX(m.allocated, 1u), m.active - MIN(m.allocated, m.active),
        (double)m.resident / (double)MAX(m.active, 1u), (long long)m.resident - (long long)m.active,
        (double)rss / (double)MAX(m.resident, 1u), (long long)rss - (long long)m.resident);
    buf_printf(b, "mem_fragmentation_ratio:%.2f\r\nmem_fragmentation_bytes:%lld\r\n",
               (double)rss / (double)MAX(used, 1u), (long long)rss - (long long)used);
    buf_printf(
        b,
        "mem_not_counted_for_evict:%llu\r\nmem_replication_backlog:%llu\r\n"
        "mem_total_replication_buffers:%llu\r\nmem_clients_slaves:%llu\r\nmem_clients_normal:%llu\r\n"
        "mem_cluster_links:0\r\nmem_aof_buffer:%llu\r\nmem_allocator:%s\r\n"
        "mem_overhead_db_hashtable_rehashing:0\r\nactive_defrag_running:0\r\n"
        "lazyfree_pending_objects:%llu\r\nlazyfreed_objects:%llu\r\n",
        (ull)(persistence_buffers(&s->persist) + primary_buffers(s)), (ull)backlog,
        (ull)(backlog + primary_buffers(s)), (ull)replicas, (ull)clients,
        s->persist.aof ? (ull)aof_facts(s->persist.aof).buffer : 0, mem_allocator_name(),
        (ull)s->reclaim_pending, (ull)sums.reclaimed);
}

/* Turns of the loop, the CPU time of its thread, and the time commands took. Commands are measured in wall
 * time: on a busy machine they may take longer than the thread has run. */
static void info_loop(struct server *s, struct buf *b)
{
    double turns = rate_per_second(&s->stats.turns);
    u64 commands_us = 0;
    for (u32 i = 0; i < s->stats.command_count; i++) commands_us += s->stats.commands[i].usec;
    buf_printf(
        b,
        "eventloop_cycles:%llu\r\neventloop_duration_sum:%llu\r\neventloop_duration_cmd_sum:%llu\r\n"
        "instantaneous_eventloop_cycles_per_sec:%.0f\r\ninstantaneous_eventloop_duration_usec:%.0f\r\n",
        (ull)s->net.own.stats.turns, (ull)MAX((u64)clock_thread_us(), commands_us), (ull)commands_us, turns,
        turns > 0 ? rate_per_second(&s->stats.busy_us) / turns : 0);
}

static void info_stats(struct server *s, struct buf *b)
{
    struct node_sums sums;
    const struct keyspace_stats *k = &sums.stats;
    const struct net_stats *n = &s->net.own.stats;
    const struct net_thread_stats here = net_thread_stats(&s->net, 0);
    node_sum(&s->node, &sums);
    buf_printf(
        b,
        "total_connections_received:%llu\r\ntotal_commands_processed:%llu\r\n"
        "instantaneous_ops_per_sec:%.0f\r\n"
        "total_net_input_bytes:%llu\r\ntotal_net_output_bytes:%llu\r\ntotal_net_repl_input_bytes:%llu\r\n"
        "total_net_repl_output_bytes:%llu\r\ninstantaneous_input_kbps:%.2f\r\n"
        "instantaneous_output_kbps:%.2f\r\ninstantaneous_input_repl_kbps:%.2f\r\n"
        "instantaneous_output_repl_kbps:%.2f\r\nrejected_connections:%llu\r\n",
        (ull)n->connections, (ull)s->stats.total_commands, rate_per_second(&s->stats.ops),
        (ull)n->bytes_in, (ull)n->bytes_out, (ull)s->repl.bytes_in, (ull)s->repl.bytes_out,
        rate_per_second(&s->stats.net_in) / 1024, rate_per_second(&s->stats.net_out) / 1024,
        rate_per_second(&s->stats.repl_in) / 1024, rate_per_second(&s->stats.repl_out) / 1024,
        (ull)n->rejected);
    buf_printf(
        b,
        "sync_full:%llu\r\nsync_partial_ok:%llu\r\nsync_partial_err:%llu\r\n"
        "expired_subkeys:%llu\r\nexpired_keys:%llu\r\nexpired_stale_perc:%.2f\r\n"
        "expired_time_cap_reached_count:%llu\r\nexpire_cycle_cpu_milliseconds:%llu\r\nevicted_keys:%llu\r\n"
        "evicted_clients:%llu\r\nevicted_scripts:%llu\r\n"
        "total_eviction_exceeded_time:0\r\ncurrent_eviction_exceeded_time:0\r\n"
        "keyspace_hits:%llu\r\nkeyspace_misses:%llu\r\n",
        (ull)s->repl.full_syncs, (ull)s->repl.partial_syncs, (ull)s->repl.refused_syncs,
        (ull)k->expired_fields, (ull)k->expired_keys, sums.stale_perc, (ull)sums.expire_capped,
        (ull)sums.expire_spent_us / 1000, (ull)k->evicted_keys, (ull)s->client_evict.evicted,
        (ull)s->node.scripts_evicted, (ull)k->hits, (ull)k->misses);
    buf_printf(
        b,
        "pubsub_channels:%llu\r\npubsub_patterns:%llu\r\npubsubshard_channels:%llu\r\n"
        "latest_fork_usec:0\r\ntotal_forks:0\r\n"
        "migrate_cached_sockets:0\r\nslave_expires_tracked_keys:%llu\r\nactive_defrag_hits:0\r\n"
        "active_defrag_misses:0\r\nactive_defrag_key_hits:0\r\nactive_defrag_key_misses:0\r\n"
        "total_active_defrag_time:0\r\ncurrent_active_defrag_time:0\r\ntracking_total_keys:%llu\r\n"
        "tracking_total_items:%llu\r\ntracking_total_prefixes:%llu\r\nunexpected_error_replies:%llu\r\n"
        "total_error_replies:%llu\r\ndump_payload_sanitizations:0\r\ntotal_reads_processed:%llu\r\n"
        "total_writes_processed:%llu\r\nio_threaded_reads_processed:%llu\r\n"
        "io_threaded_writes_processed:%llu\r\n"
        "client_query_buffer_limit_disconnections:%llu\r\n"
        "client_output_buffer_limit_disconnections:%llu\r\n"
        "reply_buffer_shrinks:0\r\nreply_buffer_expands:0\r\n",
        (ull)s->pubsub.names[PUBSUB_CHANNEL].count, (ull)s->pubsub.names[PUBSUB_PATTERN].count,
        (ull)s->pubsub.names[PUBSUB_SHARD].count, (ull)sums.own_keys,
        (ull)s->tracking.keys.count,
        (ull)s->tracking.items, (ull)s->tracking.prefixes.count,
        (ull)s->repl.unexpected_errors, (ull)s->stats.total_errors, (ull)n->reads, (ull)n->writes,
        (ull)(n->reads - here.reads), (ull)(n->writes - here.writes),
        (ull)n->query_buffer_kills, (ull)n->output_buffer_kills);
    info_loop(s, b);
    buf_printf(b,
               "acl_access_denied_auth:%llu\r\nacl_access_denied_cmd:%llu\r\nacl_access_denied_key:%llu\r\n"
               "acl_access_denied_channel:%llu\r\n",
               (ull)s->acl_log.denied[ACL_NO_AUTH], (ull)s->acl_log.denied[ACL_NO_COMMAND],
               (ull)s->acl_log.denied[ACL_NO_KEY], (ull)s->acl_log.denied[ACL_NO_CHANNEL]);
}

static void info_threads(struct server *s, struct buf *b)
{
    for (u32 i = 0; i <= net_threads(&s->net); i++) {
        struct net_thread_stats t = net_thread_stats(&s->net, i);
        buf_printf(b, "io_thread_%u:clients=%u,reads=%llu,writes=%llu\r\n", i, t.clients, (ull)t.reads,
                   (ull)t.writes);
    }
}

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

static void info_cpu(struct server *s UNUSED, struct buf *b)
{
    struct rusage self, children, thread;
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    getrusage(RUSAGE_THREAD, &thread);
    buf_printf(
        b,
        "used_cpu_sys:%.6f\r\nused_cpu_user:%.6f\r\n"
        "used_cpu_sys_children:%.6f\r\nused_cpu_user_children:%.6f\r\n"
        "used_cpu_sys_main_thread:%.6f\r\nused_cpu_user_main_thread:%.6f\r\n",
        seconds(self.ru_stime), seconds(self.ru_utime), seconds(children.ru_stime),
        seconds(children.ru_utime), seconds(thread.ru_stime), seconds(thread.ru_utime));
}

static void info_commandstats(struct server *s, struct buf *b)
{
    for (u32 i = 0; i < s->stats.command_count; i++) {
        const struct command_stats *c = &s->stats.commands[i];
        if (!c->calls && !c->rejected && !c->failed) continue;
        buf_printf(
            b,
            "cmdstat_%s:calls=%llu,usec=%llu,usec_per_call=%.2f,rejected_calls=%llu,failed_calls=%llu\r\n",
            command_at(i)->name, (ull)c->calls, (ull)c->usec,
            c->calls ? (double)c->usec / (double)c->calls : 0, (ull)c->rejected, (ull)c->failed);
    }
}

static void info_errorstats(struct server *s, struct buf *b)
{
    for (u32 i = 0; i < s->stats.error_count; i++)
        buf_printf(b, "errorstat_%s:count=%llu\r\n", s->stats.errors[i].prefix,
                   (ull)s->stats.errors[i].count);
}

static void info_latencystats(struct server *s, struct buf *b)
{
    const double *percentiles = s->config.percentiles.v;
    for (u32 i = 0; i < s->stats.command_count; i++) {
        if (!s->stats.commands[i].histogram) continue;
        buf_printf(b, "latency_percentiles_usec_%s:", command_at(i)->name);
        for (u32 p = 0; p < s->config.percentiles.n; p++)
            buf_printf(b, "%sp%g=%.3f", p ? "," : "", percentiles[p],
                       (double)stats_percentile_us(&s->stats.commands[i], percentiles[p] / 100));
        buf_append_str(b, "\r\n");
    }
}

static void info_sites(struct server *s, struct buf *b) { peers_info(s, b); }

static void info_cluster(struct server *s, struct buf *b) { cluster_info(s, b); }
static void info_modules(struct server *s UNUSED, struct buf *b UNUSED) {}

static void info_keyspace(struct server *s, struct buf *b)
{
    for (u32 i = 0; i < node_engine(&s->node)->databases; i++) {
        struct node_db db = node_db(&s->node, i);
        if (!db.keys) continue;
        double ttl = db.expires ? db.mean_deadline - (double)s->now_ms : 0;
        buf_printf(b, "db%u:keys=%llu,expires=%llu,avg_ttl=%lld,subexpiry=%llu\r\n", i, (ull)db.keys,
                   (ull)db.expires, ttl > 0 ? (long long)MIN(ttl, 9e18) : 0, (ull)db.timed_hashes);
    }
}

static void lag_fields(struct buf *b, const char *how, const struct lag_histogram *h)
{
    buf_printf(
        b,
        "expiry_lag_%s_count:%llu\r\nexpiry_lag_%s_p50_ms:%llu\r\n"
        "expiry_lag_%s_p99_ms:%llu\r\nexpiry_lag_%s_max_ms:%llu\r\n",
        how, (ull)h->count, how, (ull)lag_percentile(h, 0.5), how, (ull)lag_percentile(h, 0.99),
        how, (ull)h->max_ms);
}

static void info_expiry(struct server *s, struct buf *b)
{
    struct node_sums sums;
    const struct keyspace_stats *k = &sums.stats;
    const struct expire_cycle *cycle = &s->node.regions.first->cycle; /* the same configuration in all */
    struct forecast forecast = {.now_ms = s->now_ms};
    u64 keys = 0;
    node_sum(&s->node, &sums);
    for (u32 db = 0; db < node_engine(&s->node)->databases; db++) keys += node_db(&s->node, db).expires;
    node_forecast(&s->node, &forecast);
    buf_printf(
        b,
        "expiry_source:%s\r\nexpiry_effort:%u\r\nexpiry_keys_with_deadline:%llu\r\n"
        "expired_keys_active:%llu\r\nexpired_keys_lazy:%llu\r\nexpired_fields:%llu\r\n"
        "expiry_oldest_overdue_ms:%lld\r\n",
        cycle->source == EXPIRE_INDEX ? "index" : "sample", cycle->effort,
        (ull)keys, (ull)(k->expired_keys - k->lazy_expired), (ull)k->lazy_expired,
        (ull)k->expired_fields, (long long)forecast.oldest_overdue_ms);
    const struct expire_run *last = &sums.last;
    buf_printf(
        b,
        "ttl_cleanup_total:%llu\r\nttl_cleanup_last_count:%llu\r\nttl_cleanup_last_start_ms:%lld\r\n"
        "ttl_cleanup_last_took_us:%lld\r\nttl_cleanup_last_lag_ms:%llu\r\n",
        (ull)sums.active.count, (ull)last->cleaned, (long long)last->at_ms,
        (long long)last->took_us, (ull)last->lag_ms);
    lag_fields(b, "active", &sums.active);
    lag_fields(b, "lazy", &sums.lazy);
    buf_printf(b, "expiry_stream_entries:%llu\r\nexpiry_stream_lost:%llu\r\n",
               (ull)sums.stream_told, (ull)sums.stream_lost);
}

static void info_rocksdb(struct server *s, struct buf *b)
{
    node_engine(&s->node)->ops->disk->info(node_engine(&s->node), b);
    throttle_info(s, b);
}

struct section {
    const char *name, *title;
    bool by_default;
    void (*write)(struct server *, struct buf *);
};

static const struct section sections[] = {
    {"server", "Server", true, info_server},
    {"clients", "Clients", true, info_clients},
    {"memory", "Memory", true, info_memory},
    {"persistence", "Persistence", true, persistence_info},
    {"stats", "Stats", true, info_stats},
    {"replication", "Replication", true, replication_info},
    {"cpu", "CPU", true, info_cpu},
    {"threads", "Threads", true, info_threads},
    {"modules", "Modules", true, info_modules},
    {"commandstats", "Commandstats", false, info_commandstats},
    {"errorstats", "Errorstats", true, info_errorstats},
    {"latencystats", "Latencystats", false, info_latencystats},
    {"cluster", "Cluster", true, info_cluster},
    {"sites", "Sites", true, info_sites},
    {"keyspace", "Keyspace", true, info_keyspace},
    {"expiry", "Expiry", true, info_expiry},
    {"rocksdb", "Rocksdb", true, info_rocksdb},
};

static bool section_there(const struct server *s, const struct section *x)
{
    if (x->write == info_sites) return s->config.site_id;
    return x->write != info_rocksdb || node_engine(&s->node)->caps.durable;
}

bool info_section(struct server *s, u32 at, struct buf *out)
{
    if (at >= ARRAY_LEN(sections)) return false;
    if (!section_there(s, &sections[at])) return true;
    buf_printf(out, "# %s\r\n", sections[at].title);
    sections[at].write(s, out);
    return true;
}

static bool section_wanted(const struct ctx *c, const struct section *s)
{
    if (!section_there(c->server, s)) return false;
    if (c->argc == 1) return s->by_default;
    for (int i = 1; i < c->argc; i++) {
        if (bytes_is(c->argv[i], "all") || bytes_is(c->argv[i], "everything")) return true;
        if (bytes_is(c->argv[i], "default") && s->by_default) return true;
        if (bytes_is(c->argv[i], s->name)) return true;
    }
    return false;
}

void cmd_info(struct ctx *c)
{
    struct buf text = {0};
    for (u32 i = 0; i < ARRAY_LEN(sections); i++) {
        if (!section_wanted(c, &sections[i])) continue;
        buf_printf(&text, "%s# %s\r\n", text.n ? "\r\n" : "", sections[i].title);
        sections[i].write(c->server, &text);
    }
    reply_verbatim(c->out, buf_bytes(&text), "txt");
    buf_release(&text);
}
