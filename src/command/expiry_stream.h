/* expiry-stream: a stream that records every key and hash field that has expired, in the same transaction and
 * the same journal record as its deletion. An entry has the fields
 *
 *   key · db · type · deadline · reclaimed [· field]        times in ms, deadline the one that passed
 *
 * Keys expire during walks and other commands, where nothing else may be written: so they are noted then, and
 * written to the stream at the end of the command or of the slice of the cycle. The stream's own expiry is
 * not recorded. */
#ifndef MAYFLY_COMMAND_EXPIRY_STREAM_H
#define MAYFLY_COMMAND_EXPIRY_STREAM_H

#include "keyspace/keyspace.h"

/* One word, so that the end of a request has one question to ask. */
enum { RECORD_ENDS_NOTED = 1, /* something is in `noted` */ RECORD_ENDS_SITE = 2 /* region_site_ran */ };

struct expiry_stream {
    struct buf name;   /* of the stream, in database 0; empty: off */
    u64 maxlen;        /* maximum number of entries; 0: no limit */
    struct buf noted;  /* not written yet */
    u32 ends;          /* RECORD_ENDS_*: what is to be done when the region's record ends */
    u64 told, lost;    /* lost: the key has another type, or its IDs are used up */
};

/* Turns it on, or off with an empty name. */
void expiry_stream_set(struct expiry_stream *x, struct keyspace *ks, bytes name, u64 maxlen);
void expiry_stream_release(struct expiry_stream *x);

static inline bool expiry_stream_on(const struct expiry_stream *x) { return x->name.n > 0; }

/* Writes what was noted, with its effects, into the open record; or drops it. */
void expiry_stream_tell(struct expiry_stream *x, struct keyspace *ks);
static inline void expiry_stream_forget(struct expiry_stream *x)
{
    buf_clear(&x->noted);
    x->ends &= ~(u32)RECORD_ENDS_NOTED;
}

#endif
