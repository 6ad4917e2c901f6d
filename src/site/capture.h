/* Local writes become effects. While an engine is captured, its table of primitives is a copy in which those
 * that write are the site's: each changes the key's metadata, notes the moves for other sites, and then calls
 * the engine's own. Primitives that read are the engine's own, so a plain read costs what it costs without
 * sites, and a server without sites has no such table.
 *
 *     site_capture_open(&c, e, databases, gid);
 *     … e->ops->str.put(e, …)                     moves are gathered in an effect
 *     site_capture_end(&c);                       the request ends: the effect is emitted (site.emit)
 *
 * Moves of one effect can't remove what the same effect made, because removal is by clock. So an effect ends
 * where a write would have to, and the next one begins: `DEL k` after `SET k` in a MULTI. All effects up to
 * site_capture_end() are a piece: all but the last carry MOVE_MORE, and others apply them together.
 *
 * A put says no more than the new value. What a command means by it (an increment, a change in place) it
 * states in engine.intent just before; without that it is a plain write.
 *
 * A key that is past its deadline is not written to: dropping it is an expiry (site_expire), and so is the
 * first write to a name under which something is left that is past its deadline.
 *
 * Streams are not replicated: their rows are left alone, and the site's tables don't know them. Nor are
 * staging databases: what is renamed out of them is a new key. */
#ifndef MAYFLY_SITE_CAPTURE_H
#define MAYFLY_SITE_CAPTURE_H

#include "site/site.h"

struct site_capture {
    struct site site;
    const struct engine_ops *own; /* the engine's table, which the site layer itself uses */
    struct engine_ops ops;        /* the copy */
    struct site_key key;          /* that of the last primitive, if `keyed` */
    bool keyed;
    bool paused;                  /* the engine has its own table just now */
    bool text;                    /* `key` is a string whose bytes the caller may still change (str.edit) */
};

void site_capture_open(struct site_capture *c, struct engine *e, u32 databases, u8 gid);
void site_capture_release(struct site_capture *c); /* gives the engine its own table back */
void site_capture_end(struct site_capture *c);

/* For everything of the site layer but the primitives (site_receive, site_expire, site_collect …): ends the
 * open effect, and has the engine use `ops` (its own table: c->own) until resume. */
void site_capture_pause(struct site_capture *c, const struct engine_ops *ops);
void site_capture_resume(struct site_capture *c);

#endif
