/* Lists: popping off the first of several lists that has anything, and blocking until one has. */
#include "command/commands.h"
#include "command/collection/list.h"
#include "command/waiting.h"

/* -- BLPOP BRPOP ---------------------------------------------------------------- */

static void list_pop_one(struct ctx *c, bytes key, struct key_ref *ref, bool front)
{
    reply_array(c->out, 2);
    reply_bulk(c->out, key);
    list_take(c, key, ref, front, 1);
    CTX_EFFECT(c, front ? BYTES_LIT("LPOP") : BYTES_LIT("RPOP"), key);
}

static void list_blocking_pop(struct ctx *c, bool front)
{
    struct key_ref ref;
    i64 timeout_ms;
    if (!ctx_timeout_s(c, c->argv[c->argc - 1], &timeout_ms)) return;
    for (int i = 1; i < c->argc - 1; i++) {
        if (!ctx_looks_at(c, c->argv[i])) continue;
        err e = ctx_write(c, c->argv[i], TYPE_LIST, &ref);
        if (e == OK) list_pop_one(c, c->argv[i], &ref, front);
        if (e != ERR_NOT_FOUND) return;
    }
    ctx_wait(c, TYPE_LIST, c->argv, 1, c->argc - 2, timeout_ms);
}

void cmd_blpop(struct ctx *c) { list_blocking_pop(c, true); }
void cmd_brpop(struct ctx *c) { list_blocking_pop(c, false); }

/* -- BLMOVE BRPOPLPUSH ---------------------------------------------------------- */

/* If it may not wait it replies as LMOVE does: unlike the others, with a null that is no array. */
static void wait_to_move(struct ctx *c, i64 timeout_ms)
{
    if (c->may_wait || c->ready) ctx_wait(c, TYPE_LIST, c->argv, 1, 1, timeout_ms);
    else reply_null(c->out);
}

void cmd_blmove(struct ctx *c)
{
    bool from_front, to_front;
    i64 timeout_ms;
    if (!list_side(c, c->argv[3], &from_front) || !list_side(c, c->argv[4], &to_front)) return;
    if (!ctx_timeout_s(c, c->argv[5], &timeout_ms)) return;
    u64 before = c->ks->dirty;
    if (!list_move(c, from_front, to_front)) wait_to_move(c, timeout_ms);
    if (c->ks->dirty == before) return;
    CTX_EFFECT(c, BYTES_LIT("LMOVE"), c->argv[1], c->argv[2], c->argv[3], c->argv[4]);
}

void cmd_brpoplpush(struct ctx *c)
{
    i64 timeout_ms;
    if (!ctx_timeout_s(c, c->argv[3], &timeout_ms)) return;
    u64 before = c->ks->dirty;
    if (!list_move(c, false, true)) wait_to_move(c, timeout_ms);
    if (c->ks->dirty != before) CTX_EFFECT(c, BYTES_LIT("RPOPLPUSH"), c->argv[1], c->argv[2]);
}

/* -- LMPOP BLMPOP --------------------------------------------------------------- */

/* numkeys key [key …] LEFT|RIGHT [COUNT n], from argv[at] on */
struct mpop {
    int first; /* key */
    i64 keys;
    bool front;
    i64 count;
};

static bool list_parse_mpop(struct ctx *c, int at, struct mpop *m)
{
    if (!ctx_int_min(c, c->argv[at], 1, "ERR numkeys should be greater than 0", &m->keys)) return false;
    m->first = at + 1;
    if (m->keys >= c->argc - m->first) {
        ctx_syntax_error(c);
        return false;
    }
    int i = m->first + (int)m->keys;
    if (!list_side(c, c->argv[i++], &m->front)) return false;
    m->count = 1;
    if (i == c->argc) return true;
    if (i + 1 >= c->argc || !bytes_is(c->argv[i], "count")) {
        ctx_syntax_error(c);
        return false;
    }
    if (!ctx_int_min(c, c->argv[i + 1], 1, "ERR count should be greater than 0", &m->count))
        return false;
    if (i + 2 == c->argc) return true;
    ctx_syntax_error(c);
    return false;
}

static void mpop_reply(struct ctx *c, bytes key, struct key_ref *ref, bool front, u64 n)
{
    char digits[NUM_I64_LEN];
    bytes count = bytes_of(digits, num_print_i64(digits, (i64)n));
    reply_array(c->out, 2);
    reply_bulk(c->out, key);
    reply_array(c->out, n);
    list_take(c, key, ref, front, n);
    CTX_EFFECT(c, front ? BYTES_LIT("LPOP") : BYTES_LIT("RPOP"), key, count);
}

/* False: there was nothing, and nothing was replied. */
static bool list_mpop(struct ctx *c, const struct mpop *m)
{
    for (int i = m->first; i < m->first + m->keys; i++) {
        struct key_ref ref;
        if (!ctx_looks_at(c, c->argv[i])) continue;
        err e = ctx_write(c, c->argv[i], TYPE_LIST, &ref);
        if (e == ERR_NOT_FOUND) continue;
        if (e == OK)
            mpop_reply(c, c->argv[i], &ref, m->front, MIN((u64)m->count, c->eng->ops->size(c->eng, &ref)));
        return true;
    }
    return false;
}

void cmd_lmpop(struct ctx *c)
{
    struct mpop m;
    if (list_parse_mpop(c, 1, &m) && !list_mpop(c, &m)) reply_null_array(c->out);
}

void cmd_blmpop(struct ctx *c)
{
    struct mpop m;
    i64 timeout_ms;
    if (!list_parse_mpop(c, 2, &m) || !ctx_timeout_s(c, c->argv[1], &timeout_ms) || list_mpop(c, &m)) return;
    ctx_wait(c, TYPE_LIST, c->argv, m.first, (int)m.keys, timeout_ms);
}
