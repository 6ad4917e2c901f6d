/* expiry-stream: a stream that tells of every key and hash field that has expired, in the same transaction
 * and the same journal record in which it goes. An entry has the fields
 *
 *   key · db · type · deadline · reclaimed [· field]        times in ms, deadline the one that passed
 *
 * Keys die in the midst of walks and of other commands, where nothing else may be written: so they are noted
 * then, and told when the command, or the slice of the cycle, is through. Its own expiry it does not tell. */
#ifndef MAYFLY_COMMAND_EXPIRY_STREAM_H
#define MAYFLY_COMMAND_EXPIRY_STREAM_H

#include "keyspace/keyspace.h"

struct expiry_stream {
    struct buf name;   /* of the stream, in database 0; empty: off */
    u64 maxlen;        /* entries at the most; 0: any number */
    struct buf noted;  /* not told yet */
    u64 told, lost;    /* lost: the name belongs to something else, or its IDs are used up */
};

/* Turns it on, or off with an empty name. */
void expiry_stream_set(struct expiry_stream *x, struct keyspace *ks, bytes name, u64 maxlen);
void expiry_stream_release(struct expiry_stream *x);

static inline bool expiry_stream_on(const struct expiry_stream *x) { return x->name.n > 0; }

/* Writes what was noted, with its effects, into the open record; or forgets it. */
void expiry_stream_tell(struct expiry_stream *x, struct keyspace *ks);
static inline void expiry_stream_forget(struct expiry_stream *x) { buf_clear(&x->noted); }

#endif
