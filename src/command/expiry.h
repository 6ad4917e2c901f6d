/* What the files of EXPIRY share. */
#ifndef MAYFLY_COMMAND_EXPIRY_H
#define MAYFLY_COMMAND_EXPIRY_H

#include "command/ctx.h"

/* The database that the last argument, argv[2], names if it is there, else the selected one. False: it was
 * answered with an error. */
bool expiry_database(struct ctx *c, u32 *db);

#endif
