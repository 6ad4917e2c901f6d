#include "server/cron.h"

#include "base/clock.h"
#include "server/client.h"

#define MUCH_FREED (1u << 20)

static void every_second(struct server *s)
{
    net_close_idle(&s->net, clock_wall_ms());
    net_check_output(&s->net);
    net_trim_pool(&s->net);
    u64 used = evictor_used(&s->region.evictor);
    if (used + MUCH_FREED < s->used_last_second) s->flush_seconds = 2; /* freeing may be under way */
    if (s->flush_seconds && s->flush_seconds--) mem_flush_cache();
    s->used_last_second = used;
    s->auth_failures /= 2;
    for (struct conn *c = s->net.conns; c; c = c->next) {
        if (c->hold & HOLD_AUTH) conn_resume(c, HOLD_AUTH);
    }
}

void server_cron(uv_timer_t *t)
{
    struct server *s = t->data;
    i64 now_us = clock_mono_us();
    rate_sample(&s->stats.ops, s->stats.total_commands, now_us);
    rate_sample(&s->stats.net_in, s->net.stats.bytes_in, now_us);
    rate_sample(&s->stats.net_out, s->net.stats.bytes_out, now_us);
    s->stats.peak_memory = MAX(s->stats.peak_memory, evictor_used(&s->region.evictor));
    if (s->pause_until_ms && clock_wall_ms() >= s->pause_until_ms) client_end_pause(s);
    if (s->cron_loops++ % (u64)s->config.hz == 0) every_second(s);
}
