/* Sessions point to their user: when a user is removed its connections are closed, and a change is made in
 * place. Whether an unauthenticated client is the default user at once (`open`) is kept where requests are
 * parsed (net) and admitted (region). */
#include "server/client/users.h"

#include "base/alloc.h"
#include "base/err.h"
#include "exec/multi.h"
#include "server/client/block.h"
#include "server/client/client.h"
#include "config/config_codec.h"

static bool all_channels_by_default(const struct config *c)
{
    return bytes_is(buf_bytes(&c->acl_pubsub_default), "allchannels");
}

/* Call it after any change of the default user. */
static void note_default(struct server *s)
{
    const struct acl_user *u = acl_default(&s->acl);
    s->node.open = s->net.config.open = u->on && u->nopass;
}

/* -- sessions ------------------------------------------------------------------------------------- */

void users_greet(struct server *s, struct session *session)
{
    session->user = acl_default(&s->acl);
    session->authenticated = session->user->on && session->user->nopass;
}

/* The CLIENT INFO line of a client whose command is denied, with that command as the last one. */
static struct buf describe_running(struct server *s, struct conn *c)
{
    const struct net_request *q = net_running(&s->net);
    struct buf out = {0};
    if (q && q->conn == c) {
        const bytes *argv = s->net.tick.args + q->argv_at;
        const struct command *cmd = node_find(&s->node, argv[0]), *sub = NULL;
        if (cmd && cmd->sub_count && q->argc > 1) sub = command_find_sub(cmd, argv[1]);
        if (cmd) c->last_command = sub ? sub->name : cmd->name;
    }
    client_describe(c, &out);
    return out;
}

void users_denied(void *server, const struct request *q, enum acl_denial denial, enum acl_context where,
                  bytes what)
{
    struct server *s = server;
    acl_log_add(&s->acl_log, (u64)s->config.acllog_max_len, s->now_ms, denial, where, what,
                buf_bytes(&q->session->user->name), describe_running(s, conn_of(q->session)));
}

static void users_note_failure(struct ctx *c, bytes name)
{
    struct server *s = c->server;
    s->auth_failures++;
    acl_log_add(&s->acl_log, (u64)s->config.acllog_max_len, s->now_ms, ACL_NO_AUTH,
                multi_open(c->session) ? ACL_MULTI : ACL_TOPLEVEL, c->argv[0], name,
                describe_running(s, conn_of(c->session)));
}

void users_next_try(struct server *s)
{
    s->auth_failures /= 2;
    net_resume(&s->net, HOLD_AUTH);
}

/* An unknown name takes as long as a known one, so that timing does not reveal the users' names. */
bool users_log_in(struct ctx *c, bytes name, bytes password)
{
    struct acl_user *u = acl_find(&c->server->acl, name);
    u8 ignored[SHA256_BYTES];
    if (!u) sha256(password, ignored);
    if (u && acl_user_knows(u, password)) {
        c->session->user = u;
        c->session->authenticated = true;
        return true;
    }
    users_note_failure(c, name);
    reply_error(c->out, "WRONGPASS invalid username-password pair or user is disabled.");
    return false;
}

/* -- effects of changes on connections ------------------------------------------------------- */

/* Its user is gone. */
static void end_session(struct server *s, struct conn *c, const struct session *self)
{
    c->session.user = acl_default(&s->acl);
    c->session.authenticated = false;
    if (&c->session == self) c->session.close_after_reply = true;
    else conn_close(c);
}

static bool still_hears(void *user, enum pubsub_kind kind, bytes name)
{
    return acl_hears(user, name, kind == PUBSUB_PATTERN);
}

/* These commands have neither keys nor channels. */
static bool may_still(const struct acl_user *u, bytes command)
{
    int at;
    return acl_check(u, command_find_full(command), 1, &command, &at) == ACL_ALLOWED;
}

/* Whether the user may continue what the connection does since a command that was allowed then. If not, the
 * connection is closed, which is all the client is told. */
