#include "site/full.h"

#include <stdlib.h>

#include "site/room.h"

#define FULL_EFFECTS_MAX ((size_t)1 << 30) /* bytes of effects that come while a full sync does */

bool site_full_begin(struct site_full *f, struct site *s, bytes head, const char **why)
{
    *f = (struct site_full){.s = s};
    if (!site_merge_open(s, &f->m, head, why)) return false;
    f->from = f->m.gid;
    return true;
}

bool site_full_key(struct site_full *f, u32 db, bytes name, bytes dump, const char **why)
{
    if (!site_merge_check(&f->m, dump, why)) return false;
    *why = "no room on disk for a full sync";
    return site_stage_add(&f->keys, db, name, dump);
}

bool site_full_effect(struct site_full *f, bytes raw, const char **why)
{
    struct site_effect e;
    if (!site_effect_parse(raw, &e, why)) return false;
    *why = "too many effects during a full sync";
    if (f->effects.n > FULL_EFFECTS_MAX) return false;
    site_put_bytes(&f->effects, raw);
    return true;
}

bool site_full_start(struct site_full *f)
{
    if (!site_merge_completes(f->s, &f->m)) return false; /* it was not torn when this one began */
    f->s->torn = true;
    site_clock_join(&f->s->torn_upto, &f->m.clock);
    f->state = FULL_EXPIRING;
    site_merge_follow(f->s, &f->m);
    f->s->torn_ms = site_now(f->s);
    site_names_begin(&f->own, f->s);
    return true;
}

void site_full_tear(struct site_full *f)
{
    f->s->torn = true;
    site_clock_join(&f->s->torn_upto, &f->m.clock);
}

void site_full_release(struct site_full *f)
{
    site_merge_release(&f->m);
    site_stage_release(&f->keys);
    site_names_release(&f->own);
    buf_release(&f->effects);
    buf_release(&f->loaded);
    buf_release(&f->last);
    mem_free(f->list);
    *f = (struct site_full){0};
}

/* -- our own keys -------------------------------------------------------------------------------------- */

static bool full_expire(struct site_full *f, u32 count)
{
    bytes name;
    u32 db;
    for (u32 i = 0; i < count; i++) {
        if (!site_names_next(&f->own, f->s, &db, &name)) {
            f->state = FULL_MERGING;
            return true;
        }
        if (!site_stage_add(&f->keys, db, name, (bytes){"", 0})) return false;
        if (site_expire(f->s, db, name, NULL)) site_expire_due_fields(f->s, db, name);
    }
    return true;
}

/* -- merging ------------------------------------------------------------------------------------------- */

struct site_full_key {
    u32 db;
    bytes name, dump;
};

/* By name; one with a dump comes before the same key of ours. */
static int full_key_cmp(const void *pa, const void *pb)
{
    const struct site_full_key *a = pa, *b = pb;
    if (a->db != b->db) return a->db < b->db ? -1 : 1;
    int c = bytes_cmp(a->name, b->name);
    return c ? c : (a->dump.n == 0) - (b->dump.n == 0);
}

static bool full_is_again(const struct site_full *f, u32 i)
{
    return i > 0 && f->list[i].db == f->list[i - 1].db && bytes_eq(f->list[i].name, f->list[i - 1].name);
}

/* The next part that has any keys, in order. False: it could not be read. */
static bool full_next_part(struct site_full *f)
{
    f->n = f->at = 0;
    while (!f->n && f->part < STAGE_PARTS) {
        buf_clear(&f->loaded);
        if (!site_stage_load(&f->keys, f->part++, &f->loaded)) return false;
        for (struct site_reader r = site_reader_of(buf_bytes(&f->loaded)); site_left(&r);) {
            struct site_full_key k = {.db = (u32)site_get_varint(&r)};
            k.name = site_get_bytes(&r);
            k.dump = site_get_bytes(&r);
            f->list = site_room(f->list, f->n, &f->room, sizeof k);
            f->list[f->n++] = k;
        }
    }
    if (f->n) qsort(f->list, f->n, sizeof *f->list, full_key_cmp);
    return true;
}

static enum site_full_step full_finish(struct site_full *f)
{
    struct site *s = f->s;
    for (struct site_reader r = site_reader_of(buf_bytes(&f->last)); site_left(&r);) {
        u32 db = (u32)site_get_varint(&r);
        bytes name = site_get_bytes(&r);
        site_merge_key(s, &f->m, db, name, site_get_bytes(&r));
    }
    site_merge_finish(s, &f->m);
    f->state = FULL_REPLAYING;
    return FULL_MERGED;
}

static enum site_full_step full_merge(struct site_full *f, u32 count)
{
    for (u32 i = 0; i < count; i++) {
        if (f->at == f->n && !full_next_part(f)) return FULL_FAILED;
        if (f->at == f->n) return full_finish(f);
        const struct site_full_key *k = &f->list[f->at++];
        if (full_is_again(f, f->at - 1)) continue;
        if (site_merge_key_early(f->s, &f->m, k->db, k->name, k->dump)) continue;
        site_put_varint(&f->last, k->db);
        site_put_bytes(&f->last, k->name);
        site_put_bytes(&f->last, k->dump);
    }
    return FULL_MORE;
}

/* -- effects that came meanwhile ----------------------------------------------------------------------- */

static enum site_full_step full_replay(struct site_full *f, u32 count, const char **why)
{
    struct site_reader r = site_reader_of(bytes_of(f->effects.p + f->replayed, f->effects.n - f->replayed));
    for (u32 i = 0; i < count && site_left(&r); i++)
        if (site_receive(f->s, site_get_bytes(&r), why) >= SITE_REFUSED) return FULL_FAILED;
    f->replayed = f->effects.n - site_left(&r);
    if (site_left(&r)) return FULL_MORE;
    f->state = FULL_DONE;
    return FULL_FINISHED;
}

enum site_full_step site_full_step(struct site_full *f, u32 count, const char **why)
{
    *why = "the keys of a full sync can't be read from disk";
    switch (f->state) {
    case FULL_EXPIRING: return full_expire(f, count) ? FULL_MORE : FULL_FAILED;
    case FULL_MERGING: return full_merge(f, count);
    case FULL_REPLAYING: return full_replay(f, count, why);
    default: return FULL_FINISHED;
    }
}
