/* See transfer.h. In a transfer that ends with a mark, the last TRANSFER_MARK - 1 bytes are held back in
 * `tail`, because the mark may be split between two reads. */
#include "repl/transfer.h"

#include "base/num.h"

void transfer_init(struct transfer *t) { *t = (struct transfer){0}; }

/* -- the header ------------------------------------------------------------------------------------- */

static err parse_header(struct transfer *t)
{
    bytes line = bytes_of(t->line, t->line_n);
    i64 size;
    if (line.n == 5 + TRANSFER_MARK && memcmp(line.p, "$EOF:", 5) == 0) {
        memcpy(t->mark, line.p + 5, TRANSFER_MARK);
        t->stage = TRANSFER_MARKED;
        return OK;
    }
    if (line.p[0] != '$' || !num_parse_i64(bytes_of(line.p + 1, line.n - 1), &size) || size < 0)
        return ERR_SYNTAX;
    t->size = (u64)size;
    t->stage = TRANSFER_SIZED;
    return OK;
}

static err take_header(struct transfer *t, bytes in, size_t *used)
{
    while (*used < in.n) {
        char c = in.p[(*used)++];
        if (c != '\n') {
            if (t->line_n == TRANSFER_LINE) return ERR_SYNTAX;
            t->line[t->line_n++] = c;
            continue;
        }
        if (t->line_n && t->line[t->line_n - 1] == '\r') t->line_n--;
        t->line[t->line_n] = '\0';
        if (t->line_n) return parse_header(t);
    }
    return ERR_AGAIN;
}

/* -- the data --------------------------------------------------------------------------------------- */

static bool transfer_hand_on(struct transfer *t, struct rdb_sink *out, const char *p, size_t n)
{
    t->received += n;
    return n == 0 || out->write(out, bytes_of(p, n));
}

static err take_sized(struct transfer *t, bytes in, struct rdb_sink *out, size_t *used)
{
    size_t n = (size_t)MIN(t->size - t->received, (u64)in.n);
    *used += n;
    if (!transfer_hand_on(t, out, in.p, n)) return ERR_LIMIT;
    if (t->received < t->size) return ERR_AGAIN;
    t->stage = TRANSFER_DONE;
    return OK;
}

/* Where the mark begins, if it begins in the tail; otherwise NULL. */
static const char *mark_from_tail(const struct transfer *t, bytes in, char joint[2 * TRANSFER_MARK])
{
    size_t n = MIN(in.n, (size_t)TRANSFER_MARK - 1);
    if (!t->tail_n) return NULL;
    memcpy(joint, t->tail, t->tail_n);
    memcpy(joint + t->tail_n, in.p, n);
    return memmem(joint, t->tail_n + n, t->mark, TRANSFER_MARK);
}

/* No mark so far: holds the last bytes back. */
static bool keep_tail(struct transfer *t, bytes in, struct rdb_sink *out)
{
    size_t total = t->tail_n + in.n, keep = MIN(total, (size_t)TRANSFER_MARK - 1);
    size_t of_tail = MIN(total - keep, (size_t)t->tail_n), of_in = total - keep - of_tail;
    if (!transfer_hand_on(t, out, t->tail, of_tail) || !transfer_hand_on(t, out, in.p, of_in)) return false;
    t->tail_n -= (u32)of_tail;
    memmove(t->tail, t->tail + of_tail, t->tail_n);
    memcpy(t->tail + t->tail_n, in.p + of_in, in.n - of_in);
    t->tail_n = (u32)keep;
    return true;
}

static err transfer_take_marked(struct transfer *t, bytes in, struct rdb_sink *out, size_t *used)
{
    char joint[2 * TRANSFER_MARK];
    bool ok;
    const char *at = mark_from_tail(t, in, joint);
    if (at) {
        *used += (size_t)(at - joint) + TRANSFER_MARK - t->tail_n;
        ok = transfer_hand_on(t, out, joint, (size_t)(at - joint));
    } else if ((at = memmem(in.p, in.n, t->mark, TRANSFER_MARK))) {
        *used += (size_t)(at - in.p) + TRANSFER_MARK;
        ok = transfer_hand_on(t, out, t->tail, t->tail_n) &&
             transfer_hand_on(t, out, in.p, (size_t)(at - in.p));
    } else {
        *used += in.n;
        return keep_tail(t, in, out) ? ERR_AGAIN : ERR_LIMIT;
    }
    t->stage = TRANSFER_DONE;
    return ok ? OK : ERR_LIMIT;
}

err transfer_take(struct transfer *t, bytes in, struct rdb_sink *out, size_t *used)
{
    *used = 0;
    if (t->stage == TRANSFER_HEADER) {
        err e = take_header(t, in, used);
        if (e) return e;
    }
    in = bytes_of(in.p + *used, in.n - *used);
    if (t->stage == TRANSFER_SIZED) return take_sized(t, in, out, used);
    return in.n ? transfer_take_marked(t, in, out, used) : ERR_AGAIN;
}
