/* Loading RDB files: a loop over opcodes, most of which describe the key that follows. */
#include <stdio.h>

#include "exec/region_site.h"
#include "persist/rdb_file.h"

#define MAGIC_LEN 9
#define KEY_LEAST 4            /* least bytes of a key in the file: its type, its name and its value */
#define EXPECT_MOST (1u << 20) /* keys, if the size of the file is not known */

void rdb_loader_init(struct rdb_loader *l, struct keyspace *ks, struct rdb_source *source, u64 size,
                     const struct rdb_policy *policy)
{
    *l = (struct rdb_loader){.ks = ks, .policy = *policy, .idle_s = -1, .frequency = -1};
    l->may_come = size == RDB_IN_UNKNOWN ? EXPECT_MOST : size / KEY_LEAST;
    rdb_in_source(&l->in, source, size);
    l->in.max_string = MAX(ks->max_string, RDB_MAX_STRING);
    l->load = (struct rdb_load){
        .in = &l->in,
        .eng = ks->eng,
        .replace = policy->replace,
        .commit_chunk = policy->commit_chunk,
        .arg = policy->arg,
    };
}

void rdb_loader_release(struct rdb_loader *l)
{
    rdb_in_release(&l->in);
    rdb_load_release(&l->load);
    buf_release(&l->key);
    buf_release(&l->text);
}

/* -- names in messages ------------------------------------------------------------------------- */

static const char *key_text(const struct rdb_loader *l, char text[BYTES_LEGIBLE + 4])
{
    return bytes_legible(buf_bytes(&l->key), text);
}

