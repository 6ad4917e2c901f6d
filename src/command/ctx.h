/* The context a command runs in: everything it may read or write. Its result
 * is a function of the state, argv, now_ms and the seed; it writes only to its
 * reply, to the keyspace and to its journal record. */
#ifndef MAYFLY_COMMAND_CTX_H
#define MAYFLY_COMMAND_CTX_H

#include "base/num.h"
#include "base/rand.h"
#include "command/command.h"
#include "command/session.h"
#include "keyspace/keyspace.h"
#include "resp/reply.h"

struct server; /* src/server; opaque to all other layers */
struct region; /* src/exec; for the commands that run others */

struct ctx {
    const struct command *cmd;
    int argc;
    u32 db;      /* the session's, for commands that work on one database */
    bytes *argv; /* argv[0] is the name as sent; slices live until the command returns */
    struct reply *out;
    size_t reply_at;     /* where its reply begins in `out` */
    struct session *session;
    struct keyspace *ks;
    struct engine *eng;  /* == ks->eng */
    struct server *server;
    struct region *region; /* the region it runs in; ks and eng belong to it */
    i64 now_ms;
    u64 seed;            /* as recorded */
    u64 rng;             /* state that starts from the seed: rand_next(&c->rng) */
    u64 dirty_before;    /* ks->dirty when it started */
    bool effects_given;  /* the command stated its effects itself */
    bool keys_limited;   /* its user may not read every key, so SORT's BY and GET are refused */
    bool in_script;      /* a script calls it */
    bool keeps_nothing;  /* a read does not change its key, as PFCOUNT otherwise would */
    bool may_wait;       /* its client can wait for the reply */
    const bytes *ready;  /* the command waited for this key, among others, which now may have something */
    u32 postponed; /* set by the command: nothing was replied, and it is run again when the connection is
                    * resumed for this reason (conn_resume); only if may_wait */
    struct waiting *waiting; /* set by ctx_wait: see waiting.h; owned by the caller of the command */
};

/* -- looking up ---------------------------------------------------------- */

/* Found: OK. Absent: ERR_NOT_FOUND. Another type: ERR_TYPE, and WRONGTYPE has
 * been replied: just return. TYPE_NONE accepts any type. */
NODISCARD err ctx_read(struct ctx *c, bytes key, enum value_type, struct key_ref *ref);
NODISCARD err ctx_write(struct ctx *c, bytes key, enum value_type, struct key_ref *ref);
NODISCARD err ctx_peek(struct ctx *c, bytes key, enum value_type, struct key_ref *ref);

/* As ctx_write, but an absent key is created as an empty collection. False:
 * WRONGTYPE replied. */
NODISCARD bool ctx_open(struct ctx *c, bytes key, enum value_type, struct key_ref *ref);

/* A new, empty collection in place of the key's value: for commands that store. */
void ctx_replace(struct ctx *c, bytes key, enum value_type, struct key_ref *ref);

/* -- changing ------------------------------------------------------------ */

/* Report a change (dirty counter, event). Once per changed key. */
void ctx_changed(struct ctx *c, bytes key, u32 class, const char *event);
/* The same for a change that counts as several, one per changed element; or as none. */
void ctx_changed_by(struct ctx *c, u64 changes, bytes key, u32 class, const char *event);

/* Drop a key as DEL does, without a report of its own. */
void ctx_drop(struct ctx *c, struct key_ref *ref);

/* After elements were taken out: drop the collection if it is empty and emit
 * the generic `del` event. Returns true if it dropped. */
bool ctx_drop_if_empty(struct ctx *c, struct key_ref *ref);

/* -- effects ------------------------------------------------------------- */

/* By default a command that changed something is journalled as it was sent.
 * A command whose argv is not canonical (relative time, randomness, options)
 * states its effects instead; the first call replaces the default. */
void ctx_effect(struct ctx *c, int argc, const bytes *argv);
#define CTX_EFFECT(c, ...) \
    ctx_effect((c), (int)(sizeof((bytes[]){__VA_ARGS__}) / sizeof(bytes)), (bytes[]){__VA_ARGS__})
void ctx_no_effect(struct ctx *c);

/* -- arguments: false means the error has been replied --------------------- */

NODISCARD bool ctx_int(struct ctx *c, bytes arg, i64 *out); /* value is not an integer or out of range */
NODISCARD bool ctx_int_range(struct ctx *c, bytes arg, i64 min, i64 max, i64 *out); /* … in Redis's words */
NODISCARD bool ctx_int_min(struct ctx *c, bytes arg, i64 min, const char *error, i64 *out); /* or `error` */
NODISCARD bool ctx_double(struct ctx *c, bytes arg, double *out); /* value is not a valid float */
NODISCARD bool ctx_positive(struct ctx *c, bytes arg, i64 *out); /* value is out of range, must be positive */
NODISCARD bool ctx_timeout_ms(struct ctx *c, bytes arg, i64 *out); /* timeout is negative, … */
NODISCARD bool ctx_timeout_fits(struct ctx *c, i64 ms); /* the same for a timeout in milliseconds */

/* The count of a random draw; negative: with repeats. More than a client can receive is refused: one short
 * request would fill the memory with its reply. */
NODISCARD bool ctx_repeats_fit(struct ctx *c, i64 count);

/* -- replies -------------------------------------------------------------- */

bool ctx_refuse(struct ctx *c, const char *error); /* replies the error; false, for `return ctx_refuse(…)` */
void ctx_syntax_error(struct ctx *c);    /* ERR syntax error */
void ctx_wrong_type(struct ctx *c);
void ctx_wrong_arity(struct ctx *c);     /* wrong number of arguments for 'x' command */
void ctx_unknown_subcommand(struct ctx *c); /* of a container, argv[1] */
void ctx_wrong_subcommand(struct ctx *c); /* unknown subcommand or wrong number of arguments for argv[1] */
void ctx_help(struct ctx *c, const char *const *lines); /* X HELP, in Redis's frame; NULL-terminated */

#endif
