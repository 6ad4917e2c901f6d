/* The site layer against its specification: follows the histories that tests/site/model.py --trace
 * prints, and compares after every line what each site shows (read from the engine, as a client's
 * command would) and how much it keeps.
 *
 *     tests/site/model.py --trace 0 100 | replay [captured-]memory|rocksdb [BUG]
 *
 * The commands of a history are evaluated here as far as the model does; the effects, their delivery and
 * merging are the site layer's. A difference ends the run with the line at which it was seen. BUG
 * switches on a bug of site/plant.h, which then has to make a difference. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/num.h"
#include "engine/memory/memory.h"
#include "engine/rocks/rocks.h"
#include "exec/region.h"
#include "site/capture.h"
#include "site/site.h"
#include "site/state.h"
#include "site/sync.h"
#include "site/write.h"
#include "xstream/xstream.h"

#define SITES 16
#define WORDS 64
#define EFFECTS 1024 /* of a site, in a history */
#define NAMES 64
#define START_MS 1000000 /* when a history begins */

struct rsite {
    bool used;
    struct engine *e;
    u32 folder;                     /* of the database */
    bool given[SITE_GIDS][EFFECTS]; /* effects that were delivered here */
    struct site s;
    struct buf shown;  /* what the model said last */
    struct buf stored; /* the site's state as of the last commit */
    struct buf saved;  /* … and its keys (save_keys) */
};

static struct world {
    bool rocks;
    bool captured; /* commands run as on a server, and their writes are captured */
    u64 planted;
    struct rsite sites[SITES]; /* [gid % SITES] while it lives */
    struct engine *spare[SITES];
    char folders[SITES][64];
    u32 spare_folders[SITES];
    u32 n_spare, n_folders;
    struct buf effects[SITE_GIDS][EFFECTS];
    u64 line, histories, compared, restarts, crashes;
    char history[64];
} w;

static COLD void fail(const char *what, bytes want, bytes got)
{
    fprintf(stderr, "line %llu, history %s: %s\n  model:   %.*s\n  replay:  %.*s\n", (ull)w.line, w.history,
            what, (int)want.n, want.p, (int)got.n, got.p);
    exit(1);
}

static COLD void fail_because(const char *why) { fail(why, (bytes){"", 0}, (bytes){"", 0}); }

/* -- engines: reused, because a database takes long to make --------------------------------------- */

static const struct log quiet = {.level = LOG_NOTHING};

static struct engine *engine_open(const char *path)
{
    struct buf why = {0};
    struct rocks_options o = {.dir = path,
                              .log = &quiet,
                              .databases = 2,
                              .seed = 1,
                              .background_threads = 1,
                              .block_cache = 8 << 20,
                              .row_cache = 1 << 20,
                              .write_buffer = 8 << 20,
                              .sync = DISK_SYNC_NO};
    struct engine *e = rocks_engine_open(&o, &why);
    if (!e) fail("no database", (bytes){"", 0}, buf_bytes(&why));
    return e;
}

static struct engine *engine_make(void)
{
    if (!w.rocks) return memory_engine_new(2, 1);
    char *path = w.folders[w.n_folders++];
    snprintf(path, sizeof w.folders[0], "/tmp/mayfly-replay-XXXXXX");
    if (!mkdtemp(path)) fail_because("no folder");
    return engine_open(path);
}

static void engine_take(struct rsite *r)
{
    if (w.n_spare == 0) {
        w.spare_folders[0] = w.n_folders;
        w.spare[w.n_spare++] = engine_make();
    }
    r->e = w.spare[--w.n_spare];
    r->folder = w.spare_folders[w.n_spare];
}

static void engine_give(struct rsite *r)
{
    r->e->ops->flush(r->e, 0);
    if (!r->e->ops->commit(r->e, r->e->applied + 1)) fail_because("no commit");
    while (r->e->ops->reclaim(r->e, 1000)) {}
    w.spare_folders[w.n_spare] = r->folder;
    w.spare[w.n_spare++] = r->e;
}

static void engines_close(void)
{
    char command[128];
    while (w.n_spare) w.spare[w.n_spare - 1]->ops->close(w.spare[w.n_spare - 1]), w.n_spare--;
    while (w.n_folders) {
        snprintf(command, sizeof command, "rm -rf %s", w.folders[--w.n_folders]);
        if (system(command) != 0) fail_because("a folder stays");
    }
}

/* -- sites ---------------------------------------------------------------------------------------- */

static void keep_effect(void *arg, const struct site_effect *e)
{
    struct rsite *r = arg;
    if (e->dot.gid != r->s.gid) return;
    if (e->dot.seq >= EFFECTS) fail_because("too many effects");
    struct buf *b = &w.effects[e->dot.gid][e->dot.seq];
    if (b->n) fail_because("a dot was used twice");
    buf_append_bytes(b, e->all);
}

static void site_start(struct rsite *r, u32 gid)
{
    site_init(&r->s, r->e, 2, (u8)gid);
    r->s.planted = w.planted;
    r->s.emit = keep_effect;
    r->s.emit_arg = r;
}

static struct rsite *site_new(u32 gid)
{
    struct rsite *r = &w.sites[gid % SITES];
    if (r->used) fail_because("too many sites");
    memset(r, 0, sizeof *r);
    r->used = true;
    engine_take(r);
    r->e->ops->begin(r->e, 1);
    site_start(r, gid);
    return r;
}

static void site_gone(struct rsite *r)
{
    site_release(&r->s);
    buf_release(&r->shown);
    buf_release(&r->stored);
    buf_release(&r->saved);
    engine_give(r);
    r->used = false;
}

static struct rsite *site_of(const char *word)
{
    struct rsite *r = &w.sites[(u32)atoi(word) % SITES];
    if (!r->used || r->s.gid != atoi(word)) fail_because("no such site");
    return r;
}

static void history_end(void)
{
    for (u32 i = 0; i < SITES; i++)
        if (w.sites[i].used) site_gone(&w.sites[i]);
    for (u32 g = 0; g < SITE_GIDS; g++)
        for (u32 i = 0; i < EFFECTS; i++) buf_release(&w.effects[g][i]);
}

/* -- names in order ------------------------------------------------------------------------------- */

struct names {
    char v[NAMES][16];
    u32 n;
};

