/* See net.h. The order of one turn of libuv's loop is: timers, poll (read
 * callbacks: parse), check (on_tick: run; then flush). */
#include "net/net_parts.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"

#define POOL_KEEP 256
#define ARGS_AT_ONCE 64 /* the most arguments of a request that is parsed in one go */
#define SOURCE_AT_ONCE (256u << 10)
#define ARGS_KEEP 65536 /* what a tick with more arguments or requests needed does not stay */

/* -- pools ------------------------------------------------------------------------- */

static struct buf borrow(struct net *n)
{
    if (n->pooled) {
        struct buf b = n->pool[--n->pooled];
        n->pool_low = MIN(n->pool_low, n->pooled);
        return b;
    }
    n->pool_low = 0;
    struct buf b = {0};
    buf_grow(&b, NET_BUFFER);
    return b;
}

void net_trim(struct net *n)
{
    for (u32 i = 0; i < n->pool_low; i++) buf_release(&n->pool[--n->pooled]);
    n->pool_low = n->pooled;
    if (n->arg_cap > ARGS_KEEP) {
        mem_free(n->args);
        n->args = NULL;
        n->arg_cap = 0;
    }
    if (n->request_cap > ARGS_KEEP) {
        mem_free(n->requests);
        n->requests = NULL;
        n->request_cap = 0;
    }
}

static void give_back(struct net *n, struct buf *b)
{
    if (!b->p) return;
    if (b->cap == NET_BUFFER && n->pooled < n->pool_cap) {
        b->n = 0;
        n->pool[n->pooled++] = *b;
        *b = (struct buf){0};
        return;
    }
    buf_release(b);
}

/* -- the ready list ------------------------------------------------------------------ */

static void make_ready(struct conn *c)
{
    struct net *n = c->net;
    if (c->ready) return;
    c->ready = true;
    c->late = c->late_wrote = false;
    c->tick_mark = c->out.n;
    c->ready_next = NULL;
    if (n->ready_tail) n->ready_tail->ready_next = c;
    else n->ready = c;
    n->ready_tail = c;
}

static void unready(struct conn *c)
{
    struct net *n = c->net;
    struct conn *before = NULL;
    if (!c->ready) return;
    for (struct conn **at = &n->ready; *at != c; at = &(*at)->ready_next) before = *at;
    if (before) before->ready_next = c->ready_next;
    else n->ready = c->ready_next;
    if (n->ready_tail == c) n->ready_tail = before;
    c->ready = false;
}

struct reply conn_reply(struct conn *c)
{
    if (!c->out.p) c->out = borrow(c->net);
    make_ready(c);
    return (struct reply){.out = &c->out, .proto = c->session.proto};
}

void conn_late(struct conn *c) { c->late = c->blocked_tick != c->net->ticks; }

struct reply conn_push(struct conn *c, enum push_place place)
{
    struct reply r = conn_reply(c);
    bool first = place == PUSH_BEFORE && c->session.proto > 2 && c->out.n == c->answer_at;
    if (UNLIKELY(c->answering)) r.out = first ? &c->before : &c->behind;
    return r;
}

size_t conn_answer_begin(struct conn *c)
{
    c->answering = true;
    return c->answer_at = c->out.n;
}

/* The answer makes room for what stands in front of it. */
static void insert_before(struct conn *c, size_t begin)
{
    size_t n = c->before.n;
    buf_reserve(&c->out, n);
    memmove(c->out.p + begin + n, c->out.p + begin, c->out.n - begin);
    memcpy(c->out.p + begin, c->before.p, n);
    c->out.n += n;
}

void conn_answer_end(struct conn *c, size_t begin)
{
    c->answering = false;
    if (LIKELY(!c->before.n && !c->behind.n)) return;
    if (c->before.n) insert_before(c, begin);
    buf_append_bytes(&c->out, buf_bytes(&c->behind));
    buf_release(&c->before);
    buf_release(&c->behind);
}

void net_keep_output(struct net *n)
{
    for (struct conn *c = n->ready; c; c = c->ready_next) c->tick_mark = c->out.n;
}

void net_take_back(struct net *n)
{
    for (struct conn *c = n->ready; c; c = c->ready_next)
        if (!c->closing) c->out.n = MIN(c->out.n, c->tick_mark);
}

size_t conn_output_bytes(const struct conn *c)
{
    return c->out.n - c->sent + c->before.n + c->behind.n + (c->source ? c->source->pending(c->source) : 0);
}

