/* Secrets don't go to MONITOR or the slow log. */
#ifndef MAYFLY_SERVER_REDACT_H
#define MAYFLY_SERVER_REDACT_H

#include "base/buf.h"
#include "command/command.h"

/* The arguments as they may be shown. Returns argv itself when it holds no
 * secret, otherwise a copy in `space`, which the caller releases. */
const bytes *redact(const struct command *cmd, int argc, const bytes *argv, struct buf *space);

#endif
