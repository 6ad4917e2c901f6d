/* Hashes. Commands about the fields' deadlines are in hash_ttl.c. */
#include "command/collection/hash.h"

#include <math.h>

#include "base/alloc.h"
#include "command/commands.h"
#include "command/collection/map.h"

/* -- effects ----------------------------------------------------------------------- */

void hash_state(struct ctx *c, int words, const bytes *word, int n, const bytes *args)
{
    bytes *argv = mem_alloc((size_t)(words + n) * sizeof(*argv));
    memcpy(argv, word, (size_t)words * sizeof(*argv));
    memcpy(argv + words, args, (size_t)n * sizeof(*argv));
    ctx_effect(c, words + n, argv);
    mem_free(argv);
}

void hash_state_newer(struct ctx *c) { c->ks->journal->open.newer = true; }

void hash_state_deadline(struct ctx *c, i64 deadline_ms, bytes condition, int n, const bytes *fields)
{
    char ms[NUM_I64_LEN], count[NUM_I64_LEN];
    bytes deadline = bytes_of(ms, num_print_i64(ms, deadline_ms)),
          fields_n = bytes_of(count, num_print_i64(count, n));
    hash_state_newer(c);
    if (condition.n)
        HASH_STATE(c, n, fields, BYTES_LIT("HPEXPIREAT"), c->argv[1], deadline, condition,
                   BYTES_LIT("FIELDS"), fields_n);
    else
        HASH_STATE(c, n, fields, BYTES_LIT("HPEXPIREAT"), c->argv[1], deadline, BYTES_LIT("FIELDS"),
                   fields_n);
}

void hash_state_own_deadline(struct ctx *c, struct key_ref *ref, bytes field)
{
    i64 deadline_ms;
    if (map_deadline(c, ref, field, &deadline_ms) && deadline_ms != 0)
        hash_state_deadline(c, deadline_ms, (bytes){0}, 1, &field);
}

/* -- HSET HMSET HSETNX ------------------------------------------------------------- */

bool hash_put(struct ctx *c, struct key_ref *ref, bytes field, bytes value, bool keep_deadline)
{
    keyspace_reap_field(c->ks, ref, field, true);
    return c->eng->ops->map.put(c->eng, ref, field, value, keep_deadline);
}

static bool set_fields(struct ctx *c, i64 *created)
{
    struct key_ref ref;
    if (c->argc % 2 != 0) {
        ctx_wrong_arity(c);
        return false;
    }
    if (!ctx_open(c, c->argv[1], TYPE_HASH, &ref)) return false;
    *created = 0;
    for (int i = 2; i < c->argc; i += 2) keyspace_reap_field(c->ks, &ref, c->argv[i], true);
    for (int i = 2; i < c->argc; i += 2)
        *created += c->eng->ops->map.put(c->eng, &ref, c->argv[i], c->argv[i + 1], false);
    ctx_changed_by(c, (u64)c->argc / 2 - 1, c->argv[1], NOTIFY_HASH, "hset");
    return true;
}

void cmd_hset(struct ctx *c)
{
    i64 created;
    if (set_fields(c, &created)) reply_int(c->out, created);
}

void cmd_hmset(struct ctx *c)
{
    i64 created;
    if (set_fields(c, &created)) reply_ok(c->out);
}

void cmd_hsetnx(struct ctx *c)
{
    struct key_ref ref;
    if (!ctx_open(c, c->argv[1], TYPE_HASH, &ref)) return;
    if (map_has(c, &ref, c->argv[2])) {
        reply_int(c->out, 0);
        return;
    }
    hash_put(c, &ref, c->argv[2], c->argv[3], false);
    ctx_changed(c, c->argv[1], NOTIFY_HASH, "hset");
    CTX_EFFECT(c, BYTES_LIT("HSET"), c->argv[1], c->argv[2], c->argv[3]);
    reply_int(c->out, 1);
}

/* -- HGET HMGET HEXISTS HSTRLEN HLEN ----------------------------------------------- */

void cmd_hget(struct ctx *c)
{
    struct key_ref ref;
    bytes value;
    err e = ctx_read(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE) return;
    if (e == OK && map_get(c, &ref, c->argv[2], &value)) reply_bulk(c->out, value);
    else reply_null(c->out);
}

