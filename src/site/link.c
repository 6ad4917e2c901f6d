#include "site/link.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/num.h"

/* -- messages -------------------------------------------------------------------------------------- */

static void link_put_length(struct buf *out, char kind, size_t n)
{
    buf_append_char(out, kind);
    out->n += num_print_i64(buf_reserve(out, NUM_I64_LEN), (i64)n);
    buf_append_str(out, "\r\n");
}

static void link_put_bytes(struct buf *out, bytes b)
{
    link_put_length(out, '$', b.n);
    buf_append_bytes(out, b);
    buf_append_str(out, "\r\n");
}

static void link_put(struct buf *out, const char *word, const bytes *args, u32 n)
{
    link_put_length(out, '*', n + 1);
    link_put_bytes(out, bytes_str(word));
    for (u32 i = 0; i < n; i++) link_put_bytes(out, args[i]);
}

static bytes link_number(char text[NUM_I64_LEN], i64 n) { return bytes_of(text, num_print_i64(text, n)); }

static bool link_end(struct site_link *l, const char *why)
{
    l->state = LINK_OVER;
    l->why = why;
    return false;
}

bool site_link_refuse(struct site_link *l, const char *why, struct buf *out)
{
    link_put(out, "SITE.REFUSED", (bytes[]){bytes_str(why)}, 1);
    return link_end(l, why);
}

#define LINK_NEVER_MADE "it has writes of this site that this site has never made"
#define LINK_REPLACED "another server has taken the place of this site"

/* A greeting says which server of its site sent it. False: that one was replaced, and the link is over. */
static bool link_meet(struct site_link *l, u64 incarnation, struct buf *out)
{
    char n[NUM_I64_LEN];
    l->incarnation = incarnation;
    if (site_meet(l->s, l->peer, incarnation)) return true;
    bytes known = link_number(n, (i64)l->s->incarnations[l->peer]);
    link_put(out, "SITE.REFUSED", (bytes[]){BYTES_LIT(LINK_REPLACED), known}, 2);
    return link_end(l, LINK_REPLACED);
}

/* An incarnation, if there is an argument `at`, which is the last. */
static bool link_get_incarnation(const bytes *argv, u32 argc, u32 at, u64 *n)
{
    i64 number = 0;
    bool fits = argc == at || (argc == at + 1 && num_parse_i64(argv[at], &number) && number > 0);
    *n = (u64)number;
    return fits;
}

/* Appends our own, as the last of `n` arguments. Returns how many there are. */
static u32 link_add_incarnation(const struct site_link *l, bytes *args, u32 n, char text[NUM_I64_LEN])
{
    u64 own = l->s->incarnations[l->s->gid];
    if (own) args[n++] = link_number(text, (i64)own);
    return n;
}

static void link_put_clock(struct site_link *l, struct buf *out)
{
    struct buf raw = {0};
    site_put_clock(&raw, &l->s->clock);
    link_put(out, "SITE.CLOCK", (bytes[]){buf_bytes(&raw)}, 1);
    l->said = l->s->clock;
    buf_release(&raw);
}

/* A clock, and nothing behind it. */
static bool link_get_clock(bytes raw, struct site_clock *c)
{
    struct site_reader r = site_reader_of(raw);
    site_get_clock(&r, c);
    return !r.bad && site_left(&r) == 0;
}

static bool link_get_gid(bytes text, u8 *gid)
{
    i64 n;
    if (!num_parse_i64(text, &n) || n < 1 || n >= SITE_GIDS) return false;
    *gid = (u8)n;
    return true;
}

/* -- its life ---------------------------------------------------------------------------------------- */

void site_link_ask(struct site_link *l, struct site *s, struct site_backlog *b, u8 peer, bool full,
                   struct buf *out)
{
    char protocol[NUM_I64_LEN], gid[NUM_I64_LEN], n[NUM_I64_LEN];
    struct buf clock = {0};
    *l = (struct site_link){.s = s, .backlog = b, .peer = peer, .needs_full = full || s->torn};
    site_put_clock(&clock, &s->clock);
    bytes args[5] = {link_number(protocol, SITE_PROTOCOL), link_number(gid, s->gid), buf_bytes(&clock),
                     BYTES_LIT("FULL")};
    link_put(out, "SITE.HELLO", args, link_add_incarnation(l, args, l->needs_full ? 4 : 3, n));
    l->said = s->clock;
    buf_release(&clock);
}

