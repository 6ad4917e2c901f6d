/* Positions of list elements: bytes that sort as the elements do (memcmp, then length). A position never
 * changes.
 *
 * It has one part or several, each made of a number n, the dot of its effect, and an index i among the
 * elements that one command pushed. RPUSH uses the stamp of its effect as n, LPUSH its negative, so that
 * concurrent pushes lie in order of time. A position sorts after its prefix and before whatever follows
 * that, so there is room between two.
 *
 *     part = n (8 bytes, big-endian, sign flipped) · gid · seq · i
 *     seq, i = a length byte, then that many bytes */
#ifndef MAYFLY_SITE_PLACE_H
#define MAYFLY_SITE_PLACE_H

#include "site/clock.h"

#define SITE_PLACE_MAX 65536 /* bytes */

void site_put_place(struct buf *to, i64 n, struct site_dot dot, i64 i); /* a position of one part */
i64 site_place_n(bytes place);                                          /* n of its first part */
bool site_place_ok(bytes place);
/* A position between two neighbours; an empty slice stands for the list's end on that side, but not for
 * both. */
void site_put_place_between(struct buf *to, bytes before, bytes after, struct site_dot dot);

#endif
