#include "net/io.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <poll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

#define EVENTS_AT_ONCE 128
#define CONNS_IN_A_TURN 512 /* connections a thread reads before the main thread gets them */
#define TURNS_MAX 2        /* see io_leave */
#define CONNS_MANY 4       /* from this many active connections on, a thread waits for more requests … */
#define PATIENCE_US 10     /* … this long after the last one */
#define TURN_US_MAX 100    /* … and this long in all */

static void io_ring(int bell)
{
    u64 one = 1;
    if (write(bell, &one, sizeof one) < 0) return; /* the counter is full: it has been rung 2^64 times */
}

/* Edge-triggered, an eventfd is reported at each write and need not be read. */
static void io_watch_fd(int epoll, int fd, u32 events, void *data)
{
    struct epoll_event e = {.events = events, .data.ptr = data};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0);
}

/* -- lists ---------------------------------------------------------------------------------- */

static void io_queue(struct conn *c)
{
    struct io_thread *t = c->io->thread;
    if (c->io_queued) return;
    c->io_queued = true;
    c->io_next = NULL;
    c->io_prev = t->queue_last;
    *(t->queue_last ? &t->queue_last->io_next : &t->queue) = c;
    t->queue_last = c;
    t->queued++;
}

static void io_unqueue(struct conn *c)
{
    struct io_thread *t = c->io->thread;
    if (!c->io_queued) return;
    c->io_queued = false;
    *(c->io_prev ? &c->io_prev->io_next : &t->queue) = c->io_next;
    *(c->io_next ? &c->io_next->io_prev : &t->queue_last) = c->io_prev;
    t->queued--;
}

static void io_report(struct conn *c)
{
    struct io_thread *t = c->io->thread;
    if (c->io_reported) return;
    c->io_reported = true;
    c->io_report_next = t->reports;
    t->reports = c;
}

void io_break(struct conn *c)
{
    c->io_broken = true;
    io_report(c);
}

/* -- a turn of a thread --------------------------------------------------------------------- */

static void io_write(struct conn *c)
{
    if (c->net->on_moved) io_report(c);
    switch (net_send_some(c)) {
    case NET_SENT_ALL:
        if (c->events & UV_WRITABLE || c->session.close_after_reply) io_report(c);
        return;
    case NET_SENT_SOME: io_queue(c); return;
    case NET_SENT_FULL:
        c->seen &= (u8)~UV_WRITABLE;
        if (!(c->events & UV_WRITABLE)) io_report(c);
        return;
    case NET_SENT_BROKEN: return;
    }
}

static bool io_may_read(const struct conn *c)
{
    return c->seen & UV_READABLE && c->events & UV_READABLE && !c->read_this_tick && !c->hold &&
           !c->more_input && !c->io_broken;
}

/* TLS may have buffered input of the socket: only a read that returns nothing shows that there is no more. */
static void io_read(struct conn *c)
{
    c->seen &= (u8)~UV_READABLE;
    net_read(c, c->seen & UV_DISCONNECT);
    if (!c->read_this_tick) c->seen &= (u8)~UV_READABLE;
    else if (c->tls) c->seen |= UV_READABLE;
}

/* Writes and reads a connection as far as it wants to and the kernel allows. */
static void io_serve(struct conn *c)
{
    if (c->io_broken) return;
    if (UNLIKELY(c->held || c->source)) { /* the main thread writes these */
        if (c->seen & c->events & UV_WRITABLE) io_report(c);
    } else if (conn_has_output(c)) {
        if (c->seen & UV_WRITABLE) io_write(c);
    } else if (c->out.p) {
        net_give_back(c->io, &c->out);
    }
    if (io_may_read(c)) io_read(c);
    if (c->seen & c->events & UV_DISCONNECT) io_break(c);
}

static void io_serve_queue(struct io_thread *t)
{
    for (u32 i = t->queued; i > 0; i--) {
        struct conn *c = t->queue;
        io_unqueue(c);
        io_serve(c);
    }
}

