/* Turns local writes into effects. While an engine is captured, its table of primitives is a copy in which
 * the writing primitives are the site's: each changes the key's metadata, records the moves for other sites,
 * and then calls the engine's own. Reading primitives are the engine's own, so a plain read costs the same as
 * without sites, and a server without sites has no such table.
 *
 *     site_capture_open(&c, e, databases, gid);
 *     … e->ops->str.put(e, …)                     moves are gathered in an effect
 *     site_capture_end(&c);                       the request ends: the effect is emitted (site.emit)
 *
 * An effect can't remove what it made itself, because removal is by clock. Where a write would have to (`DEL
 * k` after `SET k` in a MULTI), the effect ends and the next one begins. All effects up to site_capture_end()
 * are a piece: all but the last have MOVE_MORE, and other sites apply them together.
 *
 * A put has only the new value. If a command means an increment or a change in place, it sets engine.intent
 * just before; otherwise it is a plain write.
 *
 * A key past its deadline is not written to: dropping it is an expiry (site_expire). The first write to a
 * name with metadata that is past its deadline also expires that.
 *
 * Of streams the entries are replicated, and the last id; groups and what is pending are the site's own. Nor
 * are staging databases: what is renamed out of them is a new key. Swapping two databases can't be expressed:
 * the engine then has `failed`, so that nothing of the transaction is kept. A command that would do that is
 * refused before (command.h, CMD_NO_SITE).
 *
 * A piece has at most SITE_PIECE_MAX effects; further ones are another piece.
 *
 * Other code may change the site (its clocks, members, …) only while the capture is paused. The engine's time
 * must not be behind site_now() when a command writes. */
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
    /* private */
    bool open;                 /* there is an effect in site.moves */
    bool named;                /* its last move was about `key` … */
    bool flows;                /* … and put an element; another one changes no more than its own row */
    bool made;                 /* it made something, that a FLUSH could not remove */
    bool current;              /* effect.context, before and after are the site's */
    bool cut;                  /* entries of a stream were removed, and its head not set since */
    bool added;                /* `entry` is the path of an entry that `key` got last */
    char entry[SITE_ID_BYTES];
    bool holding;              /* effects are held instead of emitted, by `emit` */
    site_emit_fn emit;
    void *emit_arg;
    u32 piece;                 /* effects of this piece that have ended */
    size_t head;               /* of it: where its moves begin */
    size_t rems;               /* where `key`'s moves begin in it, if they only remove; 0: not so */
    struct site_effect effect; /* the open one */
    struct buf before, after;  /* its context as bytes, without this site's entry: of lower, of higher gids */
    u32 others;                /* entries in them */
    struct buf held;           /* an effect that has ended, and gets MOVE_MORE if another follows */
    struct site_effect held_effect;
    struct buf erased;         /* indexes of elements of `key` that were erased (seq.erase_current) */
    u64 n_erased;
    struct buf seen, path, value; /* scratch; `seen` belongs to `text` while that is set */
    struct site_dot birth;        /* of `text` */
};

#define SITE_PIECE_MAX 4096

void site_capture_open(struct site_capture *c, struct engine *e, u32 databases, u8 gid);
void site_capture_release(struct site_capture *c); /* gives the engine its own table back */
void site_capture_end(struct site_capture *c);

/* For everything of the site layer but the primitives (site_receive, site_expire, site_collect …): ends the
 * open effect, and has the engine use `ops` (its own table: c->own) until resume. */
void site_capture_pause(struct site_capture *c, const struct engine_ops *ops);
void site_capture_resume(struct site_capture *c);

#endif
