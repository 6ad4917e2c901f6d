/* Writing values as commands.
 *
 * A command is written to out->buf as a whole; the buffer is passed on only between commands. A string longer
 * than a piece becomes SET and APPENDs, so that no step has to write a long one at once. */
#include "persist/command_save.h"

#include <stdlib.h>

#include "base/num.h"
#include "persist/command_stream.h"
#include "resp/reply.h"

#define ELEMENT_COST 32 /* charged to the budget besides its bytes */

void command_put(struct rdb_out *out, size_t n, const bytes *words, size_t more, bytes rest)
{
    struct reply r = {.out = &out->buf, .proto = 2};
    size_t before = out->buf.n;
    reply_array(&r, n + more);
    for (size_t i = 0; i < n; i++) reply_bulk(&r, words[i]);
    buf_append_bytes(&out->buf, rest);
    out->written += out->buf.n - before;
    if (out->buf.n >= RDB_PIECE) rdb_out_flush(out);
}

static void put_command(struct rdb_out *out, size_t n, const bytes *words)
{
    command_put(out, n, words, 0, (bytes){"", 0});
}

static bytes print_int(char digits[NUM_I64_LEN], i64 v) { return bytes_of(digits, num_print_i64(digits, v)); }

void command_save_select(struct rdb_out *out, u32 db)
{
    char digits[NUM_I64_LEN];
    put_command(out, 2, (bytes[]){BYTES_LIT("SELECT"), print_int(digits, db)});
}

void command_save_functions(struct rdb_out *out, const struct function_set *set)
{
    for (u32 i = 0; set && i < set->count; i++) {
        bytes code = buf_bytes(&set->libraries[i]->code);
        put_command(out, 3, (bytes[]){BYTES_LIT("FUNCTION"), BYTES_LIT("LOAD"), code});
    }
}

/* The engine hides what is dead by its time. Returns the previous time, to be restored. */
static i64 command_save_set_time(struct engine *e, i64 to_ms)
{
    i64 from_ms = e->now_ms;
    e->now_ms = to_ms;
    return from_ms;
}

void command_save_begin(struct command_save *s, const struct rdb_job *job, struct key_ref *ref)
{
    *s = (struct command_save){.out = job->out, .eng = job->eng, .now_ms = job->now_ms, .ref = ref};
}

void command_save_release(struct command_save *s)
{
    buf_release(&s->args);
    command_stream_release(s->stream);
    s->stream = NULL;
}

/* -- strings ----------------------------------------------------------------------------------- */

static bool write_string(struct command_save *s)
{
    struct str_view view;
    s->eng->ops->str.get(s->eng, s->ref, &view);
    if (!s->walking) s->left = view.b.n;
    if (s->left > view.b.n) s->out->failed = true; /* the value has changed */
    while ((s->left > 0 || !s->walking) && s->budget > 0 && !s->out->failed) {
        bytes piece = bytes_of(view.b.p + (view.b.n - s->left), (size_t)MIN(s->left, RDB_PIECE));
        bytes name = s->walking ? BYTES_LIT("APPEND") : BYTES_LIT("SET");
        put_command(s->out, 3, (bytes[]){name, s->ref->key, piece});
        s->walking = true;
        s->left -= piece.n;
        s->budget -= (i64)piece.n + ELEMENT_COST;
    }
    return s->left == 0 && s->walking;
}

/* -- collections ------------------------------------------------------------------------------- */

static void save_walk_begin(struct command_save *s, bool passing)
{
    s->walking = true;
    s->left = s->eng->ops->size(s->eng, s->ref);
    element_walk(&s->walk, s->eng, s->ref, passing);
}

/* False at the end. It must come exactly when the count says so: otherwise elements are lost. */
static bool save_walk_next(struct command_save *s, struct element *x)
{
    bool got = element_next(&s->walk, s->eng, s->ref, x);
    if (got != (s->left > 0)) s->out->failed = true;
    if (!got || s->out->failed) return false;
    s->left--;
    s->budget -= (i64)(x->name.n + x->value.n) + ELEMENT_COST;
    return true;
}

static bytes save_command_of(enum value_type type)
{
    switch (type) {
    case TYPE_LIST: return BYTES_LIT("RPUSH");
    case TYPE_SET: return BYTES_LIT("SADD");
    case TYPE_ZSET: return BYTES_LIT("ZADD");
    default: return BYTES_LIT("HSET");
    }
}

static size_t add_element(struct command_save *s, const struct element *x)
{
    struct reply args = {.out = &s->args, .proto = 2};
    char score[64];
    if (s->ref->type == TYPE_ZSET) reply_bulk(&args, bytes_of(score, num_print_double(score, x->score)));
    reply_bulk(&args, x->name);
    if (s->ref->type == TYPE_HASH) reply_bulk(&args, x->value);
    return s->ref->type == TYPE_ZSET || s->ref->type == TYPE_HASH ? 2 : 1;
}

