/* HSETEX, as in Redis 8.0. */
#include "base/alloc.h"
#include "command/commands.h"
#include "command/collection/hash.h"
#include "command/collection/map.h"
#include "command/ttl.h"

struct hsetex {
    enum { SET_ALWAYS, SET_IF_NONE, SET_IF_ALL } when;
    enum { TTL_CLEAR, TTL_SET, TTL_KEEP } ttl;
    i64 deadline_ms;
    const bytes *pair; /* field, value, field, value … */
    int pairs;
};

static bool parse_pairs(struct ctx *c, int at, struct hsetex *h)
{
    i64 n;
    int rest = c->argc - at - 2;
    if (rest < 2) {
        ctx_wrong_arity(c);
        return false;
    }
    if (!num_parse_i64(c->argv[at + 1], &n) || n < 1 || n > INT32_MAX) {
        reply_error(c->out, "ERR invalid number of fields");
        return false;
    }
    if (rest % 2 != 0 || n != rest / 2) {
        ctx_wrong_arity(c);
        return false;
    }
    h->pair = c->argv + at + 2;
    h->pairs = (int)n;
    return true;
}

static bool parse_hsetex_ttl(struct ctx *c, int *at, struct hsetex *h)
{
    const struct ttl_option *o = ttl_option(c->argv[*at]);
    if (h->ttl != TTL_CLEAR) {
        reply_error(c->out, "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be "
                            "specified");
        return false;
    }
    h->ttl = o ? TTL_SET : TTL_KEEP;
    if (!o) return true;
    if (*at + 1 == c->argc) {
        reply_error(c->out, "ERR missing expire time");
        return false;
    }
    return hash_parse_deadline(c, c->argv[++*at], o->unit, o->absolute, &h->deadline_ms);
}

static bool parse_hsetex_when(struct ctx *c, bytes arg, struct hsetex *h)
{
    if (h->when != SET_ALWAYS) {
        reply_error(c->out, "ERR Only one of FXX or FNX arguments can be specified");
        return false;
    }
    h->when = bytes_is(arg, "fnx") ? SET_IF_NONE : SET_IF_ALL;
    return true;
}

static bool parse_hsetex(struct ctx *c, struct hsetex *h)
{
    *h = (struct hsetex){.when = SET_ALWAYS};
    for (int i = 2; i < c->argc; i++) {
        bytes arg = c->argv[i];
        if (bytes_is(arg, "fields")) return parse_pairs(c, i, h);
        if (ttl_option(arg) || bytes_is(arg, "keepttl")) {
            if (!parse_hsetex_ttl(c, &i, h)) return false;
        } else if (bytes_is(arg, "fxx") || bytes_is(arg, "fnx")) {
            if (!parse_hsetex_when(c, arg, h)) return false;
        } else {
            reply_errorf(c->out, "ERR unknown argument: %.*s", (int)arg.n, arg.p);
            return false;
        }
    }
    ctx_wrong_arity(c); /* there was no FIELDS */
    return false;
}

static bool may_set(struct ctx *c, struct key_ref *ref, bool found, const struct hsetex *h)
{
    if (h->when == SET_ALWAYS) return true;
    for (int i = 0; i < h->pairs; i++)
        if ((found && map_has(c, ref, h->pair[2 * i])) != (h->when == SET_IF_ALL)) return false;
    return true;
}

/* The fields without their values; to be freed. */
static bytes *names_of(const struct hsetex *h)
{
    bytes *v = mem_alloc((size_t)h->pairs * sizeof *v);
    for (int i = 0; i < h->pairs; i++) v[i] = h->pair[2 * i];
    return v;
}

/* A deadline in the past: the fields are deleted at once. */
static void setex_past(struct ctx *c, struct key_ref *ref, const struct hsetex *h)
{
    bytes *names = names_of(h);
    for (int i = 0; i < h->pairs; i++) {
        hash_put(c, ref, h->pair[2 * i], h->pair[2 * i + 1], false); /* it reports a dead field */
        map_del(c, ref, h->pair[2 * i]);
    }
    keyspace_notify(c->ks, c->db, c->argv[1], NOTIFY_HASH, "hset");
    hash_report_deleted(c, ref, h->pairs, names);
    mem_free(names);
}

/* Values and deadlines are stated separately: a Redis 7.0 replica can't use the latter, but needs the
 * values. */
static void setex_state(struct ctx *c, struct key_ref *ref, const struct hsetex *h)
{
    HASH_STATE(c, 2 * h->pairs, h->pair, BYTES_LIT("HSET"), c->argv[1]);
    if (h->ttl == TTL_SET) {
        bytes *names = names_of(h);
        hash_state_deadline(c, h->deadline_ms, (bytes){0}, h->pairs, names);
        mem_free(names);
    }
    for (int i = 0; h->ttl == TTL_KEEP && i < h->pairs; i++)
        hash_state_own_deadline(c, ref, h->pair[2 * i]);
}

static void setex_fields(struct ctx *c, struct key_ref *ref, const struct hsetex *h)
{
    for (int i = 0; i < h->pairs; i++) {
        bytes field = h->pair[2 * i];
        hash_put(c, ref, field, h->pair[2 * i + 1], h->ttl == TTL_KEEP);
        if (h->ttl == TTL_SET) map_set_deadline(c, ref, field, h->deadline_ms);
    }
    ctx_changed(c, c->argv[1], NOTIFY_HASH, "hset");
    if (h->ttl == TTL_SET)
        keyspace_notify(c->ks, c->db, c->argv[1], NOTIFY_HASH, "hexpire");
    setex_state(c, ref, h);
}

void cmd_hsetex(struct ctx *c)
{
    struct key_ref ref;
    struct hsetex h;
    if (!parse_hsetex(c, &h)) return;
    err e = ctx_write(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE) return;
    if (!may_set(c, &ref, e == OK, &h)) {
        reply_int(c->out, 0);
        return;
    }
    if (e != OK && !ctx_open(c, c->argv[1], TYPE_HASH, &ref)) return;
    if (h.ttl == TTL_SET && ttl_past(c, h.deadline_ms)) setex_past(c, &ref, &h);
    else setex_fields(c, &ref, &h);
    reply_int(c->out, 1);
}
