#include "site/backlog.h"

#include "base/alloc.h"

struct site_backlog_item {
    struct site_dot dot;
    struct buf raw;
};

void site_backlog_init(struct site_backlog *b, size_t limit, const struct site_clock *now)
{
    *b = (struct site_backlog){.limit = limit, .from = *now};
}

static struct site_backlog_item *backlog_at(const struct site_backlog *b, u32 i)
{
    return &b->items[(b->first + i) % b->room];
}

static void backlog_drop_first(struct site_backlog *b)
{
    struct site_backlog_item *item = backlog_at(b, 0);
    b->bytes -= item->raw.n;
    b->from.seq[item->dot.gid] = MAX(b->from.seq[item->dot.gid], item->dot.seq);
    buf_release(&item->raw);
    b->first = (b->first + 1) % b->room;
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

void site_backlog_add(struct site_backlog *b, struct site_dot dot, bytes raw)
{
    if (b->n == b->room) backlog_grow(b);
    struct site_backlog_item *item = backlog_at(b, b->n++);
    *item = (struct site_backlog_item){.dot = dot};
    buf_append_bytes(&item->raw, raw);
    b->bytes += raw.n;
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
        *raw = buf_bytes(&item->raw);
        ++*number;
        return true;
    }
    return false;
}