size_t conn_memory(const struct conn *c)
{
    return sizeof *c + c->in.cap + c->lent.cap + c->out.cap +
           c->parser.cap * sizeof(struct arg_span) + c->parser.words.cap;
}

/* -- closing --------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *h)
{
    struct conn *c = h->data;
    struct net *n = c->net;
    unready(c);
    if (c->prev) c->prev->next = c->next;
    else n->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    n->count--;
    n->on_close(n, c);
    give_back(n, &c->lent);
    give_back(n, &c->out);
    give_back(n, &c->in);
    buf_release(&c->before);
    buf_release(&c->behind);
    request_parser_release(&c->parser);
    session_release(&c->session);
    mem_free(c);
    net_retry_accept(n);
}

void conn_close(struct conn *c)
{
    if (c->closing) return;
    c->closing = true;
    tls_free(c->tls);
    c->tls = NULL;
    uv_close((uv_handle_t *)&c->poll, on_closed);
    close(c->fd);
}

/* -- input ------------------------------------------------------------------------------- */

static void flush(struct conn *c);
static void read_input(struct conn *c);

void net_on_poll(uv_poll_t *p, int status, int events)
{
    struct conn *c = p->data;
    if (c->closing) return;
    if (status < 0 || events & UV_DISCONNECT) {
        conn_close(c);
        return;
    }
    if (UNLIKELY(c->tls)) events = c->events; /* either may have waited for the other */
    if (events & UV_READABLE) read_input(c);
    if (events & UV_WRITABLE) flush(c);
}

/* Waits for exactly these events. */
static void watch(struct conn *c, int events)
{
    if (c->closing) return;
    int poll = UNLIKELY(c->tls) ? tls_events(c->tls, events) : events;
    c->events = events;
    if (c->polled == poll) return;
    c->polled = poll;
    if (poll ? uv_poll_start(&c->poll, poll, net_on_poll) : uv_poll_stop(&c->poll)) conn_close(c);
}

/* As recv and send. */
static ssize_t take_bytes(struct conn *c, void *to, size_t n)
{
    if (LIKELY(!c->tls)) return recv(c->fd, to, n, 0);
    ssize_t got = tls_recv(c->tls, to, n);
    int code = errno;
    watch(c, c->events);
    errno = code;
    return got;
}

static ssize_t give_bytes(struct conn *c, const void *p, size_t n)
{
    return LIKELY(!c->tls) ? send(c->fd, p, n, MSG_NOSIGNAL) : tls_send(c->tls, p, n);
}

/* Where to read to: a lent buffer, or behind an unfinished request, with room for
 * a big argument at once. */
static char *input_room(struct conn *c, size_t *room)
{
    if (c->in.n == 0) {
        if (!c->lent.p) c->lent = borrow(c->net);
        *room = c->lent.cap;
        return c->lent.p;
    }
    size_t needed = request_needed(&c->parser), more = NET_BUFFER / 2;
    if (needed > c->in.n && needed - c->in.n > more) more = needed - c->in.n;
    buf_reserve(&c->in, more);
    *room = MIN(c->in.cap - c->in.n, (size_t)1 << 30);
    return c->in.p + c->in.n;
}

static inline struct net_request *add_request(struct net *n)
{
    if (UNLIKELY(n->request_count == n->request_cap)) {
        n->request_cap = n->request_cap ? n->request_cap * 2 : 256;
        n->requests = mem_realloc(n->requests, n->request_cap * sizeof *n->requests);
    }
    return &n->requests[n->request_count++];
}

/* Room for so many arguments behind the tick's others. */
static bytes *reserve_args(struct net *n, u32 more)
{
    if (UNLIKELY(n->arg_cap - n->arg_count < more)) {
        n->arg_cap = MAX(n->arg_cap * 2, n->arg_count + more);
        n->arg_cap = MAX(n->arg_cap, 1024u);
        n->args = mem_realloc(n->args, n->arg_cap * sizeof *n->args);
    }
    return n->args + n->arg_count;
}

/* What the arguments' offsets count from. The words of an inline request live in the
 * parser, where the next request overwrites them: the tick keeps a copy. */
static const char *args_start(struct net *n, const struct request_parser *p, const char *start)
{
    if (LIKELY(!p->is_inline)) return start;
    char *words = arena_alloc(&n->words, p->words.n);
    memcpy(words, p->words.p, p->words.n);
    return words;
}

