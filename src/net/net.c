/* See net.h: the life of connections, and the tick. Input is in input.c, output in output.c, accepting in
 * listen.c.
 *
 * The order of one turn of libuv's loop is: timers, prepare, poll (read callbacks: parse), check (on_tick:
 * run; then flush). Output caused by timers gets a tick of its own, before the loop sleeps in poll. */
#include "net/io.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"

#define POOL_MIN 256
#define ARGS_KEEP 65536 /* memory beyond this is freed after a tick that needed it */

/* -- connections --------------------------------------------------------------------------- */

struct conn *conn_new(struct net *n, int fd, const struct listener *l)
{
    struct conn *c = mem_zalloc(sizeof *c);
    c->net = n;
    c->io = n->threads ? io_choose(n) : &n->own;
    c->fd = fd;
    c->is_unix = l->is_unix;
    if (l->tls) c->tls = tls_accept(n->tls, fd, n->config.tls_verify);
    if ((l->tls && !c->tls) || uv_poll_init(n->loop, &c->poll, fd)) {
        tls_free(c->tls);
        close(fd);
        mem_free(c);
        return NULL;
    }
    c->poll.data = c;
    if (UNLIKELY(c->io->thread)) io_add(c);
    net_moved(c);
    session_init(&c->session, ++n->next_id, false);
    c->session.proto = n->config.default_proto;
    request_parser_init(&c->parser);
    c->next = n->conns;
    if (n->conns) n->conns->prev = c;
    n->conns = c;
    n->count++;
    c->io->clients++;
    return c;
}

void net_unready(struct conn *c)
{
    struct net *n = c->net;
    struct conn *before = NULL;
    if (!c->ready) return;
    for (struct conn **at = &n->tick.ready; *at != c; at = &(*at)->ready_next) before = *at;
    if (before) before->ready_next = c->ready_next;
    else n->tick.ready = c->ready_next;
    if (n->tick.ready_tail == c) n->tick.ready_tail = before;
    c->ready = false;
}

static void release_buffers(struct conn *c)
{
    net_give_back(c->io, &c->lent);
    net_give_back(c->io, &c->in);
    net_drop_output(c);
}

static void net_on_closed(uv_handle_t *h)
{
    struct conn *c = h->data;
    struct net *n = c->net;
    net_unready(c);
    if (c->prev) c->prev->next = c->next;
    else n->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    n->count--;
    c->io->clients--;
    n->closing--;
    n->on_close(n, c); /* which may ask why it was held */
    net_end_hold(c);
    release_buffers(c);
    request_parser_release(&c->parser);
    session_release(&c->session);
    mem_free(c);
    net_retry_accept(n);
}

/* While a script runs it may take long until net_on_closed is called, so buffers are freed at once. If the
 * connection has a part in the tick, they are needed until its end. */
void conn_close(struct conn *c)
{
    if (c->closing) return;
    if (UNLIKELY(io_thread_works(c->io))) {
        io_break(c);
        return;
    }
    c->closing = true;
    c->net->closing++;
    tls_free(c->tls);
    c->tls = NULL;
    if (UNLIKELY(c->io->thread)) io_forget(c);
    uv_close((uv_handle_t *)&c->poll, net_on_closed);
    close(c->fd);
    if (!c->ready) release_buffers(c);
}

/* The fast path for the usual event, an arrived request. net_on_events handles all events. */
void net_on_poll(uv_poll_t *p, int status, int events)
{
    struct conn *c = p->data;
    bool plain = status == 0 && events == UV_READABLE && c->events & UV_READABLE && !c->tls && !c->closing;
    if (LIKELY(plain)) net_read(c, false);
    else net_on_events(c, status, events);
}

void net_no_tls(struct conn *c)
{
    if (c->net->on_no_tls && !io_thread_works(c->io)) c->net->on_no_tls(c->net, c, tls_trouble(c->tls));
}

void net_on_events(struct conn *c, int status, int events)
{
    if (c->closing) return;
    bool ended = events & UV_DISCONNECT;
    if (status < 0 || (ended && c->events & UV_DISCONNECT)) {
        conn_close(c);
        return;
    }
    if (UNLIKELY(c->tls)) {
        events = c->events; /* reading may have waited for writing, or the reverse */
    } else if (UNLIKELY(events & ~c->events & UV_READABLE)) {
        if (ended || !net_read_on(c)) net_poll_now(c, c->events); /* what net_poll put off */
        events &= ~UV_READABLE;
    }
    if (events & UV_READABLE) net_read(c, ended);
    if (events & UV_WRITABLE) net_flush(c);
}

/* A connection whose next request has to wait is nearly always read again before more input arrives. So
 * polling is stopped only when input arrives: stopping takes two system calls, and so does starting again. */
