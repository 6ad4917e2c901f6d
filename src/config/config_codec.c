/* See config_codec.h. The texts are Redis's. */
#include "config/config_codec.h"

#include <errno.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/num.h"

#define BIND_MAX 16

static void *field(const struct config *c, const struct directive *d)
{
    return (char *)(void *)(uintptr_t)c + d->at;
}

static void codec_join(struct buf *out, u32 n, const bytes *words)
{
    for (u32 i = 0; i < n; i++) {
        if (i) buf_append_char(out, ' ');
        buf_append_bytes(out, words[i]);
    }
}

static void set_joined(struct buf *to, u32 n, const bytes *words)
{
    struct buf all = {0};
    codec_join(&all, n, words);
    config_text(to, buf_bytes(&all));
    buf_release(&all);
}

static void get_text(const struct config *c, const struct directive *d, struct buf *out)
{
    const struct buf *text = field(c, d);
    buf_append_bytes(out, buf_bytes(text));
}

/* -- bind ---------------------------------------------------------------------------- */

static bool set_words(struct config *c, const struct directive *d, u32 n, const bytes *w,
                      struct buf *why)
{
    if (n > BIND_MAX) return config_fail(why, "Too many bind addresses specified.");
    set_joined(field(c, d), n, w);
    return true;
}

static void words_lines(const struct config *c, const struct directive *d, struct buf *out)
{
    const struct buf *text = field(c, d);
    buf_printf(out, "%s %s\n", d->name, text->n ? text->p : "\"\"");
}

const struct config_codec codec_words = {set_words, get_text, words_lines};

/* -- dir: setting it changes the directory, so that later relative paths and CONFIG GET agree --- */

static bool set_dir(struct config *c, const struct directive *d UNUSED, u32 n UNUSED,
                    const bytes *w,
                    struct buf *why)
{
    struct buf path = {0};
    char here[4096];
    config_text(&path, w[0]);
    /* "." is the default and must work everywhere. */
    bool ok = bytes_is(w[0], ".") || chdir(path.p) == 0;
    if (ok) config_text(&c->dir, bytes_str(getcwd(here, sizeof here) ? here : path.p));
    else config_fail(why, "%s", strerror(errno));
    buf_release(&path);
    return ok;
}

static void dir_lines(const struct config *c, const struct directive *d, struct buf *out)
{
    buf_printf(out, "%s ", d->name);
    buf_append_quoted(out, buf_bytes(&c->dir));
    buf_append_char(out, '\n');
}

const struct config_codec codec_dir = {set_dir, get_text, dir_lines};

/* -- client-output-buffer-limit ----------------------------------------------------------- */

static const char *const class_names[CONN_CLASSES] = {"normal", "slave", "pubsub"};

static int class_of(bytes name)
{
    if (bytes_is(name, "replica")) return CONN_REPLICA;
    for (int i = 0; i < CONN_CLASSES; i++)
        if (bytes_is(name, class_names[i])) return i;
    return -1;
}

static bool set_output_limit(struct config *c, const struct directive *d UNUSED, u32 n,
                             const bytes *w,
                             struct buf *why)
{
    struct output_limit limit[CONN_CLASSES];
    memcpy(limit, c->output_limit, sizeof limit);
    if (n % 4) return config_fail(why, "Wrong number of arguments in buffer limit configuration.");
    for (u32 i = 0; i < n; i += 4) {
        int class = class_of(w[i]);
        struct output_limit l;
        i64 seconds;
        if (class < 0)
            return config_fail(why, "Invalid client class specified in buffer limit "
                                    "configuration.");
        if (!num_parse_memory(w[i + 1], &l.hard) || !num_parse_memory(w[i + 2], &l.soft) ||
            !num_parse_i64(w[i + 3], &seconds) || seconds < 0 || seconds > INT32_MAX)
            return config_fail(why, "Error in hard, soft or soft_seconds setting in buffer limit "
                                    "configuration.");
        l.soft_seconds = (u32)seconds;
        limit[class] = l;
    }
    memcpy(c->output_limit, limit, sizeof limit);
    return true;
}

