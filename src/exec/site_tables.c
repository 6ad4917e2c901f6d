#include "exec/site_tables.h"

#include "exec/region_site.h"
#include "rdb/rdb_value.h"
#include "xstream/xstream.h"

static const struct engine_ops *own_ops(const struct engine *e) { return e->site->tables.engine; }

static bool tables_serves(const struct engine *e, u32 db) { return db < e->databases; }

/* -- logged ---------------------------------------------------------------------------------------- */

/* False: the journal has no reader, and only the change is noted. */
static bool log_wanted(struct engine *e, const struct key_ref *ref)
{
    struct journal *j = &e->site->region->journal;
    if (journal_wanted(j)) return tables_serves(e, ref->db);
    if (tables_serves(e, ref->db)) journal_changed(j);
    return false;
}

static void log_note(struct engine *e, enum site_log_op op, const struct key_ref *ref, bytes key, bytes name,
                     bytes value)
{
    if (log_wanted(e, ref)) site_log_key(&e->site->log, op, ref->db, key, name, value);
}

static bool tables_has_companion(struct engine *e, struct key_ref *ref)
{
    bytes head;
    return own_ops(e)->companion.head(e, ref, &head);
}

/* A companion created for an absent key stays. The log says so, because the key may exist at the reader. */
static void log_made(struct engine *e, struct key_ref *ref, bool was, bytes key)
{
    if (!was && own_ops(e)->companion.kept(e, ref))
        log_note(e, SITE_LOG_KEEP, ref, key, (bytes){0}, (bytes){0});
}

/* Records before calling the primitive, because that may move what the ref points to. */
static void logged_set_head(struct engine *e, struct key_ref *ref, bytes head)
{
    if (!log_wanted(e, ref)) {
        own_ops(e)->companion.set_head(e, ref, head);
        return;
    }
    bool was = tables_has_companion(e, ref);
    log_note(e, SITE_LOG_HEAD, ref, ref->key, (bytes){0}, head);
    own_ops(e)->companion.set_head(e, ref, head);
    log_made(e, ref, was, ref->key);
}

static void logged_put(struct engine *e, struct key_ref *ref, bytes name, bytes value)
{
    if (!log_wanted(e, ref)) {
        own_ops(e)->companion.put(e, ref, name, value);
        return;
    }
    bool was = tables_has_companion(e, ref);
    log_note(e, SITE_LOG_PUT, ref, ref->key, name, value);
    own_ops(e)->companion.put(e, ref, name, value);
    log_made(e, ref, was, ref->key);
}

static bool logged_del(struct engine *e, struct key_ref *ref, bytes name)
{
    log_note(e, SITE_LOG_DEL, ref, ref->key, name, (bytes){0});
    return own_ops(e)->companion.del(e, ref, name);
}

static void logged_drop_companion(struct engine *e, struct key_ref *ref)
{
    if (tables_has_companion(e, ref)) log_note(e, SITE_LOG_DROP, ref, ref->key, (bytes){0}, (bytes){0});
    own_ops(e)->companion.drop(e, ref);
}

static void logged_keep(struct engine *e, struct key_ref *ref, bool stays)
{
    if (own_ops(e)->companion.kept(e, ref) == stays) return;
    enum site_log_op leaves = ref->entry ? SITE_LOG_LEAVE : SITE_LOG_DROP;
    log_note(e, stays ? SITE_LOG_KEEP : leaves, ref, ref->key, (bytes){0}, (bytes){0});
    own_ops(e)->companion.keep(e, ref, stays);
}

/* Primitives that delete a companion implicitly. */
static void log_implicit(struct engine *e, struct key_ref *ref)
{
    if (!own_ops(e)->companion.kept(e, ref) && tables_has_companion(e, ref))
        log_note(e, SITE_LOG_DROP, ref, ref->key, (bytes){0}, (bytes){0});
}

static void logged_drop(struct engine *e, struct key_ref *ref)
{
    log_implicit(e, ref);
    own_ops(e)->drop(e, ref);
}

static void logged_rename(struct engine *e, struct key_ref *ref, u32 db, bytes key)
{
    log_implicit(e, ref);
    own_ops(e)->rename(e, ref, db, key);
}

static void logged_flush(struct engine *e, u32 db)
{
    if (tables_serves(e, db)) site_log_flush(&e->site->log, db);
    own_ops(e)->flush(e, db);
}

