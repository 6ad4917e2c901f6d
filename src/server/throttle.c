#include "server/throttle.h"

#include "base/clock.h"
#include "repl/link.h"
#include "server/server.h"

#define POLL_MS 5              /* how often a full backlog is checked */
#define BURST_US 2000          /* writes may run this much too early: timers are that coarse */
#define WAIT_MAX_US 10000      /* the most that one tick's writes delay the next, except at full pressure */
#define RATE_LEAST (8u << 20)  /* bytes a second */
#define SAMPLE_US 50000
#define RATE_OVER_US 1000000   /* the rate follows what is written over about this time */
#define TELL_AFTER_US 1000000
#define TELL_EVERY_US 60000000

static const struct disk_ops *disk_of(const struct server *s) { return node_engine(&s->node)->ops->disk; }

/* Writing at the recent rate keeps pressure where it is, or changes it slowly. So at half pressure writers
 * may continue at that rate, at less they may go up to twice as fast, and at more slower, down to nothing. As
 * the rate follows, they converge to the rate at which pressure stays. */
static u64 allowed_rate(const struct throttle *t, u32 pressure)
{
    return MAX(t->rate, RATE_LEAST) * 2 * (DISK_PRESSURE_MAX - pressure) / DISK_PRESSURE_MAX + 1;
}

static void sample_rate(struct throttle *t, u64 bytes, i64 now_us)
{
    i64 past_us = now_us - t->sample_us;
    t->sample_bytes += bytes;
    if (past_us < SAMPLE_US) return;
    i64 now = (i64)(t->sample_bytes * 1000000 / (u64)past_us), before = (i64)t->rate;
    t->rate = (u64)(before + (now - before) * MIN(past_us, RATE_OVER_US) / RATE_OVER_US);
    t->sample_bytes = 0;
    t->sample_us = now_us;
}

static void charge(struct throttle *t, u64 bytes, u32 pressure, i64 now_us)
{
    sample_rate(t, bytes, now_us);
    if (!pressure) {
        t->next_us = 0;
        return;
    }
    i64 cost_us = (i64)(bytes * 1000000 / allowed_rate(t, pressure));
    t->next_us = MIN(MAX(t->next_us, now_us) + cost_us, now_us + WAIT_MAX_US);
}

/* Errors are replied at once: if writes are refused, none is held back. */
static bool must_hold(struct server *s, u32 pressure, i64 now_us)
{
    if (!pressure || disk_of(s)->refuses_writes(node_engine(&s->node))) return false;
    return pressure == DISK_PRESSURE_MAX || s->throttle.next_us > now_us + BURST_US;
}

static void set_holding(struct server *s, bool holding, i64 now_us)
{
    struct throttle *t = &s->throttle;
    if (holding && !t->held_since_us) t->held_since_us = now_us;
    if (!holding && t->held_since_us) {
        t->held_us += (u64)(now_us - t->held_since_us);
        t->held_since_us = 0;
    }
    server_hold(s, HOLD_STORAGE, holding);
    if (!holding || now_us - t->held_since_us < TELL_AFTER_US) return;
    if (t->told_us && now_us - t->told_us < TELL_EVERY_US) return;
    t->told_us = now_us;
    log_line(
        &s->log, LOG_WARNING,
        "RocksDB is behind with flushes or compactions: writes have been waiting for a second. INFO rocksdb "
        "has details");
}

static void throttle_look(struct server *s, bool measure, i64 now_us)
{
    struct throttle *t = &s->throttle;
    u64 written = disk_of(s)->bytes_written(node_engine(&s->node));
    u32 pressure = disk_of(s)->write_pressure(node_engine(&s->node), measure);
    charge(t, written - t->charged, pressure, now_us);
    t->charged = written;
    set_holding(s, must_hold(s, pressure, now_us), now_us);
}

void throttle_begin_tick(struct server *s)
{
    struct throttle *t = &s->throttle;
    if (!node_engine(&s->node)->caps.durable) return;
    bool idle = t->charged == disk_of(s)->bytes_written(node_engine(&s->node));
    if (idle && !server_holds(s, HOLD_STORAGE)) return;
    throttle_look(s, false, s->tick_us);
}

/* Those that waited longest come first, as many as the rate allows, so that not all of them are held back
 * again in each turn. */
static void resume_some(struct server *s)
{
    struct throttle *t = &s->throttle;
    u32 pressure = disk_of(s)->write_pressure(node_engine(&s->node), false);
    u64 room = pressure ? allowed_rate(t, pressure) / (1000000 / (BURST_US * 2)) : UINT64_MAX;
    t->waiting = net_resume_some(&s->net, HOLD_STORAGE, room, &t->last_resumed);
    if (s->repl.link) follow_resume(s->repl.link);
}

static void throttle_on_timer(uv_timer_t *timer)
{
    struct server *s = timer->data;
    throttle_look(s, true, clock_mono_us());
    if (!server_holds(s, HOLD_STORAGE)) resume_some(s);
    throttle_end_tick(s);
}

void throttle_end_tick(struct server *s)
{
    struct throttle *t = &s->throttle;
    bool holding = server_holds(s, HOLD_STORAGE);
    if (LIKELY(!holding && !t->waiting) || uv_is_active((uv_handle_t *)&t->timer)) return;
    i64 wait_us = t->next_us - clock_mono_us();
    bool full = holding && disk_of(s)->write_pressure(node_engine(&s->node), false) == DISK_PRESSURE_MAX;
    u64 ms = full ? POLL_MS : wait_us > 0 ? (u64)(wait_us / 1000) + 1 : 1;
    uv_timer_start(&t->timer, throttle_on_timer, ms, 0);
}

void throttle_info(const struct server *s, struct buf *out)
{
    const struct throttle *t = &s->throttle;
    i64 now_us = t->held_since_us ? clock_mono_us() - t->held_since_us : 0;
    buf_printf(out, "writes_held:%llu\r\nwrites_held_ms:%llu\r\nwrite_rate:%llu\r\n", (ull)t->held,
               (ull)(t->held_us + (u64)now_us) / 1000, (ull)t->rate);
}

void throttle_init(struct server *s)
{
    s->throttle = (struct throttle){.sample_us = clock_mono_us()};
    uv_timer_init(&s->loop, &s->throttle.timer);
    s->throttle.timer.data = s;
}
