/* Input of connections: read once a tick, parsed into requests, or kept for later. */
#include <errno.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "net/net_parts.h"

#define NET_READ_ON 4096 /* room for input of a connection that is held back */
#define ARGS_AT_ONCE 64 /* requests with at most this many arguments are parsed in one go */

/* -- parsing ------------------------------------------------------------------------------- */

static inline struct net_request *add_request(struct net_tick *t)
{
    if (UNLIKELY(t->request_count == t->request_cap)) {
        t->request_cap = t->request_cap ? t->request_cap * 2 : 256;
        t->requests = mem_realloc(t->requests, t->request_cap * sizeof *t->requests);
    }
    return &t->requests[t->request_count++];
}

struct net_request *net_add_requests(struct net_tick *t, u32 count)
{
    u32 needed = t->request_count + count;
    if (needed > t->request_cap) {
        t->request_cap = MAX(needed, t->request_cap * 2);
        t->requests = mem_realloc(t->requests, t->request_cap * sizeof *t->requests);
    }
    t->request_count = needed;
    return t->requests + needed - count;
}

/* Room for `more` arguments after the tick's others. */
static bytes *reserve_args(struct net_tick *t, u32 more)
{
    if (UNLIKELY(t->arg_cap - t->arg_count < more)) {
        t->arg_cap = MAX(t->arg_cap * 2, t->arg_count + more);
        t->arg_cap = MAX(t->arg_cap, 1024u);
        t->args = mem_realloc(t->args, t->arg_cap * sizeof *t->args);
    }
    return t->args + t->arg_count;
}

/* The base of the arguments' offsets. The words of an inline request are in the parser, where the next
 * request overwrites them: the tick keeps a copy. */
static const char *args_start(struct net_tick *t, const struct request_parser *p, const char *start)
{
    if (LIKELY(!p->is_inline)) return start;
    char *words = arena_alloc(&t->words, p->words.n);
    memcpy(words, p->words.p, p->words.n);
    return words;
}

static void add_args(struct net_tick *t, const struct request_parser *p, const char *start)
{
    bytes *to = reserve_args(t, p->argc);
    start = args_start(t, p, start);
    for (u32 i = 0; i < p->argc; i++) to[i] = bytes_of(start + p->argv[i].at, p->argv[i].n);
}

/* Parses the request at the start of `in`: its arguments, *argc of them, are appended to the tick's. */
static err parse_one(struct net_tick *t, struct conn *c, const struct request_limits *limits, bytes in,
                     size_t *used, u32 *argc)
{
    struct request_parser *p = &c->parser;
    if (LIKELY(p->left == 0)) {
        bytes *argv = reserve_args(t, ARGS_AT_ONCE);
        *used = request_take(limits, in, argv, ARGS_AT_ONCE, argc);
        if (LIKELY(*used)) return OK;
    }
    err e = request_parse(p, limits, in, used);
    if (e) return e;
    add_args(t, p, in.p);
    *argc = p->argc;
    return OK;
}

static void restart_parser(struct request_parser *p)
{
    p->pos = 0;
    p->left = 0;
    p->bulk = -1;
}

static size_t parse_all(struct net_tick *t, struct conn *c, bytes in)
{
    const struct net *n = c->net;
    c->more_input = false;
    struct request_limits limits = {n->config.max_bulk, net_is_unauthenticated(c)};
    size_t done = 0;
    bool first = true;
    while (done < in.n) {
        bytes rest = bytes_of(in.p + done, in.n - done);
        size_t used;
        u32 argc;
        err e = parse_one(t, c, &limits, rest, &used, &argc);
        if (e == ERR_AGAIN) break;
        if (e == ERR_LIMIT && !first) { /* an AUTH before it may lift the limit: try again next tick */
            restart_parser(&c->parser);
            c->more_input = true;
            break;
        }
        if (e) {
            *add_request(t) = (struct net_request){
                .conn = c, .error = c->parser.error, .raw = rest.p, .raw_end = in.p + in.n,
            };
            return in.n;
        }
        done += used;
        if (argc == 0) continue;
        *add_request(t) = (struct net_request){
            .conn = c, .argv_at = t->arg_count, .argc = argc, .raw = rest.p, .raw_end = in.p + in.n,
        };
        t->arg_count += argc;
        first = false;
    }
    return done;
}

bytes *net_reserve_args(struct net_tick *t, u32 more) { return reserve_args(t, more); }

/* -- reading ------------------------------------------------------------------------------- */

