/* Strings of the rocks engine: the whole value is in the row, as it is in redis_metadata. */
#include "base/num.h"
#include "engine/rocks/rk.h"

/* The row of a key, emptied for a new string. Overwriting a collection is O(1): its elements become
 * orphans. */
static struct row *row_for_string(struct rk *rk, u32 db_number, bytes key, struct key_ref *ref)
{
    struct rk_db *db = rk->dbs[db_number];
    struct row *r = ref->entry ? ref->entry : row_get(rk, db, key, ref->hash);
    if (r->type != TYPE_NONE && r->type != TYPE_STRING) row_drop(rk, r);
    if (r->type == TYPE_NONE) row_create(rk, r, TYPE_STRING);
    row_touch(rk, r);
    r->access = rk->base.fresh_access;
    r->edited = r->text = r->unread = false;
    return r;
}

static void rk_str_put(struct engine *e, u32 db, bytes key, struct key_ref *ref, bytes value, i64 deadline_ms)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_for_string(rk, db, key, ref);
    if (LIKELY(!row_take_input(rk, r, value))) {
        row_clear_value(r);
        buf_append_bytes(&r->value, value);
    }
    row_set_deadline(rk, r, deadline_ms);
    row_ref(r, ref->hash, ref);
}

static void rk_str_put_text(struct engine *e, u32 db, bytes key, struct key_ref *ref, bytes value,
                            i64 deadline_ms)
{
    rk_str_put(e, db, key, ref, value, deadline_ms);
    row_of(ref)->text = true;
}

static void rk_str_get(struct engine *e, struct key_ref *ref, struct str_view *out)
{
    out->b = buf_bytes(row_value(rk_of(e), row_of(ref)));
}

static size_t rk_str_length(struct engine *e, struct key_ref *ref)
{
    return row_value(rk_of(e), row_of(ref))->n;
}

static bool rk_str_get_int(struct engine *e, struct key_ref *ref, i64 *out)
{
    return num_parse_i64(buf_bytes(row_value(rk_of(e), row_of(ref))), out);
}

static void rk_str_set_int(struct engine *e, struct key_ref *ref, i64 value)
{
    struct row *r = row_of(ref);
    char text[NUM_I64_LEN];
    size_t n = num_print_i64(text, value);
    row_touch(rk_of(e), r);
    r->access = e->fresh_access;
    r->text = r->edited = r->unread = false;
    row_clear_value(r);
    buf_append(&r->value, text, n);
}

static char *rk_str_edit(struct engine *e, struct key_ref *ref, size_t new_len)
{
    struct row *r = row_of(ref);
    row_value(rk_of(e), r);
    row_touch(rk_of(e), r);
    r->access = e->fresh_access;
    r->edited = true;
    row_own_value(r);
    if (new_len > r->value.n) {
        size_t more = new_len - r->value.n;
        memset(buf_reserve(&r->value, more), 0, more);
    }
    r->value.n = new_len;
    return r->value.p;
}

const struct str_ops rk_str_ops = {
    .put = rk_str_put,
    .put_text = rk_str_put_text,
    .get = rk_str_get,
    .length = rk_str_length,
    .get_int = rk_str_get_int,
    .set_int = rk_str_set_int,
    .edit = rk_str_edit,
};
