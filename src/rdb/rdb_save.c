/* Writing a value, in slices.
 *
 * A small collection is packed as a whole at the start (`ready`: rdb_small.h). A large one is written element
 * by element from an iterator. Its header must be known first: a list's has the number of nodes, that of a
 * hash with field deadlines the nearest of them. A separate walk, also in slices, finds them. */
#include "rdb/rdb_value.h"

#include "ds/rdb_blob.h"
#include "rdb/rdb_small.h"
#include "rdb/rdb_stream.h"

#define PLAIN_MIN ((size_t)1 << 30) /* larger elements are not packed, as in Redis */
#define ELEMENT_COST 32     /* charged to the budget besides its bytes */

/* -- beginning --------------------------------------------------------------------------------- */

static void begin_hash(struct rdb_save *s, enum rdb_field_ttls how)
{
    bool ttls = s->eng->ops->map.has_field_deadlines(s->eng, s->ref);
    bool native = ttls && how == RDB_TTLS_NATIVE;
    s->aux_ttls = ttls && !native;
    s->ready = rdb_small_hash(s, native);
    if (s->ready) s->type = native ? RDB_HASH_LISTPACK_TTL : RDB_HASH_LISTPACK;
    else s->type = native ? RDB_HASH_TTL : RDB_HASH;
    if (!s->ready && native) s->phase = SAVE_SURVEY;
}

static void begin_collection(struct rdb_save *s, enum rdb_field_ttls ttls)
{
    switch (s->ref->type) {
    case TYPE_LIST:
        s->type = RDB_QUICKLIST_2;
        s->ready = rdb_small_list(s);
        if (s->ready) s->count = 1;
        else s->phase = SAVE_SURVEY;
        break;
    case TYPE_SET:
        s->ready = rdb_small_ints(s);
        s->type = s->ready ? RDB_SET_INTSET : RDB_SET;
        break;
    case TYPE_ZSET:
        s->ready = rdb_small_zset(s);
        s->type = s->ready ? RDB_ZSET_LISTPACK : RDB_ZSET_2;
        break;
    case TYPE_STREAM:
        s->type = RDB_STREAM_2;
        s->stream = rdb_stream_save_begin(s->out, s->eng, s->ref, &s->budget);
        s->phase = SAVE_BODY;
        break;
    default: begin_hash(s, ttls);
    }
}

/* The engine hides what is dead by its time. Returns the previous time, to be restored. */
static i64 rdb_save_set_time(struct engine *e, i64 to_ms)
{
    i64 from_ms = e->now_ms;
    e->now_ms = to_ms;
    return from_ms;
}

void rdb_save_begin(struct rdb_save *s, const struct rdb_job *job, struct key_ref *ref)
{
    struct engine *e = job->eng;
    *s = (struct rdb_save){.out = job->out, .eng = e, .ref = ref, .now_ms = job->now_ms, .phase = SAVE_HEAD};
    i64 back_ms = rdb_save_set_time(e, job->now_ms);
    s->elements = s->count = e->ops->size(e, ref);
    if (ref->type != TYPE_STRING) begin_collection(s, job->ttls);
    rdb_save_set_time(e, back_ms);
}

int rdb_save_version(const struct rdb_save *s)
{
    return s->type >= RDB_HASH_TTL ? RDB_VERSION_MAX : RDB_VERSION_PLAIN;
}

void rdb_save_release(struct rdb_save *s)
{
    buf_release(&s->blob);
    buf_release(&s->tail);
    rdb_stream_save_release(s->stream);
    s->stream = NULL;
}

/* -- walking ----------------------------------------------------------------------------------- */

static void rdb_save_walk_begin(struct rdb_save *s)
{
    s->walking = true;
    s->left = s->elements;
    s->node_used = 0;
    element_walk(&s->walk, s->eng, s->ref, true);
}

/* False at the end. It must come exactly when the count says so: a file with a wrong count is worse than
 * none. */
static bool rdb_save_walk_next(struct rdb_save *s, struct element *x)
{
    bool got = element_next(&s->walk, s->eng, s->ref, x);
    if (got != (s->left > 0)) s->out->failed = true;
    if (!got || s->out->failed) return false;
    s->left--;
    return true;
}