void net_take_input(struct conn *c)
{
    struct net_io *io = c->io;
    struct net_tick *t = io->into;
    bool is_fresh = c->fresh.n > 0;
    bytes in = is_fresh ? c->fresh : buf_bytes(&c->in);
    net_make_ready_in(t, c);
    c->first_request = t->request_count;
    size_t used = parse_all(t, c, in);
    if (is_fresh) {
        /* Keep the incomplete rest: the block is used again after the tick. */
        if (used < in.n) {
            c->in = net_borrow(io);
            buf_append(&c->in, in.p + used, in.n - used);
        }
    } else if (used) {
        /* Requests point into `in`: lend the whole buffer to this tick, start a new one. */
        struct buf rest = {0};
        if (used < in.n) {
            rest = net_borrow(io);
            buf_append(&rest, in.p + used, in.n - used);
        }
        net_give_back(io, &c->lent);
        c->lent = c->in;
        c->in = rest;
    }
    if ((i64)(c->in.n + c->session.queue_bytes) > c->net->config.max_query_buffer) {
        io->stats.query_buffer_kills++;
        conn_close(c);
    }
}

static ssize_t take_tls_bytes(struct conn *c, void *to, size_t n)
{
    bool handshaking = tls_handshaking(c->tls);
    ssize_t got = tls_recv(c->tls, to, n);
    int code = errno;
    if (handshaking && got < 0 && code != EAGAIN) net_no_tls(c);
    net_watch(c, c->events);
    errno = code;
    return got;
}

/* Like recv. */
static ssize_t take_bytes(struct conn *c, void *to, size_t n)
{
    ssize_t got = LIKELY(!c->tls) ? recv(c->fd, to, n, 0) : take_tls_bytes(c, to, n);
    if (LIKELY(got > 0)) net_moved(c);
    return got;
}

/* Where to read to: the tick's block, or after an incomplete request, with room for a big argument at once.
 * After that argument at most one buffer is read ahead, however much room there is: input after a request
 * that is held back is moved each time the client continues. */
static char *input_room(struct conn *c, size_t *room)
{
    if (c->in.n == 0) {
        *room = NET_BUFFER;
        return net_block_room(c->io->into);
    }
    size_t needed = request_needed(&c->parser), more = NET_BUFFER / 2;
    if (needed > c->in.n && needed - c->in.n > more) more = needed - c->in.n;
    buf_reserve(&c->in, more);
    *room = MIN(MIN(c->in.cap - c->in.n, more + NET_BUFFER), (size_t)1 << 30);
    return c->in.p + c->in.n;
}

/* A client may have sent all it had to say, and wait for the replies: those that a fence holds back, too. */
static void input_ended(struct conn *c)
{
    c->session.close_after_reply = true;
    net_watch(c, c->events & ~UV_READABLE);
}

void net_read(struct conn *c, bool ended)
{
    /* Input that was held back comes first: it must not be lost with a connection that turns out to be
     * closed. */
    if (c->read_this_tick || c->hold || c->more_input) {
        net_was_read(c, true);
        return;
    }
    size_t room;
    char *to = input_room(c, &room);
    ssize_t n = take_bytes(c, to, room);
    if (c->closing) return;
    if (n <= 0) {
        if (n == 0 && c->held) input_ended(c);
        else if (n == 0 || (errno != EAGAIN && errno != EINTR)) conn_close(c);
        net_was_read(c, true);
        return;
    }
    net_was_read(c, (size_t)n == room || ended);
    c->read_this_tick = c->got_input = true;
    c->io->stats.bytes_in += (u64)n;
    c->io->stats.reads++;
    if (c->in.n == 0) {
        c->fresh = bytes_of(to, (size_t)n);
        c->io->into->block->used += (size_t)n;
    } else {
        c->in.n += (size_t)n;
    }
    net_take_input(c);
}

/* Counts requests that came while the connection was held back. Long ones, and all after them, are left
 * out. */
static void count_held(struct conn *c)
{
    struct request_limits limits = {c->net->config.max_bulk, net_is_unauthenticated(c)};
    bytes *argv = reserve_args(c->io->into, ARGS_AT_ONCE); /* for a moment */
    u32 found = 0, before = c->held_requests, argc;
    bool from_start = !c->held_counted;
    while (c->held_counted < c->in.n) {
        bytes rest = bytes_of(c->in.p + c->held_counted, c->in.n - c->held_counted);
        size_t used = request_take(&limits, rest, argv, ARGS_AT_ONCE, &argc);
        if (!used) break;
        c->held_counted += (u32)used;
        found++;
    }
    c->held_requests = from_start ? MAX(before, found) : before + found;
    c->net->held_back[__builtin_ctz(c->hold)].requests += c->held_requests - before;
}

