/* The configuration: from the file, the command line and CONFIG SET.
 *
 * config.def has one line per directive and is the single list of them: the fields of struct config, their
 * defaults, CONFIG GET and SET, and CONFIG REWRITE are all generated from it. */
#ifndef MAYFLY_CONFIG_CONFIG_H
#define MAYFLY_CONFIG_CONFIG_H

#include "base/buf.h"
#include "base/log.h"
#include "engine/rocks/rocks.h"
#include "keyspace/expire.h"
#include "keyspace/keyspace.h"
#include "net/net.h"

/* Event classes of notify-keyspace-events beyond those of keyspace.h, with Redis's bits. */
enum {
    CONFIG_EVENTS_KEYSPACE = 1 << 0, /* K: publish on __keyspace@db__:key */
    CONFIG_EVENTS_KEYEVENT = 1 << 1, /* E: publish on __keyevent@db__:event */
    CONFIG_EVENTS_MODULE = 1 << 13,  /* d */
};

enum config_engine { ENGINE_MEMORY, ENGINE_ROCKSDB };

enum { SHUTDOWN_SAVE = 1, SHUTDOWN_NOSAVE = 2, SHUTDOWN_NOW = 4, SHUTDOWN_FORCE = 8 };

struct save_point {
    i64 seconds, changes;
};

/* rename-command: `from` is called `to` now, and no longer `from`; an empty `to`
 * means it cannot be called at all. See rename.h. */
struct command_rename {
    struct buf from, to;
};

/* A `user` line: the name and the rules. See users.h. */
struct config_user {
    u32 n;
    struct buf *words;
};

struct config {
    /* The directives. Texts end in a NUL that is not counted, so that .p can be used as a C string; it is
     * never NULL. */
#define BOOL(field, ...) bool field;
#define INT(field, ...) i64 field;
#define MEMORY(field, ...) i64 field;
#define PERCENT(field, ...) i64 field;
#define OCTAL(field, ...) i64 field;
#define TEXT(field, ...) struct buf field;
#define CHOICE(field, ...) struct buf field;
#define ENUM(field, name, alias, value, type, ...) type field;
#define SPECIAL(field, ...)
#include "config/config.def"
#undef BOOL
#undef INT
#undef MEMORY
#undef PERCENT
#undef OCTAL
#undef TEXT
#undef CHOICE
#undef ENUM
#undef SPECIAL

    struct buf bind;      /* space-separated addresses; a leading '-' means "if available" */
    struct buf dir;       /* the working directory, absolute: setting it changes to it */
    struct buf replicaof; /* "host port"; empty: a primary */
    struct buf site_peers; /* "gid host port gid host port …" */
    struct {
        struct buf name; /* empty: there is none */
        i64 maxlen;      /* 0: no limit */
    } expiry_stream;
    struct output_limit output_limit[CONN_CLASSES];
    struct {
        struct save_point *v;
        u32 n;
    } save;
    struct {
        double *v;
        u32 n;
    } percentiles;
    i64 oom_score_adj_values[3];
    u32 shutdown_on_sigint, shutdown_on_sigterm; /* SHUTDOWN_* */
    u32 notify_keyspace_events;                  /* NOTIFY_* and CONFIG_EVENTS_* */

    struct command_rename *renames;
    u32 rename_count;
    struct config_user *users;
    u32 user_count;

    struct buf file;  /* absolute path of the configuration file; empty: none */
    bool reading;     /* a file or the command line is being read: `save` lines accumulate … */
    bool save_given;  /* … from the first one on, which replaces the default */
    bool appendonly_given; /* the file or the command line has appendonly */
};

void config_init(struct config *c); /* the defaults */
void config_release(struct config *c);

/* Reads the command line as redis-server does: [FILE] [-] [--directive value …]. False: `why` has Redis's
 * text, with the line. */
NODISCARD bool config_read_args(struct config *c, int argc, char **argv, struct buf *why);

/* Whether an AOF is written: the rocksdb engine has a log of its own. */
bool config_wants_aof(const struct config *c);

/* Logs which settings have no effect with this engine. */
void config_warn(const struct config *c, const struct log *log);

/* -- one directive ------------------------------------------------------------- */

