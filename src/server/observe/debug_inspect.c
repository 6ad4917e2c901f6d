/* DEBUG LISTPACK, QUICKLIST, HTSTATS, HTSTATS-KEY, STRINGMATCH-…: Redis's test suite asks them about
 * structures. Ours differ, so the replies say what applies to ours. */
#include "base/glob.h"
#include "base/rand.h"
#include "server/observe/debug_parts.h"
#include "server/server.h"

/* -- values ------------------------------------------------------------------------------- */

/* False: an error was replied. */
static bool inspect_find(struct ctx *c, struct key_ref *ref)
{
    if (keyspace_find(c->ks, c->db, c->argv[2], LOOKUP_INSPECT, ref)) return true;
    reply_error(c->out, "ERR no such key");
    return false;
}

static void inspect_log(struct ctx *c, struct key_ref *ref)
{
    char key[BYTES_LEGIBLE + 4];
    log_line(&c->server->log, LOG_NOTICE, "%s %s: %llu elements in %llu bytes",
             c->eng->ops->encoding(c->eng, ref), bytes_legible(ref->key, key),
             (unsigned long long)c->eng->ops->size(c->eng, ref),
             (unsigned long long)c->eng->ops->usage(c->eng, ref, 0));
}

/* A hash with field deadlines is a `listpackex`. */
void debug_listpack(struct ctx *c)
{
    struct key_ref ref;
    if (!inspect_find(c, &ref)) return;
    if (strncmp(c->eng->ops->encoding(c->eng, &ref), "listpack", strlen("listpack")) != 0) {
        reply_error(c->out, "ERR Not a listpack encoded object.");
        return;
    }
    inspect_log(c, &ref);
    reply_simple(c->out, "Listpack structure printed on stdout");
}

void debug_quicklist(struct ctx *c)
{
    struct key_ref ref;
    if (!inspect_find(c, &ref)) return;
    if (strcmp(c->eng->ops->encoding(c->eng, &ref), "quicklist") != 0) {
        reply_error(c->out, "ERR Not a quicklist encoded object.");
        return;
    }
    inspect_log(c, &ref);
    reply_simple(c->out, "Quicklist structure printed on stdout");
}

/* -- hash tables: there is no second one, so only the number of entries is shown ------------- */

static void inspect_count(struct buf *out, u64 n)
{
    if (n)
        buf_printf(out, "Hash table 0 stats (main hash table):\n number of elements: %llu\n",
                   (unsigned long long)n);
    else buf_append_str(out, "No stats available for empty dictionaries\n");
}

void debug_htstats(struct ctx *c)
{
    struct buf text = {0};
    i64 db;
    if (!ctx_int(c, c->argv[2], &db)) return;
    if (db < 0 || db >= (i64)c->eng->databases) {
        reply_error(c->out, "ERR Out of range database");
        return;
    }
    buf_append_str(&text, "[Dictionary HT]\n");
    inspect_count(&text, c->eng->ops->count(c->eng, (u32)db));
    buf_append_str(&text, "[Expires HT]\n");
    inspect_count(&text, c->eng->ops->expires(c->eng, (u32)db));
    reply_verbatim(c->out, buf_bytes(&text), "txt");
    buf_release(&text);
}

void debug_htstats_key(struct ctx *c)
{
    struct key_ref ref;
    struct buf text = {0};
    if (!inspect_find(c, &ref)) return;
    const char *encoding = c->eng->ops->encoding(c->eng, &ref);
    if (strcmp(encoding, "hashtable") != 0 && strcmp(encoding, "skiplist") != 0) {
        reply_error(c->out,
                    "ERR The value stored at the specified key is not represented using an hash table");
        return;
    }
    inspect_count(&text, c->eng->ops->size(c->eng, &ref));
    reply_verbatim(c->out, buf_bytes(&text), "txt");
    buf_release(&text);
}

/* -- patterns ----------------------------------------------------------------------------------- */

void debug_stringmatch_len(struct ctx *c) { reply_int(c->out, glob_match(c->argv[2], c->argv[3], false)); }

#define STRINGMATCH_ROUNDS 100000
#define STRINGMATCH_LEN 32

/* Of characters that are special in patterns, and others. */
static bytes stringmatch_text(struct ctx *c, char text[STRINGMATCH_LEN])
{
    size_t n = rand_below(&c->rng, STRINGMATCH_LEN + 1);
    for (size_t i = 0; i < n; i++)
        text[i] = rand_below(&c->rng, 2) ? "*?[]^-\\a"[rand_below(&c->rng, 8)]
                                         : (char)rand_below(&c->rng, 256);
    return bytes_of(text, n);
}

void debug_stringmatch_test(struct ctx *c)
{
    char pattern[STRINGMATCH_LEN], text[STRINGMATCH_LEN];
    u32 matches = 0;
    for (u32 i = 0; i < STRINGMATCH_ROUNDS; i++)
        matches += glob_match(stringmatch_text(c, pattern), stringmatch_text(c, text), i & 1);
    log_line(&c->server->log, LOG_NOTICE, "DEBUG STRINGMATCH-TEST: %u of %u random patterns matched", matches,
             STRINGMATCH_ROUNDS);
    reply_simple(c->out, "Apparently Redis did not crash: test passed");
}
