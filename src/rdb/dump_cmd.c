/* DUMP and RESTORE. A payload is
 *
 *   u8 type · value, as in an RDB file · u16 version · u64 checksum of all before it
 *
 * The version is 10, which Redis 7.0 reads, unless the value needs Redis 7.4: a hash with field deadlines has
 * 12. */
#include "base/crc64.h"
#include "command/commands.h"
#include "rdb/rdb_value.h"
#include "command/ttl.h"

#define FOOTER 10

/* -- DUMP -------------------------------------------------------------------------------------- */

void rdb_payload_end(struct buf *payload, u16 version)
{
    buf_append(payload, &version, 2);
    u64 crc = crc64(0, buf_bytes(payload));
    buf_append(payload, &crc, 8);
}

void rdb_dump(struct keyspace *ks, struct key_ref *ref, struct rdb_out *out)
{
    struct rdb_save save;
    struct rdb_job job = {.out = out, .eng = ks->eng, .now_ms = ks->dead_by_ms, .ttls = RDB_TTLS_NATIVE};
    rdb_out_init(out, NULL, ks->compress ? SIZE_MAX : 0);
    rdb_save_begin(&save, &job, ref);
    rdb_put_byte(out, (u8)save.type);
    rdb_save_step(&save, RDB_SAVE_ALL);
    rdb_payload_end(&out->buf, (u16)rdb_save_version(&save));
    rdb_save_release(&save);
}

void cmd_dump(struct ctx *c)
{
    struct key_ref ref;
    struct rdb_out out;
    if (ctx_read(c, c->argv[1], TYPE_NONE, &ref) != OK) {
        reply_null(c->out);
        return;
    }
    rdb_dump(c->ks, &ref, &out);
    if (out.failed) reply_error(c->out, "ERR the value could not be read");
    else reply_bulk(c->out, buf_bytes(&out.buf));
    rdb_out_release(&out);
}

/* -- RESTORE ----------------------------------------------------------------------------------- */

struct restore {
    bytes key, payload, body; /* body: the payload without its footer */
    bool replace, absolute;
    i64 idle_s, frequency; /* -1: not given */
    i64 deadline_ms;       /* 0: none */
    bool dead;             /* the deadline has passed */
    bool taken;            /* an existing key is replaced */
    u64 dead_fields;       /* left out of the payload */
};

/* The number after an option. False: an error was replied. */
static bool option_number(struct ctx *c, int at, i64 max, const char *error, i64 *out)
{
    if (!ctx_int(c, c->argv[at], out)) return false;
    if (*out >= 0 && *out <= max) return true;
    reply_error(c->out, error);
    return false;
}

static bool restore_options(struct ctx *c, struct restore *r)
{
    for (int i = 4; i < c->argc; i++) {
        bytes word = c->argv[i];
        bool more = i + 1 < c->argc;
        if (bytes_is(word, "replace")) {
            r->replace = true;
        } else if (bytes_is(word, "absttl")) {
            r->absolute = true;
        } else if (bytes_is(word, "idletime") && more && r->frequency < 0) {
            const char *error = "ERR Invalid IDLETIME value, must be >= 0";
            if (!option_number(c, ++i, INT64_MAX, error, &r->idle_s)) return false;
        } else if (bytes_is(word, "freq") && more && r->idle_s < 0) {
            const char *error = "ERR Invalid FREQ value, must be >= 0 and <= 255";
            if (!option_number(c, ++i, 255, error, &r->frequency)) return false;
        } else {
            ctx_syntax_error(c);
            return false;
        }
    }
    return true;
}

/* A relative deadline that overflows counts as past, as in Redis. */
static bool restore_deadline(struct ctx *c, struct restore *r)
{
    i64 ttl_ms;
    if (!ctx_int(c, c->argv[2], &ttl_ms)) return false;
    if (ttl_ms < 0) {
        reply_error(c->out, "ERR Invalid TTL value, must be >= 0");
        return false;
    }
    r->deadline_ms = ttl_ms;
    if (ttl_ms && !r->absolute) r->deadline_ms = (i64)((u64)ttl_ms + (u64)c->now_ms);
    r->dead = r->deadline_ms && ttl_past(c, r->deadline_ms);
    return true;
}

bool rdb_payload_body(bytes payload, bool any_checksum, bytes *body)
{
    u16 version;
    u64 crc;
    if (payload.n < FOOTER) return false;
    *body = bytes_of(payload.p, payload.n - FOOTER);
    const char *footer = payload.p + body->n;
    memcpy(&version, footer, 2);
    memcpy(&crc, footer + 2, 8);
    if (version > RDB_VERSION_MAX) return false;
    return any_checksum || crc64(0, bytes_of(payload.p, payload.n - 8)) == crc;
}

/* Loads the payload's value under a key that is absent: RDB_OK, RDB_DEAD if all of it is dead, or
 * RDB_CORRUPT. */
