/* MEMORY: the size of a key, and where the server's memory is. */
#include <stdio.h>

#include "command/commands.h"
#include "exec/node_sums.h"
#include "server/script_host.h"
#include "server/server.h"

#if MAYFLY_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

#define DEFAULT_SAMPLES 5

/* Bytes of the tables per key; the engine's primitives report only counts. */
#define TABLE_BYTES_PER_KEY 10     /* a slot of 8 bytes, at the usual load */
#define INDEX_BYTES_PER_DEADLINE 8 /* a reference in the deadline index */

/* -- USAGE --------------------------------------------------------------------------- */

void cmd_memory_usage(struct ctx *c)
{
    i64 samples = DEFAULT_SAMPLES;
    struct key_ref ref;
    for (int i = 3; i < c->argc; i += 2) {
        if (!bytes_is(c->argv[i], "samples") || i + 1 >= c->argc) {
            ctx_syntax_error(c);
            return;
        }
        if (!ctx_int(c, c->argv[i + 1], &samples)) return;
        if (samples < 0) {
            ctx_syntax_error(c);
            return;
        }
    }
    if (!keyspace_find(c->ks, c->db, c->argv[2], LOOKUP_INSPECT, &ref)) reply_null(c->out);
    else
        reply_int(c->out,
                  (i64)c->eng->ops->usage(c->eng, &ref, (u32)MIN(samples, (i64)UINT32_MAX)));
}

/* -- STATS --------------------------------------------------------------------------- */

struct memory_report {
    u64 used, peak, startup, clients, tables, overhead, dataset, keys, rss;
    u32 databases; /* with keys */
    struct mem_stats allocator;
};

/* The engine on disk has no table of all keys. */
static u64 table_bytes(const struct server *s, u32 db)
{
    return s->config.engine == ENGINE_MEMORY ? node_db(&s->node, db).keys * TABLE_BYTES_PER_KEY : 0;
}
static u64 index_bytes(const struct server *s, u32 db)
{
    return s->config.engine == ENGINE_MEMORY ? node_db(&s->node, db).expires * INDEX_BYTES_PER_DEADLINE : 0;
}

static void measure(struct server *s, struct memory_report *r)
{
    *r = (struct memory_report){.used = evictor_used(&s->node.evictor),
                                .startup = s->startup_memory};
    s->stats.peak_memory = MAX(s->stats.peak_memory, r->used);
    r->peak = s->stats.peak_memory;
    r->rss = mem_rss();
    mem_stats_read(&r->allocator);
    for (struct conn *c = s->net.conns; c; c = c->next) r->clients += client_memory(c);
    for (u32 db = 0; db < node_engine(&s->node)->databases; db++) {
        u64 keys = node_db(&s->node, db).keys;
        r->keys += keys;
        r->databases += keys > 0;
        r->tables += table_bytes(s, db) + index_bytes(s, db);
    }
    r->overhead = r->startup + r->clients + r->tables;
    r->dataset = r->used - MIN(r->used, r->overhead);
}

static void field_int(struct ctx *c, const char *name, i64 v)
{
    reply_bulk_str(c->out, name);
    reply_int(c->out, v);
}

static void field_double(struct ctx *c, const char *name, double v)
{
    reply_bulk_str(c->out, name);
    reply_double(c->out, v);
}

static void reply_databases(struct ctx *c)
{
    for (u32 db = 0; db < c->eng->databases; db++) {
        if (c->eng->ops->count(c->eng, db) == 0) continue;
        reply_bulkf(c->out, "db.%u", db);
        reply_map(c->out, 3);
        field_int(c, "overhead.hashtable.main", (i64)table_bytes(c->server, db));
        field_int(c, "overhead.hashtable.expires", (i64)index_bytes(c->server, db));
        field_int(c, "overhead.hashtable.slot-to-keys", 0);
    }
}

static double ratio(u64 a, u64 b) { return (double)a / (double)MAX(b, 1u); }

static void reply_allocator(struct ctx *c, const struct memory_report *r)
{
    const struct mem_stats *m = &r->allocator;
    field_int(c, "allocator.allocated", (i64)m->allocated);
    field_int(c, "allocator.active", (i64)m->active);
    field_int(c, "allocator.resident", (i64)m->resident);
    field_double(c, "allocator-fragmentation.ratio", ratio(m->active, m->allocated));
    field_int(c, "allocator-fragmentation.bytes", (i64)m->active - (i64)m->allocated);
    field_double(c, "allocator-rss.ratio", ratio(m->resident, m->active));
    field_int(c, "allocator-rss.bytes", (i64)m->resident - (i64)m->active);
    field_double(c, "rss-overhead.ratio", ratio(r->rss, m->resident));
    field_int(c, "rss-overhead.bytes", (i64)r->rss - (i64)m->resident);
    field_double(c, "fragmentation", ratio(r->rss, r->used));
    field_int(c, "fragmentation.bytes", (i64)r->rss - (i64)r->used);
}

