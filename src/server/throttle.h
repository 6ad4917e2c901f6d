/* Slowing writers down while RocksDB catches up with flushes and compactions.
 *
 * A commit never waits for them (engine/disk.h: write pressure). Instead, requests that write are held
 * before they run, as by CLIENT PAUSE: their connections are not read meanwhile, and their clients wait.
 * Reads continue. Under pressure every write costs time in proportion to its bytes, which limits all writers
 * together to what the disk can take; at full pressure no write runs. No write is refused. */
#ifndef MAYFLY_SERVER_THROTTLE_H
#define MAYFLY_SERVER_THROTTLE_H

#include <uv.h>

#include "base/buf.h"

struct server;

struct throttle {
    uv_timer_t timer;   /* when to look again; active while writers are held */
    bool waiting;       /* some connection may be held */
    u64 charged;        /* bytes written that have been accounted for */
    i64 next_us;        /* when the next write may run; 0: at any time */
    u64 rate;           /* recent bytes per second */
    u64 sample_bytes;   /* bytes written since the last sample … */
    i64 sample_us;      /* … which was at that time */
    u64 last_resumed;   /* the connection that was resumed last */
    u64 held;           /* requests that had to wait: INFO */
    i64 held_since_us;  /* 0: not now */
    i64 told_us;        /* when it was last logged; 0: never */
    u64 held_us;        /* how long writers were held: INFO */
};

void throttle_init(struct server *s);
void throttle_begin_tick(struct server *s); /* decides whether writers of this tick are held: HOLD_STORAGE */
void throttle_end_tick(struct server *s);   /* starts the timer if connections are held */
void throttle_info(const struct server *s, struct buf *out); /* lines of `INFO rocksdb` */

#endif
