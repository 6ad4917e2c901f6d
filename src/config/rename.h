/* rename-command: other names for commands, or none. */
#ifndef MAYFLY_CONFIG_RENAME_H
#define MAYFLY_CONFIG_RENAME_H

#include "command/command.h"
#include "config/config.h"

/* The command a client may call by this name. `config` is a struct config; the untyped parameter lets a lower
 * layer use this as a hook. */
const struct command *rename_find(void *config, bytes name);

/* Adds a renaming. False: `why` has Redis's text. */
NODISCARD bool rename_add(struct config *c, bytes from, bytes to, struct buf *why);

#endif
