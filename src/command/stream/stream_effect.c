#include "command/stream/stream_effect.h"

/* -- the group of a command -------------------------------------------------------------------- */

err ctx_find_group(struct ctx *c, bytes key, bytes group, bool write, struct group_use *u)
{
    *u = (struct group_use){.key = key, .group = group};
    err e = write ? ctx_write_stream(c, key, &u->ref, &u->s) : ctx_read_stream(c, key, &u->ref, &u->s);
    if (e == OK && !xgroup_find(&u->s, group, &u->g)) return ERR_NOT_FOUND;
    return e;
}

void ctx_no_group(struct ctx *c, bytes key, bytes group)
{
    reply_errorf(c->out, "NOGROUP No such key '%.*s' or consumer group '%.*s'", (int)key.n, key.p,
                 (int)group.n, group.p);
}

void ctx_open_consumer(struct ctx *c, bytes name, struct group_use *u)
{
    u->consumer = name;
    if (xconsumer_find(&u->s, &u->g, name, &u->c)) {
        u->c.seen_ms = c->now_ms;
        return;
    }
    xconsumer_create(&u->s, &u->g, name, c->now_ms, &u->c);
    u->consumer_made = true;
    c->ks->dirty++;
    keyspace_notify(c->ks, c->db, u->key, NOTIFY_STREAM, "xgroup-createconsumer");
}

void group_save(struct group_use *u)
{
    xconsumer_put(&u->s, &u->g, u->consumer, &u->c);
    xgroup_put(&u->s, u->group, &u->g);
}

/* -- effects ----------------------------------------------------------------------------------- */

void effect_created(struct ctx *c, const struct group_use *u)
{
    CTX_EFFECT(c, BYTES_LIT("XGROUP"), BYTES_LIT("CREATECONSUMER"), u->key, u->group, u->consumer);
}

void effect_group_id(struct ctx *c, const struct group_use *u)
{
    char id[STREAM_ID_TEXT], read[NUM_I64_LEN];
    CTX_EFFECT(c, BYTES_LIT("XGROUP"), BYTES_LIT("SETID"), u->key, u->group, stream_id_print(id, u->g.last),
               BYTES_LIT("ENTRIESREAD"), bytes_of(read, num_print_i64(read, u->g.entries_read)));
}

void effect_acked(struct ctx *c, const struct group_use *u, struct stream_id id)
{
    char text[STREAM_ID_TEXT];
    CTX_EFFECT(c, BYTES_LIT("XACK"), u->key, u->group, stream_id_print(text, id));
}

void effect_claims_end(struct claims *all)
{
    const struct group_use *u = all->u;
    bytes argv[12 + CLAIMS_TOGETHER];
    char ids[CLAIMS_TOGETHER][STREAM_ID_TEXT], time[NUM_I64_LEN], count[NUM_I64_LEN];
    int n = 0;
    if (all->n == 0) return;
    argv[n++] = BYTES_LIT("XCLAIM");
    argv[n++] = u->key;
    argv[n++] = u->group;
    argv[n++] = u->consumer;
    argv[n++] = BYTES_LIT("0");
    for (int i = 0; i < all->n; i++) argv[n++] = stream_id_print(ids[i], all->ids[i]);
    argv[n++] = BYTES_LIT("TIME");
    argv[n++] = bytes_of(time, num_print_i64(time, all->time_ms));
    argv[n++] = BYTES_LIT("RETRYCOUNT");
    argv[n++] = bytes_of(count, num_print_i64(count, (i64)all->count));
    argv[n++] = BYTES_LIT("FORCE");
    argv[n++] = BYTES_LIT("JUSTID");
    ctx_effect(all->c, n, argv);
    all->n = 0;
}

void effect_claimed(struct claims *all, struct stream_id id, i64 time_ms, u64 count)
{
    if (!journal_wanted(all->c->ks->journal)) {
        ctx_no_effect(all->c);
        return;
    }
    if (all->n == CLAIMS_TOGETHER || (all->n && (time_ms != all->time_ms || count != all->count)))
        effect_claims_end(all);
    all->time_ms = time_ms;
    all->count = count;
    all->ids[all->n++] = id;
}
