/* Random argument lists for any command, built from its line in syntax.def: mostly well-formed, and then spoilt by
 * keywords in the wrong place, options given twice, and names that are spelled like keywords. The same seed gives the
 * same requests for a command, whatever others there are.
 *
 * Keys are "<realm>:<letter>", where the realm is one of those the caller names and the letter tells the type:
 *
 *   s string · c counter · b bitmap · p HyperLogLog · h hash · l list · t set · z sorted set · g places · x stream · n no such key */
#ifndef MAYFLY_TESTS_EXEC_SYNTAX_GEN_H
#define MAYFLY_TESTS_EXEC_SYNTAX_GEN_H

#include <stdio.h>

#include "base/err.h"
#include "base/rand.h"
#include "command/command.h"
#include "command/syntax.h"

#define SYNTAX_GEN_ARGS 64

struct syntax_gen {
    u64 rng;
    const char *const *realms; /* NULL-terminated */
    char type;                 /* the letter of keys that fit the command */
    u64 sparse;                /* one in so many options is given */
    int argc, numkeys_at;      /* numkeys_at: the argument that is to count the keys that follow it; 0: none */
    bytes argv[SYNTAX_GEN_ARGS];
    size_t used;
    char text[4096];
};

#define SYNTAX_GEN_PICK(g, ...)                        \
    ((const char *const[]){__VA_ARGS__})[rand_below(&(g)->rng, ARRAY_LEN(((const char *const[]){__VA_ARGS__})))]

static inline bool syntax_gen_one_in(struct syntax_gen *g, u64 n) { return rand_below(&g->rng, n) == 0; }

static inline bytes syntax_gen_text(struct syntax_gen *g, bytes b)
{
    CHECK(g->used + b.n <= sizeof g->text);
    memcpy(g->text + g->used, b.p, b.n);
    g->used += b.n;
    return bytes_of(g->text + g->used - b.n, b.n);
}

static inline void syntax_gen_add(struct syntax_gen *g, bytes b)
{
    if (g->argc < SYNTAX_GEN_ARGS / 2) g->argv[g->argc++] = syntax_gen_text(g, b);
}

/* -- words -------------------------------------------------------------------------------------------- */

static inline bytes syntax_gen_key(struct syntax_gen *g)
{
    char name[64];
    u64 realms = 0;
    while (g->realms[realms]) realms++;
    char type = syntax_gen_one_in(g, 6) ? "scbphltzgxn"[rand_below(&g->rng, 11)] : g->type;
    if (type == 's' && syntax_gen_one_in(g, 3)) type = 'c';
    int n = snprintf(name, sizeof name, "%s:%c", g->realms[rand_below(&g->rng, realms)], type);
    return syntax_gen_text(g, bytes_of(name, (size_t)n));
}

static inline bytes syntax_gen_keyword(struct syntax_gen *g)
{
    return bytes_str(SYNTAX_GEN_PICK(g, "STORE", "STOREDIST", "STREAMS", "GROUP", "BY", "GET", "KEYS", "LEFT", "COUNT",
                                     "LIMIT", "BLOCK", "NOACK", "WEIGHTS", "AGGREGATE", "FIELDS", "LASTID", "ANY",
                                     "ASC", "ALPHA", "REPLACE", "DB", "MAX", "OVERFLOW", "SET", "MAXLEN", "#", "*"));
}

static inline bytes syntax_gen_number(struct syntax_gen *g)
{
    if (syntax_gen_one_in(g, 12)) return bytes_str(SYNTAX_GEN_PICK(g, "u8", "2x", "-1", "99999"));
    return bytes_str(SYNTAX_GEN_PICK(g, "0", "1", "1", "2", "3", "1.5"));
}

/* A name or a value: of a member, a consumer group … */
static inline bytes syntax_gen_name(struct syntax_gen *g)
{
    if (syntax_gen_one_in(g, 5)) return syntax_gen_keyword(g);
    if (syntax_gen_one_in(g, 8)) return syntax_gen_key(g);
    return bytes_str(SYNTAX_GEN_PICK(g, "g", "g", "STREAMS", "noack", "a", "b", "v"));
}

static inline bytes syntax_gen_stream_id(struct syntax_gen *g)
{
    return bytes_str(SYNTAX_GEN_PICK(g, "0", "0-0", ">", ">", "$", "1-1", "1-1", "9-9", "-", "+", "*"));
}

