#include "site/link.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"

/* -- messages -------------------------------------------------------------------------------------- */

static void link_put(struct buf *out, const char *word, const bytes *args, u32 n)
{
    buf_printf(out, "*%u\r\n$%zu\r\n%s\r\n", n + 1, strlen(word), word);
    for (u32 i = 0; i < n; i++) {
        buf_printf(out, "$%zu\r\n", args[i].n);
        buf_append_bytes(out, args[i]);
        buf_append_str(out, "\r\n");
    }
}

static bytes link_number(char text[NUM_I64_LEN], i64 n) { return bytes_of(text, num_print_i64(text, n)); }

static bool link_end(struct site_link *l, const char *why)
{
    l->state = LINK_OVER;
    l->why = why;
    return false;
}

static bool link_refuse(struct site_link *l, const char *why, struct buf *out)
{
    link_put(out, "SITE.REFUSED", (bytes[]){bytes_str(why)}, 1);
    return link_end(l, why);
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

void site_link_ask(struct site_link *l, struct site *s, struct site_backlog *b, u8 peer, struct buf *out)
{
    char protocol[NUM_I64_LEN], gid[NUM_I64_LEN];
    struct buf clock = {0};
    *l = (struct site_link){.s = s, .backlog = b, .peer = peer};
    site_put_clock(&clock, &s->clock);
    bytes args[] = {link_number(protocol, SITE_PROTOCOL), link_number(gid, s->gid), buf_bytes(&clock)};
    link_put(out, "SITE.HELLO", args, 3);
    l->said = s->clock;
    buf_release(&clock);
}

void site_link_serve(struct site_link *l, struct site *s, struct site_backlog *b)
{
    *l = (struct site_link){.s = s, .backlog = b, .serves = true};
}

void site_link_release(struct site_link *l)
{
    buf_release(&l->head);
    buf_release(&l->keys);
}

/* -- serving ----------------------------------------------------------------------------------------- */

struct link_keys {
    struct site_link *l;
    struct buf *out, dump;
};

static void link_put_key(void *arg, u32 db, bytes name)
{
    struct link_keys *k = arg;
    char number[NUM_I64_LEN];
    buf_clear(&k->dump);
    site_put_key(k->l->s, db, name, &k->dump);
    link_put(k->out, "SITE.KEY", (bytes[]){link_number(number, db), name, buf_bytes(&k->dump)}, 3);
}

static void link_put_all(struct site_link *l, struct buf *out)
{
    struct link_keys k = {.l = l, .out = out};
    struct buf head = {0};
    site_put_snapshot_head(l->s, &head);
    link_put(out, "SITE.FULL", (bytes[]){buf_bytes(&head)}, 1);
    for (u32 db = 0; db < l->s->databases; db++) site_each_key(l->s, db, link_put_key, &k);
    link_put(out, "SITE.DONE", NULL, 0);
    buf_release(&head);
    buf_release(&k.dump);
}

/* Why somebody who says hello gets nothing; NULL: he does. */
static const char *link_objection(const struct site_link *l, u8 gid, const struct site_clock *clock)
{
    const struct site *s = l->s;
    bool joins = s->members[gid].dot.gid == s->gid && s->members[gid].dot.seq > 0 &&
                 site_clock_sum(clock) == 0;
    if (gid == s->gid) return "it has the gid of this site";
    if (s->fenced[gid]) return "it was evicted: it has to come back empty, under a new gid";
    if (!s->members[gid].in) return "it is no member: SITE JOIN admits a new site";
    if (clock->seq[s->gid] > s->clock.seq[s->gid])
        return "it has writes of this site that this site has never made";
    if (joins && !site_may_start(s, gid)) return "not all members know of it yet: it has to try again";
    return NULL;
}

static bool link_take_hello(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    char gid[NUM_I64_LEN];
    i64 protocol;
    if (argc != 4 || !num_parse_i64(argv[1], &protocol)) return link_refuse(l, "a malformed SITE.HELLO", out);
    if (protocol != SITE_PROTOCOL) return link_refuse(l, "it speaks another version of the protocol", out);
    if (!link_get_gid(argv[2], &l->peer) || !link_get_clock(argv[3], &l->theirs))
        return link_refuse(l, "a malformed SITE.HELLO", out);
    const char *why = link_objection(l, l->peer, &l->theirs);
    if (why) return link_refuse(l, why, out);
    site_hear(l->s, l->peer, &l->theirs);
    bool joins = l->s->members[l->peer].dot.seq > 0 && site_clock_sum(&l->theirs) == 0;
    if (site_backlog_reaches(l->backlog, &l->theirs) && !joins) {
        struct buf clock = {0};
        site_put_clock(&clock, &l->s->clock);
        link_put(out, "SITE.CONTINUE", (bytes[]){link_number(gid, l->s->gid), buf_bytes(&clock)}, 2);
        l->next = l->backlog->number;
        buf_release(&clock);
    } else {
        link_put_all(l, out);
        l->theirs = l->s->clock;
        l->next = l->backlog->number + l->backlog->n;
    }
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
    if (lost) return link_refuse(l, "it fell behind the backlog", out);
    bool all = !l->serves || l->next == l->backlog->number + l->backlog->n;
    if (all && memcmp(&l->said, &l->s->clock, sizeof l->said) != 0) link_put_clock(l, out);
    return true;
}

/* -- asking ------------------------------------------------------------------------------------------ */

static bool link_take_continue(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    struct site_clock clock;
    u8 gid;
    if (argc != 3 || !link_get_gid(argv[1], &gid) || !link_get_clock(argv[2], &clock))
        return link_refuse(l, "a malformed SITE.CONTINUE", out);
    if (gid != l->peer) return link_refuse(l, "it is another site than the one that was asked for", out);
    if (clock.seq[l->s->gid] > l->s->clock.seq[l->s->gid])
        return link_refuse(l, "it has writes of this site that this site has never made", out);
    l->state = LINK_STREAM;
    return true;
}

static bool link_take_effect(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    struct site_effect e;
    const char *why = "a malformed SITE.EFFECT";
    if (argc != 2 || !site_effect_parse(argv[1], &e, &why)) return link_refuse(l, why, out);
    if (!l->s->members[e.dot.gid].in && !l->s->fenced[e.dot.gid])
        return link_refuse(l, "an effect of a site that is no member", out);
    if (!site_clock_covers(&l->s->clock, &e.context) && !site_covers(&l->s->clock, e.dot) &&
        !l->s->fenced[e.dot.gid])
        return link_refuse(l, "a gap: an effect that depends on others which did not come", out);
    if (site_receive(l->s, argv[1], &why) == SITE_REFUSED) return link_refuse(l, why, out);
    return true;
}

static bool link_take_key(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    i64 db;
    if (argc != 4 || !num_parse_i64(argv[1], &db) || db < 0 || db >= l->s->databases || argv[3].n == 0)
        return link_refuse(l, "a malformed SITE.KEY, or one of a database that this site does not have", out);
    site_put_varint(&l->keys, (u64)db);
    site_put_bytes(&l->keys, argv[2]);
    site_put_bytes(&l->keys, argv[3]);
    return true;
}

/* -- merging what came -------------------------------------------------------------------------------- */

struct link_key {
    u32 db;
    bool own; /* a key of ours */
    bytes name, dump;
};

struct link_list {
    struct link_key *v;
    u32 n, room;
    struct buf names; /* of our keys */
};

static void link_add(struct link_list *list, struct link_key k)
{
    if (list->n == list->room) {
        list->room = list->room ? list->room * 2 : 64;
        list->v = mem_realloc(list->v, list->room * sizeof *list->v);
    }
    list->v[list->n++] = k;
}

static void link_add_own(void *arg, u32 db, bytes name)
{
    struct link_list *list = arg;
    site_put_varint(&list->names, db);
    site_put_bytes(&list->names, name);
}

/* By name; a key that has a dump comes before the same key of ours. */
static int link_key_cmp(const void *pa, const void *pb)
{
    const struct link_key *a = pa, *b = pb;
    if (a->db != b->db) return a->db < b->db ? -1 : 1;
    int c = bytes_cmp(a->name, b->name);
    return c ? c : (int)a->own - (int)b->own;
}

static void link_expire_own(void *arg, u32 db, bytes name) { site_expire(arg, db, name, NULL); }

/* The keys of either side, in order. */
static void link_union(struct site_link *l, struct link_list *list)
{
    for (struct site_reader r = site_reader_of(buf_bytes(&l->keys)); site_left(&r);) {
        struct link_key k = {.db = (u32)site_get_varint(&r)};
        k.name = site_get_bytes(&r);
        k.dump = site_get_bytes(&r);
        link_add(list, k);
    }
    for (u32 db = 0; db < l->s->databases; db++) site_each_key(l->s, db, link_add_own, list);
    for (struct site_reader r = site_reader_of(buf_bytes(&list->names)); site_left(&r);) {
        struct link_key k = {.db = (u32)site_get_varint(&r), .own = true};
        k.name = site_get_bytes(&r);
        link_add(list, k);
    }
    if (list->n) qsort(list->v, list->n, sizeof *list->v, link_key_cmp);
}

static bool link_is_again(const struct link_list *list, u32 i)
{
    return i > 0 && list->v[i].db == list->v[i - 1].db && bytes_eq(list->v[i].name, list->v[i - 1].name);
}

/* All of it is checked before any of it is merged: not every engine can give a transaction up. */
static bool link_merge(struct site_link *l, struct site_merge *m, const char **why)
{
    struct link_list list = {0};
    bool ok = site_merge_begin(l->s, m, buf_bytes(&l->head), why);
    if (ok && m->gid != l->peer) {
        *why = "it is another site than the one that was asked for";
        ok = false;
    }
    for (struct site_reader r = site_reader_of(buf_bytes(&l->keys)); ok && site_left(&r);) {
        site_get_varint(&r);
        site_get_bytes(&r);
        ok = site_merge_check(m, site_get_bytes(&r), why);
    }
    for (u32 db = 0; ok && db < l->s->databases; db++) site_each_key(l->s, db, link_expire_own, l->s);
    if (ok) link_union(l, &list);
    for (u32 i = 0; ok && i < list.n; i++)
        if (!link_is_again(&list, i)) site_merge_key(l->s, m, list.v[i].db, list.v[i].name, list.v[i].dump);
    if (ok) site_merge_finish(l->s, m);
    mem_free(list.v);
    buf_release(&list.names);
    return ok;
}

static bool link_take_done(struct site_link *l, struct buf *out)
{
    struct site_merge m = {0};
    const char *why = "";
    bool ok = link_merge(l, &m, &why);
    site_merge_release(&m);
    buf_release(&l->head);
    buf_release(&l->keys);
    if (!ok) return link_refuse(l, why, out);
    site_backlog_gap(l->backlog, &l->s->clock);
    l->state = LINK_STREAM;
    return true;
}

/* -- taking messages ---------------------------------------------------------------------------------- */

static bool link_take_clock(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    struct site_clock clock;
    if (argc != 2 || !link_get_clock(argv[1], &clock)) return link_refuse(l, "a malformed SITE.CLOCK", out);
    if (clock.seq[l->s->gid] > l->s->clock.seq[l->s->gid])
        return link_refuse(l, "it has writes of this site that this site has never made", out);
    site_hear(l->s, l->peer, &clock);
    return true;
}

static bool link_take_refused(struct site_link *l, const bytes *argv, u32 argc)
{
    char text[BYTES_LEGIBLE + 4];
    snprintf(l->reason, sizeof l->reason, "%s", bytes_legible(argc > 1 ? argv[1] : (bytes){"", 0}, text));
    l->told = true;
    return link_end(l, l->reason);
}

bool site_link_take(struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    bytes word = argc ? argv[0] : (bytes){"", 0};
    bool streams = l->state == LINK_STREAM, asks = !l->serves;
    if (l->state == LINK_OVER) return false;
    if (bytes_is(word, "SITE.REFUSED")) return link_take_refused(l, argv, argc);
    if (bytes_is(word, "SITE.HELLO") && l->serves && l->state == LINK_HELLO)
        return link_take_hello(l, argv, argc, out);
    if (bytes_is(word, "SITE.CLOCK") && streams) return link_take_clock(l, argv, argc, out);
    if (bytes_is(word, "SITE.EFFECT") && asks && streams) return link_take_effect(l, argv, argc, out);
    if (bytes_is(word, "SITE.CONTINUE") && asks && l->state == LINK_HELLO)
        return link_take_continue(l, argv, argc, out);
    if (bytes_is(word, "SITE.KEY") && l->state == LINK_FULL) return link_take_key(l, argv, argc, out);
    if (bytes_is(word, "SITE.DONE") && l->state == LINK_FULL) return link_take_done(l, out);
    if (bytes_is(word, "SITE.FULL") && asks && l->state == LINK_HELLO && argc == 2) {
        buf_append_bytes(&l->head, argv[1]);
        l->state = LINK_FULL;
        return true;
    }
    return link_refuse(l, "a message that was not expected", out);
}
