/* Users and what they may do: Redis 7's access control lists.
 *
 * A user has selectors: sets of commands, key patterns and channel patterns. A command may run if one
 * selector allows all of it. The first selector is the user's own and always there; the others are written in
 * parentheses. Nothing here knows of connections, files or clocks.
 *
 * Whatever changes a user goes through acl_user_apply or acl_user_copy, which keep `restricted` right: most
 * users may do everything, and for them no more is looked at than that. */
#ifndef MAYFLY_EXEC_ACL_H
#define MAYFLY_EXEC_ACL_H

#include "base/buf.h"
#include "base/sha256.h"
#include "command/command.h"
#include "command/session.h"

/* What may be done with the keys of a pattern. */
enum { ACL_READ = 1, ACL_WRITE = 2, ACL_READ_WRITE = 3 };

struct acl_pattern {
    struct buf text;
    u32 use; /* of keys: ACL_READ, ACL_WRITE */
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
    u64 *commands;     /* a bit for each of the table */
    bool all_commands; /* all of them, and nothing was taken away … */
    bool future;       /* … or something was, but those of later versions would be allowed: +@all -x */
    bool all_keys, all_channels;
    struct acl_patterns keys, channels;
    struct acl_first_arg *first_args;
    u32 first_arg_count;
};

enum acl_sanitize { ACL_SANITIZE, ACL_SANITIZE_SKIP };

struct acl_user {
    struct buf name;
    bool on, nopass;
    bool restricted; /* there is something that its first selector does not allow */
    enum acl_sanitize sanitize;
    u8 (*passwords)[SHA256_BYTES];
    u32 password_count;
    struct acl_selector *selectors; /* the first is its own */
    u32 selector_count;
};

/* All users, by name. "default" is always among them. */
struct acl {
    struct acl_user **users; /* in the order of their names */
    u32 count;
    bool all_channels; /* acl-pubsub-default: may new selectors, and those that are reset, hear all? */
};

#define ACL_DEFAULT_NAME "default"

void acl_init(struct acl *a);
void acl_release(struct acl *a);
struct acl_user *acl_find(const struct acl *a, bytes name); /* NULL: none of that name */
struct acl_user *acl_add(struct acl *a, bytes name);        /* there is none of that name yet */
void acl_remove(struct acl *a, struct acl_user *u);         /* frees it; not the default one */
struct acl_user *acl_default(const struct acl *a);
void acl_make_default(struct acl *a, struct acl_user *u);   /* no password, everything allowed */

/* -- one user ----------------------------------------------------------------------------- */

struct acl_user *acl_user_new(const struct acl *a, bytes name); /* off, and nothing is allowed */
void acl_user_free(struct acl_user *u);
void acl_user_copy(struct acl_user *to, const struct acl_user *from); /* all but the name */

/* Whether a name can be one: no spaces, no NUL. */
bool acl_name_fits(bytes name);

/* Applies a rule ("on", "+get", "~key:*", "(+set ~x)"). What is wrong with it, as Redis tells it, or NULL. A
 * rule that fails changes nothing. */
NODISCARD const char *acl_user_apply(const struct acl *a, struct acl_user *u, bytes rule);

/* Whether that was about a command or category there is not: a text that tells no secrets. */
bool acl_is_unknown_name(const char *error);

/* Rules as words, of which those of a selector may stand between a word that begins with a parenthesis and
 * one that ends in one. The result, freed with mem_free, has one slice per rule; *n, how many. NULL: argv[*n]
 * opens a parenthesis that nothing closes. */
bytes *acl_join_rules(u32 argc, const bytes *argv, u32 *n);

/* Whether somebody who says this password is the user. Not: wrong, or the user is off. */
bool acl_user_knows(const struct acl_user *u, bytes password);
void acl_user_set_password(struct acl_user *u, bytes password); /* requirepass: empty means nopass */

/* -- what it may do ------------------------------------------------------------------------ */

/* In the order in which the reason that tells most is chosen. */
enum acl_denial { ACL_ALLOWED, ACL_NO_COMMAND, ACL_NO_KEY, ACL_NO_AUTH, ACL_NO_CHANNEL };
enum acl_context { ACL_TOPLEVEL, ACL_MULTI, ACL_LUA, ACL_MODULE }; /* where it was tried, for ACL LOG */

/* May the user run this command? *at: the argument that is a key or channel it may not use. NULL for a user
 * is nobody's request but our own: everything is allowed. */
enum acl_denial acl_check(const struct acl_user *u, const struct command *cmd, int argc, const bytes *argv,
                          int *at);

static inline bool acl_restricts(const struct session *s) { return s->user && s->user->restricted; }

/* Whether every key may be read by a command that it may run with these arguments: SORT's BY and GET, which
 * name no keys, depend on it. */
bool acl_reads_all(const struct acl_user *u, const struct command *cmd, int argc, const bytes *argv);

/* Whether there is anything the user may do with the key, so that it may hear its name. */
bool acl_knows_key(const struct acl_user *u, bytes key);

/* Whether one of the user's selectors lets it hear the channel, or subscribe to the pattern. */
bool acl_hears(const struct acl_user *u, bytes channel, bool is_pattern);

/* -- as text -------------------------------------------------------------------------------- */

void acl_print_user(const struct acl_user *u, struct buf *out);      /* as ACL LIST, without "user name" */
void acl_print_commands(const struct acl_selector *s, struct buf *out); /* "-@all +get" */
void acl_print_keys(const struct acl_selector *s, struct buf *out);     /* "~a %R~b" */
void acl_print_channels(const struct acl_selector *s, struct buf *out); /* "&a &b" */
void acl_print_password(const u8 password[SHA256_BYTES], struct buf *out);

#endif
