/* Deadlines of hash fields: HEXPIRE and the like as in Redis 7.4, HGETDEL and HGETEX as in Redis 8.0.
 *
 * The engine hides fields that are past their deadline, so here a dead field is simply absent. A command
 * gives all its fields the same deadline; if that is already past, they are deleted instead. */
#include "base/alloc.h"
#include "command/commands.h"
#include "command/collection/hash.h"
#include "command/collection/map.h"
#include "command/ttl.h"

/* Redis keeps field deadlines in 46 bits. */
#define FIELD_DEADLINE_MAX (((i64)1 << 46) - 1)

/* -- arguments --------------------------------------------------------------------- */

bool hash_parse_deadline(struct ctx *c, bytes arg, enum ttl_unit unit, bool absolute, i64 *out)
{
    i64 v, from = absolute ? 0 : c->now_ms;
    if (!ctx_int(c, arg, &v)) return false;
    if (v < 0) {
        reply_error(c->out, "ERR invalid expire time, must be >= 0");
        return false;
    }
    if (v > FIELD_DEADLINE_MAX / unit || v * unit > FIELD_DEADLINE_MAX - from) {
        reply_errorf(c->out, "ERR invalid expire time in '%s' command", c->cmd->name);
        return false;
    }
    *out = ttl_stored(from + v * unit);
    return true;
}

struct fields {
    const bytes *v;
    int n;
};

/* FIELDS numfields field … from argv[at] to the end. */
static bool parse_fields(struct ctx *c, int at, const char *bad_count, struct fields *out)
{
    i64 n;
    if (!bytes_is(c->argv[at], "fields")) {
        reply_error(c->out,
                    "ERR Mandatory argument FIELDS is missing or not at the right position");
        return false;
    }
    if (at + 1 == c->argc) {
        ctx_wrong_arity(c);
        return false;
    }
    if (!num_parse_i64(c->argv[at + 1], &n) || n < 1) {
        reply_error(c->out, bad_count);
        return false;
    }
    if (n != c->argc - at - 2) {
        reply_error(c->out, "ERR The `numfields` parameter must match the number of arguments");
        return false;
    }
    *out = (struct fields){c->argv + at + 2, (int)n};
    return true;
}

#define BAD_COUNT "ERR Number of fields must be a positive integer"
#define BAD_COUNT_HEXPIRE "ERR Parameter `numFields` should be greater than 0"

/* -- what was changed -------------------------------------------------------------- */

/* The fields a command has changed, in the order of its arguments. */
struct changed {
    bytes *v;
    int n;
};

static struct changed changed_new(int max)
{
    return (struct changed){.v = mem_alloc((size_t)max * sizeof(bytes))};
}

static void changed_add(struct changed *ch, bytes field) { ch->v[ch->n++] = field; }

static void drop_if_empty(struct ctx *c, struct key_ref *ref)
{
    bool dead_left = c->eng->ops->map.has_field_deadlines(c->eng, ref) && map_size(c, ref) == 0;
    if (dead_left) keyspace_bury_hollow(c->ks, ref);
    else ctx_drop_if_empty(c, ref);
}

void hash_report_deleted(struct ctx *c, struct key_ref *ref, int n, const bytes *fields)
{
    if (n == 0) return;
    ctx_changed_by(c, (u64)n, c->argv[1], NOTIFY_HASH, "hdel");
    HASH_STATE(c, n, fields, BYTES_LIT("HDEL"), c->argv[1]);
    drop_if_empty(c, ref);
}

static void report_persisted(struct ctx *c, const struct changed *ch)
{
    char n[NUM_I64_LEN];
    if (ch->n == 0) return;
    ctx_changed(c, c->argv[1], NOTIFY_HASH, "hpersist");
    hash_state_newer(c);
    HASH_STATE(c, ch->n, ch->v, BYTES_LIT("HPERSIST"), c->argv[1], BYTES_LIT("FIELDS"),
               bytes_of(n, num_print_i64(n, ch->n)));
}

static void give_deadline(struct ctx *c, struct key_ref *ref, bytes field, i64 deadline_ms)
{
    if (ttl_past(c, deadline_ms)) map_del(c, ref, field);
    else map_set_deadline(c, ref, field, deadline_ms);
}

static void report_deadline(struct ctx *c, struct key_ref *ref, i64 deadline_ms, bytes condition,
                            const struct changed *ch)
{
    if (ttl_past(c, deadline_ms)) {
        hash_report_deleted(c, ref, ch->n, ch->v);
    } else if (ch->n > 0) {
        ctx_changed(c, c->argv[1], NOTIFY_HASH, "hexpire");
        hash_state_deadline(c, deadline_ms, condition, ch->n, ch->v);
    }
}