static void io_note_events(struct conn *c, u32 events)
{
    u32 seen = 0;
    if (events & EPOLLIN) seen |= UV_READABLE;
    if (events & EPOLLOUT) seen |= UV_WRITABLE;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) seen |= UV_READABLE | UV_DISCONNECT;
    if (c->tls) seen |= UV_READABLE | UV_WRITABLE; /* either may wait for the other */
    c->seen |= (u8)seen;
}

/* Events are fetched inside the gate: outside, the main thread might close a connection whose event has been
 * fetched. Returns how many there were. */
static int io_serve_events(struct io_thread *t)
{
    struct epoll_event e[EVENTS_AT_ONCE];
    int n = epoll_wait(t->epoll, e, EVENTS_AT_ONCE, 0);
    for (int i = 0; i < n; i++) {
        struct conn *c = e[i].data.ptr;
        if (!c) continue; /* the bell */
        io_note_events(c, e[i].events);
        io_serve(c);
    }
    return n;
}

/* Waking the main thread and running a tick cost some microseconds, however many requests there are. With
 * many active connections, more requests are likely to arrive within that time, so waiting for them is
 * cheaper. */
static void io_serve_all(struct io_thread *t)
{
    i64 now_us = clock_mono_us(), ends_us = now_us + TURN_US_MAX, last_us = now_us;
    bool patient = t->all->conns_last >= CONNS_MANY;
    for (int served = 0; served < CONNS_IN_A_TURN;) {
        int n = io_serve_events(t);
        served += n;
        if (n < EVENTS_AT_ONCE && (!patient || !t->tick.ready || gate_is_awaited(&t->gate))) return;
        now_us = clock_mono_us();
        if (n > 0) last_us = now_us;
        else if (now_us - last_us >= PATIENCE_US) return;
        else sched_yield();
        if (now_us >= ends_us) return;
    }
}

static void io_turn(struct io_thread *t, const struct mem_meter *meter)
{
    t->io.into = &t->tick;
    t->worked = true;
    if (t->spent) net_clear_input(&t->tick);
    t->spent = false;
    io_serve_queue(t);
    io_serve_all(t);
    t->memory = mem_own(meter);
    t->io.into = &t->io.net->tick;
}

/* The main thread would have to wait for threads that are inside, so the last one that leaves wakes it, and
 * more requests share a tick. Since there may always be one inside, each thread also wakes it after TURNS_MAX
 * turns that had something for it. */
static void io_leave(struct io_thread *t)
{
    struct io_threads *all = t->all;
    bool has = t->tick.ready || t->reports;
    u32 turns = has ? ++t->turns : 0;
    if (has) atomic_store(&all->wanted, true);
    gate_leave(&t->gate);
    bool last = atomic_fetch_sub(&all->inside, 1) == 1;
    bool calls = (last && atomic_load(&all->wanted)) || turns >= TURNS_MAX;
    if (calls && !atomic_exchange(&all->rung, true)) io_ring(all->bell);
}

static void io_sleep(struct io_thread *t)
{
    struct pollfd p = {.fd = t->epoll, .events = POLLIN};
    atomic_store(&t->asleep, true);
    if (!gate_calls(&t->gate)) poll(&p, 1, -1);
    atomic_store(&t->asleep, false);
}

static void io_wake_others(struct io_thread *t)
{
    t->wakes_others = false;
    for (u32 i = 0; i < t->all->count; i++) {
        struct io_thread *other = &t->all->of[i];
        if (other != t && gate_calls(&other->gate) && atomic_load(&other->asleep)) io_ring(other->bell);
    }
}

static void io_run(void *arg)
{
    struct io_thread *t = arg;
    char name[16];
    snprintf(name, sizeof name, "io_thd_%u", t->number);
    pthread_setname_np(pthread_self(), name);
    struct mem_meter meter;
    mem_meter_open(&meter);
    for (bool more = true, ends = false; !ends;) {
        if (!more) io_sleep(t);
        if (!gate_enter(&t->gate)) atomic_fetch_add(&t->all->inside, 1);
        if (t->wakes_others) io_wake_others(t);
        ends = t->ends;
        if (!ends) io_turn(t, &meter);
        more = t->queue != NULL;
        io_leave(t);
    }
}

