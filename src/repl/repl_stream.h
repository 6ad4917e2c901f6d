/* The replication stream: every change to the data as bytes, from some position on. Each replica has a cursor
 * in it, and bytes are kept until the cursor has passed them. Beyond that the newest bytes are kept for
 * replicas that reconnect (the backlog).
 *
 * - A position is the number of bytes before it, since the stream's history began. (PSYNC counts from one: it
 *   asks for position + 1.)
 * - A history has a name, `id` (Redis's replication ID). A server that continues with another's data (a
 *   promoted replica, a restarted primary) begins a new history; up to `id2_end` both names mean the same
 *   bytes.
 * - Appended bytes are *staged* and invisible until they are published, when the data they describe is
 *   committed. Otherwise they are taken back. */
#ifndef MAYFLY_REPL_REPL_STREAM_H
#define MAYFLY_REPL_REPL_STREAM_H

#include "base/bytes.h"

#define REPL_ID 40
#define REPL_NO_ID "0000000000000000000000000000000000000000"

struct repl_stream_block;

struct repl_stream_cursor {
    u64 at;                      /* position */
    struct repl_stream_block *block; /* holds the byte at `at`, or is the last one; NULL: no block yet */
    struct repl_stream_cursor *prev, *next; /* list of the stream's cursors */
    bool open;
};

struct repl_stream {
    char id[REPL_ID + 1], id2[REPL_ID + 1];
    i64 id2_end;                 /* -1: no id2 */
    u64 begin, end;              /* positions of the oldest byte kept, and after the last one published */
    u64 staged;                  /* bytes after `end` */
    struct repl_stream_block *first, *last;
    struct repl_stream_cursor *cursors;
    u64 memory;                  /* bytes of all blocks */
};

/* A history of this name that begins at `position`. `id` has REPL_ID characters. */
void repl_stream_init(struct repl_stream *s, const char *id, u64 position);
void repl_stream_release(struct repl_stream *s); /* no cursor may be open */

void repl_stream_append(struct repl_stream *s, bytes b);
void repl_stream_publish(struct repl_stream *s);
void repl_stream_take_back(struct repl_stream *s); /* discards staged bytes */

/* Continues under a new name; the old one becomes id2, valid up to here. */
void repl_stream_rename(struct repl_stream *s, const char *id);

/* Discards all bytes: another history begins at `position`, without id2. No cursor may be open. */
void repl_stream_restart(struct repl_stream *s, const char *id, u64 position);

/* Whether a replica that has everything of history `id` up to `position` can resume from there. */
bool repl_stream_continues(const struct repl_stream *s, bytes id, u64 position);

/* A cursor at a position that is kept (begin <= position <= end). What comes after it is kept until the
 * cursor is moved or closed. Closing one that is not open does nothing. */
void repl_stream_open(struct repl_stream *s, struct repl_stream_cursor *c, u64 position);
void repl_stream_close(struct repl_stream *s, struct repl_stream_cursor *c);
/* Published bytes at the cursor, in one piece; empty: it is at the end. */
bytes repl_stream_peek(const struct repl_stream *s, struct repl_stream_cursor *c);
void repl_stream_move(struct repl_stream *s, struct repl_stream_cursor *c, u64 n);

/* Frees blocks that no cursor needs and that lie more than `keep` bytes before the end. */
void repl_stream_trim(struct repl_stream *s, u64 keep);

#endif
