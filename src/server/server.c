/* Starting, applying the configuration, and shutdown. */
#include "server/server.h"

#include "server/account.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log_syslog.h"
#include "cluster/cluster.h"
#include "engine/rocks/rocks.h"
#include "exec/multi.h"
#include "server/observe/crash_report.h"
#include "server/commit.h"
#include "server/cron.h"
#include "server/daemon.h"
#include "server/client/monitor.h"
#include "peers/peers.h"
#include "repl/primary.h"
#include "config/rename.h"
#include "server/script_host.h"
#include "server/storage.h"
#include "server/tick.h"
#include "server/client/users.h"

/* -- accepting ------------------------------------------------------------------------- */

static const char denied[] =
    "-DENIED Mayfly is running in protected mode because no password is set for the default user. "
    "In this mode connections are only accepted from the loopback interface. To connect from other "
    "machines, set a password (CONFIG SET requirepass, or the requirepass directive), or, if the "
    "network is trusted, turn the mode off with 'CONFIG SET protected-mode no' from the loopback "
    "interface or with --protected-mode no.\r\n";

static const char *server_on_accept(struct net *n, struct conn *c)
{
    struct server *s = n->owner;
    bool is_far = !c->is_unix && !c->is_loopback;
    if (is_far && s->config.protected_mode && acl_default(&s->acl)->nopass) return denied;
    users_greet(s, &c->session);
    c->connected_ms = (i64)uv_now(n->loop);
    return NULL;
}

static void on_close(struct net *n, struct conn *c)
{
    struct server *s = n->owner;
    client_evict_forget(s, c);
    monitor_leave(s, &c->session);
    block_forget(s, c);
    migrate_forget(c);
    prefault_forget(s, c);
    multi_end(&c->session);
    pubsub_forget(s, c);
    tracking_forget(s, c);
    primary_forget(s, c);
    peers_forget(s, c);
}

/* -- configuration in force --------------------------------------------------------------- */

/* Offsets and lengths below this layer have 32 bits, a packed element 31: that limits strings and pending
 * input, whatever is configured. */
#define LONGEST_STRING ((i64)INT32_MAX - 1024)
#define LONGEST_INPUT (3LL << 30)

static i64 max_string_of(const struct config *c) { return MIN(c->proto_max_bulk_len, LONGEST_STRING); }

/* Applies the configuration of a region. */
static void configure_region(const struct config *c, struct region *r)
{
    r->cycle.hz = (u32)c->hz;
    r->cycle.effort = (u32)c->active_expire_effort;
    r->cycle.source = r->eng->caps.durable ? EXPIRE_INDEX : c->active_expire_source;
    r->cycle.interval_ms = c->ttl_cleanup_interval;
    r->cycle.batch = (u32)c->ttl_cleanup_batch;
    r->ks.policy = c->maxmemory_policy;
    r->ks.limited = c->maxmemory != 0;
    r->ks.max_string = (u64)max_string_of(c);
    r->ks.compress = c->rdbcompression;
    r->ks.hll_sparse_max = (u32)MIN(c->hll_sparse_max_bytes, (i64)UINT32_MAX);
    r->ks.stream_node_max_bytes = (u64)c->stream_node_max_bytes;
    r->ks.stream_node_max_entries = (u64)c->stream_node_max_entries;
    r->ks.lfu_log_factor = (u32)c->lfu_log_factor;
    r->ks.lfu_decay_minutes = (u32)c->lfu_decay_time;
    expiry_stream_set(&r->expiry_stream, &r->ks, buf_bytes(&c->expiry_stream.name),
                      (u64)c->expiry_stream.maxlen);
    r->eng->limits = (struct engine_limits){
        .hash_max_listpack_entries = c->hash_max_listpack_entries,
        .hash_max_listpack_value = c->hash_max_listpack_value,
        .zset_max_listpack_entries = c->zset_max_listpack_entries,
        .zset_max_listpack_value = c->zset_max_listpack_value,
        .set_max_intset_entries = c->set_max_intset_entries,
        .set_max_listpack_entries = c->set_max_listpack_entries,
        .set_max_listpack_value = c->set_max_listpack_value,
        .list_max_listpack_size = c->list_max_listpack_size,
    };
}

