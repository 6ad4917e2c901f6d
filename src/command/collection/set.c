/* Sets: maps whose values are empty. SINTER, SUNION and SDIFF are in set_algebra.c. */
#include "command/commands.h"
#include "command/collection/map.h"

static const bytes no_value = {"", 0};

/* -- SADD SREM SMOVE --------------------------------------------------------------- */

void cmd_sadd(struct ctx *c)
{
    struct key_ref ref;
    i64 added = 0;
    if (!ctx_open(c, c->argv[1], TYPE_SET, &ref)) return;
    for (int i = 2; i < c->argc; i++) added += map_put(c, &ref, c->argv[i], no_value);
    if (added > 0) ctx_changed_by(c, (u64)added, c->argv[1], NOTIFY_SET, "sadd");
    reply_int(c->out, added);
}

void cmd_srem(struct ctx *c)
{
    struct key_ref ref;
    i64 removed = 0;
    err e = ctx_write(c, c->argv[1], TYPE_SET, &ref);
    if (e == ERR_TYPE) return;
    for (int i = 2; e == OK && i < c->argc; i++) removed += map_del(c, &ref, c->argv[i]);
    if (removed > 0) {
        ctx_changed_by(c, (u64)removed, c->argv[1], NOTIFY_SET, "srem");
        ctx_drop_if_empty(c, &ref);
    }
    reply_int(c->out, removed);
}

static void move_member(struct ctx *c, struct key_ref *from, bytes to_key, bytes member)
{
    struct key_ref to;
    ctx_changed(c, c->argv[1], NOTIFY_SET, "srem");
    ctx_drop_if_empty(c, from);
    if (!ctx_open(c, to_key, TYPE_SET, &to)) return; /* its type was checked before */
    if (map_put(c, &to, member, no_value)) ctx_changed(c, to_key, NOTIFY_SET, "sadd");
}

void cmd_smove(struct ctx *c)
{
    struct key_ref from, to;
    bytes member = c->argv[3];
    err e = ctx_write(c, c->argv[1], TYPE_SET, &from);
    if (e == ERR_NOT_FOUND) reply_int(c->out, 0);
    if (e != OK) return;
    if (ctx_write(c, c->argv[2], TYPE_SET, &to) == ERR_TYPE) return;
    if (bytes_eq(c->argv[1], c->argv[2])) {
        reply_int(c->out, map_has(c, &from, member));
        return;
    }
    bool moved = map_del(c, &from, member);
    if (moved) move_member(c, &from, c->argv[2], member);
    reply_int(c->out, moved);
}

/* -- SISMEMBER SMISMEMBER SCARD SMEMBERS ------------------------------------------- */

void cmd_sismember(struct ctx *c)
{
    struct key_ref ref;
    err e = ctx_read(c, c->argv[1], TYPE_SET, &ref);
    if (e == ERR_TYPE) return;
    reply_int(c->out, e == OK && map_has(c, &ref, c->argv[2]));
}

void cmd_smismember(struct ctx *c)
{
    struct key_ref ref;
    err e = ctx_read(c, c->argv[1], TYPE_SET, &ref);
    if (e == ERR_TYPE) return;
    reply_array(c->out, (size_t)c->argc - 2);
    for (int i = 2; i < c->argc; i++)
        reply_int(c->out, e == OK && map_has(c, &ref, c->argv[i]));
}

void cmd_scard(struct ctx *c)
{
    struct key_ref ref;
    err e = ctx_read(c, c->argv[1], TYPE_SET, &ref);
    if (e == ERR_TYPE) return;
    reply_int(c->out, e == OK ? (i64)map_size(c, &ref) : 0);
}

static void smembers_reply(struct ctx *c, struct key_ref *ref)
{
    struct map_iter it;
    bytes member;
    reply_set(c->out, map_size(c, ref));
    map_iter(c, ref, &it);
    it.passing = true;
    while (map_next(c, &it, &member, NULL)) reply_bulk(c->out, member);
}

void cmd_smembers(struct ctx *c)
{
    struct key_ref ref;
    err e = ctx_read(c, c->argv[1], TYPE_SET, &ref);
    if (e == OK) smembers_reply(c, &ref);
    else if (e == ERR_NOT_FOUND) reply_set(c->out, 0);
}

/* -- SPOP -------------------------------------------------------------------------- */

/* SPOP draws, so its effect is SREM of what was drawn, stated in batches that keep the copies of the names
 * small. */
#define POP_BATCH 512

