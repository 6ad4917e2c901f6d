/* Lists: pushing, popping, reading and editing one list. */
#include "command/collection/list.h"
#include "command/commands.h"

static u64 list_size(struct ctx *c, struct key_ref *ref) { return c->eng->ops->size(c->eng, ref); }

/* Removes n elements from `from` on. Losing all of them is a drop, which costs
 * the same for any length. */
static void list_cut(struct ctx *c, bytes key, struct key_ref *ref, u64 from, u64 n,
                     const char *event)
{
    bool all = n == list_size(c, ref);
    if (all) ctx_drop(c, ref);
    else c->eng->ops->seq.erase(c->eng, ref, from, n);
    ctx_changed_by(c, n, key, NOTIFY_LIST, event);
    if (all) keyspace_notify(c->ks, c->db, key, NOTIFY_GENERIC, "del");
}

/* -- LPUSH RPUSH LPUSHX RPUSHX ------------------------------------------------ */

static void push_all(struct ctx *c, struct key_ref *ref, bool front)
{
    c->eng->ops->seq.push_all(c->eng, ref, front, c->argv + 2, (u32)c->argc - 2);
    ctx_changed_by(c, (u64)c->argc - 2, c->argv[1], NOTIFY_LIST, front ? "lpush" : "rpush");
    reply_int(c->out, (i64)list_size(c, ref));
}

static void push_command(struct ctx *c, bool front)
{
    struct key_ref ref;
    if (ctx_open(c, c->argv[1], TYPE_LIST, &ref)) push_all(c, &ref, front);
}

static void pushx_command(struct ctx *c, bool front)
{
    struct key_ref ref;
    err e = ctx_write(c, c->argv[1], TYPE_LIST, &ref);
    if (e == OK) push_all(c, &ref, front);
    else if (e == ERR_NOT_FOUND) reply_int(c->out, 0);
}

void cmd_lpush(struct ctx *c) { push_command(c, true); }
void cmd_rpush(struct ctx *c) { push_command(c, false); }
void cmd_lpushx(struct ctx *c) { pushx_command(c, true); }
void cmd_rpushx(struct ctx *c) { pushx_command(c, false); }

/* -- LPOP RPOP ---------------------------------------------------------------- */

void list_take(struct ctx *c, bytes key, struct key_ref *ref, bool front, u64 n)
{
    u64 size = list_size(c, ref);
    struct seq_iter it;
    bytes value;
    c->eng->ops->seq.iter(c->eng, ref, front ? 0 : size - 1, !front, &it);
    it.passing = true;
    for (u64 i = 0; i < n && c->eng->ops->seq.next(&it, &value); i++) reply_bulk(c->out, value);
    list_cut(c, key, ref, front ? 0 : size - n, n, front ? "lpop" : "rpop");
}

static void list_pop_command(struct ctx *c, bool front)
{
    bool counted = c->argc == 3;
    i64 count = 1;
    struct key_ref ref;
    if (c->argc > 3) {
        ctx_wrong_arity(c);
        return;
    }
    if (counted && !ctx_positive(c, c->argv[2], &count)) return;
    err e = ctx_write(c, c->argv[1], TYPE_LIST, &ref);
    if (e == ERR_TYPE) return;
    if (e == ERR_NOT_FOUND) {
        if (counted) reply_null_array(c->out);
        else reply_null(c->out);
        return;
    }
    u64 n = MIN((u64)count, list_size(c, &ref));
    if (counted) reply_array(c->out, n);
    if (n > 0) list_take(c, c->argv[1], &ref, front, n);
}

void cmd_lpop(struct ctx *c) { list_pop_command(c, true); }
void cmd_rpop(struct ctx *c) { list_pop_command(c, false); }

/* -- LLEN LINDEX LRANGE --------------------------------------------------------- */

void cmd_llen(struct ctx *c)
{
    struct key_ref ref;
    err e = ctx_read(c, c->argv[1], TYPE_LIST, &ref);
    if (e != ERR_TYPE) reply_int(c->out, e == OK ? (i64)list_size(c, &ref) : 0);
}

/* Resolves an index that may count from the end. False: there is no such element. */
static bool list_index(struct ctx *c, struct key_ref *ref, i64 index, u64 *out)
{
    i64 size = (i64)list_size(c, ref);
    if (index < 0) index += size;
    *out = (u64)index;
    return index >= 0 && index < size;
}

void cmd_lindex(struct ctx *c)
{
    struct key_ref ref;
    i64 index;
    u64 at;
    bytes value;
    err e = ctx_read(c, c->argv[1], TYPE_LIST, &ref);
    if (e == ERR_NOT_FOUND) reply_null(c->out);
    if (e != OK || !ctx_int(c, c->argv[2], &index)) return;
    if (!list_index(c, &ref, index, &at)) {
        reply_null(c->out);
        return;
    }
    c->eng->ops->seq.get(c->eng, &ref, at, &value);
    reply_bulk(c->out, value);
}

/* Resolves [start, stop] to a place and a number of elements, 0 if none. */
static u64 list_range(struct ctx *c, struct key_ref *ref, i64 start, i64 stop, u64 *from)
{
    i64 size = (i64)list_size(c, ref);
    if (start < 0) start = MAX(start + size, 0);
    if (stop < 0) stop += size;
    stop = MIN(stop, size - 1);
    *from = (u64)start;
    return start > stop ? 0 : (u64)(stop - start) + 1;
}