static void tables_init_logged(struct engine_ops *t)
{
    t->companion.set_head = logged_set_head;
    t->companion.put = logged_put;
    t->companion.del = logged_del;
    t->companion.drop = logged_drop_companion;
    t->companion.keep = logged_keep;
    t->drop = logged_drop;
    t->rename = logged_rename;
    t->flush = logged_flush;
}

/* -- told ------------------------------------------------------------------------------------------ */

static void tell_effect(struct engine *e, u32 db, int argc, const bytes *argv)
{
    struct region *r = e->site->region;
    r->ks.dirty++;
    journal_effect(&r->journal, db, argc, argv);
}

/* An event for each key and kind, as a command with many elements has one. */
static void tell_event(struct engine *e, u32 db, bytes key, u32 class, const char *event)
{
    struct region_site *rs = e->site;
    struct keyspace *ks = &rs->region->ks;
    if (rs->told_event == event && rs->told_db == db && bytes_eq(buf_bytes(&rs->told_key), key)) return;
    rs->told_event = event;
    rs->told_db = db;
    buf_clear(&rs->told_key);
    buf_append_bytes(&rs->told_key, key);
    keyspace_touched(ks, db, key);
    keyspace_notify(ks, db, key, class, event);
}

static void told_put(struct engine *e, u32 db, bytes key, struct key_ref *ref, bytes value, i64 deadline_ms)
{
    char ms[NUM_I64_LEN];
    bytes at = bytes_of(ms, num_print_i64(ms, deadline_ms));
    tell_effect(e, db, deadline_ms ? 5 : 3, (bytes[]){BYTES_LIT("SET"), key, value, BYTES_LIT("PXAT"), at});
    if (!ref->entry) tell_event(e, db, key, NOTIFY_NEW, "new");
    tell_event(e, db, key, NOTIFY_STRING, "set");
    own_ops(e)->str.put(e, db, key, ref, value, deadline_ms);
}

static void told_create(struct engine *e, u32 db, bytes key, enum value_type type, struct key_ref *ref)
{
    tell_event(e, db, key, NOTIFY_NEW, "new");
    own_ops(e)->create(e, db, key, type, ref);
}

static bool told_map_put(struct engine *e, struct key_ref *ref, bytes field, bytes value, bool keep_deadline)
{
    bool hash = ref->type == TYPE_HASH;
    tell_effect(e, ref->db, hash ? 4 : 3,
                (bytes[]){hash ? BYTES_LIT("HSET") : BYTES_LIT("SADD"), ref->key, field, value});
    tell_event(e, ref->db, ref->key, hash ? NOTIFY_HASH : NOTIFY_SET, hash ? "hset" : "sadd");
    return own_ops(e)->map.put(e, ref, field, value, keep_deadline);
}

static void told_set_field_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 deadline_ms)
{
    char ms[NUM_I64_LEN];
    bool none = deadline_ms == 0;
    bytes at = bytes_of(ms, num_print_i64(ms, deadline_ms));
    bytes fields = BYTES_LIT("FIELDS"), one = BYTES_LIT("1");
    if (none) tell_effect(e, ref->db, 5, (bytes[]){BYTES_LIT("HPERSIST"), ref->key, fields, one, field});
    else tell_effect(e, ref->db, 6, (bytes[]){BYTES_LIT("HPEXPIREAT"), ref->key, at, fields, one, field});
    tell_event(e, ref->db, ref->key, NOTIFY_HASH, none ? "hpersist" : "hexpire");
    own_ops(e)->map.set_field_deadline(e, ref, field, deadline_ms);
}

/* A field that is past its deadline. */
static bool told_field_expired(struct engine *e, struct key_ref *ref, bytes field, i64 deadline_ms)
{
    tell_effect(e, ref->db, 3, (bytes[]){BYTES_LIT("HDEL"), ref->key, field});
    keyspace_note_expired_field(&e->site->region->ks, ref, field, deadline_ms, false);
    tell_event(e, ref->db, ref->key, NOTIFY_HASH, "hexpired");
    return own_ops(e)->map.del(e, ref, field) || own_ops(e)->map.reap_field(e, ref, field, NULL, NULL);
}

static bool tables_field_past(struct engine *e, struct key_ref *ref, bytes field, i64 *deadline_ms)
{
    bytes value;
    return own_ops(e)->map.has_field_deadlines(e, ref) &&
           own_ops(e)->map.stored(e, ref, field, &value, deadline_ms) &&
           !alive(*deadline_ms, site_now(region_site_of(e->site->region)));
}

