/* Full sync: merges the state of another site into ours. If one side's clock covers an atom that it lacks,
 * the atom was removed there. So nothing that was deleted reappears, and nothing that only we have is lost.
 *
 *     site_put_snapshot_head(a, &head);                           at site a
 *     site_put_key(a, db, name, &dump);                           for each of its keys (site_each_key)
 *
 *     struct site_merge m;
 *     site_merge_begin(b, &m, head, &why);                        at site b
 *     site_expire(b, db, name, NULL);                             for each of its keys, and
 *     site_expire_due_fields(b, db, name);                        if that is true
 *     site_merge_check(&m, dump, &why);                           for each dump
 *     site_merge_key(b, &m, db, name, dump);                      for each key of either, once
 *     site_merge_finish(b, &m);
 *
 * A dump is empty if a has no such key. All of it is one transaction. False means that the snapshot is
 * refused; only the HLC has changed. */
#ifndef MAYFLY_SITE_SYNC_H
#define MAYFLY_SITE_SYNC_H

#include "site/site.h"

struct site_merge {
    u8 gid;
    u64 hlc;
    struct site_clock clock;
    struct site_member members[SITE_GIDS];
    bool fenced[SITE_GIDS];
    u64 fence[SITE_GIDS];
    struct buf timed; /* keys with a deadline that has passed: database, name, dots of new ones, fields */
};

void site_put_snapshot_head(const struct site *s, struct buf *to);
void site_put_key(struct site *s, u32 db, bytes name, struct buf *to);
/* The same with a key and a cell of the caller's; nothing is written if there is no such key. */
void site_dump_key(struct site *s, struct site_key *k, struct site_cell *cell, u32 db, bytes name,
                   struct buf *to);

/* A torn site is completed only by a site that has as much as the one whose full sync was interrupted. */
#define SITE_NOT_COMPLETED "a full sync of the site is needed that one was interrupted of"
bool site_merge_completes(const struct site *s, const struct site_merge *m);
/* Begin is both: open reads the head and checks it, follow has our time follow theirs. */
bool site_merge_open(const struct site *s, struct site_merge *m, bytes head, const char **why);
void site_merge_follow(struct site *s, const struct site_merge *m);
bool site_merge_begin(struct site *s, struct site_merge *m, bytes head, const char **why);
bool site_merge_check(const struct site_merge *m, bytes dump, const char **why);
void site_merge_key(struct site *s, struct site_merge *m, u32 db, bytes name,
                    bytes dump); /* one that was checked */
/* The same in a transaction before that of site_merge_finish(). False: the key is not merged yet, because
 * that would take content which site_merge_finish() writes again. If the site stopped in between, no site
 * would have it. */
bool site_merge_key_early(struct site *s, struct site_merge *m, u32 db, bytes name, bytes dump);
void site_merge_finish(struct site *s, struct site_merge *m);
void site_merge_release(struct site_merge *m);

#endif
