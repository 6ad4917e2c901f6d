/* Nothing is copied, and nothing is allocated once `args` has grown: arguments are slices of the input. */
#include "persist/aof_replay.h"

#include <stdio.h>

#include "script/script_replay.h"

#define ARGS_MAX INT32_MAX
#define BULK_MAX INT32_MAX
#define NOTE_MAX 1024 /* limit of an annotation */
#define ARGS_KEEP (1u << 20)

void aof_replay_init(struct aof_replay *p)
{
    *p = (struct aof_replay){0};
    session_init(&p->session, 0, true);
    p->session.no_touch = true; /* a key is as recent as its last write; the clock stands at 0 */
}

void aof_replay_release(struct aof_replay *p)
{
    session_release(&p->session);
    buf_release(&p->args);
    buf_release(&p->ignored);
}

static err replay_bad(struct aof_replay *p, const char *what)
{
    snprintf(p->error, sizeof p->error, "%s", what);
    p->malformed = true;
    return ERR_SYNTAX;
}

/* -- parsing --------------------------------------------------------------------------------------- */

struct cursor {
    const char *s, *end;
};

/* "*12\r\n" or "$12\r\n", exactly. */
static inline err replay_take_number(struct cursor *c, char type, u64 max, u64 *out)
{
    const char *s = c->s, *end = c->end;
    if (s == end) return ERR_AGAIN;
    if (*s++ != type) return ERR_SYNTAX;
    if (s == end) return ERR_AGAIN;
    u64 v = (u8)(*s++ - '0');
    if (v > 9) return ERR_SYNTAX;
    for (; s < end && *s != '\r'; s++) {
        u64 digit = (u8)(*s - '0');
        if (digit > 9 || v == 0) return ERR_SYNTAX;
        v = v * 10 + digit;
        if (v > max) return ERR_SYNTAX;
    }
    if (end - s < 2) return ERR_AGAIN;
    if (s[1] != '\n') return ERR_SYNTAX;
    c->s = s + 2;
    *out = v;
    return OK;
}

static inline err replay_take_bulk(struct cursor *c, bytes *out)
{
    u64 n;
    err e = replay_take_number(c, '$', BULK_MAX, &n);
    if (UNLIKELY(e)) return e;
    if ((u64)(c->end - c->s) < n + 2) return ERR_AGAIN;
    if (c->s[n] != '\r' || c->s[n + 1] != '\n') return ERR_SYNTAX;
    *out = bytes_of(c->s, n);
    c->s += n + 2;
    return OK;
}

/* Appends its arguments to p->args. */
static err replay_take_command(struct aof_replay *p, struct cursor *c, u32 *argc)
{
    u64 count = 0;
    err e = replay_take_number(c, '*', ARGS_MAX, &count);
    if (!e && !count) e = ERR_SYNTAX;
    for (u64 i = 0; !e && i < count; i++) {
        bytes *arg = (bytes *)(void *)buf_reserve(&p->args, sizeof *arg);
        e = replay_take_bulk(c, arg);
        p->args.n += sizeof *arg;
    }
    *argc = (u32)count;
    return e == ERR_SYNTAX ? replay_bad(p, "there is no command in RESP here") : e;
}

static inline bytes *arg_at(const struct aof_replay *p, u32 i)
{
    return (bytes *)(void *)p->args.p + i;
}
static inline u32 args_now(const struct aof_replay *p) { return (u32)(p->args.n / sizeof(bytes)); }

/* Skips annotations. Ours frame blocks and never occur inside one. */
static err skip_annotations(struct aof_replay *p, struct cursor *c)
{
    while (c->s < c->end && *c->s == '#') {
        size_t left = (size_t)(c->end - c->s);
        const char *nl = memchr(c->s, '\n', MIN(left, NOTE_MAX));
        if (left > 1 && c->s[1] == 'M') return replay_bad(p, "a line of Mayfly's is out of place here");
        if (!nl) return left < NOTE_MAX ? ERR_AGAIN : replay_bad(p, "an annotation does not end");
        c->s = nl + 1;
    }
    return OK;
}

static bool aof_replay_named(const struct aof_replay *p, u32 first, const char *name)
{
    return bytes_is(*arg_at(p, first), name);
}

/* Whether the EXEC of a group is there, too. */
static err find_exec(struct aof_replay *p, struct cursor c)
{
    size_t mark = p->args.n;
    u32 first = args_now(p), argc;
    err e = OK;
    for (bool found = false; !found && !e;) {
        if ((e = skip_annotations(p, &c)) || (e = replay_take_command(p, &c, &argc))) break;
        found = argc == 1 && aof_replay_named(p, first, "exec");
        p->args.n = mark;
    }
    p->args.n = mark;
    return e;
}

