/* ACL. */
#include "base/alloc.h"
#include "command/commands.h"
#include "server/client/users.h"

#define LOG_SHOWN 10         /* entries that ACL LOG shows by default */
#define GENPASS_BITS 256
#define GENPASS_MAX 4096

/* -- users ----------------------------------------------------------------------------------------- */

/* Rules contain passwords, which MONITOR and the slow log must not show. The texts stay where they are. */
static void acl_redact(struct ctx *c)
{
    for (int i = 2; i < c->argc; i++) c->argv[i] = BYTES_LIT("(redacted)");
}

void cmd_acl_setuser(struct ctx *c)
{
    struct buf why = {0};
    if (!acl_name_fits(c->argv[2]))
        reply_error(c->out, "ERR Usernames can't contain spaces or null characters");
    else if (users_change(c->server, c->session, c->argv[2], (u32)c->argc - 3, c->argv + 3, &why))
        reply_ok(c->out);
    else reply_errorf(c->out, "ERR %.*s", (int)why.n, why.p);
    buf_release(&why);
    acl_redact(c);
}

void cmd_acl_deluser(struct ctx *c)
{
    struct server *s = c->server;
    i64 deleted = 0;
    for (int i = 2; i < c->argc; i++) {
        if (!bytes_eq(c->argv[i], BYTES_LIT(ACL_DEFAULT_NAME))) continue;
        reply_error(c->out, "ERR The 'default' user cannot be removed");
        acl_redact(c);
        return;
    }
    for (int i = 2; i < c->argc; i++) {
        struct acl_user *u = acl_find(&s->acl, c->argv[i]);
        if (!u) continue;
        users_remove(s, u, c->session);
        deleted++;
    }
    reply_int(c->out, deleted);
    acl_redact(c);
}

void cmd_acl_whoami(struct ctx *c)
{
    if (c->session->user) reply_bulk(c->out, buf_bytes(&c->session->user->name));
    else reply_null(c->out);
}

void cmd_acl_users(struct ctx *c)
{
    const struct acl *a = &c->server->acl;
    reply_array(c->out, a->count);
    for (u32 i = 0; i < a->count; i++) reply_bulk(c->out, buf_bytes(&a->users[i]->name));
}

void cmd_acl_list(struct ctx *c)
{
    const struct acl *a = &c->server->acl;
    struct buf line = {0};
    reply_array(c->out, a->count);
    for (u32 i = 0; i < a->count; i++) {
        buf_clear(&line);
        buf_append_str(&line, "user ");
        buf_append_bytes(&line, buf_bytes(&a->users[i]->name));
        buf_append_char(&line, ' ');
        acl_print_user(a->users[i], &line);
        reply_bulk(c->out, buf_bytes(&line));
    }
    buf_release(&line);
}

/* -- GETUSER ------------------------------------------------------------------------------------------ */

static void reply_flags(struct ctx *c, const struct acl_user *u)
{
    static const char *const sanitize[] = {"sanitize-payload", "skip-sanitize-payload"};
    reply_set(c->out, 2 + u->nopass);
    reply_bulk_str(c->out, u->on ? "on" : "off");
    if (u->nopass) reply_bulk_str(c->out, "nopass");
    reply_bulk_str(c->out, sanitize[u->sanitize]);
}

static void reply_passwords(struct ctx *c, const struct acl_user *u)
{
    struct buf hex = {0};
    reply_array(c->out, u->password_count);
    for (u32 i = 0; i < u->password_count; i++) {
        buf_clear(&hex);
        acl_print_password(u->passwords[i], &hex);
        reply_bulk(c->out, buf_bytes(&hex));
    }
    buf_release(&hex);
}

static void reply_text(struct ctx *c, const char *name,
                       void (*print)(const struct acl_selector *, struct buf *), const struct acl_selector *s)
{
    struct buf text = {0};
    print(s, &text);
    reply_bulk_str(c->out, name);
    reply_bulk(c->out, buf_bytes(&text));
    buf_release(&text);
}

static void reply_selector(struct ctx *c, const struct acl_selector *s)
{
    reply_text(c, "commands", acl_print_commands, s);
    reply_text(c, "keys", acl_print_keys, s);
    reply_text(c, "channels", acl_print_channels, s);
}