/* -- gathering, on the main thread ---------------------------------------------------------- */

/* Appends a thread's requests to those of the main thread's tick. */
static void io_merge(struct net *n, struct io_thread *t)
{
    struct net_tick *to = &n->tick, *from = &t->tick;
    struct net_request *requests = net_add_requests(to, from->request_count);
    u32 first_arg = to->arg_count, first_request = (u32)(requests - to->requests);
    bytes *args = net_reserve_args(to, from->arg_count);
    for (u32 i = 0; i < from->request_count; i++) {
        requests[i] = from->requests[i];
        requests[i].argv_at += first_arg;
    }
    if (from->arg_count) memcpy(args, from->args, from->arg_count * sizeof *args);
    to->arg_count += from->arg_count;
    for (struct conn *c = from->ready; c; c = c->ready_next) {
        c->first_request += first_request;
        n->threads->conns_last++;
    }
    *(to->ready_tail ? &to->ready_tail->ready_next : &to->ready) = from->ready;
    to->ready_tail = from->ready_tail;
    from->ready = from->ready_tail = NULL;
}

static void io_attend(struct conn *c)
{
    c->io_reported = false;
    if (c->closing) return;
    if (c->io_broken) {
        bool no_tls = c->tls && tls_handshaking(c->tls) && *tls_trouble(c->tls);
        if (no_tls) net_no_tls(c);
        conn_close(c);
    } else if (c->held || c->source) {
        net_flush(c);
    } else {
        net_flushed(c);
    }
}

static void io_count(struct io_thread *t)
{
    struct net_stats *from = &t->io.stats, *to = &t->io.net->own.stats;
    t->reads += from->reads;
    t->writes += from->writes;
    to->reads += from->reads;
    to->writes += from->writes;
    to->bytes_in += from->bytes_in;
    to->bytes_out += from->bytes_out;
    to->query_buffer_kills += from->query_buffer_kills;
    *from = (struct net_stats){0};
}

static void io_gather_from(struct net *n, struct io_thread *t)
{
    if (t->tick.ready) io_merge(n, t);
    t->spent = true; /* also without requests: the turn may have taken a block, which a trim may free */
    for (struct conn *c = t->reports, *next; c; c = next) {
        next = c->io_report_next;
        io_attend(c);
    }
    t->reports = NULL;
    io_count(t);
    t->worked = false;
    t->turns = 0;
}

static void io_gather(struct net *n)
{
    struct io_threads *all = n->threads;
    i64 memory = 0;
    all->conns_last = 0;
    for (u32 i = 0; i < all->count; i++) {
        if (all->of[i].worked) io_gather_from(n, &all->of[i]);
        memory += all->of[i].memory;
    }
    if (n->memory) *n->memory = memory;
}

/* -- sleeping ------------------------------------------------------------------------------- */

/* Waking a thread takes about as long as one send, so a single reply is sent here. */
static void io_write_alone(struct io_threads *all)
{
    struct io_thread *only = NULL;
    for (u32 i = 0; i < all->count; i++) {
        struct io_thread *t = &all->of[i];
        if (!t->queue) continue;
        if (only || t->queued > 1 || !atomic_load(&t->asleep)) return;
        only = t;
    }
    if (!only || !conn_has_output(only->queue) || only->queue->seen & UV_READABLE) return;
    struct conn *c = only->queue;
    io_unqueue(c);
    net_write(c);
}

static enum gate_way io_open_gate(struct io_thread *t, bool calls)
{
    enum gate_way way = gate_open(&t->gate, calls);
    if (way != GATE_WAY_FREE) atomic_fetch_add(&t->all->inside, 1);
    return way;
}

/* A thread that has something to write is called, and one that waits at its gate is let in: the next tick
 * runs after that. So no reply waits for a request that came after it.
 *
 * Waking a thread takes about 2 us, so only one of those that are called is woken here, and it wakes the
 * others. It is the last one whose gate is opened: when it comes, it finds the others called. */
