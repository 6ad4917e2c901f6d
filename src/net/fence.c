#include "net/fence.h"

#include <string.h>

#include "base/alloc.h"
#include "net/net_parts.h"

/* -- segments ------------------------------------------------------------------------------- */

static void segment_wait(struct segment *g, struct fence *f)
{
    g->fence = f;
    if (!f) return;
    g->after = f->segments;
    if (g->after) g->after->before = g;
    f->segments = g;
}

/* It no longer waits for a fence. */
static void segment_set_free(struct segment *g)
{
    if (!g->fence) return;
    *(g->before ? &g->before->after : &g->fence->segments) = g->after;
    if (g->after) g->after->before = g->before;
    g->before = g->after = NULL;
    g->fence = NULL;
}

static struct segment *segment_add(struct conn *c, struct fence *f, size_t bytes)
{
    struct held *h = c->held;
    struct segment *g = mem_zalloc(sizeof *g);
    g->conn = c;
    g->bytes = bytes;
    g->tick = c->net->tick.number;
    segment_wait(g, f);
    *(h->last ? &h->last->next : &h->first) = g;
    h->last = g;
    h->bytes += bytes;
    return g;
}

static void segment_drop_first(struct held *h)
{
    struct segment *g = h->first;
    segment_set_free(g);
    h->bytes -= g->bytes;
    h->first = g->next;
    if (!h->first) h->last = NULL;
    mem_free(g);
}

/* Removes the segments that nothing holds back: see invariant 1. */
static void held_set_free(struct held *h)
{
    while (h->first && !h->first->fence) segment_drop_first(h);
}

/* -- parts become segments ------------------------------------------------------------------- */

/* Counts one more request for the segment, or for a new one after it if it is full. */
static struct segment *part_count(struct segment *g, bool wrote)
{
    if (g->requests == SEGMENT_REQUESTS) g = segment_add(g->conn, g->fence, 0);
    g->wrote |= (u64)wrote << g->requests++;
    return g;
}

/* Whether the last request before conn_block has no reply yet. */
static bool part_waits(const struct conn *c, u32 at)
{
    const struct net_tick *t = &c->net->tick;
    bool last = at + 1 == t->request_count || t->requests[at + 1].conn != c;
    return last && c->waits && c->blocked_tick == t->number;
}

/* The requests before this index have been run. */
static u32 part_requests_end(const struct net_tick *t)
{
    return t->running == NET_NO_REQUEST ? t->done : MIN(t->running, t->request_count);
}

/* The requests that the part answers or began: [*from, *to). True: another request was blocked. */
static bool part_requests(struct conn *c, u32 *from, u32 *to)
{
    struct net_tick *t = &c->net->tick;
    u32 end = part_requests_end(t), at = MAX(c->first_request, c->held->next_request);
    *from = *to = at;
    if (!net_has_requests(c)) return false;
    while (at < end && t->requests[at].conn == c && !part_waits(c, at)) at++;
    *to = c->held->next_request = at;
    if (at >= end || t->requests[at].conn != c || t->requests[at].waits) return false;
    return t->requests[at].waits = true; /* reported once */
}

static u8 part_marks(struct conn *c, u32 from, u32 to)
{
    struct net *n = c->net;
    return to > from && n->on_segment ? n->on_segment(n, c, from, to) : 0;
}

/* Output without a fence needs a segment only after others. */
static void part_close_free(struct conn *c, size_t bytes, u8 marks)
{
    struct held *h = c->held;
    if (!h->last || (!bytes && !marks)) return;
    if (h->last->fence) segment_add(c, NULL, 0);
    h->last->bytes += bytes;
    h->last->marks |= marks;
    h->bytes += bytes;
}

static void part_close_held(struct conn *c, size_t bytes, u32 from, u32 to, bool waits)
{
    const struct net_tick *t = &c->net->tick;
    struct segment *first = segment_add(c, c->held->part, bytes), *g = first;
    bool changed = c->deferred_wrote;
    first->marks = part_marks(c, from, to);
    if (c->deferred_reply) g = part_count(g, c->deferred_wrote);
    for (u32 i = from; i < to; i++) {
        const struct net_request *q = &t->requests[i];
        /* Blocked and served in this tick. */
        bool served = i + 1 == to && c->deferred_wrote && !c->deferred_reply;
        changed |= q->wrote;
        if (!q->silent) g = part_count(g, q->wrote || served);
    }
    g->waits = waits;
    for (g = first; g; g = g->next) g->changed = changed;
}

