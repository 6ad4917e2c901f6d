/* Operations on directives. Their table is config_table.c; reading files and the command line is in
 * config_load.c, CONFIG in config_cmd.c. */
#include "config/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/num.h"
#include "config/config_codec.h"

#define HZ_MAX 500
#define REPL_BACKLOG_MIN (16 * 1024)

/* -- helpers -------------------------------------------------------------------------------- */

bool config_fail(struct buf *why, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(why, fmt, ap);
    va_end(ap);
    return false;
}

void config_text(struct buf *b, bytes value)
{
    struct buf fresh = {0}; /* the value may point into *b itself */
    buf_append_bytes(&fresh, value);
    buf_append_char(&fresh, '\0');
    fresh.n--;
    buf_release(b);
    *b = fresh;
}

void config_print_memory(struct buf *out, u64 n)
{
    static const struct {
        u64 size;
        const char *unit;
    } units[] = {{1 << 30, "gb"}, {1 << 20, "mb"}, {1 << 10, "kb"}, {1, ""}};
    size_t i = 0;
    while (n == 0 ? i < 3 : n % units[i].size != 0) i++;
    buf_printf(out, "%llu%s", (unsigned long long)(n / units[i].size), units[i].unit);
}

bool config_slurp(int fd, struct buf *out)
{
    for (;;) {
        ssize_t n = read(fd, buf_reserve(out, 16 * 1024), 16 * 1024);
        if (n > 0) out->n += (size_t)n;
        else if (n == 0) return true;
        else if (errno != EINTR) return false;
    }
}

/* -- setting ----------------------------------------------------------------------------------- */

static bool set_bool(void *at, bytes v, struct buf *why)
{
    bool yes = bytes_is(v, "yes");
    if (!yes && !bytes_is(v, "no")) return config_fail(why, "argument must be 'yes' or 'no'");
    *(bool *)at = yes;
    return true;
}

static bool parse_octal(bytes v, i64 *out)
{
    char text[32], *end;
    if (v.n >= sizeof text) return false;
    memcpy(text, v.p, v.n);
    text[v.n] = '\0';
    errno = 0;
    *out = strtoll(text, &end, 8);
    return !errno && end == text + v.n;
}

static bool parse_percent(bytes v, i64 *out)
{
    i64 n;
    if (v.n < 2 || v.p[v.n - 1] != '%') return false;
    if (!num_parse_i64(bytes_of(v.p, v.n - 1), &n) || n < 0) return false;
    *out = -n;
    return true;
}

/* From 2^63 on the result is below the minimum, as in Redis. */
static bool parse_memory(bytes v, i64 *out)
{
    u64 n;
    if (!num_parse_memory(v, &n)) return false;
    *out = (i64)n;
    return true;
}

static bool config_parse_number(const struct directive *d, bytes v, i64 *out, struct buf *why)
{
    switch (d->kind) {
    case CONFIG_MEMORY:
        return parse_memory(v, out) || config_fail(why, "argument must be a memory value");
    case CONFIG_PERCENT:
        return parse_percent(v, out) || parse_memory(v, out) ||
               config_fail(why, "argument must be a memory or percent value");
    case CONFIG_OCTAL:
        return parse_octal(v, out) ||
               config_fail(why, "argument couldn't be parsed as an octal number");
    default:
        return num_parse_i64(v, out) ||
               config_fail(why, "argument couldn't be parsed into an integer");
    }
}

static bool set_number(const struct directive *d, void *at, bytes v, struct buf *why)
{
    i64 n = 0;
    if (!config_parse_number(d, v, &n, why)) return false;
    if ((n < d->min || n > d->max) && !(d->flags & CONFIG_UNSIGNED)) {
        if (d->kind == CONFIG_PERCENT)
            return config_fail(why, "percentage argument must be less or equal to %lld",
                               -(long long)d->min);
        return config_fail(why, d->kind == CONFIG_OCTAL
                                    ? "argument must be between %llo and %llo inclusive"
                                    : "argument must be between %lld and %lld inclusive",
                           (long long)d->min, (long long)d->max);
    }
    *(i64 *)at = n;
    return true;
}

static bool set_text(const struct directive *d, void *at, bytes v, struct buf *why)
{
    const char *bad = d->check ? d->check(v) : NULL;
    if (bad) return config_fail(why, "%s", bad);
    config_text(at, v);
    return true;
}

