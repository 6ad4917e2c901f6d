/* CLIENT TRACKING, CACHING, TRACKINGINFO, GETREDIR. */
#include <stdlib.h>

#include "command/commands.h"
#include "server/server.h"
#include "server/client/tracking.h"

size_t tracking_flags(const struct conn *c, char *out)
{
    const struct tracker *t = c->tracker;
    size_t n = 0;
    if (!t) return 0;
    out[n++] = 't';
    if (t->broken) out[n++] = 'R';
    if (t->options & TRACK_BCAST) out[n++] = 'B';
    return n;
}

long long tracking_redirect(const struct conn *c)
{
    return c->tracker ? (long long)c->tracker->redirect : -1;
}

/* -- CLIENT TRACKING --------------------------------------------------------------------------------- */

struct wish {
    u32 options;
    struct conn *target;
    i64 redirect;
    bytes *prefixes; /* as given; they point into argv */
    u32 prefix_count;
};

static bool parse_redirect(struct ctx *c, bytes arg, struct wish *w)
{
    if (w->redirect) {
        reply_error(c->out, "ERR A client can only redirect to a single other client");
        return false;
    }
    if (!ctx_int(c, arg, &w->redirect)) return false;
    struct conn *x = c->server->net.conns;
    while (x && (x->closing || x->session.id != (u64)w->redirect)) x = x->next;
    w->target = x;
    if (!x) reply_error(c->out, "ERR The client ID you want redirect to does not exist");
    return x != NULL;
}

static u32 option(bytes word)
{
    if (bytes_is(word, "bcast")) return TRACK_BCAST;
    if (bytes_is(word, "optin")) return TRACK_OPTIN;
    if (bytes_is(word, "optout")) return TRACK_OPTOUT;
    if (bytes_is(word, "noloop")) return TRACK_NOLOOP;
    return 0;
}

static bool parse(struct ctx *c, struct wish *w)
{
    for (int i = 3; i < c->argc; i++) {
        bool more = i + 1 < c->argc;
        if (more && bytes_is(c->argv[i], "redirect")) {
            if (!parse_redirect(c, c->argv[++i], w)) return false;
        } else if (more && bytes_is(c->argv[i], "prefix")) {
            w->prefixes[w->prefix_count++] = c->argv[++i];
        } else if (option(c->argv[i])) {
            w->options |= option(c->argv[i]);
        } else {
            ctx_syntax_error(c);
            return false;
        }
    }
    return true;
}

/* Why these options conflict with each other, or with those in force; NULL: they don't. */
static const char *conflict(const struct wish *w, const struct tracker *t)
{
    u32 modes = TRACK_OPTIN | TRACK_OPTOUT;
    if (!(w->options & TRACK_BCAST) && w->prefix_count)
        return "ERR PREFIX option requires BCAST mode to be enabled";
    if (t && (t->options ^ w->options) & TRACK_BCAST)
        return "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then "
               "re-enabling it with a different mode.";
    if (w->options & TRACK_BCAST && w->options & modes)
        return "ERR OPTIN and OPTOUT are not compatible with BCAST";
    if ((w->options & modes) == modes) return "ERR You can't specify both OPTIN mode and OPTOUT mode";
    if (t && ((w->options | t->options) & modes) == modes)
        return "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then "
               "re-enabling it with a different mode.";
    return NULL;
}

/* A prefix; `given` is its index in the request, or NOT_GIVEN for one that is in force. */
struct candidate {
    bytes name;
    u32 given;
};

#define NOT_GIVEN UINT32_MAX

static int prefix_by_name(const void *a, const void *b)
{
    return bytes_cmp(((const struct candidate *)a)->name, ((const struct candidate *)b)->name);
}

static bool begins_with(bytes s, bytes start)
{
    return s.n >= start.n && (start.n == 0 || memcmp(s.p, start.p, start.n) == 0);
}

/* The first given prefix that overlaps with another; NOT_GIVEN: none does. When sorted, the prefixes that
 * begin with another one follow it directly: `open` are those that the next may begin with, each with the
 * first given among them. */
static u32 first_overlap(struct candidate *v, u32 n)
{
    struct candidate *open = mem_alloc((n + 1) * sizeof *open);
    u32 depth = 0, first = NOT_GIVEN;
    qsort(v, n, sizeof *v, prefix_by_name);
    for (u32 i = 0; i < n; i++) {
        while (depth && !begins_with(v[i].name, open[depth - 1].name)) depth--;
        u32 least = depth ? MIN(open[depth - 1].given, v[i].given) : v[i].given;
        if (depth) first = MIN(first, least);
        open[depth++] = (struct candidate){v[i].name, least};
    }
    mem_free(open);
    return first;
}

static bool overlap(bytes a, bytes b) { return begins_with(a, b) || begins_with(b, a); }

/* Names the prefix it overlaps with: one that is in force, or else the next one that was given. */
static void refuse_overlap(struct ctx *c, const struct wish *w, u32 which, const struct candidate *v, u32 n)
{
    bytes name = w->prefixes[which], other = {0};
    bool in_force = false;
    for (u32 i = 0; i < n && !in_force; i++) {
        in_force = v[i].given == NOT_GIVEN && overlap(name, v[i].name);
        if (in_force) other = v[i].name;
    }
    u32 next = which + 1;
    while (!in_force && !overlap(name, w->prefixes[next])) next++;
    if (!in_force) other = w->prefixes[next];
    reply_errorf(c->out, "ERR Prefix '%.*s' overlaps with %s prefix '%.*s'. Prefixes for a single client "
                         "must not overlap.", (int)MIN(name.n, 128u), name.p,
                 in_force ? "an existing" : "another provided", (int)MIN(other.n, 128u), other.p);
}