static i64 rdb_save_field_deadline(struct rdb_save *s, bytes field)
{
    i64 deadline_ms = 0;
    s->eng->ops->map.field_deadline(s->eng, s->ref, field, &deadline_ms);
    return deadline_ms;
}

/* Whether an element fits into the current node; if not, it begins the next one. Decided by sizes alone, so
 * that both walks agree. */
static bool node_takes(struct rdb_save *s, size_t n)
{
    size_t cost = n + RDB_PACK_OVERHEAD;
    bool fits = s->node_used > 0 && s->node_used + cost <= RDB_NODE_BYTES;
    s->node_used = fits ? s->node_used + cost : cost;
    return fits;
}

/* -- the phases: each does what the budget allows, and true means that it is through ----------- */

static void survey_element(struct rdb_save *s, const struct element *x)
{
    if (s->type == RDB_QUICKLIST_2) {
        s->count += !node_takes(s, x->name.n);
        return;
    }
    i64 deadline_ms = rdb_save_field_deadline(s, x->name);
    if (deadline_ms && (!s->min_deadline_ms || deadline_ms < s->min_deadline_ms))
        s->min_deadline_ms = deadline_ms;
}

static bool rdb_save_survey(struct rdb_save *s)
{
    struct element x;
    if (!s->walking) {
        rdb_save_walk_begin(s);
        if (s->type == RDB_QUICKLIST_2) s->count = 0;
    }
    for (; s->budget > 0; s->budget -= ELEMENT_COST) {
        if (!rdb_save_walk_next(s, &x)) return true;
        survey_element(s, &x);
    }
    return false;
}

static void write_ready(struct rdb_save *s)
{
    if (s->type == RDB_QUICKLIST_2) {
        rdb_put_len(s->out, s->count);
        rdb_put_len(s->out, RDB_NODE_PACKED);
    }
    if (s->type == RDB_HASH_LISTPACK_TTL) rdb_put_u64(s->out, (u64)s->min_deadline_ms);
    rdb_put_string(s->out, buf_bytes(&s->blob));
}

/* A string that can be compressed, or is short, is written at once. */
static bool write_short_string(struct rdb_save *s)
{
    struct str_view view;
    if (s->count > MAX(s->out->compress_max, RDB_PIECE)) return false;
    s->eng->ops->str.get(s->eng, s->ref, &view);
    rdb_put_string(s->out, view.b);
    s->budget -= (i64)view.b.n;
    return true;
}

static void rdb_save_head(struct rdb_save *s)
{
    s->budget -= (i64)s->blob.n;
    if (s->ready) {
        write_ready(s);
        return;
    }
    if (s->ref->type == TYPE_STRING) {
        if (write_short_string(s)) {
            s->ready = true;
            return;
        }
        s->left = s->count;
    }
    if (s->type == RDB_HASH_TTL) rdb_put_u64(s->out, (u64)s->min_deadline_ms);
    rdb_put_len(s->out, s->count);
}

static bool write_long_string(struct rdb_save *s)
{
    struct str_view view;
    s->eng->ops->str.get(s->eng, s->ref, &view);
    if (view.b.n != s->count) s->out->failed = true;
    while (s->left > 0 && s->budget > 0 && !s->out->failed) {
        size_t n = (size_t)MIN(s->left, RDB_PIECE);
        rdb_put_raw(s->out, bytes_of(view.b.p + (s->count - s->left), n));
        s->left -= n;
        s->budget -= (i64)n;
    }
    return s->left == 0;
}

static void end_node(struct rdb_save *s)
{
    if (s->in_node == 0) return;
    rdb_pack_end(&s->blob, s->in_node);
    rdb_put_len(s->out, RDB_NODE_PACKED);
    rdb_put_string(s->out, buf_bytes(&s->blob));
    s->in_node = 0;
}

/* An element that fills a node by itself and is too long to be copied into it. */
static void write_alone(struct rdb_save *s, bytes value)
{
    if (value.n >= PLAIN_MIN) {
        rdb_put_len(s->out, RDB_NODE_PLAIN);
        rdb_put_string(s->out, value);
        return;
    }
    rdb_put_len(s->out, RDB_NODE_PACKED);
    rdb_put_len(s->out, rdb_pack_around(value.n, &s->blob, &s->tail));
    rdb_put_raw(s->out, buf_bytes(&s->blob));
    rdb_put_raw(s->out, value);
    rdb_put_raw(s->out, buf_bytes(&s->tail));
}

