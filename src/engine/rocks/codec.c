/* The byte layout. Pure functions: they append exactly the bytes of docs/format.md, and check the
 * length of what they read first. */
#include "engine/rocks/codec.h"

#define SIGN (1ull << 63) /* flipped, unsigned order is signed order */

#define META_HEAD 9        /* flags · deadline */
#define META_COLLECTION 25 /* … version · size */
#define META_LIST 41       /* … head · tail */
#define FLAG_META 0x80
#define FLAG_COMPANION 0x20
#define FLAG_FIELD_DEADLINES 0x10
#define FLAG_TYPE 0x0F

#define COMPANION_FLAGS 0x80 /* of a head: always … */
#define COMPANION_KEPT 0x01
#define COMPANION_ROWS 0x02 /* … and with this one version · rows follow */

#define DUE_FIXED 27 /* bytes of a row of `deadline` before the key */

bool codec_take_varint(bytes *raw, u64 *v)
{
    *v = 0;
    for (u32 shift = 0; raw->n && shift < 64; shift += 7) {
        u8 b = (u8)raw->p[0];
        *raw = bytes_of(raw->p + 1, raw->n - 1);
        *v |= (u64)(b & 0x7f) << shift;
        if (b < 0x80) return true;
    }
    return false;
}

/* -- keys ---------------------------------------------------------------------- */

void codec_index_prefix(struct buf *out, u64 region, u64 index)
{
    char *p = buf_reserve(out, 16);
    put_u64(p, region ^ SIGN);
    put_u64(p + 8, index ^ SIGN);
    out->n += 16;
}

void codec_key(struct buf *out, u64 region, u64 index, bytes key)
{
    codec_key_in(out, region, index, codec_slot(key), key);
}

void codec_key_in(struct buf *out, u64 region, u64 index, u16 slot, bytes key)
{
    char *p = buf_reserve(out, CODEC_PREFIX_FIXED + key.n);
    put_u64(p, region ^ SIGN);
    put_u64(p + 8, index ^ SIGN);
    put_u16(p + 16, slot);
    put_u32(p + 18, (u32)key.n);
    if (key.n) memcpy(p + CODEC_PREFIX_FIXED, key.p, key.n);
    out->n += CODEC_PREFIX_FIXED + key.n;
}

bool codec_key_read(bytes raw, struct codec_key *out)
{
    if (raw.n < CODEC_PREFIX_FIXED) return false;
    u32 key_len = get_u32(raw.p + 18);
    size_t left = raw.n - CODEC_PREFIX_FIXED;
    if (key_len > left) return false;
    const char *key = raw.p + CODEC_PREFIX_FIXED;
    *out = (struct codec_key){
        .region = get_u64(raw.p) ^ SIGN, .index = get_u64(raw.p + 8) ^ SIGN, .slot = get_u16(raw.p + 16),
        .key = bytes_of(key, key_len), .rest = bytes_of(key + key_len, left - key_len),
    };
    return true;
}

bool codec_version_read(bytes rest, u64 *version, bytes *sub)
{
    if (rest.n < 8) return false;
    *version = get_u64(rest.p);
    *sub = bytes_of(rest.p + 8, rest.n - 8);
    return true;
}

void codec_after_prefix(struct buf *key)
{
    while (key->n && (u8)key->p[key->n - 1] == 0xFF) key->n--;
    if (key->n) key->p[key->n - 1]++;
}

/* -- metadata -------------------------------------------------------------------- */

/* The fixed part of a type's metadata; a string's payload or a stream's head follows it. */
static size_t meta_length(enum value_type type)
{
    switch (type) {
    case TYPE_STRING: return META_HEAD;
    case TYPE_LIST: return META_LIST;
    default: return META_COLLECTION;
    }
}

void codec_meta(struct buf *out, const struct codec_meta *m)
{
    codec_meta_head(out, m);
    if (m->type == TYPE_STRING || m->type == TYPE_STREAM) buf_append_bytes(out, m->payload);
}