static bool told_map_del(struct engine *e, struct key_ref *ref, bytes field)
{
    bool hash = ref->type == TYPE_HASH;
    i64 deadline_ms;
    if (hash && tables_field_past(e, ref, field, &deadline_ms))
        return told_field_expired(e, ref, field, deadline_ms);
    tell_effect(e, ref->db, 3, (bytes[]){hash ? BYTES_LIT("HDEL") : BYTES_LIT("SREM"), ref->key, field});
    tell_event(e, ref->db, ref->key, hash ? NOTIFY_HASH : NOTIFY_SET, hash ? "hdel" : "srem");
    return own_ops(e)->map.del(e, ref, field);
}

static bool told_zset_put(struct engine *e, struct key_ref *ref, bytes member, double score)
{
    char text[64];
    bytes at = bytes_of(text, num_print_double(text, score));
    tell_effect(e, ref->db, 4, (bytes[]){BYTES_LIT("ZADD"), ref->key, at, member});
    tell_event(e, ref->db, ref->key, NOTIFY_ZSET, "zadd");
    return own_ops(e)->zset.put(e, ref, member, score);
}

static bool told_zset_del(struct engine *e, struct key_ref *ref, bytes member)
{
    tell_effect(e, ref->db, 3, (bytes[]){BYTES_LIT("ZREM"), ref->key, member});
    tell_event(e, ref->db, ref->key, NOTIFY_ZSET, "zrem");
    return own_ops(e)->zset.del(e, ref, member);
}

/* Commands reach into the middle of a list by value only: there an element is marked by one that no list
 * has. */
#define TELL_MARK BYTES_LIT("\1mayfly-site-4b0f5c2a9d8e47f1\1")

static void tell_set(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    char text[NUM_I64_LEN];
    bytes at = bytes_of(text, num_print_i64(text, (i64)index));
    tell_effect(e, ref->db, 4, (bytes[]){BYTES_LIT("LSET"), ref->key, at, value});
}

static void told_seq_set(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    tell_set(e, ref, index, value);
    tell_event(e, ref->db, ref->key, NOTIFY_LIST, "lset");
    own_ops(e)->seq.set(e, ref, index, value);
}

static void told_seq_insert(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    bool back = index == own_ops(e)->size(e, ref), front = index == 0;
    if (back || front) {
        tell_effect(e, ref->db, 3,
                    (bytes[]){back ? BYTES_LIT("RPUSH") : BYTES_LIT("LPUSH"), ref->key, value});
    } else {
        bytes there;
        own_ops(e)->seq.get(e, ref, index, &there);
        tell_set(e, ref, index, TELL_MARK);
        tell_effect(e, ref->db, 5,
                    (bytes[]){BYTES_LIT("LINSERT"), ref->key, BYTES_LIT("BEFORE"), TELL_MARK, value});
        tell_set(e, ref, index + 1, there);
    }
    tell_event(e, ref->db, ref->key, NOTIFY_LIST, back ? "rpush" : front ? "lpush" : "linsert");
    own_ops(e)->seq.insert(e, ref, index, value);
}

static void told_seq_erase(struct engine *e, struct key_ref *ref, u64 index, u64 count)
{
    u64 size = own_ops(e)->size(e, ref);
    for (u64 i = 0; i < count; i++) {
        bool front = index == 0, back = index + 1 == size - i;
        if (front || back) {
            tell_effect(e, ref->db, 2, (bytes[]){front ? BYTES_LIT("LPOP") : BYTES_LIT("RPOP"), ref->key});
        } else {
            tell_set(e, ref, index, TELL_MARK);
            tell_effect(e, ref->db, 4, (bytes[]){BYTES_LIT("LREM"), ref->key, BYTES_LIT("1"), TELL_MARK});
        }
    }
    tell_event(e, ref->db, ref->key, NOTIFY_LIST, "lrem");
    own_ops(e)->seq.erase(e, ref, index, count);
}

/* -- streams: commands can't express all changes of their rows ------------------------------------- */

/* Rows of nodes and the like follow from the commands. */
static bool tells_row(const struct engine *e, const struct key_ref *ref, bytes row)
{
    return tables_serves(e, ref->db) && xrow_is_entry(row);
}

static bytes tell_id(char text[STREAM_ID_TEXT], bytes row)
{
    return stream_id_print(text, stream_id_unpack(row.p + 1));
}