void net_poll(struct conn *c, int events)
{
    if (UNLIKELY(c->io->thread)) {
        io_poll(c, events);
        return;
    }
    bool stops = !(events & ~UV_DISCONNECT) && c->polled == (UV_READABLE | UV_DISCONNECT);
    if (!stops || c->tls) net_poll_now(c, events);
}

void net_poll_now(struct conn *c, int events)
{
    if (c->polled == events) return;
    if (UNLIKELY(c->io->thread)) {
        io_poll(c, events);
        return;
    }
    c->polled = events;
    c->steady_reads = 0;
    if (events ? uv_poll_start(&c->poll, events, net_on_poll) : uv_poll_stop(&c->poll)) conn_close(c);
}

void net_poll_edge(struct conn *c)
{
    if (UNLIKELY(c->io->thread)) {
        c->seen |= UV_READABLE;
        return;
    }
    if (c->closing || c->tls || c->polled != (UV_READABLE | UV_DISCONNECT)) return;
    if (c->steady_reads < NET_EDGE_AFTER && ++c->steady_reads < NET_EDGE_AFTER) return;
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = c->fd}; /* like libuv's */
    /* In a turn polled by poll() (busy.c), libuv may not have registered it yet. */
    if (epoll_ctl(uv_backend_fd(c->net->loop), EPOLL_CTL_MOD, c->fd, &e)) c->steady_reads = 0;
}

size_t conn_memory(const struct conn *c)
{
    return sizeof *c + c->in.cap + c->fresh.n + c->lent.cap + c->out.cap + c->waiting.memory +
           c->parser.cap * sizeof(struct arg_span) + c->parser.words.cap;
}

void net_close_idle(struct net *n)
{
    i64 now_ms = (i64)uv_now(n->loop);
    if (!n->config.idle_timeout_s) return;
    for (struct conn *c = n->conns; c; c = c->next) {
        bool exempt = c->class != CONN_NORMAL || c->session.monitor || c->hold || c->held;
        if (!exempt && now_ms - c->active_ms > (i64)n->config.idle_timeout_s * 1000) conn_close(c);
    }
}

/* -- the tick ------------------------------------------------------------------------------ */

void net_end_tick(struct net *n)
{
    struct conn *c = n->tick.ready, *again = NULL, **again_tail = &again;
    n->tick.ready = n->tick.ready_tail = NULL;
    while (c) {
        struct conn *next = c->ready_next;
        c->ready = false;
        c->read_this_tick = false;
        c->fresh = (bytes){0};
        if (LIKELY(!c->held)) net_give_back(c->io, &c->lent); /* else fence_end_part still reads it */
        request_parser_trim(&c->parser);
        if (UNLIKELY(c->io->thread != NULL)) io_flush(c);
        else net_flush(c);
        if (UNLIKELY(c->lent.p != NULL)) net_give_back(c->io, &c->lent);
        if (UNLIKELY(c->closing)) release_buffers(c);
        /* Requests that were read but not run yet (AUTH lifted a limit, a pause ended). */
        if (!c->closing && !c->hold && c->more_input) {
            c->ready_next = NULL;
            *again_tail = c;
            again_tail = &c->ready_next;
        }
        c = next;
    }
    n->tick.number++;
    net_clear_input(&n->tick);
    while (again) {
        struct conn *next = again->ready_next;
        net_take_input(again);
        again = next;
    }
}

static void run_ticks(struct net *n)
{
    do {
        n->on_tick(n);
        if (UNLIKELY(n->fences.ended)) fence_settle_all(n);
        /* Input that is parsed now may turn out to hold no request (blank lines): its lent buffer must be
         * returned before the next read. */
        do net_end_tick(n);
        while (n->tick.ready && !n->tick.request_count);
    } while (n->tick.request_count);
}

static void on_check(uv_check_t *h) { run_ticks(h->data); }

/* Connections that got output, or were resumed, since the last tick must not wait for the next event. */
static COLD void run_before_sleep(struct net *n)
{
    if (n->tick.ready) run_ticks(n);
    if (n->on_sleep) n->on_sleep(n);
    if (n->threads) io_wait(n);
}

static void net_on_prepare(uv_prepare_t *h)
{
    struct net *n = h->data;
    n->own.stats.turns++;
    if (UNLIKELY(n->tick.ready || n->threads || n->on_sleep)) run_before_sleep(n);
}

/* -- memory -------------------------------------------------------------------------------- */

static struct buf pool_borrow(struct net_pool *p)
{
    struct buf b = {0};
    if (p->n) {
        b = p->v[--p->n];
        p->low = MIN(p->low, p->n);
    } else {
        p->low = 0;
        buf_grow(&b, p->size);
    }
    return b;
}

