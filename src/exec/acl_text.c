/* Users as text, in Redis's form.
 *
 * A selector stores only the set of commands it allows, not the rules that led to it. The printed rules are
 * reconstructed: starting from everything or nothing, the best-fitting categories are applied one by one,
 * then single commands, until the set is the same. */
#include "base/alloc.h"
#include "exec/acl_parts.h"

void acl_print_password(const u8 password[SHA256_BYTES], struct buf *out)
{
    for (int i = 0; i < SHA256_BYTES; i++) buf_printf(out, "%02x", password[i]);
}

void acl_print_keys(const struct acl_selector *s, struct buf *out)
{
    static const char *const begin[] = {"", "%R~", "%W~", "~"};
    bytes star = BYTES_LIT("*");
    if (s->all_keys) buf_append_str(out, "~*");
    for (u32 i = 0; i < s->keys.n; i++) {
        const struct acl_pattern *p = &s->keys.v[i];
        bool all = p->use == ACL_READ_WRITE && bytes_eq(buf_bytes(&p->text), star);
        buf_printf(out, "%s%s", i ? " " : "", all ? "%RW~" : begin[p->use]); /* ~* would be read as allkeys */
        buf_append_bytes(out, buf_bytes(&p->text));
    }
}

void acl_print_channels(const struct acl_selector *s, struct buf *out)
{
    if (s->all_channels) buf_append_str(out, "&*");
    for (u32 i = 0; i < s->channels.n; i++) {
        buf_append_str(out, i ? " &" : "&");
        buf_append_bytes(out, buf_bytes(&s->channels.v[i].text));
    }
}

/* -- commands --------------------------------------------------------------------------------------- */

/* A category, and how well it fits the remaining differences. */
struct fit {
    u32 category;    /* its bit; 0: none fits */
    u32 same, other; /* commands in it that are to be changed; that are not */
};

static struct fit best_category(const struct acl_selector *left, bool adds, u32 applied)
{
    struct fit best = {.other = UINT32_MAX};
    u32 on[COMMAND_CATEGORIES] = {0}, off[COMMAND_CATEGORIES] = {0};
    for (u32 id = 0; id < command_count(); id++) {
        u32 *count = acl_bit(left->commands, id) ? on : off;
        for (u32 cats = command_at(id)->categories; cats; cats &= cats - 1) count[__builtin_ctz(cats)]++;
    }
    for (u32 i = 0; i < COMMAND_CATEGORIES; i++) {
        struct fit f = {.category = 1u << i, .same = adds ? on[i] : off[i], .other = adds ? off[i] : on[i]};
        if (applied & f.category || f.same <= f.other) continue;
        if (f.other < best.other || (f.other == best.other && f.same > best.same)) best = f;
    }
    return best;
}

/* What is printed is applied to `said`, and removed from `left`. */
static void print_categories(const struct acl_selector *s, struct acl_selector *said, struct buf *out)
{
    struct acl_selector left;
    u32 applied = 0;
    acl_selector_init(&left, false);
    memcpy(left.commands, s->commands, acl_words() * sizeof *left.commands);
    for (;;) {
        struct fit best = best_category(&left, !s->future, applied);
        if (!best.category) break;
        acl_allow_category(said, best.category, !s->future);
        acl_allow_category(&left, best.category, s->future);
        applied |= best.category;
        buf_printf(out, " %s%s", s->future ? "-" : "+", command_category_names[__builtin_ctz(best.category)]);
    }
    acl_selector_release(&left);
}

static void print_first_args(const struct acl_selector *s, const struct command *cmd, struct buf *out)
{
    for (u32 i = 0; i < s->first_arg_count; i++) {
        if (s->first_args[i].cmd != cmd) continue;
        buf_printf(out, " +%s|", cmd->name);
        buf_append_bytes(out, buf_bytes(&s->first_args[i].arg));
    }
}

static void print_single(const struct acl_selector *s, struct acl_selector *said, struct buf *out)
{
    for (u32 id = 0; id < command_count(); id++) {
        const struct command *cmd = command_at(id);
        bool allowed = acl_bit(s->commands, id);
        if (allowed != acl_bit(said->commands, id)) {
            buf_printf(out, " %s%s", allowed ? "+" : "-", cmd->name);
            acl_allow(said, cmd, allowed);
        }
        if (!allowed && s->first_arg_count) print_first_args(s, cmd, out);
    }
}

void acl_print_commands(const struct acl_selector *s, struct buf *out)
{
    struct acl_selector said;
    buf_append_str(out, s->future ? "+@all" : "-@all");
    if (s->all_commands) return;
    acl_selector_init(&said, false);
    acl_allow_all(&said, s->future);
    print_categories(s, &said, out);
    print_single(s, &said, out);
    acl_selector_release(&said);
}

/* -- users -------------------------------------------------------------------------------------------- */

static void print_selector(const struct acl_selector *s, struct buf *out)
{
    acl_print_keys(s, out);
    if (s->all_keys || s->keys.n) buf_append_char(out, ' ');
    if (!s->all_channels) buf_append_str(out, "resetchannels ");
    acl_print_channels(s, out);
    if (s->all_channels || s->channels.n) buf_append_char(out, ' ');
    acl_print_commands(s, out);
}

void acl_print_user(const struct acl_user *u, struct buf *out)
{
    static const char *const sanitize[] = {"sanitize-payload ", "skip-sanitize-payload "};
    buf_printf(out, "%s%s%s", u->on ? "on " : "off ", u->nopass ? "nopass " : "", sanitize[u->sanitize]);
    for (u32 i = 0; i < u->password_count; i++) {
        buf_append_char(out, '#');
        acl_print_password(u->passwords[i], out);
        buf_append_char(out, ' ');
    }
    for (u32 i = 0; i < u->selector_count; i++) {
        if (i) buf_append_str(out, " (");
        print_selector(&u->selectors[i], out);
        if (i) buf_append_char(out, ')');
    }
}
