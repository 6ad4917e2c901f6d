/* Prototypes of every command function, made from the table itself. The
 * functions live with their family; those that need the whole server (CLIENT,
 * CONFIG, INFO …) live in src/server. */
#ifndef MAYFLY_COMMAND_COMMANDS_H
#define MAYFLY_COMMAND_COMMANDS_H

#include "command/ctx.h"

#define COMMAND(name_, fn_, ...) void fn_(struct ctx *c);
#define CONTAINER(name_, ...)
#include "command/table.def"
#undef COMMAND
#undef CONTAINER

#endif