void site_link_serve(struct site_link *l, struct site *s, struct site_backlog *b)
{
    *l = (struct site_link){.s = s, .backlog = b, .serves = true};
}

void site_link_repeat(struct site_link *l) { l->said.seq[0] = 1; } /* which is nobody's */

static void link_end_walk(struct site_link *l)
{
    if (!l->walk) return;
    site_walk_end(l->walk);
    mem_free(l->walk);
    l->walk = NULL;
}

static void link_end_full(struct site_link *l);

void site_link_release(struct site_link *l)
{
    link_end_walk(l);
    link_end_full(l);
}

/* -- serving ----------------------------------------------------------------------------------------- */

static void link_put_key(void *arg, u32 db, bytes name, bytes dump)
{
    char number[NUM_I64_LEN];
    link_put(arg, "SITE.KEY", (bytes[]){link_number(number, db), name, dump}, 3);
}

static void link_begin_walk(struct site_link *l, struct buf *out)
{
    struct buf head = {0};
    char n[NUM_I64_LEN];
    l->walk = mem_zalloc(sizeof *l->walk);
    site_walk_begin(l->walk, l->s);
    site_put_snapshot_head(l->s, &head);
    bytes args[2] = {buf_bytes(&head)};
    link_put(out, "SITE.FULL", args, link_add_incarnation(l, args, 1, n));
    buf_release(&head);
}

static bool link_walk(struct site_link *l, size_t max, struct buf *out)
{
    if (site_walk_some(l->walk, max, link_put_key, out)) return true;
    bool lost = l->walk->lost;
    link_end_walk(l);
    if (lost)
        return site_link_refuse(l, "too much was written during a full sync: it has to begin again", out);
    link_put(out, "SITE.DONE", NULL, 0);
    return true;
}

/* Why a site that says hello is refused; NULL: it is accepted. */
static const char *link_objection(struct site_link *l, u8 gid, const struct site_clock *clock)
{
    const struct site *s = l->s;
    bool joins = s->members[gid].dot.seq > 0 && site_clock_sum(clock) == 0;
    if (gid == s->gid) return "it has the gid of this site";
    if (s->torn) return "a full sync of this site is under way";
    if (!s->members[s->gid].in) return SITE_NOT_JOINED;
    if (s->fenced[gid]) return "it was evicted: it has to come back empty, under a new gid";
    if (!s->members[gid].in) return "it is no member: SITE JOIN admits a new site";
    if (!site_knows_us(l->s, clock)) return LINK_NEVER_MADE;
    if (site_clock_sum(clock) && !site_covers(clock, s->members[gid].dot))
        return "it has written before it was admitted: it is of another group";
    if (joins && !site_may_start(s, gid)) return "not all members know of it yet: it has to try again";
    return NULL;
}

static void link_continue(struct site_link *l, struct buf *out)
{
    char gid[NUM_I64_LEN], n[NUM_I64_LEN];
    struct buf clock = {0};
    site_put_clock(&clock, &l->s->clock);
    bytes args[3] = {link_number(gid, l->s->gid), buf_bytes(&clock)};
    link_put(out, "SITE.CONTINUE", args, link_add_incarnation(l, args, 2, n));
    l->next = l->backlog->number;
    buf_release(&clock);
}

static bool link_take_hello(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    i64 protocol;
    u64 n;
    bool full = argc > 4 && bytes_is(argv[4], "full");
    if (argc < 4 || !link_get_incarnation(argv, argc, full ? 5 : 4, &n) || !num_parse_i64(argv[1], &protocol))
        return site_link_refuse(l, "a malformed SITE.HELLO", out);
    if (protocol != SITE_PROTOCOL)
        return site_link_refuse(l, "it speaks another version of the protocol", out);
    if (!link_get_gid(argv[2], &l->peer) || !link_get_clock(argv[3], &l->theirs))
        return site_link_refuse(l, "a malformed SITE.HELLO", out);
    const char *why = link_objection(l, l->peer, &l->theirs);
    if (why) return site_link_refuse(l, why, out);
    if (!link_meet(l, n, out)) return false;
    bool lost = l->theirs.seq[l->peer] < l->s->clock.seq[l->peer]; /* it takes its own effects back */
    site_hear(l->s, l->peer, &l->theirs);
    full |= l->s->members[l->peer].dot.seq > 0 && site_clock_sum(&l->theirs) == 0;
    if (site_backlog_reaches(l->backlog, &l->theirs) && !full) {
        link_continue(l, out);
    } else {
        link_begin_walk(l, out);
        l->theirs = l->s->clock;
        l->next = l->backlog->number + l->backlog->n;
    }
    if (!lost) l->theirs.seq[l->peer] = SITE_SEQ_MAX; /* what it has made it has */
    l->state = LINK_STREAM;
    return true;
}