static void add_name(void *arg, u32 db, bytes name)
{
    struct names *l = arg;
    char text[16];
    (void)db;
    u32 at = 0;
    snprintf(text, sizeof text, "%.*s", (int)name.n, name.p);
    while (at < l->n && strcmp(l->v[at], text) < 0) at++;
    if (at < l->n && strcmp(l->v[at], text) == 0) return;
    if (l->n == NAMES) fail_because("too many keys");
    memmove(l->v[at + 1], l->v[at], (l->n++ - at) * sizeof l->v[0]);
    memcpy(l->v[at], text, sizeof text);
}

static bool has_name(const struct names *l, const char *name)
{
    for (u32 i = 0; i < l->n; i++)
        if (strcmp(l->v[i], name) == 0) return true;
    return false;
}

static void add_names(struct rsite *r, struct names *l) { site_each_key(&r->s, 0, add_name, l); }

/* -- transactions, restarts and crashes ----------------------------------------------------------- */

/* The memory engine has nothing after a crash but what was saved elsewhere: here, the keys as a snapshot for
 * others has them, with their positions. */
static void save_keys(struct rsite *r)
{
    struct names l = {0};
    struct buf dump = {0};
    buf_clear(&r->saved);
    add_names(r, &l);
    for (u32 i = 0; i < l.n; i++) {
        buf_clear(&dump);
        site_put_key(&r->s, 0, bytes_str(l.v[i]), &dump);
        site_key_load(&r->s.key, r->e, 0, bytes_str(l.v[i])); /* for its position */
        site_put_bytes(&r->saved, bytes_str(l.v[i]));
        site_put_varint(&r->saved, r->s.key.last);
        site_put_bytes(&r->saved, buf_bytes(&dump));
    }
    buf_release(&dump);
}

static void load_keys(struct rsite *r, const struct site_clock *clock)
{
    struct site_merge m = {.clock = *clock};
    struct site_key k = {0};
    r->e->ops->flush(r->e, 0);
    for (struct site_reader in = site_reader_of(buf_bytes(&r->saved)); site_left(&in);) {
        bytes name = site_get_bytes(&in);
        u64 last = site_get_varint(&in);
        site_merge_key(&r->s, &m, 0, name, site_get_bytes(&in));
        site_key_load(&k, r->e, 0, name);
        site_key_save(&k, last);
    }
    site_key_release(&k);
    site_merge_release(&m);
}

static void next_transaction(struct rsite *r)
{
    buf_clear(&r->stored);
    site_put_state(&r->s, true, &r->stored);
    if (!w.rocks) save_keys(r);
    if (!r->e->ops->commit(r->e, r->e->applied + 1)) fail_because("no commit");
    r->e->ops->begin(r->e, site_now(&r->s));
    site_tick(&r->s, 0);
}

/* Deadlines of fields are hidden by the engine: stamps of others may have moved the site's time. */
static void follow_time(struct rsite *r) { r->e->now_ms = site_now(&r->s); }

static void read_state(struct rsite *r, u32 gid)
{
    site_start(r, gid);
    if (!site_get_state(&r->s, buf_bytes(&r->stored))) fail_because("a state that can't be read");
}

/* The process ends and starts again, with what was committed last. */
static void site_reopen(struct rsite *r, bool close)
{
    u32 gid = r->s.gid;
    site_release(&r->s);
    if (w.rocks) r->e->ops->abort(r->e);
    if (w.rocks && close) {
        r->e->ops->close(r->e);
        r->e = engine_open(w.folders[r->folder]);
    }
    if (w.rocks) r->e->ops->begin(r->e, 1);
    read_state(r, gid);
    if (w.rocks) return;
    struct site_clock clock = r->s.clock;
    site_clock_join(&clock, &r->s.torn_upto);
    site_release(&r->s); /* keys are merged into a site that has nothing */
    site_start(r, gid);
    load_keys(r, &clock);
    site_release(&r->s);
    read_state(r, gid);
    next_transaction(r);
}

/* In good order: what waited for other effects is sent again. */
static void site_restart(struct rsite *r)
{
    const char *why = "";
    next_transaction(r);
    site_reopen(r, true);
    for (u32 g = 0; g < SITE_GIDS; g++)
        for (u32 i = 0; i < EFFECTS; i++)
            if (r->given[g][i] && site_receive(&r->s, buf_bytes(&w.effects[g][i]), &why) == SITE_APPLIED)
                fail_because("something was lost");
    w.restarts++;
}

/* Within a transaction: what the site has made and received in it is lost, and what waited. */
static void site_crash(struct rsite *r, i64 wall_ms)
{
    site_reopen(r, w.crashes++ % 16 == 0); /* opening a database takes long */
    memset(r->given, 0, sizeof r->given);
    for (u64 seq = r->s.clock.seq[r->s.gid] + 1; seq < EFFECTS; seq++)
        buf_clear(&w.effects[r->s.gid][seq]);
    site_tick(&r->s, wall_ms);
}

/* -- what a site shows ---------------------------------------------------------------------------- */

static void add_item(struct buf *to, bool first, bytes a, const char *between, bytes b)
{
    if (!first) buf_append_char(to, ',');
    buf_append_bytes(to, a);
    buf_append_str(to, between);
    buf_append_bytes(to, b);
}

struct pairs {
    struct buf text[NAMES];
    u32 n;
};

/* f=v@deadline */
static void add_deadlines(struct engine *e, struct key_ref *ref, struct pairs *p)
{
    for (u32 i = 0; i < p->n; i++) {
        struct buf *b = &p->text[i];
        bytes field = bytes_of(b->p, (size_t)((char *)memchr(b->p, '=', b->n) - b->p));
        i64 at_ms;
        if (!e->ops->map.field_deadline(e, ref, field, &at_ms)) fail_because("a field without a deadline");
        if (at_ms) buf_printf(b, "@%lld", (long long)at_ms);
    }
}

static int by_text(const void *a, const void *b) { return bytes_cmp(buf_bytes(a), buf_bytes(b)); }

static void show_elements(struct engine *e, struct key_ref *ref, struct buf *to)
{
    struct pairs p = {0};
    struct map_iter m;
    struct zset_iter z;
    bytes a, b;
    double score;
    char number[64];
    if (ref->type == TYPE_ZSET) {
        e->ops->zset.iter(e, ref, &(struct zset_seek){.by = ZSEEK_RANK}, &z);
        for (; e->ops->zset.next(&z, &a, &score); p.n++)
            add_item(&p.text[p.n], true, a, "=", bytes_of(number, num_print_double(number, score)));
    } else {
        e->ops->map.iter(e, ref, &m);
        for (; e->ops->map.next(&m, &a, &b); p.n++)
            add_item(&p.text[p.n], true, a, ref->type == TYPE_SET ? "" : "=",
                     ref->type == TYPE_SET ? (bytes){"", 0} : b);
        if (ref->type == TYPE_HASH) add_deadlines(e, ref, &p);
    }
    qsort(p.text, p.n, sizeof p.text[0], by_text);
    for (u32 i = 0; i < p.n; i++) {
        add_item(to, i == 0, buf_bytes(&p.text[i]), "", (bytes){"", 0});
        buf_release(&p.text[i]);
    }
}

