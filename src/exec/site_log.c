#include "exec/site_log.h"

#define SAME_KEY 0x80 /* in the op: database and name as before */

static void site_log_begin(struct site_log *l)
{
    if (l->ops.n == 0) buf_append(&l->ops, SITE_LOG_MAGIC, sizeof SITE_LOG_MAGIC - 1);
}

static bool site_log_has_value(enum site_log_op op) { return op == SITE_LOG_HEAD || op == SITE_LOG_PUT; }
static bool site_log_has_name(enum site_log_op op) { return op == SITE_LOG_PUT || op == SITE_LOG_DEL; }

void site_log_key(struct site_log *l, enum site_log_op op, u32 db, bytes key, bytes name, bytes value)
{
    bool same = l->named && l->db == db && bytes_eq(buf_bytes(&l->name), key);
    site_log_begin(l);
    site_put_u8(&l->ops, (u8)(op | (same ? SAME_KEY : 0)));
    if (!same) {
        site_put_varint(&l->ops, db);
        site_put_bytes(&l->ops, key);
        l->named = true;
        l->db = db;
        buf_clear(&l->name);
        buf_append_bytes(&l->name, key);
    }
    if (site_log_has_name(op)) site_put_bytes(&l->ops, name);
    if (site_log_has_value(op)) site_put_bytes(&l->ops, value);
}

void site_log_flush(struct site_log *l, u32 db)
{
    site_log_begin(l);
    site_put_u8(&l->ops, SITE_LOG_FLUSH);
    site_put_varint(&l->ops, db);
}

void site_log_applied(struct site_log *l, struct site_dot dot, u64 stamp)
{
    site_log_begin(l);
    site_put_u8(&l->ops, SITE_LOG_APPLIED);
    site_put_dot(&l->ops, dot);
    site_put_u64(&l->ops, stamp);
}

void site_log_state(struct site_log *l, bytes state)
{
    site_log_begin(l);
    site_put_u8(&l->ops, SITE_LOG_STATE);
    site_put_bytes(&l->ops, state);
}

void site_log_clear(struct site_log *l)
{
    buf_clear(&l->ops);
    if (l->ops.cap > SITE_LOG_PIECE) buf_release(&l->ops);
    l->named = false;
}

void site_log_release(struct site_log *l)
{
    buf_release(&l->ops);
    buf_release(&l->name);
}

/* -- reading --------------------------------------------------------------------------------------- */

struct log_key {
    u32 db;
    bytes name;
};

static bool log_get_db(struct site_reader *r, const struct engine *e, u32 base, u32 *db)
{
    u64 n = site_get_varint(r);
    if (e && n >= e->databases) r->bad = true;
    *db = base + (u32)n;
    return !r->bad;
}

static void log_change(struct engine *e, enum site_log_op op, const struct log_key *k, bytes name,
                       bytes value)
{
    const struct companion_ops *ops = &e->ops->companion;
    struct key_ref ref;
    e->ops->find(e, k->db, k->name, &ref);
    if (!ref.entry) ref.key = k->name;
    switch (op) {
    case SITE_LOG_HEAD: ops->set_head(e, &ref, value); return;
    case SITE_LOG_PUT: ops->put(e, &ref, name, value); return;
    case SITE_LOG_DEL: ops->del(e, &ref, name); return;
    case SITE_LOG_DROP: ops->drop(e, &ref); return;
    case SITE_LOG_KEEP: ops->keep(e, &ref, true); return;
    case SITE_LOG_LEAVE:
        if (ref.entry) ops->keep(e, &ref, false);
        return; /* otherwise the key went later in the record, and its companion stayed */
    default: return;
    }
}

static bool log_take_key(struct site_reader *r, u8 op, struct engine *e, u32 base, struct log_key *k)
{
    bytes name = {"", 0}, value = {"", 0};
    if (!(op & SAME_KEY)) {
        if (!log_get_db(r, e, base, &k->db)) return false;
        k->name = site_get_bytes(r);
    }
    op &= (u8)~SAME_KEY;
    if (!k->name.p || op < SITE_LOG_HEAD || op > SITE_LOG_LEAVE) return false;
    if (site_log_has_name(op)) name = site_get_bytes(r);
    if (site_log_has_value(op)) value = site_get_bytes(r);
    if (r->bad || (op == SITE_LOG_HEAD && value.n > COMPANION_HEAD_MAX)) return false;
    if (e) log_change(e, op, k, name, value);
    return true;
}

void site_gather_name(void *names, struct key_ref *ref) { site_put_bytes(names, ref->key); }

/* All companions of a database go; its keys stay. */
static void log_flush(struct engine *e, u32 db)
{
    struct buf names = {0}, place = {0};
    u64 cursor = 0;
    while (e->ops->companion.each_kept(e, db, &place, 512, site_gather_name, &names)) {}
    do cursor = e->ops->scan(e, db, cursor, 512, site_gather_name, &names);
    while (cursor);
    for (struct site_reader r = site_reader_of(buf_bytes(&names)); site_left(&r);)
        log_change(e, SITE_LOG_DROP, &(struct log_key){db, site_get_bytes(&r)}, (bytes){0}, (bytes){0});
    buf_release(&names);
    buf_release(&place);
}

bool site_log_take(bytes log, struct engine *e, u32 db_base, const struct site_log_taker *taker)
{
    struct site_reader r = site_reader_of(log);
    struct log_key k = {0};
    if (!site_log_is(log)) return false;
    r.p += sizeof SITE_LOG_MAGIC - 1;
    while (site_left(&r)) {
        u8 op = site_get_u8(&r);
        if (op == SITE_LOG_APPLIED) {
            struct site_dot dot = site_get_dot(&r);
            u64 stamp = site_get_u64(&r);
            if (!r.bad) taker->applied(taker->arg, dot, stamp);
        } else if (op == SITE_LOG_STATE) {
            bytes state = site_get_bytes(&r);
            if (r.bad || !taker->state(taker->arg, state)) return false;
        } else if (op == SITE_LOG_FLUSH) {
            u32 db;
            if (log_get_db(&r, e, db_base, &db) && e) log_flush(e, db);
        } else if (!log_take_key(&r, op, e, db_base, &k)) {
            return false;
        }
    }
    return !r.bad;
}

/* -- a companion as a whole ------------------------------------------------------------------------ */

bool site_log_companion(struct site_log *l, struct engine *e, struct key_ref *ref, struct buf *from,
                        size_t max)
{
    const struct companion_ops *ops = &e->ops->companion;
    struct rows_iter it;
    bytes head, name, value;
    bool more = false;
    if (from->n == 0) {
        if (!ops->head(e, ref, &head)) return false;
        site_log_key(l, SITE_LOG_HEAD, ref->db, ref->key, (bytes){0}, head);
    }
    ops->iter(e, ref, buf_bytes(from), false, &it);
    while (ops->next(&it, &name, &value)) {
        if (l->ops.n > max) {
            buf_clear(from);
            buf_append_bytes(from, name);
            more = true;
            break;
        }
        site_log_key(l, SITE_LOG_PUT, ref->db, ref->key, name, value);
    }
    ops->done(&it);
    if (!more && ops->kept(e, ref)) site_log_key(l, SITE_LOG_KEEP, ref->db, ref->key, (bytes){0}, (bytes){0});
    return more;
}
