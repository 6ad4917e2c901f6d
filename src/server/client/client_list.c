/* CLIENT LIST and CLIENT KILL: selecting connections. */
#include "base/alloc.h"
#include "command/commands.h"
#include "server/client/client.h"

struct client_filter {
    u64 id;
    bool by_id, by_type, by_addr, by_laddr, by_user, skip_me;
    enum conn_class class;
    bool by_link; /* TYPE master: the connection to our primary, which is not one of net's (link_as_client) */
    bytes addr, laddr;
    const struct acl_user *user;
    i64 age_s; /* at least this old */
};

static bool matches(const struct client_filter *f, struct conn *c)
{
    if (f->by_id && c->session.id != f->id) return false;
    if (f->by_type && (f->by_link || c->class != f->class)) return false;
    if (f->by_addr && !bytes_eq(bytes_str(c->peer), f->addr)) return false;
    if (f->by_laddr && !bytes_eq(bytes_str(c->local), f->laddr)) return false;
    if (f->by_user && c->session.user != f->user) return false;
    return f->age_s == 0 || client_age_s(c) >= f->age_s;
}

static bool parse_class(struct ctx *c, bytes word, struct client_filter *f)
{
    f->by_type = true;
    if (bytes_is(word, "normal")) f->class = CONN_NORMAL;
    else if (bytes_is(word, "replica") || bytes_is(word, "slave")) f->class = CONN_REPLICA;
    else if (bytes_is(word, "pubsub")) f->class = CONN_PUBSUB;
    else if (bytes_is(word, "master")) f->by_link = true;
    else {
        reply_errorf(c->out, "ERR Unknown client type '%.*s'", (int)MIN(word.n, 128u), word.p);
        return false;
    }
    return true;
}

/* The connection to our primary. */
static bool matches_link(const struct client_filter *f, const struct link_client *x)
{
    if (f->by_id && x->id != f->id) return false;
    if (f->by_type && !f->by_link) return false;
    if (f->by_addr && !bytes_eq(bytes_str(x->peer), f->addr)) return false;
    if (f->by_laddr && !bytes_eq(bytes_str(x->local), f->laddr)) return false;
    return !f->by_user && x->age_s >= f->age_s;
}

/* All connections, oldest first, which is the order of their ids: net's list has the newest first. The caller
 * frees the array. */
static struct conn **by_age(const struct net *n)
{
    struct conn **v = mem_alloc(n->count * sizeof *v);
    u32 at = n->count;
    for (struct conn *x = n->conns; x; x = x->next) v[--at] = x;
    return v;
}

static struct conn *find_id(struct conn *const *v, u32 n, u64 id)
{
    u32 low = 0, high = n;
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        if (v[mid]->session.id < id) low = mid + 1;
        else high = mid;
    }
    return low < n && v[low]->session.id == id ? v[low] : NULL;
}

static void describe_line(struct conn *x, struct buf *out)
{
    if (x->closing) return;
    client_describe(x, out);
    buf_append_char(out, '\n');
}

static void describe_link(struct ctx *c, const struct link_client *x, struct buf *out)
{
    link_describe(c->server, x, out);
    buf_append_char(out, '\n');
}

/* Those that match, by age. */
static void list_matching(struct ctx *c, const struct client_filter *f, struct conn *const *v, u32 n,
                          struct buf *out)
{
    struct link_client link;
    bool linked = link_as_client(c->server, &link) && matches_link(f, &link);
    for (u32 i = 0; i < n; i++) {
        if (linked && link.id < v[i]->session.id) {
            describe_link(c, &link, out);
            linked = false;
        }
        if (matches(f, v[i])) describe_line(v[i], out);
    }
    if (linked) describe_link(c, &link, out);
}