void cmd_acl_getuser(struct ctx *c)
{
    const struct acl_user *u = acl_find(&c->server->acl, c->argv[2]);
    acl_redact(c);
    if (!u) {
        reply_null(c->out);
        return;
    }
    reply_map(c->out, 6);
    reply_bulk_str(c->out, "flags");
    reply_flags(c, u);
    reply_bulk_str(c->out, "passwords");
    reply_passwords(c, u);
    reply_selector(c, &u->selectors[0]);
    reply_bulk_str(c->out, "selectors");
    reply_array(c->out, u->selector_count - 1);
    for (u32 i = 1; i < u->selector_count; i++) {
        reply_map(c->out, 3);
        reply_selector(c, &u->selectors[i]);
    }
}

/* -- CAT, GENPASS, DRYRUN ----------------------------------------------------------------------------- */

static void reply_members(struct ctx *c, u32 category)
{
    size_t mark = reply_mark(c->out), n = 0;
    for (u32 id = 0; id < command_count(); id++) {
        if (!(command_at(id)->categories & category)) continue;
        reply_bulk_str(c->out, command_at(id)->name);
        n++;
    }
    reply_array_at(c->out, mark, n);
}

void cmd_acl_cat(struct ctx *c)
{
    if (c->argc > 3) {
        ctx_wrong_subcommand(c);
        return;
    }
    if (c->argc == 3) {
        u32 category = command_category(c->argv[2]);
        if (category) reply_members(c, category);
        else reply_errorf(c->out, "ERR Unknown category '%.*s'", (int)MIN(c->argv[2].n, 128u), c->argv[2].p);
        return;
    }
    reply_array(c->out, COMMAND_CATEGORIES);
    for (u32 i = 0; i < COMMAND_CATEGORIES; i++) reply_bulk_str(c->out, command_category_names[i] + 1);
}

void cmd_acl_genpass(struct ctx *c)
{
    i64 bits = GENPASS_BITS;
    u8 random[GENPASS_MAX / 8];
    char text[GENPASS_MAX / 4];
    if (c->argc > 3) {
        ctx_wrong_subcommand(c);
        return;
    }
    if (c->argc == 3 && !ctx_int(c, c->argv[2], &bits)) return;
    if (bits <= 0 || bits > GENPASS_MAX) {
        reply_errorf(c->out, "ERR ACL GENPASS argument must be the number of bits for the output password, a "
                             "positive number up to %d", GENPASS_MAX);
        return;
    }
    size_t digits = (size_t)(bits + 3) / 4;
    if (uv_random(NULL, NULL, random, sizeof random, 0, NULL)) {
        reply_error(c->out, "ERR the system has no random numbers"); /* no weaker source will do */
        return;
    }
    for (size_t i = 0; i < digits; i++) text[i] = "0123456789abcdef"[random[i / 2] >> (i % 2 * 4) & 15];
    reply_bulk(c->out, bytes_of(text, digits));
}

/* The command that clients call by these words; NULL: none. */
static const struct command *find_request(const struct node *n, int argc, const bytes *argv)
{
    const struct command *cmd = node_find(n, argv[0]);
    return cmd && cmd->sub_count && argc > 1 ? command_find_sub(cmd, argv[1]) : cmd;
}

static void reply_denial(struct ctx *c, enum acl_denial denial, const struct command *cmd, bytes what)
{
    bytes user = c->argv[2];
    if (denial == ACL_ALLOWED) reply_ok(c->out);
    else if (denial == ACL_NO_COMMAND)
        reply_bulkf(c->out, "User %.*s has no permissions to run the '%s' command", (int)user.n, user.p,
                    cmd->name);
    else
        reply_bulkf(c->out, "User %.*s has no permissions to access the '%.*s' %s", (int)user.n, user.p,
                    (int)what.n, what.p, denial == ACL_NO_KEY ? "key" : "channel");
}

void cmd_acl_dryrun(struct ctx *c)
{
    const struct acl_user *u = acl_find(&c->server->acl, c->argv[2]);
    int argc = c->argc - 3, at;
    const bytes *argv = c->argv + 3;
    const struct command *cmd = find_request(ctx_node(c), argc, argv);
    if (!u) {
        reply_errorf(c->out, "ERR User '%.*s' not found", (int)MIN(c->argv[2].n, 128u), c->argv[2].p);
    } else if (!cmd) {
        reply_errorf(c->out, "ERR Command '%.*s' not found", (int)MIN(argv[0].n, 128u), argv[0].p);
    } else if (!command_takes(cmd, argc)) {
        reply_errorf(c->out, "ERR wrong number of arguments for '%s' command", cmd->name);
    } else {
        enum acl_denial denial = acl_check(u, cmd, argc, argv, &at);
        reply_denial(c, denial, cmd, argv[at]);
    }
}

