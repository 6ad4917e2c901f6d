/* Names made into numbers.
 *
 * Some names are looked at to learn which symbols stand at which place behind the prefix all names
 * share. That makes names into numbers, whose order is the names' order, with as few numbers that
 * are no name as possible: "member:0" … "member:999999" fill more than half of theirs. */
#ifndef MAYFLY_ENGINE_ROCKS_TYPE_NUMBERING_H
#define MAYFLY_ENGINE_ROCKS_TYPE_NUMBERING_H

#include "base/arena.h"
#include "base/bytes.h"

#define NUMBERING_PLACES 24 /* behind the prefix that are looked at */

/* The symbols of a place. */
struct symbols {
    u64 seen[4];   /* a bit for each byte */
    u32 low, high; /* the least and the greatest of them; low > high: none */
    bool ends;     /* some name ends before this place: that is the symbol before all others */
};

/* How names that begin with a prefix are made into numbers. */
struct numbering {
    bytes prefix;
    u32 places;            /* in use */
    struct symbols place[NUMBERING_PLACES];
    u64 width[NUMBERING_PLACES + 1]; /* how many numbers the symbols from a place on make */
    u64 low, high;         /* the numbers of the first and the last name */
    char *name;            /* the prefix again, and room to write the rest of a name */
};

/* Of the names from the first to the last one; nothing is learned yet. It is the arena's, and the prefix a
 * part of the first name. */
struct numbering *numbering_new(bytes first, bytes last, struct arena *arena);

/* Names that were met, all with the prefix; then numbering_end, before which there are no numbers. */
void numbering_learn(struct numbering *d, bytes name);
void numbering_end(struct numbering *d, bytes first, bytes last);

/* A name's number, from low to high. One with a byte not known at its place lies right before the next
 * known one. */
u64 numbering_number(const struct numbering *d, bytes name);

/* These names are good until the next of these calls. */

/* The least name with this number. */
bytes numbering_name(const struct numbering *d, u64 number);
/* A name that may lie anywhere, to look for more to learn: at each place any byte between the least and the
 * greatest seen there, or any one seen somewhere, so that new ones are met. */
bytes numbering_any(const struct numbering *d, u64 *rng);
/* Where the names begin that have a greater symbol behind the prefix than this one; p NULL: nowhere. */
bytes numbering_beyond(const struct numbering *d, bytes name);

#endif
