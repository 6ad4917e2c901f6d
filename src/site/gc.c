/* Garbage collection. Once every member is known to have everything that the site had when a key last
 * changed, no effect concurrent to that change can arrive any more: values that lost, marks of expiry and
 * dead counters are not needed any more. */
#include "site/site.h"

static void collect_cells(struct site *s, struct site_key *k, enum value_type kind, bool keep)
{
    struct buf paths = {0};
    site_key_paths(k, kind, &paths);
    for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r);) {
        struct site_cell *c = site_key_cell(k, kind, site_get_bytes(&r), &s->cell);
        if (keep && !c->was_untidy) continue;
        site_cell_collect(c);
        if (!keep) c->n_writes = c->n_incs = c->ttl.n_deadlines = 0;
        site_key_store(k, c);
    }
    buf_release(&paths);
}

static void collect_key(struct site *s, struct site_key *k)
{
    const struct site_claim *top = site_key_claim(k);
    const struct site_deadline *ttl = site_key_ttl(k);
    enum value_type type = top ? top->type : TYPE_NONE;
    struct site_claim claim = top ? *top : (struct site_claim){0};
    struct site_deadline deadline = ttl ? *ttl : (struct site_deadline){0};
    k->n_claims = 0;
    site_ttl_reset(&k->ttl);
    if (top) site_key_add_claim(k, claim);
    if (top && deadline.at_ms) site_ttl_add(&k->ttl, deadline);
    site_cell_collect(&k->string);
    if (type != TYPE_STRING) k->string.n_writes = k->string.n_incs = 0;
    for (u32 kind = TYPE_HASH; kind < SITE_TYPES; kind++)
        if (k->untidy || kind != type) collect_cells(s, k, kind, kind == type);
}

void site_collect(struct site *s, u32 db, bytes name)
{
    struct site_key *k = &s->key;
    site_key_load(k, s->e, db, name);
    if (site_key_tidy(k) || site_key_empty(k) || k->last > s->stable) return;
    collect_key(s, k);
    site_key_save(k, 0);
}

static void collect_name(void *arg, struct key_ref *ref)
{
    struct buf *names = arg;
    site_put_bytes(names, ref->key);
}

bool site_collect_some(struct site *s, u32 db, struct buf *place, u32 count)
{
    struct buf names = {0};
    bool more = s->e->ops->companion.each_kept(s->e, db, place, count, collect_name, &names);
    for (struct site_reader r = site_reader_of(buf_bytes(&names)); site_left(&r);)
        site_collect(s, db, site_get_bytes(&r));
    buf_release(&names);
    return more;
}
