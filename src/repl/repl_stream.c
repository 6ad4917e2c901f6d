/* Blocks in a chain, each with the position of its first byte: what is appended fills the last one and then
 * new ones, so that nothing is ever moved. A cursor pins the block it is in. Blocks are freed from the front
 * only, up to the first that is pinned: what lies behind it, its cursors still need.
 *
 * - An open cursor always has a block, which holds the byte at its position, or ends there.
 * - Staged bytes are in the last blocks; positions beyond `end` have no cursor. */
#include "repl/repl_stream.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/err.h"

#define BLOCK_BYTES ((size_t)64 << 10) /* with its head */
#define BLOCK_MAX ((size_t)1 << 20)    /* for a big value: fewer pieces, and still freed in parts */

struct stream_block {
    struct stream_block *prev, *next;
    u64 at; /* position of its first byte */
    size_t n, cap;
    u32 pins;
    char data[];
};

#define HEAD sizeof(struct stream_block)

/* -- blocks -------------------------------------------------------------------------------------------- */

static u64 end_of(const struct stream_block *b) { return b->at + b->n; }

/* A new last block, for at least a part of `want` bytes. */
static struct stream_block *add_block(struct stream *s, size_t want)
{
    size_t size = MIN(MAX(want, BLOCK_BYTES - HEAD), BLOCK_MAX - HEAD) + HEAD;
    struct stream_block *b = mem_alloc(size);
    *b = (struct stream_block){.prev = s->last, .at = s->end + s->staged, .cap = size - HEAD};
    if (s->last) s->last->next = b;
    else s->first = b;
    s->last = b;
    s->memory += size;
    return b;
}

static void free_block(struct stream *s, struct stream_block *b)
{
    CHECK(!b->pins);
    if (b->prev) b->prev->next = b->next;
    else s->first = b->next;
    if (b->next) b->next->prev = b->prev;
    else s->last = b->prev;
    s->memory -= b->cap + HEAD;
    mem_free(b);
}

static void free_all(struct stream *s)
{
    CHECK(!s->cursors);
    while (s->first) free_block(s, s->first);
}

/* -- life and names -------------------------------------------------------------------------------------- */

static void set_id(char to[STREAM_ID + 1], const char *id)
{
    memcpy(to, id, STREAM_ID);
    to[STREAM_ID] = '\0';
}

void stream_init(struct stream *s, const char *id, u64 position)
{
    *s = (struct stream){.begin = position, .end = position, .id2_end = -1};
    set_id(s->id, id);
    set_id(s->id2, STREAM_NO_ID);
}

void stream_release(struct stream *s) { free_all(s); }

void stream_rename(struct stream *s, const char *id)
{
    set_id(s->id2, s->id);
    s->id2_end = (i64)s->end;
    set_id(s->id, id);
}

void stream_restart(struct stream *s, const char *id, u64 position)
{
    free_all(s);
    stream_init(s, id, position);
}

bool stream_continues(const struct stream *s, bytes id, u64 position)
{
    if (id.n != STREAM_ID || position < s->begin || position > s->end) return false;
    if (strncasecmp(id.p, s->id, STREAM_ID) == 0) return true;
    return s->id2_end >= 0 && position <= (u64)s->id2_end && strncasecmp(id.p, s->id2, STREAM_ID) == 0;
}

/* -- appending ------------------------------------------------------------------------------------------- */

void stream_append(struct stream *s, bytes b)
{
    while (b.n) {
        struct stream_block *to = s->last;
        if (UNLIKELY(!to || to->n == to->cap)) to = add_block(s, b.n);
        size_t n = MIN(b.n, to->cap - to->n);
        memcpy(to->data + to->n, b.p, n);
        to->n += n;
        s->staged += n;
        b = bytes_of(b.p + n, b.n - n);
    }
}

void stream_publish(struct stream *s)
{
    s->end += s->staged;
    s->staged = 0;
}

/* A cursor at the end may be in a block of which everything is staged: that one stays, empty. */
void stream_take_back(struct stream *s)
{
    if (!s->staged) return;
    s->staged = 0;
    while (s->last && s->last->at >= s->end && !s->last->pins) free_block(s, s->last);
    if (s->last) s->last->n = (size_t)(s->end - s->last->at);
}

/* -- cursors --------------------------------------------------------------------------------------------- */

static void pin(struct stream_cursor *c, struct stream_block *b)
{
    b->pins++;
    if (c->block) c->block->pins--;
    c->block = b;
}

/* From the end of a block to the beginning of the next. */
static void repl_stream_settle(struct stream_cursor *c)
{
    while (c->at == end_of(c->block) && c->block->next) pin(c, c->block->next);
}

void stream_open(struct stream *s, struct stream_cursor *c, u64 position)
{
    CHECK(!c->open && position >= s->begin && position <= s->end);
    struct stream_block *b = s->last ? s->last : add_block(s, 0);
    while (b->at > position) b = b->prev;
    *c = (struct stream_cursor){.at = position, .next = s->cursors, .open = true};
    pin(c, b);
    if (s->cursors) s->cursors->prev = c;
    s->cursors = c;
}

void stream_close(struct stream *s, struct stream_cursor *c)
{
    if (!c->open) return;
    c->block->pins--;
    if (c->prev) c->prev->next = c->next;
    else s->cursors = c->next;
    if (c->next) c->next->prev = c->prev;
    *c = (struct stream_cursor){.at = c->at};
}

bytes stream_peek(const struct stream *s, struct stream_cursor *c)
{
    repl_stream_settle(c);
    u64 until = MIN(end_of(c->block), s->end);
    return bytes_of(c->block->data + (c->at - c->block->at), (size_t)(until - c->at));
}

void stream_move(struct stream *s, struct stream_cursor *c, u64 n)
{
    CHECK(n <= s->end - c->at);
    c->at += n;
    while (c->at > end_of(c->block)) pin(c, c->block->next);
    repl_stream_settle(c);
}

/* -- trimming -------------------------------------------------------------------------------------------- */

void stream_trim(struct stream *s, u64 keep)
{
    while (s->first && !s->first->pins) {
        u64 end = end_of(s->first);
        if (end > s->end || s->end - end < keep) break;
        free_block(s, s->first);
    }
    s->begin = s->first ? s->first->at : s->end;
}
