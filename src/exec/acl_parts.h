/* Internals of access control, shared by acl*.c. */
#ifndef MAYFLY_EXEC_ACL_PARTS_H
#define MAYFLY_EXEC_ACL_PARTS_H

#include <strings.h>

#include "exec/acl.h"

/* Sets of commands: a bit per command of the table. */
static inline u32 acl_words(void) { return (command_count() + 63) / 64; }
static inline bool acl_bit(const u64 *bits, u32 id) { return bits[id / 64] >> (id % 64) & 1; }

static inline bool acl_same_word(bytes a, bytes b)
{
    return a.n == b.n && (a.n == 0 || strncasecmp(a.p, b.p, a.n) == 0);
}

void acl_selector_init(struct acl_selector *s, bool all_channels); /* nothing is allowed */
void acl_selector_release(struct acl_selector *s);

/* Allow or forbid: everything; a command with its subcommands; a category, and the subcommands of containers
 * in it. First arguments that were allowed individually are dropped. */
void acl_allow_all(struct acl_selector *s, bool allow);
void acl_allow(struct acl_selector *s, const struct command *cmd, bool allow);
void acl_allow_category(struct acl_selector *s, u32 category, bool allow);
void acl_add_first_arg(struct acl_selector *s, const struct command *cmd, bytes arg);

void acl_add_pattern(struct acl_patterns *p, bytes text, u32 use); /* if it exists, `use` is added to it */
void acl_clear_patterns(struct acl_patterns *p);

void acl_add_password(struct acl_user *u, const u8 digest[SHA256_BYTES]);
bool acl_drop_password(struct acl_user *u, const u8 digest[SHA256_BYTES]); /* false: not found */
void acl_clear_passwords(struct acl_user *u, bool nopass);

#endif
