#include "exec/site_row.h"

#include "site/state.h"

#define ROW_NAME BYTES_LIT("site")
#define ROW_VERSION 1
#define FORGET_KEYS 512

void site_row_put(const struct region_site *rs, u8 flags, u64 stamp, bool trail, struct buf *to)
{
    site_put_u8(to, ROW_VERSION);
    site_put_u8(to, flags | (rs->region->node->synced ? ROW_SYNCED : 0) | (rs->follows ? ROW_FOLLOWS : 0));
    site_put_u64(to, rs->region->node->boot);
    site_put_u64(to, stamp);
    site_put_state(&rs->capture.site, trail, to);
}

bool site_row_get(bytes raw, struct site_row *row)
{
    struct site_reader r = site_reader_of(raw);
    bool known = site_get_u8(&r) == ROW_VERSION;
    row->flags = site_get_u8(&r);
    row->boot = site_get_u64(&r);
    row->stamp = site_get_u64(&r);
    row->state = bytes_of(r.p, site_left(&r));
    return known && !r.bad && row->state.n > 2;
}

void site_row_write(struct region_site *rs, u8 flags, u64 stamp)
{
    struct engine *e = rs->region->eng;
    struct buf row = {0};
    site_row_put(rs, flags, stamp, false, &row);
    e->ops->meta.put(e, META_SITE, ROW_NAME, buf_bytes(&row));
    buf_release(&row);
}

static void row_found(void *arg, bytes name, bytes value, double unused UNUSED)
{
    struct buf *to = arg;
    if (bytes_eq(name, ROW_NAME)) buf_append_bytes(to, value);
}

void site_row_read(struct engine *e, struct buf *to) { e->ops->meta.each(e, META_SITE, row_found, to); }

void site_row_delete(struct engine *e) { e->ops->meta.del(e, META_SITE, ROW_NAME); }

/* -- a server that is no site any more ------------------------------------------------------------- */

bool region_site_was_here(struct region *r, u8 *gid)
{
    struct buf raw = {0};
    struct site_row row;
    site_row_read(r->eng, &raw);
    if (raw.n && site_row_get(buf_bytes(&raw), &row)) r->site_was = site_row_gid(&row);
    buf_release(&raw);
    *gid = r->site_was;
    return r->site_was != 0;
}

static u32 forget_names(struct engine *e, u32 db, const struct buf *names)
{
    u32 n = 0;
    for (struct site_reader r = site_reader_of(buf_bytes(names)); site_left(&r); n++) {
        struct key_ref ref;
        bytes name = site_get_bytes(&r);
        e->ops->find(e, db, name, &ref);
        if (!ref.entry) ref.key = name;
        e->ops->companion.drop(e, &ref);
    }
    return n;
}

/* If it is interrupted, some keys have lost their metadata: then nothing but going on is possible. */
static void forget_begin(struct engine *e)
{
    struct buf raw = {0};
    site_row_read(e, &raw);
    if (raw.n > 1 && !(raw.p[1] & ROW_FORGETS)) {
        raw.p[1] |= ROW_FORGETS;
        e->ops->meta.put(e, META_SITE, ROW_NAME, buf_bytes(&raw));
    }
    buf_release(&raw);
}

/* The AOF still has all of it before this record. */
static void forget_end(struct region *r)
{
    struct site_log l = {0};
    site_row_delete(r->eng);
    r->site_was = 0;
    for (u32 db = 0; db < r->eng->databases; db++) site_log_flush(&l, db);
    site_log_state(&l, SITE_LOG_NO_STATE);
    if (journal_wanted(&r->journal))
        journal_effect(&r->journal, 0, 2, (bytes[]){BYTES_LIT("ECHO"), buf_bytes(&l.ops)});
    region_end_record(r);
    site_log_release(&l);
}

/* First those that stay, then those that go with keys; `place` is the cursor among these. */
bool region_site_forget_some(struct region *r, struct buf *place, u32 *db)
{
    struct engine *e = r->eng;
    struct buf names = {0}, from = {0};
    u64 cursor = 0;
    CHECK(!r->site);
    forget_begin(e);
    if (place->n == 0) e->ops->companion.each_kept(e, *db, &from, FORGET_KEYS, site_gather_name, &names);
    u32 kept = forget_names(e, *db, &names);
    buf_clear(&names);
    if (kept == 0) {
        if (place->n == sizeof cursor) memcpy(&cursor, place->p, sizeof cursor);
        cursor = e->ops->scan(e, *db, cursor, FORGET_KEYS, site_gather_name, &names);
        forget_names(e, *db, &names);
        buf_clear(place);
        if (cursor) buf_append(place, &cursor, sizeof cursor);
        else ++*db;
    }
    buf_release(&names);
    buf_release(&from);
    if (*db < e->databases) return true;
    forget_end(r);
    return false;
}