/* -- LOAD, SAVE --------------------------------------------------------------------------------------- */

static bool has_file(struct ctx *c)
{
    if (c->server->config.aclfile.n) return true;
    reply_error(c->out, "ERR This Redis instance is not configured to use an ACL file. You may want to "
                        "specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming "
                        "you have a Redis configuration file set) in order to store users in the Redis "
                        "configuration.");
    return false;
}

void cmd_acl_load(struct ctx *c)
{
    struct buf why = {0};
    if (!has_file(c)) return;
    if (users_load(c->server, c->session, &why)) reply_ok(c->out);
    else reply_errorf(c->out, "ERR %.*s", (int)why.n, why.p);
    buf_release(&why);
}

void cmd_acl_save(struct ctx *c)
{
    if (!has_file(c)) return;
    if (users_save(c->server)) reply_ok(c->out);
    else reply_error(c->out, "ERR There was an error trying to save the ACLs. Please check the server logs "
                             "for more information");
}

/* -- LOG ------------------------------------------------------------------------------------------------ */

static void acl_log_reply_entry(struct ctx *c, const struct acl_entry *e)
{
    static const char *const reasons[] = {"", "command", "key", "auth", "channel"};
    static const char *const contexts[] = {"toplevel", "multi", "lua", "module"};
    reply_map(c->out, 10);
    reply_bulk_str(c->out, "count");
    reply_int(c->out, (i64)e->count);
    reply_bulk_str(c->out, "reason");
    reply_bulk_str(c->out, reasons[e->denial]);
    reply_bulk_str(c->out, "context");
    reply_bulk_str(c->out, contexts[e->where]);
    reply_bulk_str(c->out, "object");
    reply_bulk(c->out, buf_bytes(&e->what));
    reply_bulk_str(c->out, "username");
    reply_bulk(c->out, buf_bytes(&e->user));
    reply_bulk_str(c->out, "age-seconds");
    reply_double(c->out, (double)(c->now_ms - e->time_ms) / 1000);
    reply_bulk_str(c->out, "client-info");
    reply_bulk(c->out, buf_bytes(&e->client));
    reply_bulk_str(c->out, "entry-id");
    reply_int(c->out, (i64)e->id);
    reply_bulk_str(c->out, "timestamp-created");
    reply_int(c->out, e->created_ms);
    reply_bulk_str(c->out, "timestamp-last-updated");
    reply_int(c->out, e->time_ms);
}

void cmd_acl_log(struct ctx *c)
{
    struct acl_log *l = &c->server->acl_log;
    i64 count = LOG_SHOWN;
    if (c->argc > 3) {
        ctx_wrong_subcommand(c);
        return;
    }
    if (c->argc == 3 && bytes_is(c->argv[2], "reset")) {
        acl_log_trim(l, 0);
        reply_ok(c->out);
        return;
    }
    if (c->argc == 3 && !ctx_int(c, c->argv[2], &count)) return;
    count = MIN(MAX(count, 0), (i64)l->count);
    reply_array(c->out, (size_t)count);
    for (const struct acl_entry *e = l->newest; count--; e = e->older) acl_log_reply_entry(c, e);
}

void cmd_acl_help(struct ctx *c)
{
    static const char *const lines[] = {
        "CAT [<category>]", "    The categories of commands, or the commands of one.",
        "DELUSER <username> [<username> ...]", "    Remove users, and close their connections.",
        "DRYRUN <username> <command> [<arg> ...]", "    Whether the user could run the command.",
        "GENPASS [<bits>]", "    A random password of that strength (default: 256 bits).",
        "GETUSER <username>", "    What a user may do.",
        "LIST", "    All users, as lines of a configuration file.",
        "LOAD", "    Read the ACL file again.",
        "LOG [<count>|RESET]", "    The latest commands that were denied, or forget them.",
        "SAVE", "    Write the users to the ACL file.",
        "SETUSER <username> [<rule> ...]", "    Make or change a user.",
        "USERS", "    The names of all users.",
        "WHOAMI", "    The user of this connection.", NULL,
    };
    ctx_help(c, lines);
}
