#include "command/expiry_stream.h"

#include "base/num.h"
#include "command/key.h"
#include "command/stream/stream.h"

/* A pending entry: this, then the key, then the field. */
struct note {
    i64 deadline_ms;
    u64 key_n, field_n;
    u32 db;
    u8 type;
    bool has_field;
};

static void note_expired(void *arg, const struct key_ref *ref, const bytes *field, i64 deadline_ms)
{
    struct expiry_stream *x = arg;
    struct note n = {
        .deadline_ms = deadline_ms, .key_n = ref->key.n, .field_n = field ? field->n : 0, .db = ref->db,
        .type = (u8)ref->type, .has_field = field != NULL,
    };
    if (ref->db == 0 && bytes_eq(ref->key, buf_bytes(&x->name))) return;
    x->ends |= RECORD_ENDS_NOTED;
    buf_append(&x->noted, &n, sizeof n);
    buf_append_bytes(&x->noted, ref->key);
    if (field) buf_append_bytes(&x->noted, *field);
}

void expiry_stream_set(struct expiry_stream *x, struct keyspace *ks, bytes name, u64 maxlen)
{
    buf_clear(&x->name);
    buf_append_bytes(&x->name, name);
    x->maxlen = maxlen;
    ks->on_expired = name.n ? note_expired : NULL;
    ks->on_expired_arg = x;
}

void expiry_stream_release(struct expiry_stream *x)
{
    buf_release(&x->name);
    buf_release(&x->noted);
}

/* -- writing --------------------------------------------------------------------------------- */

/* Opens the stream, creating it if needed. False: the key has another type. */
static bool open_stream(struct expiry_stream *x, struct keyspace *ks, struct key_ref *ref, struct xstream *s)
{
    bytes name = buf_bytes(&x->name);
    if (!keyspace_find(ks, 0, name, LOOKUP_WRITE, ref)) {
        ks->eng->ops->create(ks->eng, 0, name, TYPE_STREAM, ref);
        keyspace_notify(ks, 0, name, NOTIFY_NEW, "new");
    }
    if (ref->type != TYPE_STREAM) return false;
    xstream_open(s, ks->eng, ref);
    return true;
}

static bytes expiry_stream_print_int(char digits[NUM_I64_LEN], i64 v)
{
    return bytes_of(digits, num_print_i64(digits, v));
}

#define TOLD_FIELDS 6

static bool tell_one(struct expiry_stream *x, struct keyspace *ks, struct xstream *s, const struct note *n,
                     bytes key, bytes field)
{
    char db[NUM_I64_LEN], deadline[NUM_I64_LEN], now[NUM_I64_LEN], text[STREAM_ID_TEXT];
    struct buf packed = {0};
    struct stream_id id;
    if (!xstream_next_id(s, (u64)ks->now_ms, &id)) return false;
    bytes argv[3 + 2 * TOLD_FIELDS] = {
        BYTES_LIT("XADD"), buf_bytes(&x->name), stream_id_print(text, id), BYTES_LIT("key"), key,
        BYTES_LIT("db"), expiry_stream_print_int(db, n->db), BYTES_LIT("type"),
        bytes_str(type_name((enum value_type)n->type)), BYTES_LIT("deadline"),
        expiry_stream_print_int(deadline, n->deadline_ms), BYTES_LIT("reclaimed"),
        expiry_stream_print_int(now, ks->now_ms), BYTES_LIT("field"), field,
    };
    u64 fields = n->has_field ? TOLD_FIELDS : TOLD_FIELDS - 1;
    xentry_pack(&packed, argv + 3, fields);
    xstream_append(s, stream_node_limits(ks), id, buf_bytes(&packed));
    buf_release(&packed);
    journal_effect(ks->journal, 0, 3 + 2 * (int)fields, argv);
    return true;
}

static void expiry_stream_trim(struct expiry_stream *x, struct keyspace *ks, struct xstream *s)
{
    char length[NUM_I64_LEN];
    if (!x->maxlen || !xstream_trim(s, &(struct xtrim){.by = TRIM_MAXLEN, .maxlen = x->maxlen})) return;
    journal_effect(ks->journal, 0, 5,
                   (bytes[]){BYTES_LIT("XTRIM"), buf_bytes(&x->name), BYTES_LIT("MAXLEN"), BYTES_LIT("="),
                             expiry_stream_print_int(length, (i64)s->length)});
}

/* Reads the pending entry at *p, and moves *p to the next. */
static void take_note(const char **p, struct note *n, bytes *key, bytes *field)
{
    memcpy(n, *p, sizeof *n);
    *key = bytes_of(*p + sizeof *n, n->key_n);
    *field = bytes_of(key->p + n->key_n, n->field_n);
    *p = field->p + n->field_n;
}

void expiry_stream_tell(struct expiry_stream *x, struct keyspace *ks)
{
    struct buf noted = x->noted; /* finding the stream may expire more */
    const char *p = noted.p, *end = noted.p + noted.n;
    struct key_ref ref;
    struct xstream s;
    x->noted = (struct buf){0};
    bool there = open_stream(x, ks, &ref, &s);
    u64 told = 0;
    while (p < end) {
        struct note n;
        bytes key, field;
        take_note(&p, &n, &key, &field);
        if (there && tell_one(x, ks, &s, &n, key, field)) told++;
        else x->lost++;
    }
    if (told) {
        expiry_stream_trim(x, ks, &s);
        xstream_save(&s);
        keyspace_changed(ks, 0, buf_bytes(&x->name), NOTIFY_STREAM, "xadd");
    }
    x->told += told;
    buf_clear(&noted);
    buf_release(&x->noted);
    x->noted = noted;
    x->ends &= ~(u32)RECORD_ENDS_NOTED;
}
