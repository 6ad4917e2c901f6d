#include "site/backlog.h"

#include "base/alloc.h"

struct site_backlog_item {
    struct site_dot dot;
    bytes raw;
    char *batch; /* the memory of this one and of those before it, if it is the last of its batch; or NULL */
};

#define COPIED_MAX ((size_t)1 << 20) /* bytes of a batch that is copied */

/* Before each effect in a batch. */
struct backlog_head {
    struct site_dot dot;
    size_t n;
};

void site_backlog_init(struct site_backlog *b, size_t limit, const struct site_clock *now)
{
    *b = (struct site_backlog){.limit = limit, .from = *now};
}

static struct site_backlog_item *backlog_at(const struct site_backlog *b, u32 i)
{
    return &b->items[(b->first + i) & (b->room - 1)];
}

static void backlog_drop_first(struct site_backlog *b)
{
    struct site_backlog_item *item = backlog_at(b, 0);
    b->bytes -= item->raw.n;
    b->from.seq[item->dot.gid] = MAX(b->from.seq[item->dot.gid], item->dot.seq);
    mem_free(item->batch);
    b->first = (b->first + 1) & (b->room - 1);
    b->n--;
    b->number++;
}

void site_backlog_release(struct site_backlog *b)
{
    while (b->n) backlog_drop_first(b);
    mem_free(b->items);
    b->items = NULL;
}

static void backlog_grow(struct site_backlog *b)
{
    u32 room = b->room ? b->room * 2 : 64;
    struct site_backlog_item *items = mem_alloc(room * sizeof *items);
    for (u32 i = 0; i < b->n; i++) items[i] = *backlog_at(b, i);
    mem_free(b->items);
    b->items = items;
    b->room = room;
    b->first = 0;
}

void site_backlog_gather(struct buf *batch, struct site_dot dot, bytes raw)
{
    struct backlog_head head = {dot, raw.n};
    buf_reserve(batch, sizeof head + raw.n);
    buf_append(batch, &head, sizeof head);
    buf_append_bytes(batch, raw);
}

/* The memory of a batch: exactly as much as it needs. The buffer keeps its room for the next one. */
static char *backlog_batch(struct buf *batch)
{
    if (batch->n <= COPIED_MAX) return memcpy(mem_alloc(batch->n), batch->p, batch->n);
    if (batch->cap - batch->n > batch->n / 4) buf_trim(batch);
    char *p = batch->p;
    *batch = (struct buf){0};
    return p;
}

void site_backlog_add(struct site_backlog *b, struct buf *batch)
{
    struct site_backlog_item *item = NULL;
    struct backlog_head head;
    size_t n = batch->n;
    if (n == 0) return;
    char *p = backlog_batch(batch);
    for (size_t at = 0; at < n; at += sizeof head + head.n) {
        memcpy(&head, p + at, sizeof head);
        if (b->n == b->room) backlog_grow(b);
        item = backlog_at(b, b->n++);
        *item = (struct site_backlog_item){head.dot, bytes_of(p + at + sizeof head, head.n), NULL};
        b->bytes += head.n;
    }
    item->batch = p;
    buf_clear(batch);
    while (b->bytes > b->limit && b->n > 1) backlog_drop_first(b);
}

void site_backlog_gap(struct site_backlog *b, const struct site_clock *now)
{
    while (b->n) backlog_drop_first(b);
    b->number++; /* even readers at the end lack changes that were not effects */
    b->from = *now;
}

bool site_backlog_reaches(const struct site_backlog *b, const struct site_clock *clock)
{
    return site_clock_covers(clock, &b->from);
}

bool site_backlog_next(const struct site_backlog *b, const struct site_clock *clock, u64 *number, bytes *raw,
                       bool *lost)
{
    *lost = *number < b->number;
    for (; !*lost && *number < b->number + b->n; ++*number) {
        const struct site_backlog_item *item = backlog_at(b, (u32)(*number - b->number));
        if (site_covers(clock, item->dot)) continue;
        *raw = item->raw;
        ++*number;
        return true;
    }
    return false;
}