/* The nodes hold the entries, each as many as it says, and the first entry is where the head says. */
static void check_nodes(struct xstream *s)
{
    struct xnode_walk nodes;
    struct xnode node;
    struct stream_id before = STREAM_ID_MIN, id = STREAM_ID_MIN;
    u64 live = 0, n = 0;
    for (xnode_walk(&nodes, s); xnode_next(&nodes, &node); n++) {
        struct xwalk entries;
        u64 here = 0;
        if (n && stream_id_cmp(node.id, before) <= 0) fail_because("nodes overlap");
        for (xstream_walk(&entries, s, node.id, node.last, false); xwalk_next(&entries, &id, NULL);) here++;
        if (here != node.live) fail_because("a node with other entries than it says");
        before = node.last;
        live += here;
    }
    if (live != s->length || n != s->nodes) fail_because("entries without a node");
    if (s->length && !(xwalk_edge(s, xrow_kind('e'), false, &id) && stream_id_cmp(id, s->first) == 0))
        fail_because("the first entry is another");
}

static void show_stream(struct engine *e, struct key_ref *ref, struct buf *to)
{
    struct xstream s;
    struct xwalk walk;
    struct xentry entry;
    struct stream_id id;
    bytes packed, name, value;
    char text[STREAM_ID_TEXT];
    u64 n = 0;
    xstream_open(&s, e, ref);
    for (xstream_walk(&walk, &s, STREAM_ID_MIN, STREAM_ID_MAX, false); xwalk_next(&walk, &id, &packed); n++) {
        buf_append_bytes(to, stream_id_print(text, id));
        xentry_open(&entry, packed);
        for (char c = '='; xentry_next(&entry, &name, &value); c = ':') {
            buf_append_char(to, c);
            add_item(to, true, name, ":", value);
        }
        buf_append_char(to, ',');
    }
    if (n != s.length) fail_because("entries are miscounted");
    check_nodes(&s);
    buf_append_str(to, "last=");
    buf_append_bytes(to, stream_id_print(text, s.last));
}

static void show_value(struct engine *e, struct key_ref *ref, struct buf *to)
{
    struct str_view v;
    bytes value;
    size_t before = to->n;
    if (ref->type == TYPE_STRING) {
        e->ops->str.get(e, ref, &v);
        buf_append_bytes(to, v.b);
    } else if (ref->type == TYPE_LIST) {
        for (u64 i = 0; i < e->ops->size(e, ref); i++) {
            e->ops->seq.get(e, ref, i, &value);
            add_item(to, i == 0, value, "", (bytes){"", 0});
        }
    } else if (ref->type == TYPE_STREAM) {
        show_stream(e, ref, to);
    } else {
        show_elements(e, ref, to);
    }
    if (to->n == before) buf_append_char(to, '-');
}

struct atoms {
    u32 deadlines, marks, writes, incs;
};

static struct atoms count_atoms(struct site_key *k)
{
    struct buf paths = {0};
    struct site_cell c = {0};
    struct atoms n = {k->ttl.n_deadlines, k->ttl.n_marks, k->string.n_writes, k->string.n_incs};
    u64 timed = 0;
    for (u32 kind = TYPE_HASH; kind < SITE_TYPES; kind++) {
        u64 rows = 0, live = 0;
        buf_clear(&paths);
        site_key_paths(k, kind, &paths);
        for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r); rows++) {
            site_key_cell(k, kind, site_get_bytes(&r), &c);
            live += site_cell_keeps(&c);
            n.deadlines += c.ttl.n_deadlines;
            n.marks += c.ttl.n_marks;
            n.writes += c.n_writes;
            n.incs += c.n_incs;
            timed += !site_ttl_empty(&c.ttl);
        }
        if (rows != k->cells[kind].rows || live != k->cells[kind].live) fail_because("cells are miscounted");
    }
    if (timed != k->timed) fail_because("fields with deadlines are miscounted");
    site_cell_release(&c);
    buf_release(&paths);
    return n;
}

static bool is_hollow(struct engine *e, struct key_ref *ref)
{
    return ref->type == TYPE_HASH && e->ops->size(e, ref) == 0;
}

static bool look(struct rsite *r, bytes name, struct key_ref *ref)
{
    return r->e->ops->find(r->e, 0, name, ref) && alive(ref->deadline_ms, site_now(&r->s)) &&
           !is_hollow(r->e, ref);
}

static void show_key(struct rsite *r, const char *name, struct buf *to)
{
    static const char *const kinds[] = {"none", "string", "hash", "list", "set", "zset", "stream"};
    struct site_key k = {0};
    struct key_ref ref;
    follow_time(r);
    bool shows = look(r, bytes_str(name), &ref);
    buf_printf(to, " | %s %s ", name, kinds[shows ? ref.type : 0]);
    if (shows) show_value(r->e, &ref, to);
    else buf_append_char(to, '-');
    site_key_load(&k, r->e, 0, bytes_str(name));
    struct atoms n = count_atoms(&k);
    buf_printf(to, " %lld %u %u %u %u %u", shows ? (long long)ref.deadline_ms : 0, k.n_claims, n.deadlines,
               n.marks, n.writes, n.incs);
    site_key_release(&k);
}

static void text_of(struct rsite *r, struct buf *to)
{
    struct names l = {0};
    bool first = true;
    for (u32 g = 1; g < SITE_GIDS; g++) {
        if (r->s.clock.seq[g] == 0) continue;
        buf_printf(to, "%s%u:%llu", first ? "" : ",", g, (ull)r->s.clock.seq[g]);
        first = false;
    }
    add_names(r, &l);
    for (u32 i = 0; i < l.n; i++) show_key(r, l.v[i], to);
}

