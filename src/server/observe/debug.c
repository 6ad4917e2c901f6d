/* DEBUG: what tests, tools and client libraries need beyond the ordinary commands. Only where
 * enable-debug-command allows it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/crash.h"
#include "base/key_slot.h"
#include "command/commands.h"
#include "server/observe/debug_parts.h"
#include "server/observe/digest.h"
#include "server/server.h"

/* -- time ---------------------------------------------------------------------------- */

static double parse_number(bytes s) /* like strtod: 0 if it is not a number */
{
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)MIN(s.n, sizeof text - 1), s.p);
    return strtod(text, NULL);
}

static void debug_sleep(struct ctx *c)
{
    double seconds = parse_number(c->argv[2]);
    if (seconds > 0 && isfinite(seconds)) {
        struct timespec t = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
        nanosleep(&t, NULL);
    }
    reply_ok(c->out);
}

static void debug_set_active_expire(struct ctx *c)
{
    struct region *r;
    REGIONS_EACH(&c->server->node.regions, r) {
        r->cycle.enabled = parse_number(c->argv[2]) != 0;
        r->cycle.next_ms = 0; /* check again at once */
    }
    reply_ok(c->out);
}

/* -- values -------------------------------------------------------------------------- */

/* Bytes the value would take in a dump, roughly: the sum of its parts. */
static u64 serialized_length(struct ctx *c, struct key_ref *ref)
{
    if (ref->type == TYPE_STRING) return c->eng->ops->str.length(c->eng, ref) + 1;
    return c->eng->ops->usage(c->eng, ref, 0);
}

static void debug_object(struct ctx *c)
{
    struct key_ref ref;
    if (!c->eng->ops->find(c->eng, c->db, c->argv[2], &ref)) { /* stored, dead or alive */
        reply_error(c->out, "ERR no such key");
        return;
    }
    u32 access = c->eng->ops->access(c->eng, &ref);
    char line[256];
    snprintf(
        line, sizeof line,
        "Value at:%p refcount:1 encoding:%s serializedlength:%llu lru:%u lru_seconds_idle:%llu",
        ref.entry, c->eng->ops->encoding(c->eng, &ref),
        (unsigned long long)serialized_length(c, &ref), access,
        (unsigned long long)access_idle_ms(c->ks, access) / 1000);
    reply_simple(c->out, line);
}

static void reply_digest(struct ctx *c, const u8 digest[SHA1_BYTES])
{
    char hex[2 * SHA1_BYTES + 1];
    sha1_hex(digest, hex);
    reply_simple(c->out, hex);
}

static void debug_digest(struct ctx *c)
{
    u8 digest[SHA1_BYTES];
    digest_dataset(c->ks, digest);
    reply_digest(c, digest);
}

static void debug_digest_value(struct ctx *c)
{
    reply_array(c->out, (size_t)c->argc - 2);
    for (int i = 2; i < c->argc; i++) {
        u8 digest[SHA1_BYTES] = {0};
        struct key_ref ref;
        if (keyspace_find(c->ks, c->db, c->argv[i], LOOKUP_INSPECT, &ref)) digest_value(c->ks, &ref, digest);
        reply_digest(c, digest);
    }
}

static void resize_zeroed(struct buf *b, size_t n)
{
    if (n > b->n) memset(buf_reserve(b, n - b->n), 0, n - b->n);
    b->n = n;
}

/* The keyspace that gets a key. On a node of a cluster the command runs over the regions that it leads; keys
 * of others are left out: NULL. */
static struct keyspace *populate_keyspace(struct ctx *c, bytes key)
{
    const struct node *n = ctx_node(c);
    if (LIKELY(!n->cluster_enabled)) return c->ks;
    struct region *r = region_map_at(&n->regions, key_slot(key));
    return r && (&r->ks == c->ks || r->ks.next != &r->ks) ? &r->ks : NULL;
}

static void populate_one(struct ctx *c, bytes key, bytes value)
{
    struct key_ref ref;
    struct keyspace *ks = populate_keyspace(c, key);
    bytes set[] = {BYTES_LIT("SET"), key, value};
    if (!ks || keyspace_find(ks, c->db, key, LOOKUP_INSPECT, &ref)) return;
    ks->eng->ops->str.put(ks->eng, c->db, key, &ref, value, 0);
    if (!ctx_node(c)->cluster_enabled) return;
    if (ks == c->ks) CTX_EFFECT(c, set[0], key, value);
    else journal_effect(ks->journal, c->db, ARRAY_LEN(set), set);
}