static void io_open(struct io_threads *all)
{
    struct io_thread *last = NULL;
    u32 called = 0;
    for (u32 i = 0; i < all->count; i++) {
        struct io_thread *t = &all->of[i];
        if (!t->queue && !t->ends) {
            io_open_gate(t, false);
            continue;
        }
        if (last) io_open_gate(last, true);
        last = t;
        called++;
    }
    if (!last) return;
    last->wakes_others = called > 1;
    if (io_open_gate(last, true) == GATE_WAY_CALLED && atomic_load(&last->asleep)) io_ring(last->bell);
}

static void io_close(struct io_threads *all)
{
    for (u32 i = 0; i < all->count; i++) gate_shut(&all->of[i].gate);
    for (u32 i = 0; i < all->count; i++) gate_await(&all->of[i].gate);
    atomic_store(&all->rung, false);
    atomic_store(&all->wanted, false);
}

/* libuv registers descriptors with the kernel when it polls. Until then they can't wake us. */
static bool io_unregistered(const uv_loop_t *loop)
{
    const void *const *queue = (const void *const *)&loop->watcher_queue;
    return queue[0] != queue;
}

/* Does nothing: the idle handle only keeps the loop from sleeping, since io_wait has slept. */
static void io_on_turn(uv_idle_t *h UNUSED) {}

/* How many milliseconds the loop could sleep; 0: it has something to do. */
static int io_timeout(struct io_threads *all)
{
    uv_loop_t *loop = all->net->loop;
    uv_idle_stop(&all->turn);
    uv_update_time(loop);
    int timeout = io_unregistered(loop) ? 0 : uv_backend_timeout(loop);
    uv_idle_start(&all->turn, io_on_turn);
    return timeout;
}

/* The loop's check callback then runs the gathered requests, as if the loop had read them. */
void io_wait(struct net *n)
{
    struct io_threads *all = n->threads;
    struct epoll_event e[2];
    if (all->stopped) return;
    CHECK(!n->tick.ready && !n->tick.request_count);
    if (all->conns_last <= 1) io_write_alone(all);
    int timeout = io_timeout(all);
    io_open(all);
    if (atomic_load(&all->wanted) && !atomic_load(&all->inside)) timeout = 0; /* it has left already */
    while (epoll_wait(all->epoll, e, 2, timeout) < 0 && errno == EINTR) {}
    io_close(all);
    uv_update_time(n->loop);
    io_gather(n);
}

/* -- connections ---------------------------------------------------------------------------- */

struct net_io *io_choose(const struct net *n)
{
    struct io_threads *all = n->threads;
    struct io_thread *least = &all->of[0];
    for (u32 i = 1; i < all->count; i++)
        if (all->of[i].io.clients < least->io.clients) least = &all->of[i];
    return &least->io;
}

void io_add(struct conn *c)
{
    u32 events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    c->steady_reads = NET_EDGE_AFTER;
    c->seen = UV_WRITABLE;
    io_watch_fd(c->io->thread->epoll, c->fd, events, c);
}

void io_forget(struct conn *c) { io_unqueue(c); }

/* On the I/O thread there is nothing to queue: it is serving the connection. */
void io_poll(struct conn *c, int events)
{
    c->polled = events;
    if (c->seen & events && !io_thread_works(c->io)) io_queue(c);
}

void io_flush(struct conn *c)
{
    if (c->net->tick.nested) { /* the gates stay closed until the tick around it has ended */
        net_flush(c);
        return;
    }
    if (c->closing) return;
    if (UNLIKELY(c->held != NULL)) fence_end_part(c);
    bool here = c->held || c->source || c->net->threads->stopped;
    if (here || !conn_has_output(c)) net_write(c);
    else if (c->net->on_moved) c->net->on_moved(c->net, c); /* and again after writing */
    if (!c->closing && (conn_has_output(c) || c->seen & (UV_READABLE | UV_DISCONNECT))) io_queue(c);
}

