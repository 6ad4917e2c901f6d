/* The command table: one line per command in table.def. */
#ifndef MAYFLY_COMMAND_COMMAND_H
#define MAYFLY_COMMAND_COMMAND_H

#include "base/bytes.h"

struct ctx;
typedef void (*command_fn)(struct ctx *c);

/* Flags, by the names COMMAND INFO gives them. */
enum {
    CMD_WRITE = 1 << 0,
    CMD_READONLY = 1 << 1,
    CMD_DENYOOM = 1 << 2,
    CMD_ADMIN = 1 << 3,
    CMD_PUBSUB = 1 << 4,
    CMD_NOSCRIPT = 1 << 5,
    CMD_BLOCKING = 1 << 6,
    CMD_LOADING = 1 << 7,
    CMD_STALE = 1 << 8,
    CMD_SKIP_MONITOR = 1 << 9,
    CMD_SKIP_SLOWLOG = 1 << 10,
    CMD_ASKING = 1 << 11,
    CMD_FAST = 1 << 12,
    CMD_NO_AUTH = 1 << 13,
    CMD_MAY_REPLICATE = 1 << 14,
    CMD_NO_ASYNC_LOADING = 1 << 15,
    CMD_NO_MULTI = 1 << 16,
    CMD_NO_MANDATORY_KEYS = 1 << 17,
    CMD_MOVABLE_KEYS = 1 << 18,
    CMD_ALLOW_BUSY = 1 << 19,
    CMD_SENTINEL_ONLY = 1 << 20, /* never set; keeps Redis's list complete */
    CMD_NO_SITE = 1 << 21, /* refused by a site: it can't be replicated to other sites (admit.c) */
};
#define CMD_OF_KEYSPACE (CMD_WRITE | CMD_READONLY | CMD_MAY_REPLICATE) /* not for replicas */

/* ACL categories beyond those that follow from flags and group. */
enum {
    CAT_KEYSPACE = 1 << 0, CAT_READ = 1 << 1, CAT_WRITE = 1 << 2, CAT_SET = 1 << 3,
    CAT_SORTEDSET = 1 << 4, CAT_LIST = 1 << 5, CAT_HASH = 1 << 6, CAT_STRING = 1 << 7,
    CAT_BITMAP = 1 << 8, CAT_HYPERLOGLOG = 1 << 9, CAT_GEO = 1 << 10, CAT_STREAM = 1 << 11,
    CAT_PUBSUB = 1 << 12, CAT_ADMIN = 1 << 13, CAT_FAST = 1 << 14, CAT_SLOW = 1 << 15,
    CAT_BLOCKING = 1 << 16, CAT_DANGEROUS = 1 << 17, CAT_CONNECTION = 1 << 18,
    CAT_TRANSACTION = 1 << 19, CAT_SCRIPTING = 1 << 20,
};
#define COMMAND_CATEGORIES 21
extern const char *const command_category_names[COMMAND_CATEGORIES]; /* "@keyspace" …, by bit */
u32 command_category(bytes name); /* the bit of "keyspace", in any case; 0: there is no such category */

/* Where a command's keys are, and what it does with them: Redis 7's key specs. */
enum {
    KEY_RO = 1 << 0, KEY_RW = 1 << 1, KEY_OW = 1 << 2, KEY_RM = 1 << 3,
    KEY_ACCESS = 1 << 4, KEY_UPDATE = 1 << 5, KEY_INSERT = 1 << 6, KEY_DELETE = 1 << 7,
    KEY_INCOMPLETE = 1 << 8, KEY_VARIABLE = 1 << 9, KEY_NOT_KEY = 1 << 10,
};

struct key_spec {
    u32 flags;
    enum { SEEK_NONE, SEEK_INDEX, SEEK_KEYWORD, SEEK_UNKNOWN } begin;
    int pos;              /* SEEK_INDEX: argv index; SEEK_KEYWORD: where the search starts */
    const char *keyword;
    enum { FIND_RANGE, FIND_KEYNUM, FIND_UNKNOWN } find;
    int last, step, limit; /* FIND_RANGE; FIND_KEYNUM: keynum_index=last, first=limit, step */
};

#define COMMAND_MAX_SPECS 3

struct command {
    const char *name; /* lower case; a subcommand is "parent|name" */
    command_fn run;   /* NULL for a container that has no behaviour of its own */
    int arity;        /* as Redis: includes the name; negative = at least */
    u32 flags;
    u32 categories;
    struct key_spec specs[COMMAND_MAX_SPECS];
    const char *group, *since, *complexity, *summary;
    const char *tips; /* space-separated command tips; "" */
    const char *deprecated_since, *replaced_by; /* NULL if it is not deprecated */
    bool system;      /* COMMAND DOCS calls it a command for the system only */
    u8 element;       /* argv[element] is the (first) element of its key that it reads; 0: none */
    u32 id;           /* position in the table; index of its statistics */
    u16 first_sub, sub_count; /* a container's subcommands: this many from this id on */
};

/* Whether argc arguments are allowed, the name included. */
static inline bool command_takes(const struct command *cmd, int argc)
{
    return cmd->arity >= 0 ? argc == cmd->arity : argc >= -cmd->arity;
}

/* Find a command, or a container's subcommand, by name in any case; NULL if there is none. */
const struct command *command_find(bytes name);
const struct command *command_find_sub(const struct command *container, bytes sub);
const struct command *command_find_full(bytes name); /* by the name COMMAND uses: "get", "config|get" */
u32 command_count(void);                 /* all table lines, subcommands included */
const struct command *command_at(u32 id);
const char *command_syntax(const struct command *cmd); /* its arguments as in syntax.def; "" */

/* All key positions of a request, with the flags of each. Returns how many, or
 * -1 for invalid arguments; at most `max` are written. */
struct key_use {
    int at;
    u32 flags;
};
int command_keys(const struct command *cmd, int argc, const bytes *argv, struct key_use *out, int max);

#endif
