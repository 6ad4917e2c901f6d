#include "server/cron.h"

#include "base/clock.h"
#include "base/crash.h"
#include "peers/peers.h"
#include "server/storage.h"
#include "server/client/users.h"

#define MUCH_FREED (1u << 20)
#define PURGE_FOR_MS 3000
#define PURGE_EVERY_MS 5
#define WATCHDOG_LEAST_MS 250 /* the loop runs it ten times a second, or a little less often */
#define TENTH_US 95000 /* a little less than 100 ms: timers are not exact */

static void decay(uv_work_t *w UNUSED) { mem_decay(); }
static void decayed(uv_work_t *w, int status UNUSED) { ((struct server *)w->data)->purging = false; }

/* Returns free pages to the kernel on another thread: it takes a millisecond per 10 MB. */
static void give_back(struct server *s)
{
    s->purge_work.data = s;
    if (!s->purging) s->purging = uv_queue_work(&s->loop, &s->purge_work, decay, decayed) == 0;
}

static void on_purge(uv_timer_t *t)
{
    struct server *s = t->data;
    give_back(s);
    if (uv_now(&s->loop) >= s->purge_until) uv_timer_stop(t);
}

/* After much was freed, pages are returned gradually: the allocator spreads it over a second, but only while
 * it is called. */
static void look_at_memory(struct server *s)
{
    u64 used = evictor_used(&s->node.evictor);
    s->stats.peak_memory = MAX(s->stats.peak_memory, used);
    if (used + MUCH_FREED < s->used_before) {
        s->purge_until = uv_now(&s->loop) + PURGE_FOR_MS;
        uv_timer_start(&s->purge, on_purge, PURGE_EVERY_MS, PURGE_EVERY_MS);
    }
    if (uv_is_active((uv_handle_t *)&s->purge)) mem_flush_cache();
    s->used_before = used;
}

static void every_second(struct server *s)
{
    net_close_idle(&s->net);
    net_check_output(&s->net);
    net_trim(&s->net);
    net_retry_accept(&s->net);
    metrics_cron(s->metrics);
    users_next_try(s);
    give_back(s); /* what was freed between two checks, or on other threads */
}

/* At most ten times a second, so that comparisons with the previous time span the same interval whatever hz
 * is. */
static void every_tenth(struct server *s)
{
    i64 now_us = clock_mono_us();
    if (now_us - s->stats.ops.last_us < TENTH_US) return;
    if (UNLIKELY(s->config.watchdog_period))
        crash_watchdog(MAX(s->config.watchdog_period, WATCHDOG_LEAST_MS));
    look_at_memory(s);
    lag_tick(&s->node.lag, now_us / 1000);
    storage_cron(s);
    persistence_cron(s);
    replication_cron(s);
    if (UNLIKELY(s->config.site_id)) peers_cron(s);
    shutdown_cron(s);
    if (UNLIKELY(tracking_used(&s->tracking))) tracking_cron(s);
    if (UNLIKELY(s->stop_signal) && !s->repl.leaving) server_stop_by_signal(s, s->stop_signal);
    rate_sample(&s->stats.ops, s->stats.total_commands, now_us);
    rate_sample(&s->stats.net_in, s->net.own.stats.bytes_in, now_us);
    rate_sample(&s->stats.net_out, s->net.own.stats.bytes_out, now_us);
    rate_sample(&s->stats.repl_in, s->repl.bytes_in, now_us);
    rate_sample(&s->stats.repl_out, s->repl.bytes_out, now_us);
    rate_sample(&s->stats.turns, s->net.own.stats.turns, now_us);
    rate_sample(&s->stats.busy_us, (u64)clock_thread_us(), now_us);
}

void server_cron(uv_timer_t *t)
{
    struct server *s = t->data;
    if (UNLIKELY(s->cron_paused) && !s->stop_signal) return;
    every_tenth(s);
    if (s->cron_loops++ % (u64)s->config.hz == 0) every_second(s);
}