void server_apply_config(struct server *s)
{
    const struct config *c = &s->config;
    s->net.config.max_bulk = max_string_of(c);
    s->net.config.max_query_buffer = MIN(c->client_query_buffer_limit, LONGEST_INPUT - 1);
    s->net.config.max_clients = (u32)c->maxclients;
    s->net.config.idle_timeout_s = (u32)c->timeout;
    s->net.config.keepalive_s = (u32)c->tcp_keepalive;
    s->net.config.accepts = (u32)c->max_new_connections;
    s->net.config.tls_accepts = (u32)c->max_new_tls_connections;
    s->net.config.default_proto = (u8)c->client_default_resp;
    s->net.config.mark = (u32)c->socket_mark_id;
    setlocale(LC_COLLATE, c->locale_collate.p ? c->locale_collate.p : ""); /* SORT ALPHA */
    s->net.config.backlog = (u32)c->tcp_backlog;
    memcpy(s->net.config.output, c->output_limit, sizeof c->output_limit);
    /* A replica that may have the whole backlog must be able to get it. */
    struct output_limit *l = &s->net.config.output[CONN_REPLICA];
    if (l->hard) l->hard = MAX(l->hard, (u64)c->repl_backlog_size);
    if (l->soft) l->soft = MAX(l->soft, (u64)c->repl_backlog_size);

    struct region *r;
    bool durable = node_engine(&s->node)->caps.durable;
    script_host_apply(s);
    REGIONS_EACH(&s->node.regions, r) configure_region(c, r);
    s->node.evictor.maxmemory = durable ? 0 : (u64)c->maxmemory; /* data on disk is not evicted */
    s->node.evictor.unfinished = s->node.evictor.maxmemory; /* it may have been lowered */
    s->node.evictor.samples = (u32)c->maxmemory_samples;
    s->node.evict_following = !c->replica_ignore_maxmemory;
    replication_decide_expiry(s);
    primary_count_good(s);
    storage_apply_config(s);
    persistence_apply_config(s);
    notify_listen(s);
    account_apply_config(s);
    slowlog_trim(&s->slowlog, (u64)c->slowlog_max_len);
    s->log.path = c->logfile.n ? c->logfile.p : NULL;
    s->log.level = c->loglevel;
    users_apply_config(s);
    crash_report_apply_config(s);
    client_evict_apply_config(s);
    peers_apply_config(s);
    process_apply_config(s);
    if (s->cron.loop) uv_timer_set_repeat(&s->cron, 1000 / (u64)c->hz);
}

/* -- start ------------------------------------------------------------------------------------ */

static u64 random_u64(void)
{
    u64 v = 0;
    if (uv_random(NULL, NULL, &v, sizeof v, 0, NULL))
        v = (u64)clock_mono_us() ^ (u64)getpid() << 32;
    return v;
}

void server_random_id(char id[41])
{
    u64 state = random_u64();
    for (int i = 0; i < 40; i++) id[i] = "0123456789abcdef"[rand_below(&state, 16)];
    id[40] = '\0';
}

#define RESERVED_FILES 32         /* descriptors not used for clients */
#define RESERVED_FILES_ROCKS 4096 /* those of the database: it keeps its files open */

i64 server_ask_files(const struct config *c)
{
    struct rlimit l;
    i64 clients = c->maxclients;
    i64 reserved = c->engine == ENGINE_ROCKSDB ? RESERVED_FILES_ROCKS : RESERVED_FILES;
    rlim_t want = (rlim_t)(clients + reserved);
    if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= want) return clients;
    struct rlimit more = {want, MAX(l.rlim_max, want)}; /* root may */
    if (setrlimit(RLIMIT_NOFILE, &more) == 0) return clients;
    more = (struct rlimit){l.rlim_max, l.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &more) == 0) l = more;
    reserved = MIN(reserved, MAX((i64)l.rlim_cur / 2, RESERVED_FILES)); /* no more than half for the files */
    return MIN(MAX((i64)l.rlim_cur - reserved, 1), clients);
}

/* Redis lowers maxclients when the limit can't be raised. */
static void adjust_max_clients(struct server *s)
{
    i64 allowed = server_ask_files(&s->config);
    if (allowed >= s->config.maxclients) return;
    s->config.maxclients = allowed;
    log_line(
        &s->log, LOG_WARNING,
        "Your current 'ulimit -n' allows only %lld clients; maxclients has been reduced to that.",
        (long long)s->config.maxclients);
}

