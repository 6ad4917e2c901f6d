/* Keys that wait to be merged (full.h). They may not fit in memory, so they are written to an unlinked file,
 * in parts by the hash of the key's name. The same key of both sites is in the same part, so the parts are
 * merged one by one, and only one is in memory at a time. */
#ifndef MAYFLY_SITE_STAGE_H
#define MAYFLY_SITE_STAGE_H

#include "site/code.h"

#define STAGE_PARTS 256

struct site_stage {
    int fd; /* 0: none so far */
    u64 end;
    struct site_stage_part *parts;
};

/* False: errno says why. An empty dump: a key of this site. */
bool site_stage_add(struct site_stage *g, u32 db, bytes name, bytes dump);
/* Appends database, name, dump, for each that was added to the part. False: errno. */
bool site_stage_load(struct site_stage *g, u32 part, struct buf *out);
void site_stage_release(struct site_stage *g);

#endif