static bool may_go_on(struct conn *c, struct acl_user *u)
{
    if (c->session.monitor && !may_still(u, BYTES_LIT("monitor"))) return false;
    bool psyncs = c->class == CONN_REPLICA && !c->peer_link;
    if (psyncs && !may_still(u, BYTES_LIT("psync"))) return false;
    if (c->peer_link && !may_still(u, BYTES_LIT("site.hello"))) return false;
    if (c->tracker && !may_still(u, BYTES_LIT("client|tracking"))) return false;
    return pubsub_each(c, still_hears, u);
}

/* After a change of the user's rules. */
static void end_revoked(struct server *s, struct acl_user *u, const struct session *self)
{
    if (!u->restricted) return;
    for (struct conn *c = s->net.conns; c; c = c->next) {
        if (c->closing || c->session.user != u) continue;
        if (may_go_on(c, u)) block_recheck(s, c);
        else if (&c->session == self) c->session.close_after_reply = true;
        else conn_close(c);
    }
}

void users_remove(struct server *s, struct acl_user *u, struct session *self)
{
    for (struct conn *c = s->net.conns; c; c = c->next)
        if (c->session.user == u) end_session(s, c, self);
    acl_remove(&s->acl, u);
}

static bool apply_rules(const struct acl *a, struct acl_user *u, u32 n, const bytes *words, struct buf *why)
{
    u32 count;
    const char *bad = NULL;
    bytes *rules = acl_join_rules(n, words, &count);
    if (!rules) {
        return config_fail(why, "Unmatched parenthesis in acl selector starting at '%.*s'.",
                           (int)MIN(words[count].n, 128u), words[count].p);
    }
    for (u32 i = 0; i < count && !bad; i++) {
        if (!(bad = acl_user_apply(a, u, rules[i]))) continue;
        config_fail(why, "Error in ACL SETUSER modifier '%.*s': %s", (int)MIN(rules[i].n, 1024u), rules[i].p,
                    bad);
    }
    mem_free(rules);
    return !bad;
}

bool users_change(struct server *s, struct session *self, bytes name, u32 n, const bytes *words,
                  struct buf *why)
{
    struct acl_user *u = acl_find(&s->acl, name), *next = acl_user_new(&s->acl, name);
    if (u) acl_user_copy(next, u);
    bool ok = apply_rules(&s->acl, next, n, words, why);
    if (ok) {
        bool known = u;
        if (!known) u = acl_add(&s->acl, name);
        acl_user_copy(u, next);
        if (known) end_revoked(s, u, self);
        note_default(s);
    }
    acl_user_free(next);
    return ok;
}

void users_replace(struct server *s, struct session *self, struct acl *fresh)
{
    if (!acl_default(fresh)) acl_make_default(fresh, acl_add(fresh, BYTES_LIT(ACL_DEFAULT_NAME)));
    for (u32 i = s->acl.count; i--;) {
        struct acl_user *u = s->acl.users[i], *next = acl_find(fresh, buf_bytes(&u->name));
        if (next) {
            acl_user_copy(u, next);
            end_revoked(s, u, self);
        } else {
            users_remove(s, u, self);
        }
    }
    for (u32 i = 0; i < fresh->count; i++) {
        bytes name = buf_bytes(&fresh->users[i]->name);
        if (!acl_find(&s->acl, name)) acl_user_copy(acl_add(&s->acl, name), fresh->users[i]);
    }
    note_default(s);
}

/* -- the configuration -------------------------------------------------------------------------------- */

static bool declared(const struct config *c, bytes name)
{
    for (u32 i = 0; i < c->user_count; i++)
        if (bytes_eq(buf_bytes(&c->users[i].words[0]), name)) return true;
    return false;
}