const struct config_word *config_word_find(const struct config_word *list, bytes word,
                                           struct buf *why)
{
    for (const struct config_word *w = list; w->name; w++)
        if (bytes_is(word, w->name)) return w;
    buf_append_str(why, "argument(s) must be one of the following: ");
    for (const struct config_word *w = list; w->name; w++)
        buf_printf(why, "%s%s", w == list ? "" : ", ", w->name);
    return NULL;
}

static bool set_enum(const struct directive *d, void *at, bytes v, struct buf *why)
{
    const struct config_word *w = config_word_find(d->words, v, why);
    if (w) *(u32 *)at = w->value;
    return w;
}

static bool set_choice(const struct directive *d, void *at, bytes v, struct buf *why)
{
    char words[128], *save = NULL;
    struct config_word list[16] = {{NULL, 0}};
    u32 n = 0;
    size_t length = strlen(d->choices);
    CHECK(length < sizeof words);
    memcpy(words, d->choices, length + 1);
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        CHECK(n + 1 < ARRAY_LEN(list));
        list[n++].name = w;
    }
    const struct config_word *found = config_word_find(list, v, why);
    if (found) config_text(at, bytes_str(found->name));
    return found;
}

static bool set_value(struct config *c, const struct directive *d, u32 n, const bytes *w,
                      struct buf *why)
{
    void *at = (char *)c + d->at;
    switch (d->kind) {
    case CONFIG_BOOL: return set_bool(at, w[0], why);
    case CONFIG_TEXT: return set_text(d, at, w[0], why);
    case CONFIG_CHOICE: return set_choice(d, at, w[0], why);
    case CONFIG_ENUM: return set_enum(d, at, w[0], why);
    case CONFIG_SPECIAL: return d->codec->set(c, d, n, w, why);
    default: return set_number(d, at, w[0], why);
    }
}

/* One argument with all the words, separated by single spaces. */
static bool set_split(struct config *c, const struct directive *d, bytes line, struct buf *why)
{
    u32 n = 0;
    bytes *words = mem_alloc((line.n + 1) * sizeof *words);
    const char *p = line.p, *end = line.p + line.n;
    while (line.n && p <= end) {
        const char *space = p < end ? memchr(p, ' ', (size_t)(end - p)) : NULL;
        if (!space) space = end;
        words[n++] = bytes_of(p, (size_t)(space - p));
        p = space + 1;
    }
    bool ok = set_value(c, d, n, words, why);
    mem_free(words);
    return ok;
}

bool config_set(struct config *c, const struct directive *d, u32 n, const bytes *words,
                struct buf *why)
{
    if (!(d->flags & CONFIG_MULTI) && n != 1) return config_fail(why, "wrong number of arguments");
    if ((d->flags & CONFIG_FIXED) && !bytes_is(words[0], d->value)) {
        const char *quote = *d->value ? "'" : "";
        return config_fail(why, "not supported by this build: only %s%s%s is accepted", quote,
                           *d->value ? d->value : "an empty value", quote);
    }
    if ((d->flags & CONFIG_MULTI) && n == 1) return set_split(c, d, words[0], why);
    return set_value(c, d, n, words, why);
}

/* -- showing ----------------------------------------------------------------------------------- */

static const char *word_of(const struct config_word *list, u32 value)
{
    for (; list->name; list++)
        if (list->value == value) return list->name;
    return "";
}

/* in_file: as it is written in a file, rather than as CONFIG GET shows it. */
static void config_append_value(const struct config *c, const struct directive *d, bool in_file,
                                struct buf *out)
{
    const void *at = (const char *)c + d->at;
    i64 n = d->kind <= CONFIG_OCTAL && d->kind != CONFIG_BOOL ? *(const i64 *)at : 0;
    switch (d->kind) {
    case CONFIG_BOOL: buf_append_str(out, *(const bool *)at ? "yes" : "no"); break;
    case CONFIG_INT: buf_printf(out, "%lld", (long long)n); break;
    case CONFIG_OCTAL: buf_printf(out, "%llo", (unsigned long long)n); break;
    case CONFIG_ENUM: buf_append_str(out, word_of(d->words, *(const u32 *)at)); break;
    case CONFIG_CHOICE: buf_append_bytes(out, buf_bytes(at)); break;
    case CONFIG_SPECIAL: d->codec->get(c, d, out); break;
    case CONFIG_TEXT:
        if (in_file) buf_append_quoted(out, buf_bytes(at));
        else buf_append_bytes(out, buf_bytes(at));
        break;
    case CONFIG_MEMORY:
    case CONFIG_PERCENT:
        if (n < 0 && d->kind == CONFIG_PERCENT) buf_printf(out, "%lld%%", -(long long)n);
        else if (in_file) config_print_memory(out, (u64)n);
        else buf_printf(out, "%llu", (unsigned long long)n);
        break;
    }
}