/* Before the next thing is done, every site is as the model said last. */
static void compare_all(void)
{
    for (u32 i = 0; i < SITES; i++) {
        struct rsite *r = &w.sites[i];
        struct buf now = {0};
        if (!r->used || r->shown.n == 0) continue;
        text_of(r, &now);
        if (!bytes_eq(buf_bytes(&now), buf_bytes(&r->shown)))
            fail("views differ", buf_bytes(&r->shown), buf_bytes(&now));
        w.compared++;
        buf_release(&now);
    }
}

/* -- commands, as far as the model has them ------------------------------------------------------- */

struct cmd {
    struct rsite *r;
    struct site *s;
    char **v;
    u32 n;
    bytes key;
    struct key_ref ref;
    bool there; /* and alive */
};

static bool is(const struct cmd *c, const char *word) { return strcmp(c->v[0], word) == 0; }

/* A hash whose fields are all past their deadlines is deleted before something is done to it. */
static void bury_hollow(struct rsite *r, bytes name)
{
    struct key_ref ref;
    if (r->e->ops->find(r->e, 0, name, &ref) && is_hollow(r->e, &ref)) site_expire_due_fields(&r->s, 0, name);
}

static void expire_dead(struct rsite *r, bytes name)
{
    struct site_key k = {0};
    site_key_load(&k, r->e, 0, name);
    bool due = site_due(&r->s, &k);
    site_key_release(&k);
    if (due) site_expire(&r->s, 0, name, NULL);
    bury_hollow(r, name);
}

static bool wrong_type(const struct cmd *c, enum value_type kind) { return c->there && c->ref.type != kind; }

static void cmd_set(struct cmd *c)
{
    const char *option = c->n > 3 ? c->v[3] : "";
    bytes pair[2] = {{"", 0}, bytes_str(c->v[2])};
    i64 at_ms = 0;
    if (strcmp(option, "KEEPTTL") == 0 && c->there && c->ref.type == TYPE_STRING) {
        site_write_put(c->s, 0, c->key, TYPE_STRING, pair, 1);
        return;
    }
    if (strcmp(option, "KEEPTTL") == 0) at_ms = c->there ? c->ref.deadline_ms : 0;
    else if (*option) at_ms = site_now(c->s) + atoll(c->v[4]) * (strcmp(option, "EX") ? 1 : 1000);
    site_write_set(c->s, 0, c->key, bytes_str(c->v[2]), at_ms);
}

static void cmd_append(struct cmd *c)
{
    struct buf value = {0};
    struct str_view v;
    if (wrong_type(c, TYPE_STRING)) return;
    if (c->there) {
        c->r->e->ops->str.get(c->r->e, &c->ref, &v);
        buf_append_bytes(&value, v.b);
    }
    buf_append_str(&value, c->v[2]);
    site_write_put(c->s, 0, c->key, TYPE_STRING, (bytes[]){{"", 0}, buf_bytes(&value)}, 1);
    buf_release(&value);
}

static void cmd_add(struct cmd *c, enum value_type kind, const char *path, const char *delta)
{
    struct site_num base = {0}, by;
    struct site_key k = {0};
    struct site_cell scratch = {0};
    struct buf value = {0};
    if (wrong_type(c, kind)) return;
    site_num_parse(bytes_str(delta), &by);
    if (kind == TYPE_ZSET || is(c, "INCRBYFLOAT"))
        by = (struct site_num){.real = true, .f = site_num_real(by)};
    site_key_load(&k, c->r->e, 0, c->key);
    struct site_cell *cell = site_key_cell(&k, kind, bytes_str(path), &scratch);
    bool number = !c->there || !site_cell_live(cell) || site_field_due(c->s, cell);
    if (!number) {
        site_key_value(&k, cell, &value);
        number = site_num_parse(buf_bytes(&value), &base) && (!base.real || by.real);
    }
    site_key_release(&k);
    site_cell_release(&scratch);
    buf_release(&value);
    if (number) site_write_add(c->s, 0, c->key, kind, bytes_str(path), by);
}

/* HSET k f v …, SADD k m …, ZADD k s m …: `step` words each, of which the path is at `path`, the value
 * at `value`. */
static void cmd_put(struct cmd *c, enum value_type kind, u32 step, u32 path, u32 value)
{
    bytes pairs[WORDS];
    u32 n = 0;
    if (wrong_type(c, kind)) return;
    for (u32 i = 2; i + step <= c->n; i += step) {
        pairs[n++] = bytes_str(c->v[i + path]);
        pairs[n++] = step > 1 ? bytes_str(c->v[i + value]) : (bytes){"", 0};
    }
    site_write_put(c->s, 0, c->key, kind, pairs, n / 2);
}

static bool has(struct cmd *c, bytes path)
{
    double score;
    if (c->ref.type == TYPE_ZSET) return c->r->e->ops->zset.score(c->r->e, &c->ref, path, &score);
    return c->r->e->ops->map.get(c->r->e, &c->ref, path, NULL);
}

static void cmd_rem(struct cmd *c, enum value_type kind)
{
    bytes paths[WORDS];
    u32 n = 0;
    if (!c->there || wrong_type(c, kind)) return;
    for (u32 i = 2; i < c->n; i++) {
        bool again = false;
        for (u32 j = 2; j < i; j++) again |= strcmp(c->v[i], c->v[j]) == 0;
        if (!again && has(c, bytes_str(c->v[i]))) paths[n++] = bytes_str(c->v[i]);
    }
    if (n == 0) return;
    site_write_rem(c->s, 0, c->key, kind, paths, n);
    bury_hollow(c->r, c->key);
}

/* HEXPIRE, HPERSIST (at_ms 0): the fields begin at the word `from`. */
static void cmd_field_ttl(struct cmd *c, i64 at_ms, u32 from)
{
    bytes fields[WORDS];
    u32 n = 0;
    i64 was_ms;
    if (!c->there || wrong_type(c, TYPE_HASH)) return;
    for (u32 i = from; i < c->n; i++) {
        bool again = false;
        for (u32 j = from; j < i; j++) again |= strcmp(c->v[i], c->v[j]) == 0;
        bool there = c->r->e->ops->map.field_deadline(c->r->e, &c->ref, bytes_str(c->v[i]), &was_ms);
        if (!again && there && (at_ms || was_ms)) fields[n++] = bytes_str(c->v[i]);
    }
    if (n == 0) return;
    if (at_ms == 0 || at_ms > site_now(c->s)) {
        site_write_field_ttl(c->s, 0, c->key, fields, n, at_ms);
        return;
    }
    site_write_rem(c->s, 0, c->key, TYPE_HASH, fields, n);
    bury_hollow(c->r, c->key);
}