static bool server_listen_on(struct server *s, bytes address, int port, bool tls, bool optional)
{
    char text[128];
    snprintf(text, sizeof text, "%.*s", (int)address.n, address.p);
    if (bytes_is(address, "*")) snprintf(text, sizeof text, "0.0.0.0");
    if (bytes_is(address, "::*")) snprintf(text, sizeof text, "::");
    int rc = net_listen_tcp(&s->net, text, port, tls);
    if (rc == 0) return true;
    log_line(&s->log, LOG_WARNING,
             "Warning: Could not create server TCP listening socket %s:%d: %s", text, port, uv_strerror(rc));
    return optional && (rc == UV_EADDRNOTAVAIL || rc == UV_EAFNOSUPPORT);
}

/* On all addresses of `bind`. */
static bool listen_port(struct server *s, int port, bool tls)
{
    const char *p = s->config.bind.p, *end = p + s->config.bind.n;
    if (port == 0) return true;
    while (p < end) {
        while (p < end && *p == ' ') p++;
        const char *from = p;
        while (p < end && *p != ' ') p++;
        if (p == from) break;
        bool optional = *from == '-';
        if (server_listen_on(s, bytes_of(from + optional, (size_t)(p - from) - optional), port, tls,
                             optional))
            continue;
        log_line(&s->log, LOG_WARNING, "Failed listening on port %d (%s), aborting.", port,
                 tls ? "tls" : "tcp");
        return false;
    }
    return true;
}

static bool listen_tcp(struct server *s)
{
    s->net.mark_failed = false;
    bool ok = listen_port(s, (int)s->config.port, false) && listen_port(s, (int)s->config.tls_port, true);
    if (s->net.mark_failed)
        log_line(&s->log, LOG_WARNING, "socket-mark-id has no effect: it needs CAP_NET_ADMIN.");
    return ok;
}

bool server_relisten(struct server *s)
{
    net_stop_listening(&s->net, true);
    return listen_tcp(s);
}

static bool prepare_tls(struct server *s)
{
    struct buf why = {0};
    bool ok = server_apply_tls(s, &why);
    if (!ok) log_line(&s->log, LOG_WARNING, "Failed to configure TLS. %.*s", (int)why.n, why.p);
    buf_release(&why);
    return ok;
}

static bool listen_all(struct server *s)
{
    if (!prepare_tls(s) || !listen_tcp(s)) return false;
    if (s->config.unixsocket.n) {
        int rc = net_listen_unix(&s->net, s->config.unixsocket.p, (int)s->config.unixsocketperm);
        if (rc) {
            log_line(&s->log, LOG_WARNING, "Failed opening Unix socket: bind: %s", uv_strerror(rc));
            return false;
        }
    }
    if (!s->net.listeners) {
        log_line(&s->log, LOG_WARNING, "Configured to not listen anywhere, exiting.");
        return false;
    }
    if (!s->config.metrics_port) return true;
    s->metrics = metrics_start(s, s->config.metrics_bind.p, (int)s->config.metrics_port);
    return s->metrics != NULL;
}

static void say_hello(struct server *s)
{
    log_line(&s->log, LOG_WARNING, "oO0OoO0OoO0Oo Mayfly is starting oO0OoO0OoO0Oo");
    log_line(&s->log, LOG_WARNING,
             "Mayfly version=%s, Redis compatibility=%s, bits=64, pid=%d, PID: %d", MAYFLY_VERSION,
             REDIS_VERSION, (int)getpid(), (int)getpid());
    if (s->config.file.n)
        log_line(&s->log, LOG_WARNING, "Configuration loaded from %s", s->config.file.p);
    else
        log_line(&s->log, LOG_WARNING, "No configuration file given. mayfly.conf explains all directives.");
}

void server_ready(struct server *s)
{
    daemon_ready(&s->config);
    log_line(&s->log, LOG_NOTICE, "Server initialized");
    if (s->config.port)
        log_line(&s->log, LOG_NOTICE,
                 "Running mode=%s, engine=%s, port=%d. Connect with: redis-cli %s-p %d",
                 s->cluster ? "cluster" : "standalone", node_engine(&s->node)->ops->name,
                 (int)s->config.port, s->cluster ? "-c " : "", (int)s->config.port);
    if (s->config.tls_port)
        log_line(&s->log, LOG_NOTICE, "TLS at port=%d. Connect with: redis-cli --tls -p %d",
                 (int)s->config.tls_port, (int)s->config.tls_port);
    if (s->config.unixsocket.n)
        log_line(&s->log, LOG_NOTICE, "The server is now ready to accept connections at %s",
                 s->config.unixsocket.p);
    log_line(&s->log, LOG_NOTICE, "Ready to accept connections");
}

