/* Parses rules: the words of ACL SETUSER, of `user` lines and of the ACL file. */
#include <stdlib.h>

#include "base/alloc.h"
#include "exec/acl_parts.h"
#include "resp/request.h"

static const char bad_syntax[] = "Syntax error";
static const char unknown_name[] = "Unknown command or category name in ACL";
static const char no_first_arg[] = "Allowing first-arg of a subcommand is not supported";
static const char all_keys_already[] =
    "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. "
    "Try 'resetkeys' to start with an empty list of patterns";
static const char all_channels_already[] =
    "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any "
    "effect. Try 'resetchannels' to start with an empty list of channels";
static const char no_such_password[] = "The password you are trying to remove from the user does not exist";
static const char bad_hash[] =
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters";

static bytes after(bytes s, size_t n) { return bytes_of(s.p + n, s.n - n); }

/* -- patterns ------------------------------------------------------------------------------------ */

/* ~pattern, %R~pattern, %RW~pattern; Redis treats a missing ~ as one at the end. */
static const char *add_keys(struct acl_selector *s, bytes rule)
{
    u32 use = 0;
    size_t at = 1;
    if (s->all_keys) return all_keys_already;
    if (rule.p[0] == '~') use = ACL_READ_WRITE;
    for (; rule.p[0] == '%' && at < rule.n; at++) {
        char ch = rule.p[at] | 0x20;
        u32 more = ch == 'r' ? ACL_READ : ch == 'w' ? ACL_WRITE : 0;
        if (rule.p[at] == '~') {
            at++;
            break;
        }
        if (!more || use & more) return bad_syntax;
        use |= more;
    }
    if (!use || !acl_name_fits(after(rule, at))) return bad_syntax;
    acl_add_pattern(&s->keys, after(rule, at), use);
    return NULL;
}

static const char *add_channel(struct acl_selector *s, bytes rule)
{
    if (s->all_channels) return all_channels_already;
    if (!acl_name_fits(after(rule, 1))) return bad_syntax;
    acl_add_pattern(&s->channels, after(rule, 1), 0);
    return NULL;
}

static void set_all_keys(struct acl_selector *s, bool all)
{
    s->all_keys = all;
    acl_clear_patterns(&s->keys);
}

static void set_all_channels(struct acl_selector *s, bool all)
{
    s->all_channels = all;
    acl_clear_patterns(&s->channels);
}

/* -- commands ------------------------------------------------------------------------------------- */

/* Commands that Redis has and Mayfly has not: an ACL file of Redis must still be readable. There is nothing
 * to allow or forbid. */
static bool is_foreign(bytes name)
{
    static const char *const foreign[] = {"module|load", "module|loadex", "module|unload"};
    bool found = false;
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++) found |= bytes_is(name, foreign[i]);
    return found;
}

/* +command|word: a subcommand or, if the command has none, its first argument. */
static const char *add_part(struct acl_selector *s, bytes name, size_t bar)
{
    const struct command *cmd = command_find_full(bytes_of(name.p, bar)), *sub;
    bytes word = after(name, bar + 1);
    if (!cmd) return unknown_name;
    if (strchr(cmd->name, '|')) return no_first_arg;
    if (word.n == 0) return bad_syntax;
    if (cmd->sub_count) {
        if (!(sub = command_find_sub(cmd, word))) return unknown_name;
        acl_allow(s, sub, true);
    } else {
        acl_add_first_arg(s, cmd, word);
    }
    return NULL;
}

static const char *change_command(struct acl_selector *s, bytes rule)
{
    bool allow = rule.p[0] == '+';
    bytes name = after(rule, 1);
    if (is_foreign(name)) return NULL;
    const char *bar = allow && name.n ? memrchr(name.p, '|', name.n) : NULL;
    if (bar) return add_part(s, name, (size_t)(bar - name.p));
    const struct command *cmd = command_find_full(name);
    if (!cmd) return unknown_name;
    acl_allow(s, cmd, allow);
    return NULL;
}

static const char *change_category(struct acl_selector *s, bytes rule)
{
    u32 category = command_category(after(rule, 2));
    if (!category) return unknown_name;
    acl_allow_category(s, category, rule.p[0] == '+');
    return NULL;
}

/* -- selectors --------------------------------------------------------------------------------------- */

static const char *apply_to_selector(struct acl_selector *s, bytes rule)
{
    bool changes_commands = rule.n && (rule.p[0] == '+' || rule.p[0] == '-');
    if (bytes_is(rule, "allkeys") || bytes_is(rule, "~*")) set_all_keys(s, true);
    else if (bytes_is(rule, "resetkeys")) set_all_keys(s, false);
    else if (bytes_is(rule, "allchannels") || bytes_is(rule, "&*")) set_all_channels(s, true);
    else if (bytes_is(rule, "resetchannels")) set_all_channels(s, false);
    else if (bytes_is(rule, "allcommands") || bytes_is(rule, "+@all")) acl_allow_all(s, true);
    else if (bytes_is(rule, "nocommands") || bytes_is(rule, "-@all")) acl_allow_all(s, false);
    else if (rule.n && (rule.p[0] == '~' || rule.p[0] == '%')) return add_keys(s, rule);
    else if (rule.n && rule.p[0] == '&') return add_channel(s, rule);
    else if (changes_commands && rule.n > 1 && rule.p[1] == '@') return change_category(s, rule);
    else if (changes_commands) return change_command(s, rule);
    else return bad_syntax;
    return NULL;
}