static bool run_field(struct cmd *c)
{
    i64 now_ms = site_now(c->s), at_ms = c->n > 4 ? now_ms + atoll(c->v[2]) : 0;
    char **v = c->v;
    if (is(c, "HEXPIRE")) cmd_field_ttl(c, now_ms + (i64)(atof(v[2]) * 1000), 3);
    else if (is(c, "HPEXPIREAT")) cmd_field_ttl(c, atoll(v[2]), 3);
    else if (is(c, "HPERSIST")) cmd_field_ttl(c, 0, 2);
    else if (!is(c, "HSETEX") && !is(c, "HSETKEEP")) return false;
    else if (wrong_type(c, TYPE_HASH)) return true;
    else if (is(c, "HSETEX")) site_write_field(c->s, 0, c->key, bytes_str(v[3]), bytes_str(v[4]), at_ms);
    else site_write_field(c->s, 0, c->key, bytes_str(v[2]), bytes_str(v[3]), 0);
    return true;
}

static void cmd_push(struct cmd *c, bool front)
{
    bytes values[WORDS];
    if (wrong_type(c, TYPE_LIST)) return;
    for (u32 i = 2; i < c->n; i++) values[i - 2] = bytes_str(c->v[i]);
    site_write_push(c->s, 0, c->key, front, values, c->n - 2);
}

/* Removes the elements outside [from, to), or those inside. */
static void cut_list(struct cmd *c, u64 from, u64 to, bool inside)
{
    struct site_key k = {0};
    struct buf raw = {0};
    bytes paths[NAMES];
    u32 n = 0;
    u64 size = c->r->e->ops->size(c->r->e, &c->ref);
    site_key_load(&k, c->r->e, 0, c->key);
    for (u64 i = 0; i < size; i++)
        if ((i >= from && i < to) == inside) site_list_paths(&k, i, 1, &raw);
    for (struct site_reader r = site_reader_of(buf_bytes(&raw)); site_left(&r);)
        paths[n++] = site_get_bytes(&r);
    if (n) site_write_rem(c->s, 0, c->key, TYPE_LIST, paths, n);
    site_key_release(&k);
    buf_release(&raw);
}

static void cmd_ltrim(struct cmd *c)
{
    if (!c->there || wrong_type(c, TYPE_LIST)) return;
    i64 size = (i64)c->r->e->ops->size(c->r->e, &c->ref), end[2];
    for (u32 i = 0; i < 2; i++) {
        end[i] = atoll(c->v[2 + i]);
        if (end[i] < 0) end[i] = MAX(-(i64)i, end[i] + size); /* nothing is left if the last one is before all */
    }
    cut_list(c, (u64)end[0], (u64)(end[1] + 1), false);
}

static void cmd_pop(struct cmd *c, bool front)
{
    if (!c->there || wrong_type(c, TYPE_LIST)) return;
    u64 at = front ? 0 : c->r->e->ops->size(c->r->e, &c->ref) - 1;
    cut_list(c, at, at + 1, true);
}

static void cmd_lset(struct cmd *c)
{
    struct site_key k = {0};
    struct buf path = {0};
    if (!c->there || wrong_type(c, TYPE_LIST)) return;
    i64 size = (i64)c->r->e->ops->size(c->r->e, &c->ref), at = atoll(c->v[2]);
    if (at < 0) at += size;
    if (at < 0 || at >= size) return;
    site_key_load(&k, c->r->e, 0, c->key);
    site_list_paths(&k, (u64)at, 1, &path);
    struct site_reader r = site_reader_of(buf_bytes(&path));
    bytes pair[2] = {site_get_bytes(&r), bytes_str(c->v[3])};
    site_key_release(&k);
    site_write_put(c->s, 0, c->key, TYPE_LIST, pair, 1);
    buf_release(&path);
}

static void cmd_linsert(struct cmd *c)
{
    bytes value;
    if (!c->there || wrong_type(c, TYPE_LIST)) return;
    for (u64 i = 0; i < c->r->e->ops->size(c->r->e, &c->ref); i++) {
        c->r->e->ops->seq.get(c->r->e, &c->ref, i, &value);
        if (!bytes_eq(value, bytes_str(c->v[3]))) continue;
        site_write_insert(c->s, 0, c->key, i + (strcmp(c->v[2], "AFTER") == 0), bytes_str(c->v[4]));
        return;
    }
}

static bool parse_id(const char *text, struct stream_id *id)
{
    return stream_id_parse(bytes_str(text), 0, true, NULL, id);
}

static void cmd_xadd(struct cmd *c)
{
    struct xstream s = {.eng = c->r->e};
    struct stream_id id = {0};
    struct buf packed = {0};
    char path[SITE_ID_BYTES];
    bytes pair[2] = {bytes_str(c->v[3]), bytes_str(c->v[4])};
    bool seq_given = true;
    if (wrong_type(c, TYPE_STREAM)) return;
    if (c->there) xstream_open(&s, c->r->e, &c->ref);
    if (strcmp(c->v[2], "*") == 0) {
        xstream_next_id(&s, (u64)site_now(c->s), &id);
    } else {
        stream_id_parse(bytes_str(c->v[2]), 0, true, &seq_given, &id);
        u64 ms = id.ms;
        if (!seq_given && (ms < s.last.ms || !xstream_next_id(&s, ms, &id) || id.ms != ms)) return;
    }
    if (stream_id_cmp(id, s.last) <= 0) return;
    stream_id_pack(path, id);
    xentry_pack(&packed, pair, 1);
    bytes pairs[] = {{"", 0}, {"", 0}, bytes_of(path, sizeof path), buf_bytes(&packed)};
    site_write_put(c->s, 0, c->key, TYPE_STREAM, c->there ? pairs + 2 : pairs, c->there ? 1 : 2);
    buf_release(&packed);
}