static void reply_ints(struct ctx *c, int n, i64 v)
{
    reply_array(c->out, (size_t)n);
    while (n-- > 0) reply_int(c->out, v);
}

static void reply_nulls(struct ctx *c, int n)
{
    reply_array(c->out, (size_t)n);
    while (n-- > 0) reply_null(c->out);
}

/* -- HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT ----------------------------------------- */

enum field_reply { FIELD_ABSENT = -2, FIELD_NO_DEADLINE = -1, FIELD_REFUSED = 0, FIELD_DONE = 1,
                   FIELD_DELETED = 2 };
enum condition { ALWAYS, IF_NONE, IF_ANY, IF_LATER, IF_EARLIER };

static enum condition parse_condition(bytes arg)
{
    return bytes_is(arg, "nx")   ? IF_NONE
           : bytes_is(arg, "xx") ? IF_ANY
           : bytes_is(arg, "gt") ? IF_LATER
           : bytes_is(arg, "lt") ? IF_EARLIER
                                 : ALWAYS;
}

/* No deadline counts as later than any. */
static bool condition_met(enum condition cond, i64 old_ms, i64 new_ms)
{
    switch (cond) {
    case IF_NONE: return old_ms == 0;
    case IF_ANY: return old_ms != 0;
    case IF_LATER: return old_ms != 0 && new_ms > old_ms;
    case IF_EARLIER: return old_ms == 0 || new_ms < old_ms;
    default: return true;
    }
}

static void expire_fields(struct ctx *c, struct key_ref *ref, const struct fields *f,
                          i64 deadline_ms, enum condition cond)
{
    struct changed ch = changed_new(f->n);
    reply_array(c->out, (size_t)f->n);
    for (int i = 0; i < f->n; i++) {
        i64 old_ms;
        if (!map_deadline(c, ref, f->v[i], &old_ms)) {
            reply_int(c->out, FIELD_ABSENT);
        } else if (!condition_met(cond, old_ms, deadline_ms)) {
            reply_int(c->out, FIELD_REFUSED);
        } else {
            give_deadline(c, ref, f->v[i], deadline_ms);
            changed_add(&ch, f->v[i]);
            reply_int(c->out, ttl_past(c, deadline_ms) ? FIELD_DELETED : FIELD_DONE);
        }
    }
    bytes condition = {0};
    if (cond != ALWAYS) condition = c->argv[3];
    report_deadline(c, ref, deadline_ms, condition, &ch);
    mem_free(ch.v);
}

static void hash_expire_command(struct ctx *c, enum ttl_unit unit, bool absolute)
{
    struct key_ref ref;
    struct fields f;
    i64 deadline_ms;
    err e = ctx_write(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE) return;
    if (!hash_parse_deadline(c, c->argv[2], unit, absolute, &deadline_ms)) return;
    enum condition cond = parse_condition(c->argv[3]);
    if (!parse_fields(c, cond == ALWAYS ? 3 : 4, BAD_COUNT_HEXPIRE, &f)) return;
    if (e == OK) expire_fields(c, &ref, &f, deadline_ms, cond);
    else reply_ints(c, f.n, FIELD_ABSENT);
}

void cmd_hexpire(struct ctx *c) { hash_expire_command(c, TTL_SECONDS, false); }
void cmd_hpexpire(struct ctx *c) { hash_expire_command(c, TTL_MILLISECONDS, false); }
void cmd_hexpireat(struct ctx *c) { hash_expire_command(c, TTL_SECONDS, true); }
void cmd_hpexpireat(struct ctx *c) { hash_expire_command(c, TTL_MILLISECONDS, true); }

/* -- HTTL HPTTL HEXPIRETIME HPEXPIRETIME ------------------------------------------- */

static void hash_ttl_command(struct ctx *c, enum ttl_unit unit, bool absolute)
{
    struct key_ref ref;
    struct fields f;
    i64 deadline_ms, from = absolute ? 0 : c->now_ms;
    err e = ctx_read(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE || !parse_fields(c, 2, BAD_COUNT, &f)) return;
    reply_array(c->out, (size_t)f.n);
    for (int i = 0; i < f.n; i++) {
        if (e != OK || !map_deadline(c, &ref, f.v[i], &deadline_ms))
            reply_int(c->out, FIELD_ABSENT);
        else if (deadline_ms == 0) reply_int(c->out, FIELD_NO_DEADLINE);
        else reply_int(c->out, (MAX(deadline_ms - from, 0) + unit - 1) / unit); /* no time left: see TTL */
    }
}