/* CLIENT LIST ID: as often and in the order they are given. */
static bool list_ids(struct ctx *c, struct conn *const *v, u32 n, struct buf *out)
{
    struct link_client link;
    bool linked = link_as_client(c->server, &link);
    for (int i = 3; i < c->argc; i++) {
        i64 id;
        if (!num_parse_i64(c->argv[i], &id)) {
            reply_error(c->out, "ERR Invalid client ID");
            return false;
        }
        struct conn *x = find_id(v, n, (u64)id);
        if (x) describe_line(x, out);
        else if (linked && link.id == (u64)id) describe_link(c, &link, out);
    }
    return true;
}

void cmd_client_list(struct ctx *c)
{
    struct client_filter f = {0};
    bool by_id = c->argc > 3 && bytes_is(c->argv[2], "id");
    if (c->argc == 4 && bytes_is(c->argv[2], "type")) {
        if (!parse_class(c, c->argv[3], &f)) return;
    } else if (c->argc != 2 && !by_id) {
        ctx_syntax_error(c);
        return;
    }
    struct buf text = {0};
    u32 n = c->server->net.count;
    struct conn **v = by_age(&c->server->net);
    client_note_running(c);
    if (!by_id) list_matching(c, &f, v, n, &text);
    if (!by_id || list_ids(c, v, n, &text)) reply_verbatim(c->out, buf_bytes(&text), "txt");
    mem_free(v);
    buf_release(&text);
}

/* False: an error was replied. */
static bool parse_kill_option(struct ctx *c, bytes name, bytes value, struct client_filter *f)
{
    i64 id;
    if (bytes_is(name, "id")) {
        if (!num_parse_i64(value, &id) || id < 1) {
            reply_error(c->out, "ERR client-id should be greater than 0");
            return false;
        }
        f->by_id = true;
        f->id = (u64)id;
    } else if (bytes_is(name, "maxage")) {
        if (!num_parse_i64(value, &f->age_s) || f->age_s < 1) {
            reply_error(c->out, num_parse_i64(value, &f->age_s)
                                    ? "ERR maxage should be greater than 0"
                                    : "ERR maxage is not an integer or out of range");
            return false;
        }
    } else if (bytes_is(name, "type")) {
        return parse_class(c, value, f);
    } else if (bytes_is(name, "addr")) {
        f->by_addr = true;
        f->addr = value;
    } else if (bytes_is(name, "laddr")) {
        f->by_laddr = true;
        f->laddr = value;
    } else if (bytes_is(name, "user")) {
        if (!(f->user = acl_find(&c->server->acl, value))) {
            reply_errorf(c->out, "ERR No such user '%.*s'", (int)MIN(value.n, 128u), value.p);
            return false;
        }
        f->by_user = true;
    } else if (bytes_is(name, "skipme") && (bytes_is(value, "yes") || bytes_is(value, "no"))) {
        f->skip_me = bytes_is(value, "yes");
    } else {
        ctx_syntax_error(c);
        return false;
    }
    return true;
}

static bool parse_kill(struct ctx *c, struct client_filter *f)
{
    f->skip_me = true;
    for (int i = 2; i < c->argc; i += 2) {
        if (i + 1 >= c->argc) {
            ctx_syntax_error(c);
            return false;
        }
        if (!parse_kill_option(c, c->argv[i], c->argv[i + 1], f)) return false;
    }
    return true;
}

void cmd_client_kill(struct ctx *c)
{
    struct client_filter f = {0};
    struct link_client link;
    bool old_style = c->argc == 3;
    if (old_style) {
        f.by_addr = true;
        f.addr = c->argv[2];
    } else if (!parse_kill(c, &f)) {
        return;
    }
    i64 killed = 0;
    for (struct conn *x = c->server->net.conns; x; x = x->next) {
        bool me = &x->session == c->session;
        if (x->closing || !matches(&f, x) || (me && f.skip_me)) continue;
        killed++;
        if (me) x->session.close_after_reply = true;
        else conn_close(x);
    }
    if (link_as_client(c->server, &link) && matches_link(&f, &link)) {
        link_break(c->server);
        killed++;
    }
    if (!old_style) reply_int(c->out, killed);
    else if (killed) reply_ok(c->out);
    else reply_error(c->out, "ERR No such client");
}
