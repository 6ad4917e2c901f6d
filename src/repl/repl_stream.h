/* The stream of replication: every change to the data as bytes, from some position on. A replica that is
 * being fed is a cursor in it, and what it has not been sent yet is held for it; beyond that the newest
 * bytes are kept for those who come back (the backlog).
 *
 * - A position is the number of bytes before it, since the stream's history began. (PSYNC counts from one:
 *   it asks for position + 1.)
 * - A history has a name, `id`. A server that goes on with another's data (a replica that was promoted, a
 *   primary that was started again) begins a new history: what comes up to `id2_end` is the same under both
 *   names.
 * - What is appended is *staged*, and seen by nobody, until it is published: the data it tells of is
 *   committed then. Or it is taken back. */
#ifndef MAYFLY_REPL_REPL_STREAM_H
#define MAYFLY_REPL_REPL_STREAM_H

#include "base/bytes.h"

#define STREAM_ID 40
#define STREAM_NO_ID "0000000000000000000000000000000000000000"

struct stream_block;

struct stream_cursor {
    u64 at;                      /* position */
    struct stream_block *block;  /* holds the byte at `at`, or is the last one; NULL: none there yet */
    struct stream_cursor *prev, *next; /* of the stream's */
    bool open;
};

struct stream {
    char id[STREAM_ID + 1], id2[STREAM_ID + 1];
    i64 id2_end;                 /* -1: there is no id2 */
    u64 begin, end;              /* positions: of the oldest byte kept, and behind the last one published */
    u64 staged;                  /* bytes behind `end` */
    struct stream_block *first, *last;
    struct stream_cursor *cursors;
    u64 memory;                  /* bytes of all blocks */
};

/* A history of this name, that begins here. `id` is STREAM_ID characters. */
void stream_init(struct stream *s, const char *id, u64 position);
void stream_release(struct stream *s); /* no cursor may be open */

void stream_append(struct stream *s, bytes b);
void stream_publish(struct stream *s);
void stream_take_back(struct stream *s); /* what is staged */

/* Goes on under a new name; the old one becomes id2, good up to here. */
void stream_rename(struct stream *s, const char *id);

/* Forgets all bytes: another history begins at `position`, and has no id2. No cursor may be open. */
void stream_restart(struct stream *s, const char *id, u64 position);

/* Whether someone who has everything of history `id` up to `position` can go on from there. */
bool stream_continues(const struct stream *s, bytes id, u64 position);

/* A cursor at a position that is kept (begin <= position <= end). It stays where it is, and what comes after
 * it is held, until it is moved or closed. Closing one that is not open is fine. */
void stream_open(struct stream *s, struct stream_cursor *c, u64 position);
void stream_close(struct stream *s, struct stream_cursor *c);
/* What is published, in one piece; empty: at the end. */
bytes stream_peek(const struct stream *s, struct stream_cursor *c);
void stream_move(struct stream *s, struct stream_cursor *c, u64 n);

/* Frees blocks that no cursor needs and that lie more than `keep` bytes before the end. */
void stream_trim(struct stream *s, u64 keep);

#endif