static void get_output_limit(const struct config *c, const struct directive *d UNUSED,
                             struct buf *out)
{
    for (int i = 0; i < CONN_CLASSES; i++) {
        const struct output_limit *l = &c->output_limit[i];
        buf_printf(out, "%s%s %llu %llu %u", i ? " " : "", class_names[i],
                   (unsigned long long)l->hard, (unsigned long long)l->soft, l->soft_seconds);
    }
}

static void output_limit_lines(const struct config *c, const struct directive *d, struct buf *out)
{
    for (int i = 0; i < CONN_CLASSES; i++) {
        const struct output_limit *l = &c->output_limit[i];
        buf_printf(out, "%s %s ", d->name, i == CONN_REPLICA ? "replica" : class_names[i]);
        config_print_memory(out, l->hard);
        buf_append_char(out, ' ');
        config_print_memory(out, l->soft);
        buf_printf(out, " %u\n", l->soft_seconds);
    }
}

const struct config_codec codec_output_limit = {set_output_limit, get_output_limit,
                                                output_limit_lines};

/* -- save ------------------------------------------------------------------------------------- */

static bool parse_save(u32 n, const bytes *w, struct save_point *out)
{
    if (n % 2) return false;
    for (u32 i = 0; i < n; i += 2) {
        struct save_point *p = &out[i / 2];
        if (!num_parse_i64(w[i], &p->seconds)) return false;
        if (!num_parse_i64(w[i + 1], &p->changes)) return false;
        if (p->seconds < 1 || p->changes < 0) return false;
        if (p->seconds > INT32_MAX || p->changes > INT32_MAX) return false;
    }
    return true;
}

static bool set_save(struct config *c, const struct directive *d UNUSED, u32 n, const bytes *w,
                     struct buf *why)
{
    struct save_point *v = mem_alloc((n / 2 + 1) * sizeof *v);
    if (!parse_save(n, w, v)) {
        mem_free(v);
        return config_fail(why, "Invalid save parameters");
    }
    bool adds = c->reading && c->save_given && n;
    u32 had = adds ? c->save.n : 0;
    c->save_given |= c->reading;
    c->save.n = had + n / 2;
    c->save.v = mem_realloc(c->save.v, (c->save.n + 1) * sizeof *v);
    memcpy(c->save.v + had, v, n / 2 * sizeof *v);
    mem_free(v);
    return true;
}

static void get_save(const struct config *c, const struct directive *d UNUSED, struct buf *out)
{
    for (u32 i = 0; i < c->save.n; i++)
        buf_printf(out, "%s%lld %lld", i ? " " : "", (long long)c->save.v[i].seconds,
                   (long long)c->save.v[i].changes);
}

static void save_lines(const struct config *c, const struct directive *d, struct buf *out)
{
    for (u32 i = 0; i < c->save.n; i++)
        buf_printf(out, "%s %lld %lld\n", d->name, (long long)c->save.v[i].seconds,
                   (long long)c->save.v[i].changes);
    if (c->save.n == 0) buf_printf(out, "%s \"\"\n", d->name);
}

const struct config_codec codec_save = {set_save, get_save, save_lines};

/* -- latency-tracking-info-percentiles --------------------------------------------------------- */

static bool set_percentiles(struct config *c, const struct directive *d UNUSED, u32 n,
                            const bytes *w,
                            struct buf *why)
{
    const char *bad = NULL;
    double *v = mem_alloc((n + 1) * sizeof *v);
    for (u32 i = 0; i < n && !bad; i++) {
        if (!num_parse_double(w[i], &v[i]))
            bad = "Invalid latency-tracking-info-percentiles parameters";
        else if (v[i] < 0 || v[i] > 100)
            bad = "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]";
    }
    if (bad) {
        mem_free(v);
        return config_fail(why, "%s", bad);
    }
    mem_free(c->percentiles.v);
    c->percentiles.v = v;
    c->percentiles.n = n;
    return true;
}

/* Six decimals without trailing zeros. */
static void get_percentiles(const struct config *c, const struct directive *d UNUSED,
                            struct buf *out)
{
    for (u32 i = 0; i < c->percentiles.n; i++) {
        if (i) buf_append_char(out, ' ');
        buf_printf(out, "%.6f", c->percentiles.v[i]);
        while (out->p[out->n - 1] == '0') out->n--;
        if (out->p[out->n - 1] == '.') out->n--;
    }
}

