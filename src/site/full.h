/* Receiving a full sync: the keys of another site are staged as they arrive, and merged a few at a time when
 * all of them have arrived and were checked (sync.h has the rules).
 *
 *     site_full_begin(&f, s, head, &why)           SITE.FULL
 *     site_full_key(&f, db, name, dump, &why)      SITE.KEY
 *     site_full_effect(&f, raw, &why)              SITE.EFFECT: made since the snapshot began
 *     site_full_start(&f)                          SITE.DONE: from now on `s` is torn
 *     while (site_full_step(&f, count, &why) == FULL_MORE) …   each in a transaction
 *
 * While it merges, site.torn is set: some keys are as of the other site's clock, and the site's own clock
 * does not include that yet. Until the last step the site takes no writes, applies no effects of others,
 * expires nothing (but at first: FULL_EXPIRING) and collects nothing, its time stands still, and it serves no
 * other site. If merging is interrupted (a crash, a failed commit), the site stays torn until another full
 * sync is merged. */
#ifndef MAYFLY_SITE_FULL_H
#define MAYFLY_SITE_FULL_H

#include "site/stage.h"
#include "site/sync.h"
#include "site/walk.h"

enum site_full_state {
    FULL_STAGING,
    FULL_EXPIRING, /* what is past its deadline here goes; our names are staged */
    FULL_MERGING,
    FULL_REPLAYING, /* effects that came meanwhile */
    FULL_DONE,
};

struct site_full {
    struct site *s;
    enum site_full_state state;
    u8 from; /* the other site */
    struct site_merge m;
    struct site_stage keys;
    struct buf effects; /* each with its length */
    size_t replayed;    /* so much of them */
    struct site_names own;
    u32 part;                   /* that is next */
    struct buf loaded;          /* the part that is being merged … */
    struct site_full_key *list; /* … its keys, in order … */
    u32 n, room, at;            /* … and which is next */
    struct buf last;            /* keys that have to be merged in the last step: database, name, dump */
};

bool site_full_begin(struct site_full *f, struct site *s, bytes head, const char **why);
bool site_full_key(struct site_full *f, u32 db, bytes name, bytes dump, const char **why);
bool site_full_effect(struct site_full *f, bytes raw, const char **why);
NODISCARD bool site_full_start(struct site_full *f); /* false: SITE_NOT_COMPLETED */

enum site_full_step { FULL_MORE, FULL_MERGED, FULL_FINISHED, FULL_FAILED };
/* Merges about `count` keys or effects. Returns MERGED once, when the clock has advanced: start a new
 * backlog. FINISHED: all effects are applied, too. */
enum site_full_step site_full_step(struct site_full *f, u32 count, const char **why);
void site_full_tear(struct site_full *f); /* a step was not kept: the site is torn */
void site_full_release(struct site_full *f);

#endif
