/* PEEROF and SITE. */
#include <stdio.h>

#include "base/clock.h"
#include "command/commands.h"
#include "peers/peers_parts.h"

struct peers *peers_of(struct ctx *c)
{
    struct peers *p = c->server->peers;
    if (!p && c->server->config.site_id)
        reply_error(c->out, "ERR This server is a replica of its site: say it to the site");
    else if (!p) reply_error(c->out, "ERR This server is no site: it was started without site-id");
    return p;
}

static bool site_cmd_gid(struct ctx *c, bytes arg, u8 *gid)
{
    i64 n;
    if (!num_parse_i64(arg, &n) || n < 1 || n >= SITE_GIDS) {
        reply_error(c->out, "ERR The id of a site is a number from 1 to 255");
        return false;
    }
    *gid = (u8)n;
    return true;
}

/* Another site than this one. */
static bool site_cmd_other(struct ctx *c, bytes arg, u8 *gid)
{
    if (!site_cmd_gid(c, arg, gid)) return false;
    if (*gid != c->server->config.site_id) return true;
    reply_errorf(c->out, "ERR %d is this site itself", *gid);
    return false;
}

/* -- members ------------------------------------------------------------------------------------------- */

/* Admits a site that is not a member yet. False: an error was replied. */
static bool site_cmd_admit(struct ctx *c, struct peers *p, u8 gid)
{
    const struct site *s = peers_site(p);
    if (s->fenced[gid]) {
        reply_errorf(c->out, "EVICTED Site %d was evicted: it has to come back empty, under a new site-id",
                     gid);
        return false;
    }
    if (s->members[gid].in) return true;
    const char *deny = peers_deny(p);
    if (deny) {
        reply_error(c->out, deny);
        return false;
    }
    region_site_admit(c->region, gid);
    log_line(&p->server->log, LOG_NOTICE, "Site %d was admitted", gid);
    return true;
}

/* A site without any effects joins the group of a site with a lower id when it gets that one as a peer: if
 * two new sites become peers of each other, one of them must be the first. */
static bool site_cmd_joins(struct ctx *c, struct peers *p, u8 gid)
{
    struct site *s = peers_site(p);
    if (!s->members[s->gid].in) return true;
    if (site_clock_sum(&s->clock) || gid > s->gid) return false;
    region_site_unfound(c->region);
    log_line(&p->server->log, LOG_NOTICE, "Site %d joins the group of site %d", s->gid, gid);
    return true;
}

void cmd_site_join(struct ctx *c)
{
    struct peers *p = peers_of(c);
    u8 gid;
    if (p && site_cmd_other(c, c->argv[2], &gid) && site_cmd_admit(c, p, gid)) reply_ok(c->out);
}

void cmd_site_evict(struct ctx *c)
{
    struct peers *p = peers_of(c);
    u8 gid;
    if (!p || !site_cmd_other(c, c->argv[2], &gid)) return;
    const struct site *s = peers_site(p);
    const char *deny = peers_deny(p);
    if (deny) {
        reply_error(c->out, deny);
    } else if (!s->members[gid].in) {
        reply_errorf(c->out, "ERR Site %d is no member", gid);
    } else {
        peers_evict(p, gid);
        log_line(&p->server->log, LOG_WARNING, "Site %d is being evicted", gid);
        reply_ok(c->out);
    }
}

void cmd_site_trust(struct ctx *c)
{
    struct peers *p = peers_of(c);
    if (!p) return;
    const char *doubt = region_site_doubt(c->region);
    if (!doubt || peers_site(p)->replaced_by) {
        reply_error(c->out, doubt ? doubt : "ERR This site is not in doubt");
        return;
    }
    region_site_trust(c->region);
    log_line(&p->server->log, LOG_WARNING, "SITE TRUST: this site takes writes without further clocks");
    reply_ok(c->out);
}

/* -- PEEROF -------------------------------------------------------------------------------------------- */

/* A replica asks its peers when it has taken the place of its site. */
void cmd_peerof(struct ctx *c)
{
    struct peers *p = c->server->peers;
    struct config *config = &c->server->config;
    struct config_site_peer to = {0};
    bytes host = c->argv[2];
    i64 port;
    if (!config->site_id) (void)!peers_of(c);
    if (!config->site_id || !site_cmd_other(c, c->argv[1], &to.gid)) return;
    if (bytes_is(host, "no") && bytes_is(c->argv[3], "one")) {
        config_set_site_peer(config, &to);
        if (p) peer_remove(p, to.gid);
        reply_ok(c->out);
        return;
    }
    if (!num_parse_i64(c->argv[3], &port) || port < 1 || port > 65535) {
        reply_error(c->out, "ERR Invalid port of a site");
        return;
    }
    if (!host.n || host.n >= sizeof to.host || memchr(host.p, '\0', host.n) || memchr(host.p, ' ', host.n)) {
        reply_error(c->out, "ERR Invalid host of a site");
        return;
    }
    if (p && !site_cmd_joins(c, p, to.gid) && !site_cmd_admit(c, p, to.gid)) return;
    to.port = (int)port;
    snprintf(to.host, sizeof to.host, "%.*s", (int)host.n, host.p);
    config_set_site_peer(config, &to);
    if (p) peer_add(p, to.gid, to.host, to.port);
    reply_ok(c->out);
}