void cmd_httl(struct ctx *c) { hash_ttl_command(c, TTL_SECONDS, false); }
void cmd_hpttl(struct ctx *c) { hash_ttl_command(c, TTL_MILLISECONDS, false); }
void cmd_hexpiretime(struct ctx *c) { hash_ttl_command(c, TTL_SECONDS, true); }
void cmd_hpexpiretime(struct ctx *c) { hash_ttl_command(c, TTL_MILLISECONDS, true); }

/* -- HPERSIST ---------------------------------------------------------------------- */

static enum field_reply persist_field(struct ctx *c, struct key_ref *ref, bytes field)
{
    i64 deadline_ms;
    if (!map_deadline(c, ref, field, &deadline_ms)) return FIELD_ABSENT;
    if (deadline_ms == 0) return FIELD_NO_DEADLINE;
    map_set_deadline(c, ref, field, 0);
    return FIELD_DONE;
}

void cmd_hpersist(struct ctx *c)
{
    struct key_ref ref;
    struct fields f;
    err e = ctx_write(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE || !parse_fields(c, 2, BAD_COUNT, &f)) return;
    if (e != OK) {
        reply_ints(c, f.n, FIELD_ABSENT);
        return;
    }
    struct changed ch = changed_new(f.n);
    reply_array(c->out, (size_t)f.n);
    for (int i = 0; i < f.n; i++) {
        enum field_reply r = persist_field(c, &ref, f.v[i]);
        if (r == FIELD_DONE) changed_add(&ch, f.v[i]);
        reply_int(c->out, r);
    }
    report_persisted(c, &ch);
    mem_free(ch.v);
}

/* -- HGETDEL ----------------------------------------------------------------------- */

void cmd_hgetdel(struct ctx *c)
{
    struct key_ref ref;
    struct fields f;
    bytes value;
    err e = ctx_write(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE || !parse_fields(c, 2, BAD_COUNT, &f)) return;
    if (e != OK) {
        reply_nulls(c, f.n);
        return;
    }
    struct changed ch = changed_new(f.n);
    reply_array(c->out, (size_t)f.n);
    for (int i = 0; i < f.n; i++) {
        if (!map_get(c, &ref, f.v[i], &value)) {
            reply_null(c->out);
            continue;
        }
        reply_bulk(c->out, value);
        map_del(c, &ref, f.v[i]);
        changed_add(&ch, f.v[i]);
    }
    hash_report_deleted(c, &ref, ch.n, ch.v);
    mem_free(ch.v);
}

/* -- HGETEX ------------------------------------------------------------------------ */

struct hgetex {
    enum { TTL_LEAVE, TTL_GIVE, TTL_REMOVE } ttl;
    i64 deadline_ms;
    struct fields fields;
};

static bool parse_hgetex(struct ctx *c, struct hgetex *h)
{
    const struct ttl_option *o = ttl_option(c->argv[2]);
    *h = (struct hgetex){.ttl = TTL_LEAVE};
    if (o) {
        h->ttl = TTL_GIVE;
        if (!hash_parse_deadline(c, c->argv[3], o->unit, o->absolute, &h->deadline_ms)) return false;
    } else if (bytes_is(c->argv[2], "persist")) {
        h->ttl = TTL_REMOVE;
    }
    int at = h->ttl == TTL_GIVE ? 4 : h->ttl == TTL_REMOVE ? 3 : 2;
    return parse_fields(c, at, BAD_COUNT, &h->fields);
}

static void getex_fields(struct ctx *c, struct key_ref *ref, const struct hgetex *h)
{
    struct changed ch = changed_new(h->fields.n);
    bytes value;
    reply_array(c->out, (size_t)h->fields.n);
    for (int i = 0; i < h->fields.n; i++) {
        bytes field = h->fields.v[i];
        if (!map_get(c, ref, field, &value)) {
            reply_null(c->out);
            continue;
        }
        reply_bulk(c->out, value);
        if (h->ttl == TTL_GIVE) {
            give_deadline(c, ref, field, h->deadline_ms);
            changed_add(&ch, field);
        } else if (h->ttl == TTL_REMOVE && persist_field(c, ref, field) == FIELD_DONE) {
            changed_add(&ch, field);
        }
    }
    if (h->ttl == TTL_GIVE) report_deadline(c, ref, h->deadline_ms, (bytes){0}, &ch);
    else report_persisted(c, &ch);
    mem_free(ch.v);
}

void cmd_hgetex(struct ctx *c)
{
    struct key_ref ref;
    struct hgetex h;
    err e = ctx_write(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE || !parse_hgetex(c, &h)) return;
    if (e == OK) getex_fields(c, &ref, &h);
    else reply_nulls(c, h.fields.n);
}