static void tell_xadd(struct engine *e, struct key_ref *ref, bytes row, bytes packed)
{
    struct buf args = {0};
    struct xentry x;
    char text[STREAM_ID_TEXT];
    bytes name, value, head[] = {BYTES_LIT("XADD"), ref->key, tell_id(text, row)};
    int argc = 3;
    buf_append(&args, head, sizeof head);
    for (xentry_open(&x, packed); xentry_next(&x, &name, &value); argc += 2) {
        buf_append(&args, &name, sizeof name);
        buf_append(&args, &value, sizeof value);
    }
    tell_effect(e, ref->db, argc, (bytes *)(void *)args.p);
    buf_release(&args);
}

/* No command adds an entry between others: the whole stream is journalled at the end of the record. */
static void tell_whole(struct engine *e, const struct key_ref *ref, bool empty)
{
    struct region_site *rs = e->site;
    bool same = rs->whole && rs->whole_db == ref->db && bytes_eq(buf_bytes(&rs->whole_key), ref->key);
    rs->region->ks.dirty++;
    if (!same) {
        site_tables_tell_whole(rs);
        rs->whole_db = ref->db;
        buf_append_bytes(&rs->whole_key, ref->key);
    }
    rs->whole_empty = empty && (!same || rs->whole_empty);
    rs->whole = true;
}

/* A stream that is created empty, and then gets an entry, needs only XADD. */
static void tell_not_empty(struct region_site *rs, const struct key_ref *ref)
{
    if (!rs->whole_empty || rs->whole_db != ref->db || !bytes_eq(buf_bytes(&rs->whole_key), ref->key)) return;
    rs->whole = rs->whole_empty = false;
    buf_clear(&rs->whole_key);
}

void site_tables_tell_whole(struct region_site *rs)
{
    struct engine *e = rs->region->eng;
    struct key_ref ref;
    struct rdb_out out;
    char ms[NUM_I64_LEN];
    bool there = rs->whole && own_ops(e)->find(e, rs->whole_db, buf_bytes(&rs->whole_key), &ref);
    rs->whole = rs->whole_empty = false;
    if (!there || ref.type != TYPE_STREAM || !journal_wanted(&rs->region->journal)) {
        buf_clear(&rs->whole_key);
        return;
    }
    rdb_dump(&rs->region->ks, &ref, &out);
    bytes at = bytes_of(ms, num_print_i64(ms, ref.deadline_ms));
    tell_effect(e, ref.db, 6,
                (bytes[]){BYTES_LIT("RESTORE"), ref.key, at, buf_bytes(&out.buf), BYTES_LIT("REPLACE"),
                          BYTES_LIT("ABSTTL")});
    rdb_out_release(&out);
    buf_clear(&rs->whole_key);
}

static void told_rows_put(struct engine *e, struct key_ref *ref, bytes row, bytes value)
{
    if (tells_row(e, ref, row)) {
        struct stream_id last = xstream_head_last(own_ops(e)->rows.head(e, ref));
        bool last_one = stream_id_cmp(stream_id_unpack(row.p + 1), last) > 0;
        if (last_one) {
            tell_xadd(e, ref, row, value);
            tell_not_empty(e->site, ref);
        } else tell_whole(e, ref, false);
        tell_event(e, ref->db, ref->key, NOTIFY_STREAM, "xadd");
    }
    own_ops(e)->rows.put(e, ref, row, value);
}

static bool told_rows_del(struct engine *e, struct key_ref *ref, bytes row)
{
    char text[STREAM_ID_TEXT];
    if (tells_row(e, ref, row)) {
        tell_effect(e, ref->db, 3, (bytes[]){BYTES_LIT("XDEL"), ref->key, tell_id(text, row)});
        tell_event(e, ref->db, ref->key, NOTIFY_STREAM, "xdel");
    }
    return own_ops(e)->rows.del(e, ref, row);
}

/* The last id follows from the added entries, unless it was set explicitly. */
static void told_rows_set_head(struct engine *e, struct key_ref *ref, bytes head, u64 size)
{
    struct stream_id was = xstream_head_last(own_ops(e)->rows.head(e, ref)), is = xstream_head_last(head);
    struct xrow row = xrow_entry(is);
    char text[STREAM_ID_TEXT];
    int moves = stream_id_cmp(is, was);
    bool said = moves == 0 || (moves > 0 && own_ops(e)->rows.get(e, ref, xrow_bytes(&row), NULL));
    own_ops(e)->rows.set_head(e, ref, head, size);
    if (!tables_serves(e, ref->db)) return;
    if (size == 0) tell_whole(e, ref, true); /* XADD makes a stream, and nothing else would */
    else if (!said)
        tell_effect(e, ref->db, 3, (bytes[]){BYTES_LIT("XSETID"), ref->key, stream_id_print(text, is)});
}