void cmd_hmget(struct ctx *c)
{
    struct key_ref ref;
    bytes value;
    err e = ctx_read(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE) return;
    reply_array(c->out, (size_t)c->argc - 2);
    for (int i = 2; i < c->argc; i++) {
        if (e == OK && map_get(c, &ref, c->argv[i], &value)) reply_bulk(c->out, value);
        else reply_null(c->out);
    }
}

void cmd_hexists(struct ctx *c)
{
    struct key_ref ref;
    err e = ctx_read(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE) return;
    reply_int(c->out, e == OK && map_has(c, &ref, c->argv[2]));
}

void cmd_hstrlen(struct ctx *c)
{
    struct key_ref ref;
    bytes value;
    err e = ctx_read(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE) return;
    reply_int(c->out, e == OK && map_get(c, &ref, c->argv[2], &value) ? (i64)value.n : 0);
}

void cmd_hlen(struct ctx *c)
{
    struct key_ref ref;
    err e = ctx_read(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE) return;
    reply_int(c->out, e == OK ? (i64)map_size(c, &ref) : 0);
}

/* -- HGETALL HKEYS HVALS ----------------------------------------------------------- */

static void reply_all(struct ctx *c, bool fields, bool values)
{
    struct key_ref ref;
    struct map_iter it;
    bytes field, value;
    err e = ctx_read(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE) return;
    u64 n = e == OK ? map_size(c, &ref) : 0;
    if (fields && values) reply_map(c->out, n);
    else reply_array(c->out, n);
    if (n == 0) return;
    map_iter(c, &ref, &it);
    it.passing = true;
    while (map_next(c, &it, &field, &value)) {
        if (fields) reply_bulk(c->out, field);
        if (values) reply_bulk(c->out, value);
    }
}

void cmd_hgetall(struct ctx *c) { reply_all(c, true, true); }
void cmd_hkeys(struct ctx *c) { reply_all(c, true, false); }
void cmd_hvals(struct ctx *c) { reply_all(c, false, true); }

/* -- HDEL -------------------------------------------------------------------------- */

/* Deletes the fields of argv, and returns how many there were; also in `gone`, unless that is NULL. */
static int delete_fields(struct ctx *c, struct key_ref *ref, bytes *gone)
{
    int deleted = 0;
    for (int i = 2; i < c->argc; i++) {
        if (!map_del(c, ref, c->argv[i])) continue;
        if (gone) gone[deleted] = c->argv[i];
        deleted++;
    }
    return deleted;
}

void cmd_hdel(struct ctx *c)
{
    struct key_ref ref;
    err e = ctx_write(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE) return;
    bool deadlines = e == OK && c->eng->ops->map.has_field_deadlines(c->eng, &ref);
    bytes *gone = deadlines ? mem_alloc((size_t)c->argc * sizeof *gone) : NULL; /* the others may be dead */
    int deleted = e == OK ? delete_fields(c, &ref, gone) : 0;
    if (gone) {
        hash_report_deleted(c, &ref, deleted, gone);
    } else if (deleted > 0) {
        ctx_changed_by(c, (u64)deleted, c->argv[1], NOTIFY_HASH, "hdel");
        ctx_drop_if_empty(c, &ref);
    }
    mem_free(gone);
    reply_int(c->out, deleted);
}

/* -- HINCRBY HINCRBYFLOAT ---------------------------------------------------------- */

/* Replaces a field's value; its deadline stays. */
static void put_keeping_deadline(struct ctx *c, struct key_ref *ref, bytes value, const char *event)
{
    keyspace_reap_field(c->ks, ref, c->argv[2], true);
    c->eng->intent = INTENT_ADD;
    c->eng->ops->map.put(c->eng, ref, c->argv[2], value, true);
    ctx_changed(c, c->argv[1], NOTIFY_HASH, event);
}

static void state_value(struct ctx *c, struct key_ref *ref, bytes value)
{
    CTX_EFFECT(c, BYTES_LIT("HSET"), c->argv[1], c->argv[2], value);
    hash_state_own_deadline(c, ref, c->argv[2]);
}

