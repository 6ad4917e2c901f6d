#include "exec/site_adopt.h"

#include "site/place.h"
#include "xstream/xstream.h"

#define ADOPT_KEYS 512 /* in one transaction */

struct adopted {
    struct region_site *rs;
    struct site_dot dot;
    u64 stamp;
};

/* The engine has the value of each cell but that of a stream's last id. */
static void adopt_cell(const struct adopted *a, struct site_key *k, bytes path, bytes value)
{
    struct site *s = &a->rs->capture.site;
    struct site_cell *c = site_key_cell(k, k->held, path, &s->cell);
    i64 at_ms;
    site_cell_write(c, a->dot, a->stamp, a->dot, value);
    c->writes[c->n_writes - 1].shown = value.n == 0;
    if (k->held == TYPE_HASH && k->e->ops->map.field_deadline(k->e, &k->ref, path, &at_ms) && at_ms)
        site_ttl_add(&c->ttl, (struct site_deadline){.dot = a->dot, .at_ms = at_ms});
    site_key_store(k, c);
}

static void adopt_stream(const struct adopted *a, struct site_key *k, struct buf *paths)
{
    struct xstream s;
    struct xwalk walk;
    struct stream_id id, top = STREAM_ID_MIN;
    char raw[STREAM_ID_RAW];
    bytes packed;
    xstream_open(&s, k->e, &k->ref);
    site_put_bytes(paths, (bytes){"", 0}); /* that it is there */
    xstream_walk(&walk, &s, STREAM_ID_MIN, STREAM_ID_MAX, false);
    while (xwalk_next(&walk, &id, &packed)) {
        top = id;
        stream_id_pack(raw, id);
        site_put_bytes(paths, bytes_of(raw, sizeof raw));
    }
    if (stream_id_cmp(top, s.last) == 0) return;
    stream_id_pack(raw, s.last);
    adopt_cell(a, k, SITE_LAST_ID, bytes_of(raw, sizeof raw));
}

static void adopt_paths_of_list(const struct adopted *a, struct site_key *k, struct buf *paths)
{
    u64 n = k->e->ops->size(k->e, &k->ref);
    struct buf path = {0};
    for (u64 i = 0; i < n; i++) {
        buf_clear(&path);
        site_put_place(&path, (i64)a->stamp, a->dot, (i64)i);
        site_put_bytes(paths, buf_bytes(&path));
    }
    buf_release(&path);
}

static void adopt_paths(const struct adopted *a, struct site_key *k, struct buf *paths)
{
    const struct engine_ops *ops = k->e->ops;
    bytes name;
    if (k->held == TYPE_LIST) {
        adopt_paths_of_list(a, k, paths);
    } else if (k->held == TYPE_STREAM) {
        adopt_stream(a, k, paths);
    } else if (k->held == TYPE_ZSET) {
        struct zset_iter it;
        double score;
        ops->zset.iter(k->e, &k->ref, &(struct zset_seek){.by = ZSEEK_RANK}, &it);
        while (ops->zset.next(&it, &name, &score)) site_put_bytes(paths, name);
    } else {
        struct map_iter it;
        if (k->held == TYPE_HASH) ops->map.reap(k->e, &k->ref, UINT32_MAX, NULL, NULL);
        ops->map.iter(k->e, &k->ref, &it);
        while (ops->map.next(&it, &name, NULL)) site_put_bytes(paths, name);
    }
}

/* As if one effect had written all of it just now. */
static void adopt_key(const struct adopted *a, u32 db, bytes name)
{
    struct site_key *k = &a->rs->capture.site.key;
    struct buf paths = {0};
    bytes head;
    site_key_load(k, a->rs->region->eng, db, name);
    bool foreign = k->held == TYPE_NONE || k->held >= SITE_TYPES;
    if (foreign || k->e->ops->companion.head(k->e, &k->ref, &head)) return;
    bool string = k->held == TYPE_STRING;
    site_key_add_claim(k, (struct site_claim){a->dot, a->stamp, k->held});
    if (k->ref.deadline_ms)
        site_ttl_add(&k->ttl, (struct site_deadline){.dot = a->dot,
                                                        .at_ms = k->ref.deadline_ms,
                                                        .birth = string ? a->dot : (struct site_dot){0}});
    if (string) {
        site_cell_write(&k->string, a->dot, a->stamp, a->dot, (bytes){"", 0});
        k->string.writes[0].shown = true;
    } else {
        adopt_paths(a, k, &paths);
    }
    for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r);)
        adopt_cell(a, k, site_get_bytes(&r), (bytes){"", 0});
    site_key_save(k, 0);
    buf_release(&paths);
}

static bool adopt_commit(struct region_site *rs, i64 now_ms)
{
    region_end_record(rs->region);
    bool kept = region_commit(rs->region);
    region_begin(rs->region, now_ms);
    return kept;
}

static bool adopt_database(const struct adopted *a, u32 db, i64 now_ms)
{
    struct engine *e = a->rs->region->eng;
    struct buf names = {0};
    u64 cursor = 0;
    bool kept = true;
    do {
        buf_clear(&names);
        cursor = e->ops->scan(e, db, cursor, ADOPT_KEYS, site_gather_name, &names);
        site_capture_pause(&a->rs->capture, &a->rs->tables.logged);
        for (struct site_reader r = site_reader_of(buf_bytes(&names)); site_left(&r);)
            adopt_key(a, db, site_get_bytes(&r));
        site_capture_resume(&a->rs->capture);
        a->rs->state_changed = true;
        kept = adopt_commit(a->rs, now_ms);
    } while (cursor && kept);
    buf_release(&names);
    return kept;
}

bool site_adopt_all(struct region_site *rs, i64 now_ms)
{
    struct region *r = rs->region;
    struct site *s = &rs->capture.site;
    struct adopted a = {rs, {1, s->gid}, rs->becoming};
    u64 keys = 0;
    for (u32 db = 0; db < s->databases; db++) keys += r->eng->ops->count(r->eng, db);
    for (u32 db = 0; keys && db < s->databases; db++)
        if (!adopt_database(&a, db, now_ms)) return false;
    rs->becoming = 0;
    if (keys == 0) return true;
    s->hlc = MAX(s->hlc, a.stamp);
    site_note_applied(s, a.dot);
    return true;
}