static void add_args(struct net *n, const struct request_parser *p, const char *start)
{
    bytes *to = reserve_args(n, p->argc);
    start = args_start(n, p, start);
    for (u32 i = 0; i < p->argc; i++) to[i] = bytes_of(start + p->argv[i].at, p->argv[i].n);
}

/* The request at the start of `in`: its arguments, *argc of them, stand behind the tick's others. */
static err parse_one(struct conn *c, const struct request_limits *limits, bytes in, size_t *used, u32 *argc)
{
    struct request_parser *p = &c->parser;
    if (LIKELY(p->left == 0)) {
        bytes *argv = reserve_args(c->net, ARGS_AT_ONCE);
        *used = request_take(limits, in, argv, ARGS_AT_ONCE, argc);
        if (LIKELY(*used)) return OK;
    }
    err e = request_parse(p, limits, in, used);
    if (e) return e;
    add_args(c->net, p, in.p);
    *argc = p->argc;
    return OK;
}

static void restart_parser(struct request_parser *p)
{
    p->pos = 0;
    p->left = 0;
    p->bulk = -1;
}

static size_t parse_all(struct conn *c, bytes in)
{
    struct net *n = c->net;
    c->more_input = false;
    struct request_limits limits = {n->config.max_bulk, !c->session.authenticated && !n->config.open};
    size_t done = 0;
    bool first = true;
    while (done < in.n) {
        bytes rest = bytes_of(in.p + done, in.n - done);
        size_t used;
        u32 argc;
        err e = parse_one(c, &limits, rest, &used, &argc);
        if (e == ERR_AGAIN) break;
        if (e == ERR_LIMIT && !first) { /* an AUTH before it may lift the limit: look again next tick */
            restart_parser(&c->parser);
            c->more_input = true;
            break;
        }
        if (e) {
            *add_request(n) = (struct net_request){.conn = c, .error = c->parser.error};
            return in.n;
        }
        done += used;
        if (argc == 0) continue;
        *add_request(n) = (struct net_request){
            .conn = c, .argv_at = n->arg_count, .argc = argc, .raw = rest.p, .raw_end = in.p + in.n,
        };
        n->arg_count += argc;
        first = false;
    }
    return done;
}

static void take_input(struct conn *c)
{
    struct net *n = c->net;
    bool from_lent = c->lent.n > 0;
    bytes in = from_lent ? buf_bytes(&c->lent) : buf_bytes(&c->in);
    make_ready(c);
    c->first_request = n->request_count;
    size_t used = parse_all(c, in);
    if (from_lent) {
        /* Keep the unfinished rest: the lent buffer goes back after the tick. */
        if (used < in.n) {
            c->in = borrow(n);
            buf_append(&c->in, in.p + used, in.n - used);
        }
    } else if (used) {
        /* Requests point into `in`: lend the whole buffer to this tick, start a new one. */
        struct buf rest = {0};
        if (used < in.n) {
            rest = borrow(n);
            buf_append(&rest, in.p + used, in.n - used);
        }
        give_back(n, &c->lent);
        c->lent = c->in;
        c->in = rest;
    }
    if ((i64)(c->in.n + c->session.queue_bytes) > n->config.max_query_buffer) {
        n->stats.query_buffer_kills++;
        conn_close(c);
    }
}

static void read_input(struct conn *c)
{
    if (c->read_this_tick || c->hold) return;
    size_t room;
    char *to = input_room(c, &room);
    ssize_t n = take_bytes(c, to, room);
    if (c->closing) return;
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) conn_close(c);
        return;
    }
    c->read_this_tick = c->heard = true;
    c->net->stats.bytes_in += (u64)n;
    c->net->stats.reads++;
    if (c->in.n == 0) c->lent.n = (size_t)n;
    else c->in.n += (size_t)n;
    take_input(c);
}

void conn_postpone(struct net *n, u32 at, u32 why)
{
    struct net_request *q = &n->requests[at];
    struct conn *c = q->conn;
    struct buf rest = {0};
    buf_append(&rest, q->raw, (size_t)(q->raw_end - q->raw));
    give_back(c->net, &c->in);
    c->in = rest;
    restart_parser(&c->parser);
    c->more_input = true;
    c->hold |= why;
    watch(c, c->events & ~UV_READABLE);
    /* A connection is parsed once per tick, so that its requests stand together. */
    for (u32 i = at; i < n->request_count && n->requests[i].conn == c; i++) n->requests[i].conn = NULL;
}