bool site_link_feed(struct site_link *l, size_t max, struct buf *out)
{
    size_t start = out->n;
    bool lost = false;
    bytes raw;
    if (l->state != LINK_STREAM) return l->state != LINK_OVER;
    while (l->serves && out->n - start < max &&
           site_backlog_next(l->backlog, &l->theirs, &l->next, &raw, &lost))
        link_put(out, "SITE.EFFECT", (bytes[]){raw}, 1);
    if (lost) return site_link_refuse(l, "it fell behind the backlog", out);
    if (l->walk && !link_walk(l, max, out)) return false;
    bool all = !l->walk && (!l->serves || l->next == l->backlog->number + l->backlog->n);
    bool changed = all && memcmp(&l->said, &l->s->clock, sizeof l->said) != 0;
    l->clock_due = changed && l->clock_waits;
    if (changed && !l->clock_waits) link_put_clock(l, out);
    return true;
}

/* -- asking ------------------------------------------------------------------------------------------ */

static bool link_take_continue(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    struct site_clock clock;
    u64 n;
    u8 gid;
    if (argc < 3 || !link_get_incarnation(argv, argc, 3, &n) || !link_get_gid(argv[1], &gid) ||
        !link_get_clock(argv[2], &clock))
        return site_link_refuse(l, "a malformed SITE.CONTINUE", out);
    if (gid != l->peer) return site_link_refuse(l, "it is another site than the one that was asked for", out);
    if (!site_knows_us(l->s, &clock)) return site_link_refuse(l, LINK_NEVER_MADE, out);
    if (l->needs_full) return site_link_refuse(l, "a full sync was needed", out);
    if (!link_meet(l, n, out)) return false;
    site_link_repeat(l);
    l->state = LINK_STREAM;
    return true;
}

static bool link_took(struct site_link *l, const struct site_effect *e)
{
    l->effects++;
    l->stamp = e->stamp;
    l->author = e->dot.gid;
    return true;
}

static bool link_take_effect(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    struct site_effect e;
    const char *why = "a malformed SITE.EFFECT";
    if (argc == 2 && site_receive_fast(l->s, argv[1], &e)) return link_took(l, &e);
    if (argc != 2 || !site_effect_parse(argv[1], &e, &why)) return site_link_refuse(l, why, out);
    if (l->s->torn) return site_link_refuse(l, "a full sync of this site was interrupted", out);
    if (!l->s->members[e.dot.gid].in && !l->s->fenced[e.dot.gid])
        return site_link_refuse(l, "an effect of a site that is no member", out);
    if (!site_clock_covers(&l->s->clock, &e.context) && !site_covers(&l->s->clock, e.dot) &&
        !l->s->fenced[e.dot.gid] && !site_is_next_part(l->s, e.dot))
        return site_link_refuse(l, "a gap: an effect that depends on others which did not come", out);
    enum site_outcome outcome = site_receive_parsed(l->s, &e, &why);
    l->needs_full |= outcome == SITE_TOO_MUCH;
    if (outcome >= SITE_REFUSED) return site_link_refuse(l, why, out);
    return link_took(l, &e);
}

/* -- receiving a snapshot -------------------------------------------------------------------------------- */

static void link_end_full(struct site_link *l)
{
    if (!l->full) return;
    site_full_release(l->full);
    mem_free(l->full);
    l->full = NULL;
}

static bool link_take_full(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    const char *why = "a malformed SITE.FULL";
    u64 n;
    if (argc < 2 || !link_get_incarnation(argv, argc, 2, &n)) return site_link_refuse(l, why, out);
    l->full = mem_zalloc(sizeof *l->full);
    if (!site_full_begin(l->full, l->s, argv[1], &why)) return site_link_refuse(l, why, out);
    if (l->full->from != l->peer)
        return site_link_refuse(l, "it is another site than the one that was asked for", out);
    if (!link_meet(l, n, out)) return false;
    (void)!site_knows_us(l->s, &l->full->m.clock); /* site_full_begin has refused it otherwise */
    l->state = LINK_FULL;
    return true;
}