static inline bool syntax_gen_is_bound(const struct syntax_arg *arg)
{
    return bytes_is(arg->name, "min") || bytes_is(arg->name, "max") || bytes_is(arg->name, "start") ||
           bytes_is(arg->name, "stop");
}

static inline bytes syntax_gen_value(struct syntax_gen *g, const struct syntax_arg *arg)
{
    if (syntax_gen_one_in(g, 40)) return syntax_gen_keyword(g);
    if (bytes_is(arg->name, "numkeys")) g->numkeys_at = g->argc;
    if (bytes_is(arg->name, "numfields")) return BYTES_LIT("1");
    if (bytes_is(arg->name, "timeout")) return BYTES_LIT("0.01");
    if (bytes_is(arg->name, "operation")) return bytes_str(SYNTAX_GEN_PICK(g, "AND", "OR", "XOR", "NOT"));
    if (bytes_is(arg->name, "subcommand"))
        return bytes_str(SYNTAX_GEN_PICK(g, "GETREG", "DECODE", "ENCODING", "TODENSE")); /* of PFDEBUG */
    if (bytes_is(arg->name, "encoding")) return BYTES_LIT("u8");
    if (g->type == 'x' && (bytes_is(arg->name, "id") || bytes_is(arg->name, "last-id") || bytes_is(arg->name, "start") ||
                           bytes_is(arg->name, "end")))
        return syntax_gen_stream_id(g);
    if (bytes_is(arg->name, "min-idle-time") || bytes_is(arg->name, "threshold")) return BYTES_LIT("0");
    if (syntax_gen_is_bound(arg)) return bytes_str(SYNTAX_GEN_PICK(g, "0", "1", "-1", "-", "+", "[a", "(1", "inf"));
    switch (arg->type) {
    case SYNTAX_KEY: return syntax_gen_key(g);
    case SYNTAX_INTEGER:
    case SYNTAX_DOUBLE:
    case SYNTAX_UNIX_TIME: return syntax_gen_number(g);
    case SYNTAX_PATTERN: return bytes_str(SYNTAX_GEN_PICK(g, "*", "no:*", "w:*->a", "#", "nosort"));
    default: return syntax_gen_name(g);
    }
}

/* -- arguments ------------------------------------------------------------------------------------------ */

static inline void syntax_gen_list(struct syntax_gen *g, const struct syntax_arg *arg);

/* As many IDs as keys. */
static inline void syntax_gen_streams(struct syntax_gen *g)
{
    u64 n = 1 + rand_below(&g->rng, 2);
    for (u64 i = 0; i < n; i++) syntax_gen_add(g, syntax_gen_key(g));
    for (u64 i = 0; i < n; i++) syntax_gen_add(g, syntax_gen_stream_id(g));
}

static inline void syntax_gen_once(struct syntax_gen *g, const struct syntax_arg *arg)
{
    if (arg->type == SYNTAX_BLOCK && bytes_is(arg->name, "streams")) {
        syntax_gen_streams(g);
    } else if (arg->type == SYNTAX_BLOCK) {
        syntax_gen_list(g, arg->parts);
    } else if (arg->type == SYNTAX_ONE_OF) {
        const struct syntax_arg *part = arg->parts;
        for (u64 skip = rand_below(&g->rng, arg->part_count); skip > 0; skip--) part = part->next;
        if (part->token.n) syntax_gen_add(g, part->token);
        if (part->type != SYNTAX_TOKEN) syntax_gen_once(g, part);
    } else if (arg->type != SYNTAX_TOKEN) {
        syntax_gen_add(g, syntax_gen_value(g, arg));
    }
}

static inline void syntax_gen_list(struct syntax_gen *g, const struct syntax_arg *arg)
{
    for (; arg; arg = arg->next) {
        if (arg->flags & SYNTAX_OPTIONAL && !syntax_gen_one_in(g, g->sparse)) continue;
        u64 times = arg->flags & SYNTAX_MULTIPLE ? 1 + rand_below(&g->rng, 2) : 1;
        for (u64 i = 0; i < times; i++) {
            bool token = arg->token.n && (i == 0 || arg->flags & SYNTAX_MULTIPLE_TOKEN);
            if (token) syntax_gen_add(g, arg->token);
            syntax_gen_once(g, arg);
        }
    }
}