static void remove_pidfile_and_socket(struct server *s)
{
    if (s->config.unixsocket.n) unlink(s->config.unixsocket.p);
    daemon_end(&s->config);
}

static const char *signal_name(u32 signum) { return signum == SIGINT ? "SIGINT" : "SIGTERM"; }

u32 server_signal_means(const struct server *s, u32 signum)
{
    return signum == SIGINT ? s->config.shutdown_on_sigint : s->config.shutdown_on_sigterm;
}

/* A script ends first, by itself or stopped by script_host.c. A file that is just being renamed must have its
 * name first (snapshot.c), and so must the first base of a new AOF, as there is after each full sync: without
 * it there is nothing to start with. */
void server_stop_by_signal(struct server *s, u32 signum)
{
    s->stop_signal = signum;
    if (s->node.script || (snapshot_must_finish(&s->persist) && !s->node.loading)) return;
    if (server_shutdown(s, server_signal_means(s, signum))) return;
    s->stop_signal = 0;
    log_line(&s->log, LOG_WARNING,
             "%s received but errors trying to shut down the server, check the logs for more information",
             signal_name(signum));
}

static void on_signal(struct server *s, u32 signum)
{
    if (s->stop_signal && signum == SIGINT) {
        log_line(&s->log, LOG_WARNING, "You insist... exiting now.");
        server_end(s, 1);
        return;
    }
    log_line(&s->log, LOG_WARNING, "Received %s scheduling shutdown...", signal_name(signum));
    if (!s->stop_signal) s->stop_us = clock_mono_us();
    server_stop_by_signal(s, signum);
}

void server_hear_signals(struct server *s)
{
    struct signalfd_siginfo heard;
    while (read(s->signal_fd, &heard, sizeof heard) == sizeof heard) on_signal(s, heard.ssi_signo);
}

static void on_signals(uv_poll_t *h, int status UNUSED, int events UNUSED) { server_hear_signals(h->data); }

/* Signals are read from a descriptor, not caught, so that code that keeps the loop waiting can check for
 * them. So no thread may catch them: all threads are started after this. */
static int take_signals(void)
{
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGTERM);
    sigaddset(&both, SIGINT);
    pthread_sigmask(SIG_BLOCK, &both, NULL);
    return signalfd(-1, &both, SFD_NONBLOCK | SFD_CLOEXEC);
}