void config_get(const struct config *c, const struct directive *d, struct buf *out)
{
    config_append_value(c, d, false, out);
}

void config_lines(const struct config *c, const struct directive *d, struct buf *out)
{
    if (d->kind == CONFIG_SPECIAL && d->codec->lines) {
        d->codec->lines(c, d, out);
        return;
    }
    buf_printf(out, "%s ", d->name);
    config_append_value(c, d, true, out);
    buf_append_char(out, '\n');
}

/* -- the whole --------------------------------------------------------------------------------- */

void config_settle(struct config *c)
{
    c->hz = MIN(MAX(c->hz, 1), HZ_MAX);
    c->repl_backlog_size = MAX(c->repl_backlog_size, REPL_BACKLOG_MIN);
}

/* Defaults of the memory engine that don't apply to the other, whose data is on disk already. */
void config_settle_engine(struct config *c)
{
    if (c->engine != ENGINE_ROCKSDB) return;
    if (!c->appendonly_given) c->appendonly = false;
    if (!c->save_given) c->save.n = 0;
}

static bool config_sites_agree(const struct config *c, struct buf *why)
{
    struct config_site_peer p;
    if (!c->site_id && c->site_peers.n)
        return config_fail(why, "site-peer is for a server that is a site itself: it needs site-id");
    if (!c->site_id) return true;
    if (c->cluster_enabled)
        return config_fail(why, "site-id and cluster-enabled exclude each other: a cluster can't be a site");
    if (c->site_drop_metadata)
        return config_fail(why, "site-drop-metadata is for a server that is no site any more");
    for (u32 i = 0; config_site_peer(c, i, &p); i++)
        if (p.gid == c->site_id) return config_fail(why, "site-peer %d is this site itself", p.gid);
    return true;
}

bool config_agrees(const struct config *c, struct buf *why)
{
    if (c->engine == ENGINE_MEMORY && c->import_rdb.n)
        return config_fail(why, "import-rdb is for engine rocksdb: the memory engine loads dbfilename");
    return config_sites_agree(c, why);
}

void config_init(struct config *c)
{
    struct buf why = {0};
    *c = (struct config){0};
    config_text(&c->file, BYTES_LIT(""));
    for (u32 i = 0; i < config_count(); i++) {
        bytes value = bytes_str(config_at(i)->value);
        CHECK(config_set(c, config_at(i), 1, &value, &why));
    }
    buf_release(&why);
}

static bool is_text(const struct directive *d)
{
    return d->kind == CONFIG_TEXT || d->kind == CONFIG_CHOICE;
}

void config_release(struct config *c)
{
    for (u32 i = 0; i < config_count(); i++)
        if (is_text(config_at(i))) buf_release((struct buf *)(void *)((char *)c + config_at(i)->at));
    for (u32 i = 0; i < c->rename_count; i++) {
        buf_release(&c->renames[i].from);
        buf_release(&c->renames[i].to);
    }
    buf_release(&c->bind);
    buf_release(&c->dir);
    buf_release(&c->replicaof);
    buf_release(&c->site_peers);
    buf_release(&c->expiry_stream.name);
    buf_release(&c->file);
    mem_free(c->renames);
    for (u32 i = 0; i < c->user_count; i++) {
        for (u32 k = 0; k < c->users[i].n; k++) buf_release(&c->users[i].words[k]);
        mem_free(c->users[i].words);
    }
    mem_free(c->users);
    mem_free(c->save.v);
    mem_free(c->percentiles.v);
    *c = (struct config){0};
}

static void warn_of_rocksdb(const struct config *c, const struct log *log)
{
    if (c->maxmemory)
        log_line(log, LOG_WARNING, "WARNING maxmemory has no effect with engine rocksdb: the data "
                                   "is on disk, nothing is evicted, and the rocksdb-* directives "
                                   "bound the caches");
    if (c->appendonly)
        log_line(log, LOG_NOTICE, "appendonly has no effect with engine rocksdb: its data is on disk, with a "
                                  "write-ahead log of its own that appendfsync governs");
}

bool config_wants_aof(const struct config *c) { return c->appendonly && c->engine == ENGINE_MEMORY; }

void config_warn(const struct config *c, const struct log *log)
{
    if (c->engine == ENGINE_ROCKSDB) warn_of_rocksdb(c, log);
}