static void pool_make_room(struct net_pool *p)
{
    p->cap = p->cap ? p->cap * 2 : POOL_MIN;
    p->v = mem_realloc(p->v, p->cap * sizeof *p->v);
}

/* It keeps every buffer that was in use at the same time as others: net_trim finds out which are needed. */
static void pool_give_back(struct net_pool *p, struct buf b)
{
    if (UNLIKELY(p->n == p->cap)) pool_make_room(p);
    b.n = 0;
    p->v[p->n++] = b;
}

static void pool_trim(struct net_pool *p)
{
    for (u32 i = 0; i < p->low; i++) buf_release(&p->v[--p->n]);
    p->low = p->n;
}

static void pool_release(struct net_pool *p)
{
    while (p->n) buf_release(&p->v[--p->n]);
    mem_free(p->v);
}

struct buf net_borrow(struct net_io *io) { return pool_borrow(&io->large); }

void net_borrow_output(struct conn *c) { c->out = pool_borrow(c->wide ? &c->io->large : &c->io->small); }

void net_give_back(struct net_io *io, struct buf *b)
{
    if (b->cap == NET_SMALL) pool_give_back(&io->small, *b);
    else if (b->cap == NET_BUFFER) pool_give_back(&io->large, *b);
    else if (b->p) mem_free(b->p);
    *b = (struct buf){0};
}

void net_next_block(struct net_tick *t)
{
    struct net_block **at = t->block ? &t->block->next : &t->blocks;
    if (!*at) {
        *at = mem_alloc(sizeof **at);
        (*at)->next = NULL;
    }
    t->block = *at;
    t->block->used = 0;
    t->blocks_filled++;
}

void net_clear_input(struct net_tick *t)
{
    t->request_count = t->arg_count = t->done = 0;
    t->blocks_needed = MAX(t->blocks_needed, t->blocks_filled);
    t->block = NULL;
    t->blocks_filled = 0;
    arena_clear(&t->words);
}

static void blocks_free(struct net_block *b)
{
    while (b) {
        struct net_block *next = b->next;
        mem_free(b);
        b = next;
    }
}

static void blocks_trim(struct net_tick *t)
{
    struct net_block **at = &t->blocks;
    for (u32 i = 0; *at && i < t->blocks_needed; i++) at = &(*at)->next;
    blocks_free(*at);
    *at = NULL;
    t->blocks_needed = 0;
}

/* -- life ---------------------------------------------------------------------------------- */

void net_trim_tick(struct net_tick *t)
{
    blocks_trim(t);
    if (t->arg_cap > ARGS_KEEP) {
        mem_free(t->args);
        t->args = NULL;
        t->arg_cap = 0;
    }
    if (t->request_cap > ARGS_KEEP) {
        mem_free(t->requests);
        t->requests = NULL;
        t->request_cap = 0;
    }
}

void net_trim_pools(struct net_io *io)
{
    pool_trim(&io->small);
    pool_trim(&io->large);
}

void net_trim(struct net *n)
{
    net_trim_tick(&n->tick);
    net_trim_pools(&n->own);
    io_trim(n);
}

void net_io_init(struct net_io *io, struct net *n)
{
    *io = (struct net_io){.net = n, .into = &n->tick, .small.size = NET_SMALL, .large.size = NET_BUFFER};
}

void net_io_release(struct net_io *io)
{
    pool_release(&io->small);
    pool_release(&io->large);
}

void net_init(struct net *n, uv_loop_t *loop)
{
    *n = (struct net){.loop = loop, .tick.running = NET_NO_REQUEST};
    n->config = (struct net_config){
        .max_bulk = 512LL * 1024 * 1024, .max_query_buffer = 1024LL * 1024 * 1024,
        .max_clients = 10000, .keepalive_s = 300, .backlog = 511, .accepts = 10, .tls_accepts = 1,
        .output = {{0, 0, 0}, {256u << 20, 64u << 20, 60}, {32u << 20, 8u << 20, 60}},
    };
    net_io_init(&n->own, n);
    uv_check_init(loop, &n->check);
    n->check.data = n;
    uv_check_start(&n->check, on_check);
    uv_unref((uv_handle_t *)&n->check);
    uv_prepare_init(loop, &n->prepare);
    n->prepare.data = n;
    uv_prepare_start(&n->prepare, net_on_prepare); /* libuv calls the first one last: after all others */
    uv_unref((uv_handle_t *)&n->prepare);
}

void net_tick_release(struct net_tick *t)
{
    mem_free(t->requests);
    mem_free(t->args);
    arena_release(&t->words);
    blocks_free(t->blocks);
}

void net_release(struct net *n)
{
    net_io_release(&n->own);
    io_release(n);
    fence_release_all(n);
    net_tick_release(&n->tick);
}