void cmd_memory_stats(struct ctx *c)
{
    struct memory_report r;
    measure(c->server, &r);
    u64 net = r.used - MIN(r.used, r.startup);
    reply_map(c->out, 27 + r.databases);
    field_int(c, "peak.allocated", (i64)r.peak);
    field_int(c, "total.allocated", (i64)r.used);
    field_int(c, "startup.allocated", (i64)r.startup);
    field_int(c, "replication.backlog", 0);
    field_int(c, "clients.slaves", 0);
    field_int(c, "clients.normal", (i64)r.clients);
    field_int(c, "cluster.links", 0);
    field_int(c, "aof.buffer", 0);
    struct script_usage scripts = script_usage(c->server);
    field_int(c, "lua.caches", (i64)scripts.eval);
    field_int(c, "functions.caches", (i64)scripts.functions);
    reply_databases(c);
    field_int(c, "overhead.total", (i64)r.overhead);
    field_int(c, "keys.count", (i64)r.keys);
    field_int(c, "keys.bytes-per-key", r.keys ? (i64)(net / r.keys) : 0);
    field_int(c, "dataset.bytes", (i64)r.dataset);
    field_double(c, "dataset.percentage", 100 * ratio(r.dataset, net));
    field_double(c, "peak.percentage", 100 * ratio(r.used, r.peak));
    reply_allocator(c, &r);
}

/* -- DOCTOR -------------------------------------------------------------------------- */

#define TOO_SMALL (5u << 20) /* below this the ratios are meaningless */
#define WORTH_MENTION (10u << 20)

static void append_findings(struct buf *out, const struct server *s, const struct memory_report *r)
{
    if (ratio(r->peak, r->used) > 1.5)
        buf_printf(out,
                   " * The peak was %.1f times what is in use now: the allocator may keep some of "
                   "that, which looks like fragmentation and goes away as memory is used again.\n",
                   ratio(r->peak, r->used));
    if (ratio(r->rss, r->used) > 1.4 && r->rss - r->used > WORTH_MENTION)
        buf_printf(out,
                   " * The process holds %.2f times the memory in use. MEMORY PURGE returns free "
                   "pages at once.\n",
                   ratio(r->rss, r->used));
    if (s->net.count && r->clients / s->net.count > 200 * 1024)
        buf_printf(out,
                   " * Client buffers take %llu bytes per connection: CLIENT LIST shows whose "
                   "(tot-mem). Some client may be reading slowly.\n",
                   (unsigned long long)(r->clients / s->net.count));
    if (s->config.maxmemory && r->used > (u64)s->config.maxmemory / 10 * 9)
        buf_append_str(out, " * More than 90 % of maxmemory is in use. EXPIRY FORECAST tells how "
                            "many keys will go by themselves, and when.\n");
}

void cmd_memory_doctor(struct ctx *c)
{
    struct memory_report r;
    struct buf text = {0};
    measure(c->server, &r);
    append_findings(&text, c->server, &r);
    if (r.used < TOO_SMALL) {
        buf_clear(&text);
        buf_append_str(&text,
                       "There is too little data here to judge by. Ask again when it has grown.\n");
    } else if (text.n == 0) {
        buf_append_str(&text, "Nothing stands out: the memory is in good order.\n");
    }
    reply_verbatim(c->out, buf_bytes(&text), "txt");
    buf_release(&text);
}

/* -- PURGE, MALLOC-STATS, HELP ------------------------------------------------------- */

void cmd_memory_purge(struct ctx *c)
{
    mem_purge();
    reply_ok(c->out);
}

#if MAYFLY_JEMALLOC
static void append_line(void *arg, const char *text) { buf_append_str(arg, text); }
#endif

void cmd_memory_malloc_stats(struct ctx *c)
{
    struct buf text = {0};
#if MAYFLY_JEMALLOC
    malloc_stats_print(append_line, &text, NULL);
#else
    buf_append_str(&text, "Stats not supported for the current allocator");
#endif
    reply_verbatim(c->out, buf_bytes(&text), "txt");
    buf_release(&text);
}

void cmd_memory_help(struct ctx *c)
{
    static const char *const lines[] = {
        "DOCTOR",
        "    A report on the use of memory in plain words.",
        "MALLOC-STATS",
        "    The allocator's own statistics.",
        "PURGE",
        "    Give free pages back to the operating system.",
        "STATS",
        "    Where the server's memory is.",
        "USAGE <key> [SAMPLES <count>]",
        "    The bytes a key and its value take. Of a collection <count> elements are",
        "    measured (default: 5, 0: all).",
        NULL,
    };
    ctx_help(c, lines);
}