static void write_list_element(struct rdb_save *s, bytes value)
{
    if (!node_takes(s, value.n)) end_node(s);
    if (value.n > MAX(s->out->compress_max, RDB_PIECE)) {
        write_alone(s, value);
        return;
    }
    if (s->in_node++ == 0) rdb_pack_begin(&s->blob);
    rdb_pack_add(&s->blob, value);
}

static void write_element(struct rdb_save *s, const struct element *x)
{
    i64 deadline_ms;
    switch (s->type) {
    case RDB_QUICKLIST_2: write_list_element(s, x->name); return;
    case RDB_ZSET_2:
        rdb_put_string(s->out, x->name);
        rdb_put_double(s->out, x->score);
        return;
    case RDB_HASH_TTL:
        deadline_ms = rdb_save_field_deadline(s, x->name);
        rdb_put_len(s->out, deadline_ms ? (u64)(deadline_ms - s->min_deadline_ms + 1) : 0);
        break;
    default: break;
    }
    rdb_put_string(s->out, x->name);
    if (s->ref->type == TYPE_HASH) rdb_put_string(s->out, x->value);
}

static bool write_body(struct rdb_save *s)
{
    struct element x = {0};
    if (s->ready) return true;
    if (s->stream) return rdb_stream_save_step(s->stream);
    if (s->ref->type == TYPE_STRING) return write_long_string(s);
    if (!s->walking) rdb_save_walk_begin(s);
    for (; s->budget > 0; s->budget -= (i64)(x.name.n + x.value.n + ELEMENT_COST)) {
        if (!rdb_save_walk_next(s, &x)) {
            end_node(s);
            return true;
        }
        write_element(s, &x);
    }
    return false;
}

static void end_aux(struct rdb_save *s)
{
    if (s->in_node == 0) return;
    rdb_pack_end(&s->blob, s->in_node);
    rdb_put_byte(s->out, RDB_OP_AUX);
    rdb_put_string(s->out, BYTES_LIT(RDB_AUX_FIELD_TTL));
    rdb_put_string(s->out, buf_bytes(&s->blob));
    s->in_node = 0;
}

static bool write_ttls(struct rdb_save *s)
{
    struct element x;
    char digits[NUM_I64_LEN];
    if (!s->aux_ttls) return true;
    if (!s->walking) rdb_save_walk_begin(s);
    for (; s->budget > 0; s->budget -= ELEMENT_COST) {
        if (!rdb_save_walk_next(s, &x)) {
            end_aux(s);
            return true;
        }
        i64 deadline_ms = rdb_save_field_deadline(s, x.name);
        if (!deadline_ms) continue;
        if (s->in_node == 0) rdb_pack_begin(&s->blob);
        s->in_node += 2;
        rdb_pack_add(&s->blob, x.name);
        rdb_pack_add(&s->blob, bytes_of(digits, num_print_i64(digits, deadline_ms)));
        if (s->blob.n > RDB_NODE_BYTES) end_aux(s);
    }
    return false;
}

static bool rdb_save_run_phase(struct rdb_save *s)
{
    switch (s->phase) {
    case SAVE_SURVEY: return rdb_save_survey(s);
    case SAVE_HEAD: rdb_save_head(s); return true;
    case SAVE_BODY: return write_body(s);
    case SAVE_TTLS: return write_ttls(s);
    case SAVE_DONE: break;
    }
    return false;
}

bool rdb_save_step(struct rdb_save *s, u64 budget)
{
    i64 back_ms = rdb_save_set_time(s->eng, s->now_ms);
    s->budget = (i64)MIN(budget, (u64)INT64_MAX);
    while (s->phase != SAVE_DONE && !s->out->failed && rdb_save_run_phase(s)) {
        s->phase++;
        s->walking = false;
    }
    rdb_save_set_time(s->eng, back_ms);
    return s->phase == SAVE_DONE || s->out->failed;
}
