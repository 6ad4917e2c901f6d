/* A RESP multibulk request (array of bulk strings) appended to a buffer:
 * journal records, and requests to other servers. */
#ifndef MAYFLY_RESP_COMMAND_H
#define MAYFLY_RESP_COMMAND_H

#include "base/buf.h"

void resp_write_command(struct buf *out, int argc, const bytes *argv);

#endif