static bool tables_is_past(const struct engine *e, const struct key_ref *ref)
{
    return !alive(ref->deadline_ms, site_now(region_site_of(e->site->region)));
}

static void told_drop(struct engine *e, struct key_ref *ref)
{
    struct keyspace *ks = &e->site->region->ks;
    if (tables_is_past(e, ref)) {
        ks->dirty++;
        keyspace_note_expired(ks, ref, false);
    } else {
        tell_effect(e, ref->db, 2, (bytes[]){BYTES_LIT("DEL"), ref->key});
        tell_event(e, ref->db, ref->key, NOTIFY_GENERIC, "del");
    }
    logged_drop(e, ref);
}

/* A dead key that another site's extension keeps alive: the engine may have returned it as due already, and
 * would not do so again (caps.due_again) unless it is filed again. */
static void told_set_deadline(struct engine *e, struct key_ref *ref, i64 deadline_ms)
{
    char ms[NUM_I64_LEN];
    bytes at = bytes_of(ms, num_print_i64(ms, deadline_ms));
    bool none = deadline_ms == 0;
    tell_effect(e, ref->db, none ? 2 : 3,
                (bytes[]){none ? BYTES_LIT("PERSIST") : BYTES_LIT("PEXPIREAT"), ref->key, at});
    tell_event(e, ref->db, ref->key, NOTIFY_GENERIC, none ? "persist" : "expire");
    if (tables_is_past(e, ref)) own_ops(e)->set_deadline(e, ref, 0);
    own_ops(e)->set_deadline(e, ref, deadline_ms);
}

static void tables_init_told(struct engine_ops *t)
{
    t->str.put = told_put;
    t->create = told_create;
    t->map.put = told_map_put;
    t->map.del = told_map_del;
    t->map.set_field_deadline = told_set_field_deadline;
    t->zset.put = told_zset_put;
    t->zset.del = told_zset_del;
    t->seq.set = told_seq_set;
    t->seq.insert = told_seq_insert;
    t->seq.erase = told_seq_erase;
    t->rows.put = told_rows_put;
    t->rows.del = told_rows_del;
    t->rows.set_head = told_rows_set_head;
    t->drop = told_drop;
    t->set_deadline = told_set_deadline;
}

/* -- kept ------------------------------------------------------------------------------------------ */

static void kept_before(struct engine *e, struct key_ref *ref)
{
    const struct companion_ops *ops = &own_ops(e)->companion;
    if (tables_serves(e, ref->db) && !ops->kept(e, ref) && tables_has_companion(e, ref))
        ops->keep(e, ref, true);
}

static void kept_drop(struct engine *e, struct key_ref *ref)
{
    kept_before(e, ref);
    own_ops(e)->drop(e, ref);
}

static void kept_rename(struct engine *e, struct key_ref *ref, u32 db, bytes key)
{
    kept_before(e, ref);
    own_ops(e)->rename(e, ref, db, key);
}

static void kept_gather(void *arg, struct key_ref *ref) { site_put_bytes(arg, ref->key); }

/* Key by key, as the site did it, because the metadata it keeps is in the keys' companions. */
static void kept_flush(struct engine *e, u32 db)
{
    const struct engine_ops *own = own_ops(e);
    struct buf names = {0};
    u64 cursor = 0;
    if (!tables_serves(e, db)) {
        own->flush(e, db);
        return;
    }
    do cursor = own->scan(e, db, cursor, 512, kept_gather, &names);
    while (cursor);
    for (struct site_reader r = site_reader_of(buf_bytes(&names)); site_left(&r);) {
        struct key_ref ref;
        if (own->find(e, db, site_get_bytes(&r), &ref)) kept_drop(e, &ref);
    }
    buf_release(&names);
}

static void tables_init_kept(struct engine_ops *t)
{
    t->drop = kept_drop;
    t->rename = kept_rename;
    t->flush = kept_flush;
}

void site_tables_init(struct site_tables *t, const struct engine_ops *engine)
{
    t->engine = engine;
    t->logged = t->kept = *engine;
    tables_init_logged(&t->logged);
    t->told = t->logged;
    tables_init_told(&t->told);
    tables_init_kept(&t->kept);
}