void net_withdraw(struct conn *c)
{
    struct net *n = c->net;
    if (net_asks(c)) conn_postpone(n, c->first_request, 0);
    unready(c);
    c->read_this_tick = false;
    give_back(n, &c->lent);
    watch(c, c->events | UV_READABLE);
}

void conn_block(struct net *n, struct conn *c, u32 why)
{
    u32 next = n->running + 1;
    if (next < n->request_count && n->requests[next].conn == c) conn_postpone(n, next, why);
    c->hold |= why;
    c->blocked_tick = n->ticks;
    watch(c, (c->events & ~UV_READABLE) | UV_DISCONNECT); /* nobody answers one who has left */
}

void conn_resume(struct conn *c, u32 why)
{
    c->hold &= ~why;
    if (c->hold || c->closing) return;
    watch(c, (c->events | UV_READABLE) & ~UV_DISCONNECT);
    make_ready(c); /* what it still has in `in` is parsed at the end of the tick */
}

void net_resume(struct net *n, u32 why)
{
    struct conn *oldest = n->conns;
    while (oldest && oldest->next) oldest = oldest->next;
    for (struct conn *c = oldest; c; c = c->prev)
        if (c->hold & why) conn_resume(c, why);
}

/* -- output ---------------------------------------------------------------------------------- */

static bool over_output_limit(struct conn *c)
{
    struct net *n = c->net;
    const struct output_limit *l = &n->config.output[c->class];
    size_t used = conn_output_bytes(c);
    if (l->hard && used > l->hard) return true;
    if (!l->soft || used <= l->soft) {
        c->over_soft_since_ms = 0;
        return false;
    }
    i64 now = (i64)uv_now(n->loop);
    if (!c->over_soft_since_ms) c->over_soft_since_ms = now;
    return now - c->over_soft_since_ms > (i64)l->soft_seconds * 1000;
}

/* Hands the kernel what it takes. False: the connection is gone. */
static bool send_output(struct conn *c)
{
    ssize_t n = give_bytes(c, c->out.p + c->sent, c->out.n - c->sent);
    c->net->stats.writes++;
    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR) return true;
        conn_close(c);
        return false;
    }
    c->sent += (size_t)n;
    c->net->stats.bytes_out += (u64)n;
    return true;
}

/* A slow reader's output stays in one piece; what was sent is cut off once it is
 * the larger part, so that each byte is moved at most once on average. */
static void compact_output(struct conn *c)
{
    if (c->sent == c->out.n) {
        give_back(c->net, &c->out);
        c->sent = c->tick_mark = 0;
    } else if (c->sent > c->out.n / 2) {
        memmove(c->out.p, c->out.p + c->sent, c->out.n - c->sent);
        c->out.n -= c->sent;
        c->tick_mark -= MIN(c->tick_mark, c->sent);
        c->sent = 0;
    }
}

/* Sends what the source has, until the kernel has enough, or others should have their turn. True: there is
 * more. */
static bool send_source(struct conn *c)
{
    size_t total = 0;
    while (!c->closing && total < SOURCE_AT_ONCE) {
        bytes b = c->source->peek(c->source);
        if (c->closing || !b.n) return false;
        ssize_t n = give_bytes(c, b.p, b.n);
        c->net->stats.writes++;
        if (n < 0) {
            if (errno == EAGAIN || errno == EINTR) return true;
            conn_close(c);
            return false;
        }
        c->net->stats.bytes_out += (u64)n;
        total += (size_t)n;
        c->source->sent(c->source, (size_t)n);
        if ((size_t)n < b.n) return true;
    }
    return !c->closing;
}

static void flush(struct conn *c)
{
    bool more = false;
    if (c->closing) return;
    if (c->out.n) {
        if (!send_output(c)) return;
        compact_output(c);
        more = c->out.n > 0;
    } else if (c->out.p) {
        give_back(c->net, &c->out); /* a request that is answered later, or not at all */
    }
    if (UNLIKELY(c->source) && !more) more = send_source(c);
    if (c->closing) return;
    watch(c, more ? c->events | UV_WRITABLE : c->events & ~UV_WRITABLE);
    if (over_output_limit(c)) {
        c->net->stats.output_buffer_kills++;
        conn_close(c);
        return;
    }
    if (c->session.close_after_reply && c->out.n == 0) conn_close(c);
}

void conn_wake(struct conn *c)
{
    if (!c->closing) make_ready(c);
}

void conn_pump(struct conn *c) { flush(c); }

/* -- the tick ----------------------------------------------------------------------------------- */