void cmd_lrange(struct ctx *c)
{
    i64 start, stop;
    struct key_ref ref;
    if (!ctx_int(c, c->argv[2], &start) || !ctx_int(c, c->argv[3], &stop)) return;
    err e = ctx_read(c, c->argv[1], TYPE_LIST, &ref);
    if (e == ERR_TYPE) return;
    u64 from, n = e == OK ? list_range(c, &ref, start, stop, &from) : 0;
    reply_array(c->out, n);
    if (n == 0) return;
    struct seq_iter it;
    bytes value;
    c->eng->ops->seq.iter(c->eng, &ref, from, false, &it);
    it.passing = true;
    for (; n > 0 && c->eng->ops->seq.next(&it, &value); n--) reply_bulk(c->out, value);
}

/* -- LSET LINSERT LTRIM LREM ---------------------------------------------------- */

void cmd_lset(struct ctx *c)
{
    struct key_ref ref;
    i64 index;
    u64 at;
    err e = ctx_write(c, c->argv[1], TYPE_LIST, &ref);
    if (e == ERR_NOT_FOUND) reply_error(c->out, "ERR no such key");
    if (e != OK || !ctx_int(c, c->argv[2], &index)) return;
    if (!list_index(c, &ref, index, &at)) {
        reply_error(c->out, "ERR index out of range");
        return;
    }
    c->eng->ops->seq.set(c->eng, &ref, at, c->argv[3]);
    ctx_changed(c, c->argv[1], NOTIFY_LIST, "lset");
    reply_ok(c->out);
}

/* The first element equal to value. */
static bool list_find(struct ctx *c, struct key_ref *ref, bytes value, u64 *at)
{
    struct seq_iter it;
    bytes element;
    c->eng->ops->seq.iter(c->eng, ref, 0, false, &it);
    it.passing = true;
    for (*at = 0; c->eng->ops->seq.next(&it, &element); ++*at)
        if (bytes_eq(element, value)) return true;
    return false;
}

void cmd_linsert(struct ctx *c)
{
    bool after = bytes_is(c->argv[2], "after");
    struct key_ref ref;
    u64 at;
    if (!after && !bytes_is(c->argv[2], "before")) {
        ctx_syntax_error(c);
        return;
    }
    err e = ctx_write(c, c->argv[1], TYPE_LIST, &ref);
    if (e == ERR_NOT_FOUND) reply_int(c->out, 0);
    if (e != OK) return;
    if (!list_find(c, &ref, c->argv[3], &at)) {
        reply_int(c->out, -1);
        return;
    }
    c->eng->ops->seq.insert(c->eng, &ref, at + after, c->argv[4]);
    ctx_changed(c, c->argv[1], NOTIFY_LIST, "linsert");
    reply_int(c->out, (i64)list_size(c, &ref));
}

/* There is an event even if nothing is removed, but then no change. */
static void list_trim(struct ctx *c, struct key_ref *ref, u64 head, u64 tail)
{
    if (tail > 0) c->eng->ops->seq.erase(c->eng, ref, list_size(c, ref) - tail, tail);
    if (head > 0) c->eng->ops->seq.erase(c->eng, ref, 0, head);
    ctx_changed_by(c, head + tail, c->argv[1], NOTIFY_LIST, "ltrim");
}

void cmd_ltrim(struct ctx *c)
{
    i64 start, stop;
    struct key_ref ref;
    if (!ctx_int(c, c->argv[2], &start) || !ctx_int(c, c->argv[3], &stop)) return;
    err e = ctx_write(c, c->argv[1], TYPE_LIST, &ref);
    if (e == ERR_TYPE) return;
    if (e == OK) {
        u64 from, kept = list_range(c, &ref, start, stop, &from), size = list_size(c, &ref);
        if (kept == 0) list_cut(c, c->argv[1], &ref, 0, size, "ltrim");
        else list_trim(c, &ref, from, size - from - kept);
    }
    reply_ok(c->out);
}

/* Removes up to `limit` (0: all) elements equal to value; returns how many. */
static u64 remove_equal(struct ctx *c, struct key_ref *ref, bytes value, bool backward, u64 limit)
{
    struct seq_iter it;
    bytes element;
    u64 removed = 0, at = backward ? list_size(c, ref) - 1 : 0;
    c->eng->ops->seq.iter(c->eng, ref, at, backward, &it);
    it.passing = true;
    for (; c->eng->ops->seq.next(&it, &element); backward ? at-- : at++) {
        if (!bytes_eq(element, value)) continue;
        c->eng->intent_at = at;
        c->eng->ops->seq.erase_current(&it);
        if (++removed == limit) break;
    }
    return removed;
}

void cmd_lrem(struct ctx *c)
{
    i64 count;
    struct key_ref ref;
    if (!ctx_int_range(c, c->argv[2], -INT64_MAX, INT64_MAX, &count)) return;
    err e = ctx_write(c, c->argv[1], TYPE_LIST, &ref);
    if (e == ERR_NOT_FOUND) reply_int(c->out, 0);
    if (e != OK) return;
    u64 limit = count < 0 ? 0 - (u64)count : (u64)count;
    u64 removed = remove_equal(c, &ref, c->argv[3], count < 0, limit);
    if (removed > 0) {
        ctx_changed_by(c, removed, c->argv[1], NOTIFY_LIST, "lrem");
        ctx_drop_if_empty(c, &ref);
    }
    reply_int(c->out, (i64)removed);
}