/* "(rule rule …)". Unbalanced quotes make it empty, as in Redis. */
static const char *add_selector(const struct acl *a, struct acl_user *u, bytes rule)
{
    struct request_parser p;
    struct acl_selector s;
    const char *bad = NULL;
    acl_selector_init(&s, a->all_channels);
    request_parser_init(&p);
    if (request_split_words(&p, bytes_of(rule.p + 1, rule.n - 2))) {
        for (u32 i = 0; i < p.argc && !bad; i++) bad = apply_to_selector(&s, request_word(&p, i));
    }
    request_parser_release(&p);
    if (bad) {
        acl_selector_release(&s);
        return bad;
    }
    u->selectors = mem_realloc(u->selectors, (u->selector_count + 1) * sizeof *u->selectors);
    u->selectors[u->selector_count++] = s;
    return NULL;
}

static void clear_selectors(struct acl_user *u)
{
    while (u->selector_count > 1) acl_selector_release(&u->selectors[--u->selector_count]);
}

/* -- passwords ----------------------------------------------------------------------------------------- */

static int hex_digit(char ch)
{
    if (ch >= '0' && ch <= '9') return ch - '0';
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

static bool parse_digest(bytes hex, u8 out[SHA256_BYTES])
{
    if (hex.n != 2 * SHA256_BYTES) return false;
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        int high = hex_digit(hex.p[2 * i]), low = hex_digit(hex.p[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (u8)(high << 4 | low);
    }
    return true;
}

/* >password and #digest add one, <password and !digest remove one. */
static const char *change_password(struct acl_user *u, bytes rule)
{
    u8 digest[SHA256_BYTES];
    char kind = rule.p[0];
    if (kind == '>' || kind == '<') sha256(after(rule, 1), digest);
    else if (!parse_digest(after(rule, 1), digest)) return bad_hash;
    if (kind == '>' || kind == '#') acl_add_password(u, digest);
    else if (!acl_drop_password(u, digest)) return no_such_password;
    return NULL;
}

/* -- users ----------------------------------------------------------------------------------------------- */

static void reset(const struct acl *a, struct acl_user *u)
{
    struct acl_selector *own = &u->selectors[0];
    acl_clear_passwords(u, false);
    set_all_keys(own, false);
    set_all_channels(own, a->all_channels);
    u->on = false;
    u->sanitize = ACL_SANITIZE;
    clear_selectors(u);
    acl_allow_all(own, false);
}

static const char *acl_rule_apply(const struct acl *a, struct acl_user *u, bytes rule)
{
    if (rule.n == 0) return NULL;
    if (bytes_is(rule, "on")) u->on = true;
    else if (bytes_is(rule, "off")) u->on = false;
    else if (bytes_is(rule, "nopass")) acl_clear_passwords(u, true);
    else if (bytes_is(rule, "resetpass")) acl_clear_passwords(u, false);
    else if (bytes_is(rule, "sanitize-payload")) u->sanitize = ACL_SANITIZE;
    else if (bytes_is(rule, "skip-sanitize-payload")) u->sanitize = ACL_SANITIZE_SKIP;
    else if (bytes_is(rule, "clearselectors")) clear_selectors(u);
    else if (bytes_is(rule, "reset")) reset(a, u);
    else if (strchr("><#!", rule.p[0])) return rule.p[0] ? change_password(u, rule) : bad_syntax;
    else if (rule.n > 1 && rule.p[0] == '(' && rule.p[rule.n - 1] == ')') return add_selector(a, u, rule);
    else return apply_to_selector(&u->selectors[0], rule);
    return NULL;
}

const char *acl_user_apply(const struct acl *a, struct acl_user *u, bytes rule)
{
    const char *bad = acl_rule_apply(a, u, rule);
    const struct acl_selector *own = &u->selectors[0];
    u->restricted = !own->all_commands || !own->all_keys || !own->all_channels;
    return bad;
}

bool acl_is_unknown_name(const char *error) { return error == unknown_name; }

bytes *acl_join_rules(u32 argc, const bytes *argv, u32 *n)
{
    size_t total = 0;
    for (u32 i = 0; i < argc; i++) total += argv[i].n + 1;
    bytes *rules = mem_alloc(argc * sizeof *rules + total + 1);
    char *text = (char *)(rules + argc);
    u32 count = 0, opened = argc;
    for (u32 i = 0; i < argc; i++) {
        bytes word = argv[i];
        bool closes = word.n && word.p[word.n - 1] == ')';
        bool inside = opened < argc;
        if (!inside) rules[count] = bytes_of(text, 0);
        if (inside) *text++ = ' ', rules[count].n++;
        if (word.n) memcpy(text, word.p, word.n);
        text += word.n;
        rules[count].n += word.n;
        if (!inside && word.n && word.p[0] == '(' && !closes) opened = i;
        else if (!inside || closes) count++, opened = argc;
    }
    *n = opened < argc ? opened : count;
    if (opened == argc) return rules;
    mem_free(rules);
    return NULL;
}