void net_end_tick(struct net *n)
{
    struct conn *c = n->ready, *again = NULL, **again_tail = &again;
    n->ready = n->ready_tail = NULL;
    while (c) {
        struct conn *next = c->ready_next;
        c->ready = false;
        c->read_this_tick = false;
        give_back(n, &c->lent);
        request_parser_trim(&c->parser);
        flush(c);
        /* Requests that were read but not run yet (a limit that AUTH lifted, a pause that ended). */
        if (!c->closing && !c->hold && c->more_input) {
            c->ready_next = NULL;
            *again_tail = c;
            again_tail = &c->ready_next;
        }
        c = next;
    }
    n->ticks++;
    n->request_count = n->arg_count = 0;
    arena_clear(&n->words);
    while (again) {
        struct conn *next = again->ready_next;
        take_input(again);
        again = next;
    }
}

static void on_check(uv_check_t *h)
{
    struct net *n = h->data;
    do {
        n->on_tick(n);
        /* Input taken up again may hold no request after all (blank lines): what it was lent
         * must go back before the next read. */
        do net_end_tick(n);
        while (n->ready && !n->request_count);
    } while (n->request_count);
}

/* -- accepting -------------------------------------------------------------------------------------- */

static void describe_unix(struct conn *c)
{
    struct sockaddr_un a;
    socklen_t n = sizeof a;
    if (getsockname(c->fd, (struct sockaddr *)&a, &n) || n <= offsetof(struct sockaddr_un, sun_path))
        a.sun_path[0] = '\0';
    snprintf(c->peer, sizeof c->peer, "%.60s:0", a.sun_path);
    snprintf(c->local, sizeof c->local, "%.60s:0", a.sun_path);
}

static void print_address(const struct sockaddr_storage *a, char *out, size_t size, bool *loopback)
{
    char ip[48] = "?";
    if (a->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)a;
        uv_ip6_name(v6, ip, sizeof ip);
        *loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
        snprintf(out, size, "[%s]:%d", ip, ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_in *v4 = (const void *)a;
        uv_ip4_name(v4, ip, sizeof ip);
        *loopback = (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
        snprintf(out, size, "%s:%d", ip, ntohs(v4->sin_port));
    }
}

static void set_option(int fd, int level, int name, int value)
{
    setsockopt(fd, level, name, &value, sizeof value); /* worth having, not worth failing for */
}

static void describe_tcp(struct conn *c)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    bool ignored;
    if (getpeername(c->fd, (struct sockaddr *)&a, &n) == 0)
        print_address(&a, c->peer, sizeof c->peer, &c->is_loopback);
    n = sizeof a;
    if (getsockname(c->fd, (struct sockaddr *)&a, &n) == 0)
        print_address(&a, c->local, sizeof c->local, &ignored);
    set_option(c->fd, IPPROTO_TCP, TCP_NODELAY, 1);
    /* Nothing is ever congested inside one host: there the pacing and the timers of a cleverer
     * congestion control (bbr, say) only cost time. A failure leaves the host's default. */
    if (c->is_loopback) setsockopt(c->fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno"));
    int keepalive = (int)c->net->config.keepalive_s;
    if (!keepalive) return;
    set_option(c->fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(c->fd, IPPROTO_TCP, TCP_KEEPIDLE, keepalive);
    set_option(c->fd, IPPROTO_TCP, TCP_KEEPINTVL, MAX(keepalive / 3, 1));
    set_option(c->fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

static void refuse(struct conn *c, const char *why)
{
    /* If it does not fit, the close says enough; so it has to where nothing is agreed on yet. */
    if (!c->tls && send(c->fd, why, strlen(why), MSG_NOSIGNAL) < 0) errno = 0;
    c->net->stats.rejected++;
    conn_close(c);
}

static struct conn *conn_new(struct net *n, int fd, const struct listener *l)
{
    struct conn *c = mem_zalloc(sizeof *c);
    c->net = n;
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
    session_init(&c->session, ++n->next_id, false);
    request_parser_init(&c->parser);
    c->next = n->conns;
    if (n->conns) n->conns->prev = c;
    n->conns = c;
    n->count++;
    return c;
}

static void welcome(struct net *n, int fd, const struct listener *l)
{
    struct conn *c = conn_new(n, fd, l);
    if (!c) return;
    if (l->is_unix) describe_unix(c);
    else describe_tcp(c);
    const char *why = n->count > n->config.max_clients ? "-ERR max number of clients reached\r\n"
                                                       : n->on_accept(n, c);
    if (why) {
        refuse(c, why);
        return;
    }
    n->stats.connections++;
    watch(c, UV_READABLE);
}

/* -- listening ------------------------------------------------------------------------------------- */

#define ACCEPTS_PER_TURN 256

static bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/* When no file is left, those who wait stay in the queue, and the socket stays readable:
 * listening on would turn the loop without end. */
void net_on_connection(uv_poll_t *p, int status UNUSED, int events UNUSED)
{
    struct listener *l = (struct listener *)p;
    struct net *n = p->data;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (!is_shortage(errno)) return;
            n->no_files = true;
            uv_poll_stop(p);
            return;
        }
        welcome(n, fd, l);
    }
}

void net_retry_accept(struct net *n)
{
    if (!n->no_files) return;
    n->no_files = false;
    for (struct listener *l = n->listeners; l; l = l->next) uv_poll_start(&l->poll, UV_READABLE, net_on_connection);
}

/* Takes the socket over, also when it fails. */
static int start_listening(struct net *n, int fd, bool is_unix, bool tls)
{
    if (listen(fd, (int)n->config.backlog)) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    struct listener *l = mem_zalloc(sizeof *l);
    l->fd = fd;
    l->is_unix = is_unix;
    l->tls = tls;
    uv_poll_init(n->loop, &l->poll, fd);
    l->poll.data = n;
    l->next = n->listeners;
    n->listeners = l;
    return uv_poll_start(&l->poll, UV_READABLE, net_on_connection);
}

static int bind_tcp(struct net *n, const struct addrinfo *a, bool tls)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (a->ai_family == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (bind(fd, a->ai_addr, a->ai_addrlen)) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return start_listening(n, fd, false, tls);
}

int net_listen_tcp(struct net *n, const char *address, int port, bool tls)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
    char service[8];
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(address, service, &hints, &found)) return UV_EADDRNOTAVAIL;
    int rc = bind_tcp(n, found, tls);
    freeaddrinfo(found);
    return rc;
}

