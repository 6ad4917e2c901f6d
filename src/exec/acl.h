/* Users and their permissions: Redis 7's access control lists.
 *
 * A user has selectors: sets of commands, key patterns and channel patterns. A command may run if one
 * selector allows all of it. The first selector is the user's own and always there; the others are written in
 * parentheses. Nothing here knows of connections, files or clocks.
 *
 * Every change of a user goes through acl_user_apply or acl_user_copy, which keep `restricted` right: most
 * users may do everything, and for them nothing else is checked. */
#ifndef MAYFLY_EXEC_ACL_H
#define MAYFLY_EXEC_ACL_H

#include "base/buf.h"
#include "base/sha256.h"
#include "command/command.h"
#include "command/session.h"

/* What may be done with keys that match a pattern. */
enum { ACL_READ = 1, ACL_WRITE = 2, ACL_READ_WRITE = 3 };

struct acl_pattern {
    struct buf text;
    u32 use; /* for keys: ACL_READ, ACL_WRITE */
};

struct acl_patterns {
    struct acl_pattern *v;
    u32 n;
};

/* A command that is allowed with this first argument only: +select|0. */
struct acl_first_arg {
    const struct command *cmd;
    struct buf arg;
};

struct acl_selector {
    u64 *commands;     /* a bit per command of the table */
    bool all_commands; /* all of them, and none was removed … */
    bool future;       /* … or some were, but commands of later versions would be allowed: +@all -x */
    bool all_keys, all_channels;
    struct acl_patterns keys, channels;
    struct acl_first_arg *first_args;
    u32 first_arg_count;
};

enum acl_sanitize { ACL_SANITIZE, ACL_SANITIZE_SKIP };

struct acl_user {
    struct buf name;
    bool on, nopass;
    bool restricted; /* its first selector does not allow everything */
    enum acl_sanitize sanitize;
    u8 (*passwords)[SHA256_BYTES];
    u32 password_count;
    struct acl_selector *selectors; /* the first is its own */
    u32 selector_count;
};

/* All users, by name. "default" always exists. */
struct acl {
    struct acl_user **users; /* sorted by name */
    u32 count;
    bool all_channels; /* acl-pubsub-default: new and reset selectors may use all channels */
};

#define ACL_DEFAULT_NAME "default"

void acl_init(struct acl *a);
void acl_release(struct acl *a);
struct acl_user *acl_find(const struct acl *a, bytes name); /* NULL: no user of that name */
struct acl_user *acl_add(struct acl *a, bytes name);        /* no user of that name may exist yet */
void acl_remove(struct acl *a, struct acl_user *u);         /* frees it; not for the default user */
struct acl_user *acl_default(const struct acl *a);
void acl_make_default(struct acl *a, struct acl_user *u);   /* no password, everything allowed */

/* -- one user ----------------------------------------------------------------------------- */

struct acl_user *acl_user_new(const struct acl *a, bytes name); /* off, and nothing is allowed */
void acl_user_free(struct acl_user *u);
void acl_user_copy(struct acl_user *to, const struct acl_user *from); /* all but the name */

/* Whether the name is valid: no spaces, no NUL. */
bool acl_name_fits(bytes name);

/* Applies a rule ("on", "+get", "~key:*", "(+set ~x)"). Returns Redis's error text, or NULL. A rule that
 * fails changes nothing. */
NODISCARD const char *acl_user_apply(const struct acl *a, struct acl_user *u, bytes rule);

/* Whether the error is about an unknown command or category: that text contains no secrets. */
bool acl_is_unknown_name(const char *error);

/* Joins the words of rules: those of a selector lie between a word that begins with a parenthesis and one
 * that ends with one. The result has one slice per rule, *n of them; free it with mem_free. NULL: argv[*n]
 * opens a parenthesis that is not closed. */
bytes *acl_join_rules(u32 argc, const bytes *argv, u32 *n);

/* Whether the password is one of the user's. False: it is not, or the user is off. */
bool acl_user_knows(const struct acl_user *u, bytes password);
void acl_user_set_password(struct acl_user *u, bytes password); /* requirepass: empty means nopass */

/* -- permissions ----------------------------------------------------------------------------- */

/* Ordered by how informative the reason is: see acl_check. */
enum acl_denial { ACL_ALLOWED, ACL_NO_COMMAND, ACL_NO_KEY, ACL_NO_AUTH, ACL_NO_CHANNEL };
enum acl_context { ACL_TOPLEVEL, ACL_MULTI, ACL_LUA, ACL_MODULE }; /* where it was tried, for ACL LOG */

/* May the user run this command? *at: the argument that is a key or channel it may not use. A NULL user is
 * the server itself: everything is allowed. */
enum acl_denial acl_check(const struct acl_user *u, const struct command *cmd, int argc, const bytes *argv,
                          int *at);

static inline bool acl_restricts(const struct session *s) { return s->user && s->user->restricted; }

/* Whether every key may be read by a command that it may run with these arguments: needed for SORT's BY and
 * GET, whose keys are not among the arguments. */
bool acl_reads_all(const struct acl_user *u, const struct command *cmd, int argc, const bytes *argv);

/* Whether the user has any permission for the key, so that it may learn its name. */
bool acl_knows_key(const struct acl_user *u, bytes key);

/* Whether one of the user's selectors lets it receive the channel, or subscribe to the pattern. */
bool acl_hears(const struct acl_user *u, bytes channel, bool is_pattern);

/* -- as text -------------------------------------------------------------------------------- */

void acl_print_user(const struct acl_user *u, struct buf *out);      /* as ACL LIST, without "user name" */
void acl_print_commands(const struct acl_selector *s, struct buf *out); /* "-@all +get" */
void acl_print_keys(const struct acl_selector *s, struct buf *out);     /* "~a %R~b" */
void acl_print_channels(const struct acl_selector *s, struct buf *out); /* "&a &b" */
void acl_print_password(const u8 password[SHA256_BYTES], struct buf *out);

#endif