void io_retry_output(struct conn *c)
{
    if (c->closing) return;
    struct pollfd p = {.fd = c->fd, .events = POLLOUT}; /* if the answer is no, an event will follow */
    if (poll(&p, 1, 0) <= 0) return;
    c->seen |= UV_WRITABLE;
    io_queue(c);
}

/* Includes output of which a thread has written a part before it served other connections. */
void io_write_here(struct net *n)
{
    for (u32 i = 0; i < net_threads(n); i++) {
        struct io_thread *t = &n->threads->of[i];
        for (u32 left = t->queued; left > 0; left--) {
            struct conn *c = t->queue;
            io_unqueue(c);
            net_write(c);
        }
    }
}

void io_trim(struct net *n)
{
    for (u32 i = 0; n->threads && i < n->threads->count; i++) {
        net_trim_tick(&n->threads->of[i].tick);
        net_trim_pools(&n->threads->of[i].io);
    }
}

/* -- life ----------------------------------------------------------------------------------- */

static bool io_start_thread(struct io_threads *all, u32 i)
{
    struct io_thread *t = &all->of[i];
    net_io_init(&t->io, all->net);
    gate_init(&t->gate);
    t->io.thread = t;
    t->all = all;
    t->number = i + 1;
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    t->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(t->epoll >= 0 && t->bell >= 0);
    io_watch_fd(t->epoll, t->bell, EPOLLIN | EPOLLET, NULL);
    return uv_thread_create(&t->id, io_run, t) == 0;
}

bool net_start_threads(struct net *n, u32 count)
{
    struct io_threads *all = mem_zalloc(sizeof *all);
    all->net = n;
    all->of = mem_zalloc(count * sizeof *all->of);
    all->epoll = epoll_create1(EPOLL_CLOEXEC);
    all->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(all->epoll >= 0 && all->bell >= 0);
    io_watch_fd(all->epoll, all->bell, EPOLLIN | EPOLLET, NULL);
    io_watch_fd(all->epoll, uv_backend_fd(n->loop), EPOLLIN, n->loop);
    uv_idle_init(n->loop, &all->turn);
    uv_unref((uv_handle_t *)&all->turn);
    n->threads = all;
    for (; all->count < count; all->count++)
        if (!io_start_thread(all, all->count)) return false;
    return true;
}

void net_stop_threads(struct net *n)
{
    struct io_threads *all = n->threads;
    if (!all || all->stopped) return;
    for (u32 i = 0; i < all->count; i++) all->of[i].ends = true;
    io_open(all);
    for (u32 i = 0; i < all->count; i++) uv_thread_join(&all->of[i].id);
    all->stopped = true;
    io_gather(n); /* what they read last won't be run, but has to be released */
    io_write_here(n);
}

void io_release(struct net *n)
{
    struct io_threads *all = n->threads;
    if (!all) return;
    for (u32 i = 0; i < all->count; i++) {
        struct io_thread *t = &all->of[i];
        net_io_release(&t->io);
        net_tick_release(&t->tick);
        close(t->epoll);
        close(t->bell);
    }
    close(all->epoll);
    close(all->bell);
    mem_free(all->of);
    mem_free(all);
}

u32 net_threads(const struct net *n) { return n->threads ? n->threads->count : 0; }

struct net_thread_stats net_thread_stats(const struct net *n, u32 number)
{
    u64 reads = n->own.stats.reads, writes = n->own.stats.writes;
    if (number > 0) {
        const struct io_thread *t = &n->threads->of[number - 1];
        return (struct net_thread_stats){t->io.clients, t->reads, t->writes};
    }
    for (u32 i = 0; i < net_threads(n); i++) {
        reads -= n->threads->of[i].reads;
        writes -= n->threads->of[i].writes;
    }
    return (struct net_thread_stats){n->own.clients, reads, writes};
}

void net_reset_stats(struct net *n)
{
    n->own.stats = (struct net_stats){0};
    for (u32 i = 0; i < net_threads(n); i++) n->threads->of[i].reads = n->threads->of[i].writes = 0;
}