void codec_meta_head(struct buf *out, const struct codec_meta *m)
{
    size_t n = meta_length(m->type);
    char *p = buf_reserve(out, n);
    p[0] = (char)(FLAG_META | (m->companion ? FLAG_COMPANION : 0) |
                  (m->field_deadlines ? FLAG_FIELD_DEADLINES : 0) | m->type);
    put_u64(p + 1, (u64)m->deadline_ms);
    out->n += n;
    if (m->type == TYPE_STRING) return;
    put_u64(p + 9, m->version);
    put_u64(p + 17, m->size);
    if (m->type != TYPE_LIST) return;
    put_u64(p + 25, m->head);
    put_u64(p + 33, m->tail);
}

void codec_meta_stub(struct buf *out, const struct codec_meta *m)
{
    struct codec_meta stub = {
        .type = m->type, .field_deadlines = m->field_deadlines, .companion = m->companion,
        .deadline_ms = m->deadline_ms,
    };
    if (m->type == TYPE_LIST) stub.head = stub.tail = CODEC_LIST_MIDDLE;
    codec_meta(out, &stub);
}

static bool flags_read(u8 flags, struct codec_meta *out)
{
    out->type = (enum value_type)(flags & FLAG_TYPE);
    out->field_deadlines = flags & FLAG_FIELD_DEADLINES;
    out->companion = flags & FLAG_COMPANION;
    bool nothing_else = (flags & ~(FLAG_COMPANION | FLAG_FIELD_DEADLINES | FLAG_TYPE)) == FLAG_META;
    bool known = out->type >= TYPE_STRING && out->type <= TYPE_STREAM;
    return nothing_else && known && (!out->field_deadlines || out->type == TYPE_HASH);
}

bool codec_meta_read(bytes raw, struct codec_meta *out)
{
    *out = (struct codec_meta){0};
    if (raw.n < META_HEAD || !flags_read((u8)raw.p[0], out)) return false;
    out->deadline_ms = (i64)get_u64(raw.p + 1);
    if (out->type == TYPE_STRING) {
        out->payload = bytes_of(raw.p + META_HEAD, raw.n - META_HEAD);
        return true;
    }
    size_t n = meta_length(out->type);
    if (raw.n < n || raw.n - n > (out->type == TYPE_STREAM ? ROWS_HEAD_MAX : 0)) return false;
    out->version = get_u64(raw.p + 9);
    out->size = get_u64(raw.p + 17);
    if (out->type == TYPE_LIST) {
        out->head = get_u64(raw.p + 25);
        out->tail = get_u64(raw.p + 33);
    }
    out->payload = bytes_of(raw.p + n, raw.n - n);
    return true;
}

void codec_companion(struct buf *out, const struct codec_companion *c)
{
    char *p = buf_reserve(out, 17 + c->head.n);
    p[0] = (char)(COMPANION_FLAGS | (c->kept ? COMPANION_KEPT : 0) | (c->version ? COMPANION_ROWS : 0));
    out->n += 1;
    if (c->version) {
        append_u64(out, c->version);
        append_u64(out, c->size);
    }
    buf_append_bytes(out, c->head);
}

bool codec_companion_read(bytes raw, struct codec_companion *out)
{
    *out = (struct codec_companion){0};
    if (raw.n < 1) return false;
    u8 flags = (u8)raw.p[0];
    size_t n = flags & COMPANION_ROWS ? 17 : 1;
    if ((flags & ~(COMPANION_KEPT | COMPANION_ROWS)) != COMPANION_FLAGS || raw.n < n) return false;
    if (raw.n - n > COMPANION_HEAD_MAX) return false;
    out->kept = flags & COMPANION_KEPT;
    if (flags & COMPANION_ROWS) {
        out->version = get_u64(raw.p + 1);
        out->size = get_u64(raw.p + 9);
    }
    out->head = bytes_of(raw.p + n, raw.n - n);
    return true;
}

