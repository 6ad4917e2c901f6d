/* Users: making, copying and finding them, and their passwords. Sessions point to their user, so a user is
 * changed in place; before one is removed, its sessions are ended. */
#include "base/alloc.h"
#include "base/err.h"
#include "exec/acl_parts.h"

/* -- patterns and first arguments ------------------------------------------------------------ */

static void copy_text(struct buf *to, const struct buf *from)
{
    *to = (struct buf){0};
    buf_append_bytes(to, buf_bytes(from));
}

void acl_clear_patterns(struct acl_patterns *p)
{
    for (u32 i = 0; i < p->n; i++) buf_release(&p->v[i].text);
    mem_free(p->v);
    *p = (struct acl_patterns){0};
}

static void patterns_copy(struct acl_patterns *to, const struct acl_patterns *from)
{
    *to = (struct acl_patterns){.n = from->n};
    if (from->n) to->v = mem_alloc(from->n * sizeof *to->v);
    for (u32 i = 0; i < from->n; i++) {
        to->v[i].use = from->v[i].use;
        copy_text(&to->v[i].text, &from->v[i].text);
    }
}

void acl_add_pattern(struct acl_patterns *p, bytes text, u32 use)
{
    for (u32 i = 0; i < p->n; i++) {
        if (!bytes_eq(buf_bytes(&p->v[i].text), text)) continue;
        p->v[i].use |= use;
        return;
    }
    p->v = mem_realloc(p->v, (p->n + 1) * sizeof *p->v);
    struct acl_pattern *added = &p->v[p->n++];
    *added = (struct acl_pattern){.use = use};
    buf_append_bytes(&added->text, text);
}

void acl_add_first_arg(struct acl_selector *s, const struct command *cmd, bytes arg)
{
    for (u32 i = 0; i < s->first_arg_count; i++) {
        const struct acl_first_arg *f = &s->first_args[i];
        if (f->cmd == cmd && acl_same_word(buf_bytes(&f->arg), arg)) return;
    }
    s->first_args = mem_realloc(s->first_args, (s->first_arg_count + 1) * sizeof *s->first_args);
    struct acl_first_arg *added = &s->first_args[s->first_arg_count++];
    *added = (struct acl_first_arg){.cmd = cmd};
    buf_append_bytes(&added->arg, arg);
}

/* Those of one command, or all (NULL). */
static void drop_first_args(struct acl_selector *s, const struct command *cmd)
{
    u32 kept = 0;
    for (u32 i = 0; i < s->first_arg_count; i++) {
        if (cmd && s->first_args[i].cmd != cmd) s->first_args[kept++] = s->first_args[i];
        else buf_release(&s->first_args[i].arg);
    }
    s->first_arg_count = kept;
}

/* -- selectors ----------------------------------------------------------------------------------- */

void acl_selector_init(struct acl_selector *s, bool all_channels)
{
    *s = (struct acl_selector){.all_channels = all_channels};
    s->commands = mem_zalloc(acl_words() * sizeof *s->commands);
}

void acl_selector_release(struct acl_selector *s)
{
    drop_first_args(s, NULL);
    mem_free(s->first_args);
    acl_clear_patterns(&s->keys);
    acl_clear_patterns(&s->channels);
    mem_free(s->commands);
}

static void selector_copy(struct acl_selector *to, const struct acl_selector *from)
{
    *to = *from;
    to->commands = mem_alloc(acl_words() * sizeof *to->commands);
    memcpy(to->commands, from->commands, acl_words() * sizeof *to->commands);
    patterns_copy(&to->keys, &from->keys);
    patterns_copy(&to->channels, &from->channels);
    to->first_args = NULL;
    if (from->first_arg_count) to->first_args = mem_alloc(from->first_arg_count * sizeof *to->first_args);
    for (u32 i = 0; i < from->first_arg_count; i++) {
        to->first_args[i].cmd = from->first_args[i].cmd;
        copy_text(&to->first_args[i].arg, &from->first_args[i].arg);
    }
}

void acl_allow_all(struct acl_selector *s, bool allow)
{
    memset(s->commands, allow ? 0xff : 0, acl_words() * sizeof *s->commands);
    s->all_commands = s->future = allow;
    drop_first_args(s, NULL);
}

void acl_allow(struct acl_selector *s, const struct command *cmd, bool allow)
{
    for (u32 i = 0; i <= cmd->sub_count; i++) {
        u32 id = cmd->id + i; /* subcommands follow their container */
        u64 bit = 1ULL << (id % 64);
        if (allow) s->commands[id / 64] |= bit;
        else s->commands[id / 64] &= ~bit;
        if (s->first_arg_count) drop_first_args(s, command_at(id));
    }
    if (!allow) s->all_commands = false;
}

void acl_allow_category(struct acl_selector *s, u32 category, bool allow)
{
    for (u32 id = 0; id < command_count(); id++) {
        const struct command *cmd = command_at(id);
        if (cmd->categories & category) acl_allow(s, cmd, allow);
    }
}

/* -- one user --------------------------------------------------------------------------------------- */

