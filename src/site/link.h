/* A link between two sites, as messages, without sockets or time. The site that asks connects, and gets the
 * effects that it lacks; the site that serves reads them from its backlog, or sends everything. For both
 * directions there are two links. Messages are RESP arrays; clocks, effects and keys in them are bytes
 * (clock.h, effect.h, sync.h).
 *
 *     asks                                   serves
 *     SITE.HELLO protocol gid clock [FULL] [n]  →                     FULL: a snapshot is needed
 *                                      ←     SITE.CONTINUE gid clock [n]   the missing effects follow
 *                                      ←     SITE.FULL head [n]            or a snapshot:
 *                                      ←     SITE.KEY database name dump   … for each key, as of the head
 *                                      ←     SITE.DONE
 *                                      ←     SITE.EFFECT effect            … as long as the link lives
 *     SITE.CLOCK clock                 →     which effects have arrived
 *                                      ←     SITE.CLOCK clock
 *
 * The other side is not trusted. If a message is refused, nothing of it is applied and the link ends; the
 * reason is sent as SITE.REFUSED reason.
 *
 * n is the incarnation (site_meet) of the sender; 0 if it is missing. If a later incarnation of its site is
 * known, the link is refused with that number: SITE.REFUSED reason n. Open links are ended in the same way.
 *
 * A snapshot is sent as fast as the other side reads it (walk.h); effects that are made meanwhile are sent
 * between its keys. The receiver stages it, and merges it when all of it has arrived and was checked
 * (full.h). The link is then in LINK_MERGE and takes no messages; call site_link_step() until it ends or
 * streams. */
#ifndef MAYFLY_SITE_LINK_H
#define MAYFLY_SITE_LINK_H

#include "site/backlog.h"
#include "site/full.h"

#define SITE_PROTOCOL 1
#define SITE_NOT_JOINED "this site has not joined its group yet" /* a refusal: peers_found_together() */

enum site_link_state { LINK_HELLO, LINK_STREAM, LINK_FULL, LINK_MERGE, LINK_OVER };

struct site_link {
    struct site *s;
    struct site_backlog *backlog;
    bool serves;
    u8 peer; /* its gid: the one that was asked for, or that said hello */
    enum site_link_state state;
    const char *why; /* LINK_OVER: the reason; NULL if it was closed in good order */
    bool told;       /* the reason came from the other side, in `reason` */
    char reason[128];
    bool needs_full;          /* asks: effects are not enough, also after a reconnect */
    u64 incarnation;          /* of the peer, once it has greeted */
    struct site_clock theirs; /* serves: what they had when they said hello */
    struct site_clock said;   /* the clock that was sent last */
    bool clock_waits;         /* set by the caller: for now no clock is sent … */
    bool clock_due;           /* … although it has changed, as site_link_feed has found */
    u64 next;                 /* serves: in the backlog */
    struct site_walk *walk;   /* serves: a snapshot that is being sent; NULL: none */
    struct site_full *full;   /* asks: one that is arriving; NULL: none */
    u64 effects;              /* asks: how many have come … */
    u64 stamp;                /* … and of the last one its stamp … */
    u8 author;                /* … and site */
};

void site_link_ask(struct site_link *l, struct site *s, struct site_backlog *b, u8 peer, bool full,
                   struct buf *out);
void site_link_serve(struct site_link *l, struct site *s, struct site_backlog *b);
void site_link_release(struct site_link *l);

/* Processes a message, in an open transaction. False: the link has ended. */
bool site_link_take(struct site_link *l, const bytes *argv, u32 argc, struct buf *out);
/* Appends what there is to send: effects up to about `max` bytes, and the clock if it has changed and need
 * not wait.
 * False: over. */
bool site_link_feed(struct site_link *l, size_t max, struct buf *out);

/* Merges about `count` keys, in LINK_MERGE. Each call is a transaction. False: over. */
bool site_link_step(struct site_link *l, u32 count, struct buf *out);

/* Makes the next feed send the clock even if it has not changed, so that the other side hears from us. */
void site_link_repeat(struct site_link *l);
/* Ends the link because of what the other side sent; returns false. */
bool site_link_refuse(struct site_link *l, const char *why, struct buf *out);

#endif
