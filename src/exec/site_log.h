/* Changes of a site's metadata, as bytes. A site's journal records contain its changes of data as canonical
 * effects, like those of any server, followed by one or more of these logs, as the argument of ECHO. Redis
 * runs ECHO without effect, so a Redis replica gets the plain data, and Redis can load the AOF of a site. RDB
 * files contain the same bytes, in AUX fields that Redis skips.
 *
 *     log = "mayfly-site" · version · change · change …
 *
 * Changes are of companions (engine/companion.h), key by key and in order, and of the site's clock:
 *
 *     op [· database · name] · what the op needs         without database and name: as in the change before
 *
 * A log contains all changes of companions: if a primitive deletes one implicitly (drop), the log says so
 * explicitly. The reader keeps companions whatever the canonical effects do (region_site_follow),
 * and so ends up with the same bytes. */
#ifndef MAYFLY_EXEC_SITE_LOG_H
#define MAYFLY_EXEC_SITE_LOG_H

#include "engine/engine.h"
#include "site/site.h"

#define SITE_LOG_MAGIC "mayfly-site\1"
#define SITE_LOG_PIECE (1u << 20) /* about as long a log may be */

enum site_log_op {
    SITE_LOG_HEAD = 1, /* value: set_head */
    SITE_LOG_PUT,      /* name of the row, value */
    SITE_LOG_DEL,      /* name of the row */
    SITE_LOG_DROP,     /* the companion goes */
    SITE_LOG_KEEP,     /* keep(true) */
    SITE_LOG_LEAVE,    /* keep(false) */
    SITE_LOG_FLUSH,    /* database: all companions go */
    SITE_LOG_APPLIED,  /* dot · stamp: an effect was applied */
    SITE_LOG_STATE,    /* bytes: what the site knows beside its keys (site_state, below) … */
};
#define SITE_LOG_NO_STATE BYTES_LIT("") /* … or that from here on the data is no site's */

struct site_log {
    struct buf ops; /* with the magic; empty: nothing */
    u32 db;         /* of the last change … */
    struct buf name;
    bool named; /* … if there was one of a key */
};

/* Appends a change of a key; `name` and `value` are used if the op needs them. */
void site_log_key(struct site_log *l, enum site_log_op op, u32 db, bytes key, bytes name, bytes value);
void site_log_flush(struct site_log *l, u32 db);
void site_log_applied(struct site_log *l, struct site_dot dot, u64 stamp);
void site_log_state(struct site_log *l, bytes state);
void site_log_clear(struct site_log *l);
void site_log_release(struct site_log *l);

/* Appends the key's name, with its length: a key_fn for gathering names. */
void site_gather_name(void *names, struct key_ref *ref);

static inline bool site_log_is(bytes b)
{
    size_t n = sizeof SITE_LOG_MAGIC - 1;
    return b.n >= n && memcmp(b.p, SITE_LOG_MAGIC, n) == 0;
}

/* Makes the changes of companions in `e`, in its open transaction, in databases from db_base on; hands the
 * others to the callbacks. False: malformed. */
struct site_log_taker {
    void (*applied)(void *arg, struct site_dot dot, u64 stamp);
    bool (*state)(void *arg, bytes state);
    void *arg;
};
/* ^ e: NULL: only the callbacks */
bool site_log_take(bytes log, struct engine *e, u32 db_base, const struct site_log_taker *taker);

/* Appends a companion as a log: up to about `max` bytes from *from on (a row's name; initially empty). True:
 * there is more. For snapshots. */
bool site_log_companion(struct site_log *l, struct engine *e, struct key_ref *ref, struct buf *from,
                        size_t max);

#endif