void fence_close_part(struct conn *c)
{
    size_t end = conn_output_end(c), bytes = end - c->tick_mark;
    u32 from, to;
    bool waits = part_requests(c, &from, &to);
    bool asked = c->deferred_reply || to > from || waits, holds = asked || (bytes && !c->replica);
    if (c->held->part && holds) part_close_held(c, bytes, from, to, waits);
    else part_close_free(c, bytes, part_marks(c, from, to));
    c->tick_mark = end;
    c->deferred_reply = c->deferred_wrote = false;
}

void fence_enter(struct conn *c)
{
    struct fence *f = c->net->tick.fence;
    if (!c->held) {
        if (!f) return;
        c->held = mem_zalloc(sizeof *c->held);
    }
    if (c->held->part == f) return;
    fence_close_part(c);
    c->held->part = f;
}

void fence_end_part(struct conn *c)
{
    struct held *h = c->held;
    fence_close_part(c);
    h->part = NULL;
    h->next_request = 0;
    held_set_free(h);
    if (!h->first) fence_drop(c);
}

void fence_drop(struct conn *c)
{
    struct held *h = c->held;
    if (LIKELY(!h)) return;
    while (h->first) segment_drop_first(h);
    mem_free(h);
    c->held = NULL;
}

/* -- passing --------------------------------------------------------------------------------- */

static void fence_release_segments(struct fence *f)
{
    while (f->segments) {
        struct segment *g = f->segments;
        struct conn *c = g->conn;
        segment_set_free(g);
        if (c->closing || c->held->first != g) continue;
        net_make_ready(c);
        held_set_free(c->held);
    }
}

/* -- failing --------------------------------------------------------------------------------- */

/* Whether its replies become errors. */
static bool segment_fails(const struct segment *g, const struct fence *f)
{
    return g->fence == f && (f->read || g->changed);
}

/* Sums up for the owner what fails for a connection. */
static struct net_failure fail_sum(const struct fence *f, const struct conn *c)
{
    struct net_failure what = {0};
    for (const struct segment *g = c->held->first; g; g = g->next) {
        bool fails = segment_fails(g, f), asked = fails && (g->requests || g->waits);
        if (g->marks) {
            what.marks = fails ? g->marks : 0;
            what.asked_since_mark = false;
        }
        what.asked |= asked;
        what.asked_since_mark |= asked;
        what.waits |= fails && g->waits && c->waits && c->blocked_tick == g->tick;
    }
    return what;
}

static void fail_write_errors(struct conn *c, const struct fence *f, const struct segment *g, bool gave_up)
{
    const char *read = f->read ? f->read : f->wrote;
    if (!c->out.p) net_borrow_output(c);
    struct reply out = {.out = &c->out, .proto = c->session.proto};
    for (u32 i = 0; i < g->requests; i++) reply_error(&out, g->wrote >> i & 1 ? f->wrote : read);
    if (g->waits && gave_up) reply_error(&out, read);
}

/* The segment's bytes are at the start of *rest and are removed from there. */
static void fail_rewrite_segment(struct conn *c, const struct fence *f, struct segment *g, bytes *rest,
                                 bool gave_up)
{
    size_t begin = conn_output_end(c), taken = g->bytes;
    if (segment_fails(g, f)) {
        fail_write_errors(c, f, g, gave_up);
        g->bytes = conn_output_end(c) - begin;
        c->held->bytes += g->bytes - taken;
        g->waits = false;
        segment_set_free(g);
    } else {
        buf_append(&c->out, rest->p, taken);
    }
    *rest = bytes_of(rest->p + taken, rest->n - taken);
    if (c->out.n >= OUT_PIECE) conn_set_aside(c);
}

/* Rewrites the output from the first failed segment on; what may be sent stays where it is. There is no open
 * part. */
static void fail_rewrite(struct conn *c, const struct fence *f, bool gave_up)
{
    struct segment *g = c->held->first;
    struct buf kept = {0};
    size_t at = conn_output_end(c) - c->held->bytes;
    for (; g && !segment_fails(g, f); g = g->next) at += g->bytes;
    conn_copy_output(c, at, &kept);
    conn_cut_output(c, at);
    for (bytes rest = buf_bytes(&kept); g; g = g->next) fail_rewrite_segment(c, f, g, &rest, gave_up);
    buf_release(&kept);
    c->tick_mark = conn_output_end(c);
}