static enum rdb_result load_value(struct ctx *c, struct restore *r, bytes key, struct key_ref *ref)
{
    struct rdb_in in;
    struct rdb_load load = {
        .in = &in, .eng = c->eng, .db = c->db, .key = key, .now_ms = c->ks->dead_by_ms,
        .deadline_ms = r->dead ? 0 : r->deadline_ms,
    };
    u8 type;
    enum rdb_result result = RDB_CORRUPT;
    rdb_in_memory(&in, r->body);
    in.max_string = MAX(c->ks->max_string, RDB_MAX_STRING);
    if (rdb_read_byte(&in, &type)) result = rdb_load_value(&load, type);
    bool sound = (result == RDB_OK || result == RDB_DEAD) && rdb_at_end(&in);
    if (result == RDB_OK && (r->dead || !sound)) {
        ctx_drop(c, &load.ref);
        result = RDB_DEAD;
    }
    if (!sound) result = RDB_CORRUPT;
    *ref = load.ref;
    r->dead_fields = load.dead;
    rdb_load_release(&load);
    rdb_in_release(&in);
    return result;
}

/* An unused key name. The value is loaded under it and renamed once it is known to be sound. No client sees
 * the name, because all of this happens within one command. */
static bytes unused_name(struct ctx *c, char name[16])
{
    struct key_ref ref;
    memcpy(name, "restore\0", 8);
    do {
        u64 random = rand_next(&c->rng);
        memcpy(name + 8, &random, 8);
    } while (c->eng->ops->find(c->eng, c->db, bytes_of(name, 16), &ref));
    return bytes_of(name, 16);
}

/* Replaces `old` by the value; `old` stays if the payload is corrupt. */
static enum rdb_result restore_value(struct ctx *c, struct restore *r, struct key_ref *old,
                                     struct key_ref *ref)
{
    char name[16];
    if (!old->entry) return load_value(c, r, r->key, ref);
    enum rdb_result result = load_value(c, r, unused_name(c, name), ref);
    if (result == RDB_CORRUPT) return result;
    ctx_drop(c, old);
    if (result == RDB_OK) c->eng->ops->rename(c->eng, ref, c->db, r->key);
    return result;
}

static void state_restored(struct ctx *c, const struct restore *r, bytes payload)
{
    char digits[NUM_I64_LEN];
    bytes deadline = bytes_of(digits, num_print_i64(digits, r->deadline_ms));
    bytes argv[] = {BYTES_LIT("RESTORE"), r->key, deadline, payload, BYTES_LIT("ABSTTL"),
                    BYTES_LIT("REPLACE")};
    ctx_effect(c, r->taken ? 6 : 5, argv);
}

/* A reader of the journal considers nothing dead, so it gets a payload without the dead fields. */
static void state_living(struct ctx *c, const struct restore *r, struct key_ref *ref)
{
    struct rdb_out out;
    rdb_dump(c->ks, ref, &out);
    state_restored(c, r, buf_bytes(&out.buf));
    rdb_out_release(&out);
}

/* A command with ABSTTL is journaled as it is. */
static void restore_done(struct ctx *c, const struct restore *r, struct key_ref *ref)
{
    access_restore(c->ks, ref, r->idle_s, r->frequency);
    keyspace_notify(c->ks, c->db, r->key, NOTIFY_NEW, "new");
    ctx_changed(c, r->key, NOTIFY_GENERIC, "restore");
    if (UNLIKELY(r->dead_fields || c->ks->skip_checksums)) state_living(c, r, ref);
    else if (!r->absolute) state_restored(c, r, r->payload);
}

/* The value is dead on arrival, and the old key is deleted. */
static void restore_dead(struct ctx *c, const struct restore *r)
{
    if (!r->taken) return;
    ctx_changed(c, r->key, NOTIFY_GENERIC, "del");
    CTX_EFFECT(c, BYTES_LIT("DEL"), r->key);
}

void cmd_restore(struct ctx *c)
{
    struct restore r = {.key = c->argv[1], .payload = c->argv[3], .idle_s = -1, .frequency = -1};
    struct key_ref old, ref;
    if (!restore_options(c, &r)) return;
    r.taken = ctx_write(c, r.key, TYPE_NONE, &old) == OK;
    if (r.taken && !r.replace) {
        reply_error(c->out, "BUSYKEY Target key name already exists.");
        return;
    }
    if (!restore_deadline(c, &r)) return;
    if (!rdb_payload_body(r.payload, c->ks->skip_checksums, &r.body)) {
        reply_error(c->out, "ERR DUMP payload version or checksum are wrong");
        return;
    }
    enum rdb_result result = restore_value(c, &r, &old, &ref);
    if (result == RDB_CORRUPT) {
        reply_error(c->out, "ERR Bad data format");
        return;
    }
    if (result == RDB_OK) restore_done(c, &r, &ref);
    else restore_dead(c, &r);
    reply_ok(c->out);
}
