/* Writing RDB files. */
#include "base/num.h"
#include "persist/rdb_file.h"

_Static_assert(RDB_VERSION_PLAIN == 10 && RDB_VERSION_MAX == 12, "as the files say");

void rdb_file_begin(const struct rdb_job *job)
{
    bool plain = job->ttls == RDB_TTLS_AUX;
    rdb_put_raw(job->out, plain ? BYTES_LIT("REDIS0010") : BYTES_LIT("REDIS0012"));
}

void rdb_file_aux(struct rdb_out *out, const char *name, bytes value)
{
    rdb_put_byte(out, RDB_OP_AUX);
    rdb_put_string(out, bytes_str(name));
    rdb_put_string(out, value);
}

void rdb_file_aux_int(struct rdb_out *out, const char *name, i64 value)
{
    char digits[NUM_I64_LEN];
    rdb_file_aux(out, name, bytes_of(digits, num_print_i64(digits, value)));
}

void rdb_file_select(struct rdb_out *out, u32 db)
{
    rdb_put_byte(out, RDB_OP_SELECTDB);
    rdb_put_len(out, db);
}

void rdb_file_sizes(struct rdb_out *out, u64 keys, u64 with_deadline)
{
    rdb_put_byte(out, RDB_OP_RESIZEDB);
    rdb_put_len(out, keys);
    rdb_put_len(out, with_deadline);
}

bool rdb_file_wants(const struct rdb_job *job, struct key_ref *ref)
{
    struct engine *e = job->eng;
    if (!alive(ref->deadline_ms, job->now_ms)) return false;
    if (ref->type != TYPE_HASH || !e->ops->map.has_field_deadlines(e, ref)) return true;
    i64 back_ms = e->now_ms;
    e->now_ms = job->now_ms;
    bool any = e->ops->size(e, ref) > 0; /* otherwise all its fields are dead */
    e->now_ms = back_ms;
    return any;
}

void rdb_file_key(struct rdb_save *s, const struct rdb_job *job, struct key_ref *ref, struct rdb_key_use use)
{
    struct rdb_out *out = job->out;
    if (ref->deadline_ms) {
        rdb_put_byte(out, RDB_OP_EXPIRETIME_MS);
        rdb_put_u64(out, (u64)ref->deadline_ms);
    }
    if (use.idle_s >= 0) {
        rdb_put_byte(out, RDB_OP_IDLE);
        rdb_put_len(out, (u64)use.idle_s);
    }
    if (use.frequency >= 0) {
        rdb_put_byte(out, RDB_OP_FREQ);
        rdb_put_byte(out, (u8)use.frequency);
    }
    rdb_save_begin(s, job, ref);
    rdb_put_byte(out, (u8)s->type);
    rdb_put_string(out, ref->key);
}

void rdb_file_end(struct rdb_out *out)
{
    rdb_put_byte(out, RDB_OP_EOF);
    rdb_out_flush(out);
    rdb_put_u64(out, out->checksum ? out->crc : 0);
    rdb_out_flush(out);
}