/* Existing keys are not changed. Nothing is journalled: the point is to fill a server quickly. Only the
 * members of a cluster get it, which must not differ. */
static void debug_populate(struct ctx *c)
{
    i64 count, size = 0;
    bytes prefix = c->argc > 3 ? c->argv[3] : BYTES_LIT("key");
    struct buf key = {0}, value = {0};
    struct keyspace *ks;
    if (!ctx_positive(c, c->argv[2], &count)) return;
    if (c->argc > 4 && !ctx_positive(c, c->argv[4], &size)) return;
    if ((u64)size > c->ks->max_string) {
        reply_error(c->out, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
        return;
    }
    for (i64 i = 0; i < count; i++) {
        buf_clear(&key);
        buf_append_bytes(&key, prefix);
        buf_printf(&key, ":%lld", (long long)i);
        buf_clear(&value);
        buf_printf(&value, "value:%lld", (long long)i);
        if (size) resize_zeroed(&value, (size_t)size);
        populate_one(c, buf_bytes(&key), buf_bytes(&value));
    }
    KEYSPACES_EACH(c->ks, ks)
        if (ks != c->ks) journal_close(ks->journal, c->now_ms, c->seed);
    if (!c->effects_given) ctx_no_effect(c);
    buf_release(&key);
    buf_release(&value);
    reply_ok(c->out);
}

/* -- replies of every type ----------------------------------------------------------- */

static void reply_012(struct ctx *c)
{
    for (int i = 0; i < 3; i++) reply_int(c->out, i);
}

static void reply_a_map(struct ctx *c)
{
    reply_map(c->out, 3);
    for (int i = 0; i < 3; i++) {
        reply_int(c->out, i);
        reply_bool(c->out, i == 1);
    }
}

static void reply_an_attribute(struct ctx *c)
{
    if (c->out->proto == 3) {
        reply_attribute(c->out, 1);
        reply_bulk_str(c->out, "key-popularity");
        reply_array(c->out, 2);
        reply_bulk_str(c->out, "key:123");
        reply_int(c->out, 90);
    }
    reply_bulk_str(c->out, "Some real reply following the attribute");
}

static void reply_a_push(struct ctx *c)
{
    if (c->out->proto < 3) {
        reply_error(c->out, "ERR RESP2 is not supported by this command");
        return;
    }
    reply_push(c->out, 2);
    reply_bulk_str(c->out, "server-cpu-usage");
    reply_int(c->out, 42);
    reply_bulk_str(c->out, "Some real reply following the push reply");
}

static void debug_protocol(struct ctx *c)
{
    bytes type = c->argv[2];
    if (bytes_is(type, "string")) reply_bulk_str(c->out, "Hello World");
    else if (bytes_is(type, "integer")) reply_int(c->out, 12345);
    else if (bytes_is(type, "double")) reply_double(c->out, 3.141);
    else if (bytes_is(type, "null")) reply_null(c->out);
    else if (bytes_is(type, "array")) reply_array(c->out, 3), reply_012(c);
    else if (bytes_is(type, "set")) reply_set(c->out, 3), reply_012(c);
    else if (bytes_is(type, "map")) reply_a_map(c);
    else if (bytes_is(type, "attrib")) reply_an_attribute(c);
    else if (bytes_is(type, "push")) reply_a_push(c);
    else if (bytes_is(type, "verbatim"))
        reply_verbatim(c->out, BYTES_LIT("This is a verbatim\nstring"), "txt");
    else if (bytes_is(type, "true")) reply_bool(c->out, true);
    else if (bytes_is(type, "false")) reply_bool(c->out, false);
    else if (bytes_is(type, "bignum"))
        reply_big_number(c->out, "1234567999999999999999999999999999999");
    else
        reply_error(
            c->out,
            "ERR Wrong protocol type name. Please use one of the following: string|integer|double|"
            "bignum|null|array|set|map|attrib|push|verbatim|true|false");
}

static void debug_error(struct ctx *c)
{
    reply_errorf(c->out, "%.*s", (int)c->argv[2].n, c->argv[2].p);
}

/* -- the server ---------------------------------------------------------------------- */

static void debug_log(struct ctx *c)
{
    log_line(&c->server->log, LOG_WARNING, "DEBUG LOG: %.*s", (int)MIN(c->argv[2].n, 900u),
             c->argv[2].p);
    reply_ok(c->out);
}

/* Our lists have no plain nodes: the value is checked as in Redis, and has no effect. */
static void debug_packed_threshold(struct ctx *c)
{
    const u64 max = (1ull << 32) - (1ull << 20);
    u64 size;
    if (num_parse_memory(c->argv[2], &size) && size <= max) reply_ok(c->out);
    else
        reply_error(c->out,
                    "ERR argument must be a memory value bigger than 1 and smaller than 4gb");
}

static void debug_segfault(struct ctx *c UNUSED)
{
    volatile char *volatile nowhere = NULL; /* a store that the compiler can neither see through nor drop */
    /* cppcheck-suppress nullPointer ; DEBUG SEGFAULT */
    *nowhere = 'x'; /* NOLINT(clang-analyzer-core.NullDereference) */
}

static void debug_panic(struct ctx *c UNUSED)
{
    crash_panic("!!! Software Failure. Press left mouse button to continue\n"
                "Guru Meditation: called by DEBUG PANIC #%s:%d", __FILE__, __LINE__);
}

static void debug_assert(struct ctx *c UNUSED) { CHECK(1 == 2); }

static void debug_aof_flush_sleep(struct ctx *c)
{
    c->server->persist.flush_sleep_us = (i64)MIN(MAX(parse_number(c->argv[2]), 0), 1e9);
    reply_ok(c->out);
}

/* -- the command --------------------------------------------------------------------- */

static void debug_help(struct ctx *c)
{
    static const char *const lines[] = {
        "AOF-FLUSH-SLEEP <microseconds>",
        "    Sleep before each write to the append-only file.",
        "ASSERT",
        "    Crash by a failed assertion.",
        "CHANGE-REPL-ID",
        "    Take a new replication ID. Replicas that connect again need a full sync.",
        "CONFIG-REWRITE-FORCE-ALL",
        "    CONFIG REWRITE with all directives, also those that have their defaults.",
        "DICT-RESIZING <0|1>",
        "    Accepted for the sake of test suites; has no effect.",
        "DIGEST",
        "    A signature of the whole dataset, equal to that of a Redis with the same data.",
        "DIGEST-VALUE <key> [<key> ...]",
        "    A signature of the value of each key.",
        "ERROR <string>",
        "    Reply with <string> as an error.",
        "FENCE HOLD [<count>]",
        "    From now on the replies of every tick wait for a fence. With <count> (at most 4)",
        "    there are so many in a tick, and a request's is that of its database, modulo <count>.",
        "FENCE LIST",
        "    The fences that replies wait for: id, and how many segments of output.",
        "FENCE OFF",
        "    New replies do not wait any more.",
        "FENCE PASS <id>",
        "    The replies that wait for a fence leave. Replies to DEBUG FENCE never wait.",
        "FENCE FAIL <id>",
        "    They become errors. What was changed stays changed.",
        "HTSTATS <db> [FULL]",
        "    How many keys a database has, and how many of them with a deadline.",
        "HTSTATS-KEY <key> [FULL]",
        "    How many elements the hash table of a value has.",
        "JMAP",
        "    Accepted for the sake of test suites; has no effect.",
        "LEAK <string>",
        "    Lose as much memory as the string takes.",
        "LISTPACK <key>",
        "    Write the size of a small value to the log.",
        "LOADAOF",
        "    Empty the databases and load the append-only file; without appendonly the one that",
        "    is there, if any.",
        "LOG <message>",
        "    Write <message> to the log.",
        "OBJECT <key>",
        "    Facts about a key and its value.",
        "OOM",
        "    Crash by asking for more memory than there is.",
        "PANIC",
        "    Crash by a panic.",
        "PAUSE-CRON <0|1>",
        "    1 stops what is done ten times a second, signals excepted.",
        "POPULATE <count> [<prefix>] [<size>]",
        "    Create <count> string keys named <prefix>:<num> (default prefix: key), with",
        "    values of <size> bytes. They are not propagated.",
        "PROTOCOL <type>",
        "    Reply with a test value of a type: string, integer, double, bignum, null,",
        "    array, set, map, attrib, push, verbatim, true, false.",
        "QUICKLIST <key> [<0|1>]",
        "    Write the size of a list to the log.",
        "QUICKLIST-PACKED-THRESHOLD <size>",
        "    Accepted for the sake of test suites; has no effect.",
        "RAFT-DIVERGE <key>",
        "    Drop a key on this member of a cluster only, for CLUSTER CHECK to find.",
        "RELOAD [MERGE] [NOFLUSH] [NOSAVE]",
        "    Save the data, empty the databases and load it again. MERGE: keys that are there",
        "    make room for those of the file. NOFLUSH: the databases are not emptied. NOSAVE:",
        "    the file is loaded as it is.",
        "REPLICATE <command> [<argument> ...]",
        "    Send a command to the replicas that is not run here. Their data will differ.",
        "REPLYBUFFER <PEAK-RESET-TIME <NEVER|RESET|milliseconds>|RESIZING <0|1>>",
        "    Accepted for the sake of test suites; has no effect.",
        "SEGFAULT",
        "    Crash with SIGSEGV.",
        "SET-ACTIVE-EXPIRE <0|1>",
        "    0 leaves expired keys where they are (nobody sees them) until they are",
        "    accessed; 1, the default, reclaims them.",
        "SET-DISABLE-DENY-SCRIPTS <0|1>",
        "    1 lets scripts call DEBUG and CLIENT.",
        "SET-SKIP-CHECKSUM-VALIDATION <0|1>",
        "    1 takes RDB files and payloads of RESTORE whatever their checksums are.",
        "SLEEP <seconds>",
        "    Stop the server for <seconds>. Decimals allowed.",
        "STRINGMATCH-LEN <pattern> <string>",
        "    Whether a string matches a glob pattern: 1 or 0.",
        "STRINGMATCH-TEST",
        "    Try random glob patterns.",
        NULL,
    };
    ctx_help(c, lines);
}

static const struct {
    const char *name;
    int min_argc, max_argc; /* max 0: any number */
    command_fn run;
} subcommands[] = {
    {"help", 2, 2, debug_help},
    {"sleep", 3, 3, debug_sleep},
    {"set-active-expire", 3, 3, debug_set_active_expire},
    {"object", 3, 3, debug_object},
    {"digest", 2, 2, debug_digest},
    {"digest-value", 2, 0, debug_digest_value},
    {"protocol", 3, 3, debug_protocol},
    {"populate", 3, 5, debug_populate},
    {"quicklist-packed-threshold", 3, 3, debug_packed_threshold},
    {"log", 3, 3, debug_log},
    {"fence", 3, 4, debug_fence},
    {"error", 3, 3, debug_error},
    {"raft-diverge", 3, 3, debug_raft_diverge},
    {"change-repl-id", 2, 2, debug_change_repl_id},
    {"segfault", 2, 0, debug_segfault},
    {"panic", 2, 0, debug_panic},
    {"assert", 2, 0, debug_assert},
    {"reload", 2, 0, debug_reload},
    {"loadaof", 2, 2, debug_loadaof},
    {"aof-flush-sleep", 3, 3, debug_aof_flush_sleep},
    {"listpack", 3, 3, debug_listpack},
    {"quicklist", 3, 4, debug_quicklist},
    {"htstats", 3, 4, debug_htstats},
    {"htstats-key", 3, 4, debug_htstats_key},
    {"stringmatch-len", 4, 4, debug_stringmatch_len},
    {"stringmatch-test", 2, 2, debug_stringmatch_test},
    {"set-disable-deny-scripts", 3, 3, debug_set_disable_deny_scripts},
    {"set-skip-checksum-validation", 3, 3, debug_set_skip_checksum_validation},
    {"pause-cron", 3, 3, debug_pause_cron},
    {"replybuffer", 4, 4, debug_replybuffer},
    {"dict-resizing", 3, 3, debug_no_effect},
    {"jmap", 2, 0, debug_no_effect},
    {"replicate", 3, 0, debug_replicate},
    {"config-rewrite-force-all", 2, 2, debug_config_rewrite_force_all},
    {"leak", 3, 3, debug_leak},
    {"oom", 2, 0, debug_oom},
};

static bool allowed(struct ctx *c)
{
    bytes who = buf_bytes(&c->server->config.enable_debug_command);
    const struct conn *conn = conn_of(c->session);
    if (bytes_is(who, "yes")) return true;
    return bytes_is(who, "local") && (conn->is_unix || conn->is_loopback);
}

void cmd_debug(struct ctx *c)
{
    if (!allowed(c)) {
        reply_error(c->out, "ERR DEBUG command not allowed. If the enable-debug-command option is "
                            "set to \"local\", you can run it from a local connection, otherwise "
                            "you need to set this option in the configuration file, and then "
                            "restart the server.");
        return;
    }
    for (u32 i = 0; i < ARRAY_LEN(subcommands); i++) {
        if (!bytes_is(c->argv[1], subcommands[i].name) || c->argc < subcommands[i].min_argc)
            continue;
        if (subcommands[i].max_argc && c->argc > subcommands[i].max_argc) continue;
        subcommands[i].run(c);
        return;
    }
    ctx_wrong_subcommand(c);
}
