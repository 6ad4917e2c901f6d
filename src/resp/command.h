/* A RESP multibulk request (array of bulk strings) appended to a buffer:
 * journal records, and requests to other servers. */
#ifndef MAYFLY_RESP_COMMAND_H
#define MAYFLY_RESP_COMMAND_H

#include "base/buf.h"

void resp_write_command(struct buf *out, int argc, const bytes *argv);

/* Writes a request up to the bytes of its last argument. The caller appends these and CRLF. */
void resp_write_command_head(struct buf *out, int argc, const bytes *argv);

#endif