/* -- spoiling it ---------------------------------------------------------------------------------------- */

static inline void syntax_gen_insert(struct syntax_gen *g, int at, bytes b)
{
    if (g->argc == SYNTAX_GEN_ARGS) return;
    memmove(g->argv + at + 1, g->argv + at, (size_t)(g->argc - at) * sizeof *g->argv);
    g->argv[at] = b;
    g->argc++;
}

/* Some words, those at `from` and after it, come at `to`. */
static inline void syntax_gen_move(struct syntax_gen *g, int from, int to)
{
    int n = 1 + (int)rand_below(&g->rng, (u64)MIN(3, g->argc - from));
    bytes moved[3];
    memcpy(moved, g->argv + from, (size_t)n * sizeof *moved);
    memmove(g->argv + to + n, g->argv + to, (size_t)(from - to) * sizeof *moved);
    memcpy(g->argv + to, moved, (size_t)n * sizeof *moved);
}

/* Words from `first` on are changed: those before are the command's name. */
static inline void syntax_gen_spoil(struct syntax_gen *g, int first)
{
    int at = first + (int)rand_below(&g->rng, (u64)(g->argc - first + 1));
    switch (rand_below(&g->rng, 8)) {
    case 0: /* an option that is there already, with another key */
        if (at == g->argc) at--;
        syntax_gen_insert(g, g->argc, g->argv[at]);
        syntax_gen_insert(g, g->argc, syntax_gen_key(g));
        break;
    case 1: /* an extra option */
        syntax_gen_insert(g, at, syntax_gen_key(g));
        syntax_gen_insert(g, at, syntax_gen_keyword(g));
        break;
    case 2: /* the last words again */
        for (int i = at, end = g->argc; i < end; i++) syntax_gen_insert(g, g->argc, g->argv[i]);
        break;
    case 3:
        if (at < g->argc) g->argv[at] = syntax_gen_keyword(g);
        break;
    case 4:
        if (at < g->argc) g->argv[at] = syntax_gen_number(g);
        break;
    case 5:
    case 6: /* in another order */
        if (at < g->argc) syntax_gen_move(g, at, first);
        break;
    default: /* one word less */
        if (at == g->argc || g->argc == first) break;
        memmove(g->argv + at, g->argv + at + 1, (size_t)(g->argc - at - 1) * sizeof *g->argv);
        g->argc--;
    }
}

/* The keys that follow are counted, right or, now and then, wrong. */
static inline void syntax_gen_count_keys(struct syntax_gen *g)
{
    char digits[8];
    int n = 0;
    if (!g->numkeys_at || syntax_gen_one_in(g, 8)) return;
    for (int i = g->numkeys_at + 1; i < g->argc && memchr(g->argv[i].p, ':', g->argv[i].n); i++) n++;
    g->argv[g->numkeys_at] = syntax_gen_text(g, bytes_of(digits, (size_t)snprintf(digits, sizeof digits, "%d", n)));
}

static inline char syntax_gen_type(const struct command *cmd)
{
    static const char *const groups[] = {"string", "bitmap", "hyperloglog", "hash", "list", "set", "sorted-set",
                                         "geo", "stream"};
    for (size_t i = 0; i < ARRAY_LEN(groups); i++)
        if (strcmp(cmd->group, groups[i]) == 0) return "sbphltzgx"[i];
    return 'l';
}

/* A request for `cmd`: g->argc words in g->argv, which live until the next one. */
static inline void syntax_gen_next(struct syntax_gen *g, const struct command *cmd)
{
    struct syntax syntax;
    const char *bar = strchr(cmd->name, '|');
    g->argc = g->numkeys_at = 0;
    g->used = 0;
    g->type = syntax_gen_type(cmd);
    g->sparse = 2 + rand_below(&g->rng, 4);
    if (bar) syntax_gen_add(g, bytes_of(cmd->name, (size_t)(bar - cmd->name)));
    syntax_gen_add(g, bytes_str(bar ? bar + 1 : cmd->name));
    int first = g->argc;
    CHECK(syntax_parse(&syntax, command_syntax(cmd)));
    syntax_gen_list(g, syntax.first);
    syntax_gen_count_keys(g);
    while (syntax_gen_one_in(g, 2)) syntax_gen_spoil(g, first);
}

#endif