/* Writes one command's elements. False: the walk is at its end. */
static bool write_elements(struct command_save *s)
{
    struct element x;
    size_t args = 0;
    bool more = true;
    buf_clear(&s->args);
    for (int n = 0; n < COMMAND_SAVE_ELEMENTS && s->args.n < RDB_PIECE && (more = save_walk_next(s, &x)); n++)
        args += add_element(s, &x);
    bytes words[] = {save_command_of(s->ref->type), s->ref->key};
    if (args && !s->out->failed) command_put(s->out, 2, words, args, buf_bytes(&s->args));
    return more;
}

static bool write_stream(struct command_save *s)
{
    if (!s->stream) s->stream = command_stream_begin(s->out, s->eng, s->ref, &s->budget);
    return command_stream_step(s->stream);
}

static bool command_save_write_value(struct command_save *s)
{
    if (s->ref->type == TYPE_STREAM) return write_stream(s);
    if (s->ref->type == TYPE_STRING) return write_string(s);
    if (!s->walking) save_walk_begin(s, true);
    while (s->budget > 0)
        if (!write_elements(s)) return true;
    return false;
}

/* -- deadlines --------------------------------------------------------------------------------- */

struct timed_field {
    i64 deadline_ms;
    bytes name;
};

static int command_save_by_deadline(const void *a, const void *b)
{
    const struct timed_field *x = a, *y = b;
    return (x->deadline_ms > y->deadline_ms) - (x->deadline_ms < y->deadline_ms);
}

/* Writes the fields that share the first one's deadline; returns how many. */
static int write_timed(struct command_save *s, const struct timed_field *v, int n)
{
    char deadline[NUM_I64_LEN], number[NUM_I64_LEN];
    int same = 1;
    while (same < n && v[same].deadline_ms == v[0].deadline_ms) same++;
    bytes words[5 + COMMAND_SAVE_ELEMENTS] = {
        BYTES_LIT("HPEXPIREAT"), s->ref->key, print_int(deadline, v[0].deadline_ms), BYTES_LIT("FIELDS"),
        print_int(number, same),
    };
    for (int i = 0; i < same; i++) words[5 + i] = v[i].name;
    put_command(s->out, 5 + (size_t)same, words);
    return same;
}

/* Writes the next few fields that have a deadline. False: the walk is at its end. */
static bool write_some_timed(struct command_save *s)
{
    struct timed_field v[COMMAND_SAVE_ELEMENTS];
    struct element x;
    int n = 0;
    bool more = true;
    while (n < COMMAND_SAVE_ELEMENTS && s->budget > 0 && (more = save_walk_next(s, &x))) {
        v[n] = (struct timed_field){.name = x.name};
        s->eng->ops->map.field_deadline(s->eng, s->ref, x.name, &v[n].deadline_ms);
        n += v[n].deadline_ms != 0;
    }
    /* cppcheck-suppress uninitvar ; it sorts n of them */
    qsort(v, (size_t)n, sizeof v[0], command_save_by_deadline);
    for (int i = 0; i < n;) i += write_timed(s, v + i, n - i);
    return more;
}

static bool write_field_ttls(struct command_save *s)
{
    if (s->ref->type != TYPE_HASH || !s->eng->ops->map.has_field_deadlines(s->eng, s->ref)) return true;
    if (!s->walking) save_walk_begin(s, false);
    while (s->budget > 0)
        if (!write_some_timed(s)) return true;
    return false;
}

static void write_ttl(struct command_save *s)
{
    char deadline[NUM_I64_LEN];
    if (s->ref->deadline_ms == 0) return;
    put_command(s->out, 3, (bytes[]){BYTES_LIT("PEXPIREAT"), s->ref->key,
                                     print_int(deadline, s->ref->deadline_ms)});
}

/* -- the phases: true means that one is through ------------------------------------------------ */

static bool command_save_run_phase(struct command_save *s)
{
    switch (s->phase) {
    case COMMANDS_VALUE: return command_save_write_value(s);
    case COMMANDS_FIELD_TTLS: return write_field_ttls(s);
    case COMMANDS_TTL: write_ttl(s); return true;
    case COMMANDS_DONE: break;
    }
    return false;
}

bool command_save_step(struct command_save *s, u64 budget)
{
    i64 back_ms = command_save_set_time(s->eng, s->now_ms);
    s->budget = (i64)MIN(budget, (u64)INT64_MAX);
    while (s->phase != COMMANDS_DONE && !s->out->failed && command_save_run_phase(s)) {
        s->phase++;
        s->walking = false;
    }
    command_save_set_time(s->eng, back_ms);
    return s->phase == COMMANDS_DONE || s->out->failed;
}