/* Whether the rules are valid, tried on a temporary user. */
static bool rules_fit(const struct config *c, u32 n, const bytes *rules, struct buf *why)
{
    struct acl none = {.all_channels = all_channels_by_default(c)};
    struct acl_user *u = acl_user_new(&none, BYTES_LIT(""));
    u32 count;
    const char *bad = NULL;
    bytes *joined = acl_join_rules(n, rules, &count);
    if (!joined)
        config_fail(why, "Error in user declaration '%.*s': Unmatched parenthesis", (int)rules[count].n,
                    rules[count].p);
    for (u32 i = 0; joined && i < count && !bad; i++) {
        if (!(bad = acl_user_apply(&none, u, joined[i]))) continue;
        config_fail(why, "Error in user declaration '%.*s': %s", (int)joined[i].n, joined[i].p, bad);
    }
    bool fit = joined && !bad;
    mem_free(joined);
    acl_user_free(u);
    return fit;
}

bool users_declare(struct config *c, u32 n, const bytes *words, struct buf *why)
{
    if (!acl_name_fits(words[0])) return config_fail(why, "Spaces not allowed in ACL usernames");
    if (declared(c, words[0]))
        return config_fail(why, "Error in user declaration '%.*s': Duplicate user found. A user can only be "
                                "defined once in config files", (int)words[0].n, words[0].p);
    if (!rules_fit(c, n - 1, words + 1, why)) return false;
    c->users = mem_realloc(c->users, (c->user_count + 1) * sizeof *c->users);
    struct config_user *u = &c->users[c->user_count++];
    *u = (struct config_user){.n = n, .words = mem_zalloc(n * sizeof *u->words)};
    for (u32 i = 0; i < n; i++) config_text(&u->words[i], words[i]);
    return true;
}

static bool add_declared(struct server *s, const struct config_user *line)
{
    bytes name = buf_bytes(&line->words[0]);
    struct acl_user *u = acl_find(&s->acl, name);
    struct buf why = {0};
    bytes *rules = mem_alloc(line->n * sizeof *rules);
    for (u32 i = 1; i < line->n; i++) rules[i - 1] = buf_bytes(&line->words[i]);
    if (u) CHECK(!acl_user_apply(&s->acl, u, BYTES_LIT("reset"))); /* it can only be the default user */
    else u = acl_add(&s->acl, name);
    bool ok = apply_rules(&s->acl, u, line->n - 1, rules, &why);
    if (!ok) log_line(&s->log, LOG_WARNING, "User '%s': %.*s", line->words[0].p, (int)why.n, why.p);
    else if (!u->on)
        log_line(&s->log, LOG_NOTICE, "The user '%s' is disabled (there is no 'on' modifier in the user "
                                      "description). Make sure this is not a configuration error.",
                 line->words[0].p);
    mem_free(rules);
    buf_release(&why);
    return ok;
}

static bool load_at_start(struct server *s)
{
    struct buf why = {0};
    bool ok = users_load(s, NULL, &why);
    if (!ok)
        log_line(&s->log, LOG_WARNING, "Aborting startup because of ACL errors: %.*s", (int)why.n, why.p);
    buf_release(&why);
    return ok;
}

void users_init(struct server *s)
{
    acl_init(&s->acl);
    s->node.on_denied = users_denied;
}

bool users_start(struct server *s)
{
    if (s->config.aclfile.n && s->config.user_count) {
        log_line(&s->log, LOG_WARNING, "There are `user` lines in the configuration, and an aclfile: which "
                                       "of them counts would be a guess. Use either, not both.");
        return false;
    }
    if (s->config.aclfile.n) return load_at_start(s);
    for (u32 i = 0; i < s->config.user_count; i++)
        if (!add_declared(s, &s->config.users[i])) return false;
    note_default(s);
    return true;
}

void users_release(struct server *s)
{
    acl_release(&s->acl);
    acl_log_trim(&s->acl_log, 0);
    buf_release(&s->password);
}

void users_apply_config(struct server *s)
{
    bytes password = buf_bytes(&s->config.requirepass);
    s->acl.all_channels = all_channels_by_default(&s->config);
    if (!bytes_eq(password, buf_bytes(&s->password))) {
        acl_user_set_password(acl_default(&s->acl), password);
        config_text(&s->password, password);
    }
    acl_log_trim(&s->acl_log, (u64)s->config.acllog_max_len);
    note_default(s);
}
