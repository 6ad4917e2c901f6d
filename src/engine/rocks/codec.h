/* The byte layout of everything the rocks engine stores (docs/format.md), and
 * nothing else: pure functions, no state. All integers are big-endian.
 *
 *   P = u64(region ^ 2^63) | u64(index ^ 2^63) | u16 slot | u32 key_len | key
 *
 *   family            key                                 value
 *   redis_metadata    P                                   flags · u64 deadline · …
 *   data              P · u64 version · sub               field's value, element, score …
 *   redis_zset_score  P · u64 version · enc8(score) · member          (empty)
 *                     P · u64 version · u64 deadline · field          (empty): the fields of a hash
 *                                                         by their deadline, nearest first
 *   redis_stream      P · u64 version · row               the row's value
 *   zset_rank         P · u64 version · …                 see ranks.h
 *   field_deadline    P · u64 version · field             u64 deadline
 *   companion         P                                   flags [· u64 version · u64 rows] · head
 *                     P · u64 version · name              the row's value
 *   deadline          u64 region · u64 due · u8 level · u64 index · u16 slot · key    (empty)
 *   raft_log          u64 region · u64 index              u64 term · u8 type · data
 *                     u64 region · u64 0 · 'h'            u64 term · u64 vote · u64 commit
 *                     u64 region · u64 0 · 'p'            u64 index · u64 term
 *   meta_info         see state.h
 */
#ifndef MAYFLY_ENGINE_ROCKS_CODEC_H
#define MAYFLY_ENGINE_ROCKS_CODEC_H

#include "base/key_slot.h"
#include "engine/engine.h"

#define CODEC_LIST_MIDDLE 0x7FFFFFFFFFFFFFFFull /* where a list's head and tail start */
#define CODEC_LEGACY 'S'                        /* data key P · 'S': a string of the old form */
#define CODEC_STAGING (1ull << 63)              /* of an index: of a staging database (rk.h) */

/* -- integers -------------------------------------------------------------- */
static inline void put_u16(char *p, u16 v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
static inline void put_u32(char *p, u32 v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
static inline void put_u64(char *p, u64 v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }
static inline u16 get_u16(const char *p) { u16 v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
static inline u32 get_u32(const char *p) { u32 v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
static inline u64 get_u64(const char *p) { u64 v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
static inline void append_u64(struct buf *b, u64 v) { put_u64(buf_reserve(b, 8), v); b->n += 8; }

/* Varints, as RocksDB has them: seven bits per byte, the low ones first. */
#define CODEC_VARINT_MAX 10                          /* bytes */
static inline char *codec_put_varint(char *p, u64 v) /* returns its end */
{
    for (; v >= 0x80; v >>= 7) *p++ = (char)(v | 0x80);
    *p++ = (char)v;
    return p;
}
bool codec_take_varint(bytes *raw, u64 *v); /* from the front; false: malformed */

/* -- keys ------------------------------------------------------------------- */

static inline u16 codec_slot(bytes key) { return key_slot(key); } /* the slot in a row's key */

#define CODEC_PREFIX_FIXED 22 /* bytes of P before the key */

void codec_index_prefix(struct buf *out, u64 region, u64 index); /* appends the first 16 bytes of P */
void codec_key(struct buf *out, u64 region, u64 index, bytes key); /* appends P */
void codec_key_in(struct buf *out, u64 region, u64 index, u16 slot, bytes key); /* … of a known slot */

struct codec_key {
    u64 region, index;
    u16 slot;
    bytes key;
    bytes rest; /* what follows P: nothing in redis_metadata */
};
bool codec_key_read(bytes raw, struct codec_key *out); /* false: not a P */

/* Splits a `rest` that begins with a version. False: too short. */
bool codec_version_read(bytes rest, u64 *version, bytes *sub);

/* Changes key to the smallest one above all that begin with it. */
void codec_after_prefix(struct buf *key);

/* -- values ------------------------------------------------------------------- */

struct codec_meta {
    enum value_type type;
    bool field_deadlines; /* a hash some of whose fields have a deadline */
    bool companion;       /* it has one that goes with it (companion.h) */
    i64 deadline_ms;
    u64 version, size, head, tail; /* collections; head and tail of lists only */
    bytes payload;                 /* strings; a stream's head */
};
void codec_meta(struct buf *out, const struct codec_meta *m); /* appends */
void codec_meta_head(struct buf *out, const struct codec_meta *m); /* all but the payload, which follows it */
bool codec_meta_read(bytes raw, struct codec_meta *out);      /* false: malformed */
/* Appends the metadata of a dead key whose value was removed: its type and deadline, with an empty string or
 * a collection without elements (version 0). */
void codec_meta_stub(struct buf *out, const struct codec_meta *m);

/* The head of a companion. */
struct codec_companion {
    bool kept;         /* it stays when the key is deleted */
    u64 version, size; /* of the rows, and their number; version 0: never had rows */
    bytes head;
};
void codec_companion(struct buf *out, const struct codec_companion *c); /* appends */
bool codec_companion_read(bytes raw, struct codec_companion *out);      /* false: malformed */

bool codec_legacy_read(bytes raw, i64 *deadline_ms, bytes *payload);

/* enc8: unsigned order is the order of the doubles. NaN never gets here; -0.0 is +0.0. */
u64 codec_score(double score);
double codec_score_read(u64 coded);

struct codec_due {
    u64 region;
    i64 due_ms;
    u8 level;
    u64 index;
    u16 slot;
    bytes key;
};
void codec_due(struct buf *out, const struct codec_due *d); /* appends */
bool codec_due_read(bytes raw, struct codec_due *out);

/* -- the Raft log -------------------------------------------------------------- */

#define CODEC_LOG_KEY 17 /* bytes of a key at most … */
#define CODEC_LOG_HEAD 9 /* … and of an entry before its data */
enum codec_log_row { CODEC_LOG_ENTRY = 0, CODEC_LOG_HARD_STATE = 'h', CODEC_LOG_POINT = 'p' };

bytes codec_log_key(char out[CODEC_LOG_KEY], u64 region, u64 index);
bytes codec_log_state_key(char out[CODEC_LOG_KEY], u64 region, enum codec_log_row row);
bool codec_log_key_read(bytes raw, u64 *region, u64 *index, enum codec_log_row *row);
bytes codec_log_head(char out[CODEC_LOG_HEAD], u64 term, u8 type); /* the data follows */
bool codec_log_entry_read(bytes raw, u64 *term, u8 *type, bytes *data);
/* Hard state and compaction point consist of numbers only. */
bool codec_log_numbers_read(bytes raw, u64 *numbers, u32 n);

#endif