static void percentile_lines(const struct config *c, const struct directive *d, struct buf *out)
{
    buf_printf(out, "%s ", d->name);
    if (c->percentiles.n) get_percentiles(c, d, out);
    else buf_append_str(out, "\"\"");
    buf_append_char(out, '\n');
}

const struct config_codec codec_percentiles = {set_percentiles, get_percentiles, percentile_lines};

/* -- oom-score-adj-values ---------------------------------------------------------------------- */

static bool set_oom(struct config *c, const struct directive *d UNUSED, u32 n, const bytes *w,
                    struct buf *why)
{
    i64 v[3];
    if (n != 3) return config_fail(why, "wrong number of arguments");
    for (u32 i = 0; i < 3; i++)
        if (!num_parse_i64(w[i], &v[i]) || v[i] < -2000 || v[i] > 2000)
            return config_fail(why, "Invalid oom-score-adj-values, elements must be between -2000 "
                                    "and 2000.");
    memcpy(c->oom_score_adj_values, v, sizeof v);
    return true;
}

static void get_oom(const struct config *c, const struct directive *d UNUSED, struct buf *out)
{
    const i64 *v = c->oom_score_adj_values;
    buf_printf(out, "%lld %lld %lld", (long long)v[0], (long long)v[1], (long long)v[2]);
}

const struct config_codec codec_oom = {set_oom, get_oom, NULL};

/* -- shutdown-on-sigint, shutdown-on-sigterm --------------------------------------------------- */

static const struct config_word shutdown_words[] = {
    {"default", 0}, {"save", SHUTDOWN_SAVE}, {"nosave", SHUTDOWN_NOSAVE},
    {"now", SHUTDOWN_NOW}, {"force", SHUTDOWN_FORCE}, {NULL, 0},
};

static bool set_shutdown(struct config *c, const struct directive *d, u32 n, const bytes *w,
                         struct buf *why)
{
    u32 flags = 0;
    bytes none = BYTES_LIT("");
    if (n == 0) n = 1, w = &none; /* an empty list of words */
    for (u32 i = 0; i < n; i++) {
        const struct config_word *word = config_word_find(shutdown_words, w[i], why);
        if (!word) return false;
        flags |= word->value;
    }
    if ((flags & SHUTDOWN_SAVE) && (flags & SHUTDOWN_NOSAVE))
        return config_fail(why, "shutdown options SAVE and NOSAVE can't be used simultaneously");
    *(u32 *)field(c, d) = flags;
    return true;
}

static void get_shutdown(const struct config *c, const struct directive *d, struct buf *out)
{
    u32 flags = *(u32 *)field(c, d);
    size_t start = out->n;
    for (const struct config_word *w = shutdown_words; w->name; w++)
        if (flags & w->value) buf_printf(out, "%s%s", out->n > start ? " " : "", w->name);
    if (!flags) buf_append_str(out, "default");
}

const struct config_codec codec_shutdown = {set_shutdown, get_shutdown, NULL};

/* -- notify-keyspace-events -------------------------------------------------------------------- */

/* In the order they are shown. */
static const struct {
    char letter;
    u32 bit;
} event_letters[] = {
    {'g', NOTIFY_GENERIC}, {'$', NOTIFY_STRING}, {'l', NOTIFY_LIST}, {'s', NOTIFY_SET},
    {'h', NOTIFY_HASH}, {'z', NOTIFY_ZSET}, {'x', NOTIFY_EXPIRED}, {'e', NOTIFY_EVICTED},
    {'t', NOTIFY_STREAM}, {'d', CONFIG_EVENTS_MODULE}, {'n', NOTIFY_NEW},
    {'K', CONFIG_EVENTS_KEYSPACE}, {'E', CONFIG_EVENTS_KEYEVENT}, {'m', NOTIFY_MISS},
};

#define EVENTS_ALL                                                                             \
    (NOTIFY_GENERIC | NOTIFY_STRING | NOTIFY_LIST | NOTIFY_SET | NOTIFY_HASH | NOTIFY_ZSET |   \
     NOTIFY_EXPIRED | NOTIFY_EVICTED | NOTIFY_STREAM | CONFIG_EVENTS_MODULE)