/* Entries that are among the ids given, or (XTRIM) the first ones. */
static void cmd_xcut(struct cmd *c)
{
    struct xstream s;
    struct xwalk walk;
    struct stream_id id, given;
    char raw[NAMES][SITE_ID_BYTES];
    bytes ids[NAMES];
    u32 n = 0;
    u64 at = 0;
    bool trim = is(c, "XTRIM"), maxlen = trim && strcmp(c->v[2], "MAXLEN") == 0;
    if (!c->there || wrong_type(c, TYPE_STREAM)) return;
    xstream_open(&s, c->r->e, &c->ref);
    for (xstream_walk(&walk, &s, STREAM_ID_MIN, STREAM_ID_MAX, false); xwalk_next(&walk, &id, NULL); at++) {
        bool hit = maxlen && at + (u64)atoll(c->v[3]) < s.length;
        for (u32 i = trim ? 3 : 2; i < c->n && !maxlen; i++) {
            parse_id(c->v[i], &given);
            hit |= trim ? stream_id_cmp(id, given) < 0 : stream_id_cmp(id, given) == 0;
        }
        if (!hit) continue;
        stream_id_pack(raw[n], id);
        ids[n] = bytes_of(raw[n], SITE_ID_BYTES);
        n++;
    }
    if (n) site_write_xcut(c->s, 0, c->key, ids, n);
}

static void cmd_xsetid(struct cmd *c)
{
    struct xstream s;
    struct stream_id id, top = STREAM_ID_MIN;
    char raw[SITE_ID_BYTES];
    if (!c->there || wrong_type(c, TYPE_STREAM)) return;
    xstream_open(&s, c->r->e, &c->ref);
    parse_id(c->v[2], &id);
    if (xwalk_edge(&s, xrow_kind('e'), true, &top) && stream_id_cmp(id, top) < 0) return;
    stream_id_pack(raw, id);
    site_write_put(c->s, 0, c->key, TYPE_STREAM, (bytes[]){SITE_LAST_ID, bytes_of(raw, sizeof raw)}, 1);
}

static void cmd_expire(struct cmd *c, i64 at_ms)
{
    if (!c->there) return;
    if (at_ms <= site_now(c->s)) site_write_del(c->s, 0, c->key);
    else site_write_ttl(c->s, 0, c->key, at_ms);
}

static void cmd_copy(struct cmd *c)
{
    if (c->there && strcmp(c->v[1], c->v[2]) != 0)
        site_write_copy(c->s, 0, c->key, 0, bytes_str(c->v[2]), is(c, "RENAME"));
}

static void run_rest(struct cmd *c)
{
    if (is(c, "RPUSH") || is(c, "LPUSH")) cmd_push(c, is(c, "LPUSH"));
    else if (is(c, "LPOP") || is(c, "RPOP")) cmd_pop(c, is(c, "LPOP"));
    else if (is(c, "LINSERT")) cmd_linsert(c);
    else if (is(c, "LSET")) cmd_lset(c);
    else if (is(c, "LTRIM")) cmd_ltrim(c);
    else if (is(c, "XADD")) cmd_xadd(c);
    else if (is(c, "XDEL") || is(c, "XTRIM")) cmd_xcut(c);
    else if (is(c, "XSETID")) cmd_xsetid(c);
    else if (is(c, "MKSTREAM") && !c->there)
        site_write_put(c->s, 0, c->key, TYPE_STREAM, (bytes[]){{"", 0}, {"", 0}}, 1);
    else if (is(c, "MKSTREAM")) return;
    else if (is(c, "EXPIRE")) cmd_expire(c, site_now(c->s) + (i64)(atof(c->v[2]) * 1000));
    else if (is(c, "PEXPIREAT")) cmd_expire(c, atoll(c->v[2]));
    else if (is(c, "PERSIST") && c->there && c->ref.deadline_ms) site_write_ttl(c->s, 0, c->key, 0);
    else if (run_field(c)) return;
    else if (is(c, "RENAME") || is(c, "COPY")) cmd_copy(c);
    else if (is(c, "FLUSHALL")) site_write_flush(c->s, SITE_ALL_DBS);
    else if (!is(c, "PERSIST")) fail("a command that replay does not know", bytes_str(c->v[0]), c->key);
}

/* -- commands as they are ------------------------------------------------------------------------- */

/* One region, whose engine is that of the site whose turn it is. */
static struct {
    bool open;
    struct node node;
    struct region region;
    struct session session;
    struct buf out;
    struct site_capture capture;
} x;

static void exec_open(struct engine *e)
{
    x.open = true;
    node_init(&x.node, 1);
    region_init(&x.region, &x.node, e, 1);
    region_map_add(&x.node.regions, &x.region, 0, REGION_SLOTS - 1);
    session_init(&x.session, 1, true);
}

/* HEXPIRE k 0.5 f g, HPEXPIREAT k ms f, HPERSIST k f, HSETEX k ms f v, HSETKEEP k f v; `text` is scratch. */
static u32 as_field_command(bytes *v, u32 n, char text[2 * NUM_I64_LEN])
{
    bytes fields = BYTES_LIT("FIELDS"), all[WORDS + 8];
    bool set = bytes_eq(v[0], BYTES_LIT("HSETEX")), keep = bytes_eq(v[0], BYTES_LIT("HSETKEEP")),
         rest = bytes_eq(v[0], BYTES_LIT("HPERSIST")), seconds = bytes_eq(v[0], BYTES_LIT("HEXPIRE"));
    u32 from = keep || rest ? 2 : 3, m = 0;
    if (!set && !keep && !rest && !seconds && !bytes_eq(v[0], BYTES_LIT("HPEXPIREAT"))) return n;
    bytes count = bytes_of(text, num_print_i64(text, set || keep ? 1 : n - from));
    all[m++] = set || keep ? BYTES_LIT("HSETEX") : seconds ? BYTES_LIT("HPEXPIRE") : v[0];
    all[m++] = v[1];
    if (set) all[m++] = BYTES_LIT("PX");
    if (keep) all[m++] = BYTES_LIT("KEEPTTL");
    if (from == 3) all[m++] = v[2];
    if (seconds) {
        char *ms = text + NUM_I64_LEN;
        all[m - 1] = bytes_of(ms, num_print_i64(ms, (i64)(atof(v[2].p) * 1000)));
    }
    all[m++] = fields;
    all[m++] = count;
    for (u32 i = from; i < n; i++) all[m++] = v[i];
    memcpy(v, all, m * sizeof *all);
    return m;
}

