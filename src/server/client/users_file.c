/* Users as lines of text, of the ACL file and of a configuration file. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "persist/disk_file.h"
#include "server/client/users.h"

/* -- printing ------------------------------------------------------------------------------------- */

static void print_line(const struct acl_user *u, struct buf *out)
{
    buf_append_str(out, "user ");
    buf_append_bytes(out, buf_bytes(&u->name));
    buf_append_char(out, ' ');
    acl_print_user(u, out);
    buf_append_char(out, '\n');
}

static bool says_requirepass(const struct server *s, const struct acl_user *u)
{
    struct acl fresh;
    struct buf is = {0}, would_be = {0};
    acl_init(&fresh);
    acl_user_set_password(acl_default(&fresh), buf_bytes(&s->config.requirepass));
    acl_print_user(acl_default(&fresh), &would_be);
    acl_print_user(u, &is);
    bool same = bytes_eq(buf_bytes(&is), buf_bytes(&would_be));
    acl_release(&fresh);
    buf_release(&is);
    buf_release(&would_be);
    return same;
}

void users_lines(const struct server *s, struct buf *out)
{
    if (s->config.aclfile.n) return; /* they are in that file */
    for (u32 i = 0; i < s->acl.count; i++) {
        const struct acl_user *u = s->acl.users[i];
        if (u != acl_default(&s->acl) || !says_requirepass(s, u)) print_line(u, out);
    }
}

bool users_save(struct server *s)
{
    struct buf text = {0}, dir = {0};
    const char *path = s->config.aclfile.p, *slash = strrchr(path, '/');
    if (slash) config_text(&dir, bytes_of(path, MAX((size_t)(slash - path), 1u)));
    else config_text(&dir, BYTES_LIT("."));
    for (u32 i = 0; i < s->acl.count; i++) print_line(s->acl.users[i], &text);
    bool ok = disk_replace(dir.p, slash ? slash + 1 : path, buf_bytes(&text));
    if (!ok) log_line(&s->log, LOG_WARNING, "Can't write the ACL file %s: %s", path, strerror(errno));
    buf_release(&text);
    buf_release(&dir);
    return ok;
}

/* -- reading --------------------------------------------------------------------------------------- */

struct reading {
    const struct server *server;
    struct acl *into;
    struct buf *why; /* every error */
    u32 line;
};

static const char *users_file_path(const struct reading *r) { return r->server->config.aclfile.p; }

static bytes users_file_trim(bytes s)
{
    static const char blank[] = " \t\r\n";
    while (s.n && s.p[0] && strchr(blank, s.p[0])) s = bytes_of(s.p + 1, s.n - 1);
    while (s.n && s.p[s.n - 1] && strchr(blank, s.p[s.n - 1])) s.n--;
    return s;
}

/* The words of a line; the caller frees them. An ACL file has no quotes. */
static bytes *users_file_split(bytes line, u32 *n)
{
    bytes *words = mem_alloc((line.n / 2 + 1) * sizeof *words);
    *n = 0;
    while (line.n) {
        const char *space = memchr(line.p, ' ', line.n);
        size_t len = space ? (size_t)(space - line.p) : line.n;
        if (len) words[(*n)++] = bytes_of(line.p, len);
        len += space != NULL;
        line = bytes_of(line.p + len, line.n - len);
    }
    return words;
}

/* All rules are tried, so that all errors can be reported at once. Errors other than unknown names may follow
 * from each other and may reveal a password: of those only the fact is reported. */
static void read_rules(struct reading *r, struct acl_user *u, u32 n, const bytes *words)
{
    u32 count;
    bool told = false;
    bytes *rules = acl_join_rules(n, words, &count);
    if (!rules) {
        buf_printf(r->why, "%s:%u: Unmatched parenthesis in selector definition.", users_file_path(r),
                   r->line);
        return;
    }
    for (u32 i = 0; i < count; i++) {
        bytes rule = users_file_trim(rules[i]);
        const char *bad = acl_user_apply(r->into, u, rule);
        if (!bad) continue;
        if (acl_is_unknown_name(bad)) {
            buf_printf(r->why, "%s:%u: Error in applying operation '%.*s': %s. ", users_file_path(r), r->line,
                       (int)MIN(rule.n, 128u), rule.p, bad);
        } else if (!told) {
            buf_printf(r->why, "%s:%u: %s. ", users_file_path(r), r->line, bad);
            told = true;
        }
    }
    mem_free(rules);
}

static void read_line(struct reading *r, bytes line)
{
    u32 n;
    bytes *words = users_file_split(line, &n);
    if (n < 2 || !bytes_eq(words[0], BYTES_LIT("user"))) {
        buf_printf(r->why, "%s:%u should start with user keyword followed by the username. ",
                   users_file_path(r), r->line);
    } else if (!acl_name_fits(words[1])) {
        buf_printf(r->why, "'%s:%u: username '%.*s' contains invalid characters. ", users_file_path(r),
                   r->line, (int)MIN(words[1].n, 128u), words[1].p);
    } else if (acl_find(r->into, words[1])) {
        buf_printf(r->why, "WARNING: Duplicate user '%.*s' found on line %u. ", (int)MIN(words[1].n, 128u),
                   words[1].p, r->line);
    } else {
        read_rules(r, acl_add(r->into, words[1]), n - 2, words + 2);
    }
    mem_free(words);
}

static void read_text(struct reading *r, bytes text)
{
    while (text.n) {
        const char *nl = memchr(text.p, '\n', text.n);
        size_t n = nl ? (size_t)(nl - text.p) : text.n;
        bytes line = users_file_trim(bytes_of(text.p, n));
        r->line++;
        if (line.n) read_line(r, line);
        n += nl != NULL;
        text = bytes_of(text.p + n, text.n - n);
    }
    if (r->why->n)
        buf_append_str(r->why, "WARNING: ACL errors detected, no change to the previously active ACL rules "
                               "was performed");
}

bool users_load(struct server *s, struct session *self, struct buf *why)
{
    struct acl fresh = {.all_channels = s->acl.all_channels};
    struct reading r = {.server = s, .into = &fresh, .why = why};
    struct buf text = {0};
    int fd = open(s->config.aclfile.p, O_RDONLY | O_CLOEXEC);
    bool read = fd >= 0 && config_slurp(fd, &text);
    if (!read)
        buf_printf(why, "Error loading ACLs, opening file '%s': %s", s->config.aclfile.p, strerror(errno));
    if (fd >= 0) close(fd);
    if (read) read_text(&r, buf_bytes(&text));
    bool ok = why->n == 0;
    if (ok) users_replace(s, self, &fresh);
    acl_release(&fresh);
    buf_release(&text);
    return ok;
}