bool net_read_on(struct conn *c)
{
    if (!(c->hold & c->net->config.brief_holds) || c->tls || c->in.n >= NET_BUFFER) return false;
    buf_reserve(&c->in, NET_READ_ON);
    size_t room = MIN(c->in.cap - c->in.n, (size_t)NET_BUFFER);
    ssize_t n = take_bytes(c, c->in.p + c->in.n, room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    c->in.n += (size_t)n;
    c->io->stats.bytes_in += (u64)n;
    c->io->stats.reads++;
    c->got_input = true;
    count_held(c);
    net_was_read(c, (size_t)n == room);
    return true;
}

/* -- keeping for later --------------------------------------------------------------------- */

/* Returns the input from the request on. A large buffer that begins with it is taken back without copying: a
 * request that is retried every few milliseconds may have hundreds of megabytes. A small one is copied, so
 * that the connection keeps no more than its bytes. */
static struct buf input_keep(struct conn *c, const struct net_request *q)
{
    struct buf kept = {0};
    if (q->raw == c->lent.p && c->lent.cap > NET_BUFFER) {
        kept = c->lent;
        c->lent = (struct buf){0};
    } else {
        buf_append(&kept, q->raw, (size_t)(q->raw_end - q->raw));
    }
    return kept;
}

/* A connection whose requests are held back runs none, so it never gets a second reason. */
static void hold_begin(struct conn *c, u32 why)
{
    struct net *n = c->net;
    if (!why || c->hold == why) return;
    CHECK(!c->hold && !(why & (why - 1)));
    int i = __builtin_ctz(why);
    c->hold = why;
    c->hold_next = NULL;
    c->hold_prev = n->held_back[i].last;
    *(c->hold_prev ? &c->hold_prev->hold_next : &n->held_back[i].first) = c;
    n->held_back[i].last = c;
    n->held_back[i].requests += c->held_requests;
}

void net_end_hold(struct conn *c)
{
    struct net *n = c->net;
    if (!c->hold) return;
    int i = __builtin_ctz(c->hold);
    *(c->hold_prev ? &c->hold_prev->hold_next : &n->held_back[i].first) = c->hold_next;
    *(c->hold_next ? &c->hold_next->hold_prev : &n->held_back[i].last) = c->hold_prev;
    n->held_back[i].requests -= c->held_requests;
    c->held_requests = c->held_counted = 0;
    c->hold = 0;
}

void conn_postpone(struct net *n, u32 at, u32 why)
{
    struct net_tick *t = &n->tick;
    struct net_request *q = &t->requests[at];
    struct conn *c = q->conn;
    struct buf kept = input_keep(c, q);
    net_give_back(c->io, &c->in);
    c->in = kept;
    restart_parser(&c->parser);
    c->more_input = true;
    /* A connection is parsed once per tick, so its requests are adjacent. */
    u32 end = at;
    while (end < t->request_count && t->requests[end].conn == c) t->requests[end++].conn = NULL;
    c->held_requests = end - at;
    hold_begin(c, why);
    net_watch(c, c->events & ~UV_READABLE);
}

void net_withdraw(struct conn *c)
{
    if (net_has_requests(c)) conn_postpone(c->net, c->first_request, 0);
    net_unready(c);
    c->read_this_tick = false;
    c->fresh = (bytes){0};
    net_give_back(c->io, &c->lent);
    net_watch(c, c->events | UV_READABLE);
}

void conn_close_on_eof(struct conn *c) { net_watch(c, (c->events & ~UV_READABLE) | UV_DISCONNECT); }

void conn_block(struct net *n, struct conn *c, u32 why)
{
    u32 next = n->tick.running + 1;
    if (next < n->tick.request_count && n->tick.requests[next].conn == c) conn_postpone(n, next, why);
    hold_begin(c, why);
    c->blocked_tick = n->tick.number;
    c->waits = true;
    conn_close_on_eof(c); /* don't run them for a client that has left */
}

void conn_resume(struct conn *c, u32 why)
{
    if (c->hold & why) net_end_hold(c);
    if (c->hold || c->closing) return;
    net_watch(c, (c->events | UV_READABLE) & ~UV_DISCONNECT);
    net_make_ready(c); /* what is left in `in` is parsed at the end of the tick */
}

static struct conn *oldest(const struct net *n)
{
    struct conn *c = n->conns;
    while (c && c->next) c = c->next;
    return c;
}

u32 net_held_requests(const struct net *n, u32 why) { return n->held_back[__builtin_ctz(why)].requests; }

void net_resume(struct net *n, u32 why)
{
    for (struct conn *c = n->held_back[__builtin_ctz(why)].first, *next; c; c = next) {
        next = c->hold_next;
        conn_resume(c, why);
    }
}

bool net_resume_some(struct net *n, u32 why, u64 room, u64 *last)
{
    u64 resumed = 0, after = *last;
    for (int round = 0; round < 2; round++) { /* those after the last one, then the others */
        for (struct conn *c = oldest(n); c; c = c->prev) {
            if (!(c->hold & why) || (c->session.id > after) == (round == 1)) continue;
            if (resumed >= room) return true;
            resumed += c->in.n + 1;
            *last = c->session.id;
            conn_resume(c, why);
        }
    }
    return false;
}