static void run_captured(struct rsite *r, char **v, u32 n)
{
    struct reply reply = {.out = &x.out, .proto = 2};
    struct outcome ignored;
    bytes argv[WORDS + 8];
    char ms[2 * NUM_I64_LEN];
    for (u32 i = 0; i < n; i++) argv[i] = bytes_str(v[i]);
    if (strcmp(v[0], "EXPIRE") == 0) { /* histories have parts of a second */
        argv[0] = BYTES_LIT("PEXPIRE");
        argv[2] = bytes_of(ms, num_print_i64(ms, (i64)(atof(v[2]) * 1000)));
    }
    n = as_field_command(argv, n, ms);
    if (strcmp(v[0], "COPY") == 0) argv[n++] = BYTES_LIT("REPLACE");
    if (strcmp(v[0], "MKSTREAM") == 0) {
        const bytes made[] = {BYTES_LIT("XGROUP"), BYTES_LIT("CREATE"), argv[1],
                              BYTES_LIT("group"),  BYTES_LIT("$"),      BYTES_LIT("MKSTREAM")};
        memcpy(argv, made, sizeof made);
        n = ARRAY_LEN(made);
    }
    struct request q = {&x.session, NULL, (int)n, argv, &reply};
    u64 before = r->s.clock.seq[r->s.gid];
    if (!x.open) exec_open(r->e);
    x.region.eng = x.region.ks.eng = r->e;
    keyspace_set_mode(&x.region.ks, EXPIRY_ACTIVE);
    region_set_time(&x.region, site_now(&r->s));
    site_capture_open(&x.capture, r->e, 2, r->s.gid);
    x.capture.site = r->s;
    region_run(&x.region, &q, &ignored);
    site_capture_end(&x.capture);
    r->s = x.capture.site;
    x.capture.site = (struct site){.e = r->e};
    site_capture_release(&x.capture);
    r->e->gid = r->s.gid;
    buf_clear(&x.out);
    /* What is left under the name of an absent key, and has a deadline, a server leaves to the next pass. */
    if (n > 1 && r->s.clock.seq[r->s.gid] == before) expire_dead(r, bytes_str(v[1]));
}

/* A server's FLUSHALL of nothing is no write, its COPY of a key to itself looks at nothing, and its XSETID knows
 * which entries were deleted here. */
static bool differs_by_design(char **v)
{
    return strcmp(v[0], "FLUSHALL") == 0 || (strcmp(v[0], "COPY") == 0 && strcmp(v[1], v[2]) == 0) ||
           strcmp(v[0], "XSETID") == 0;
}

static void run_command(struct rsite *r, char **v, u32 n)
{
    if (strcmp(v[0], "GET") == 0 || strcmp(v[0], "PTTL") == 0 || strcmp(v[0], "HPTTL") == 0) return;
    follow_time(r); /* compare_all() reads */
    if (w.captured && !differs_by_design(v)) {
        run_captured(r, v, n);
        return;
    }
    struct cmd c = {.r = r, .s = &r->s, .v = v, .n = n, .key = bytes_str(n > 1 ? v[1] : "")};
    bool two = is(&c, "RENAME") || is(&c, "COPY");
    two = two && look(r, c.key, &c.ref);
    if (!is(&c, "FLUSHALL")) expire_dead(r, c.key);
    if (two) expire_dead(r, bytes_str(v[2]));
    c.there = look(r, c.key, &c.ref);
    if (is(&c, "SET")) cmd_set(&c);
    else if (is(&c, "DEL") && c.there) site_write_del(&r->s, 0, c.key);
    else if (is(&c, "DEL")) return;
    else if (is(&c, "INCR")) cmd_add(&c, TYPE_STRING, "", "1");
    else if (is(&c, "INCRBY") || is(&c, "INCRBYFLOAT")) cmd_add(&c, TYPE_STRING, "", v[2]);
    else if (is(&c, "APPEND")) cmd_append(&c);
    else if (is(&c, "HSET")) cmd_put(&c, TYPE_HASH, 2, 0, 1);
    else if (is(&c, "HDEL")) cmd_rem(&c, TYPE_HASH);
    else if (is(&c, "HINCRBY")) cmd_add(&c, TYPE_HASH, v[2], v[3]);
    else if (is(&c, "SADD")) cmd_put(&c, TYPE_SET, 1, 0, 0);
    else if (is(&c, "SREM")) cmd_rem(&c, TYPE_SET);
    else if (is(&c, "ZADD")) cmd_put(&c, TYPE_ZSET, 2, 1, 0);
    else if (is(&c, "ZINCRBY")) cmd_add(&c, TYPE_ZSET, v[3], v[2]);
    else if (is(&c, "ZREM")) cmd_rem(&c, TYPE_ZSET);
    else run_rest(&c);
}

/* MULTI: commands with ; between them. Who writes by commands knows when another effect follows; here it is
 * seen afterwards. */
static void run_multi(struct rsite *r, char **v, u32 n)
{
    u64 first = r->s.clock.seq[r->s.gid] + 1;
    for (u32 from = 0, i = 0; i <= n; i++) {
        if (i < n && strcmp(v[i], ";") != 0) continue;
        run_command(r, v + from, i - from);
        from = i + 1;
    }
    for (u64 seq = first; seq < r->s.clock.seq[r->s.gid]; seq++)
        site_put_move(&w.effects[r->s.gid][seq], &(struct site_move){.op = MOVE_MORE}, false);
}

/* -- the lines of a history ----------------------------------------------------------------------- */

/* `only`: the full sync is interrupted when these keys are merged, by the end of the process. */
static void merge_from(struct rsite *from, struct rsite *to, const struct names *only)
{
    struct site_merge m;
    struct buf head = {0}, dump = {0};
    struct names own = {0}, all = {0}, theirs = {0};
    const char *why = "";
    site_put_snapshot_head(&from->s, &head);
    if (!site_merge_begin(&to->s, &m, buf_bytes(&head), &why)) fail_because(why);
    to->s.torn = true; /* as site_full_start does */
    to->s.torn_ms = site_now(&to->s);
    site_clock_join(&to->s.torn_upto, &m.clock);
    add_names(to, &own);
    for (u32 i = 0; i < own.n; i++) {
        site_expire(&to->s, 0, bytes_str(own.v[i]), NULL);
        site_expire_due_fields(&to->s, 0, bytes_str(own.v[i]));
    }
    add_names(to, &all);
    add_names(from, &all);
    add_names(from, &theirs);
    for (u32 i = 0, j = 0; i < all.n; i++) {
        buf_clear(&dump);
        if (j < theirs.n && strcmp(theirs.v[j], all.v[i]) == 0)
            site_put_key(&from->s, 0, bytes_str(theirs.v[j++]), &dump);
        if (!site_merge_check(&m, buf_bytes(&dump), &why)) fail_because(why);
        if (!only) site_merge_key(&to->s, &m, 0, bytes_str(all.v[i]), buf_bytes(&dump));
        else if (has_name(only, all.v[i]))
            (void)site_merge_key_early(&to->s, &m, 0, bytes_str(all.v[i]), buf_bytes(&dump));
    }
    if (!only) site_merge_finish(&to->s, &m);
    site_merge_release(&m);
    buf_release(&head);
    buf_release(&dump);
}