static bool link_take_key(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    i64 db;
    const char *why = "a malformed SITE.KEY, or one of a database that this site does not have";
    if (argc != 4 || !num_parse_i64(argv[1], &db) || db < 0 || db >= l->s->databases || argv[3].n == 0)
        return site_link_refuse(l, why, out);
    return site_full_key(l->full, (u32)db, argv[2], argv[3], &why) || site_link_refuse(l, why, out);
}

/* An effect that was made while the snapshot is being sent. */
static bool link_stage_effect(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    const char *why = "a malformed SITE.EFFECT";
    if (argc == 2 && site_full_effect(l->full, argv[1], &why)) return true;
    return site_link_refuse(l, why, out);
}

static bool link_take_done(struct site_link *l, u32 argc, struct buf *out)
{
    if (argc != 1) return site_link_refuse(l, "a malformed SITE.DONE", out);
    if (!site_full_start(l->full)) return site_link_refuse(l, SITE_NOT_COMPLETED, out);
    l->state = LINK_MERGE;
    return true;
}

bool site_link_step(struct site_link *l, u32 count, struct buf *out)
{
    const char *why = "";
    if (l->state != LINK_MERGE) return l->state != LINK_OVER;
    switch (site_full_step(l->full, count, &why)) {
    case FULL_FAILED:
        link_end_full(l);
        site_backlog_gap(l->backlog, &l->s->clock); /* it may have moved on */
        return site_link_refuse(l, why, out);
    case FULL_MERGED: site_backlog_gap(l->backlog, &l->s->clock); break;
    case FULL_FINISHED:
        link_end_full(l);
        l->needs_full = false;
        l->state = LINK_STREAM;
        break;
    case FULL_MORE: break;
    }
    return true;
}

/* -- taking messages ---------------------------------------------------------------------------------- */

static bool link_take_clock(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    struct site_clock clock;
    if (argc != 2 || !link_get_clock(argv[1], &clock))
        return site_link_refuse(l, "a malformed SITE.CLOCK", out);
    if (!site_knows_us(l->s, &clock)) return site_link_refuse(l, LINK_NEVER_MADE, out);
    site_hear(l->s, l->peer, &clock);
    if (l->serves) site_clock_join(&l->theirs, &clock); /* by other links */
    return true;
}

static bool link_take_refused(struct site_link *l, const bytes *argv, u32 argc)
{
    char text[BYTES_LEGIBLE + 4];
    u64 n;
    snprintf(l->reason, sizeof l->reason, "%s", bytes_legible(argc > 1 ? argv[1] : (bytes){"", 0}, text));
    if (argc == 3 && link_get_incarnation(argv, argc, 2, &n)) site_met_other_self(l->s, n);
    l->told = true;
    return link_end(l, l->reason);
}

bool site_link_take(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    bytes word = argc ? argv[0] : (bytes){"", 0};
    bool streams = l->state == LINK_STREAM, asks = !l->serves;
    if (l->state == LINK_OVER) return false;
    if (UNLIKELY(l->incarnation != l->s->incarnations[l->peer]) && l->state != LINK_HELLO)
        return link_meet(l, l->incarnation, out);
    if (LIKELY(asks && streams && bytes_eq(word, BYTES_LIT("SITE.EFFECT"))))
        return link_take_effect(l, argv, argc, out);
    if (bytes_is(word, "SITE.REFUSED")) return link_take_refused(l, argv, argc);
    if (bytes_is(word, "SITE.HELLO") && l->serves && l->state == LINK_HELLO)
        return link_take_hello(l, argv, argc, out);
    if (bytes_is(word, "SITE.CLOCK") && streams) return link_take_clock(l, argv, argc, out);
    if (bytes_is(word, "SITE.EFFECT") && asks && streams) return link_take_effect(l, argv, argc, out);
    if (bytes_is(word, "SITE.CONTINUE") && asks && l->state == LINK_HELLO)
        return link_take_continue(l, argv, argc, out);
    if (bytes_is(word, "SITE.KEY") && l->state == LINK_FULL) return link_take_key(l, argv, argc, out);
    if (bytes_is(word, "SITE.EFFECT") && l->state == LINK_FULL) return link_stage_effect(l, argv, argc, out);
    if (bytes_is(word, "SITE.DONE") && l->state == LINK_FULL) return link_take_done(l, argc, out);
    if (bytes_is(word, "SITE.FULL") && asks && l->state == LINK_HELLO)
        return link_take_full(l, argv, argc, out);
    return site_link_refuse(l, "a message that was not expected", out);
}