void cmd_hincrby(struct ctx *c)
{
    struct key_ref ref;
    bytes old;
    i64 by, value = 0;
    char digits[NUM_I64_LEN];
    if (!ctx_int(c, c->argv[3], &by)) return;
    if (!ctx_open(c, c->argv[1], TYPE_HASH, &ref)) return;
    if (map_get(c, &ref, c->argv[2], &old) && !num_parse_i64(old, &value)) {
        reply_error(c->out, "ERR hash value is not an integer");
        return;
    }
    if (__builtin_add_overflow(value, by, &value)) {
        reply_error(c->out, "ERR increment or decrement would overflow");
        return;
    }
    put_keeping_deadline(c, &ref, bytes_of(digits, num_print_i64(digits, value)), "hincrby");
    reply_int(c->out, value);
}

void cmd_hincrbyfloat(struct ctx *c)
{
    struct key_ref ref;
    bytes old;
    long double by, value = 0;
    char digits[NUM_DOUBLE_LEN];
    if (!num_parse_long_double(c->argv[3], &by)) {
        reply_error(c->out, "ERR value is not a valid float");
        return;
    }
    if (!isfinite(by)) {
        reply_error(c->out, "ERR value is NaN or Infinity");
        return;
    }
    if (!ctx_open(c, c->argv[1], TYPE_HASH, &ref)) return;
    if (map_get(c, &ref, c->argv[2], &old) && !num_parse_long_double(old, &value)) {
        reply_error(c->out, "ERR hash value is not a float");
        return;
    }
    value += by;
    if (!isfinite(value)) {
        reply_error(c->out, "ERR increment would produce NaN or Infinity");
        return;
    }
    bytes text = bytes_of(digits, num_print_long_double(digits, value));
    put_keeping_deadline(c, &ref, text, "hincrbyfloat");
    state_value(c, &ref, text);
    reply_bulk(c->out, text);
}

/* -- HRANDFIELD HSCAN -------------------------------------------------------------- */

static void emit_field(struct ctx *c, bytes field, bytes value)
{
    (void)value;
    reply_bulk(c->out, field);
}

static void emit_pair(struct ctx *c, bytes field, bytes value)
{
    if (c->out->proto > 2) reply_array(c->out, 2);
    reply_bulk(c->out, field);
    reply_bulk(c->out, value);
}

static void random_field(struct ctx *c)
{
    struct key_ref ref;
    bytes field, value;
    err e = ctx_read(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE) return;
    if (e == OK && map_random(c, &ref, &field, &value)) reply_bulk(c->out, field);
    else reply_null(c->out);
    if (e == OK) keyspace_met_dead_fields(c->ks, &ref);
}

static void random_fields(struct ctx *c, i64 count, bool values)
{
    struct key_ref ref;
    u64 draws;
    err e = ctx_read(c, c->argv[1], TYPE_HASH, &ref);
    if (e == ERR_TYPE) return;
    if (e != OK || count == 0 || map_size(c, &ref) == 0) {
        reply_array(c->out, 0);
        return;
    }
    if (!map_draws(c, &ref, count, &draws)) return;
    reply_array(c->out, values && c->out->proto == 2 ? draws * 2 : draws);
    map_draw(c, &ref, count, values ? emit_pair : emit_field);
    keyspace_met_dead_fields(c->ks, &ref);
}

void cmd_hrandfield(struct ctx *c)
{
    i64 count;
    bool values = c->argc == 4;
    if (c->argc == 2) {
        random_field(c);
        return;
    }
    if (!ctx_int_range(c, c->argv[2], -INT64_MAX, INT64_MAX, &count)) return;
    if (c->argc > 4 || (values && !bytes_is(c->argv[3], "withvalues"))) {
        ctx_syntax_error(c);
        return;
    }
    if (values && (count < -INT64_MAX / 2 || count > INT64_MAX / 2)) {
        reply_error(c->out, "ERR value is out of range");
        return;
    }
    random_fields(c, count, values);
}

void cmd_hscan(struct ctx *c) { map_scan(c, TYPE_HASH); }