static u32 event_bit(char letter)
{
    if (letter == 'A') return EVENTS_ALL;
    for (size_t i = 0; i < ARRAY_LEN(event_letters); i++)
        if (event_letters[i].letter == letter) return event_letters[i].bit;
    return 0;
}

static bool set_events(struct config *c, const struct directive *d UNUSED, u32 n UNUSED,
                       const bytes *w,
                       struct buf *why)
{
    u32 flags = 0;
    for (size_t i = 0; i < w[0].n; i++) {
        u32 bit = event_bit(w[0].p[i]);
        if (!bit) return config_fail(why, "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.");
        flags |= bit;
    }
    c->notify_keyspace_events = flags;
    return true;
}

static void get_events(const struct config *c, const struct directive *d UNUSED, struct buf *out)
{
    u32 flags = c->notify_keyspace_events;
    if ((flags & EVENTS_ALL) == EVENTS_ALL) {
        buf_append_char(out, 'A');
        flags &= ~(u32)EVENTS_ALL;
    }
    for (size_t i = 0; i < ARRAY_LEN(event_letters); i++)
        if (flags & event_letters[i].bit) buf_append_char(out, event_letters[i].letter);
}

static void event_lines(const struct config *c, const struct directive *d, struct buf *out)
{
    buf_printf(out, "%s \"", d->name);
    get_events(c, d, out);
    buf_append_str(out, "\"\n");
}

const struct config_codec codec_events = {set_events, get_events, event_lines};

/* -- replicaof --------------------------------------------------------------------------------- */

static bool set_replicaof(struct config *c, const struct directive *d UNUSED, u32 n, const bytes *w,
                          struct buf *why)
{
    i64 port;
    bool is_default = n == 0 && !c->reading;
    if (n != 2 && !is_default) return config_fail(why, "wrong number of arguments");
    if (n == 2 && bytes_is(w[0], "no") && bytes_is(w[1], "one")) n = 0;
    if (n && (!num_parse_i64(w[1], &port) || port < 0 || port > 65535))
        return config_fail(why, "Invalid master port");
    set_joined(&c->replicaof, n, w);
    return true;
}

static void replicaof_lines(const struct config *c, const struct directive *d, struct buf *out)
{
    if (c->replicaof.n) buf_printf(out, "%s %s\n", d->name, c->replicaof.p);
}

const struct config_codec codec_replicaof = {set_replicaof, get_text, replicaof_lines};

/* -- site-peer ---------------------------------------------------------------------------------- */

/* The words of a text that were joined by single spaces; false: no more. */
static bool codec_next_word(bytes *text, bytes *word)
{
    if (!text->n) return false;
    const char *blank = memchr(text->p, ' ', text->n);
    *word = bytes_of(text->p, blank ? (size_t)(blank - text->p) : text->n);
    size_t used = word->n + (blank != NULL);
    *text = bytes_of(text->p + used, text->n - used);
    return true;
}

bool config_site_peer(const struct config *c, u32 i, struct config_site_peer *out)
{
    bytes text = buf_bytes(&c->site_peers), gid, host, port;
    i64 n, p;
    do {
        if (!codec_next_word(&text, &gid) || !codec_next_word(&text, &host) || !codec_next_word(&text, &port))
            return false;
    } while (i--);
    CHECK(num_parse_i64(gid, &n) && num_parse_i64(port, &p));
    out->gid = (u8)n;
    out->port = (int)p;
    snprintf(out->host, sizeof out->host, "%.*s", (int)host.n, host.p);
    return true;
}

void config_set_site_peer(struct config *c, const struct config_site_peer *p)
{
    struct buf text = {0};
    struct config_site_peer old;
    bool placed = p->port == 0;
    for (u32 i = 0; config_site_peer(c, i, &old); i++) {
        if (old.gid == p->gid && placed) continue;
        if (old.gid == p->gid) old = *p;
        placed |= old.gid == p->gid;
        buf_printf(&text, "%s%d %s %d", text.n ? " " : "", old.gid, old.host, old.port);
    }
    if (!placed) buf_printf(&text, "%s%d %s %d", text.n ? " " : "", p->gid, p->host, p->port);
    config_text(&c->site_peers, buf_bytes(&text));
    buf_release(&text);
}

