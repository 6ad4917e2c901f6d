/* Gathering requests for the next entry: the clock of cluster/batch.h. */
#include <sys/timerfd.h>
#include <unistd.h>

#include "cluster/cluster_parts.h"

/* Within a tick: its requests count, too. */
static u32 batch_waiting(const struct cluster *c)
{
    const struct net *n = &c->server->net;
    return net_held_requests(n, HOLD_RAFT) + n->tick.request_count;
}

static void batch_over(struct cluster *c)
{
    batch_end(&c->batch, batch_waiting(c));
    cluster_moved_on(c);
}

/* False: the clock can't be set. */
static bool batch_set_clock(const struct cluster *c, u64 us)
{
    struct itimerspec t = {.it_value = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)}};
    return timerfd_settime(c->batch_fd, 0, &t, NULL) == 0;
}

static void batch_on_timer(uv_poll_t *p, int status UNUSED, int events UNUSED)
{
    struct cluster *c = p->data;
    u64 times;
    bool fired = read(c->batch_fd, &times, sizeof times) == sizeof times;
    if (!fired || !c->batch.gathering) return;
    u64 us = batch_look(&c->batch, batch_waiting(c));
    if (!us || !batch_set_clock(c, us)) batch_over(c);
}

/* libuv's timers count milliseconds, which is as long as a commit takes. */
void cluster_open_batch(struct cluster *c)
{
    c->batch_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    CHECK(c->batch_fd >= 0 && uv_poll_init(&c->server->loop, &c->batch_timer, c->batch_fd) == 0);
    c->batch_timer.data = c;
    c->handles++;
    uv_poll_start(&c->batch_timer, UV_READABLE, batch_on_timer);
    uv_unref((uv_handle_t *)&c->batch_timer);
}

void cluster_close_batch(struct cluster *c)
{
    uv_close((uv_handle_t *)&c->batch_timer, cluster_on_closed);
    close(c->batch_fd);
}

void cluster_committed(struct cluster *c, u32 answered, u64 took_us)
{
    if (c->batch.gathering) { /* of another region's */
        batch_add(&c->batch, answered);
        return;
    }
    u64 us = batch_committed(&c->batch, answered, batch_waiting(c), took_us);
    if (us && !batch_set_clock(c, us)) batch_over(c);
}

bool cluster_gathers(struct cluster *c)
{
    if (!c->batch.gathering) return false;
    bool leads = cluster_slots_regions(c) > 1 || member_leads(cluster_first(c));
    if (!leads || (!c->flying && batch_complete(&c->batch, batch_waiting(c)))) batch_over(c);
    return c->batch.gathering;
}
