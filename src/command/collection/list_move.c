/* Lists: moving elements between lists, finding positions. */
#include "command/commands.h"
#include "command/collection/list.h"

bool list_side(struct ctx *c, bytes arg, bool *front)
{
    *front = bytes_is(arg, "left");
    if (*front || bytes_is(arg, "right")) return true;
    ctx_syntax_error(c);
    return false;
}

/* -- LMOVE RPOPLPUSH ---------------------------------------------------------- */

/* One element between ends of two lists, or of one; the target's type has been checked. */
static void list_move_one(struct ctx *c, bytes from_key, struct key_ref *from, bool from_front,
                          bytes to_key, bool to_front)
{
    const struct seq_ops *seq = &c->eng->ops->seq;
    struct buf value = {0};
    struct key_ref other, *to = from;
    seq->pop(c->eng, from, from_front, &value);
    if (!bytes_eq(from_key, to_key)) {
        bool opened = ctx_open(c, to_key, TYPE_LIST, &other);
        CHECK(opened); /* the caller checked its type */
        to = &other;
    }
    seq->push(c->eng, to, to_front, buf_bytes(&value));
    ctx_changed(c, to_key, NOTIFY_LIST, to_front ? "lpush" : "rpush");
    reply_bulk(c->out, buf_bytes(&value));
    ctx_changed_by(c, 0, from_key, NOTIFY_LIST, from_front ? "lpop" : "rpop"); /* one change in total */
    ctx_drop_if_empty(c, from);
    buf_release(&value);
}

bool list_move(struct ctx *c, bool from_front, bool to_front)
{
    struct key_ref from, to;
    err e = ctx_write(c, c->argv[1], TYPE_LIST, &from);
    if (e == OK && ctx_write(c, c->argv[2], TYPE_LIST, &to) != ERR_TYPE)
        list_move_one(c, c->argv[1], &from, from_front, c->argv[2], to_front);
    return e != ERR_NOT_FOUND;
}

static void move_command(struct ctx *c, bool from_front, bool to_front)
{
    if (!list_move(c, from_front, to_front)) reply_null(c->out);
}

void cmd_rpoplpush(struct ctx *c) { move_command(c, false, true); }

void cmd_lmove(struct ctx *c)
{
    bool from_front, to_front;
    if (list_side(c, c->argv[3], &from_front) && list_side(c, c->argv[4], &to_front))
        move_command(c, from_front, to_front);
}

/* -- LPOS ----------------------------------------------------------------------- */

struct lpos_options {
    i64 rank;    /* 1: the first match; negative: from the tail */
    i64 count;   /* -1: one position, not an array; 0: all */
    i64 max_len; /* elements to look at; 0: all */
};

static bool lpos_rank(struct ctx *c, bytes arg, i64 *rank)
{
    if (!ctx_int_range(c, arg, -INT64_MAX, INT64_MAX, rank)) return false;
    if (*rank != 0) return true;
    reply_error(c->out, "ERR RANK can't be zero: use 1 to start from the first match, 2 from the "
                        "second ... or use negative to start from the end of the list");
    return false;
}

static bool lpos_parse(struct ctx *c, struct lpos_options *o)
{
    *o = (struct lpos_options){.rank = 1, .count = -1};
    for (int i = 3; i < c->argc; i += 2) {
        bytes name = c->argv[i];
        bool has_value = i + 1 < c->argc, good;
        if (has_value && bytes_is(name, "rank")) {
            good = lpos_rank(c, c->argv[i + 1], &o->rank);
        } else if (has_value && bytes_is(name, "count")) {
            good = ctx_int_min(c, c->argv[i + 1], 0, "ERR COUNT can't be negative", &o->count);
        } else if (has_value && bytes_is(name, "maxlen")) {
            good = ctx_int_min(c, c->argv[i + 1], 0, "ERR MAXLEN can't be negative", &o->max_len);
        } else {
            ctx_syntax_error(c);
            return false;
        }
        if (!good) return false;
    }
    return true;
}

/* Writes the positions found as integers, one at most unless a count was given. */
static u64 lpos_search(struct ctx *c, struct key_ref *ref, bytes value,
                       const struct lpos_options *o)
{
    const struct seq_ops *seq = &c->eng->ops->seq;
    u64 size = c->eng->ops->size(c->eng, ref);
    bool backward = o->rank < 0;
    u64 rank = backward ? 0 - (u64)o->rank : (u64)o->rank;
    u64 wanted = o->count < 0 ? 1 : o->count == 0 ? UINT64_MAX : (u64)o->count;
    u64 look_at = o->max_len == 0 ? size : MIN(size, (u64)o->max_len);
    u64 matches = 0, found = 0;
    struct seq_iter it;
    bytes element;
    seq->iter(c->eng, ref, backward ? size - 1 : 0, backward, &it);
    for (u64 i = 0; i < look_at && found < wanted && seq->next(&it, &element); i++) {
        if (!bytes_eq(element, value) || ++matches < rank) continue;
        reply_int(c->out, (i64)(backward ? size - 1 - i : i));
        found++;
    }
    return found;
}

void cmd_lpos(struct ctx *c)
{
    struct lpos_options o;
    struct key_ref ref;
    if (!lpos_parse(c, &o)) return;
    err e = ctx_read(c, c->argv[1], TYPE_LIST, &ref);
    if (e == ERR_TYPE) return;
    size_t mark = reply_mark(c->out);
    u64 found = e == OK ? lpos_search(c, &ref, c->argv[2], &o) : 0;
    if (o.count >= 0) reply_array_at(c->out, mark, found);
    else if (found == 0) reply_null(c->out);
}