static bool set_site_peers(struct config *c, const struct directive *d UNUSED, u32 n, const bytes *w,
                           struct buf *why)
{
    i64 gid, port;
    if (n == 0 || (n == 1 && w[0].n == 0)) {
        config_text(&c->site_peers, BYTES_LIT(""));
        return true;
    }
    if (n % 3) return config_fail(why, "a site-peer is a site's id, a host and a port");
    for (u32 i = 0; i < n; i += 3) {
        if (!num_parse_i64(w[i], &gid) || gid < 1 || gid > 255)
            return config_fail(why, "the id of a site is a number from 1 to 255");
        if (!w[i + 1].n || w[i + 1].n > 255 || memchr(w[i + 1].p, ' ', w[i + 1].n) ||
            memchr(w[i + 1].p, '\0', w[i + 1].n))
            return config_fail(why, "Invalid host of a site");
        if (!num_parse_i64(w[i + 2], &port) || port < 1 || port > 65535)
            return config_fail(why, "Invalid port of a site");
    }
    if (!c->reading) config_text(&c->site_peers, BYTES_LIT(""));
    for (u32 i = 0; i < n; i += 3) {
        struct config_site_peer p;
        num_parse_i64(w[i], &gid);
        num_parse_i64(w[i + 2], &port);
        p.gid = (u8)gid;
        p.port = (int)port;
        snprintf(p.host, sizeof p.host, "%.*s", (int)w[i + 1].n, w[i + 1].p);
        config_set_site_peer(c, &p);
    }
    return true;
}

static void get_site_peers(const struct config *c, const struct directive *d UNUSED, struct buf *out)
{
    buf_append_bytes(out, buf_bytes(&c->site_peers));
}

static void site_peer_lines(const struct config *c, const struct directive *d, struct buf *out)
{
    struct config_site_peer p;
    for (u32 i = 0; config_site_peer(c, i, &p); i++)
        buf_printf(out, "%s %d %s %d\n", d->name, p.gid, p.host, p.port);
    if (!c->site_peers.n) buf_printf(out, "%s \"\"\n", d->name);
}

const struct config_codec codec_site_peers = {set_site_peers, get_site_peers, site_peer_lines};

/* -- expiry-stream ----------------------------------------------------------------------------- */

static bool set_expiry_stream(struct config *c, const struct directive *d UNUSED, u32 n, const bytes *w,
                              struct buf *why)
{
    i64 maxlen = 0;
    bool none = n == 0 || (n == 1 && w[0].n == 0);
    if (!none && n != 1 && (n != 3 || !bytes_is(w[1], "maxlen")))
        return config_fail(why, "expiry-stream is a name, or a name, MAXLEN and a number");
    if (n == 3 && (!num_parse_i64(w[2], &maxlen) || maxlen < 1))
        return config_fail(why, "MAXLEN must be a positive number");
    config_text(&c->expiry_stream.name, none ? BYTES_LIT("") : w[0]);
    c->expiry_stream.maxlen = maxlen;
    return true;
}

static void print_expiry_stream(const struct config *c, struct buf *out, bool quoted)
{
    if (quoted) buf_append_quoted(out, buf_bytes(&c->expiry_stream.name));
    else buf_append_bytes(out, buf_bytes(&c->expiry_stream.name));
    if (c->expiry_stream.maxlen) buf_printf(out, " MAXLEN %lld", (long long)c->expiry_stream.maxlen);
}

static void get_expiry_stream(const struct config *c, const struct directive *d UNUSED, struct buf *out)
{
    print_expiry_stream(c, out, false);
}

static void expiry_stream_lines(const struct config *c, const struct directive *d, struct buf *out)
{
    buf_printf(out, "%s ", d->name);
    print_expiry_stream(c, out, true);
    buf_append_char(out, '\n');
}

const struct config_codec codec_expiry_stream = {set_expiry_stream, get_expiry_stream, expiry_stream_lines};