struct pop {
    struct ctx *c;
    struct key_ref ref;
    struct buf names;
    size_t ends[POP_BATCH];
    int n;
};

static void pop_state(struct pop *p)
{
    bytes argv[POP_BATCH + 2] = {BYTES_LIT("SREM"), p->c->argv[1]};
    size_t at = 0;
    if (p->n == 0) return;
    for (int i = 0; i < p->n; at = p->ends[i++])
        argv[i + 2] = bytes_of(p->names.p + at, p->ends[i] - at);
    ctx_effect(p->c, p->n + 2, argv);
    buf_clear(&p->names);
    p->n = 0;
}

static bool spop_one(struct pop *p)
{
    bytes drawn;
    if (!map_random(p->c, &p->ref, &drawn, NULL)) return false;
    if (p->n == POP_BATCH) pop_state(p);
    size_t at = p->names.n;
    buf_append_bytes(&p->names, drawn); /* the engine's slice is invalid after the deletion */
    p->ends[p->n++] = p->names.n;
    bytes member = bytes_of(p->names.p + at, p->names.n - at);
    reply_bulk(p->c->out, member);
    map_del(p->c, &p->ref, member);
    p->c->ks->dirty++;
    return true;
}

static void pop_end(struct pop *p)
{
    ctx_changed_by(p->c, 0, p->c->argv[1], NOTIFY_SET, "spop"); /* each of them was counted */
    pop_state(p);
    ctx_drop_if_empty(p->c, &p->ref);
    buf_release(&p->names);
}

static void pop_all(struct ctx *c, struct key_ref *ref)
{
    smembers_reply(c, ref);
    ctx_changed_by(c, map_size(c, ref), c->argv[1], NOTIFY_SET, "spop");
    ctx_drop(c, ref);
    keyspace_notify(c->ks, c->db, c->argv[1], NOTIFY_GENERIC, "del");
    CTX_EFFECT(c, BYTES_LIT("DEL"), c->argv[1]);
}

static void pop_count(struct ctx *c)
{
    struct pop p = {.c = c};
    i64 count;
    if (!ctx_positive(c, c->argv[2], &count)) return;
    err e = ctx_write(c, c->argv[1], TYPE_SET, &p.ref);
    if (e == ERR_TYPE) return;
    if (e != OK || count == 0) {
        reply_set(c->out, 0);
        return;
    }
    if ((u64)count >= map_size(c, &p.ref)) {
        pop_all(c, &p.ref);
        return;
    }
    reply_set(c->out, (size_t)count);
    while (count > 0 && spop_one(&p)) count--;
    pop_end(&p);
}

void cmd_spop(struct ctx *c)
{
    struct pop p = {.c = c};
    if (c->argc == 3) {
        pop_count(c);
        return;
    }
    if (c->argc > 3) {
        ctx_syntax_error(c);
        return;
    }
    err e = ctx_write(c, c->argv[1], TYPE_SET, &p.ref);
    if (e == ERR_TYPE) return;
    if (e == OK && spop_one(&p)) pop_end(&p);
    else reply_null(c->out);
}

/* -- SRANDMEMBER SSCAN ------------------------------------------------------------- */

static void emit_member(struct ctx *c, bytes member, bytes value)
{
    (void)value;
    reply_bulk(c->out, member);
}

static void random_members(struct ctx *c)
{
    struct key_ref ref;
    i64 count;
    u64 draws;
    if (!ctx_int_range(c, c->argv[2], -INT64_MAX, INT64_MAX, &count)) return;
    err e = ctx_read(c, c->argv[1], TYPE_SET, &ref);
    if (e == ERR_TYPE) return;
    if (e != OK || count == 0) {
        reply_array(c->out, 0);
        return;
    }
    if (!map_draws(c, &ref, count, &draws)) return;
    reply_array(c->out, draws);
    map_draw(c, &ref, count, emit_member);
}

void cmd_srandmember(struct ctx *c)
{
    struct key_ref ref;
    bytes member;
    if (c->argc == 3) {
        random_members(c);
        return;
    }
    if (c->argc > 3) {
        ctx_syntax_error(c);
        return;
    }
    err e = ctx_read(c, c->argv[1], TYPE_SET, &ref);
    if (e == ERR_TYPE) return;
    if (e == OK && map_random(c, &ref, &member, NULL)) reply_bulk(c->out, member);
    else reply_null(c->out);
}

void cmd_sscan(struct ctx *c) { map_scan(c, TYPE_SET); }