static err take_bracket(struct aof_replay *p, const struct cursor *c, bool opens)
{
    if (opens == p->in_group) return replay_bad(p, opens ? "MULTI inside of MULTI" : "EXEC without MULTI");
    err e = opens ? find_exec(p, *c) : OK;
    if (!e) p->in_group = opens;
    return e;
}

/* Adds the next command to the batch. */
static err aof_replay_take_next(struct aof_replay *p, struct cursor *c, const char *start)
{
    struct cursor at = *c;
    u32 first = args_now(p), argc;
    err e = skip_annotations(p, &at);
    if (e) return e;
    *c = at; /* complete annotations are consumed */
    if (at.s == at.end) return OK;
    if ((e = replay_take_command(p, &at, &argc))) return e;
    bool opens = argc == 1 && aof_replay_named(p, first, "multi");
    if (opens || (argc == 1 && aof_replay_named(p, first, "exec"))) {
        if ((e = take_bracket(p, &at, opens))) return e;
    } else {
        p->batch[p->n].from = (size_t)(c->s - start);
        p->batch[p->n].first = first;
        p->batch[p->n++].argc = argc;
    }
    *c = at;
    return OK;
}

/* -- running --------------------------------------------------------------------------------------- */

/* A script that wrote and then failed is in the file, and fails again. */
static bool script_failed(const struct request *q, const struct outcome *o)
{
    const char *error = q->out->out->p + q->out->error_at;
    return script_is_replayed(o->cmd) && strncmp(error, "-NOSCRIPT ", 10) != 0;
}

static err aof_replay_explain(struct aof_replay *p, const struct request *q, const struct outcome *o)
{
    char name[BYTES_LEGIBLE + 4];
    bytes_legible(q->argv[0], name);
    if (!o->cmd)
        snprintf(p->error, sizeof p->error, "Unknown command '%s' reading the append only file",
                 name);
    else if (o->rejected)
        snprintf(p->error, sizeof p->error,
                 "the command '%s' is not one that a file may hold, or has not the "
                 "right number of arguments",
                 name);
    else
        snprintf(p->error, sizeof p->error, "the command '%s' failed: %.*s", name,
                 (int)MIN(q->out->out->n - q->out->error_at, 200),
                 q->out->out->p + q->out->error_at);
    bool repeats = o->cmd && !o->rejected && (p->verified || script_failed(q, o));
    p->failures += repeats;
    return repeats ? OK : ERR_SYNTAX;
}

static void fetch_ahead(struct aof_replay *p)
{
    struct engine *e = p->region->eng;
    struct want want[AOF_BATCH];
    u32 wants = 0;
    for (u32 i = 0; i < p->n; i++)
        if (p->batch[i].argc > 1)
            want[wants++] = (struct want){p->session.db, *arg_at(p, p->batch[i].first + 1)};
    if (wants > 1) e->ops->prefetch(e, want, wants);
}

/* *at: offset of the command that can't be run. */
static err run_batch(struct aof_replay *p, size_t *at)
{
    err e = OK;
    fetch_ahead(p);
    for (u32 i = 0; i < p->n && !e; i++) {
        struct reply out = {.out = &p->ignored, .proto = 2};
        struct request q = {&p->session, p->server, (int)p->batch[i].argc,
                            arg_at(p, p->batch[i].first), &out};
        struct outcome o;
        region_replay(p->region, &q, &o);
        if (UNLIKELY(!o.cmd || o.rejected || o.failed)) e = aof_replay_explain(p, &q, &o);
        if (e) *at = p->batch[i].from;
        else p->commands++;
        buf_clear(&p->ignored);
    }
    p->n = 0;
    buf_clear(&p->args);
    if (p->args.cap > ARGS_KEEP) buf_release(&p->args);
    return e;
}

err aof_replay_run(struct aof_replay *p, bytes in, size_t *used)
{
    struct cursor c = {in.p, in.p + in.n};
    err e = OK;
    p->in_group = false;
    while (c.s < c.end && !e) {
        while (c.s < c.end && !e && p->n < AOF_BATCH) e = aof_replay_take_next(p, &c, in.p);
        *used = (size_t)(c.s - in.p);
        if (run_batch(p, used)) return ERR_SYNTAX;
    }
    *used = (size_t)(c.s - in.p);
    return e;
}