static bool prefixes_fit(struct ctx *c, const struct wish *w, const struct tracker *t)
{
    u32 in_force = t ? t->prefix_count : 0, n = 0;
    struct candidate *v = mem_alloc((w->prefix_count + in_force + 1) * sizeof *v);
    for (u32 i = 0; i < w->prefix_count; i++) v[n++] = (struct candidate){w->prefixes[i], i};
    for (u32 i = 0; i < in_force; i++) v[n++] = (struct candidate){tracking_prefix(t, i), NOT_GIVEN};
    u32 which = first_overlap(v, n);
    if (which != NOT_GIVEN) refuse_overlap(c, w, which, v, n);
    mem_free(v);
    return which == NOT_GIVEN;
}

static void tracking_turn_on(struct ctx *c, const struct wish *w)
{
    struct conn *x = conn_of(c->session);
    const char *why = conflict(w, x->tracker);
    if (why) {
        reply_error(c->out, why);
        return;
    }
    if (w->prefix_count && !prefixes_fit(c, w, x->tracker)) return;
    struct tracker *t = tracking_on(c->server, x, w->options, w->target);
    for (u32 i = 0; i < w->prefix_count; i++) tracking_add_prefix(&c->server->tracking, t, w->prefixes[i]);
    if (w->options & TRACK_BCAST && !w->prefix_count)
        tracking_add_prefix(&c->server->tracking, t, (bytes){0});
    reply_ok(c->out);
}

void cmd_client_tracking(struct ctx *c)
{
    struct wish w = {.prefixes = mem_alloc((size_t)c->argc * sizeof(bytes))};
    bool on = bytes_is(c->argv[2], "on");
    if (!parse(c, &w)) {
        /* an error was replied */
    } else if (on) {
        tracking_turn_on(c, &w);
    } else if (bytes_is(c->argv[2], "off")) {
        tracking_off(c->server, conn_of(c->session));
        reply_ok(c->out);
    } else {
        ctx_syntax_error(c);
    }
    mem_free(w.prefixes);
}

/* -- the others -------------------------------------------------------------------------------------- */

void cmd_client_caching(struct ctx *c)
{
    struct tracker *t = conn_of(c->session)->tracker;
    bool yes = bytes_is(c->argv[2], "yes"), no = bytes_is(c->argv[2], "no");
    if (!t) {
        reply_error(c->out, "ERR CLIENT CACHING can be called only when the client is in tracking mode with "
                            "OPTIN or OPTOUT mode enabled");
    } else if (yes && !(t->options & TRACK_OPTIN)) {
        reply_error(c->out, "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
    } else if (no && !(t->options & TRACK_OPTOUT)) {
        reply_error(c->out, "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");
    } else if (!yes && !no) {
        ctx_syntax_error(c);
    } else {
        t->caching = true;
        reply_ok(c->out);
    }
}

void cmd_client_getredir(struct ctx *c) { reply_int(c->out, tracking_redirect(conn_of(c->session))); }

static void info_flags(struct reply *out, const struct tracker *t)
{
    const char *flags[8];
    size_t n = 0;
    flags[n++] = t ? "on" : "off";
    if (t && t->options & TRACK_BCAST) flags[n++] = "bcast";
    if (t && t->options & TRACK_OPTIN) flags[n++] = "optin";
    if (t && t->options & TRACK_OPTIN && t->caching) flags[n++] = "caching-yes";
    if (t && t->options & TRACK_OPTOUT) flags[n++] = "optout";
    if (t && t->options & TRACK_OPTOUT && t->caching) flags[n++] = "caching-no";
    if (t && t->options & TRACK_NOLOOP) flags[n++] = "noloop";
    if (t && t->broken) flags[n++] = "broken_redirect";
    reply_set(out, n);
    for (size_t i = 0; i < n; i++) reply_bulk_str(out, flags[i]);
}

static void info_prefixes(struct reply *out, const struct tracker *t)
{
    u32 n = t ? t->prefix_count : 0;
    struct candidate *v = mem_alloc((n + 1) * sizeof *v);
    for (u32 i = 0; i < n; i++) v[i] = (struct candidate){tracking_prefix(t, i), i};
    qsort(v, n, sizeof *v, prefix_by_name);
    reply_array(out, n);
    for (u32 i = 0; i < n; i++) reply_bulk(out, v[i].name);
    mem_free(v);
}

void cmd_client_trackinginfo(struct ctx *c)
{
    const struct conn *x = conn_of(c->session);
    reply_map(c->out, 3);
    reply_bulk_str(c->out, "flags");
    info_flags(c->out, x->tracker);
    reply_bulk_str(c->out, "redirect");
    reply_int(c->out, tracking_redirect(x));
    reply_bulk_str(c->out, "prefixes");
    info_prefixes(c->out, x->tracker);
}