static void start_handles(struct server *s)
{
    client_evict_start(s);
    block_init(s);
    throttle_init(s);
    uv_timer_init(&s->loop, &s->cron);
    uv_timer_init(&s->loop, &s->pause);
    uv_timer_init(&s->loop, &s->wake);
    uv_timer_init(&s->loop, &s->purge);
    uv_idle_init(&s->loop, &s->busy);
    uv_poll_init(&s->loop, &s->signals, s->signal_fd);
    s->cron.data = s->pause.data = s->wake.data = s->purge.data = s->signals.data = s;
    uv_timer_start(&s->cron, server_cron, 1, 1000 / (u64)s->config.hz);
    uv_poll_start(&s->signals, UV_READABLE, on_signals);
    /* A closed client shows as an error of write(); a closed terminal does not matter. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

static void open_syslog(struct server *s)
{
    const struct config *c = &s->config;
    s->log.to_syslog = c->syslog_enabled;
    if (c->syslog_enabled) log_syslog_open(c->syslog_ident.p, c->syslog_facility.p);
}

/* A lone server has one region, which has all slots. In cluster mode it is the one without slots: the others
 * are opened by cluster_start. */
static void start_node(struct server *s, struct engine *eng)
{
    struct node *n = &s->node;
    struct region *r = mem_alloc(sizeof *r);
    node_init(n, random_u64());
    region_init(r, n, eng, random_u64());
    if (s->config.cluster_enabled && s->rocks) region_map_add_home(&n->regions, r);
    else region_map_add(&n->regions, r, 0, REGION_SLOTS - 1);
    n->on_nested = tick_nested;
    n->holds = tick_holds;
    n->owner = s;
    if (!s->config.rename_count) return;
    n->find = rename_find;
    n->find_arg = &s->config;
}

static bool start_io_threads(struct server *s)
{
    s->net.memory = &s->node.evictor.meter.others;
    if (s->config.io_threads == 1 || net_start_threads(&s->net, (u32)s->config.io_threads - 1)) return true;
    log_line(&s->log, LOG_WARNING, "Can't start %lld I/O threads.", (long long)s->config.io_threads - 1);
    return false;
}

bool server_start(struct server *s)
{
    s->log.level = s->config.loglevel;
    s->log.path = s->config.logfile.n ? s->config.logfile.p : NULL;
    s->start_ms = clock_wall_ms();
    s->start_mono_us = clock_mono_us();
    if (!daemon_begin(&s->config, &s->log)) {
        config_release(&s->config);
        return false;
    }
    open_syslog(s);
    process_start(s);
    s->signal_fd = take_signals();
    CHECK(s->signal_fd >= 0);
    say_hello(s);
    config_warn(&s->config, &s->log);
    adjust_max_clients(s);
    struct engine *eng = storage_open(s, random_u64());
    if (!eng) {
        config_release(&s->config);
        return false;
    }
    server_random_id(s->run_id);
    stats_init(&s->stats, command_count());
    uv_loop_init(&s->loop);
    net_init(&s->net, &s->loop);
    s->net.owner = s;
    s->net.on_tick = server_tick;
    s->net.on_accept = server_on_accept;
    s->net.on_close = on_close;
    s->net.on_no_tls = server_no_tls;
    commit_init(s);
    start_node(s, eng);
    pubsub_init(&s->pubsub, random_u64());
    tracking_init(s, random_u64());
    users_init(s);
    replication_init(s);
    server_apply_config(s);
    node_begin(&s->node, clock_wall_ms());
    if (!storage_recall(s) || !users_start(s) || !listen_all(s) || !start_io_threads(s)) {
        server_release(s);
        return false;
    }
    start_handles(s);
    s->startup_memory = evictor_used(&s->node.evictor);
    daemon_write_pid(&s->config, &s->log);
    bool sited = s->config.cluster_enabled ? cluster_start(s) : peers_prepare(s);
    if (sited && persistence_start(s)) return true;
    remove_pidfile_and_socket(s);
    server_release(s);
    return false;
}

void server_run(struct server *s) { uv_run(&s->loop, UV_RUN_DEFAULT); }

/* -- shutdown ------------------------------------------------------------------------------------ */

bool server_shutdown(struct server *s, u32 how)
{
    if (s->shutting_down || shutdown_waits(s, how)) return true;
    if (!(how & SHUTDOWN_NOW) && cluster_leaves(s, how)) return true;
    log_line(&s->log, LOG_WARNING, "User requested shutdown...");
    if (!persistence_shutdown(s, how)) {
        log_line(&s->log, LOG_WARNING, "Errors trying to shut down the server. Check the logs for more "
                                       "information.");
        return false;
    }
    server_end(s, 0);
    return true;
}

void server_end(struct server *s, int exit_code)
{
    if (s->shutting_down) return;
    s->shutting_down = true;
    s->exit_code = exit_code;
    remove_pidfile_and_socket(s);
    uv_stop(&s->loop);
}

static void close_handle(uv_handle_t *h, void *arg UNUSED)
{
    if (!uv_is_closing(h)) uv_close(h, NULL);
}

static void release_node(struct node *n)
{
    while (n->regions.count) {
        struct region *r = n->regions.first;
        region_map_remove(&n->regions, r);
        region_release(r);
        mem_free(r);
    }
    node_release(n);
}

void server_release(struct server *s)
{
    net_stop_threads(&s->net);
    cluster_stop(s);
    peers_stop(s);
    replication_stop(s);
    persistence_stop(s);
    net_stop_listening(&s->net, false);
    metrics_stop(s->metrics);
    for (struct conn *c = s->net.conns; c; c = c->next) {
        migrate_forget(c); /* it closes its handles itself */
        conn_close(c);
    }
    uv_walk(&s->loop, close_handle, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->loop);
    close(s->signal_fd);
    net_release(&s->net);
    tls_context_free(s->net.tls);
    persistence_release(s);
    replication_release(s);
    if (storage_must_close(s)) {
        release_node(&s->node);
        rocks_close(s->rocks);
    }
    pubsub_release(&s->pubsub);
    tracking_release(s);
    block_release(s);
    stats_release(&s->stats);
    slowlog_clear(&s->slowlog);
    users_release(s);
    mem_free(s->monitors);
    if (s->shutting_down && !s->exit_code)
        log_line(&s->log, LOG_WARNING, "Mayfly is now ready to exit, bye bye...");
    config_release(&s->config);
}
