/* Consumer groups of a stream: groups, consumers, and pending entries (delivered but not acknowledged). */
#ifndef MAYFLY_XSTREAM_XGROUP_H
#define MAYFLY_XSTREAM_XGROUP_H

#include "xstream/xstream.h"

#define ENTRIES_READ_UNKNOWN (-1)
#define NEVER_ACTIVE (-1)

struct xgroup {
    u32 number;            /* identifies the group in the rows of its consumers and pending entries */
    u32 next_consumer;     /* the number the next consumer gets */
    struct stream_id last; /* last delivered ID */
    i64 entries_read;      /* entries ever added up to `last`, or ENTRIES_READ_UNKNOWN */
    u64 pending;
    u32 consumers;
};

struct xconsumer {
    u32 number;
    i64 seen_ms;   /* when it last attempted to read or claim */
    i64 active_ms; /* when it last got or claimed an entry; NEVER_ACTIVE: not yet */
    u64 pending;
};

struct xpending {
    u32 consumer;
    i64 time_ms; /* time of the last delivery */
    u64 count;   /* number of deliveries */
};

/* The structs are copies: after changing one, store it again with its put function. */
bool xgroup_find(struct xstream *s, bytes name, struct xgroup *g);
void xgroup_put(struct xstream *s, bytes name, const struct xgroup *g);
void xgroup_create(struct xstream *s, bytes name, struct stream_id last, i64 entries_read, struct xgroup *g);
void xgroup_destroy(struct xstream *s, bytes name, const struct xgroup *g);

bool xconsumer_find(struct xstream *s, const struct xgroup *g, bytes name, struct xconsumer *c);
void xconsumer_put(struct xstream *s, const struct xgroup *g, bytes name, const struct xconsumer *c);
void xconsumer_create(struct xstream *s, struct xgroup *g, bytes name, i64 now_ms, struct xconsumer *c);
void xconsumer_delete(struct xstream *s, struct xgroup *g, bytes name, const struct xconsumer *c);
bytes xconsumer_name(struct xstream *s, const struct xgroup *g,
                     u32 number); /* good while nothing is written */

/* How long ago that is, or was said to be by a payload: any number. */
static inline i64 xidle_ms(i64 now_ms, i64 then_ms) { return (i64)((u64)now_ms - (u64)then_ms); }

/* These keep the counts of group and consumers: of `g`, which the caller puts, and of the consumers in
 * question, except that the counts of `self` (may be NULL) are changed there, for the caller to put. */
bool xpending_find(struct xstream *s, const struct xgroup *g, struct stream_id id, struct xpending *p);
void xpending_put(struct xstream *s, struct xgroup *g, struct xconsumer *self, struct stream_id id,
                  const struct xpending *p);
bool xpending_delete(struct xstream *s, struct xgroup *g, struct xconsumer *self, struct stream_id id);
void xpending_read(bytes row, struct xpending *p); /* a row's value */

/* By group, or by consumer (consumer != NULL). */
void xpending_walk(struct xwalk *w, struct xstream *s, const struct xgroup *g,
                   const struct xconsumer *consumer, struct stream_id from, struct stream_id to,
                   bool reverse);

/* Walks over groups or consumers in name order. A name is valid until the next step. */
struct xname_walk {
    struct xstream *s;
    struct xrow prefix;
    struct rows_iter it;
    struct buf name;
};
void xgroup_walk(struct xname_walk *w, struct xstream *s);
bool xgroup_next(struct xname_walk *w, bytes *name, struct xgroup *g);
void xconsumer_walk(struct xname_walk *w, struct xstream *s, const struct xgroup *g);
bool xconsumer_next(struct xname_walk *w, bytes *name, struct xconsumer *c);
void xname_walk_end(struct xname_walk *w);

/* Entries of other sites (docs/sites.md) may come below the ID that a group has delivered last. They are then
 * pending at this consumer, with a count of 0, until XREADGROUP > delivers them: so files and replicas have
 * them as Redis knows pending entries. Called when such an entry was inserted. */
#define XGROUP_LATE BYTES_LIT("site:late")
void xgroup_note_late(struct xstream *s, struct stream_id id);

/* Redis's logical counters. entries_up_to: how many entries were ever added up to this ID, or
 * ENTRIES_READ_UNKNOWN. holes_after: whether an entry at or after this ID was deleted. lag: how many entries
 * the group has yet to read; false: unknown. */
i64 xstream_entries_up_to(const struct xstream *s, struct stream_id id);
bool xstream_holes_after(const struct xstream *s, struct stream_id id);
bool xgroup_lag(const struct xstream *s, const struct xgroup *g, i64 *lag);

/* Advances the group's last ID and counters to an entry that is delivered for the first time. */
void xgroup_advance(const struct xstream *s, struct xgroup *g, struct stream_id id);

#endif