struct acl_user *acl_user_new(const struct acl *a, bytes name)
{
    struct acl_user *u = mem_zalloc(sizeof *u);
    buf_append_bytes(&u->name, name);
    u->selectors = mem_alloc(sizeof *u->selectors);
    u->selector_count = 1;
    acl_selector_init(&u->selectors[0], a->all_channels);
    u->restricted = true;
    return u;
}

static void release_content(struct acl_user *u)
{
    for (u32 i = 0; i < u->selector_count; i++) acl_selector_release(&u->selectors[i]);
    mem_free(u->selectors);
    mem_free(u->passwords);
}

void acl_user_free(struct acl_user *u)
{
    release_content(u);
    buf_release(&u->name);
    mem_free(u);
}

void acl_user_copy(struct acl_user *to, const struct acl_user *from)
{
    struct buf name = to->name;
    release_content(to);
    *to = *from;
    to->name = name;
    to->passwords = NULL;
    if (from->password_count) {
        to->passwords = mem_alloc(from->password_count * sizeof *to->passwords);
        memcpy(to->passwords, from->passwords, from->password_count * sizeof *to->passwords);
    }
    to->selectors = mem_alloc(from->selector_count * sizeof *to->selectors);
    for (u32 i = 0; i < from->selector_count; i++) selector_copy(&to->selectors[i], &from->selectors[i]);
}

bool acl_name_fits(bytes name)
{
    for (size_t i = 0; i < name.n; i++) {
        char ch = name.p[i];
        if (ch == '\0' || ch == ' ' || (ch >= '\t' && ch <= '\r')) return false;
    }
    return true;
}

/* -- passwords ----------------------------------------------------------------------------------------- */

bool acl_user_knows(const struct acl_user *u, bytes password)
{
    u8 digest[SHA256_BYTES];
    bool known = false;
    if (!u->on) return false;
    if (u->nopass) return true;
    sha256(password, digest);
    for (u32 i = 0; i < u->password_count; i++) known |= sha256_same(digest, u->passwords[i]);
    return known;
}

void acl_clear_passwords(struct acl_user *u, bool nopass)
{
    u->password_count = 0;
    u->nopass = nopass;
}

static u32 password_at(const struct acl_user *u, const u8 digest[SHA256_BYTES])
{
    u32 at = 0;
    while (at < u->password_count && !sha256_same(digest, u->passwords[at])) at++;
    return at;
}

void acl_add_password(struct acl_user *u, const u8 digest[SHA256_BYTES])
{
    u->nopass = false;
    if (password_at(u, digest) < u->password_count) return;
    u->passwords = mem_realloc(u->passwords, (u->password_count + 1) * sizeof *u->passwords);
    memcpy(u->passwords[u->password_count++], digest, SHA256_BYTES);
}

bool acl_drop_password(struct acl_user *u, const u8 digest[SHA256_BYTES])
{
    u32 at = password_at(u, digest);
    if (at == u->password_count) return false;
    u->password_count--;
    memmove(u->passwords[at], u->passwords[at + 1], (u->password_count - at) * sizeof *u->passwords);
    return true;
}

void acl_user_set_password(struct acl_user *u, bytes password)
{
    u8 digest[SHA256_BYTES];
    acl_clear_passwords(u, password.n == 0);
    if (password.n == 0) return;
    sha256(password, digest);
    acl_add_password(u, digest);
}

/* -- all users ------------------------------------------------------------------------------------------- */

/* The index of the user of this name, or where it would be inserted. */
static u32 acl_position(const struct acl *a, bytes name)
{
    u32 low = 0, high = a->count;
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        if (bytes_cmp(buf_bytes(&a->users[mid]->name), name) < 0) low = mid + 1;
        else high = mid;
    }
    return low;
}

struct acl_user *acl_find(const struct acl *a, bytes name)
{
    u32 at = acl_position(a, name);
    return at < a->count && bytes_eq(buf_bytes(&a->users[at]->name), name) ? a->users[at] : NULL;
}

struct acl_user *acl_add(struct acl *a, bytes name)
{
    u32 at = acl_position(a, name);
    a->users = mem_realloc(a->users, (a->count + 1) * sizeof *a->users);
    memmove(a->users + at + 1, a->users + at, (a->count - at) * sizeof *a->users);
    a->count++;
    return a->users[at] = acl_user_new(a, name);
}

void acl_remove(struct acl *a, struct acl_user *u)
{
    u32 at = acl_position(a, buf_bytes(&u->name));
    a->count--;
    memmove(a->users + at, a->users + at + 1, (a->count - at) * sizeof *a->users);
    acl_user_free(u);
}

struct acl_user *acl_default(const struct acl *a) { return acl_find(a, BYTES_LIT(ACL_DEFAULT_NAME)); }

void acl_make_default(struct acl *a, struct acl_user *u)
{
    static const char *const rules[] = {"reset", "+@all", "~*", "&*", "on", "nopass"};
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) CHECK(!acl_user_apply(a, u, bytes_str(rules[i])));
}

void acl_init(struct acl *a)
{
    *a = (struct acl){0};
    acl_make_default(a, acl_add(a, BYTES_LIT(ACL_DEFAULT_NAME)));
}

void acl_release(struct acl *a)
{
    for (u32 i = 0; i < a->count; i++) acl_user_free(a->users[i]);
    mem_free(a->users);
    *a = (struct acl){0};
}
