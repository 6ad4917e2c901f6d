/* A chain of blocks, each with the position of its first byte. Appending fills the last block and then adds
 * new ones, so nothing is ever moved. A cursor pins its block. Blocks are freed only from the front, up to
 * the first one that is pinned, because its cursors still need everything after it.
 *
 * - An open cursor always has a block, which holds the byte at its position or ends there.
 * - Staged bytes are in the last blocks; no cursor is beyond `end`. */
#include "repl/repl_stream.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/err.h"

#define BLOCK_BYTES ((size_t)64 << 10) /* header included */
#define BLOCK_MAX ((size_t)1 << 20)    /* for a big value: fewer blocks, still freed in parts */

struct repl_stream_block {
    struct repl_stream_block *prev, *next;
    u64 at; /* position of its first byte */
    size_t n, cap;
    u32 pins;
    char data[];
};

#define HEAD sizeof(struct repl_stream_block)

/* -- blocks -------------------------------------------------------------------------------------------- */

static u64 end_of(const struct repl_stream_block *b) { return b->at + b->n; }

/* Appends a block that holds at least a part of `want` bytes. */
static struct repl_stream_block *add_block(struct repl_stream *s, size_t want)
{
    size_t size = MIN(MAX(want, BLOCK_BYTES - HEAD), BLOCK_MAX - HEAD) + HEAD;
    struct repl_stream_block *b = mem_alloc(size);
    *b = (struct repl_stream_block){.prev = s->last, .at = s->end + s->staged, .cap = size - HEAD};
    if (s->last) s->last->next = b;
    else s->first = b;
    s->last = b;
    s->memory += size;
    return b;
}

static void free_block(struct repl_stream *s, struct repl_stream_block *b)
{
    CHECK(!b->pins);
    if (b->prev) b->prev->next = b->next;
    else s->first = b->next;
    if (b->next) b->next->prev = b->prev;
    else s->last = b->prev;
    s->memory -= b->cap + HEAD;
    mem_free(b);
}

static void free_all(struct repl_stream *s)
{
    CHECK(!s->cursors);
    while (s->first) free_block(s, s->first);
}

/* -- life and names -------------------------------------------------------------------------------------- */

static void set_id(char to[REPL_ID + 1], const char *id)
{
    memcpy(to, id, REPL_ID);
    to[REPL_ID] = '\0';
}

void repl_stream_init(struct repl_stream *s, const char *id, u64 position)
{
    *s = (struct repl_stream){.begin = position, .end = position, .id2_end = -1};
    set_id(s->id, id);
    set_id(s->id2, REPL_NO_ID);
}

void repl_stream_release(struct repl_stream *s) { free_all(s); }

void repl_stream_rename(struct repl_stream *s, const char *id)
{
    set_id(s->id2, s->id);
    s->id2_end = (i64)s->end;
    set_id(s->id, id);
}

void repl_stream_restart(struct repl_stream *s, const char *id, u64 position)
{
    free_all(s);
    repl_stream_init(s, id, position);
}

bool repl_stream_continues(const struct repl_stream *s, bytes id, u64 position)
{
    if (id.n != REPL_ID || position < s->begin || position > s->end) return false;
    if (strncasecmp(id.p, s->id, REPL_ID) == 0) return true;
    return s->id2_end >= 0 && position <= (u64)s->id2_end && strncasecmp(id.p, s->id2, REPL_ID) == 0;
}

/* -- appending ------------------------------------------------------------------------------------------- */

void repl_stream_append(struct repl_stream *s, bytes b)
{
    while (b.n) {
        struct repl_stream_block *to = s->last;
        if (UNLIKELY(!to || to->n == to->cap)) to = add_block(s, b.n);
        size_t n = MIN(b.n, to->cap - to->n);
        memcpy(to->data + to->n, b.p, n);
        to->n += n;
        s->staged += n;
        b = bytes_of(b.p + n, b.n - n);
    }
}

void repl_stream_publish(struct repl_stream *s)
{
    s->end += s->staged;
    s->staged = 0;
}

/* A cursor at the end may be in a block that holds only staged bytes: that block stays, empty. */
void repl_stream_take_back(struct repl_stream *s)
{
    if (!s->staged) return;
    s->staged = 0;
    while (s->last && s->last->at >= s->end && !s->last->pins) free_block(s, s->last);
    if (s->last) s->last->n = (size_t)(s->end - s->last->at);
}

/* -- cursors --------------------------------------------------------------------------------------------- */

static void pin(struct repl_stream_cursor *c, struct repl_stream_block *b)
{
    b->pins++;
    if (c->block) c->block->pins--;
    c->block = b;
}

/* Moves a cursor from the end of a block to the start of the next. */
static void repl_stream_settle(struct repl_stream_cursor *c)
{
    while (c->at == end_of(c->block) && c->block->next) pin(c, c->block->next);
}

void repl_stream_open(struct repl_stream *s, struct repl_stream_cursor *c, u64 position)
{
    CHECK(!c->open && position >= s->begin && position <= s->end);
    struct repl_stream_block *b = s->last ? s->last : add_block(s, 0);
    while (b->at > position) {
        b = b->prev;
        CHECK(b); /* the first block begins at s->begin */
    }
    *c = (struct repl_stream_cursor){.at = position, .next = s->cursors, .open = true};
    pin(c, b);
    if (s->cursors) s->cursors->prev = c;
    s->cursors = c;
}

void repl_stream_close(struct repl_stream *s, struct repl_stream_cursor *c)
{
    if (!c->open) return;
    c->block->pins--;
    if (c->prev) c->prev->next = c->next;
    else s->cursors = c->next;
    if (c->next) c->next->prev = c->prev;
    *c = (struct repl_stream_cursor){.at = c->at};
}

bytes repl_stream_peek(const struct repl_stream *s, struct repl_stream_cursor *c)
{
    repl_stream_settle(c);
    u64 until = MIN(end_of(c->block), s->end);
    return bytes_of(c->block->data + (c->at - c->block->at), (size_t)(until - c->at));
}

void repl_stream_move(struct repl_stream *s, struct repl_stream_cursor *c, u64 n)
{
    CHECK(n <= s->end - c->at);
    c->at += n;
    while (c->at > end_of(c->block)) pin(c, c->block->next);
    repl_stream_settle(c);
}

/* -- trimming -------------------------------------------------------------------------------------------- */

void repl_stream_trim(struct repl_stream *s, u64 keep)
{
    while (s->first && !s->first->pins) {
        u64 end = end_of(s->first);
        if (end > s->end || s->end - end < keep) break;
        free_block(s, s->first);
    }
    s->begin = s->first ? s->first->at : s->end;
}
