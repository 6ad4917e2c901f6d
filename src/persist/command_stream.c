#include "persist/command_stream.h"

#include "base/alloc.h"
#include "persist/command_save.h"

struct command_stream *command_stream_begin(struct rdb_out *out, struct engine *eng, struct key_ref *ref,
                                            i64 *budget)
{
    struct command_stream *w = mem_zalloc(sizeof *w);
    w->out = out;
    w->budget = budget;
    xstream_open(&w->s, eng, ref);
    return w;
}

void command_stream_release(struct command_stream *w)
{
    if (!w) return;
    xname_walk_end(&w->groups);
    xname_walk_end(&w->consumers);
    buf_release(&w->group_name);
    buf_release(&w->consumer_name);
    buf_release(&w->args);
    mem_free(w);
}

/* A command of these words. */
static void command_stream_put(struct command_stream *w, size_t n, const bytes *words)
{
    command_put(w->out, n, words, 0, (bytes){"", 0});
    *w->budget -= 64;
}
#define PUT(w, ...) \
    command_stream_put((w), sizeof((bytes[]){__VA_ARGS__}) / sizeof(bytes), (bytes[]){__VA_ARGS__})

static void set_name(struct buf *to, bytes name)
{
    buf_clear(to);
    buf_append_bytes(to, name);
}

/* -- entries and head -------------------------------------------------------------------------- */

static void put_entry(struct command_stream *w, struct stream_id id, bytes packed)
{
    struct reply args = {.out = &w->args, .proto = 2};
    char text[STREAM_ID_TEXT];
    struct xentry e;
    bytes name, value;
    buf_clear(&w->args);
    xentry_open(&e, packed);
    while (xentry_next(&e, &name, &value)) {
        reply_bulk(&args, name);
        reply_bulk(&args, value);
    }
    bytes words[] = {BYTES_LIT("XADD"), w->s.ref->key, stream_id_print(text, id)};
    command_put(w->out, 3, words, 2 * e.count, buf_bytes(&w->args));
    *w->budget -= (i64)w->args.n + 64;
}

static bool make_entries(struct command_stream *w)
{
    struct stream_id id;
    bytes packed;
    if (!w->walking) xstream_walk(&w->walk, &w->s, STREAM_ID_MIN, STREAM_ID_MAX, false);
    w->walking = true;
    while (*w->budget > 0) {
        if (!xwalk_next(&w->walk, &id, &packed)) return true;
        put_entry(w, id, packed);
    }
    return false;
}

/* An empty stream is created by an entry that is deleted at once. XSETID refuses a last ID below the given
 * highest deleted ID, but accepts one below the current last ID. */
static bool make_head(struct command_stream *w)
{
    char last[STREAM_ID_TEXT], deleted[STREAM_ID_TEXT], added[NUM_I64_LEN];
    bytes key = w->s.ref->key;
    bool lowered = stream_id_cmp(w->s.last, w->s.max_deleted) < 0;
    i64 count = (i64)MIN(MAX(w->s.added, w->s.length), (u64)INT64_MAX); /* a payload can say anything */
    if (w->s.length == 0)
        PUT(w, BYTES_LIT("XADD"), key, BYTES_LIT("MAXLEN"), BYTES_LIT("0"), BYTES_LIT("0-1"), BYTES_LIT("x"),
            BYTES_LIT("y"));
    PUT(w, BYTES_LIT("XSETID"), key, stream_id_print(last, lowered ? w->s.max_deleted : w->s.last),
        BYTES_LIT("ENTRIESADDED"), bytes_of(added, num_print_i64(added, count)), BYTES_LIT("MAXDELETEDID"),
        stream_id_print(deleted, w->s.max_deleted));
    if (lowered) PUT(w, BYTES_LIT("XSETID"), key, stream_id_print(last, w->s.last));
    xgroup_walk(&w->groups, &w->s);
    return true;
}

/* -- groups ------------------------------------------------------------------------------------ */

static bool make_group(struct command_stream *w)
{
    char last[STREAM_ID_TEXT], read[NUM_I64_LEN];
    bytes name;
    if (!xgroup_next(&w->groups, &name, &w->group)) {
        w->phase = MAKE_DONE - 1;
        return true;
    }
    set_name(&w->group_name, name);
    PUT(w, BYTES_LIT("XGROUP"), BYTES_LIT("CREATE"), w->s.ref->key, name,
        stream_id_print(last, w->group.last), BYTES_LIT("ENTRIESREAD"),
        bytes_of(read, num_print_i64(read, w->group.entries_read)));
    xname_walk_end(&w->consumers);
    xconsumer_walk(&w->consumers, &w->s, &w->group);
    return true;
}

static bool make_consumer(struct command_stream *w)
{
    bytes name;
    if (!xconsumer_next(&w->consumers, &name, &w->consumer)) {
        w->phase = MAKE_GROUP - 1; /* the next one */
        return true;
    }
    set_name(&w->consumer_name, name);
    PUT(w, BYTES_LIT("XGROUP"), BYTES_LIT("CREATECONSUMER"), w->s.ref->key, buf_bytes(&w->group_name), name);
    return true;
}

static void put_pending(struct command_stream *w, struct stream_id id, const struct xpending *p)
{
    char text[STREAM_ID_TEXT], time[NUM_I64_LEN], count[NUM_I64_LEN];
    PUT(w, BYTES_LIT("XCLAIM"), w->s.ref->key, buf_bytes(&w->group_name), buf_bytes(&w->consumer_name),
        BYTES_LIT("0"), stream_id_print(text, id), BYTES_LIT("TIME"),
        bytes_of(time, num_print_i64(time, p->time_ms)), BYTES_LIT("RETRYCOUNT"),
        bytes_of(count, num_print_i64(count, (i64)p->count)), BYTES_LIT("JUSTID"), BYTES_LIT("FORCE"));
}

static bool make_owned(struct command_stream *w)
{
    struct stream_id id;
    struct xpending p;
    if (!w->walking)
        xpending_walk(&w->walk, &w->s, &w->group, &w->consumer, STREAM_ID_MIN, STREAM_ID_MAX, false);
    w->walking = true;
    while (*w->budget > 0) {
        if (!xwalk_next(&w->walk, &id, NULL)) {
            w->phase = MAKE_CONSUMER - 1; /* the next one */
            return true;
        }
        if (xpending_find(&w->s, &w->group, id, &p)) put_pending(w, id, &p);
    }
    return false;
}

static bool command_stream_run_phase(struct command_stream *w)
{
    switch (w->phase) {
    case MAKE_ENTRIES: return make_entries(w);
    case MAKE_HEAD: return make_head(w);
    case MAKE_GROUP: return make_group(w);
    case MAKE_CONSUMER: return make_consumer(w);
    case MAKE_OWNED: return make_owned(w);
    case MAKE_DONE: break;
    }
    return false;
}

bool command_stream_step(struct command_stream *w)
{
    while (w->phase != MAKE_DONE && *w->budget > 0 && !w->out->failed && command_stream_run_phase(w)) {
        w->phase++;
        w->walking = false;
    }
    return w->phase == MAKE_DONE;
}