bool codec_legacy_read(bytes raw, i64 *deadline_ms, bytes *payload)
{
    if (raw.n < 8) return false;
    *deadline_ms = (i64)get_u64(raw.p);
    *payload = bytes_of(raw.p + 8, raw.n - 8);
    return true;
}

/* -- scores ------------------------------------------------------------------------ */

u64 codec_score(double score)
{
    u64 bits;
    /* cppcheck-suppress duplicateConditionalAssign */
    if (score == 0) score = 0; /* not -0.0 */
    memcpy(&bits, &score, 8);
    return (bits & SIGN) ? ~bits : bits ^ SIGN;
}

double codec_score_read(u64 coded)
{
    u64 bits = (coded & SIGN) ? coded ^ SIGN : ~coded;
    double score;
    memcpy(&score, &bits, 8);
    return score;
}

/* -- rows of `deadline` --------------------------------------------------------------- */

void codec_due(struct buf *out, const struct codec_due *d)
{
    char *p = buf_reserve(out, DUE_FIXED + d->key.n);
    put_u64(p, d->region);
    put_u64(p + 8, (u64)d->due_ms);
    p[16] = (char)d->level;
    put_u64(p + 17, d->index);
    put_u16(p + 25, d->slot);
    if (d->key.n) memcpy(p + DUE_FIXED, d->key.p, d->key.n);
    out->n += DUE_FIXED + d->key.n;
}

bool codec_due_read(bytes raw, struct codec_due *out)
{
    if (raw.n < DUE_FIXED) return false;
    *out = (struct codec_due){
        .region = get_u64(raw.p), .due_ms = (i64)get_u64(raw.p + 8), .level = (u8)raw.p[16],
        .index = get_u64(raw.p + 17), .slot = get_u16(raw.p + 25),
        .key = bytes_of(raw.p + DUE_FIXED, raw.n - DUE_FIXED),
    };
    return true;
}

/* -- rows of `raft_log` --------------------------------------------------------------- */

bytes codec_log_key(char out[CODEC_LOG_KEY], u64 region, u64 index)
{
    put_u64(out, region);
    put_u64(out + 8, index);
    return bytes_of(out, 16);
}

bytes codec_log_state_key(char out[CODEC_LOG_KEY], u64 region, enum codec_log_row row)
{
    put_u64(out, region);
    put_u64(out + 8, 0);
    out[16] = (char)row;
    return bytes_of(out, 17);
}

bool codec_log_key_read(bytes raw, u64 *region, u64 *index, enum codec_log_row *row)
{
    if (raw.n != 16 && raw.n != 17) return false;
    *region = get_u64(raw.p);
    *index = get_u64(raw.p + 8);
    *row = raw.n == 17 ? (enum codec_log_row)(u8)raw.p[16] : CODEC_LOG_ENTRY;
    if (raw.n == 16) return *index != 0;
    return *index == 0 && (*row == CODEC_LOG_HARD_STATE || *row == CODEC_LOG_POINT);
}

bytes codec_log_head(char out[CODEC_LOG_HEAD], u64 term, u8 type)
{
    put_u64(out, term);
    out[8] = (char)type;
    return bytes_of(out, CODEC_LOG_HEAD);
}

bool codec_log_entry_read(bytes raw, u64 *term, u8 *type, bytes *data)
{
    if (raw.n < CODEC_LOG_HEAD) return false;
    *term = get_u64(raw.p);
    *type = (u8)raw.p[8];
    *data = bytes_of(raw.p + CODEC_LOG_HEAD, raw.n - CODEC_LOG_HEAD);
    return *term != 0;
}

bool codec_log_numbers_read(bytes raw, u64 *numbers, u32 n)
{
    if (raw.n != 8 * (size_t)n) return false;
    for (u32 i = 0; i < n; i++) numbers[i] = get_u64(raw.p + 8 * i);
    return true;
}
