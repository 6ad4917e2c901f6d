/* Shared by the files of EXPIRY. */
#ifndef MAYFLY_COMMAND_EXPIRY_H
#define MAYFLY_COMMAND_EXPIRY_H

#include "command/ctx.h"

/* The database in the last argument, argv[2], if it is given, else the selected one. False: an error was
 * replied. */
bool expiry_database(struct ctx *c, u32 *db);

#endif