enum config_kind {
    CONFIG_BOOL, CONFIG_INT, CONFIG_MEMORY, CONFIG_PERCENT, CONFIG_OCTAL, CONFIG_TEXT,
    CONFIG_CHOICE, CONFIG_ENUM, CONFIG_SPECIAL,
};

enum {
    CONFIG_IMMUTABLE = 1 << 0, /* not settable by CONFIG SET */
    CONFIG_PROTECTED = 1 << 1, /* by CONFIG SET only if enable-protected-configs allows */
    CONFIG_HIDDEN = 1 << 2,    /* CONFIG GET shows it only by its exact name */
    CONFIG_SENSITIVE = 1 << 3, /* its value stays out of the slow log */
    CONFIG_FIXED = 1 << 4,     /* known, but only the default is supported */
    CONFIG_MULTI = 1 << 5,     /* takes several words */
    CONFIG_LISTEN = 1 << 6,    /* a change requires listening again */
    CONFIG_FILES = 1 << 7,     /* a change requires more file descriptors */
    CONFIG_TLS = 1 << 8,       /* setting it, even to the same value, reloads TLS */
    CONFIG_UNSIGNED = 1 << 9,  /* any 64-bit number, although it is stored in an i64 */
    CONFIG_LOADED = 1 << 10,   /* not by CONFIG SET while the data is being loaded */
    CONFIG_AS_IT_IS = 1 << 11, /* CONFIG_IMMUTABLE, but it may be set to its current value */
};

struct config_word {
    const char *name; /* NULL ends a list of words */
    u32 value;
};

/* Why a text is not valid; NULL: it is. Returns a literal. */
typedef const char *(*config_check)(bytes value);

struct directive {
    const char *name, *alias; /* alias: Redis's former name; "" if none */
    enum config_kind kind;
    u32 flags;
    size_t at;         /* offset of the field */
    const char *value; /* the default */
    i64 min, max;                      /* numbers */
    config_check check;                /* CONFIG_TEXT */
    const char *choices;               /* CONFIG_CHOICE: space-separated */
    const struct config_word *words;   /* CONFIG_ENUM */
    const struct config_codec *codec;  /* CONFIG_SPECIAL */
};

u32 config_count(void);
const struct directive *config_at(u32 i);

/* By name or alias, in any case; NULL: none. *by_alias may be NULL. */
const struct directive *config_find(bytes name, bool *by_alias);

/* Sets a directive from the words after its name; a directive of several words may have them all in one.
 * False: `why` has Redis's text, and nothing changed. */
NODISCARD bool config_set(struct config *c, const struct directive *d, u32 n, const bytes *words,
                          struct buf *why);

/* Appends the value as CONFIG GET shows it; config_set accepts it. */
void config_get(const struct config *c, const struct directive *d, struct buf *out);

/* Appends the line, or lines, that state it in a file. */
void config_lines(const struct config *c, const struct directive *d, struct buf *out);

/* Changes values that may be set but not used (hz 0) to the nearest usable one. */
void config_settle(struct config *c);

/* After everything is read: defaults that depend on the engine. */
void config_settle_engine(struct config *c);

/* Whether individually valid settings are compatible. False: `why` says which are not. */
NODISCARD bool config_agrees(const struct config *c, struct buf *why);

/* Writes the current settings to c->file, keeping its comments and order; `users` are the lines of users,
 * which replace the old ones. The file is replaced as a whole or not at all. False: see errno. */
NODISCARD bool config_rewrite(const struct config *c, bytes users, bool all); /* all: defaults, too */

/* The sites that this one asks for what it lacks (site-peer). False: there are not so many. */
struct config_site_peer {
    u8 gid;
    char host[256];
    int port;
};
bool config_site_peer(const struct config *c, u32 i, struct config_site_peer *out);
/* Sets a peer's address; port 0 removes it. */
void config_set_site_peer(struct config *c, const struct config_site_peer *p);

/* -- helpers of the config files ---------------------------------------------------- */

void config_text(struct buf *b, bytes value);       /* sets a text field */
bool config_slurp(int fd, struct buf *out);         /* appends the rest of a file; false: errno */

#endif