int net_listen_unix(struct net *n, const char *path, int mode)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path) return UV_ENAMETOOLONG;
    strcpy(a.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    unlink(path); /* a socket left over from a crash */
    if (bind(fd, (struct sockaddr *)&a, sizeof a)) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    if (mode) chmod(path, (mode_t)mode);
    return start_listening(n, fd, true, false);
}

static void on_listener_closed(uv_handle_t *h) { mem_free(h); }

void net_stop_listening(struct net *n, bool only_tcp)
{
    for (struct listener **at = &n->listeners; *at;) {
        struct listener *l = *at;
        if (only_tcp && l->is_unix) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        uv_close((uv_handle_t *)&l->poll, on_listener_closed);
        close(l->fd);
    }
}

void net_close_idle(struct net *n, i64 now_ms)
{
    if (!n->config.idle_timeout_s) return;
    for (struct conn *c = n->conns; c; c = c->next) {
        bool exempt = c->class != CONN_NORMAL || c->session.monitor || c->hold;
        if (!exempt && now_ms - c->active_ms > (i64)n->config.idle_timeout_s * 1000) conn_close(c);
    }
}

void conn_check_output(struct conn *c)
{
    if (c->closing || !conn_output_bytes(c) || !over_output_limit(c)) return;
    c->net->stats.output_buffer_kills++;
    conn_close(c);
}

void net_check_output(struct net *n)
{
    for (struct conn *c = n->conns; c; c = c->next) conn_check_output(c);
}

/* -- life ----------------------------------------------------------------------------------------------- */

void net_init(struct net *n, uv_loop_t *loop)
{
    *n = (struct net){.loop = loop};
    n->config = (struct net_config){
        .max_bulk = 512LL * 1024 * 1024, .max_query_buffer = 1024LL * 1024 * 1024,
        .max_clients = 10000, .keepalive_s = 300, .backlog = 511,
        .output = {{0, 0, 0}, {256u << 20, 64u << 20, 60}, {32u << 20, 8u << 20, 60}},
    };
    n->pool_cap = POOL_KEEP;
    n->pool = mem_zalloc(n->pool_cap * sizeof *n->pool);
    uv_check_init(loop, &n->check);
    n->check.data = n;
    uv_check_start(&n->check, on_check);
    uv_unref((uv_handle_t *)&n->check);
}

void net_release(struct net *n)
{
    while (n->pooled) buf_release(&n->pool[--n->pooled]);
    mem_free(n->pool);
    mem_free(n->requests);
    mem_free(n->args);
    arena_release(&n->words);
}