static void rdb_read_note(struct rdb_loader *l, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void rdb_read_note(struct rdb_loader *l, const char *fmt, ...)
{
    if (!l->policy.note) return;
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    l->policy.note(l->policy.arg, text);
}

/* -- keys -------------------------------------------------------------------------------------- */

static u32 target_db(const struct rdb_loader *l) { return l->policy.db_base + l->db; }

/* Skips a key of a type Mayfly does not have. */
static bool pass_over_key(struct rdb_loader *l, enum rdb_type type)
{
    char text[BYTES_LEGIBLE + 4];
    const char *name = rdb_type_name(type);
    if (!l->policy.skip_unsupported)
        return rdb_fail(&l->in, "the key \"%s\" of database %u holds a %s, which Mayfly does not support",
                        key_text(l, text), l->db, name);
    if (!rdb_skip_value(&l->in, type)) return false;
    l->counts.unsupported++;
    rdb_read_note(l, "Left out the key \"%s\" of database %u: it holds a %s, which Mayfly does not support",
         key_text(l, text), l->db, name);
    return true;
}

static bool keeps_dead(const struct rdb_loader *l)
{
    return l->policy.load_dead &&
           l->policy.load_dead(l->policy.arg, l->db, buf_bytes(&l->key), l->deadline_ms);
}

static bool wanted(const struct rdb_loader *l)
{
    return alive(l->deadline_ms, l->ks->now_ms) || keeps_dead(l);
}

static bool load_key(struct rdb_loader *l, enum rdb_type type)
{
    struct rdb_load *load = &l->load;
    load->db = target_db(l);
    load->key = buf_bytes(&l->key);
    load->deadline_ms = l->deadline_ms;
    load->now_ms = keeps_dead(l) ? 0 : l->ks->now_ms;
    switch (rdb_load_value(load, type)) {
    case RDB_OK:
        l->last_kept = true;
        l->counts.loaded++;
        access_restore(l->ks, &load->ref, l->idle_s, l->frequency);
        return true;
    case RDB_EMPTY: l->counts.empty++; return true;
    case RDB_DEAD: l->counts.dead++; return true;
    case RDB_UNSUPPORTED: return pass_over_key(l, type);
    case RDB_CORRUPT: break;
    }
    return false;
}

static bool read_key(struct rdb_loader *l, u8 type)
{
    l->last_kept = false;
    if (!rdb_type_name(type)) return rdb_fail(&l->in, "%u is neither an opcode nor a type of value", type);
    if (!rdb_read_string(&l->in, &l->key)) return false;
    if (wanted(l)) {
        struct want want = {.db = target_db(l), .key = buf_bytes(&l->key)};
        l->ks->eng->ops->prefetch(l->ks->eng, &want, 1);
        if (!load_key(l, type)) return false;
    } else {
        if (!rdb_skip_value(&l->in, type)) return false;
        l->counts.dead++;
    }
    l->deadline_ms = 0;
    l->idle_s = l->frequency = -1;
    return true;
}

/* -- before a key ------------------------------------------------------------------------------- */

static bool read_deadline(struct rdb_loader *l, u64 unit_ms)
{
    i64 v = 0;
    if (!rdb_read_raw(&l->in, &v, unit_ms == 1 ? 8 : 4)) return false;
    if (unit_ms != 1) v = (int32_t)v;
    /* Redis writes and accepts any number. Here 0 means none, so a time before 1970 becomes 1: past. */
    l->deadline_ms = MAX(v * (i64)unit_ms, 1);
    return true;
}

static bool read_idle(struct rdb_loader *l)
{
    u64 n;
    if (!rdb_read_len(&l->in, &n)) return false;
    l->idle_s = (i64)MIN(n, (u64)INT64_MAX);
    return true;
}

static bool read_frequency(struct rdb_loader *l)
{
    u8 n;
    if (!rdb_read_byte(&l->in, &n)) return false;
    l->frequency = n;
    return true;
}

/* -- everything else --------------------------------------------------------------------------- */

static bool read_select(struct rdb_loader *l)
{
    u64 db;
    if (!rdb_read_len(&l->in, &db)) return false;
    if (db >= l->ks->eng->databases)
        return rdb_fail(&l->in, "the file has a database %llu, and only %u are configured",
                        (unsigned long long)db, l->ks->eng->databases);
    l->db = (u32)db;
    return true;
}

static bool read_field_ttls(struct rdb_loader *l)
{
    struct engine *e = l->ks->eng;
    if (!l->last_kept) return true; /* they were skipped with their hash */
    if (!e->ops->find(e, target_db(l), buf_bytes(&l->key), &l->load.ref)) /* a commit may have moved it */
        return rdb_fail(&l->in, "the key was deleted while loading");
    if (l->load.ref.type != TYPE_HASH)
        return rdb_fail(&l->in, "field deadlines follow a key that is not a hash");
    enum rdb_result result = rdb_load_field_ttls(&l->load, buf_bytes(&l->text));
    if (result == RDB_DEAD) {
        l->last_kept = false;
        l->counts.loaded--;
        l->counts.dead++;
    }
    return result != RDB_CORRUPT;
}

static bool read_site(struct rdb_loader *l)
{
    struct region *r = l->policy.site;
    if (!r || region_site_take_log(r, buf_bytes(&l->text), l->policy.db_base)) return true;
    return rdb_fail(&l->in, "malformed metadata of a site");
}

static bool read_aux(struct rdb_loader *l)
{
    struct buf name = {0};
    bool ok = rdb_read_string(&l->in, &name) && rdb_read_string(&l->in, &l->text);
    if (ok && bytes_eq(buf_bytes(&name), BYTES_LIT(RDB_AUX_FIELD_TTL))) ok = read_field_ttls(l);
    else if (ok && bytes_eq(buf_bytes(&name), BYTES_LIT(RDB_AUX_SITE))) ok = read_site(l);
    else if (ok && l->policy.aux) l->policy.aux(l->policy.arg, buf_bytes(&name), buf_bytes(&l->text));
    buf_release(&name);
    return ok;
}

static bool read_module_aux(struct rdb_loader *l)
{
    u64 id;
    char name[10];
    if (!rdb_read_len(&l->in, &id)) return false;
    rdb_module_name(id, name);
    if (!l->policy.skip_unsupported)
        return rdb_fail(&l->in, "data of the module type %s, which Mayfly does not support", name);
    if (!rdb_skip_module(&l->in)) return false; /* an ordinary number even where it marks a type */
    l->counts.module_aux++;
    rdb_read_note(l, "Left out data of the module type %s: Mayfly has no modules", name);
    return true;
}

/* Loads the library in l->text; `why` says what is wrong with it, or is "". */
static void load_function(struct rdb_loader *l, char why[160])
{
    struct buf error = {0};
    bool aside = l->policy.db_base > 0;
    why[0] = '\0';
    if (!functions_load(l->policy.node, aside, buf_bytes(&l->text), l->policy.replace, 0, NULL, &error))
        snprintf(why, 160, "%.*s", (int)error.n, error.p);
    buf_release(&error);
}

static bool read_function(struct rdb_loader *l)
{
    char text[BYTES_LEGIBLE + 4], why[160] = "Mayfly does not support them here";
    if (!rdb_read_string(&l->in, &l->text)) return false;
    if (l->policy.library) {
        l->policy.library(l->policy.arg, buf_bytes(&l->text));
        return true;
    }
    if (l->policy.node) load_function(l, why);
    if (!why[0]) return true;
    if (!l->policy.skip_unsupported)
        return rdb_fail(&l->in, "a library of functions can't be loaded: %s", why);
    l->counts.functions++;
    rdb_read_note(l, "Left out a library of functions, %s: %s", bytes_legible(buf_bytes(&l->text), text),
                  why);
    return true;
}

/* The number of keys in the database: a hint, used as far as the file can hold that many. */
static bool read_sizes(struct rdb_loader *l)
{
    u64 keys, with_deadline;
    if (!rdb_read_len(&l->in, &keys) || !rdb_read_len(&l->in, &with_deadline)) return false;
    keys = MIN(keys, l->may_come);
    l->may_come -= keys;
    l->ks->eng->ops->expect(l->ks->eng, target_db(l), keys);
    return true;
}

static bool skip_numbers(struct rdb_loader *l, int count)
{
    u64 n;
    while (count-- > 0)
        if (!rdb_read_len(&l->in, &n)) return false;
    return true;
}

static bool read_end(struct rdb_loader *l)
{
    struct rdb_in *in = &l->in;
    u64 is, says = 0;
    if (l->version >= 5) { /* older files have none */
        is = rdb_in_crc(in);
        if (!rdb_read_u64(in, &says)) return false;
        if (l->policy.checksum && says && says != is)
            return rdb_fail(in, "the checksum is wrong: it says %016llx, and %016llx was found",
                            (unsigned long long)says, (unsigned long long)is);
    }
    if (!l->policy.tail && !rdb_at_end(in)) return rdb_fail(in, "there are bytes after the end");
    l->done = true;
    return true;
}

static bool read_item(struct rdb_loader *l)
{
    u8 op;
    if (!rdb_read_byte(&l->in, &op)) return false;
    switch (op) {
    case RDB_OP_EXPIRETIME: return read_deadline(l, 1000);
    case RDB_OP_EXPIRETIME_MS: return read_deadline(l, 1);
    case RDB_OP_IDLE: return read_idle(l);
    case RDB_OP_FREQ: return read_frequency(l);
    case RDB_OP_AUX: return read_aux(l);
    case RDB_OP_MODULE_AUX: return read_module_aux(l);
    case RDB_OP_FUNCTION: return read_function(l);
    case RDB_OP_FUNCTION_EARLY: return rdb_fail(&l->in, "a function of Redis 7.0's release candidates");
    case RDB_OP_SLOT_INFO: return skip_numbers(l, 3);
    default: break;
    }
    if (op < RDB_OP_SLOT_INFO) return read_key(l, op);
    if (l->deadline_ms || l->idle_s >= 0 || l->frequency >= 0)
        return rdb_fail(&l->in, "a deadline, or another attribute of a key, that no key follows");
    switch (op) {
    case RDB_OP_SELECTDB: return read_select(l);
    case RDB_OP_RESIZEDB: return read_sizes(l);
    default: return read_end(l);
    }
}

static bool read_magic(struct rdb_loader *l)
{
    static const char name[] = "REDIS"; /* followed by four digits */
    int version = 0;
    if (rdb_at_end(&l->in)) return rdb_fail(&l->in, "this is not an RDB file: it is empty");
    for (int i = 0; i < MAGIC_LEN; i++) { /* byte by byte, to recognise even a short file of another kind */
        char c;
        if (!rdb_read_raw(&l->in, &c, 1)) return false;
        bool fits = i < 5 ? c == name[i] : c >= '0' && c <= '9';
        if (!fits) return rdb_fail(&l->in, "this is not an RDB file");
        version = i < 5 ? 0 : version * 10 + (c - '0');
    }
    if (version < 1 || version > RDB_VERSION_MAX)
        return rdb_fail(&l->in, "version %d of RDB is not supported, only 1 to %d are", version,
                        RDB_VERSION_MAX);
    l->version = version;
    return true;
}

static void tell_error(struct rdb_loader *l)
{
    char text[BYTES_LEGIBLE + 4];
    snprintf(l->error, sizeof l->error, "at offset %llu: %s", (unsigned long long)l->in.error_offset,
             l->in.error);
    if (!l->key.n) return;
    size_t n = strlen(l->error);
    snprintf(l->error + n, sizeof l->error - n, " (the last key was \"%s\" of database %u)",
             key_text(l, text), l->db);
}

err rdb_loader_step(struct rdb_loader *l, u64 budget)
{
    u64 start = rdb_offset(&l->in);
    bool ok = !l->in.failed && (l->version || read_magic(l));
    while (ok && !l->done && rdb_offset(&l->in) - start < budget) ok = read_item(l);
    if (!ok) tell_error(l);
    return !ok ? ERR_SYNTAX : l->done ? OK : ERR_AGAIN;
}