static void fail_connection(struct fence *f, struct conn *c)
{
    struct held *h = c->held;
    net_make_ready(c); /* keeps its buffers, in case the owner closes it */
    fence_close_part(c);
    struct net_failure what = fail_sum(f, c);
    bool gave_up = !c->closing && c->net->on_failed && c->net->on_failed(c->net, c, &what);
    if (gave_up) c->waits = false;
    if (!c->closing) fail_rewrite(c, f, gave_up);
    for (struct segment *g = h->first; g; g = g->next) /* segments that pass after all */
        if (g->fence == f) segment_set_free(g);
    held_set_free(h);
}

/* -- the end of a fence ------------------------------------------------------------------------ */

static void fence_free(struct fence *f)
{
    struct net_fences *all = &f->net->fences;
    *(f->prev ? &f->prev->next : &all->first) = f->next;
    *(f->next ? &f->next->prev : &all->last) = f->prev;
    all->count--;
    mem_free(f->wrote);
    mem_free(f->read);
    mem_free(f);
}

/* It ends in a tick in which it was in force: parts that wait for it become segments. */
static void fence_close_parts(struct fence *f)
{
    struct net *n = f->net;
    if (n->tick.fence == f) n->tick.fence = NULL;
    for (struct conn *c = n->tick.ready; c; c = c->ready_next) {
        if (!c->held || c->held->part != f) continue;
        fence_close_part(c);
        c->held->part = NULL;
    }
}

static void fence_settle(struct fence *f)
{
    if (f->tick == f->net->tick.number) fence_close_parts(f);
    if (f->state == FENCE_PASSED) fence_release_segments(f);
    while (f->segments) fail_connection(f, f->segments->conn);
    fence_free(f);
}

/* The running request may have begun its reply, and other requests have not been counted yet. */
static void fence_end(struct fence *f)
{
    struct net *n = f->net;
    if (n->tick.running == NET_NO_REQUEST) fence_settle(f);
    else n->fences.ended = true;
}

void fence_settle_all(struct net *n)
{
    n->fences.ended = false;
    for (struct fence *f = n->fences.first, *next; f; f = next) {
        next = f->next;
        if (f->state != FENCE_OPEN) fence_settle(f);
    }
}

static char *fence_text(const char *text)
{
    size_t n = strlen(text) + 1;
    return memcpy(mem_alloc(n), text, n);
}

u32 fence_requests(const struct fence *f)
{
    u32 n = 0;
    for (const struct segment *g = f->segments; g; g = g->after) n += g->requests;
    return n;
}

void fence_pass(struct fence *f)
{
    CHECK(f->state == FENCE_OPEN);
    f->state = FENCE_PASSED;
    fence_end(f);
}

void fence_fail(struct fence *f, const char *wrote, const char *read)
{
    CHECK(f->state == FENCE_OPEN);
    f->state = FENCE_FAILED;
    f->wrote = fence_text(wrote);
    f->read = read ? fence_text(read) : NULL;
    fence_end(f);
}

/* -- life ---------------------------------------------------------------------------------------- */

struct fence *fence_open(struct net *n)
{
    struct net_fences *all = &n->fences;
    struct fence *f = mem_zalloc(sizeof *f);
    f->net = n;
    f->id = ++all->last_id;
    f->prev = all->last;
    *(all->last ? &all->last->next : &all->first) = f;
    all->last = f;
    all->count++;
    return f;
}

struct fence *fence_of_tick(struct net *n)
{
    struct fence *f = fence_open(n);
    CHECK(n->tick.running == NET_NO_REQUEST);
    for (struct conn *c = n->tick.ready; c; c = c->ready_next) {
        if (c->closing || (c->held && c->held->part)) continue;
        if (!c->held) c->held = mem_zalloc(sizeof *c->held);
        c->held->part = f;
        fence_close_part(c);
        c->held->part = NULL;
    }
    return f;
}

u32 fence_segments(const struct fence *f)
{
    u32 n = 0;
    for (const struct segment *g = f->segments; g; g = g->after) n++;
    return n;
}

void fence_release_all(struct net *n)
{
    while (n->fences.first) fence_free(n->fences.first);
}