static void deliver(struct rsite *to, const char *gid, const char *seq)
{
    const char *why = "";
    const struct buf *raw = &w.effects[atoi(gid) % SITE_GIDS][atoi(seq) % EFFECTS];
    if (raw->n == 0) fail_because("no such effect");
    to->given[atoi(gid) % SITE_GIDS][atoi(seq) % EFFECTS] = true;
    if (site_receive(&to->s, buf_bytes(raw), &why) == SITE_REFUSED) fail_because(why);
}

static void cron(struct rsite *r)
{
    struct names l = {0};
    if (!r->s.torn) add_names(r, &l); /* a torn one rests */
    for (u32 i = 0; i < l.n; i++) site_expire_pass(&r->s, 0, bytes_str(l.v[i]));
}

static void collect(struct rsite *r)
{
    struct buf place = {0};
    if (r->s.torn) return;
    next_transaction(r); /* what stays since the open one may be collected later, on RocksDB */
    site_find_stable(&r->s);
    while (site_collect_some(&r->s, 0, &place, 3)) {}
    buf_release(&place);
}

static void fence(const char *gid, const char *seq)
{
    site_gone(site_of(gid));
    for (u32 i = 0; i < SITES; i++)
        if (w.sites[i].used) site_fence(&w.sites[i].s, (u8)atoi(gid), (u64)atoll(seq));
}

static void start_sites(u32 n)
{
    u8 gids[SITES];
    for (u32 g = 1; g <= n; g++) gids[g - 1] = (u8)g;
    for (u32 g = 1; g <= n; g++) {
        struct site *s = &site_new(g)->s;
        site_found(s, gids, n);
        site_tick(s, START_MS);
        next_transaction(&w.sites[g % SITES]);
    }
}

static void show(char *line, const char *gid)
{
    struct rsite *r = site_of(gid);
    buf_clear(&r->shown);
    buf_append_str(&r->shown, line);
}

static void join(char **v)
{
    struct rsite *r = site_new((u32)atoi(v[2]));
    struct rsite *by = site_of(v[1]);
    if (!site_may_start(&by->s, (u8)atoi(v[2]))) fail_because("may not join yet");
    site_tick(&r->s, atoll(v[3]));
    merge_from(by, r, NULL);
}

static void tear(char **v, u32 n)
{
    struct names only = {0};
    for (u32 i = 3; i < n; i++) add_name(&only, 0, bytes_str(v[i]));
    merge_from(site_of(v[1]), site_of(v[2]), &only);
}

/* The history says where a transaction ends. Now and then a site starts again there. */
static void store(struct rsite *r)
{
    if ((w.line * 7 + r->s.gid * 13) % (w.rocks ? 499 : 25) == 0) site_restart(r);
    else next_transaction(r);
}

static void step(char **v, u32 n)
{
    const char *what = v[0];
    if (strcmp(what, "history") == 0) {
        history_end();
        snprintf(w.history, sizeof w.history, "%s", v[1]);
        w.histories++;
    } else if (strcmp(what, "sites") == 0) {
        start_sites((u32)atoi(v[1]));
    } else if (strcmp(what, "time") == 0) {
        for (u32 i = 1; i + 1 < n; i += 2) {
            next_transaction(site_of(v[i]));
            site_tick(&site_of(v[i])->s, atoll(v[i + 1]));
        }
    } else if (strcmp(what, "op") == 0) {
        run_command(site_of(v[1]), v + 2, n - 2);
    } else if (strcmp(what, "multi") == 0) {
        run_multi(site_of(v[1]), v + 2, n - 2);
    } else if (strcmp(what, "store") == 0) {
        store(site_of(v[1]));
    } else if (strcmp(what, "crash") == 0) {
        site_crash(site_of(v[1]), atoll(v[2]));
    } else if (strcmp(what, "deliver") == 0) {
        deliver(site_of(v[2]), v[3], v[4]);
    } else if (strcmp(what, "full") == 0) {
        merge_from(site_of(v[1]), site_of(v[2]), NULL);
    } else if (strcmp(what, "tear") == 0) {
        tear(v, n);
    } else if (strcmp(what, "clock") == 0) {
        site_hear(&site_of(v[2])->s, (u8)atoi(v[1]), &site_of(v[1])->s.clock);
    } else if (strcmp(what, "cron") == 0) {
        cron(site_of(v[1]));
    } else if (strcmp(what, "gc") == 0) {
        collect(site_of(v[1]));
    } else if (strcmp(what, "admit") == 0) {
        site_admit(&site_of(v[1])->s, (u8)atoi(v[2]));
    } else if (strcmp(what, "join") == 0) {
        join(v);
    } else if (strcmp(what, "fence") == 0) {
        fence(v[1], v[2]);
    } else if (strcmp(what, "evict") == 0) {
        site_evict(&site_of(v[1])->s, (u8)atoi(v[2]));
    } else if (strcmp(what, "end") != 0) {
        fail("a line that replay does not know", bytes_str(what), (bytes){"", 0});
    }
}

static void follow(char *line)
{
    char *v[WORDS];
    u32 n = 0;
    if (strncmp(line, "show ", 5) == 0) {
        char *rest = strchr(line + 5, ' ');
        show(rest ? rest + 1 : "", line + 5);
        return;
    }
    if (strncmp(line, "fence ", 6) == 0) buf_clear(&site_of(line + 6)->shown); /* gone: not shown any more */
    compare_all();
    for (char *word = strtok(line, " "); word && n < WORDS; word = strtok(NULL, " ")) v[n++] = word;
    if (n) step(v, n);
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    w.rocks = argc > 1 && strstr(argv[1], "rocksdb") != NULL;
    w.captured = argc > 1 && strncmp(argv[1], "captured-", 9) == 0;
    w.planted = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    while ((len = getline(&line, &room, stdin)) > 0) {
        line[len - 1] = 0;
        w.line++;
        follow(line);
    }
    history_end();
    engines_close();
    free(line);
    printf("%llu histories on %s, %llu views compared, %llu restarts, %llu crashes\n", (ull)w.histories,
           argv[1] ? argv[1] : "memory", (ull)w.compared, (ull)w.restarts, (ull)w.crashes);
    return w.histories ? 0 : 1;
}
