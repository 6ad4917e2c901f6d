/* Two ways of adding to a digest: `blend` XORs a hash into it, so order does not matter (members of a set);
 * `chain` hashes the result again, so order matters (elements of a list, a field and its value). */
#include "server/observe/digest.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "command/stream/stream.h"

#define DIGEST_SCAN 256

static void blend_raw(u8 digest[SHA1_BYTES], const u8 other[SHA1_BYTES])
{
    for (int i = 0; i < SHA1_BYTES; i++) digest[i] ^= other[i];
}

static void blend(u8 digest[SHA1_BYTES], bytes data)
{
    u8 hash[SHA1_BYTES];
    sha1(data, hash);
    blend_raw(digest, hash);
}

static void chain(u8 digest[SHA1_BYTES], bytes data)
{
    u8 mixed[SHA1_BYTES];
    blend(digest, data);
    sha1(bytes_of(digest, SHA1_BYTES), mixed);
    memcpy(digest, mixed, SHA1_BYTES);
}

static void chain_u32(u8 digest[SHA1_BYTES], u32 v)
{
    u32 wire = htonl(v);
    chain(digest, bytes_of(&wire, sizeof wire));
}

/* -- values -------------------------------------------------------------------------- */

static void add_string(struct engine *e, struct key_ref *ref, u8 digest[SHA1_BYTES])
{
    struct str_view v;
    e->ops->str.get(e, ref, &v);
    chain(digest, v.b);
}

static void add_list(struct engine *e, struct key_ref *ref, u8 digest[SHA1_BYTES])
{
    struct seq_iter it;
    bytes value;
    e->ops->seq.iter(e, ref, 0, false, &it);
    it.passing = true;
    while (e->ops->seq.next(&it, &value)) chain(digest, value);
}

static void add_set(struct engine *e, struct key_ref *ref, u8 digest[SHA1_BYTES])
{
    struct map_iter it;
    bytes member;
    e->ops->map.iter(e, ref, &it);
    it.passing = true;
    while (e->ops->map.next(&it, &member, NULL)) blend(digest, member);
}

static void add_hash(struct engine *e, struct key_ref *ref, u8 digest[SHA1_BYTES])
{
    bool deadlines = e->ops->map.has_field_deadlines(e, ref);
    struct map_iter it;
    bytes field, value;
    e->ops->map.iter(e, ref, &it);
    it.passing = true;
    while (e->ops->map.next(&it, &field, &value)) {
        u8 pair[SHA1_BYTES] = {0};
        i64 deadline_ms = 0;
        chain(pair, field);
        chain(pair, value);
        if (deadlines && e->ops->map.field_deadline(e, ref, field, &deadline_ms) && deadline_ms)
            blend(pair, BYTES_LIT("!!hexpire!!"));
        blend(digest, bytes_of(pair, sizeof pair));
    }
}

static void add_zset(struct engine *e, struct key_ref *ref, u8 digest[SHA1_BYTES])
{
    struct zset_seek from_start = {.by = ZSEEK_RANK};
    struct zset_iter it;
    bytes member;
    double score;
    e->ops->zset.iter(e, ref, &from_start, &it);
    it.passing = true;
    while (e->ops->zset.next(&it, &member, &score)) {
        u8 pair[SHA1_BYTES] = {0};
        char text[64];
        int n = snprintf(text, sizeof text, "%.17g", score);
        chain(pair, member);
        chain(pair, bytes_of(text, (size_t)n));
        blend(digest, bytes_of(pair, sizeof pair));
    }
}

/* Entries only: consumer groups are not part of it. */
static void add_stream(struct engine *e, struct key_ref *ref, u8 digest[SHA1_BYTES])
{
    struct xstream s;
    struct xwalk w;
    struct xentry entry;
    struct stream_id id;
    bytes packed, name, value;
    xstream_open(&s, e, ref);
    xstream_walk(&w, &s, STREAM_ID_MIN, STREAM_ID_MAX, false);
    while (xwalk_next(&w, &id, &packed)) {
        char text[STREAM_ID_TEXT];
        int n = snprintf(text, sizeof text, "%llu.%llu", (ull)id.ms, (ull)id.seq);
        chain(digest, bytes_of(text, (size_t)n));
        xentry_open(&entry, packed);
        while (xentry_next(&entry, &name, &value)) {
            chain(digest, name);
            chain(digest, value);
        }
    }
}

static void add_value(struct engine *e, struct key_ref *ref, u8 digest[SHA1_BYTES])
{
    static const u32 redis_type[] = {
        [TYPE_STRING] = 0, [TYPE_LIST] = 1, [TYPE_SET] = 2, [TYPE_ZSET] = 3, [TYPE_HASH] = 4,
        [TYPE_STREAM] = 6,
    };
    chain_u32(digest, redis_type[ref->type]);
    switch (ref->type) {
    case TYPE_STRING: add_string(e, ref, digest); break;
    case TYPE_LIST: add_list(e, ref, digest); break;
    case TYPE_SET: add_set(e, ref, digest); break;
    case TYPE_ZSET: add_zset(e, ref, digest); break;
    case TYPE_HASH: add_hash(e, ref, digest); break;
    case TYPE_STREAM: add_stream(e, ref, digest); break;
    case TYPE_NONE: break;
    }
    if (ref->deadline_ms) blend(digest, BYTES_LIT("!!expire!!"));
}

void digest_value(struct keyspace *ks, struct key_ref *ref, u8 out[SHA1_BYTES])
{
    memset(out, 0, SHA1_BYTES);
    add_value(ks->eng, ref, out);
}

/* -- the dataset --------------------------------------------------------------------- */

struct walk {
    struct keyspace *ks;
    u8 *digest;
    bool found;
};

static void add_key(void *arg, struct key_ref *ref)
{
    struct walk *w = arg;
    u8 one[SHA1_BYTES] = {0};
    if (!keyspace_visible(w->ks, ref)) return;
    chain(one, ref->key);
    add_value(w->ks->eng, ref, one);
    blend(w->digest, bytes_of(one, sizeof one));
    w->found = true;
}

/* A database's number is chained in before its keys; only the keys of one database commute. */
void digest_dataset(struct keyspace *ks, u8 out[SHA1_BYTES])
{
    struct engine *e = ks->eng;
    memset(out, 0, SHA1_BYTES);
    for (u32 db = 0; db < e->databases; db++) {
        u8 with_number[SHA1_BYTES];
        memcpy(with_number, out, SHA1_BYTES);
        chain_u32(with_number, db);
        struct walk w = {ks, with_number, false};
        u64 cursor = 0;
        do cursor = e->ops->scan(e, db, cursor, DIGEST_SCAN, add_key, &w);
        while (cursor);
        if (w.found) memcpy(out, with_number, SHA1_BYTES);
    }
}