/* -- SITE KEY ------------------------------------------------------------------------------------------ */

static const char *site_type_name(enum value_type t)
{
    static const char *const names[] = {[TYPE_NONE] = "none", [TYPE_STRING] = "string", [TYPE_HASH] = "hash",
                                        [TYPE_SET] = "set",   [TYPE_LIST] = "list",     [TYPE_ZSET] = "zset"};
    return t < ARRAY_LEN(names) && names[t] ? names[t] : "other";
}

static void site_key_text(const struct site_key *k, struct buf *b)
{
    const struct site_claim *top = site_key_claim(k);
    const struct site_deadline *ttl = site_key_ttl(k);
    buf_printf(b, "type:%s\r\n", site_type_name(site_key_type(k)));
    buf_printf(b, "owner:%d\r\n", top ? top->dot.gid : 0);
    buf_printf(b, "deadline_ms:%lld\r\n", (long long)site_key_deadline(k));
    for (u32 i = 0; i < k->n_claims; i++) {
        const struct site_claim *c = &k->claims[i];
        buf_printf(b, "write:gid=%d,seq=%llu,time_ms=%llu,type=%s,wins=%s\r\n", c->dot.gid, (ull)c->dot.seq,
                   (ull)(c->stamp >> 16), site_type_name(c->type), c == top ? "yes" : "no");
    }
    for (u32 i = 0; i < k->ttl.n_deadlines; i++) {
        const struct site_deadline *d = &k->ttl.deadlines[i];
        buf_printf(b, "ttl:gid=%d,seq=%llu,at_ms=%lld,of=%s,wins=%s\r\n", d->dot.gid, (ull)d->dot.seq,
                   (long long)d->at_ms,
                   d->kept        ? "kept"
                   : d->birth.gid ? "set"
                   : d->at_ms     ? "expire"
                                  : "persist",
                   d == ttl ? "yes" : "no");
    }
    for (u32 i = 0; i < k->ttl.n_marks; i++)
        buf_printf(b, "expired:gid=%d,seq=%llu\r\n", k->ttl.marks[i].dot.gid, (ull)k->ttl.marks[i].dot.seq);
    for (u32 i = 0; i < k->string.n_writes; i++) {
        const struct site_write *w = &k->string.writes[i];
        buf_printf(b, "value:gid=%d,seq=%llu,time_ms=%llu,wins=%s\r\n", w->dot.gid, (ull)w->dot.seq,
                   (ull)(w->stamp >> 16), w == site_cell_winner(&k->string) ? "yes" : "no");
    }
    for (u32 i = 0; i < k->string.n_incs; i++)
        buf_printf(b, "increments:gid=%d,up_to=%llu,seen_up_to=%llu\r\n", k->string.incs[i].gid,
                   (ull)k->string.incs[i].hi, (ull)k->string.incs[i].lo);
    for (u32 t = TYPE_HASH; t < SITE_TYPES; t++)
        if (k->cells[t].rows)
            buf_printf(b, "elements:type=%s,stored=%llu,shown=%llu\r\n", site_type_name(t),
                       (ull)k->cells[t].rows, (ull)k->cells[t].live);
    buf_printf(b, "garbage:%s\r\n", site_key_tidy(k) ? "no" : "yes");
}

void cmd_site_key(struct ctx *c)
{
    struct peers *p = peers_of(c);
    struct site_key k = {0};
    struct buf text = {0};
    if (!p) return;
    site_key_load(&k, c->eng, c->db, c->argv[2]);
    if (site_key_empty(&k)) {
        reply_null(c->out);
    } else {
        site_key_text(&k, &text);
        reply_verbatim(c->out, buf_bytes(&text), "txt");
    }
    site_key_release(&k);
    buf_release(&text);
}

/* -- the rest ------------------------------------------------------------------------------------------ */

void cmd_site_info(struct ctx *c)
{
    struct buf text = {0};
    if (!peers_of(c)) return;
    peers_info(c->server, &text);
    reply_verbatim(c->out, buf_bytes(&text), "txt");
    buf_release(&text);
}

void cmd_site_help(struct ctx *c)
{
    static const char *const lines[] = {
        "EVICT <gid>",
        "    Make a site that is lost no member any more: garbage waits for it no longer.",
        "INFO",
        "    Members, links, clocks, lag and garbage of this site.",
        "JOIN <gid>",
        "    Admit a new site. PEEROF does it as well.",
        "KEY <key>",
        "    What this site knows of a key: who wrote it, what won, deadlines.",
        "TRUST",
        "    Take writes again after SITEDOUBT without the clocks that are still missing. Only if no other",
        "    site has writes of this one that it has lost: sites diverge otherwise.",
        "WAIT <sites> <milliseconds>",
        "    Wait until so many sites have what this connection has written.",
        NULL};
    ctx_help(c, lines);
}
