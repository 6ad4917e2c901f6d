/* Sorted sets: popping the lowest or highest members, at once or blocking. */
#include "command/commands.h"
#include "command/waiting.h"

static void pop_effect(struct ctx *c, bytes key, bool max, u64 n)
{
    char digits[NUM_I64_LEN];
    CTX_EFFECT(c, max ? BYTES_LIT("ZPOPMAX") : BYTES_LIT("ZPOPMIN"), key,
               bytes_of(digits, num_print_i64(digits, (i64)n)));
}

/* Replies the n lowest or highest entries, as pairs or flat, and removes them. */
static void zset_pop(struct ctx *c, bytes key, struct key_ref *ref, bool max, u64 n, bool nested)
{
    const struct engine_ops *ops = c->eng->ops;
    u64 size = ops->size(c->eng, ref);
    struct zset_seek seek = {.by = ZSEEK_RANK, .reverse = max, .rank = max ? size - 1 : 0};
    struct zset_iter it;
    bytes member;
    double score;

    ops->zset.iter(c->eng, ref, &seek, &it);
    for (u64 i = 0; i < n && ops->zset.next(&it, &member, &score); i++) {
        if (nested) reply_array(c->out, 2);
        reply_bulk(c->out, member);
        reply_double(c->out, score);
    }
    ops->zset.erase(c->eng, ref, max ? size - n : 0, n, NULL, NULL);
    ctx_changed_by(c, n, key, NOTIFY_ZSET, max ? "zpopmax" : "zpopmin");
    pop_effect(c, key, max, n);
    ctx_drop_if_empty(c, ref);
}

static void zset_pop_command(struct ctx *c, bool max)
{
    struct key_ref ref;
    i64 count = 1;
    if (c->argc > 3) {
        ctx_syntax_error(c);
        return;
    }
    if (c->argc == 3 && !ctx_positive(c, c->argv[2], &count)) return;
    err e = ctx_write(c, c->argv[1], TYPE_ZSET, &ref);
    if (e == ERR_TYPE) return;
    if (e != OK || count == 0) {
        reply_array(c->out, 0);
        return;
    }
    u64 n = MIN((u64)count, c->eng->ops->size(c->eng, &ref));
    bool nested = c->out->proto > 2 && c->argc == 3;
    reply_array(c->out, nested ? n : n * 2);
    zset_pop(c, c->argv[1], &ref, max, n, nested);
}

void cmd_zpopmin(struct ctx *c) { zset_pop_command(c, false); }
void cmd_zpopmax(struct ctx *c) { zset_pop_command(c, true); }

/* -- BZPOPMIN BZPOPMAX --------------------------------------------------------------------- */

static void zset_blocking_pop(struct ctx *c, bool max)
{
    struct key_ref ref;
    i64 timeout_ms;
    if (!ctx_timeout_s(c, c->argv[c->argc - 1], &timeout_ms)) return;
    for (int i = 1; i < c->argc - 1; i++) {
        bytes key = c->argv[i];
        if (!ctx_looks_at(c, key)) continue;
        err e = ctx_write(c, key, TYPE_ZSET, &ref);
        if (e == ERR_TYPE) return;
        if (e != OK) continue;
        reply_array(c->out, 3);
        reply_bulk(c->out, key);
        zset_pop(c, key, &ref, max, 1, false);
        return;
    }
    ctx_wait(c, TYPE_ZSET, c->argv, 1, c->argc - 2, timeout_ms);
}

void cmd_bzpopmin(struct ctx *c) { zset_blocking_pop(c, false); }
void cmd_bzpopmax(struct ctx *c) { zset_blocking_pop(c, true); }

/* -- ZMPOP BZMPOP --------------------------------------------------------------------------- */

/* numkeys key [key …] MIN|MAX [COUNT n], from argv[at] on */
struct mpop {
    int first; /* key */
    i64 keys;
    bool max;
    i64 count;
};

static bool zset_parse_mpop(struct ctx *c, int at, struct mpop *m)
{
    if (!ctx_int_min(c, c->argv[at], 1, "ERR numkeys should be greater than 0", &m->keys)) return false;
    m->first = at + 1;
    if (m->keys >= c->argc - m->first) goto syntax; /* nothing after the keys */
    at = m->first + (int)m->keys;
    m->max = bytes_is(c->argv[at], "max");
    if (!m->max && !bytes_is(c->argv[at], "min")) goto syntax;

    m->count = 1;
    for (int i = at + 1; i < c->argc; i += 2) {
        if (i > at + 1 || i + 1 == c->argc || !bytes_is(c->argv[i], "count")) goto syntax;
        if (!ctx_int_min(c, c->argv[i + 1], 1, "ERR count should be greater than 0", &m->count))
            return false;
    }
    return true;
syntax:
    ctx_syntax_error(c);
    return false;
}

/* False: there was nothing, and nothing was replied. */
static bool zset_mpop(struct ctx *c, const struct mpop *m)
{
    struct key_ref ref;
    for (int i = m->first; i < m->first + m->keys; i++) {
        bytes key = c->argv[i];
        if (!ctx_looks_at(c, key)) continue;
        err e = ctx_write(c, key, TYPE_ZSET, &ref);
        if (e == ERR_TYPE) return true;
        if (e != OK) continue;
        u64 n = MIN((u64)m->count, c->eng->ops->size(c->eng, &ref));
        reply_array(c->out, 2);
        reply_bulk(c->out, key);
        reply_array(c->out, n);
        zset_pop(c, key, &ref, m->max, n, true);
        return true;
    }
    return false;
}

void cmd_zmpop(struct ctx *c)
{
    struct mpop m;
    if (zset_parse_mpop(c, 1, &m) && !zset_mpop(c, &m)) reply_null_array(c->out);
}

void cmd_bzmpop(struct ctx *c)
{
    struct mpop m;
    i64 timeout_ms;
    if (!zset_parse_mpop(c, 2, &m) || !ctx_timeout_s(c, c->argv[1], &timeout_ms) || zset_mpop(c, &m)) return;
    ctx_wait(c, TYPE_ZSET, c->argv, m.first, (int)m.keys, timeout_ms);
}
